"""The exercises, one module for each lesson: whether an answer is right, and a hint for one that is not.

An answer is compared with what the models of the ladder compute, so that none stands here as a number.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any

EXERCISES: dict[str, tuple[Callable[[Any], bool], str]] = {}
for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    EXERCISES |= import_module(_module.name).EXERCISES
