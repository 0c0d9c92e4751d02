"""Transformer-XL: a language model that attends to the segment before (Dai et al. 2019).

    python recipes/2019_transformer_xl.py --preset smoke            # under a minute on a CPU
    python recipes/2019_transformer_xl.py --preset wikitext         # the same words as 2018_gpt.py
    python recipes/2019_transformer_xl.py --preset tinyshakespeare --dataset input.txt   # characters
    python recipes/2019_transformer_xl.py --preset wikitext --model memory_length=0      # the same without a memory

GPT reads a text in blocks that know nothing of each other. Here a text is cut into segments that are read in order, and
every layer attends also to what it has read of the segments before: its memory.
"""

from transformers import AutoModelForCausalLM, default_data_collator

from hf_edu_models import EduTransformerXLConfig
from hf_edu_models.data import contiguous_streams
from hf_edu_models.metrics import compute_metrics_for
from hf_edu_models.training import (
    TruncatedBPTTTrainer,
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
    run = start_run(args, training_args, "language_modeling", corpus)
    tokenizer = tokenizer_for(args, corpus, rung="transformer_xl")

    # Row i of a batch is the segment that follows row i of the batch before, as for a recurrent model. The memory is
    # carried from one to the other, and no gradient goes back into it.
    batch_sizes = dict.fromkeys(corpus, training_args.eval_batch_size * training_args.world_size)
    # With --streaming every process reads other chunks of the text, and so has streams of its own.
    batch_sizes["train"] = training_args.train_batch_size * (1 if args.streaming else training_args.world_size)
    segments = {
        split: contiguous_streams(texts, tokenizer, batch_size=batch_sizes[split], block_size=args.max_length)
        for split, texts in corpus.items()
    }
    settings = {"memory_length": args.max_length} | args.model  # Section 3.2: as long as a segment in training
    model = model_for(AutoModelForCausalLM, EduTransformerXLConfig.for_tokenizer(tokenizer, **settings), args)
    trainer = TruncatedBPTTTrainer(
        model=model,
        args=training_args,
        train_dataset=segments["train"],
        eval_dataset=segments["validation"],
        data_collator=default_data_collator,
        processing_class=tokenizer,
        compute_metrics=compute_metrics_for("language_modeling"),
    )
    trainer.train(resume_from_checkpoint=run.checkpoint)
    finish_run(run, trainer, "language_modeling", corpus, segments, tokenizer, samples=continued_texts(corpus))


if __name__ == "__main__":
    launch(main, __file__)
