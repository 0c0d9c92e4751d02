"""Fine-tune BERT on several tasks at once: one model, one head for each (Caruana 1997; Liu et al. 2019).

    python recipes/2019_bert_multitask.py --preset smoke    # under a minute on a CPU
    python recipes/2019_bert_multitask.py --preset glue --init-from runs/bert_pretrain-wikitext
    python recipes/2019_bert_multitask.py --preset glue --dataset mrpc+rte+tags=my/folder --task_weights tags=0.5

`--dataset` has the tasks: names of presets of `2019_bert_finetune.py`, folders, or NAME=DATASET for a name of your own.
Their columns choose the heads: classes, several labels or a number for a text or two texts, or tags. A batch is of one
task, drawn with a probability proportional to size^alpha (`--sampling_alpha`); the loss is sum_t lambda_t L_t, lambda
from `--task_weights`.

The run's folder has the whole model, and a folder for each task with its head alone:
`AutoModelForSequenceClassification.from_pretrained("runs/bert_multitask-glue/mrpc")`. The checkpoint with the best mean
of the tasks' main scores is kept with `--load_best_model_at_end`.
"""

from datasets import Dataset

from hf_edu_models import EduBertConfig, EduBertForMultiTask
from hf_edu_models.training import (
    MultiTaskArguments,
    MultiTaskTrainer,
    finish_tasks,
    launch,
    model_for,
    start_run,
    tasks_for,
    texts_of,
    tokenizer_for,
)

Arguments = MultiTaskArguments


def main(args, training_args):
    tasks = tasks_for(args)  # the data of each
    run = start_run(args, training_args, task="multi_task", metric="mean_score")

    tokenizer = tokenizer_for(args, {"train": Dataset.from_dict({"text": texts_of(tasks)})}, rung="bert")
    for task in tasks.values():
        task.encode(tokenizer)

    heads = {name: task.head for name, task in tasks.items()}
    settings = {"max_position_embeddings": args.max_length} | args.model
    model = model_for(EduBertForMultiTask, EduBertConfig.for_tokenizer(tokenizer, **settings, tasks=heads), args)

    trainer = MultiTaskTrainer(
        model=model,
        args=training_args,
        tasks=tasks,
        sampling_alpha=args.sampling_alpha,
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=run.checkpoint)
    finish_tasks(run, trainer, tokenizer)


if __name__ == "__main__":
    launch(main, __file__)
