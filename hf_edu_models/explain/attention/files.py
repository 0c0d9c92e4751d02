"""Attention maps as files, by file extension, and as the arguments of bertviz."""

from __future__ import annotations

import json
import os
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .maps import AttentionMap, AttentionMaps

_EXTENSIONS = (".html", ".png", ".svg", ".json", ".npz")


def check_attention_path(path: str | os.PathLike) -> Path:
    """Return the path, or raise an error before any work is done if its file extension is not supported."""
    path = Path(path)
    if path.suffix.lower() not in _EXTENSIONS:
        raise ValueError(f"{path} has an unknown file extension; choose one of {', '.join(_EXTENSIONS)}")
    return path


def save_attention(
    maps: AttentionMaps,
    path: str | os.PathLike,
    name: str | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> Path:
    """Write a page, a picture or the arrays, by the path's file extension.

    Args:
        name: The map that a picture shows and a page opens with; by default cross-attention, if there is one.
        layer, head: What a picture shows (by default all), and a page opens with; files of arrays have all.
    """
    path = check_attention_path(path)
    extension = path.suffix.lower()
    if name is not None and name not in maps:
        raise ValueError(f"{maps.model} has no map {name!r}; it has {', '.join(maps)}")
    chosen = maps.main if name is None else maps[name]
    chosen.head(layer or 0, head)  # raises an error if the layer or head does not exist
    path.parent.mkdir(parents=True, exist_ok=True)
    if extension == ".html":
        from .page import write_page

        write_page(maps, path, chosen.name, layer, head)
    elif extension == ".json":
        path.write_text(json.dumps(_to_json(maps), ensure_ascii=False) + "\n", encoding="utf-8")
    elif extension == ".npz":
        np.savez_compressed(path, **_to_arrays(maps))
    else:
        _save_picture(maps, path, chosen.name, layer, head)
    return path


def _save_picture(maps: AttentionMaps, path: Path, name: str, layer: int | None, head: int | None) -> None:
    """Save a picture, with one warning for all characters that no installed font has."""
    from ...plotting import save_figure
    from .pictures import draw_attention

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        save_figure(draw_attention(maps, name, layer, head), path)
    missing = set()
    for each in caught:
        if match := re.match(r"Glyph (\d+) ", str(each.message)):
            missing.add(chr(int(match[1])))
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    if missing:
        warnings.warn(
            f"no installed font has the characters {''.join(sorted(missing))}: install one, such as Noto Sans CJK, or "
            "save a .html page, which uses the browser's fonts",
            stacklevel=3,
        )


def _to_json(maps: AttentionMaps) -> dict[str, Any]:
    """Lists; weights are rounded to nine digits, more than float32 has."""
    about = {name: getattr(maps, name) for name in ("model", "text", "text_pair", "target", "origin")}
    parts = {
        name: {
            "shape": ["layers", "heads", "queries", "keys"],
            "query_tokens": each.query_tokens,
            "key_tokens": each.key_tokens,
            "query_words": list(each.rows.word_ids),
            "key_words": list(each.columns.word_ids),
            "weights": each.weights.astype(np.float64).round(9).tolist(),
        }
        for name, each in maps.items()
    }
    return about | {"maps": parts}


def _to_arrays(maps: AttentionMaps) -> dict[str, Any]:
    """`cross_weights`, `cross_query_tokens`, `cross_key_tokens` and, if known, `cross_queries` and `cross_keys`."""
    arrays = {}
    for name, each in maps.items():
        arrays[f"{name}_weights"] = each.weights
        arrays[f"{name}_query_tokens"] = np.array(each.query_tokens, dtype=np.str_)
        arrays[f"{name}_key_tokens"] = np.array(each.key_tokens, dtype=np.str_)
        if each.vectors is not None:
            arrays[f"{name}_queries"] = each.vectors.queries
            arrays[f"{name}_keys"] = each.vectors.keys
            arrays[f"{name}_scaling"] = each.vectors.scaling
    return arrays


def to_bertviz(maps: AttentionMaps) -> dict[str, Any]:
    """The arguments of bertviz's `head_view` and `model_view`: `head_view(**to_bertviz(maps))`.

    bertviz labels both kinds of decoder attention with the tokens that the decoder reads; our `cross` has the predicted
    tokens, one further on.
    """
    if maps.main.name in ("self", "window"):
        arguments = {"attention": _layer_tensors(maps.main), "tokens": maps.main.key_tokens}
        return arguments if maps.second_start is None else arguments | {"sentence_b_start": maps.second_start}
    arguments = {f"{name}_attention": _layer_tensors(each) for name, each in maps.items()}
    return arguments | {"encoder_tokens": maps["cross"].key_tokens, "decoder_tokens": list(maps.read.labels)}


def _layer_tensors(each: AttentionMap) -> tuple[Any, ...]:
    """One tensor (1, heads, queries, keys) for each layer."""
    import torch

    return tuple(torch.from_numpy(layer.copy())[None] for layer in each.weights)
