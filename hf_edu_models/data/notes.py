"""One-line notes on stderr about what `load_corpus` decided on its own."""

from __future__ import annotations

import os
import sys

_printed: set[str] = set()


def note(text: str) -> None:
    """Print a line to stderr, once, and in the first process only."""
    if text not in _printed and os.environ.get("RANK", "0") == "0":
        _printed.add(text)
        print(f"note: {text}", file=sys.stderr, flush=True)
