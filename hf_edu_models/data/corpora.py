"""`load_corpus`: built-in corpora, files and Hub datasets by one function, with the columns of their task."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..tasks import TASKS
from .builtin import BUILTINS, builtin_options, load_builtin
from .cache import rebuild_damaged
from .checks import check_numbers, check_texts
from .columns import column_names, plan_columns
from .concatenate import concatenate_corpora, is_concatenation
from .labels import name_labels
from .local_files import SPLIT_NAMES, find_pairs, load_local, looks_local, missing_path
from .map_columns import map_columns
from .notes import note
from .series import check_dates
from .split_sizes import resize_splits, split_by_column
from .tag_schemes import convert_tags
from .treebanks import read_treebank

if TYPE_CHECKING:
    from datasets import DatasetDict, IterableDatasetDict


@rebuild_damaged
def load_corpus(
    name_or_path: str | os.PathLike,
    *,
    task: str | None = None,
    columns: Mapping[str, str | int | Sequence[str | int]] | None = None,
    source: str | None = None,
    target: str | None = None,
    label_names: Sequence[str] | None = None,
    config: str | None = None,
    revision: str | None = None,
    splits: Mapping[str, str] | None = None,
    train_size: int | None = None,
    validation_size: int | None = None,
    test_size: int | None = None,
    seed: int = 0,
    unit: str = "line",
    header: bool | None = None,
    encoding: str = "utf-8",
    streaming: bool = False,
    cache_dir: str | os.PathLike | None = None,
    **options: Any,
) -> DatasetDict | IterableDatasetDict:
    """Load a corpus with the columns of its task, by split.

    Args:
        name_or_path: A built-in corpus, a file or folder, or a Hub id; several of one task with + between them.
        task: The task, where the columns fit more than one.
        columns: Our column name to the name in the data, or to its position from 0.
        source: Column or language to translate from, with `target`.
        label_names: The classes in order, where the data has integers or is streamed.
        splits: Our split name to the name in the data; only these are loaded.
        train_size: Number of rows (stories: documents). Built-in corpora: how many to generate, 0 for no such split.
            Others: the maximum; a validation or test split that does not exist is cut from train.
        unit: What a row of a text file is: line, paragraph or document.
        header: Whether the first line of a .csv or .tsv file has the names of its columns; None finds out.
        encoding: Encoding of text files, such as latin-1.
        options: Options of the built-in corpus, such as `languages` or `max_length`.
    """
    name = os.fspath(name_or_path)
    sizes = {"train": train_size, "validation": validation_size, "test": test_size}
    _check_sizes(sizes)
    settings: dict[str, Any] = {"task": task, "columns": columns, "source": source, "target": target}
    settings |= {"label_names": label_names, "config": config, "revision": revision, "splits": splits}
    if is_concatenation(name):
        settings |= {"seed": seed, "unit": unit, "header": header, "encoding": encoding, "cache_dir": cache_dir}
        parts = [load_corpus(part, **settings, **options) for part in name.split("+")]
        corpus = resize_splits(concatenate_corpora(name, parts), sizes, seed, streaming=False)
        return _as_streams(corpus) if streaming else _as_dict(corpus, streaming=False)
    if name in BUILTINS:
        _check_builtin(name, settings | {"unit": None if unit == "line" else unit})
        corpus = load_builtin(name, sizes, seed, cache_dir, options)
        return _as_streams(corpus) if streaming else corpus
    if options:
        raise TypeError(f"load_corpus has no option {next(iter(options))!r} for {name!r}; only built-in corpora do")
    files = {"unit": unit, "header": header, "encoding": encoding, "is_text": task == "language_modeling"}
    raw, is_paired = _load_raw(name, source, target, config, revision, files, streaming, cache_dir)
    if not streaming and not any(map(len, raw.values())):
        raise ValueError(f"{name} has no rows; is a header all that it has?")
    if "split" not in (columns or {}).values():
        raw = split_by_column(raw)
    raw = _rename_splits(raw, splits)
    plan = _plan(raw, task, columns, *((None, None) if is_paired else (source, target)))
    if plan.left_out:
        note(f"{os.path.basename(name)} is read for {plan.task}; columns left out: {', '.join(plan.left_out)}")
    mapped = {split: map_columns(dataset, plan) for split, dataset in raw.items()}
    check_texts(mapped, os.path.basename(name))
    if TASKS[plan.task].values and not streaming:
        check_numbers(mapped, [name for name in TASKS[plan.task].columns if name != "date"])
        if plan.task == "time_series":
            check_dates(mapped)
    mapped = mapped if streaming else convert_tags(mapped, os.path.basename(name))
    named = name_labels(mapped, label_names, streaming)
    return _as_dict(resize_splits(named, sizes, seed, streaming), streaming)


def load_splits(name: str, config: str | None = None, streaming: bool = False) -> dict[str, Any]:
    """The rows of a file, folder or Hub dataset by split, with the columns that they have."""
    files = {"unit": "line", "header": None, "encoding": "utf-8", "is_text": False}
    raw, _ = _load_raw(name, None, None, config, None, files, streaming, None)
    return _rename_splits(raw, None)


def has_columns(name: str, config: str | None = None, streaming: bool = False, **names: Any) -> bool:
    """Whether a file, folder or Hub dataset has the columns, languages or pairs of files that `load_corpus` is given.

    Args:
        names: `task`, `columns`, `source` and `target` of `load_corpus`.
    """
    if name in BUILTINS or is_concatenation(name):
        return False
    languages = {side: names.get(side) for side in ("source", "target")}
    try:
        if any(languages.values()) and find_pairs(Path(name).expanduser(), **languages):
            return True
        _plan(load_splits(name, config, streaming), **{"task": None, "columns": None} | languages | names)
    except (ValueError, OSError):  # `load_corpus` says what is wrong with the data
        return False
    return True


def load_treebank(name: str, config: str | None = None) -> dict[str, Any]:
    """Sentences with their dependency trees by split: rows with `tokens` and `heads`, the root's head 0.

    Args:
        name: A .conllu file, a folder or a Hub id with columns for the words and their heads.
    """
    return read_treebank(load_splits(name, config), Path(name).name)


def value_names(file: str | os.PathLike) -> list[str]:
    """The names of the values of a time series in a file, in the order of its column `values`."""
    raw = load_splits(os.fspath(file))
    origin = _plan(raw, "time_series", None, None, None).origin["values"]
    if not isinstance(origin, str):
        return list(origin)
    first = next(iter(raw.values()))[0][origin]
    return [f"{origin} {number}" for number in range(len(first))] if isinstance(first, list) else [origin]


def _check_builtin(name: str, settings: dict[str, Any]) -> None:
    for option, value in settings.items():
        if value is not None:
            raise TypeError(f"{name} is built in and has no {option!r}; it takes {', '.join(builtin_options(name))}")


def _load_raw(name, source, target, config, revision, files: dict[str, Any], streaming, cache_dir):
    path = Path(name).expanduser()
    if path.exists() or find_pairs(path, source, target):
        if revision is not None:
            raise ValueError(f"revision={revision!r} is for Hub datasets; {path} is on this machine")
        options = {"streaming": streaming, "cache_dir": cache_dir and str(cache_dir)}
        return load_local(path, source=source, target=target, config=config, **files, options=options)
    if looks_local(name):
        raise missing_path(path)
    if files["unit"] != "line":
        raise ValueError(f"unit={files['unit']!r} is for text files on this machine; {name!r} is read as a Hub id")
    return _load_hub(name, config, revision, streaming, cache_dir), False


def _load_hub(name: str, config: str | None, revision: str | None, streaming: bool, cache_dir):
    import datasets

    try:
        return datasets.load_dataset(
            name, name=config, revision=revision, streaming=streaming, cache_dir=cache_dir and str(cache_dir)
        )
    except (FileNotFoundError, ConnectionError) as problem:
        raise FileNotFoundError(
            f"{name!r} is not a built-in corpus ({', '.join(BUILTINS)}), not a file or folder here, and not on the "
            f"Hub: {problem}"
        ) from problem


def _rename_splits(raw: Mapping[str, Any], splits: Mapping[str, str] | None) -> dict[str, Any]:
    if splits is None:
        return {SPLIT_NAMES.get(name, name): dataset for name, dataset in raw.items()}
    for ours, theirs in splits.items():
        if theirs not in raw:
            raise ValueError(f"splits maps {ours!r} to {theirs!r}, which is not there; there are {', '.join(raw)}")
    return {ours: raw[theirs] for ours, theirs in splits.items()}


def _plan(raw: Mapping[str, Any], task, columns, source, target):
    first = next(iter(raw.values()))
    names, languages = column_names(first), None
    if "translation" in names:
        feature = first.features["translation"] if first.features else next(iter(first))["translation"]
        languages = list(getattr(feature, "languages", None) or feature)
    return plan_columns(
        names, task=task, columns=columns, source=source, target=target, translation_languages=languages
    )


def _as_dict(corpus: Mapping[str, Any], streaming: bool):
    import datasets

    return (datasets.IterableDatasetDict if streaming else datasets.DatasetDict)(corpus)


def _as_streams(corpus: Mapping[str, Any]):
    return _as_dict({split: dataset.to_iterable_dataset() for split, dataset in corpus.items()}, streaming=True)


def _check_sizes(sizes: dict[str, int | None]) -> None:
    for split, size in sizes.items():
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
            raise ValueError(f"{split}_size must be a number of rows, 0 or more; got {size!r}")
