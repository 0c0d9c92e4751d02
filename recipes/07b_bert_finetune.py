"""Rung 7, second half: one pre-trained body, one new layer, any task.

    python recipes/07b_bert_finetune.py --preset smoke    # under a minute on a CPU
    python recipes/07b_bert_finetune.py --preset sst2 --init-from runs/bert_pretrain-wikitext
    python recipes/07b_bert_finetune.py --preset sst2     # from scratch, to see what reading before was worth

What the data has decides the layer on top: `sst2`, `cola` (one text), `mrpc`, `rte` (two), `stsb` (a number),
`goemotions` (several labels at once), `wnut17`, `pos` (a tag for each word), `squad` (where the answer is), `swag`
(which ending fits). `--init-from` takes a run's folder with its tokenizer, or published weights after `hf-edu convert`.

The body changes little and fast: small learning rates, few epochs, and the best checkpoint by the task's own score is
the one that is kept.
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
    corpus_for,
    finish_run,
    label_settings,
    launch,
    model_for,
    start_run,
    task_of,
    token_ids,
    tokenizer_for,
)

HEADS = {
    "classification": AutoModelForSequenceClassification,  # [CLS] to classes, or to a number
    "token_classification": AutoModelForTokenClassification,  # each token to a tag
    "question_answering": AutoModelForQuestionAnswering,  # each token to "starts here" and "ends here"
    "multiple_choice": AutoModelForMultipleChoice,  # [CLS] of each ending to how well it fits
}


def main(args, training_args):
    corpus = corpus_for(args)
    task = task_of(corpus)
    if task not in HEADS:
        raise ValueError(f"{args.dataset} is for {task}; this recipe is for {', '.join(HEADS)}")
    run = start_run(args, training_args, task, corpus)

    tokenizer = tokenizer_for(args, corpus, rung="bert")
    # A long text to answer from is read in windows that overlap by a third.
    options = {"stride": args.max_length // 3} if task == "question_answering" else {}
    encoded = encode_corpus(corpus, tokenizer, task=task, max_length=args.max_length, num_proc=args.num_proc, **options)

    settings = {"vocab_size": len(tokenizer), "max_position_embeddings": args.max_length}
    settings |= token_ids(tokenizer, "pad") | args.model
    if task in ("classification", "token_classification"):
        settings |= label_settings(corpus, "label" if task == "classification" else "tags")
    model = model_for(HEADS[task], EduBertConfig(**settings), args)

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
    """Tags are scored by name, answers as texts."""
    if task == "token_classification":
        return compute_metrics_for(task, tag_names=list(model.config.id2label.values()))
    if task == "question_answering":
        return compute_metrics_for(task, windows=windows, examples=examples)
    return compute_metrics_for(task)


if __name__ == "__main__":
    launch(main, __file__)
