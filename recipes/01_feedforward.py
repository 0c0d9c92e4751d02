"""Rung 1: guess the next word from the few words before it.

    python recipes/01_feedforward.py --preset smoke      # under a minute on a CPU
    python recipes/01_feedforward.py --preset wikitext
    python recipes/01_feedforward.py --preset wikitext --dataset my_texts/   # your own .txt or .parquet files

A window of word vectors is all that the model knows of the past. Make it wider and see where it stops helping:
--model window_size=8. What `02_recurrent.py` does with the same blocks of text has no such end.
"""

from transformers import AutoModelForCausalLM

from hf_edu_models import EduFeedForwardConfig
from hf_edu_models.data import collator_for, group_into_blocks
from hf_edu_models.metrics import compute_metrics_for, preprocess_logits_for
from hf_edu_models.training import (
    EduTrainer,
    continued_texts,
    corpus_for,
    finish_run,
    launch,
    model_for,
    start_run,
    token_ids,
    tokenizer_for,
)


def main(args, training_args):
    corpus = corpus_for(args)
    run = start_run(args, training_args, task="language_modeling")

    # The text is one long row of tokens, cut into blocks; they may be shuffled, for no window is as long as a block.
    # Those that are scored overlap by half, so that every word is guessed once, and none of them from nothing.
    tokenizer = tokenizer_for(args, corpus, rung="feedforward")
    blocks = group_into_blocks(corpus, tokenizer, args.max_length, overlap=args.max_length // 2)

    config = EduFeedForwardConfig(vocab_size=len(tokenizer), **token_ids(tokenizer, "pad", "bos", "eos"), **args.model)
    model = model_for(AutoModelForCausalLM, config, args)

    trainer = EduTrainer(
        model=model,
        args=training_args,
        train_dataset=blocks["train"],
        eval_dataset=blocks["validation"],
        data_collator=collator_for("language_modeling", tokenizer),
        processing_class=tokenizer,
        compute_metrics=compute_metrics_for("language_modeling"),
        preprocess_logits_for_metrics=preprocess_logits_for("language_modeling"),
    )
    trainer.train(resume_from_checkpoint=run.checkpoint)
    finish_run(run, trainer, "language_modeling", corpus, blocks, tokenizer, samples=continued_texts(corpus))


if __name__ == "__main__":
    launch(main, __file__)
