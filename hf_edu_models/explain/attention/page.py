"""Attention maps as one HTML file that opens from disk and needs no network.

User text is data: it is escaped in one block of JSON, and the script only ever sets it as text. Weights are float32 in
base64, so the page shows the model's own numbers. The content security policy allows the page's own style and script,
by their hashes, and forbids every request.
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

from .maps import AttentionMap, AttentionMaps

# Characters that could end the JSON block or a line of script are escaped as JSON does it.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
_DESCRIPTIONS = {
    "encoder": "Each source token attends to all source tokens.",
    "decoder": "Each token that the decoder reads attends to itself and to the tokens before it.",
    "cross": "Each row is a target token: the attention over the source while the decoder predicts it.",
    "self": "Each token attends to tokens of the same text.",
    "window": "Each token attends to the states just before it; the first token has none.",
}
_SIDES = {
    "encoder": ("source (queries)", "source (keys)"),
    "decoder": ("decoder input (queries)", "decoder input (keys)"),
    "cross": ("target (queries)", "source (keys)"),
}
_TARGET_NAMES = {"generated": "generated", "forced": "target", "read": ""}


def write_page(
    maps: AttentionMaps,
    path: str | os.PathLike,
    name: str | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> Path:
    """Write the page; `name`, `layer` and `head` choose what it opens with."""
    start = {"map": list(maps).index(name or maps.main.name), "layer": layer or 0, "head": head or 0}
    texts = {"input": maps.text, "second input": maps.text_pair, _TARGET_NAMES[maps.origin]: maps.target}
    data = {
        "heading": f"Attention of {maps.model}",
        "texts": [[label, text] for label, text in texts.items() if text is not None],
        "start": start,
        "maps": [_describe(each) for each in maps.values()],
    }
    style, script = _asset("page.css"), _asset("page.js")
    parts = {
        "policy": _policy(style, script),
        "style": style,
        "data": json.dumps(data, ensure_ascii=False).translate(_ESCAPES),
        "arrays": "\n".join(block for each in maps.values() for block in _array_blocks(each)),
        "script": script,
    }
    path = Path(path)
    path.write_text(_fill(_asset("page.html"), parts), encoding="utf-8")
    return path


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _fill(template: str, parts: dict[str, str]) -> str:
    """Replace each `{{name}}` once, from left to right: inserted text is never searched for placeholders."""
    filled = []
    for name, part in parts.items():
        before, template = template.split(f"{{{{{name}}}}}", 1)
        filled += [before, part]
    return "".join([*filled, template])


def _policy(style: str, script: str) -> str:
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    rules = ["default-src 'none'", f"style-src 'sha256-{hashes[0]}'", f"script-src 'sha256-{hashes[1]}'"]
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])


def _describe(each: AttentionMap) -> dict[str, Any]:
    weights, vectors = each.weights, each.vectors
    is_square = weights.shape[2] == weights.shape[3] > 1 and each.name != "cross"
    row_name, column_name = _SIDES.get(each.name, ("queries", "keys"))
    return {
        "name": each.name,
        "title": each.title,
        "description": _DESCRIPTIONS[each.name],
        "rowName": row_name,
        "columnName": column_name,
        "rows": each.query_tokens,
        "columns": each.key_tokens,
        "rowWordIds": list(each.rows.word_ids),
        "columnWordIds": list(each.columns.word_ids),
        "shape": list(weights.shape),
        "isCausal": bool(is_square and not np.triu(weights, 1).any()),
        "size": 0 if vectors is None else vectors.queries.shape[-1],
        "scaling": [] if vectors is None else vectors.scaling.tolist(),
        "noProduct": "These scores are not dot products of queries and keys, or the model's projections are not known.",
    }


def _array_blocks(each: AttentionMap) -> list[str]:
    """One script block for each array; the page decodes a block when it first needs it."""
    arrays = {"weights": each.weights}
    if each.vectors is not None:
        arrays |= {"queries": each.vectors.queries, "keys": each.vectors.keys}
    encoded = {kind: base64.b64encode(array.astype("<f4").tobytes()).decode() for kind, array in arrays.items()}
    return [f'<script type="text/plain" id="{each.name}-{kind}">{text}</script>' for kind, text in encoded.items()]
