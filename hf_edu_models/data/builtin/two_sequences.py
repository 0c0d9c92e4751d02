"""Built-in corpus `two_sequences`: noise and signal on one input line (Hochreiter & Schmidhuber 1997, Section 5.3).

The first `signal` numbers are 1 in one class and -1 in the other, all later ones are noise of variance 0.2 (Task 3a,
after Bengio et al. 1994). In Task 3b the signal has the same noise, too; in Task 3c the targets have noise of variance
0.1.

Shapes: N sequences, T steps.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .long_time_lags import Sequences, deal_rows

_TARGETS = {"a": (1.0, 0.0), "b": (1.0, 0.0), "c": (0.2, 0.8)}  # of the first class and of the second
_INPUT_NOISE, _TARGET_NOISE = 0.2**0.5, 0.1**0.5  # standard deviations


def sample_two_sequences(
    rng: np.random.Generator, count: int, variant: str = "a", length: int = 100, signal: int = 3
) -> Sequences:
    """Sequences of `length` to 1.1 `length` numbers, and a number for the class of each."""
    if variant not in _TARGETS:
        raise ValueError(f"variant must be a, b or c (Tasks 3a, 3b and 3c), got {variant!r}")
    if not 1 <= signal <= length:
        raise ValueError(f"signal must be between 1 and length {length}, got {signal}")
    lengths = rng.integers(length, length + length // 10 + 1, size=count)
    second = rng.integers(2, size=count)
    longest = int(lengths.max())
    numbers = rng.normal(0.0, _INPUT_NOISE, size=(count, longest))
    if variant != "b":
        numbers[:, :signal] = 0.0
    numbers[:, :signal] += (1 - 2 * second)[:, None]
    numbers[np.arange(longest) >= lengths[:, None]] = 0.0
    expected = np.array(_TARGETS[variant])[second]
    targets = expected + rng.normal(0.0, _TARGET_NOISE, size=count) if variant == "c" else expected
    # Rounded, so that the text of a row has all of it.
    return Sequences(numbers.round(3)[..., None], lengths, targets.round(6), expected=expected)


def generate_two_sequences(sizes, seed, variant: str = "a", length: int = 100, signal: int = 3):
    """Rows by split: `text`, numbers; `label`, the number for the class."""

    def sample(rng: np.random.Generator, count: int) -> Sequences:
        return sample_two_sequences(rng, count, variant, length, signal)

    def write(drawn: Sequences) -> Iterable[tuple]:
        for numbers, steps, target in zip(drawn.inputs, drawn.lengths, drawn.targets, strict=True):
            yield " ".join(f"{number:.3f}" for number in numbers[:steps, 0]), float(target)

    return deal_rows(sizes, seed, sample, write, ("text", "label"))
