"""Encoder-decoder with additive attention (Bahdanau et al. 2015).

    python recipes/2015_bahdanau.py --preset smoke      # under a minute on a CPU
    python recipes/2015_bahdanau.py --preset dates      # exact match 99% or better
    python recipes/2015_bahdanau.py --preset multi30k   # German to English; --source en --target de for the reverse

Only the model differs from `2014_seq2seq.py`: the decoder attends to every source state instead of one context vector.
See what that does to long sentences: hf-edu figure bleu-by-length runs/seq2seq-multi30k runs/bahdanau-multi30k
"""

from transformers import AutoModelForSeq2SeqLM

from hf_edu_models import EduBahdanauConfig
from hf_edu_models.data import collator_for, encode_corpus
from hf_edu_models.metrics import compute_metrics_for
from hf_edu_models.training import (
    EduSeq2SeqTrainer,
    ProfessorForcingTrainer,
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

    tokenizer = tokenizer_for(args, corpus, rung="bahdanau")
    encoded = encode_corpus(corpus, tokenizer, max_length=args.max_length, num_proc=args.num_proc)

    config = EduBahdanauConfig.for_tokenizer(tokenizer, **args.model)
    model = model_for(AutoModelForSeq2SeqLM, config, args)

    training_args.predict_with_generate = True
    training_args.generation_max_length = training_args.generation_max_length or args.max_length
    trainer_class = ProfessorForcingTrainer if training_args.professor_forcing else EduSeq2SeqTrainer
    trainer = trainer_class(
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
