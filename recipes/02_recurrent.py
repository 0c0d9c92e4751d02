"""Rung 2: a state that carries the past, to guess the next word, to judge a text, to tag its words.

    python recipes/02_recurrent.py --preset smoke             # under a minute on a CPU
    python recipes/02_recurrent.py --preset wikitext          # a language model; --model cell_type=gru or rnn
    python recipes/02_recurrent.py --preset tinyshakespeare --dataset input.txt   # one character after another
    python recipes/02_recurrent.py --preset sst2              # a classifier, from scratch
    python recipes/02_recurrent.py --preset pos               # a tagger that reads from both ends; also wnut17

What the data has decides what is learnt: texts alone make a language model, labels a classifier, tags a tagger.
A language model's body can become a classifier's (Howard & Ruder 2018), its layers unfrozen one by one from the top:

    python recipes/02_recurrent.py --preset sst2 --init-from runs/recurrent-wikitext --unfreeze-every 0.5

and with --layer-lr-decay 0.4 each layer learns slower than the one above. A body that reads from both ends cannot come
from a language model, which has only ever read forward.
"""

from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    default_data_collator,
)

from hf_edu_models import EduRecurrentConfig
from hf_edu_models.data import collator_for, contiguous_streams, encode_corpus
from hf_edu_models.metrics import compute_metrics_for
from hf_edu_models.training import (
    EduTrainer,
    TruncatedBPTTTrainer,
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
    learn = {"language_modeling": read_on, "classification": judge, "token_classification": tag}.get(task)
    if learn is None:
        raise ValueError(f"{args.dataset} is for {task}; this recipe reads texts, texts with labels, words with tags")
    run = start_run(args, training_args, task, corpus)
    tokenizer = tokenizer_for(args, corpus, rung="recurrent")
    settings = {"vocab_size": len(tokenizer)} | token_ids(tokenizer, "pad", "bos", "eos") | args.model
    learn(run, corpus, tokenizer, settings)


def read_on(run, corpus, tokenizer, settings):
    """A language model by truncated backpropagation through time.

    Row t of a batch goes on where row t of the batch before stopped, so the state that was reached there is where this
    one starts. The gradient stays inside a block of `max_length` tokens; the memory does not.
    """
    args, training_args = run.args, run.training_args
    rows = {"train": training_args.train_batch_size, "validation": training_args.eval_batch_size}
    streams = {
        split: contiguous_streams(
            texts,
            tokenizer,
            batch_size=rows.get(split, training_args.eval_batch_size) * training_args.world_size,
            block_size=args.max_length,
        )
        for split, texts in corpus.items()
    }
    model = model_for(AutoModelForCausalLM, EduRecurrentConfig(**settings), args)
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


def judge(run, corpus, tokenizer, settings):
    """A label for a text, read off the state after its last word (and before its first, in both directions)."""
    config = EduRecurrentConfig(**settings, **label_settings(corpus))
    model = model_for(AutoModelForSequenceClassification, config, run.args)
    train_on_labels(run, "classification", model, corpus, tokenizer, compute_metrics_for("classification"))


def tag(run, corpus, tokenizer, settings):
    """A tag for every word, read off the state at its first piece."""
    config = EduRecurrentConfig(**settings, **label_settings(corpus, "tags"))
    model = model_for(AutoModelForTokenClassification, config, run.args)
    scores = compute_metrics_for("token_classification", tag_names=list(config.id2label.values()))
    train_on_labels(run, "token_classification", model, corpus, tokenizer, scores)


def train_on_labels(run, task, model, corpus, tokenizer, compute_metrics):
    encoded = encode_corpus(corpus, tokenizer, task=task, max_length=run.args.max_length, num_proc=run.args.num_proc)
    trainer = EduTrainer(
        model=model,
        args=run.training_args,
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        data_collator=collator_for(task, tokenizer),
        processing_class=tokenizer,
        compute_metrics=compute_metrics,
    )
    trainer.train(resume_from_checkpoint=run.checkpoint)
    finish_run(run, trainer, task, corpus, encoded, tokenizer)


if __name__ == "__main__":
    launch(main, __file__)
