"""Schedules of teacher forcing: how likely a decoder reads the reference's token, not its own, at a step of training.

Scheduled sampling (Bengio et al. 2015, arXiv:1506.03099, Section 2.4) begins near 1 and ends lower, so that the model
meets its own errors before it is used. The constants of the paper's curves are such that the last step has `end`.
"""

from __future__ import annotations

import math
from collections.abc import Callable


def constant(step: int, last: int, end: float) -> float:
    """epsilon_i = end: always sampling is end 0."""
    return end


def linear(step: int, last: int, end: float) -> float:
    """epsilon_i = max(end, 1 - c i)."""
    slope = (1 - end) / max(last, 1)  # c
    return max(end, 1 - slope * step)


def exponential(step: int, last: int, end: float) -> float:
    """epsilon_i = k^i, k < 1."""
    return end ** (step / max(last, 1))


def inverse_sigmoid(step: int, last: int, end: float) -> float:
    """epsilon_i = k / (k + exp(i / k))."""
    k = _solve_inverse_sigmoid(last, end)
    return 1 / (1 + math.exp(min(step / k - math.log(k), 700.0)))


def _solve_inverse_sigmoid(last: int, end: float) -> float:
    """The k with k / (k + exp(last / k)) = end, by bisection: the left side rises with k."""
    odds = math.log((1 - end) / end)
    low, high = math.log(1e-3), math.log(1e12)
    for _ in range(100):
        middle = (low + high) / 2
        is_below = last / math.exp(middle) - middle > odds
        low, high = (middle, high) if is_below else (low, middle)
    return math.exp(low)


SCHEDULES: dict[str, Callable[[int, int, float], float]] = {
    "constant": constant,
    "linear": linear,
    "exponential": exponential,
    "inverse_sigmoid": inverse_sigmoid,
}


def check_schedule(name: str, end: float) -> None:
    if name not in SCHEDULES:
        raise ValueError(f"teacher_forcing must be one of {', '.join(SCHEDULES)}; got {name!r}")
    if not 0 <= end <= 1:
        raise ValueError(f"teacher_forcing_end must be from 0 to 1, got {end}")
    if (name == "exponential" and end == 0) or (name == "inverse_sigmoid" and end in (0, 1)):
        raise ValueError(f"teacher_forcing {name} never reaches {end:g}; give a --teacher_forcing_end between 0 and 1")
