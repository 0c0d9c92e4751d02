"""Labels and tags as `ClassLabel`, whether the data has words, numbers or lists of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MOST_CLASSES = 1_000  # more different whole numbers than this are values, not classes


def name_labels(found: dict[str, Any], label_names: Sequence[str] | None, streaming: bool) -> dict[str, Any]:
    """Give `label` and `tags` their classes, the same in every split; fractions stay numbers."""
    first = next(iter(found.values()))
    there = [column for column in ("label", "tags") if column in (first.features or {})]
    if label_names is not None and not there:
        raise ValueError(f"label_names is given, but there is no 'label' and no 'tags'; there are {first.column_names}")
    for column in there:
        found = _name_column(found, column, label_names, streaming)
    return found


def _name_column(found: dict[str, Any], column: str, names: Sequence[str] | None, streaming: bool) -> dict[str, Any]:
    import datasets

    feature = next(iter(found.values())).features[column]
    inner = getattr(feature, "feature", feature)
    if isinstance(inner, datasets.ClassLabel) or inner.dtype.startswith("float"):
        return found
    if names is None and streaming:
        if inner.dtype not in ("string", "large_string"):
            return found  # whole numbers can be used as they are
        raise ValueError(f"a stream cannot be searched for the classes of {column!r}; pass label_names=[...] in order")
    values = None if streaming else _values(found, column, nested=inner is not feature)
    classes = list(names) if names is not None else _classes(values, inner.dtype)
    if classes is None:
        return found
    _check_covered(values, classes, column, inner.dtype)
    kind = datasets.ClassLabel(names=classes)
    kind = kind if inner is feature else datasets.List(kind)
    return {split: _encode(dataset, column, classes, kind, inner.dtype) for split, dataset in found.items()}


def _values(found: dict[str, Any], column: str, nested: bool) -> list:
    import pyarrow.compute as pc

    values = set()
    for dataset in found.values():
        table = dataset.with_format("arrow")[:]
        chunked = table[column]
        flat = pc.list_flatten(chunked) if nested else chunked
        values.update(pc.unique(flat).to_pylist())
    return [value for value in values if value is not None]


def _classes(values: list, dtype: str) -> list[str] | None:
    if dtype in ("string", "large_string"):
        return sorted(values, key=lambda name: (name != "O", name))
    if not values or min(values) < -1 or max(values) >= MOST_CLASSES:
        return None
    return [str(number) for number in range(int(max(values)) + 1)]


def _check_covered(values: list | None, classes: list[str], column: str, dtype: str) -> None:
    for value in values or []:
        known = value in classes if dtype in ("string", "large_string") else -1 <= value < len(classes)
        if not known:
            raise ValueError(f"{column!r} has the value {value!r}, which label_names {classes} does not cover")


def _encode(dataset: Any, column: str, classes: list[str], kind: Any, dtype: str) -> Any:
    features = dataset.features.copy()
    features[column] = kind
    if dtype in ("string", "large_string"):
        numbers = {name: number for number, name in enumerate(classes)}
        arguments = {"column": column, "numbers": numbers}
        return dataset.map(_encode_batch, batched=True, fn_kwargs=arguments, features=features)
    return dataset.cast(features)


def _encode_batch(batch: dict[str, list], column: str, numbers: dict[str, int]) -> dict[str, list]:
    def encode(value):
        return [numbers[each] for each in value] if isinstance(value, list) else numbers.get(value, -1)

    return {column: [encode(value) for value in batch[column]]}
