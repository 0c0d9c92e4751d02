"""Encoder-decoder: translate through one context vector (Sutskever et al. 2014; Cho et al. 2014).

    python recipes/2014_seq2seq.py --preset smoke      # under a minute on a CPU
    python recipes/2014_seq2seq.py --preset dates
    python recipes/2014_seq2seq.py --preset multi30k   # German to English; --source en --target de for the reverse

The last hidden state of the encoder is all that the decoder knows of the source. Sutskever et al. reverse the source;
see how much that helps: --model reverse_source=false
"""

from transformers import AutoModelForSeq2SeqLM

from hf_edu_models import EduSeq2SeqConfig
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

    tokenizer = tokenizer_for(args, corpus, rung="seq2seq")
    encoded = encode_corpus(corpus, tokenizer, max_length=args.max_length, num_proc=args.num_proc)

    config = EduSeq2SeqConfig.for_tokenizer(tokenizer, **args.model)
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
