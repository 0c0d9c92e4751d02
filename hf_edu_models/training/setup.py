"""The corpus, tokenizer and model of a run: new, or those of an earlier run (`--init-from`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from ..auto import find_class, public_classes
from ..checkpoints import (
    check_no_weight_missing,
    explain_missing,
    load_config,
    load_tokenizer,
    position_limit,
    saved_class,
)
from ..data.columns import column_names, is_stream, label_names, plan_columns, read_column
from ..data.corpora import has_columns, load_corpus
from ..data.notes import note
from ..data.phrases import find_phrases
from ..data.pretraining import build_nsp_pairs
from ..data.tokenization import train_tokenizer
from ..data.word_vectors import plain_words
from ..manifest import check_undamaged
from ..models.configuration_base import unknown_setting
from ..run_folder import PHRASES, read_phrases, write_atomically
from ..tasks import TASKS
from .arguments import FineTuningArguments, PretrainingArguments, RecipeArguments, RunArguments

_MAX_CUT = 1_000  # rows of a validation or test split that is cut from train without being asked for
_STREAMED_TASKS = ("language_modeling", "documents", "translation")
_TOKENIZER_ROWS = 100_000  # rows of a stream that its tokenizer is trained on


def corpus_for(args: RecipeArguments, tasks: Collection[str] = ()) -> Any:
    """The corpus of a run, with a train and a validation split, without splits that have no labels.

    Args:
        args: The sizes and the task that are chosen here are set, so that the run records them.
        tasks: The tasks that the recipe can train; any if empty.
    """
    _keep_columns_of_preset(args)
    corpus = _load_labelled(args)
    if tasks and task_of(corpus) not in tasks:
        corpus = _load_for(args, corpus, tasks)
    if args.streaming:
        return _with_held_out(args, corpus)
    if "train" in corpus and "validation" not in corpus and args.validation_size is None:
        _choose_sizes(args, corpus)
        corpus = _load_labelled(args)
    for split, hint in (("train", "choose another dataset"), ("validation", "give --validation_size")):
        if split not in corpus:
            raise ValueError(f"{args.dataset} has no {split} split with labels: {', '.join(corpus) or 'none'}; {hint}")
    return corpus


def _keep_columns_of_preset(args: RecipeArguments) -> None:
    """Set the source, target and columns of the preset's own dataset if `--dataset`, another one, has them, too."""
    names, args.preset_columns = args.preset_columns, {}
    if names and has_columns(args.dataset, args.dataset_config, args.streaming, task=args.task, **names):
        for name, value in names.items():
            setattr(args, name, value)


def _with_held_out(args: RecipeArguments, corpus: Any) -> dict[str, Any]:
    """The train split as a stream, and the other splits in memory; a missing validation split is cut from train."""
    task = task_of(corpus)
    if task not in _STREAMED_TASKS:
        raise ValueError(f"--streaming is for {', '.join(_STREAMED_TASKS)}; {args.dataset} is for {task}: leave it out")
    if "train" not in corpus:
        raise ValueError(f"{args.dataset} has no train split: {', '.join(corpus)}; choose another dataset")
    if "validation" not in corpus:
        args.validation_size = _MAX_CUT
        note(f"{args.dataset} has no validation split: it has the first {_MAX_CUT:,} rows; --validation_size chooses")
        corpus = _load_labelled(args)
    return {split: rows if split == "train" else _in_memory(rows) for split, rows in corpus.items()}


def _in_memory(stream: Any) -> Any:
    import datasets

    return datasets.Dataset.from_list(list(stream), features=stream.features)


def _load_for(args: RecipeArguments, corpus: Any, tasks: Collection[str]) -> Any:
    """The corpus without its labels if a text is all that the recipe needs; an error if its columns do not fit."""
    found, names = task_of(corpus), column_names(next(iter(corpus.values())))
    if found == "alignment" and "translation" in tasks:
        return corpus
    if "documents" in tasks and found == "classification" and "text_pair" not in names:
        unused = "; its labels are not used" if "language_modeling" in tasks else ""
        note(f"the texts of {args.dataset} are cut into sentences{unused}")
        args.task = "documents"
        return _load_labelled(args)
    if "language_modeling" in tasks and "text" in names:
        note(f"this recipe trains a language model; it does not use the labels of {args.dataset}")
        args.task = "language_modeling"
        return _load_labelled(args)
    needed = " or ".join(f"{task} ({', '.join(TASKS[task].columns)})" for task in tasks)
    raise ValueError(
        f"{args.dataset} is for {found} ({', '.join(names)}); this recipe takes {needed}: choose another recipe, or "
        f"other columns with --columns {TASKS[next(iter(tasks))].columns[0]}=NAME"
    )


