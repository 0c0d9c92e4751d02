"""Predict with any checkpoint that has a trained head: labels, numbers, tags, answers and choices for new texts.

The row of a task (`tasks.py`) names its predictor, and `load_predictor` chooses by the checkpoint's head. A predictor
takes rows with the columns of its task; a prediction is a dictionary that JSON can hold, or a line of text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import torch
import transformers
from torch import Tensor
from transformers import (
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
)

from .auto import reads_documents
from .batching import map_by_length
from .checkpoints import length_limit, load_as, load_config, load_tokenizer, reads_text, saved_class
from .data.collators import DataCollatorForDocuments, DataCollatorForWindows
from .data.columns import check_columns, join_columns, known_column
from .data.local_files import EXTENSIONS, TEXTS, load_local
from .data.pretraining import IS_NEXT
from .data.row_encoders import encode_classification, encode_documents, encode_multiple_choice
from .data.sentences import cut_sentences
from .generation import find_device
from .pipelines import EduQuestionAnsweringPipeline
from .precision import set_precision
from .tasks import TASKS, task_of_class

Row = dict[str, Any]
_MAX_LABELS = 3  # the most probable ones, in a line of text; JSON has all
_FLAGS = {"text_pair": "pair", "choices": "choice"}  # options of `hf-edu predict` for columns
_WORD = re.compile(r"\w+(?:[-'’.]\w+)*|[^\w\s]")  # noqa: RUF001


class Predictor:
    """Predictions of one task.

    A subclass turns rows into predictions, and a prediction into a line of text.
    """

    columns: ClassVar[tuple[str, ...]] = ("text",)  # a plain line is the first of them; tabs separate several
    optional_columns: ClassVar[tuple[str, ...]] = ()
    alternative: ClassVar[str | None] = None  # a column that may be given instead of `columns`

    def __init__(self, model: Any, tokenizer: Any, batch_size: int = 32):
        self.model, self.tokenizer, self.batch_size = model, tokenizer, batch_size
        self.max_length = None if tokenizer is None else length_limit(model.config, tokenizer)
        self.num_truncated = 0

    def __call__(self, rows: list[Row]) -> list[Row]:
        raise NotImplementedError

    def format(self, prediction: Row) -> str:
        raise NotImplementedError

    def check_fields(self, fields: Mapping[str, Any]) -> Row:
        """The fields that are given; an error for one that this task does not use."""
        given = {name: value for name, value in fields.items() if value}
        for name in given:
            if name not in (*self.columns[1:], *self.optional_columns):
                flag = _FLAGS.get(name, name)
                raise ValueError(f"{type(self.model).__name__} has no use for --{flag}; remove it")
        return given

    def row(self, text: str | Mapping[str, Any], **fields: Any) -> Row:
        """A row from a line of text, or from a row of a file; `fields` are the other columns of all rows."""
        if isinstance(text, str) and not text.strip():
            return {}
        row = self._split(text) if isinstance(text, str) else dict(text)
        row |= fields
        is_complete = all(row.get(name) for name in self.columns) or row.get(self.alternative or "")
        if not is_complete:
            example = json.dumps(dict.fromkeys(self.columns, "..."))
            raise ValueError(
                f"{type(self.model).__name__} needs {' and '.join(self.columns)}, got "
                f"{', '.join(name for name in row if row[name]) or 'nothing'}; separate them by tabs, or write a line "
                f"as JSON: {example}"
            )
        return row

    def _split(self, line: str) -> Row:
        """The columns of a line: JSON, cells between tabs, or a text."""
        if line.startswith("{"):
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                row = None  # a text that happens to start with a brace
            if isinstance(row, dict):
                return row
        if len(self.columns) == 1:
            return {self.columns[0]: line}
        return dict(zip(self.columns, line.split("\t"), strict=False))

    def length(self, row: Row) -> int:
        """Characters of a row, for batches of similar length; 0 if it is blank."""
        return sum(len(value) for value in _texts_of(row) if value.strip())

    def encode(self, *texts: str) -> Row:
        """Token ids of a text or a pair of texts, truncated to the maximum length of the model."""
        options = {} if self.max_length is None else {"truncation": True, "max_length": self.max_length}
        encoded = self.tokenizer(*texts, verbose=False, **options)
        self.num_truncated += bool(encoded.encodings and encoded.encodings[0].overflowing)
        return dict(encoded)

    def forward(self, batch: Mapping[str, Any], output: str = "logits") -> Tensor:
        with torch.no_grad():
            outputs = self.model(**{name: values.to(self.model.device) for name, values in batch.items()})
        return outputs[output].float().cpu()


class TextClassifier(Predictor):
    """The class of a text or a pair of texts with all probabilities, its labels, or a number."""

    optional_columns: ClassVar[tuple[str, ...]] = ("text_pair",)

    def __call__(self, rows: list[Row]) -> list[Row]:
        return [self._read(logits) for logits in self.forward(self.collate(rows))]

    def collate(self, rows: list[Row]) -> Mapping[str, Any]:
        if getattr(self.model.config, "window_stride", None) is not None:
            return DataCollatorForWindows(self.tokenizer)([self._windows(row) for row in rows])
        pairs = [[row[name] for name in ("text", "text_pair") if row.get(name)] for row in rows]
        return DataCollatorWithPadding(self.tokenizer)([self.encode(*texts) for texts in pairs])

    def _windows(self, row: Row) -> Row:
        columns = {name: [row[name]] for name in ("text", "text_pair") if row.get(name)}
        stride = self.model.config.window_stride
        encoded = encode_classification(columns, self.tokenizer, self.max_length, window_stride=stride)
        return {name: values[0] for name, values in encoded.items()}

    def _read(self, logits: Tensor) -> Row:
        config = self.model.config
        if config.problem_type == "regression" or len(logits) == 1:
            return {"value": [_round(each) for each in logits] if len(logits) > 1 else _round(logits[0])}
        if config.problem_type == "multi_label_classification":
            probabilities = _by_label(config, logits.sigmoid())
            labels = [name for name, each in probabilities.items() if each > 0.5]
            return {"labels": labels, "probabilities": probabilities}
        probabilities = _by_label(config, logits.softmax(-1))
        return {"label": next(iter(probabilities)), "probabilities": probabilities}

    def format(self, prediction: Row) -> str:
        if "value" in prediction:
            return str(prediction["value"])
        probabilities = prediction["probabilities"]
        names = prediction.get("labels", list(probabilities)[:_MAX_LABELS])
        return ", ".join(f"{name} {probabilities[name]:.3f}" for name in names) or "no label"


class NumberPredictor(Predictor):
    """A number for a row of numbers: a line of numbers between spaces or commas, or a row of a table."""

    columns: ClassVar[tuple[str, ...]] = ("features",)

    def _split(self, line: str) -> Row:
        row = super()._split(line)
        if isinstance(row.get("features"), str):
            row["features"] = row["features"].replace(",", " ").split()
        return row

    def length(self, row: Row) -> int:
        return len(str(row.get("features", "")))

    def __call__(self, rows: list[Row]) -> list[Row]:
        inputs = torch.tensor([self._numbers(row["features"]) for row in rows])
        logits = self.forward({"input_values": inputs})
        return [{"value": _round(row[0]) if len(row) == 1 else [_round(each) for each in row]} for row in logits]

    def _numbers(self, features: Any) -> list[float]:
        size = self.model.config.input_size
        try:
            numbers = [float(each) for each in (features if isinstance(features, list) else [features])]
        except (TypeError, ValueError):
            numbers = []
        if len(numbers) != size or not all(map(math.isfinite, numbers)):
            raise ValueError(f"{features!r} is not a row of {size} finite numbers, the features of this model")
        return numbers

    def format(self, prediction: Row) -> str:
        return str(prediction["value"])


class DocumentClassifier(TextClassifier):
    """The class of a document, which is split into sentences unless `sentences` has them."""

    optional_columns = ("sentences",)
    alternative = "sentences"

    def collate(self, rows: list[Row]) -> Mapping[str, Any]:
        documents = [row.get("sentences") or cut_sentences(row["text"]) for row in rows]
        encoded = encode_documents({"sentences": documents}, self.tokenizer, self.max_length)
        return DataCollatorForDocuments(self.tokenizer)([{"input_ids": each} for each in encoded["input_ids"]])


class NextSentencePredictor(TextClassifier):
    """Whether a text follows another, with its probability."""

    columns: ClassVar[tuple[str, ...]] = ("text", "text_pair")
    optional_columns: ClassVar[tuple[str, ...]] = ()

    def __call__(self, rows: list[Row]) -> list[Row]:
        is_pretraining = type(self.model).__name__.endswith("ForPreTraining")
        logits = self.forward(self.collate(rows), "seq_relationship_logits" if is_pretraining else "logits")
        follows = logits.softmax(-1)[:, IS_NEXT]
        return [{"follows": each.item() > 0.5, "probability": _round(each)} for each in follows]

    def format(self, prediction: Row) -> str:
        return f"follows with probability {prediction['probability']}"


class ChoicePredictor(Predictor):
    """Which of several choices continues a context, with the probability of each."""

    columns = ("context", "choices")

    def _split(self, line: str) -> Row:
        row = super()._split(line)
        return row | {"choices": line.split("\t")[1:]} if isinstance(row.get("choices"), str) else row

    def __call__(self, rows: list[Row]) -> list[Row]:
        predictions: dict[int, Row] = {}
        counts = [len(row["choices"]) for row in rows]
        if min(counts) < 2:
            raise ValueError("a row needs at least two choices; repeat --choice, or separate them by tabs")
        for count in set(counts):
            same = [index for index, each in enumerate(counts) if each == count]
            probabilities = self._probabilities([rows[index] for index in same])
            predictions |= {
                index: self._read(rows[index], each) for index, each in zip(same, probabilities, strict=True)
            }
        return [predictions[index] for index in range(len(rows))]

    def _probabilities(self, rows: list[Row]) -> Tensor:
        columns = {name: [row[name] for row in rows] for name in self.columns}
        encoded = encode_multiple_choice(columns, self.tokenizer, self.max_length)
        flat = {name: [choice for choices in values for choice in choices] for name, values in encoded.items()}
        features = [dict(zip(flat, values, strict=True)) for values in zip(*flat.values(), strict=True)]
        batch = DataCollatorWithPadding(self.tokenizer)(features)  # (B * choices, T)
        batch = {name: values.unflatten(0, (len(rows), -1)) for name, values in batch.items()}
        return self.forward(batch).softmax(-1)  # (B, choices)

    def _read(self, row: Row, probabilities: Tensor) -> Row:
        best = int(probabilities.argmax())
        return {
            "choice": row["choices"][best],
            "number": best,
            "probabilities": [_round(each) for each in probabilities],
        }

    def format(self, prediction: Row) -> str:
        return f"{prediction['choice']} (probability {prediction['probabilities'][prediction['number']]})"


class QuestionAnswerer(Predictor):
    """The answer to a question and its place in the context, through the `edu-question-answering` pipeline."""

    columns = ("question", "context")

    def __init__(self, model: Any, tokenizer: Any, batch_size: int = 32):
        super().__init__(model, tokenizer, batch_size)
        self.pipeline = EduQuestionAnsweringPipeline(model, tokenizer=tokenizer, device=model.device)

    def __call__(self, rows: list[Row]) -> list[Row]:
        examples = [{name: row[name] for name in self.columns} for row in rows]
        answers = self.pipeline(examples, batch_size=self.batch_size)
        return [
            {"answer": each["answer"], "start": each["start"], "end": each["end"], "probability": _round(each["score"])}
            for each in answers
        ]

    def format(self, prediction: Row) -> str:
        place = f"characters {prediction['start']} to {prediction['end']}"
        return f"{prediction['answer']} ({place}, probability {prediction['probability']})"


class WordTagger(Predictor):
    """A tag for each word, and the spans that the tags mark.

    A text is split into words and punctuation marks; `tokens` are words of your own. Texts that are longer than the
    model's maximum are read in overlapping windows.
    """

    optional_columns = ("tokens",)
    alternative = "tokens"

    def __init__(self, model: Any, tokenizer: Any, batch_size: int = 32):
        super().__init__(model, tokenizer, batch_size)
        if not tokenizer.is_fast:
            raise ValueError(f"{type(tokenizer).__name__} does not know words; use a fast tokenizer (tokenizer.json)")

    def __call__(self, rows: list[Row]) -> list[Row]:
        words = [row.get("tokens") or _WORD.findall(row["text"]) for row in rows]
        tags: list[list[Any]] = [[None] * len(each) for each in words]
        windows = [(row, window) for row, each in enumerate(words) if each for window in self._windows(each)]
        for start in range(0, len(windows), self.batch_size):
            batch = windows[start : start + self.batch_size]
            probabilities = self._probabilities([window for _, window in batch])
            for (row, window), each in zip(batch, probabilities, strict=True):
                for word, position in window["first_tokens"].items():
                    tags[row][word] = tags[row][word] or each[position].max(-1)
        return [self._read(*each) for each in zip(rows, words, tags, strict=True)]

    def _windows(self, words: list[str]) -> Iterator[Row]:
        """Windows of a text with the position of the first token of each word, overlapping by a quarter."""
        options: dict[str, Any] = {"is_split_into_words": True, "return_overflowing_tokens": True, "verbose": False}
        if self.max_length is not None:
            options |= {"truncation": True, "max_length": self.max_length, "stride": self.max_length // 4}
        encoded = self.tokenizer([words], **options)
        names = [name for name in self.tokenizer.model_input_names if name in encoded]
        for number in range(len(encoded["input_ids"])):
            first: dict[int, int] = {}
            for position, (before, word) in enumerate(pairwise([None, *encoded.word_ids(number)])):
                if word is not None and word != before:
                    first.setdefault(word, position)
            yield {name: encoded[name][number] for name in names} | {"first_tokens": first}

    def _probabilities(self, windows: list[Row]) -> Tensor:
        names = [name for name in windows[0] if name != "first_tokens"]
        features = [{name: window[name] for name in names} for window in windows]
        return self.forward(DataCollatorForTokenClassification(self.tokenizer)(features)).softmax(-1)  # (B, T, tags)

    def _read(self, row: Row, words: list[str], best: list[Any]) -> Row:
        names = self.model.config.id2label
        # A word of characters that the tokenizer drops has no token, so it has no tag.
        tags = ["O" if each is None else names[int(each.indices)] for each in best]
        probabilities = [None if each is None else _round(each.values) for each in best]
        return {"tokens": words, "tags": tags, "probabilities": probabilities, "spans": _spans(row, words, tags)}

    def format(self, prediction: Row) -> str:
        return " ".join(f"{word}/{tag}" for word, tag in zip(prediction["tokens"], prediction["tags"], strict=True))


def _spans(row: Row, words: list[str], tags: list[str]) -> list[Row]:
    """What B- and I- tags mark: label, text, and its first and last character, or word where the row has `tokens`."""
    from seqeval.metrics.sequence_labeling import get_entities

    if not any(tag[:2] in ("B-", "I-") for tag in tags):
        return []
    places = None if row.get("tokens") else [match.span() for match in _WORD.finditer(row["text"])]
    spans = []
    for label, first, last in get_entities(tags):
        start, end = (first, last + 1) if places is None else (places[first][0], places[last][1])
        text = " ".join(words[first : last + 1]) if places is None else row["text"][start:end]
        spans.append({"label": label, "text": text, "start": start, "end": end})
    return spans


def _texts_of(row: Row) -> Iterator[str]:
    for value in row.values():
        yield from [value] if isinstance(value, str) else filter(lambda each: isinstance(each, str), value or [])


def _by_label(config: Any, probabilities: Tensor) -> dict[str, float]:
    """Each label and its probability, the most probable first."""
    order = probabilities.argsort(descending=True).tolist()
    return {config.id2label[number]: _round(probabilities[number]) for number in order}


def _round(value: Any) -> float:
    return round(float(value), 4)


def load_predictor(
    name: str,
    device: str | None = None,
    batch_size: int = 32,
    trust_remote_code: bool = False,
    dtype: str | None = None,
) -> Predictor:
    """Load a checkpoint as the predictor of its task; a head that was not saved would be random, so none is added."""
    torch_device = find_device(device)
    config = load_config(name, trust_remote_code)
    task = TASKS[_task_of(config)]
    if task.predictor is None:
        reason = "writes text" if task.writer else "has no trained head"
        raise ValueError(f"{name} holds {saved_class(config)}, which {reason}; use hf-edu {task.verb} {name} TEXT")
    model = load_as(getattr(transformers, task.auto_class), name, trust_remote_code).to(torch_device)
    model = set_precision(model, dtype)
    tokenizer = load_tokenizer(name, trust_remote_code) if reads_text(config) else None
    return predictor_of(model, tokenizer, batch_size)


def predictor_of(model: Any, tokenizer: Any, batch_size: int = 32) -> Predictor:
    """The predictor of a model whose task has one."""
    return TASKS[_task_of(model.config)].code("predictor")(model, tokenizer, batch_size)


def _task_of(config: Any) -> str:
    """The task of the saved head; a rung whose inputs are sentences classifies documents."""
    task = task_of_class(saved_class(config)) or "feature_extraction"
    return "documents" if task == "classification" and reads_documents(config.model_type) else task


def is_table(file: Path) -> bool:
    """Whether a file has columns, not lines of text."""
    return file.suffix in EXTENSIONS and file.suffix not in TEXTS


def table_rows(predictor: Predictor, file: Path, columns: Mapping[str, str]) -> Iterator[Row]:
    """The rows of a file with columns, of which only those that the predictor uses; labels are not needed."""
    settings: Row = {"source": None, "target": None, "config": None, "unit": "line", "header": None, "is_text": False}
    splits, _ = load_local(file, **settings, encoding="utf-8", options={"streaming": False, "cache_dir": None})
    [dataset] = splits.values()
    available = dataset.column_names
    known = {name: known_column(name, available) for name in (*predictor.columns, *predictor.optional_columns)}
    origin = {name: column for name, column in known.items() if column} | check_columns(available, columns)
    if not origin:
        first, names = predictor.columns[0], ", ".join(available)
        raise ValueError(f"{file.name} has the columns {names}; which one is {first}? --columns {first}={available[0]}")
    for row in dataset:
        yield {
            name: row[column] if isinstance(column, str) else join_columns(name, (row[each] for each in column))
            for name, column in origin.items()
        }


def predict_rows(
    predictor: Predictor, rows: Iterable[Row], is_interactive: bool = False
) -> Iterator[tuple[Row, Row | None]]:
    """Yield each row with its prediction, in order; a blank row has none."""
    yield from map_by_length(predictor, rows, predictor.batch_size, predictor.length, is_interactive)
