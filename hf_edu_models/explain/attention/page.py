"""Attention maps as one HTML file that opens from disk and needs no network.

User text is data: it is escaped in one block of JSON, and the script only ever sets it as text. Weights are float32 in
base64, so the page shows the model's own numbers. The content security policy allows the page's own style and script,
by their hashes, and forbids every request.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from ...pages.document import data_block, json_block, package_text, write_document
from ...pages.modules import join_modules
from .maps import AttentionMap, AttentionMaps

_ASSETS = "explain/attention/assets"
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
        "heading": maps.text,
        "model": maps.model,
        "texts": [[label, text] for label, text in texts.items() if text is not None],
        "start": start,
        "maps": [_describe(each) for each in maps.values()],
    }
    style = package_text("pages/assets/base.css") + package_text(f"{_ASSETS}/page.css")
    return write_document(
        path,
        package_text(f"{_ASSETS}/page.html"),
        style,
        join_modules(f"{_ASSETS}/page.js"),
        data=json_block(data),
        arrays="\n".join(block for each in maps.values() for block in _array_blocks(each)),
    )


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
    }


def _array_blocks(each: AttentionMap) -> list[str]:
    """One script block for each array; the page decodes a block when it first needs it."""
    arrays = {"weights": each.weights}
    if each.vectors is not None:
        arrays |= {"queries": each.vectors.queries, "keys": each.vectors.keys}
    return [data_block(f"{each.name}-{kind}", array.astype("<f4").tobytes()) for kind, array in arrays.items()]
