"""Load models and corpora for a verb."""

from __future__ import annotations

from typing import Any

from rich.console import Console


def read_model(name: str, trust_remote_code: bool) -> tuple[Any, Any]:
    """Load a model and its tokenizer while a spinner shows."""
    with Console().status(f"loading {name}"):
        from ..checkpoints import load_model

        return load_model(name, trust_remote_code)


def read_corpus(name: str, **options: Any) -> Any:
    """Load a corpus; an option that it does not take is a user's mistake, a ValueError."""
    from ..data import load_corpus

    try:
        return load_corpus(name, **options)
    except TypeError as error:
        raise ValueError(str(error)) from None
