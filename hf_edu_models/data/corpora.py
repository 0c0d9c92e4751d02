"""`load_corpus`: built-in tasks, files and Hub data sets through one door, with one naming for all of them."""

from __future__ import annotations

import importlib.metadata
import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import builtin_dates, builtin_numbers, builtin_sequences, builtin_stories
from .cache import build_once, cache_folder, code_version, fingerprint
from .columns import plan_columns
from .joining import is_joined, join_corpora
from .labels import name_labels
from .local_files import SPLIT_NAMES, find_pairs, load_local, looks_local, missing_path
from .reshape import reshape

if TYPE_CHECKING:
    from datasets import DatasetDict, IterableDatasetDict

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Builtin:
    """A task that is generated: how, from which code and library, and how much by default."""

    generate: Any
    module: ModuleType
    library: str | None
    sizes: tuple[int, int, int]


BUILTINS = {
    "dates": Builtin(builtin_dates.generate, builtin_dates, "babel", (20_000, 1_000, 1_000)),
    "numbers": Builtin(builtin_numbers.generate, builtin_numbers, "num2words", (10_000, 500, 500)),
    "reverse": Builtin(builtin_sequences.generate_reverse, builtin_sequences, None, (10_000, 500, 500)),
    "copy": Builtin(builtin_sequences.generate_copy, builtin_sequences, None, (10_000, 500, 500)),
    "stories": Builtin(builtin_stories.generate, builtin_stories, None, (2_000, 100, 100)),
}


def load_corpus(
    name_or_path: str | os.PathLike,
    *,
    task: str | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
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
    streaming: bool = False,
    cache_dir: str | os.PathLike | None = None,
    **options: Any,
) -> DatasetDict | IterableDatasetDict:
    """Load a corpus with the columns of its task, by split.

    Args:
        name_or_path: A built-in task, a file or folder, or a Hub id; several of one task with + between them.
        task: The task, where the columns fit more than one.
        columns: Our column name to the name in the data.
        source: Column or language to translate from, with `target`.
        label_names: The classes in order, where the data has numbers or is streamed.
        splits: Our split name to the name in the data; only these are kept.
        train_size: Rows (stories: documents). Built-in: how many to make, 0 for no such split. Else at most so many; a
            validation or test split that is not there is cut from train.
        unit: What a row of a text file is: line, paragraph or document.
        options: What the built-in task takes, such as `languages` or `max_length`.
    """
    name = os.fspath(name_or_path)
    sizes = dict(zip(SPLITS, (train_size, validation_size, test_size), strict=True))
    _check_sizes(sizes)
    given = {"task": task, "columns": columns, "source": source, "target": target, "label_names": label_names}
    given |= {"config": config, "revision": revision, "splits": splits}
    if is_joined(name):
        given |= {"seed": seed, "unit": unit, "cache_dir": cache_dir}
        parts = [load_corpus(part, **given, **options) for part in name.split("+")]
        found = _as_dict(_resize(join_corpora(name, parts), sizes, seed, streaming=False), streaming=False)
        return _as_streams(found) if streaming else found
    if name in BUILTINS:
        _check_builtin(name, given | {"unit": None if unit == "line" else unit})
        found = _load_builtin(name, sizes, seed, cache_dir, options)
        return _as_streams(found) if streaming else found
    if options:
        raise TypeError(
            f"load_corpus has no option {next(iter(options))!r} for {name!r}; built-in tasks alone take more"
        )
    raw, is_paired = _load_raw(name, source, target, config, revision, unit, streaming, cache_dir)
    raw = _named_splits(raw, splits)
    plan = _plan(raw, task, columns, *((None, None) if is_paired else (source, target)))
    shaped = {split: reshape(dataset, plan) for split, dataset in raw.items()}
    shaped = name_labels(shaped, label_names, streaming)
    return _as_dict(_resize(shaped, sizes, seed, streaming), streaming)


def builtin_options(name: str) -> dict[str, Any]:
    """What a built-in task takes beside its sizes and seed, with the defaults."""
    parameters = inspect.signature(BUILTINS[name].generate).parameters
    return {each: value.default for each, value in parameters.items() if each not in ("sizes", "seed")}


def _check_builtin(name: str, given: dict[str, Any]) -> None:
    for option, value in given.items():
        if value is not None:
            raise TypeError(f"{name} is built in and has no {option!r}; it takes {', '.join(builtin_options(name))}")


