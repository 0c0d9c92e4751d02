"""Column names: how the names that datasets use are mapped to the columns of `tasks.TASKS`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any

from ..tasks import TASKS, find_task

# Known names of each column, in order of preference. A tuple: the column is made of several; texts are joined.
KNOWN = {
    "source": ("source", "src"),
    "target": ("target", "tgt"),
    "sure": ("sure",),
    "possible": ("possible",),
    "language": ("language",),
    "id": ("id",),
    # COPA asks for the cause or the effect of its premise.
    "context": ("context", "startphrase", "ctx", "sent1", "prompt", "stem", ("premise", "question")),
    "question": ("question",),
    "answers": ("answers", ("answer_text", "answer_start")),
    "choices": ("choices", "endings", "options"),
    "tokens": ("tokens", "words"),
    "tags": ("tags", "ner_tags", "upos", "pos_tags", "pos", "ner", "labels"),
    "sentences": ("sentences",),
    "text": (
        ("word", "sentence1"),  # WiC asks about a word in two sentences
        *("text", "sentence", "sentence1", "premise", "question1", "paragraph", "passage", "content", "review", "body"),
        *(
            "message",
            "comment",
            "tweet",
            "utterance",
            "query",
            "review_body",
            "review_text",
            "comment_text",
            "description",
        ),
        *("headline", "title"),
    ),
    # WSC asks whether a pronoun means a noun, two spans of its text.
    "text_pair": ("text_pair", "sentence2", "hypothesis", "question2", ("span2_text", "span1_text")),
    "label": (
        *("label", "labels", "score", "stars", "category", "class", "topic", "sentiment", "intent", "emotion"),
        *("rating", "target"),
    ),
    "document": ("document", "doc", "article", "doc_id"),
    "features": ("features",),
    "value": ("value",),
    "date": ("date", "timestamp", "datetime", "time"),
    "values": ("values",),
}
# A passage and a query with a placeholder; the answers are words of the passage, whose places are looked up.
_CLOZE = {"context": "passage", "question": "query", "answers": ("answers", "passage")}
# What is made of several columns is a list, but for these: their columns are joined into one text.
_JOINED = ("text", "text_pair", "context")
# Choices in columns of their own: answer0, answer1, ...
_CHOICE = re.compile(r"(ending|answer|choice|option)[_ ]?(\d+)", re.IGNORECASE)
# Column names that are not a language, though a language has the same code.
_NOT_LANGUAGES = {"id"}


@dataclass(frozen=True)
class Plan:
    """How `load_corpus` maps the columns of a dataset: the task, and the origin of each of our columns."""

    task: str
    origin: dict[str, Any]
    flipped: bool = False  # alignment links were counted target first
    left_out: tuple[str, ...] = ()  # columns of the dataset that the task does not use


def plan_columns(
    available: list[str],
    *,
    task: str | None = None,
    columns: Mapping[str, Any] | None = None,
    source: str | None = None,
    target: str | None = None,
    translation_languages: list[str] | None = None,
) -> Plan:
    """Find the task and the origin of its columns among `available`; options take precedence over known names."""
    chosen = check_columns(available, columns)
    if source or target:
        chosen |= _direction(source, target, available, translation_languages)
    task = task or _guess_task(available, chosen, translation_languages)
    row = find_task(task, "columns")
    if "source" in row.columns and not {"source", "target"} <= chosen.keys():
        chosen = _languages(available, translation_languages) | chosen
    if task == "documents" and not (chosen.get("sentences") or known_column("sentences", available)):
        text = chosen.pop("text", None) or known_column("text", available)
        chosen["sentences"] = text  # `map_columns` cuts it into sentences
    for task_name, single, several in (("regression", "value", "features"), ("time_series", "date", "values")):
        if task == task_name and not (chosen.get(several) or known_column(several, available)):
            column = chosen.get(single) or known_column(single, available)
            chosen[several] = tuple(name for name in available if name != column) if column else None
    columns_of_task = (*row.columns, *row.optional_columns)
    origin = {name: chosen.get(name) or known_column(name, available) for name in columns_of_task} | chosen
    if "text_pair" not in chosen and origin.get("text_pair") == origin.get("text"):
        origin["text_pair"] = None  # the user has named it as the text
    _check_complete(task, origin, available)
    order = {name: number for number, name in enumerate(KNOWN)}
    names = sorted(origin, key=lambda name: order.get(name, len(order)))
    origin = {name: origin[name] for name in names if origin[name] is not None}
    used = {"sent2", "translation"}
    for value in origin.values():
        used |= {value, value.partition(".")[0]} if isinstance(value, str) else set(value)
    left_out = tuple(name for name in available if name not in used)
    return Plan(task, origin, _is_flipped(task, origin, available), left_out)


def by_split(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function of one split: called with all splits, it returns the results by split."""

    @wraps(function)
    def apply(corpus: Any, *arguments: Any, **options: Any) -> Any:
        if not isinstance(corpus, dict):
            return function(corpus, *arguments, **options)
        return type(corpus)({split: function(rows, *arguments, **options) for split, rows in corpus.items()})

    return apply


