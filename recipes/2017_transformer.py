"""Transformer: translate with attention alone (Vaswani et al. 2017).

    python recipes/2017_transformer.py --preset smoke      # under a minute on a CPU
    python recipes/2017_transformer.py --preset dates
    python recipes/2017_transformer.py --preset multi30k   # German to English; --source en --target de for the reverse

After `warmup_steps` the learning rate of `dates` and `multi30k` decays along a cosine; that of `paper` and `smoke` with
the inverse square root of the step (Section 5.3; the paper's peak is hidden_size^-0.5 x warmup_steps^-0.5).
"""

from transformers import AutoModelForSeq2SeqLM

from hf_edu_models import EduTransformerConfig
from hf_edu_models.data import collator_for, encode_corpus
from hf_edu_models.metrics import compute_metrics_for
from hf_edu_models.training import (
    EduSeq2SeqTrainer,
    corpus_for,
    finish_run,
    launch,
    model_for,
    start_run,
    tokenizer_for,
)


def main(args, training_args):
    corpus = corpus_for(args, tasks=("translation",))
    run = start_run(args, training_args, task="translation")

    tokenizer = tokenizer_for(args, corpus, rung="transformer")
    encoded = encode_corpus(corpus, tokenizer, max_length=args.max_length, num_proc=args.num_proc)

    config = EduTransformerConfig.for_tokenizer(tokenizer, **args.model)
    model = model_for(AutoModelForSeq2SeqLM, config, args)

    training_args.predict_with_generate = True
    training_args.generation_max_length = training_args.generation_max_length or args.max_length
    trainer = EduSeq2SeqTrainer(
        model=model,
        args=training_args,
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        data_collator=collator_for("translation", tokenizer),
        processing_class=tokenizer,
        compute_metrics=compute_metrics_for("translation", tokenizer, lowercase=args.lowercase),
    )
    trainer.train(resume_from_checkpoint=run.checkpoint)
    finish_run(run, trainer, "translation", corpus, encoded, tokenizer)


if __name__ == "__main__":
    launch(main, __file__)
