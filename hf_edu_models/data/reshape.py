"""From the columns of a data set to the columns of its task, by the plan of `columns.py`."""

from __future__ import annotations

from typing import Any

from .columns import Plan


def reshape(dataset: Any, plan: Plan) -> Any:
    """Keep, rename and build columns; what can be renamed is not touched."""
    built = {name: origin for name, origin in plan.origin.items() if _must_build(name, origin, plan, dataset)}
    if plan.task == "question_answering" and "id" not in plan.origin:
        dataset = dataset.map(_count_rows, with_indices=True, batched=True)
        plan = Plan(plan.task, {"id": "id"} | plan.origin, plan.flipped)
    if built:
        arguments = {"built": built, "flipped": plan.flipped}
        dataset = dataset.map(_build_columns, batched=True, fn_kwargs=arguments, features=_features(dataset, built))
    final = {name: _temporary(name) if name in built else origin for name, origin in plan.origin.items()}
    dataset = dataset.select_columns(list(dict.fromkeys(final.values())))
    return dataset.rename_columns({origin: name for name, origin in final.items() if origin != name})


def parse_links(links: Any, flipped: bool = False) -> list[list[int]]:
    """Links such as "0-0 2-1" as pairs of positions; `flipped` turns them round."""
    if isinstance(links, str):
        links = [pair.replace("?", "-").split("-") for pair in links.split()]
    pairs = [[int(i), int(j)] for i, j in links or []]
    return sorted([j, i] for i, j in pairs) if flipped else pairs


def _must_build(name: str, origin: Any, plan: Plan, dataset: Any) -> bool:
    if name in ("sure", "possible"):
        return True
    shared = sum(other == origin for other in plan.origin.values()) > 1
    return not isinstance(origin, str) or origin not in _names(dataset) or shared or _is_swag(name, origin, dataset)


def _build_columns(batch: dict[str, list], built: dict[str, Any], flipped: bool) -> dict[str, list]:
    made = {}
    for name, origin in built.items():
        if name in ("sure", "possible"):
            values = [parse_links(links, flipped) for links in batch[origin]]
        elif name == "answers" and not isinstance(origin, str):
            values = [_answers(*row) for row in zip(*(batch[part] for part in origin), strict=True)]
        elif name == "choices" and "sent2" in batch:
            rows = zip(batch["sent2"], *(batch[part] for part in origin), strict=True)
            values = [[f"{start} {ending}".strip() for ending in endings] for start, *endings in rows]
        elif not isinstance(origin, str):
            values = [list(row) for row in zip(*(batch[part] for part in origin), strict=True)]
        elif origin in batch:
            values = batch[origin]
        else:
            column, _, language = origin.partition(".")
            values = [row[language] for row in batch[column]]
        made[_temporary(name)] = values
    return made


def _answers(texts: Any, starts: Any) -> dict[str, list]:
    """SQuAD's form, whether the file has one answer or a list of them."""
    if isinstance(texts, str):
        texts, starts = [texts], [starts]
    return {"text": list(texts or []), "answer_start": list(starts or [])}


def _is_swag(name: str, origin: Any, dataset: Any) -> bool:
    return name == "choices" and isinstance(origin, tuple) and "sent2" in _names(dataset)


def _count_rows(batch: dict[str, list], indices: list[int]) -> dict[str, list]:
    return {"id": [str(index) for index in indices]}


def _features(dataset: Any, built: dict[str, Any]) -> Any:
    """Types of links and answers, which an empty first batch would leave open."""
    import datasets

    if dataset.features is None:
        return None
    links = datasets.List(datasets.List(datasets.Value("int32")))
    text, number = datasets.List(datasets.Value("string")), datasets.List(datasets.Value("int32"))
    fixed = {"sure": links, "possible": links, "answers": {"text": text, "answer_start": number}, "choices": text}
    features = dataset.features.copy()
    for name, origin in built.items():
        kept = dataset.features[origin] if isinstance(origin, str) and origin in dataset.features else None
        kind = fixed.get(name) or kept or datasets.Value("string")
        features[_temporary(name)] = text if not isinstance(origin, str) and name not in fixed else kind
    return features


def _names(dataset: Any) -> list[str]:
    return dataset.column_names or list(next(iter(dataset)))


def _temporary(name: str) -> str:
    return f"edu:{name}"