def label_names(corpus: Any, column: str) -> list[str] | None:
    """Names of the classes of a column, also of a column of lists; None if it holds numbers."""
    feature = corpus.features[column]
    return getattr(getattr(feature, "feature", feature), "names", None)


def column_names(dataset: Any) -> list[str]:
    """The column names; a stream that does not know them has those of its first row."""
    return dataset.column_names or list(next(iter(dataset)))


def is_stream(dataset: Any) -> bool:
    """Whether a dataset can only be read in order, as `load_corpus(streaming=True)` returns it."""
    return not hasattr(dataset, "__len__")


def has_tables(stream: Any) -> bool:
    """Whether a stream is read as Arrow tables; rows that are Python objects would be converted one by one."""
    return stream._ex_iterable.iter_arrow is not None


def read_column(dataset: Any, name: str) -> list:
    """All values of a column as Python objects; much faster than row by row."""
    return dataset.select_columns([name]).with_format("arrow")[:][name].to_pylist()


def check_columns(available: list[str], columns: Mapping[str, Any] | None) -> dict[str, Any]:
    """The user's `columns`, each of which must exist; a number is a position from 0."""

    def find(name: str, column: Any) -> str:
        if column in available:
            return column
        if str(column).isdigit() and int(column) < len(available):
            return available[int(column)]
        if str(column).partition(".")[0] in available:
            return column  # a field of a nested column
        raise ValueError(f"columns maps {name!r} to {column!r}, which does not exist; there are {_names(available)}")

    return {
        name: find(name, column) if isinstance(column, str | int) else tuple(find(name, each) for each in column)
        for name, column in (columns or {}).items()
    }


def _direction(source, target, available: list[str], languages: list[str] | None) -> dict[str, Any]:
    if not (source and target):
        raise ValueError(f"give source and target together, got source={source!r} and target={target!r}")
    if source == target:
        raise ValueError(f"source and target are both {source!r}; give two different columns or languages")
    for name, column in (("source", source), ("target", target)):
        if column not in (languages or available):
            raise ValueError(f"{name}={column!r} does not exist; there are {_names(languages or available)}")
    prefix = "translation." if languages else ""
    return {"source": prefix + source, "target": prefix + target}


def _guess_task(available: list[str], chosen: Mapping[str, Any], languages: list[str] | None) -> str:
    names = {name for name in KNOWN if known_column(name, available)} | set(chosen)
    is_parallel = {"source", "target"} <= names or bool(languages) or len(language_codes(available)) > 1
    # A user who names the column of the text or of the tokens does not want a translation.
    if is_parallel and not chosen.keys() & {"text", "tokens", "sentences", "context"}:
        return "alignment" if "sure" in names else "translation"
    if "value" in chosen:
        return "regression"
    for name, task in TASKS.items():
        if task.columns and "source" not in task.columns and set(task.columns) - {"id"} <= names:
            return name
    example = dict(zip(("text", "label"), available, strict=False))
    raise ValueError(f"no task fits the columns {_names(available)}; name those to use: {_command(example)}")


