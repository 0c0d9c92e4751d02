"""Classify documents by the mean of their sentences.

python recipes/2016_pooled.py --preset smoke
"""

from transformers import AutoModelForSequenceClassification

from hf_edu_models import EduPooledConfig
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
    tokenizer_for,
)


def main(args, training_args):
    corpus = corpus_for(args)
    run = start_run(args, training_args, "documents", corpus)
    tokenizer = tokenizer_for(args, corpus, rung="pooled")
    encoded = encode_corpus(corpus, tokenizer, task="documents", max_length=args.max_length)
    config = EduPooledConfig.for_tokenizer(tokenizer, **label_settings(corpus) | args.model)
    trainer = EduTrainer(
        model=model_for(AutoModelForSequenceClassification, config, args),
        args=training_args,
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        data_collator=collator_for("documents", tokenizer),
        processing_class=tokenizer,
        compute_metrics=compute_metrics_for("documents"),
    )
    trainer.train(resume_from_checkpoint=run.checkpoint)
    finish_run(run, trainer, "documents", corpus, encoded, tokenizer)


if __name__ == "__main__":
    launch(main, __file__)
