"""From the columns of a dataset to the columns of its task, by the plan of `columns.py`."""

from __future__ import annotations

from typing import Any

from .columns import Plan, column_names, has_tables, is_joined, is_stream, join_columns
from .sentences import cut_sentences


def map_columns(dataset: Any, plan: Plan) -> Any:
    """Select, rename and build columns; a column that only needs another name is not copied."""
    built = {name: origin for name, origin in plan.origin.items() if _must_build(name, origin, plan, dataset)}
    if plan.task == "question_answering" and "id" not in plan.origin:
        dataset = dataset.map(_number_rows, with_indices=True, batched=True)
        plan = Plan(plan.task, {"id": "id"} | plan.origin, plan.flipped)
    if built:
        arguments = {"built": built, "flipped": plan.flipped}
        dataset = dataset.map(_build_columns, batched=True, fn_kwargs=arguments, features=_features(dataset, built))
    final = {name: _temporary(name) if name in built else origin for name, origin in plan.origin.items()}
    dataset = dataset.select_columns(list(dict.fromkeys(final.values())))
    names = {origin: name for name, origin in final.items() if origin != name}
    return _rename(dataset, names) if names else dataset


def _rename(dataset: Any, names: dict[str, str]) -> Any:
    """Rename columns; of a stream of tables without the rows in between, which `datasets` would make of them."""
    if not is_stream(dataset) or dataset.features is None or not has_tables(dataset):
        return dataset.rename_columns(names)
    features = type(dataset.features)({names.get(name, name): each for name, each in dataset.features.items()})
    options = {"batched": True, "fn_kwargs": {"names": names}, "features": features}
    return dataset.with_format("arrow").map(_rename_table, **options).with_format(None)


def _rename_table(table: Any, names: dict[str, str]) -> Any:
    return table.rename_columns([names.get(name, name) for name in table.column_names])


def parse_links(links: Any, flipped: bool = False) -> list[list[int]]:
    """Alignment links such as "0-0 2-1" as pairs of positions; `flipped` swaps the two sides."""
    if isinstance(links, str):
        links = [pair.replace("?", "-").split("-") for pair in links.split()]
    pairs = [[int(i), int(j)] for i, j in links or []]
    return sorted([j, i] for i, j in pairs) if flipped else pairs


def fixed_features() -> dict[str, Any]:
    """Types of the columns of lists, which cannot be inferred from empty ones."""
    import datasets

    links = datasets.List(datasets.List(datasets.Value("int32")))
    texts, starts = datasets.List(datasets.Value("string")), datasets.List(datasets.Value("int32"))
    answers = {"text": texts, "answer_start": starts}
    lists = {"sure": links, "possible": links, "answers": answers, "choices": texts, "sentences": texts}
    return lists | dict.fromkeys(("features", "values"), datasets.List(datasets.Value("float64")))


def _must_build(name: str, origin: Any, plan: Plan, dataset: Any) -> bool:
    if name in ("sure", "possible") or not isinstance(origin, str):
        return True
    if name in ("sentences", "features", "values") and hasattr(
        (dataset.features or {}).get(origin), "dtype"
    ):  # a text or number, not a list
        return True
    is_shared = sum(other == origin for other in plan.origin.values()) > 1
    return is_shared or origin not in column_names(dataset)


def _build_columns(batch: dict[str, list], built: dict[str, Any], flipped: bool) -> dict[str, list]:
    columns = {}
    values: list
    for name, origin in built.items():
        if name in ("sure", "possible"):
            values = [parse_links(links, flipped) for links in batch[origin]]
        elif name == "answers" and not isinstance(origin, str):
            values = [_answers(*row) for row in zip(*(batch[part] for part in origin), strict=True)]
        elif name == "choices" and "sent2" in batch:  # SWAG: all choices continue the same words
            rows = zip(batch["sent2"], *(batch[part] for part in origin), strict=True)
            values = [[f"{start} {choice}".strip() for choice in choices] for start, *choices in rows]
        elif name in ("features", "values") and isinstance(origin, str):
            values = [[number] for number in batch[origin]]
        elif name == "sentences" and isinstance(batch[origin][0], str):
            values = [cut_sentences(text or "") for text in batch[origin]]
        elif not isinstance(origin, str):
            rows = zip(*(batch[part] for part in origin), strict=True)
            values = [join_columns(name, row) for row in rows]
        elif origin in batch:
            values = batch[origin]
        else:
            values = [_field(value, *origin.split(".")) for value in batch[origin.partition(".")[0]]]
        columns[_temporary(name)] = values
    return columns


def _field(value: Any, column: str, *path: str) -> Any:
    """A field of a nested value: `translation.de`."""
    for name in path:
        if not isinstance(value, dict) or name not in value:
            fields = ", ".join(value) if isinstance(value, dict) else "no fields"
            raise ValueError(f"the column {column!r} has no field {name!r}; it has {fields}")
        value = value[name]
    return value


def _answers(texts: Any, starts: Any) -> dict[str, list]:
    """SQuAD's form, whether the file has one answer or a list of them; `starts` may be the text that they are in."""
    if isinstance(starts, str):
        places = {text: starts.find(text) for text in ([texts] if isinstance(texts, str) else texts or [])}
        found = {text: place for text, place in places.items() if place >= 0}
        return {"text": list(found), "answer_start": list(found.values())}
    if isinstance(texts, str):
        texts, starts = [texts], [starts]
    return {"text": list(texts or []), "answer_start": list(starts or [])}


def _number_rows(batch: dict[str, list], indices: list[int]) -> dict[str, list]:
    return {"id": [str(index) for index in indices]}


def _features(dataset: Any, built: dict[str, Any]) -> Any:
    import datasets

    if dataset.features is None:
        return None
    text, fixed = datasets.Value("string"), fixed_features()
    features = dataset.features.copy()
    for name, origin in built.items():
        several = text if is_joined(name) else datasets.List(text)
        default = dataset.features.get(origin, text) if isinstance(origin, str) else several
        features[_temporary(name)] = fixed.get(name, default)
    return features


def _temporary(name: str) -> str:
    return f"edu:{name}"
