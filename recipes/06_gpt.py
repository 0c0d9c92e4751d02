"""Rung 6: learn to go on with any text, then use what was learnt.

    python recipes/06_gpt.py --preset smoke       # under a minute on a CPU
    python recipes/06_gpt.py --preset wikitext    # the same blocks of text as 01_feedforward.py reads
    python recipes/06_gpt.py --preset sst2 --init-from runs/gpt-wikitext   # the same body, now a classifier
    python recipes/06_gpt.py --preset sst2        # and what it is worth without having read before

The decoder of `05_transformer.py` alone: every word looks at all words before it. Texts make a language model, texts
with labels a classifier, which reads its answer off the last word, the only one that has seen everything.
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
    token_ids,
    tokenizer_for,
)


def main(args, training_args):
    corpus = corpus_for(args)
    task = task_of(corpus)
    if task not in ("language_modeling", "classification"):
        raise ValueError(f"{args.dataset} is for {task}; this recipe reads texts, or texts with labels")
    run = start_run(args, training_args, task, corpus)

    tokenizer = tokenizer_for(args, corpus, rung="gpt")
    settings = {"vocab_size": len(tokenizer), "max_position_embeddings": args.max_length}
    settings |= token_ids(tokenizer, "pad", "bos", "eos") | args.model
    if task == "language_modeling":
        model = model_for(AutoModelForCausalLM, EduGPTConfig(**settings), args)
        # What is scored overlaps by half: every word is guessed once, after half a block or more.
        encoded = group_into_blocks(corpus, tokenizer, args.max_length, overlap=args.max_length // 2)
    else:
        model = model_for(AutoModelForSequenceClassification, EduGPTConfig(**settings, **label_settings(corpus)), args)
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
