"""Attention maps as one HTML file: no network, opens from disk, everything in it.

Text of the user's is data: it stands in one block of JSON, escaped, and the script sets it as text alone. Weights are
float32 in base64, so the numbers that the page shows are the model's. The page's policy allows the two blocks of style
and script by their hashes and forbids every request.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from .attention import AttentionMap, AttentionMaps

# What could end the block of JSON, or a line of script, becomes an escape of JSON's own.
ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
READINGS = {
    "encoder": "Each token of the source looks at all tokens of the source.",
    "decoder": "Each token that the decoder reads looks at itself and at those before it.",
    "cross": "A row is one written token: after the token before it was read, where the decoder looked to write it.",
    "self": "Each token looks at tokens of the same text.",
    "window": "Each token looks back at the states just before it; the first has none.",
}
ROW_NAMES = {"cross": "written, looks at", "decoder": "read, looks at"}
COLUMN_NAMES = {"cross": "source", "decoder": "read", "encoder": "source"}


def write_page(
    maps: AttentionMaps,
    path: str | os.PathLike,
    name: str | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> Path:
    """Write the page; `name`, `layer` and `head` say what it opens with."""
    path = Path(path)
    path.write_text(attention_page(maps, name, layer, head), encoding="utf-8")
    return path


def attention_page(
    maps: AttentionMaps, name: str | None = None, layer: int | None = None, head: int | None = None
) -> str:
    """The whole page as text."""
    names = list(maps)
    start = {"map": names.index(name or maps.main.name), "layer": layer or 0, "head": head or 0}
    style, script = source("page.css"), source("page.js")
    about = {"heading": f"Attention of {maps.model}", "texts": texts_of(maps), "start": start}
    parts = {
        "policy": policy(style, script),
        "style": style,
        "data": as_data(about | {"maps": [describe(each) for each in maps.values()]}),
        "arrays": "\n".join(block for each in maps.values() for block in arrays_of(each)),
        "script": script,
    }
    page = source("page.html")
    pieces = []
    # From left to right, each once: what is put in is never searched for further marks.
    for mark, part in parts.items():
        before, page = page.split(f"{{{{{mark}}}}}", 1)
        pieces += [before, part]
    return "".join([*pieces, page])


def source(name: str) -> str:
    return resources.files(__package__).joinpath("page", name).read_text(encoding="utf-8")


def policy(style: str, script: str) -> str:
    """Nothing may be loaded, sent or run but the two blocks that stand in the file."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    rules = ["default-src 'none'", f"style-src 'sha256-{hashes[0]}'", f"script-src 'sha256-{hashes[1]}'"]
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])


def texts_of(maps: AttentionMaps) -> list[list[str]]:
    """What was read and written, each with its name."""
    wrote = {"generated": "wrote", "forced": "was given to write", "read": ""}[maps.origin]
    texts = [["read", maps.text], ["and", maps.text_pair], [wrote, maps.target]]
    return [[name, text] for name, text in texts if text is not None]


def describe(each: AttentionMap) -> dict[str, Any]:
    weights = each.weights
    is_square = weights.shape[2] == weights.shape[3] > 1 and each.name != "cross"
    vectors = each.vectors
    return {
        "name": each.name,
        "title": each.title,
        "reading": READINGS[each.name],
        "rowName": ROW_NAMES.get(each.name, "looks at"),
        "columnName": COLUMN_NAMES.get(each.name, "looked at"),
        "rows": each.query_tokens,
        "columns": each.key_tokens,
        "rowWords": list(each.rows.words),
        "columnWords": list(each.columns.words),
        "shape": list(weights.shape),
        "isCausal": bool(is_square and not np.triu(weights, 1).any()),
        "size": 0 if vectors is None else vectors.queries.shape[-1],
        "scaling": [] if vectors is None else vectors.scaling.tolist(),
        "noProduct": "The scores of this attention are no product of queries and keys, or theirs are not known here.",
    }


def as_data(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).translate(ESCAPES)


def arrays_of(each: AttentionMap) -> list[str]:
    """One block a kind of array; the script decodes a block when it is first looked at."""
    arrays = {"weights": each.weights}
    if each.vectors is not None:
        arrays |= {"queries": each.vectors.queries, "keys": each.vectors.keys}
    return [block(f"{each.name}-{kind}", array) for kind, array in arrays.items()]


def block(name: str, array: np.ndarray) -> str:
    text = base64.b64encode(np.ascontiguousarray(array, dtype="<f4").tobytes()).decode()
    return f'<script type="text/plain" id="{name}">{text}</script>'