def _choose_sizes(args: RecipeArguments, corpus: Any) -> None:
    """A tenth of train for validation, and for test if there is none; at most _MAX_CUT rows each."""
    train = corpus["train"]
    size = max(1, min(_MAX_CUT, len(train) // 10))
    args.validation_size = size
    is_splittable = "document" not in train.column_names or len(set(read_column(train, "document"))) > 2
    if list(corpus) == ["train"] and args.test_size is None and is_splittable:
        args.test_size = size
    cut = f"{size:,} for validation" + (f" and {size:,} for test" if args.test_size else "")
    note(f"{args.dataset} has no validation split: of {len(train):,} rows {cut}; --validation_size chooses")


def _load_labelled(args: RecipeArguments) -> Any:
    try:
        corpus = load_corpus(args.dataset, **args.corpus)
    except TypeError as error:  # an option that this corpus does not take
        raise ValueError(str(error)) from error
    for split in [] if args.streaming else [split for split in corpus if not _has_labels(corpus[split])]:
        del corpus[split]  # GLUE does not publish the labels of its test sets
    return corpus


def task_of(corpus: Any) -> str:
    """The task that a corpus is for, by its columns."""
    return plan_columns(column_names(next(iter(corpus.values())))).task


def _has_labels(dataset: Any) -> bool:
    columns = [name for name in ("label", "tags") if name in dataset.column_names]
    if "answers" in dataset.column_names and not any(each["text"] for each in read_column(dataset, "answers")):
        return False
    return all(any(value not in (-1, None) for value in read_column(dataset, name)) for name in columns)


def tokenizer_for(args: RecipeArguments, corpus: Any, rung: str, min_frequency: int = 1) -> Any:
    """The tokenizer of `--init-from`, or one that is trained on the corpus (of a stream: on its first rows)."""
    tokenizer = _tokenizer_for(args, corpus, rung, min_frequency)
    args.words = plain_words(tokenizer)
    return tokenizer


def _tokenizer_for(args: RecipeArguments, corpus: Any, rung: str, min_frequency: int) -> Any:
    if args.init_from is None:
        if is_stream(corpus["train"]):
            corpus = {"train": _in_memory(corpus["train"].take(_TOKENIZER_ROWS))}
        return train_tokenizer(
            corpus, args.tokenizer, args.vocab_size, lowercase=args.lowercase, rung=rung, min_frequency=min_frequency
        )
    return load_tokenizer(args.init_from)


def pairs_for(args: PretrainingArguments, corpus: Any, tokenizer: Any) -> dict[str, Any]:
    """Sentence pairs for next sentence prediction, by split; `--repeats` applies to train only."""
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


def masking_options(args: PretrainingArguments, corpus: Any, folder: Any) -> dict[str, Any]:
    """Options of the masking collator; the phrases that it masks are written into the run's folder."""
    options = {name: getattr(args, name) for name in ("mlm_probability", "masking", "whole_word_mask")}
    if args.masking != "phrases":
        return options
    if args.phrases is not None:
        phrases = read_phrases(args.phrases)
    else:
        if is_stream(corpus["train"]):
            raise ValueError("--masking phrases counts the words of the train split; give --phrases FILE to a stream")
        rows = read_column(corpus["train"], "text" if "text" in corpus["train"].column_names else "sentences")
        phrases = find_phrases(row if isinstance(row, str) else " ".join(row) for row in rows)
        if not phrases:
            raise ValueError("no words occur together often enough to be phrases; give --phrases FILE, or more text")
    write_atomically(Path(folder) / PHRASES, "\n".join(phrases) + "\n")
    return options | {"phrases": phrases}


def window_options(args: FineTuningArguments, training_args: RunArguments, task: str, tokenizer: Any) -> dict[str, Any]:
    """Options of the encoder for texts that are longer than `--max_length`: windows that overlap."""
    if task == "question_answering" and args.window_stride is None:
        return {"stride": args.max_length // 3}
    if args.window_stride is None:
        return {}
    if task != "classification":
        raise ValueError(
            f"--window_stride is for the classification of texts; {args.dataset} is for {task}: leave it out"
        )
    if training_args.max_tokens:
        raise ValueError("--max_tokens counts a text of several windows as one; leave it out with --window_stride")
    tokenizer.model_max_length = args.max_length  # the length of a window, also for new texts
    model: Any = args.model
    model["window_stride"] = args.window_stride
    return {"window_stride": args.window_stride}


def model_for(auto_class: Any, config: Any, args: RecipeArguments) -> PreTrainedModel:
    """A new model, or the one of `--init-from` with this head; `--model` then changes everything but sizes."""
    _check_names(config, args.model)
    if args.init_from is None:
        return _with_embeddings(_build(auto_class, config), args)
    own = load_config(args.init_from)
    if own.model_type != config.model_type:
        raise ValueError(
            f"{args.init_from} is a {own.model_type}, but this recipe trains a {config.model_type}; use its own recipe"
        )
    names = ("id2label", "label2id", "problem_type", "tasks", "window_stride")
    _set(own, {name: getattr(config, name) for name in names if hasattr(config, name)})
    _check_lengths(own, args)
    sizes = _shapes(auto_class, own)
    _set(own, args.model)
    if not _has_shapes(sizes, auto_class, own):
        raise ValueError(
            f"--model {' '.join(f'{name}={value}' for name, value in args.model.items())} does not fit the weights of "
            f"{args.init_from}; leave out settings that change sizes, layers or direction"
        )
    if args.new_weights:
        return _build(auto_class, own)
    check_undamaged(args.init_from)
    with explain_missing(args.init_from):
        model, report = auto_class.from_pretrained(args.init_from, config=own, output_loading_info=True)
    check_no_weight_missing(args.init_from, model, report)
    if args.freeze_body:
        _freeze_body(model)
    return model


def _build(auto_class: Any, config: Any) -> PreTrainedModel:
    """A new model of an Auto class, or of a class that has none."""
    return getattr(auto_class, "from_config", getattr(auto_class, "_from_config", None))(config)


def _freeze_body(model: PreTrainedModel) -> None:
    """Train the head alone: the states of the body are features, the same ones each time."""
    body = model.base_model
    body.requires_grad_(False)
    for module in body.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError(f"{type(model).__name__} has no weights above its body to train; leave out --freeze_body")


def _with_embeddings(model: PreTrainedModel, args: RecipeArguments) -> PreTrainedModel:
    """The model with the embeddings of `--embeddings` for the tokens that have some there."""
    if args.embeddings is None:
        return model
    from ..convert.word_vectors import copy_vectors, read_vectors

    found = copy_vectors(model, args.words, read_vectors(args.embeddings))
    total = sum(word is not None for word in args.words)
    if not found:
        raise ValueError(
            f"none of the {total:,} tokens is in {args.embeddings}; use a word tokenizer, or other vectors"
        )
    note(f"the embeddings of {found:,} of {total:,} tokens ({found / total:.0%}) start from {args.embeddings}")
    return model


def _set(config: Any, settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        setattr(config, name, value)


def _check_names(config: Any, settings: dict[str, Any]) -> None:
    """Raise an error for a setting that the configuration does not have: it would be kept and ignored."""
    known = {field.name for field in dataclasses.fields(type(config))}
    for name in settings:
        if name not in known:
            raise ValueError(unknown_setting(type(config), name))


def _check_lengths(own: Any, args: RecipeArguments) -> None:
    longest = position_limit(own)
    if longest is not None and args.max_length > longest:
        raise ValueError(
            f"max_length {args.max_length} is more than the {longest} positions of {args.init_from}; give --max_length "
            f"{longest}"
        )


def _has_shapes(sizes: dict[str, Any], auto_class: Any, config: Any) -> bool:
    """Whether a checkpoint of these sizes fits a changed configuration, which its class may even reject."""
    try:
        return _shapes(auto_class, config) == sizes
    except ValueError:
        return False


def _shapes(auto_class: Any, config: Any) -> dict[str, Any]:
    """The shapes of all weights of a checkpoint, on the meta device: another head has none there yet."""
    saved = saved_class(config)
    with torch.device("meta"):
        model = find_class(saved)(config) if saved in public_classes() else _build(auto_class, config)
    return {name: weight.shape for name, weight in model.state_dict().items()}


def label_settings(corpus: Any, column: str = "label") -> dict[str, Any]:
    """Fields of a classifier's configuration for its labels: their names, or `regression`."""
    names = label_names(corpus["train"], column)
    if names is None:
        return {"num_labels": 1, "problem_type": "regression"}
    settings: dict[str, Any] = {
        "id2label": dict(enumerate(names)),
        "label2id": {name: n for n, name in enumerate(names)},
    }
    has_many = column == "label" and hasattr(corpus["train"].features[column], "feature")
    return settings | ({"problem_type": "multi_label_classification"} if has_many else {})


def token_ids(tokenizer: Any, *names: str) -> dict[str, int]:
    """Special token ids as fields of a configuration, for scripts from before `EduConfig.for_tokenizer`."""
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in names if name != "decoder_start"}
    return ids | ({"decoder_start_token_id": tokenizer.bos_token_id} if "decoder_start" in names else {})
