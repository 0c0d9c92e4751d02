"""One naming for every corpus: which columns a task has, and how the names in use elsewhere map to them.

| task                | columns                                                    |
|---------------------|------------------------------------------------------------|
| alignment           | source, target, sure, possible                             |
| translation         | source, target                                             |
| question_answering  | id, context, question, answers {text, answer_start}        |
| multiple_choice     | context, choices, label                                    |
| token_classification| tokens, tags                                               |
| documents           | sentences, label                                           |
| classification      | text, text_pair (where there is one), label                |
| language_modeling   | text, document (where there is one)                        |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TASKS = {
    "alignment": ("source", "target", "sure", "possible"),
    "translation": ("source", "target"),
    "question_answering": ("id", "context", "question", "answers"),
    "multiple_choice": ("context", "choices", "label"),
    "token_classification": ("tokens", "tags"),
    "documents": ("sentences", "label"),
    "classification": ("text", "label"),
    "language_modeling": ("text",),
}
OPTIONAL = {
    "translation": ("language",),
    "alignment": ("language",),
    "classification": ("text_pair",),
    "language_modeling": ("document",),
    "documents": ("document",),
}
# Names in use for a column, the best first. A tuple is made of several columns.
KNOWN = {
    "source": ("source", "src"),
    "target": ("target", "tgt"),
    "sure": ("sure",),
    "possible": ("possible",),
    "language": ("language",),
    "id": ("id",),
    "context": ("context", "startphrase", "ctx", "sent1"),
    "question": ("question",),
    "answers": ("answers", ("answer_text", "answer_start")),
    "choices": ("choices", "endings", ("ending0", "ending1", "ending2", "ending3")),
    "tokens": ("tokens", "words"),
    "tags": ("tags", "ner_tags", "upos", "pos_tags", "pos", "ner", "labels"),
    "sentences": ("sentences",),
    "text": ("text", "sentence", "sentence1", "premise", "question1", "paragraph", "content", "review"),
    "text_pair": ("text_pair", "sentence2", "hypothesis", "question2"),
    "label": ("label", "labels", "score", "stars"),
    "document": ("document", "doc", "article", "doc_id"),
}
# Two-letter column names that are no language, though a language has the same code.
NOT_LANGUAGES = {"id"}


@dataclass(frozen=True)
class Plan:
    """What `load_corpus` will do with a data set's columns: the task, and where each of our columns comes from."""

    task: str
    origin: dict[str, Any]
    flipped: bool = False  # links were counted target first


def plan_columns(
    available: list[str],
    *,
    task: str | None = None,
    columns: Mapping[str, Any] | None = None,
    source: str | None = None,
    target: str | None = None,
    translation_languages: list[str] | None = None,
) -> Plan:
    """Find the task and the origin of its columns among `available`; options always win over what is known."""
    given = _given(available, columns)
    if source or target:
        given |= _direction(source, target, available, translation_languages)
    task = task or _guess_task(available, given, translation_languages)
    if task not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}; got {task!r}")
    if task in ("translation", "alignment") and not {"source", "target"} <= given.keys():
        given = _languages(available, translation_languages, given) | given
    origin = {name: given.get(name) or _known(name, available) for name in TASKS[task]}
    origin |= {name: given.get(name) or _known(name, available) for name in OPTIONAL.get(task, ())}
    origin |= {name: given[name] for name in given}
    _check_complete(task, origin, available)
    order = {name: place for place, name in enumerate(KNOWN)}
    names = sorted((name for name in origin if origin[name] is not None), key=lambda name: order.get(name, len(order)))
    origin = {name: origin[name] for name in names}
    return Plan(task, origin, _is_flipped(task, origin, available))


def check_in_memory(dataset: Any) -> None:
    """Refuse a stream where the whole corpus must be seen at once."""
    if not hasattr(dataset, "__len__"):
        raise TypeError("this needs the whole corpus at once, not a stream; load it without streaming=True")


def read_column(dataset: Any, name: str) -> list:
    """All values of a column as Python objects, many times faster than row by row."""
    return dataset.select_columns([name]).with_format("arrow")[:][name].to_pylist()


