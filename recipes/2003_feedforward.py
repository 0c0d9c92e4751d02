"""Feed-forward language model with a fixed window (Bengio et al. 2003), and text classifier (Iyyer et al. 2015).

    python recipes/2003_feedforward.py --preset smoke      # under a minute on a CPU
    python recipes/2003_feedforward.py --preset wikitext
    python recipes/2003_feedforward.py --preset wikitext --dataset my_texts/   # your own .txt or .parquet files
    python recipes/2003_feedforward.py --preset sst2       # text classifier: a deep averaging network

The columns of the dataset choose the head: text alone a language model, labels a classifier. The language model
predicts the next word from the embeddings of the last `window_size` words and sees nothing before them. Make the window
wider and see where it stops helping: --model window_size=8. `2010_recurrent.py` has no such limit.
"""

from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from hf_edu_models import EduFeedForwardConfig
from hf_edu_models.data import collator_for, encode_corpus, group_into_blocks
from hf_edu_models.metrics import compute_metrics_for, preprocess_logits_for
from hf_edu_models.training import (
    EduTrainer,
    continued_texts,
    corpus_for,
    finish_run,
    label_settings,
    launch,
    model_for,
    start_run,
    task_of,
    tokenizer_for,
)


def main(args, training_args):
    trainings = {"language_modeling": train_language_model, "classification": train_classifier}
    corpus = corpus_for(args, tasks=trainings)
    task = task_of(corpus)
    run = start_run(args, training_args, task, corpus)
    tokenizer = tokenizer_for(args, corpus, rung="feedforward")
    trainings[task](run, corpus, tokenizer, args)


def train_language_model(run, corpus, tokenizer, args):
    """Predict each word from the window before it."""
    # The text is one sequence of tokens, split into blocks; a window is shorter than a block, so they may be shuffled.
    # Held-out blocks overlap by half, so that each token is predicted once and with context.
    blocks = group_into_blocks(corpus, tokenizer, args.max_length, overlap=args.max_length // 2)
    config = EduFeedForwardConfig.for_tokenizer(tokenizer, **args.model)
    trainer = EduTrainer(
        model=model_for(AutoModelForCausalLM, config, args),
        args=run.training_args,
        train_dataset=blocks["train"],
        eval_dataset=blocks["validation"],
        data_collator=collator_for("language_modeling", tokenizer),
        processing_class=tokenizer,
        compute_metrics=compute_metrics_for("language_modeling"),
        preprocess_logits_for_metrics=preprocess_logits_for("language_modeling"),
    )
    trainer.train(resume_from_checkpoint=run.checkpoint)
    finish_run(run, trainer, "language_modeling", corpus, blocks, tokenizer, samples=continued_texts(corpus))


def train_classifier(run, corpus, tokenizer, args):
    """Classify a text by the mean of its word embeddings, whatever their order."""
    encoded = encode_corpus(
        corpus, tokenizer, task="classification", max_length=args.max_length, num_proc=args.num_proc
    )
    config = EduFeedForwardConfig.for_tokenizer(tokenizer, **args.model, **label_settings(corpus))
    trainer = EduTrainer(
        model=model_for(AutoModelForSequenceClassification, config, args),
        args=run.training_args,
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        data_collator=collator_for("classification", tokenizer),
        processing_class=tokenizer,
        compute_metrics=compute_metrics_for("classification"),
    )
    trainer.train(resume_from_checkpoint=run.checkpoint)
    finish_run(run, trainer, "classification", corpus, encoded, tokenizer)


if __name__ == "__main__":
    launch(main, __file__)
