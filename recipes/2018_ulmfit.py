"""ULMFiT: pre-train a language model, fine-tune it on the texts of a task, then as a classifier (Howard & Ruder 2018).

    python recipes/2018_ulmfit.py --preset smoke    # three stages in under a minute on a CPU
    python recipes/2018_ulmfit.py --preset imdb     # Wikipedia, then film reviews, then their labels
    python recipes/2018_ulmfit.py --preset imdb --resume    # continues; a finished stage is not repeated
    python recipes/2018_ulmfit.py --preset imdb --init-from runs/recurrent-wikitext   # your general language model
    python recipes/2018_ulmfit.py --preset imdb --init-from runs/ulmfit-imdb/target_lm --classify_only --train_size 100

The run is the classifier; the language models are in its subfolders general_lm and target_lm, each a run of its own.
--general_lm and --target_lm set options of these stages: --target_lm num_train_epochs=3 dataset=my/texts. All are
AWD-LSTMs (Merity et al. 2017). The classifier is fine-tuned with a learning rate for each layer (--layer_lr_decay),
slanted triangles (--slanted_triangular) and gradual unfreezing (--unfreeze_every); without one of them: set it to 1, 0
or 0. From scratch: --classify_only --new_weights.

Differs from the paper: subwords instead of words, so that no word is new to the second stage; truncated
backpropagation in blocks of one length; a text is cut at --max_length instead of read in parts; one direction.
"""

from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, default_data_collator

from hf_edu_models import EduRecurrentConfig
from hf_edu_models.data import collator_for, contiguous_streams, encode_corpus
from hf_edu_models.metrics import compute_metrics_for
from hf_edu_models.training import (
    EduTrainer,
    TruncatedBPTTTrainer,
    UlmfitArguments,
    continued_texts,
    corpus_for,
    finish_run,
    is_finished,
    label_settings,
    launch,
    model_for,
    stage_arguments,
    start_run,
    start_stages,
    tokenizer_for,
)

Arguments = UlmfitArguments
STAGES = {  # a new language model has no layers to protect; the paper unfreezes those of the classifier alone
    "general_lm": {"layer_lr_decay": 1.0, "unfreeze_every": 0.0},
    "target_lm": {"unfreeze_every": 0.0},
}


def main(args, training_args):
    start_stages(args, training_args, STAGES)
    names = [] if args.classify_only else ["target_lm"] if args.init_from else list(STAGES)
    for name in names:
        stage, stage_training = stage_arguments(__file__, name, args, training_args, **STAGES[name])
        if not is_finished(stage, stage_training):
            train_language_model(stage, stage_training)
        args.init_from = stage_training.output_dir
    train_classifier(args, training_args)


def train_language_model(args, training_args):
    """Truncated backpropagation through time; the first one trains the tokenizer of all stages."""
    corpus = corpus_for(args, tasks=["language_modeling"])
    run = start_run(args, training_args, "language_modeling", corpus)
    tokenizer = tokenizer_for(args, corpus, rung="recurrent")
    sizes = dict.fromkeys(corpus, training_args.eval_batch_size * training_args.world_size)
    sizes["train"] = training_args.train_batch_size * training_args.world_size
    streams = {
        split: contiguous_streams(texts, tokenizer, batch_size=sizes[split], block_size=args.max_length)
        for split, texts in corpus.items()
    }
    trainer = TruncatedBPTTTrainer(
        model=model_for(AutoModelForCausalLM, EduRecurrentConfig.for_tokenizer(tokenizer, **args.model), args),
        args=training_args,
        train_dataset=streams["train"],
        eval_dataset=streams["validation"],
        data_collator=default_data_collator,
        processing_class=tokenizer,
        compute_metrics=compute_metrics_for("language_modeling"),
    )
    trainer.train(resume_from_checkpoint=run.checkpoint)
    finish_run(run, trainer, "language_modeling", corpus, streams, tokenizer, samples=continued_texts(corpus))


def train_classifier(args, training_args):
    """The states of the language model, pooled, under two new linear blocks."""
    corpus = corpus_for(args, tasks=["classification"])
    run = start_run(args, training_args, "classification", corpus)
    tokenizer = tokenizer_for(args, corpus, rung="recurrent")
    encoded = encode_corpus(
        corpus, tokenizer, task="classification", max_length=args.max_length, num_proc=args.num_proc
    )
    config = EduRecurrentConfig.for_tokenizer(tokenizer, **args.model, **label_settings(corpus))
    trainer = EduTrainer(
        model=model_for(AutoModelForSequenceClassification, config, args),
        args=training_args,
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