def _load_builtin(name: str, sizes: dict[str, int | None], seed: int, cache_dir, options: dict[str, Any]):
    import datasets

    builtin, allowed = BUILTINS[name], builtin_options(name)
    for option in options:
        if option not in allowed:
            raise TypeError(f"{name} has no option {option!r}; it takes {', '.join(allowed)}")
    settings = allowed | {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    counts = {split: _or(sizes[split], default) for split, default in zip(SPLITS, builtin.sizes, strict=True)}
    counts = {split: size for split, size in counts.items() if size}
    if not counts:
        raise ValueError(f"every split of {name} has the size 0; ask for one row at least")
    library = builtin.library and f"{builtin.library} {importlib.metadata.version(builtin.library)}"
    key = fingerprint(name, counts, seed, settings, library, code_version(builtin.module))

    def build(folder: Path) -> None:
        rows = builtin.generate(counts, seed, **settings)
        _from_rows(rows).save_to_disk(str(folder))

    folder = build_once(cache_folder(cache_dir) / name / key, build)
    return datasets.load_from_disk(str(folder))


def _from_rows(rows: dict[str, dict[str, list]]):
    import datasets

    links = datasets.List(datasets.List(datasets.Value("int32")))
    kinds = {"sure": links, "possible": links}
    names = next(iter(rows.values()))
    features = datasets.Features({name: kinds.get(name, datasets.Value("string")) for name in names})
    return datasets.DatasetDict(
        {split: datasets.Dataset.from_dict(columns, features=features) for split, columns in rows.items()}
    )


def _load_raw(name, source, target, config, revision, unit, streaming, cache_dir):
    path = Path(name).expanduser()
    if path.exists() or find_pairs(path, (source or "src", target or "tgt")):
        if revision is not None:
            raise ValueError(f"revision={revision!r} is for Hub data sets; {path} is on this machine")
        options = {"streaming": streaming, "cache_dir": cache_dir and str(cache_dir)}
        return load_local(path, source=source, target=target, config=config, unit=unit, options=options)
    if looks_local(name):
        raise missing_path(path)
    if unit != "line":
        raise ValueError(f"unit={unit!r} is for text files on this machine; {name!r} is taken as a Hub id")
    return _load_hub(name, config, revision, streaming, cache_dir), False


def _load_hub(name: str, config: str | None, revision: str | None, streaming: bool, cache_dir):
    import datasets

    try:
        return datasets.load_dataset(
            name, name=config, revision=revision, streaming=streaming, cache_dir=cache_dir and str(cache_dir)
        )
    except (FileNotFoundError, ConnectionError) as problem:
        raise FileNotFoundError(
            f"{name!r} is no built-in task ({', '.join(BUILTINS)}), no file or folder here, and not on the Hub: "
            f"{problem}"
        ) from problem


def _named_splits(raw: Mapping[str, Any], splits: Mapping[str, str] | None) -> dict[str, Any]:
    if splits is None:
        return {SPLIT_NAMES.get(name, name): dataset for name, dataset in raw.items()}
    for ours, theirs in splits.items():
        if theirs not in raw:
            raise ValueError(f"splits maps {ours!r} to {theirs!r}, which is not there; there are {', '.join(raw)}")
    return {ours: raw[theirs] for ours, theirs in splits.items()}


def _plan(raw: Mapping[str, Any], task, columns, source, target):
    first = next(iter(raw.values()))
    names = first.column_names
    if names is None:  # a stream of unknown columns: its first row tells
        names = list(next(iter(first)))
    inside = None
    if "translation" in names:
        inside = _inner_languages(first)
    return plan_columns(names, task=task, columns=columns, source=source, target=target, translation_languages=inside)


def _inner_languages(dataset) -> list[str]:
    feature = dataset.features["translation"] if dataset.features else next(iter(dataset))["translation"]
    return list(getattr(feature, "languages", None) or feature)


def _resize(found: dict[str, Any], sizes: dict[str, int | None], seed: int, streaming: bool) -> dict[str, Any]:
    from .resize import cut_missing, limit

    wanted = {split: size for split, size in sizes.items() if size is not None}
    found = cut_missing(found, {split: size for split, size in wanted.items() if split not in found}, seed, streaming)
    return {
        split: dataset if split not in wanted else limit(dataset, wanted[split], seed, streaming)
        for split, dataset in found.items()
    }


def _as_dict(found: dict[str, Any], streaming: bool):
    import datasets

    return (datasets.IterableDatasetDict if streaming else datasets.DatasetDict)(found)


def _as_streams(found):
    return _as_dict({split: dataset.to_iterable_dataset() for split, dataset in found.items()}, streaming=True)


def _check_sizes(sizes: dict[str, int | None]) -> None:
    for split, size in sizes.items():
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
            raise ValueError(f"{split}_size must be a count of rows, 0 or more; got {size!r}")


def _or(value, default):
    return default if value is None else value
