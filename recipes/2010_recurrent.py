"""RNN, LSTM or GRU: language model (Mikolov et al. 2010), text classifier, tagger.

    python recipes/2010_recurrent.py --preset smoke             # under a minute on a CPU
    python recipes/2010_recurrent.py --preset wikitext          # language model; --model cell_type=gru or rnn
    python recipes/2010_recurrent.py --preset tinyshakespeare --dataset input.txt   # character language model
    python recipes/2010_recurrent.py --preset sst2              # text classifier, from scratch
    python recipes/2010_recurrent.py --preset pos               # bidirectional tagger; also wnut17

The columns of the dataset choose the head: text alone a language model, labels a classifier, tags a tagger. A language
model can be fine-tuned as a classifier with gradual unfreezing (as in ULMFiT, which `2018_ulmfit.py` trains whole):

    python recipes/2010_recurrent.py --preset sst2 --init-from runs/recurrent-wikitext --unfreeze-every 0.5

and with --layer-lr-decay 0.4 each layer has a lower learning rate than the one above. A bidirectional model cannot
start from a language model, which reads in one direction only, but it can read beside the token embeddings the hidden
states of any pre-trained model, which stays frozen: ELMo, BERT, CoVe (a translation encoder) or Flair (characters).

    python recipes/2010_recurrent.py --preset wnut17 --features runs/elmo-wikitext
    python recipes/2010_recurrent.py --preset wnut17 --features runs/bert_pretrain-texts --model feature_mix=sum4

Cross-view training (Clark et al. 2018): a tenth of the tags, and all other sentences without them.

    python recipes/2010_recurrent.py --preset pos --train_size 1254 --unlabelled universal_dependencies
"""

from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    default_data_collator,
)

from hf_edu_models import EduRecurrentConfig
from hf_edu_models.data import collator_for, contiguous_streams, encode_corpus
from hf_edu_models.metrics import compute_metrics_for, preprocess_logits_for
from hf_edu_models.training import (
    CrossViewArguments,
    CrossViewTrainer,
    EduTrainer,
    ProfessorForcingTrainer,
    TruncatedBPTTTrainer,
    continued_texts,
    corpus_for,
    cross_view_options,
    features_for,
    finish_run,
    label_settings,
    launch,
    model_for,
    start_run,
    task_of,
    tokenizer_for,
)

Arguments = CrossViewArguments


def main(args, training_args):
    trainings = {
        "language_modeling": train_language_model,
        "classification": train_classifier,
        "token_classification": train_tagger,
    }
    corpus = corpus_for(args, tasks=trainings)
    task = task_of(corpus)
    if training_args.professor_forcing:
        trainings["language_modeling"] = train_with_professor
    run = start_run(args, training_args, task, corpus)
    tokenizer = tokenizer_for(args, corpus, rung="recurrent")
    if args.unlabelled is not None and task != "token_classification":
        raise ValueError(f"--unlabelled is for taggers; {args.dataset} is for {task}: leave it out")
    trainings[task](run, corpus, tokenizer, args.model)


def train_language_model(run, corpus, tokenizer, settings):
    """Truncated backpropagation through time.

    Row i of a batch continues row i of the previous batch and starts from its last hidden state. Gradients stop at the
    border of a block of `max_length` tokens; the state does not.
    """
    args, training_args = run.args, run.training_args
    if args.features is not None:
        raise ValueError("--features is for classifiers and taggers: features may have read what is to be predicted")
    batch_sizes = dict.fromkeys(corpus, training_args.eval_batch_size * training_args.world_size)
    # With --streaming every process reads other chunks of the text, and so has streams of its own.
    batch_sizes["train"] = training_args.train_batch_size * (1 if args.streaming else training_args.world_size)
    streams = {
        split: contiguous_streams(
            texts,
            tokenizer,
            batch_size=batch_sizes[split],
            block_size=args.max_length,
        )
        for split, texts in corpus.items()
    }
    model = model_for(AutoModelForCausalLM, EduRecurrentConfig.for_tokenizer(tokenizer, **settings), args)
    trainer = TruncatedBPTTTrainer(
        model=model,
        args=training_args,
        train_dataset=streams["train"],
        eval_dataset=streams["validation"],
        data_collator=default_data_collator,
        processing_class=tokenizer,
        compute_metrics=compute_metrics_for("language_modeling"),
    )
    trainer.train(resume_from_checkpoint=run.checkpoint)
    finish_run(run, trainer, "language_modeling", corpus, streams, tokenizer, samples=continued_texts(corpus))


def train_with_professor(run, corpus, tokenizer, settings):
    """A language model whose states on its own samples are to look like those on real text (Goyal et al. 2016)."""
    model = model_for(AutoModelForCausalLM, EduRecurrentConfig.for_tokenizer(tokenizer, **settings), run.args)
    blocks = encode_corpus(corpus, tokenizer, task="language_modeling", max_length=run.args.max_length)
    trainer = ProfessorForcingTrainer(
        model=model,
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


def train_classifier(run, corpus, tokenizer, settings):
    """Classify a text from its last hidden state (of a bidirectional model: one per direction)."""
    features = features_for(run.args.features, tokenizer)
    config = EduRecurrentConfig.for_tokenizer(tokenizer, **settings, **label_settings(corpus), **features.settings)
    model = features.fill(model_for(AutoModelForSequenceClassification, config, run.args))
    train_on_labels(run, "classification", model, corpus, tokenizer, compute_metrics_for("classification"))


def train_tagger(run, corpus, tokenizer, settings):
    """Tag each word from the hidden state of its first subword."""
    features = features_for(run.args.features, tokenizer)
    config = EduRecurrentConfig.for_tokenizer(
        tokenizer, **settings, **label_settings(corpus, "tags"), **features.settings
    )
    model = features.fill(model_for(AutoModelForTokenClassification, config, run.args))
    scores = compute_metrics_for("token_classification", tag_names=list(config.id2label.values()))
    train_on_labels(run, "token_classification", model, corpus, tokenizer, scores)


def train_on_labels(run, task, model, corpus, tokenizer, compute_metrics):
    encoded = encode_corpus(corpus, tokenizer, task=task, max_length=run.args.max_length, num_proc=run.args.num_proc)
    is_cross_view = run.args.unlabelled is not None
    trainer = (CrossViewTrainer if is_cross_view else EduTrainer)(
        model=model,
        args=run.training_args,
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        data_collator=collator_for(task, tokenizer),
        processing_class=tokenizer,
        compute_metrics=compute_metrics,
        **(cross_view_options(run.args, tokenizer) if is_cross_view else {}),
    )
    trainer.train(resume_from_checkpoint=run.checkpoint)
    finish_run(run, trainer, task, corpus, encoded, tokenizer)


if __name__ == "__main__":
    launch(main, __file__)
