"""Checks of files and of their values: one sentence with the place and the remedy."""

from __future__ import annotations

import json
import math
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, getincrementaldecoder
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .columns import read_column

_TEXT_COLUMNS = ("text", "text_pair", "source", "target", "context", "question", "tokens", "sentences", "choices")
_BLOCK = 1 << 20


def check_file(file: Path, encoding: str, only_start: bool = False) -> None:
    """Raise an error for an empty file, for NUL bytes, which no text has, and for bytes of another encoding.

    Args:
        only_start: Check the first megabyte only, for a stream.
    """
    if file.stat().st_size == 0:
        raise ValueError(f"{file} is empty")
    decoder, line = getincrementaldecoder(encoding)(), 1
    with file.open("rb") as opened:
        while block := opened.read(_BLOCK):
            try:
                text = decoder.decode(block)
            except UnicodeDecodeError as problem:
                line += problem.object[: problem.start].count(b"\n")
                byte = f"0x{problem.object[problem.start]:02x}"
                guess = "utf-16" if block[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) else "latin-1"
                raise ValueError(
                    f"{file}, line {line}, is not {encoding} (byte {byte}); give the encoding of the file, such as "
                    f"--data_options encoding={guess} (in Python encoding={guess!r})"
                ) from None
            if "\0" in text:
                line += text.count("\n", 0, text.index("\0"))
                raise ValueError(
                    f"{file}, line {line}, has a NUL byte; remove it, or give the encoding of the file, such as "
                    "--data_options encoding=utf-16"
                )
            if only_start:
                return
            line += text.count("\n")


def causes(error: BaseException) -> list[BaseException]:
    """An error, its cause, the cause of that, and so on; versions of datasets wrap them differently."""
    chain, following = [error], error.__cause__ or error.__context__
    while following is not None and following not in chain:
        chain.append(following)
        following = following.__cause__ or following.__context__
    return chain


def broken_json(file: Path, encoding: str) -> str | None:
    """Where and how a .json or .jsonl file is not JSON; None if it is."""
    text = file.read_text(encoding)
    lines = [text] if file.suffix == ".json" and text.lstrip()[:1] == "[" else text.split("\n")
    for number, line in enumerate(lines):
        try:
            json.loads(line or "null")
        except json.JSONDecodeError as problem:
            return f"{file.name}, line {number + problem.lineno}: {problem.msg}"
    return None


def check_texts(corpus: Mapping[str, Any], name_of_data: str = "the data") -> None:
    """Raise an error for a column of texts that holds something else, or nothing in some rows, or blanks in all."""
    import datasets

    for split, dataset in corpus.items():
        for name in (name for name in _TEXT_COLUMNS if name in (dataset.features or {})):
            feature = dataset.features[name]
            inner = getattr(feature, "feature", feature)
            dtype = inner.dtype if isinstance(inner, datasets.Value) else type(inner).__name__
            if dtype not in ("string", "large_string"):
                raise ValueError(_not_text(name, inner, dtype))
            may_be_empty = name == "text" and "label" not in dataset.features  # a line of running text
            if not may_be_empty and hasattr(dataset, "data") and dataset.data.column(name).null_count:
                check_filled(split, name, read_column(dataset, name))
            if name == "text" and hasattr(dataset, "data") and not _has_text(dataset):
                raise ValueError(f"{name_of_data} has no text: all {len(dataset)} rows of {split} are blank")


def check_numbers(corpus: Mapping[str, Any], columns: Sequence[str]) -> None:
    """Raise an error for a column of real numbers, or of lists of them, where a row has none, NaN or another number."""
    size = None
    for split, dataset in corpus.items():
        for name in (name for name in columns if name in dataset.column_names):
            for row, value in enumerate(read_column(dataset, name)):
                numbers = value if isinstance(value, list) else [value]
                is_number = all(isinstance(each, int | float) and math.isfinite(each) for each in numbers)
                if not (is_number and numbers):
                    raise ValueError(
                        f"{name!r} is {value!r} in row {row} of {split} (from 0), but finite numbers are needed; fill "
                        "it in, or remove the row"
                    )
                size = len(numbers) if size is None and isinstance(value, list) else size
                if isinstance(value, list) and len(numbers) != size:
                    raise ValueError(f"{name!r} has {len(numbers)} numbers in row {row} of {split}, but {size} before")


def _has_text(dataset: Any) -> bool:
    """Whether some row has text; the first rows nearly always answer."""
    texts = (text for batch in dataset.select_columns("text").iter(1_000) for text in batch["text"])
    return any(text and not text.isspace() for text in texts)


def _not_text(name: str, feature: Any, dtype: str) -> str:
    if isinstance(feature, dict) and feature:
        return (
            f"the column {name!r} is nested ({', '.join(feature)}); choose one of its fields with --columns "
            f"{name}=COLUMN.{next(iter(feature))}"
        )
    return (
        f"the column {name!r} holds {'nothing' if dtype == 'null' else dtype}, not text; choose another with --columns "
        f"{name}=NAME, or write its values as text (in .jsonl with quotes)"
    )


def check_filled(split: str, column: str, values: list) -> None:
    """Raise an error where some rows have a value and others have none."""
    empty = [row for row, value in enumerate(values) if value is None]
    if 0 < len(empty) < len(values):
        raise ValueError(
            f"{column!r} is empty in {len(empty)} of {len(values)} rows of {split}, first in row {empty[0]} (from 0); "
            "fill them in, or remove the rows"
        )
