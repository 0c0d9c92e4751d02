"""Classify documents with attention over words, then over sentences (Yang et al. 2016).

    python recipes/2016_hierarchical.py --preset smoke       # under a minute on a CPU
    python recipes/2016_hierarchical.py --preset imdb        # film reviews; --model pooling=mean or max to compare
    python recipes/2016_hierarchical.py --dataset reviews.csv --columns text=body --columns label=stars

A dataset has a column `sentences`, a list for each document, or a column `text`, which is cut into sentences. To see
which words and sentences count:

    hf-edu explain text runs/hierarchical-imdb "A slow start. The ending is superb!" --out review.html
"""

from transformers import AutoModelForSequenceClassification

from hf_edu_models import EduHierarchicalConfig
from hf_edu_models.data import collator_for, encode_corpus
from hf_edu_models.metrics import compute_metrics_for
from hf_edu_models.training import (
    DocumentArguments,
    EduTrainer,
    corpus_for,
    finish_run,
    label_settings,
    launch,
    model_for,
    start_run,
    tokenizer_for,
)

Arguments = DocumentArguments


def main(args, training_args):
    corpus = corpus_for(args, tasks=("documents",))
    run = start_run(args, training_args, "documents", corpus)
    tokenizer = tokenizer_for(args, corpus, rung="hierarchical")
    encoded = encode_corpus(
        corpus,
        tokenizer,
        task="documents",
        max_length=args.max_length,
        max_sentences=args.max_sentences,
        num_proc=args.num_proc,
    )
    config = EduHierarchicalConfig.for_tokenizer(tokenizer, **args.model, **label_settings(corpus))
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
