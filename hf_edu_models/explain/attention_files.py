"""Attention maps in files, the kind told by the ending, and in the form that bertviz reads."""

from __future__ import annotations

import json
import os
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .attention import AttentionMap, AttentionMaps

ENDINGS = (".html", ".png", ".svg", ".json", ".npz")


def check_ending(path: str | os.PathLike) -> Path:
    """The path, if its ending says what to write: asked before the work, not after it."""
    path = Path(path)
    if path.suffix.lower() not in ENDINGS:
        raise ValueError(f"{path} has an ending that says no kind of file; choose one of {', '.join(ENDINGS)}")
    return path


def save_attention(
    maps: AttentionMaps,
    path: str | os.PathLike,
    name: str | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> Path:
    """Write a page, a picture or the arrays, by the path's ending.

    Args:
        name: which map a picture shows and a page opens with; default the cross-attention, where there is one.
        layer, head: which ones a picture shows (default all), and a page opens with; files of arrays have all.
    """
    path = check_ending(path)
    kind = path.suffix.lower()
    shown = maps.main if name is None else named(maps, name)
    check_choice(shown, layer, head)
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == ".html":
        from .attention_page import write_page

        return write_page(maps, path, shown.name, layer, head)
    if kind == ".json":
        path.write_text(json.dumps(as_json(maps), ensure_ascii=False) + "\n", encoding="utf-8")
        return path
    if kind == ".npz":
        np.savez_compressed(path, **as_arrays(maps))
        return path
    return save_picture(maps, path, shown.name, layer, head)


def save_picture(maps: AttentionMaps, path: Path, name: str, layer: int | None, head: int | None) -> Path:
    """A picture; characters that no installed font has are named once, and not in a line for each place."""
    from .attention_pictures import draw_attention
    from .figure_style import save_figure

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        save_figure(draw_attention(maps, name, layer, head), path)
    missing = [re.match(r"Glyph (\d+) ", str(each.message)) for each in caught]
    for each, match in zip(caught, missing, strict=True):
        if not match:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    characters = "".join(sorted({chr(int(match[1])) for match in missing if match}))
    if characters:
        warnings.warn(
            f"no font here has the characters {characters}: install one, such as Noto Sans CJK, or make a page, "
            "which takes the browser's fonts",
            stacklevel=2,
        )
    return path


def named(maps: AttentionMaps, name: str) -> AttentionMap:
    if name not in maps:
        raise ValueError(f"{maps.model} has no map {name!r}; it has {', '.join(maps)}")
    return maps[name]


def check_choice(shown: AttentionMap, layer: int | None, head: int | None) -> None:
    shown.head(0 if layer is None else layer, head)


def as_json(maps: AttentionMaps) -> dict[str, Any]:
    """Plain lists; weights rounded to nine digits, more than float32 has."""
    about = {"model": maps.model, "text": maps.text, "text_pair": maps.text_pair}
    about |= {"target": maps.target, "origin": maps.origin}
    parts = {
        name: {
            "shape": ["layers", "heads", "queries", "keys"],
            "query_tokens": each.query_tokens,
            "key_tokens": each.key_tokens,
            "query_words": list(each.rows.words),
            "key_words": list(each.columns.words),
            "weights": each.weights.astype(np.float64).round(9).tolist(),
        }
        for name, each in maps.items()
    }
    return about | {"maps": parts}


def as_arrays(maps: AttentionMaps) -> dict[str, np.ndarray]:
    """`cross_weights`, `cross_query_tokens`, `cross_key_tokens` and, where known, `cross_queries` and `cross_keys`."""
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
    """What bertviz's `head_view` and `model_view` take: `head_view(**to_bertviz(maps))`.

    bertviz has one list of decoder tokens for both kinds of decoder attention, those read; ours in `cross` are those
    written, one further on.
    """
    if maps.main.name in ("self", "window"):
        whole = {"attention": layers_of(maps.main), "tokens": maps.main.key_tokens}
        return whole if maps.second_start is None else whole | {"sentence_b_start": maps.second_start}
    arguments: dict[str, Any] = {f"{name}_attention": layers_of(each) for name, each in maps.items()}
    arguments["encoder_tokens"] = maps["cross"].key_tokens
    arguments["decoder_tokens"] = list(maps.read.labels)
    return arguments


def layers_of(each: AttentionMap) -> tuple[Any, ...]:
    """One tensor (1, heads, queries, keys) a layer."""
    import torch

    return tuple(torch.from_numpy(layer.copy())[None] for layer in each.weights)