def _command(columns: Mapping[str, str]) -> str:
    """How to choose columns, on a command line and in Python."""
    flags = " ".join(f"--columns {shlex.quote(f'{ours}={theirs}')}" for ours, theirs in columns.items())
    return f"{flags} (in Python columns={dict(columns)})"


def language_codes(names: Iterable[str]) -> list[str]:
    """The names that are a language code, such as en, de or pt_BR, in their order."""
    from babel import localedata

    def is_language(name: str) -> bool:
        plain = re.fullmatch(r"[a-z]{2,3}([-_][A-Za-z]{2,4})?", name)
        return bool(plain) and name not in _NOT_LANGUAGES and localedata.exists(name.replace("-", "_"))

    return [name for name in names if is_language(name)]


def _languages(available: list[str], languages: list[str] | None) -> dict[str, Any]:
    sides = {name: known_column(name, available) for name in ("source", "target")}
    if all(sides.values()):
        return sides
    found = languages or language_codes(available)
    if not found:
        example = dict(zip(("source", "target"), available, strict=False))
        raise ValueError(f"which columns are source and target? there are {_names(available)}: {_command(example)}")
    if len(found) != 2:
        raise ValueError(
            f"{len(found)} languages to choose from ({_names(found)}); pass source= and target=, "
            f"for example source={(found or ['de'])[0]!r}, target={(found or ['de', 'en'])[-1]!r}"
        )
    prefix = "translation." if languages else ""
    return {"source": prefix + found[0], "target": prefix + found[1]}


def known_column(name: str, available: list[str]) -> Any:
    """The column or columns of a name among `available`, in any case."""
    spelling = {column.lower(): column for column in reversed(available)} | {column: column for column in available}
    if {"passage", "query", "answers"} <= spelling.keys() and name in _CLOZE:  # ReCoRD, RuCoS
        return _CLOZE[name]
    for candidate in KNOWN.get(name, ()):
        if isinstance(candidate, str) and candidate in spelling:
            return spelling[candidate]
        if not isinstance(candidate, str) and all(column in spelling for column in candidate):
            return tuple(spelling[column] for column in candidate)
    if name == "context" and "question" in spelling and known_column("choices", available):
        return spelling["question"]  # of a multiple choice
    if name == "text_pair" and "question" in spelling and known_column("text", available) in ("sentence", "passage"):
        return spelling["question"]  # QNLI, BoolQ: does the text answer it?
    if name == "text_pair" and known_column("text", available) == spelling.get("paragraph"):  # MultiRC
        return ("question", "answer") if {"question", "answer"} <= spelling.keys() else None
    if name == "choices":
        found = {column: _CHOICE.fullmatch(column) for column in available}
        numbered = sorted((int(match[2]), column) for column, match in found.items() if match)
        return tuple(column for _, column in numbered) if len(numbered) > 1 else None
    return None


def join_columns(name: str, values: Iterable[Any]) -> Any:
    """The value of a column that is made of several: one text or a list."""
    return " ".join(map(str, values)) if is_joined(name) else list(values)


def is_joined(name: str) -> bool:
    """Whether a column that is made of several is one text."""
    return name in _JOINED


def _check_complete(task: str, origin: Mapping[str, Any], available: list[str]) -> None:
    # `id` can be generated, and gold links may all be sure.
    missing = [name for name in TASKS[task].columns if origin.get(name) is None and name not in ("id", "possible")]
    if missing:
        free = [name for name in available if name not in origin.values()] or available
        raise ValueError(
            f"task {task} needs the column {missing[0]!r} and none of {_names(available)} is known to be it; name it: "
            f"{_command({missing[0]: free[0]})}"
        )


def _is_flipped(task: str, origin: Mapping[str, Any], available: list[str]) -> bool:
    """Whether source and target are asked for in the opposite order of the columns, in which links are counted."""
    if task != "alignment" or not {origin["source"], origin["target"]} <= set(available):
        return False
    return available.index(origin["source"]) > available.index(origin["target"])


def _names(names) -> str:
    return ", ".join(map(repr, names)) or "none"
