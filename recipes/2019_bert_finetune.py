"""Fine-tune BERT: one pre-trained model, one new output layer, any task (Devlin et al. 2019).

    python recipes/2019_bert_finetune.py --preset smoke    # under a minute on a CPU
    python recipes/2019_bert_finetune.py --preset sst2 --init-from runs/bert_pretrain-wikitext
    python recipes/2019_bert_finetune.py --preset sst2     # from scratch, to see what pre-training is worth

The columns of the dataset choose the head: `sst2`, `cola` (one text), `mrpc`, `rte`, `mnli`, `boolq` (two), `stsb`
(regression), `goemotions` (multi-label), `wnut17`, `pos` (token classification), `squad` (question answering), `swag`,
`copa` (multiple choice). `--init-from` takes the folder of a run, or published weights after `hf-edu convert`.

`--window_stride 64` reads a text that is longer than `--max_length` in overlapping windows, and pools their states.

Fine-tuning takes few epochs with a small learning rate; the best checkpoint by the task's main score is kept.
"""

from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from hf_edu_models import EduBertConfig
from hf_edu_models.data import collator_for, encode_corpus
from hf_edu_models.metrics import compute_metrics_for
from hf_edu_models.training import (
    EduTrainer,
    FineTuningArguments,
    corpus_for,
    finish_run,
    label_settings,
    launch,
    model_for,
    start_run,
    task_of,
    tokenizer_for,
    window_options,
)

Arguments = FineTuningArguments

HEADS = {
    "classification": AutoModelForSequenceClassification,  # [CLS] -> classes, or a number
    "token_classification": AutoModelForTokenClassification,  # each token -> tag
    "question_answering": AutoModelForQuestionAnswering,  # each token -> start and end logits
    "multiple_choice": AutoModelForMultipleChoice,  # [CLS] of each choice -> score
}


def main(args, training_args):
    corpus = corpus_for(args, tasks=HEADS)
    task = task_of(corpus)
    run = start_run(args, training_args, task, corpus)

    tokenizer = tokenizer_for(args, corpus, rung="bert")
    options = window_options(args, training_args, task, tokenizer)  # a long text is read in several windows
    encoded = encode_corpus(corpus, tokenizer, task=task, max_length=args.max_length, num_proc=args.num_proc, **options)

    settings = {"max_position_embeddings": args.max_length} | args.model
    if task in ("classification", "token_classification"):
        settings |= label_settings(corpus, "label" if task == "classification" else "tags")
    model = model_for(HEADS[task], EduBertConfig.for_tokenizer(tokenizer, **settings), args)

    trainer = EduTrainer(
        model=model,
        args=training_args,
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        data_collator=collator_for(task, tokenizer),
        processing_class=tokenizer,
        compute_metrics=scores_for(task, model, encoded["validation"], corpus["validation"]),
    )
    trainer.train(resume_from_checkpoint=run.checkpoint)
    finish_run(run, trainer, task, corpus, encoded, tokenizer)


def scores_for(task, model, windows, examples):
    """Tags are scored by name, answers as text."""
    if task == "token_classification":
        return compute_metrics_for(task, tag_names=list(model.config.id2label.values()))
    if task == "question_answering":
        return compute_metrics_for(task, windows=windows, examples=examples)
    return compute_metrics_for(task)


if __name__ == "__main__":
    launch(main, __file__)
