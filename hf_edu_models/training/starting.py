"""What a run starts from: a new tokenizer and new weights, or those of an earlier run (`--init-from`)."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel

from ..data.columns import plan_columns, read_column
from ..data.corpora import load_corpus
from ..data.pretraining import build_nsp_pairs
from ..data.tokenization import train_tokenizer
from .arguments import PretrainingArguments, RecipeArguments


def corpus_for(args: RecipeArguments) -> Any:
    """The data of a run, with what training needs: splits to learn from and to choose by, none without its labels."""
    try:
        corpus = load_corpus(args.dataset, **args.corpus)
    except TypeError as problem:  # an option that this corpus does not take
        raise ValueError(str(problem)) from problem
    for split in [split for split in corpus if not _has_labels(corpus[split])]:
        del corpus[split]  # GLUE keeps the answers of its test sets to itself
    for split, hint in (("train", "choose another data set"), ("validation", "--validation_size 500 cuts one off")):
        if split not in corpus:
            raise ValueError(f"{args.dataset} has no {split} split with labels: {', '.join(corpus) or 'none'}; {hint}")
    return corpus


def task_of(corpus: Any) -> str:
    """The task that a corpus is for, by its columns."""
    return plan_columns(corpus["train"].column_names).task


def _has_labels(dataset: Any) -> bool:
    columns = [name for name in ("label", "tags") if name in dataset.column_names]
    return all(any(value not in (-1, None) for value in read_column(dataset, name)) for name in columns)


def tokenizer_for(args: RecipeArguments, corpus: Any, rung: str) -> Any:
    """The tokenizer of `--init-from`, or one that is trained on the corpus."""
    if args.init_from is None:
        return train_tokenizer(corpus, args.tokenizer, args.vocab_size, lowercase=args.lowercase, rung=rung)
    with _missing_checkpoint_is_said(args.init_from):
        return AutoTokenizer.from_pretrained(args.init_from)


def pairs_for(args: PretrainingArguments, corpus: Any, tokenizer: Any) -> dict[str, Any]:
    """[CLS] a passage [SEP] the next one or another [SEP], by split; only train is cut more than once."""
    return {
        split: build_nsp_pairs(
            texts,
            tokenizer,
            max_length=args.max_length,
            repeats=args.repeats if split == "train" else 1,
            split_sentences=args.split_sentences,
            num_proc=args.num_proc,
        )
        for split, texts in corpus.items()
    }


def model_for(auto_class: Any, config: Any, args: RecipeArguments) -> PreTrainedModel:
    """A new model, or the one of `--init-from` with this head: its sizes are its own, `--model` changes the rest."""
    _check_names(config, args.model)
    if args.init_from is None:
        return auto_class.from_config(config)
    with _missing_checkpoint_is_said(args.init_from):
        own = AutoConfig.from_pretrained(args.init_from)
    if own.model_type != config.model_type:
        raise ValueError(
            f"{args.init_from} is a {own.model_type}, but this recipe trains a {config.model_type}; use its own recipe"
        )
    labels = {"id2label": config.id2label, "label2id": config.label2id, "problem_type": config.problem_type}
    _set(own, labels)
    _check_lengths(own, args)
    sizes = _shapes(auto_class, own)
    _set(own, args.model)
    if _shapes(auto_class, own) != sizes:
        raise ValueError(
            f"--model {' '.join(f'{name}={value}' for name, value in args.model.items())} does not fit the weights of "
            f"{args.init_from}; leave out what changes their sizes, their layers or their direction"
        )
    if args.new_weights:
        return auto_class.from_config(own)
    return auto_class.from_pretrained(args.init_from, config=own)


@contextmanager
def _missing_checkpoint_is_said(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as problem:  # transformers explains at length what a Hub id is
        raise FileNotFoundError(
            f"--init-from {name} is no folder with a model and its tokenizer, and no model on the Hub that can be "
            "reached; give the folder of a run that came to its end"
        ) from problem


def _set(config: Any, settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        setattr(config, name, value)


def _check_names(config: Any, settings: dict[str, Any]) -> None:
    """A configuration keeps any name that it is given; one that no model reads is a mistake."""
    known = sorted(each.name for each in dataclasses.fields(type(config)))
    for name in settings:
        if name not in known:
            close = difflib.get_close_matches(name, known)
            meant = f"; did you mean {' or '.join(close)}?" if close else ""
            raise ValueError(f"{type(config).__name__} has no setting {name!r}{meant}")


def _check_lengths(own: Any, args: RecipeArguments) -> None:
    longest = getattr(own, "max_position_embeddings", None)
    if longest is not None and args.max_length > longest:
        raise ValueError(
            f"max_length {args.max_length} is more than {args.init_from} can read; give --max_length {longest}"
        )


def _shapes(auto_class: Any, config: Any) -> dict[str, Any]:
    """The sizes of all weights, without making any."""
    with torch.device("meta"):
        model = auto_class.from_config(config)
    return {name: weight.shape for name, weight in model.state_dict().items()}


def label_settings(corpus: Any, column: str = "label") -> dict[str, Any]:
    """What a classifier's configuration says of its labels: their names, or that there is one number to predict."""
    feature = corpus["train"].features[column]
    inner = getattr(feature, "feature", None)
    names = getattr(inner or feature, "names", None)
    if names is None:
        return {"num_labels": 1, "problem_type": "regression"}
    settings = {"id2label": dict(enumerate(names)), "label2id": {name: place for place, name in enumerate(names)}}
    return settings | (
        {"problem_type": "multi_label_classification"} if inner is not None and column == "label" else {}
    )


def token_ids(tokenizer: Any, *names: str) -> dict[str, int]:
    """The ids of a tokenizer's special tokens as a configuration takes them: `token_ids(tokenizer, "pad", "bos")`."""
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in names if name != "decoder_start"}
    return ids | ({"decoder_start_token_id": tokenizer.bos_token_id} if "decoder_start" in names else {})
