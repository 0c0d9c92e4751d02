"""One module for each lesson: its exercises (whether an answer is right, a hint for one that is not) and its quiz.

An answer is compared with what the models of the ladder compute, so that none stands here as a number.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ..questions import Question

EXERCISES: dict[str, tuple[Callable[[Any], bool], str]] = {}
QUIZZES: dict[str, tuple[Question, ...]] = {}  # by the name of the lesson
for _found in pkgutil.iter_modules(__path__):
    _module = import_module(f"{__name__}.{_found.name}")
    EXERCISES |= _module.EXERCISES
    QUIZZES[_found.name] = getattr(_module, "QUIZ", ())
