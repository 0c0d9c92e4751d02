"""Rows of sentence pairs with `source`, `target` and, for scoring, gold links `sure` and `possible`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .links import reverse_links

_EXTENSIONS = (".txt", ".json", ".png", ".svg")


def has_gold_links(rows: Sequence[dict[str, Any]]) -> bool:
    return bool(rows) and {"sure", "possible"} <= set(rows[0])


def reverse_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same pairs for a model of the opposite direction."""
    gold = [{name: reverse_links(row[name]) for name in ("sure", "possible") if name in row} for row in rows]
    return [{"source": row["target"], "target": row["source"]} | links for row, links in zip(rows, gold, strict=True)]


def check_alignment_path(path: Path | None) -> None:
    """Raise an error for an unknown file extension, before the work and not after it."""
    if path is not None and path.suffix.lower() not in _EXTENSIONS:
        raise ValueError(f"{path} must end in one of {', '.join(_EXTENSIONS)}")


def save_alignments(alignments: Sequence[Any], rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write links (.txt), links and weights (.json) or a figure of the first pairs (.png, .svg)."""
    from ...plotting import save_figure
    from .pictures import draw_alignments, max_panels

    path.parent.mkdir(parents=True, exist_ok=True)
    suffix = path.suffix.lower()
    if suffix == ".txt":
        path.write_text("".join(f"{alignment.pharaoh()}\n" for alignment in alignments), encoding="utf-8")
    elif suffix == ".json":
        text = json.dumps([alignment.to_dict() for alignment in alignments], ensure_ascii=False)
        path.write_text(f"{text}\n", encoding="utf-8")
    else:
        count = max_panels(alignments)
        save_figure(draw_alignments(alignments[:count], rows[:count] if has_gold_links(rows) else None), path)
