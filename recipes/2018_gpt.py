"""GPT: pre-train a Transformer decoder as a language model, then fine-tune it (Radford et al. 2018).

    python recipes/2018_gpt.py --preset smoke       # under a minute on a CPU
    python recipes/2018_gpt.py --preset wikitext    # the same blocks as 2003_feedforward.py
    python recipes/2018_gpt.py --preset sst2 --init-from runs/gpt-wikitext   # fine-tune as a classifier
    python recipes/2018_gpt.py --preset sst2        # the same from scratch

The decoder of `2017_transformer.py` without an encoder: each token attends to all tokens before it. Text alone trains a
language model, text with labels a classifier on the last token, the only one that has attended to all others.
"""

from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from hf_edu_models import EduGPTConfig
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
    corpus = corpus_for(args, tasks=("language_modeling", "classification"))
    task = task_of(corpus)
    run = start_run(args, training_args, task, corpus)

    tokenizer = tokenizer_for(args, corpus, rung="gpt")
    settings = {"max_position_embeddings": args.max_length} | args.model
    if task == "language_modeling":
        model = model_for(AutoModelForCausalLM, EduGPTConfig.for_tokenizer(tokenizer, **settings), args)
        # Held-out blocks overlap by half: each token is predicted once, after at least half a block of context.
        encoded = group_into_blocks(corpus, tokenizer, args.max_length, overlap=args.max_length // 2)
    else:
        config = EduGPTConfig.for_tokenizer(tokenizer, **settings, **label_settings(corpus))
        model = model_for(AutoModelForSequenceClassification, config, args)
        encoded = encode_corpus(corpus, tokenizer, task=task, max_length=args.max_length, num_proc=args.num_proc)

    trainer = EduTrainer(
        model=model,
        args=training_args,
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        data_collator=collator_for(task, tokenizer),
        processing_class=tokenizer,
        compute_metrics=compute_metrics_for(task),
        preprocess_logits_for_metrics=preprocess_logits_for(task),
    )
    trainer.train(resume_from_checkpoint=run.checkpoint)
    samples = continued_texts(corpus) if task == "language_modeling" else None
    finish_run(run, trainer, task, corpus, encoded, tokenizer, samples=samples)


if __name__ == "__main__":
    launch(main, __file__)
