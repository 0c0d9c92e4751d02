"""Feed-forward language model with a fixed window (Bengio et al. 2003).

    python recipes/2003_feedforward.py --preset smoke      # under a minute on a CPU
    python recipes/2003_feedforward.py --preset wikitext
    python recipes/2003_feedforward.py --preset wikitext --dataset my_texts/   # your own .txt or .parquet files

The model predicts the next word from the embeddings of the last `window_size` words and sees nothing before them. Make
the window wider and see where it stops helping: --model window_size=8. `2010_recurrent.py` has no such limit.
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
    tokenizer_for,
)


def main(args, training_args):
    corpus = corpus_for(args, tasks=("language_modeling",))
    run = start_run(args, training_args, task="language_modeling")

    # The text is one sequence of tokens, split into blocks; a window is shorter than a block, so they may be shuffled.
    # Held-out blocks overlap by half, so that each token is predicted once and with context.
    tokenizer = tokenizer_for(args, corpus, rung="feedforward")
    blocks = group_into_blocks(corpus, tokenizer, args.max_length, overlap=args.max_length // 2)

    config = EduFeedForwardConfig.for_tokenizer(tokenizer, **args.model)
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
