"""Formats that `datasets` does not read: CoNLL, SQuAD's nested JSON, TMX and folders of documents."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from .cache import cache_folder, code_version, fingerprint
from .map_columns import fixed_features
from .notes import note
from .tag_schemes import SPAN_TAG

CONLL_EXTENSIONS = (".conll", ".conllu", ".bio", ".iob", ".iob2")
_CONLLU = ("id", "tokens", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_TAG = re.compile(SPAN_TAG.pattern + r"|[A-Z][A-Z0-9$+-]*|[^\w\s]+|_")
_LINES_TO_SNIFF = 1_000
_SQUAD = re.compile(r'"data"\s*:\s*\[\s*\{[^\[{]*"paragraphs"\s*:\s*\[')
_TMX_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


def _read_conll(file: str, encoding: str) -> Iterator[dict[str, list[str]]]:
    """One row per sentence, one list per column: `tokens` first and `tags` last, or the ten of CoNLL-U."""
    lines = _lines(file, encoding)
    width, is_universal = _layout(lines)
    if width == 0:
        raise ValueError(f"{file} has no rows: all of its lines are blank")
    if width < 2:
        raise ValueError(f"{file} has one column; a line of a CoNLL file holds a word and its tag")
    names = _CONLLU if is_universal else ("tokens", *map(str, range(1, width - 1)), "tags")
    sentence: list[list[str]] = []
    for number, line in enumerate([*lines, ""], start=1):
        cells = _cells(line)
        if not cells or cells[0] == "-DOCSTART-":
            if sentence:
                yield {name: list(column) for name, column in zip(names, zip(*sentence, strict=True), strict=True)}
            sentence = []
        elif line.startswith("#") and (is_universal or len(cells) != width):
            continue  # a comment
        elif len(cells) != width:
            raise ValueError(f"{file}, line {number}, has {len(cells)} columns and the first line {width}; fix it")
        elif not is_universal or cells[0].isdigit():  # 1-2 is a contraction, 1.1 an elided word
            sentence.append(cells)


def is_conll(file: Path, encoding: str) -> bool:
    """Whether a text file has columns of words and tags, not sentences."""
    lines = _lines(str(file), encoding, _LINES_TO_SNIFF)
    rows = [_cells(line) for line in lines if not line.startswith(("#", "-DOCSTART-"))]
    words = [row for row in rows if row]
    if len({len(row) for row in words}) != 1 or len(words[0]) < 2 or any(" " in row[0] for row in words):
        return False
    is_tabular = all("\t" in line for line in lines if line.strip() and line[0] not in "#-")
    has_sentences = [] in rows[: rows.index(words[-1])]
    tags = [row[-1] for row in words]
    if has_sentences and (is_tabular or all(_TAG.fullmatch(tag) for tag in tags)):
        return True
    return all(SPAN_TAG.fullmatch(tag) for tag in tags) and set(tags) != {"O"}


def _read_squad(file: str, encoding: str) -> Iterator[dict[str, Any]]:
    """One row per question of SQuAD 1.1 or 2.0; questions without an answer (`is_impossible`) have none."""
    with open(file, encoding=encoding) as opened:
        try:
            articles = json.load(opened)["data"]
        except json.JSONDecodeError as problem:
            raise ValueError(f"{file} cannot be read: {problem}; is it truncated?") from None
    for paragraph in (each for article in articles for each in article["paragraphs"]):
        for question in paragraph["qas"]:
            answers = [] if question.get("is_impossible") else question.get("answers", [])
            yield {
                "id": str(question["id"]),
                "context": paragraph["context"],
                "question": question["question"],
                "answers": {name: [answer[name] for answer in answers] for name in ("text", "answer_start")},
            }


def is_squad(file: Path, encoding: str) -> bool:
    """Whether a JSON file has the paragraphs of articles, as SQuAD is published."""
    with file.open(encoding=encoding) as opened:
        return bool(_SQUAD.search(opened.read(10_000)))


def _read_tmx(file: str, encoding: str) -> Iterator[dict[str, str]]:
    """One row per translation unit, one column per language; units that lack a language are left out."""
    from xml.etree import ElementTree
    from xml.parsers.expat import ExpatError

    units = []
    try:
        _reject_entities(file)
        for _, element in ElementTree.iterparse(file):
            if element.tag == "tu":
                variants = element.iter("tuv")
                texts = {str(each.get(_TMX_LANGUAGE) or each.get("lang")): each.find("seg") for each in variants}
                units.append({_language(name): _text(seg) for name, seg in texts.items() if seg is not None})
                element.clear()
    except (ElementTree.ParseError, ExpatError) as problem:
        raise ValueError(f"{file} cannot be read: {problem}; is it truncated?") from None
    languages = list(dict.fromkeys(name for unit in units for name in unit))
    complete = [unit for unit in units if len(unit) == len(languages)]
    if len(complete) < len(units):
        lacking = f"{len(units) - len(complete)} of {len(units)} units"
        note(f"{Path(file).name}: {lacking} lack one of {', '.join(languages)}, and are left out")
    yield from ({name: unit[name] for name in languages} for unit in complete)


def _read_documents(file: str, encoding: str) -> Iterator[dict[str, str]]:
    """One row per line, with the name of the file as its document."""
    yield from ({"text": line, "document": file} for line in _lines(file, encoding))


def _language(code: str) -> str:
    language, dash, region = code.replace("_", "-").partition("-")
    return language.lower() + dash + region


def _text(segment: Any) -> str:
    """The text of a segment without the codes of its formatting, which are in elements of their own."""
    parts = [segment.text or ""]
    for child in segment:
        parts += [_text(child) if child.tag in ("hi", "mrk") else "", child.tail or ""]
    return "".join(parts)


def _reject_entities(file: str) -> None:
    """Raise an error for XML that declares entities: they can expand to any size."""
    from xml.parsers import expat

    class Root(Exception):
        """The root element is reached; entities are declared before it."""

    def stop(*_: Any) -> None:
        raise Root

    def reject(name: str, *_: Any) -> None:
        raise ValueError(f"{file} declares the entity {name!r}; write the text itself instead")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EntityDeclHandler = stop, reject
    with open(file, "rb") as opened, suppress(Root):
        parser.ParseFile(opened)


def _layout(lines: list[str]) -> tuple[int, bool]:
    """The number of columns, and whether they are those of CoNLL-U, whose first column counts words."""
    first = next((_cells(line) for line in lines if line.strip() and line[0] != "#" and line[:3] != "-DO"), [])
    return len(first), len(first) == len(_CONLLU) and first[0][0].isdigit()


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("\t")] if "\t" in line.strip() else line.split()


def _lines(file: str, encoding: str, limit: int | None = None) -> list[str]:
    with open(file, encoding=encoding, newline="\n") as opened:
        return [line.rstrip("\r\n") for _, line in zip(range(limit or 2**63), opened, strict=False)]


READERS: dict[str, Callable[[str, str], Iterator[dict[str, Any]]]] = {
    "conll": _read_conll,
    "squad": _read_squad,
    "tmx": _read_tmx,
    "documents": _read_documents,
}


def read_files(kind: str, files: list[Path], encoding: str, cache_dir: str | None) -> Any:
    """The rows of files of one kind as a dataset, cached by their content."""
    import datasets

    key = fingerprint([_digest(file) for file in files], code_version(__name__), encoding)
    arguments = {"kind": kind, "files": [str(file) for file in files], "encoding": encoding, "key": key}
    features = None
    if kind == "squad":  # the first answers may all be empty
        texts = dict.fromkeys(("id", "context", "question"), datasets.Value("string"))
        features = datasets.Features(texts | {"answers": fixed_features()["answers"]})
    folder = str(cache_folder(cache_dir) / "files")
    try:
        return datasets.Dataset.from_generator(_rows, features, gen_kwargs=arguments, cache_dir=folder)
    except datasets.exceptions.DatasetGenerationError as problem:
        raise problem.__cause__ or problem from None


def _rows(kind: str, files: list[str], encoding: str, key: str) -> Iterator[dict[str, Any]]:
    for file in files:
        rows = READERS[kind](file, encoding)
        first = next(rows, None)
        if first is None:
            raise ValueError(f"{file} has no rows")
        yield first
        yield from rows


def _digest(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while block := opened.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
