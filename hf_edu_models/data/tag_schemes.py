"""Tag schemes of named entities: IOB1, BIOES, BILOU and IOE as BIO, which seqeval scores.

BIO (IOB2): B- starts an entity, I- continues it. IOB1: B- only where an entity follows another of its type. BIOES and
BILOU also mark the last word (E-, L-) and single words (S-, U-).
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from .columns import read_column
from .notes import note

SPAN_TAG = re.compile(r"O|[BIESLU]-.+")
_FIRST, _LAST = "BSU", "ESLU"


def scheme_of(sentences: list[list[str]]) -> str | None:
    """BIO, IOB1 or BIOES (also BILOU and IOE); None where the tags do not mark spans."""
    tags = {tag for sentence in sentences for tag in sentence}
    if tags <= {"O"} or not all(SPAN_TAG.fullmatch(tag) for tag in tags):
        return None
    if {tag[0] for tag in tags} & set(_LAST):
        return "BIOES"
    # Pairs of neighbours where an entity starts: IOB1 writes I- there, BIO writes B-.
    starts = {
        tag[0]
        for sentence in sentences
        for before, tag in pairwise(["O", *sentence])
        if tag != "O" and (before == "O" or before[2:] != tag[2:])
    }
    return "IOB1" if starts == {"I"} else "BIO"


def to_bio(tags: list[str]) -> list[str]:
    """The tags of a sentence, in any of the schemes, as BIO."""
    bio = []
    for before, tag in pairwise(["O", *tags]):
        is_first = tag[0] in _FIRST or before == "O" or before[2:] != tag[2:] or before[0] in _LAST
        bio.append(tag if tag == "O" else f"{'B' if is_first else 'I'}-{tag[2:]}")
    return bio


def convert_tags(corpus: dict[str, Any], name: str) -> dict[str, Any]:
    """All splits with `tags` as BIO where they are strings of another scheme."""
    first = next(iter(corpus.values()))
    inner = getattr((first.features or {}).get("tags"), "feature", None)
    if getattr(inner, "dtype", None) not in ("string", "large_string"):
        return corpus
    scheme = scheme_of([tags or [] for dataset in corpus.values() for tags in read_column(dataset, "tags")])
    if scheme not in ("IOB1", "BIOES"):
        return corpus
    note(f"{name}: tags are {scheme}; converted to BIO")
    return {split: dataset.map(_convert_batch, batched=True) for split, dataset in corpus.items()}


def _convert_batch(batch: dict[str, list]) -> dict[str, list]:
    return {"tags": [to_bio(tags) for tags in batch["tags"]]}
