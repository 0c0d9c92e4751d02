"""Labels and tags as `ClassLabel`, whether the data has strings, integers or lists of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .checks import check_filled
from .columns import read_column

# The label of positions that are not scored: padding, special tokens, tokens that are not masked. Set by the encoders
# and collators of this package, ignored by the losses (`models/blocks_losses.py`) and the metrics.
IGNORE_INDEX = -100
_MAX_CLASSES = 1_000  # a column with more distinct integers than this holds values, not classes
_STRINGS = ("string", "large_string")


def name_labels(corpus: Mapping[str, Any], label_names: Sequence[str] | None, streaming: bool) -> Mapping[str, Any]:
    """Give `label` and `tags` their classes, the same in every split; floats stay numbers."""
    if streaming and next(iter(corpus.values())).features is None:  # datasets before 4.7 loses them on the way
        corpus = {split: dataset._resolve_features() for split, dataset in corpus.items()}
    first = next(iter(corpus.values()))
    columns = [column for column in ("label", "tags") if column in (first.features or {})]
    if label_names is not None and not columns:
        raise ValueError(f"label_names is given, but there is no 'label' and no 'tags'; there are {first.column_names}")
    for column in columns:
        corpus = _name_column(corpus, column, label_names, streaming)
    return corpus


def _name_column(
    corpus: Mapping[str, Any], column: str, names: Sequence[str] | None, streaming: bool
) -> Mapping[str, Any]:
    import datasets

    feature = next(iter(corpus.values())).features[column]
    inner = getattr(feature, "feature", feature)
    if not isinstance(inner, datasets.ClassLabel | datasets.Value):
        raise ValueError(
            f"the column {column!r} holds {_kind(inner)}, not classes or numbers; write all of them as text or all as "
            f"numbers, or choose another with --columns {column}=NAME"
        )
    for split, dataset in () if streaming else corpus.items():
        check_filled(split, column, read_column(dataset, column))
    if isinstance(inner, datasets.ClassLabel) or inner.dtype.startswith("float"):
        return corpus
    if names is None and streaming:
        if inner.dtype not in _STRINGS:
            return corpus  # integers can be used as they are
        raise ValueError(f"a stream cannot be searched for the classes of {column!r}; pass label_names=[...] in order")
    values = [] if streaming else _values(corpus, column, nested=inner is not feature)
    classes = list(names) if names is not None else _classes(values, inner.dtype)
    if classes is None:
        return corpus
    _check_covered(values, classes, column, inner.dtype)
    named = datasets.ClassLabel(names=classes)
    named = named if inner is feature else datasets.List(named)
    return {split: _encode(dataset, column, classes, named, inner.dtype) for split, dataset in corpus.items()}


def _kind(feature: Any) -> str:
    name = type(feature).__name__
    return "values of several types" if name == "Json" else name


def _values(corpus: Mapping[str, Any], column: str, nested: bool) -> list:
    import pyarrow.compute as pc

    values = set()
    for dataset in corpus.values():
        array = dataset.with_format("arrow")[:][column]
        values.update(pc.unique(pc.list_flatten(array) if nested else array).to_pylist())
    return [value for value in values if value is not None]


def _classes(values: list, dtype: str) -> list[str] | None:
    if dtype in _STRINGS:
        return sorted(values, key=lambda name: (name != "O", name))
    if not values or min(values) < -1 or max(values) >= _MAX_CLASSES:
        return None
    return [str(number) for number in range(int(max(values)) + 1)]


def _check_covered(values: list, classes: list[str], column: str, dtype: str) -> None:
    for value in values:
        known = value in classes if dtype in _STRINGS else -1 <= value < len(classes)
        if not known:
            raise ValueError(f"{column!r} has the value {value!r}, which label_names {classes} does not cover")


def _encode(dataset: Any, column: str, classes: list[str], feature: Any, dtype: str) -> Any:
    features = dataset.features.copy()
    features[column] = feature
    if dtype not in _STRINGS:
        return dataset.cast(features)
    ids = {name: number for number, name in enumerate(classes)}
    return dataset.map(_encode_batch, batched=True, fn_kwargs={"column": column, "ids": ids}, features=features)


def _encode_batch(batch: dict[str, list], column: str, ids: dict[str, int]) -> dict[str, list]:
    def encode(value):
        return [ids[name] for name in value] if isinstance(value, list) else ids.get(value, -1)

    return {column: [encode(value) for value in batch[column]]}
