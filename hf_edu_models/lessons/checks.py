"""Check the answer to an exercise."""

from __future__ import annotations

from typing import Any

import torch

from .exercises import EXERCISES


def check(exercise: str, answer: Any) -> bool | None:
    """Print whether the answer to an exercise is right, with a hint if it is not; None if there is no answer yet."""
    if exercise not in EXERCISES:
        raise ValueError(f"there is no exercise {exercise!r}; choose one of {', '.join(EXERCISES)}")
    if answer is ...:
        print(f"{exercise}: replace the ... by your answer")
        return None
    is_correct, hint = EXERCISES[exercise]
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            found = bool(is_correct(answer))
    except Exception as error:  # the answer is the reader's code, and may raise anything
        print(f"{exercise}: wrong, it raises {type(error).__name__}: {error}")
        return False
    print(f"{exercise}: right" if found else f"{exercise}: wrong. {hint}")
    return found