def _given(available: list[str], columns: Mapping[str, Any] | None) -> dict[str, Any]:
    given = dict(columns or {})
    for name, column in given.items():
        wanted = [column] if isinstance(column, str) else list(column)
        missing = [each for each in wanted if each not in available]
        if missing:
            raise ValueError(
                f"columns maps {name!r} to {missing[0]!r}, which is not there; there are {_names(available)}"
            )
        given[name] = column if isinstance(column, str) else tuple(column)
    return given


def _direction(source, target, available, inside) -> dict[str, Any]:
    if not (source and target):
        raise ValueError(f"give source and target together, got source={source!r} and target={target!r}")
    if source == target:
        raise ValueError(f"source and target are both {source!r}; give two different columns or languages")
    there = inside if inside else available
    for name, column in (("source", source), ("target", target)):
        if column not in there:
            raise ValueError(f"{name}={column!r} is not there; there are {_names(there)}")
    return (
        {"source": f"translation.{source}", "target": f"translation.{target}"}
        if inside
        else {
            "source": source,
            "target": target,
        }
    )


def _guess_task(available: list[str], given: Mapping[str, Any], inside: list[str] | None) -> str:
    have = {name for name in KNOWN if _known(name, available)} | set(given)
    two_sides = {"source", "target"} <= have or bool(inside) or len(language_columns(available)) > 1
    # Who says which column is the text or the tokens does not ask for a translation.
    if two_sides and not given.keys() & {"text", "tokens", "sentences", "context"}:
        return "alignment" if "sure" in have else "translation"
    for task in ("question_answering", "multiple_choice", "token_classification", "documents", "classification"):
        if set(TASKS[task]) - {"id"} <= have:
            return task
    if "text" in have:
        return "language_modeling"
    raise ValueError(
        f"no task fits the columns {_names(available)}; say which is which, for example "
        "columns={'text': 'my_text', 'label': 'my_label'} or columns={'source': 'a', 'target': 'b'}"
    )


def language_columns(available: list[str]) -> list[str]:
    """Columns named by a language code, such as en, de or pt_BR, in their order."""
    from babel import localedata

    def is_language(name: str) -> bool:
        plain = re.fullmatch(r"[a-z]{2,3}([-_][A-Za-z]{2,4})?", name)
        return bool(plain) and name not in NOT_LANGUAGES and localedata.exists(name.replace("-", "_"))

    return [name for name in available if is_language(name)]


def _languages(available: list[str], inside: list[str] | None, given: Mapping[str, Any]) -> dict[str, Any]:
    sides = {name: _known(name, available) for name in ("source", "target")}
    if all(sides.values()):
        return sides
    found = inside or language_columns(available)
    if len(found) != 2:
        raise ValueError(
            f"{len(found)} languages to choose from ({_names(found)}); pass source= and target=, "
            f"for example source={(found or ['de'])[0]!r}, target={(found or ['de', 'en'])[-1]!r}"
        )
    prefix = "translation." if inside else ""
    return {"source": prefix + found[0], "target": prefix + found[1]}


def _known(name: str, available: list[str]) -> Any:
    for candidate in KNOWN.get(name, ()):
        needed = (candidate,) if isinstance(candidate, str) else candidate
        if all(column in available for column in needed):
            return candidate
    return None


def _check_complete(task: str, origin: Mapping[str, Any], available: list[str]) -> None:
    # `id` can be counted, and a test set may come without its answers.
    missing = [name for name in TASKS[task] if origin.get(name) is None and name not in ("id", "possible")]
    if missing:
        raise ValueError(
            f"task {task} needs the column {missing[0]!r} and none of {_names(available)} is known to be it; "
            f"pass columns={{{missing[0]!r}: ...}}"
        )


def _is_flipped(task: str, origin: Mapping[str, Any], available: list[str]) -> bool:
    """Links are pairs of positions in the order of the two text columns; asked the other way round they turn."""
    sides = [origin.get("source"), origin.get("target")]
    if task != "alignment" or not all(side in available for side in sides):
        return False
    return available.index(sides[0]) > available.index(sides[1])


def _names(names) -> str:
    return ", ".join(map(repr, names)) or "none"
