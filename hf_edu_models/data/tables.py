"""Tables as text (.csv, .tsv, .txt with tabs): the separator, quotes, and names where there is no header."""

from __future__ import annotations

import csv
import re
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from .columns import KNOWN, language_codes
from .notes import note

_ROWS_TO_SNIFF = 1_000
_ROWS_PER_CLASS = 4  # a column with fewer rows per distinct value holds texts, not classes
_ROWS_PER_NAME = 20  # the name of a column may be a value of it too, but not more often than this
_NAME = re.compile(r"[^\W\d][\w :#/()-]{0,40}")


def table_options(file: Path, header: bool | None, encoding: str) -> dict[str, Any]:
    """Options of the csv builder of `datasets` for a file; `header=None` finds out whether there is one."""
    with file.open(encoding=encoding, newline="") as opened:
        separator = _separator(list(islice(opened, _ROWS_TO_SNIFF))) if file.suffix == ".csv" else "\t"
        opened.seek(0)
        quoting: Any = csv.QUOTE_NONE if separator == "\t" and _has_stray_quotes(opened) else csv.QUOTE_MINIMAL
        opened.seek(0)
        try:
            rows = _first_rows(file, csv.reader(opened, delimiter=separator, quoting=quoting))
        except csv.Error:  # a cell of more than 131,072 characters
            return {"sep": separator}
    # Only an empty cell is a missing value: "null" and "NA" are words.
    options: dict[str, Any] = {"sep": separator, "quoting": quoting, "keep_default_na": False, "na_values": [""]}
    if header or not rows or (header is None and _has_header(rows)):
        names = [cell for cell in rows[0] if cell] if rows else []
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"{file}, line 1, has two columns {twice!r}; rename one, or use header=false")
        return options
    names = _guess_names(rows)
    note(
        f"{file.name} has no header: column 0 is {names[0]!r}, the last {names[-1]!r}; --columns chooses others by "
        "number, --data_options header=true if the first line is a header"
    )
    return options | {"header": None, "names": names}


def _first_rows(file: Path, reader: Any) -> list[list[str]]:
    rows: list[list[str]] = []
    for row in islice(reader, _ROWS_TO_SNIFF):
        rows += [row] if row else []
        if len(row) > len(rows[0] if rows else ()):  # pandas would take the first cell for an index
            raise ValueError(
                f"{file}, line {reader.line_num}, has {len(row)} cells and the first {len(rows[0])}; put quotes around "
                f"cells that contain {reader.dialect.delimiter!r}"
            )
    return rows


def is_table(file: Path, encoding: str) -> bool:
    """Whether all lines of a text file have the same number of tabs, and at least one."""
    with file.open(encoding=encoding, newline="\n") as opened:
        counts = {line.count("\t") for line in islice(opened, _ROWS_TO_SNIFF)}
    return len(counts) == 1 and counts != {0}


def _separator(lines: list[str]) -> str:
    """The separator of a .csv file: Excel writes semicolons where the comma is the decimal separator."""
    for separator in ",;\t":
        with suppress(csv.Error):
            widths = {len(row) for row in csv.reader(lines, delimiter=separator) if row}
            if len(widths) == 1 and widths != {1}:
                return separator
    return ","


def _has_stray_quotes(lines: Any) -> bool:
    """Whether quotes belong to the text: some cell opens one without closing it, and yet all lines are complete."""
    widths, is_stray = set(), False
    for line in lines:
        cells = line.rstrip("\r\n").split("\t")
        widths.add(len(cells))
        is_stray = is_stray or any(cell[:1] == '"' and (len(cell) == 1 or cell[-1] != '"') for cell in cells)
    return is_stray and len(widths) == 1


def _has_header(rows: list[list[str]]) -> bool:
    """Whether the first row has names: known ones, or short ones that are not values of their columns below."""
    names = [cell.strip().lower() for cell in rows[0]]
    for name, *cells in zip(names, *rows[1:], strict=False):
        if sum(cell.strip().lower() == name for cell in cells) * _ROWS_PER_NAME > len(cells):
            return False
    known = {"split"} | {name for names in KNOWN.values() for name in names}
    if known & set(names) or len(language_codes(names)) == len(names):
        return True
    return all(_NAME.fullmatch(name) and name.count(" ") < 3 for name in names[not names[0] :])


def _guess_names(rows: list[list[str]]) -> list[str]:
    """Text and label or source and target for two columns, also with Anki's third; else numbers."""
    width = len(rows[0])
    is_anki = width == 3 and all("attribution" in row[-1].lower() for row in rows)
    if width != 2 and not is_anki:
        return [str(number) for number in range(width)]
    classes = [len({row[side] for row in rows if len(row) > side}) * _ROWS_PER_CLASS <= len(rows) for side in (0, 1)]
    if sum(classes) == 1 and not is_anki:
        return ["label", "text"] if classes[0] else ["text", "label"]
    return ["source", "target", "attribution"][:width]
