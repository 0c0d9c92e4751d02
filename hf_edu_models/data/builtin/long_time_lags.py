"""Built-in corpora whose labels depend on symbols far back: `reber`, `first_again`, `long_lags`, `adding`,
`multiplication`, `temporal_order` (Hochreiter & Schmidhuber 1997, Sections 5.1 to 5.6; Section 5.3 is in
`two_sequences.py`) and `delayed_copy` (Henaff et al. 2016, arXiv:1602.06662, the copying problem).

A `sample_` function draws as many sequences as it is asked for, as arrays: a model can be trained on new ones at every
step, as in the paper. A `generate_` function writes them as rows of text. Shapes: N sequences, T symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

PAD = -1
REBER_SYMBOLS = "BTSXVPE"
_ORDER_SYMBOLS = ("E", "B", "a", "b", "c", "d", "X", "Y")
_ORDER_CLASSES = {2: "QRSU", 3: "QRSUVABC"}
# The states of the Reber grammar and where each symbol leads.
_REBER = (
    {"T": 1, "P": 2},
    {"S": 1, "X": 3},
    {"T": 2, "V": 4},
    {"X": 2, "S": 5},
    {"P": 3, "V": 5},
    {"E": 6},
)
_DRAWS = 50  # how often `deal_rows` looks for sequences that it does not have yet


@dataclass(frozen=True)
class Sequences:
    """Sequences of symbols or numbers, and what is asked at their ends or at every step.

    Args:
        inputs: (N, T) ids of symbols, `PAD` after the end; or (N, T, 2) numbers and their markers.
        lengths: (N,)
        targets: (N,) classes or numbers; or (N, T) classes of every step, `PAD` where none is asked.
        allowed: (N, T, symbols), those that may come next; only where several may.
        expected: (N,) the targets without their noise; only where they have some.
    """

    inputs: np.ndarray
    lengths: np.ndarray
    targets: np.ndarray
    allowed: np.ndarray | None = None
    expected: np.ndarray | None = None


def sample_reber(rng: np.random.Generator, count: int) -> Sequences:
    """Strings of the embedded Reber grammar; the target of each symbol is the next one.

    The last symbol but one is the second one again, T or P, whatever is in between.
    """
    strings = [_reber_string(rng) for _ in range(count)]
    lengths = np.array([len(symbols) - 1 for symbols, _ in strings])
    shape = (count, int(lengths.max()))
    inputs, targets = np.full(shape, PAD), np.full(shape, PAD)
    allowed: np.ndarray = np.zeros((*shape, len(REBER_SYMBOLS)), dtype=bool)
    for row, (symbols, choices) in enumerate(strings):
        ids = [REBER_SYMBOLS.index(symbol) for symbol in symbols]
        inputs[row, : len(ids) - 1], targets[row, : len(ids) - 1] = ids[:-1], ids[1:]
        for step, each in enumerate(choices[1:]):
            allowed[row, step, [REBER_SYMBOLS.index(symbol) for symbol in each]] = True
    return Sequences(inputs, lengths, targets, allowed)


def _reber_string(rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """The symbols of a string, and those that could have been in the place of each."""
    which = "TP"[rng.integers(2)]
    symbols, choices, state = ["B", which, "B"], ["B", "TP", "B"], 0
    while state < len(_REBER):
        edges = _REBER[state]
        symbol = list(edges)[rng.integers(len(edges))]
        symbols.append(symbol)
        choices.append("".join(edges))
        state = edges[symbol]
    return [*symbols, which, "E"], [*choices, which, "E"]


def sample_first_again(rng: np.random.Generator, count: int, lag: int = 100, regular: bool = True) -> Sequences:
    """Tasks 2a and 2b: x or y, then `lag` - 1 symbols, then x or y again; the target of each symbol is the next one.

    The symbols in between are a1, a2, a3, ... (`regular`, Task 2a) or random (Task 2b). Ids: those symbols, then x, y.
    """
    _check_at_least(lag=(lag, 2))
    first = rng.integers(2, size=(count, 1)) + lag - 1
    between = np.arange(lag - 1) + np.zeros((count, 1), dtype=int)
    if not regular:
        between = rng.integers(lag - 1, size=between.shape)
    symbols = np.concatenate([first, between, first], axis=1)
    return Sequences(symbols[:, :-1], np.full(count, lag), symbols[:, 1:])


def sample_long_lags(rng: np.random.Generator, count: int, lag: int = 100, distractors: int = 100) -> Sequences:
    """Task 2c: b, then x or y, at least `lag` random symbols, then e: was it x (0) or y (1)?

    After `lag` symbols each next one is e with probability 1/10. Ids: the distractors, then e, b, x, y.
    """
    _check_at_least(lag=(lag, 1), distractors=(distractors, 1))
    extra = rng.geometric(0.1, size=count) - 1
    lengths = lag + extra + 3
    inputs = rng.integers(distractors, size=(count, int(lengths.max())))
    targets = rng.integers(2, size=count)
    inputs[:, 0], inputs[:, 1] = distractors + 1, distractors + 2 + targets
    inputs[np.arange(count), lengths - 1] = distractors
    return Sequences(_pad(inputs, lengths), lengths, targets)


def _long_lag_symbols(distractors: int) -> list[str]:
    return [*(f"a{number}" for number in range(1, distractors + 1)), "e", "b", "x", "y"]


def sample_adding(rng: np.random.Generator, count: int, length: int = 100) -> Sequences:
    """Experiment 4: numbers in [-1, 1], two of them marked; the target is 0.5 + (X_1 + X_2) / 4."""
    inputs, lengths, first, second = _marked(rng, count, length, lowest=-1.0, without=0.0)
    return Sequences(inputs, lengths, 0.5 + (first + second) / 4)


def sample_multiplication(rng: np.random.Generator, count: int, length: int = 100) -> Sequences:
    """Experiment 5: numbers in [0, 1], two of them marked; the target is their product."""
    inputs, lengths, first, second = _marked(rng, count, length, lowest=0.0, without=1.0)
    return Sequences(inputs, lengths, first * second)


def _marked(rng, count: int, length: int, lowest: float, without: float):
    """Pairs of number and marker: 1 at one of the first ten and at one of the first `length` / 2 - 1 of the others.

    The first and the last pair have the marker -1. If the first is marked, its number is `without`: 0 for sums, 1 for
    products.
    """
    _check_at_least(length=(length, 22))
    lengths = rng.integers(length, length + length // 10 + 1, size=count)
    longest, rows = int(lengths.max()), np.arange(count)
    numbers = rng.uniform(lowest, 1.0, size=(count, longest)).round(3)  # so that the text of a row has all of it
    one = rng.integers(10, size=count)
    other = rng.integers(length // 2 - 1, size=count)
    other += other >= one
    numbers[(one == 0) | (other == 0), 0] = without
    markers = np.zeros((count, longest))
    markers[:, 0] = markers[rows, lengths - 1] = -1.0
    markers[rows, one] = markers[rows, other] = 1.0
    inputs = np.stack([numbers, markers], axis=-1)
    inputs[np.arange(longest) >= lengths[:, None]] = 0.0
    return inputs, lengths, numbers[rows, one], numbers[rows, other]


def sample_temporal_order(rng: np.random.Generator, count: int, relevant: int = 2) -> Sequences:
    """Experiment 6: two (6a) or three (6b) symbols X or Y among a, b, c, d; the class is their order."""
    if relevant not in _ORDER_CLASSES:
        raise ValueError(f"relevant must be 2 (Task 6a) or 3 (Task 6b), got {relevant}")
    lengths = rng.integers(100, 111, size=count)
    inputs = rng.integers(2, 6, size=(count, int(lengths.max())))
    inputs[:, 0] = 0
    inputs[np.arange(count), lengths - 1] = 1
    targets: np.ndarray = np.zeros(count, dtype=int)
    for start in ((10, 50), (10, 33, 66))[relevant - 2]:
        which = rng.integers(2, size=count)
        inputs[np.arange(count), rng.integers(start, start + 11, size=count)] = 6 + which
        targets = 2 * targets + which
    return Sequences(_pad(inputs, lengths), lengths, targets)


def sample_delayed_copy(
    rng: np.random.Generator, count: int, delay: int = 100, length: int = 10, symbols: int = 8
) -> Sequences:
    """Symbols, blanks, a delimiter: then the symbols again, in the same order. Ids: the symbols, blank, delimiter."""
    _check_at_least(delay=(delay, 1), length=(length, 1), symbols=(symbols, 2))
    chosen = rng.integers(symbols, size=(count, length))
    inputs = np.full((count, delay + 2 * length), symbols)
    inputs[:, :length] = chosen
    inputs[:, length + delay - 1] = symbols + 1
    targets = np.full_like(inputs, symbols)
    targets[:, -length:] = chosen
    return Sequences(inputs, np.full(count, inputs.shape[1]), targets)


def _pad(inputs: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    return np.where(np.arange(inputs.shape[1]) < lengths[:, None], inputs, PAD)


def _check_at_least(**given: tuple[int, int]) -> None:
    for name, (value, least) in given.items():
        if value < least:
            raise ValueError(f"{name} must be {least} or more, got {value}")


def generate_reber(sizes, seed):
    """Rows by split: `text`, the symbols of a string."""

    def write(drawn: Sequences) -> Iterable[tuple]:
        for targets, length in zip(drawn.targets, drawn.lengths, strict=True):
            yield ("B " + " ".join(REBER_SYMBOLS[symbol] for symbol in targets[:length]),)

    return deal_rows(sizes, seed, sample_reber, write, ("text",))


def generate_first_again(sizes, seed, lag: int = 100, regular: bool = True):
    """Rows by split: `text`, symbols, of which the last is the first; only two different ones if `regular`."""
    names = [*(f"a{number}" for number in range(1, lag)), "x", "y"]

    def sample(rng: np.random.Generator, count: int) -> Sequences:
        return sample_first_again(rng, count, lag, regular)

    def write(drawn: Sequences) -> Iterable[tuple]:
        for inputs, targets in zip(drawn.inputs, drawn.targets, strict=True):
            yield (" ".join(names[symbol] for symbol in (*inputs, targets[-1])),)

    return deal_rows(sizes, seed, sample, write, ("text",), repeat=regular)


def generate_long_lags(sizes, seed, lag: int = 100, distractors: int = 100):
    """Rows by split: `text`, symbols; `label`, x or y."""
    names = _long_lag_symbols(distractors)

    def sample(rng: np.random.Generator, count: int) -> Sequences:
        return sample_long_lags(rng, count, lag, distractors)

    return deal_rows(sizes, seed, sample, lambda drawn: _labelled(drawn, names, "xy"), ("text", "label"))


def generate_temporal_order(sizes, seed, relevant: int = 2):
    """Rows by split: `text`, symbols; `label`, the class of their order."""

    def sample(rng: np.random.Generator, count: int) -> Sequences:
        return sample_temporal_order(rng, count, relevant)

    def write(drawn: Sequences) -> Iterable[tuple]:
        return _labelled(drawn, _ORDER_SYMBOLS, _ORDER_CLASSES[relevant])

    return deal_rows(sizes, seed, sample, write, ("text", "label"))


def generate_adding(sizes, seed, length: int = 100):
    """Rows by split: `text`, numbers, * after those that are marked; `label`, a number."""
    return deal_rows(sizes, seed, lambda rng, count: sample_adding(rng, count, length), _numbers, ("text", "label"))


def generate_multiplication(sizes, seed, length: int = 100):
    """Rows by split: `text`, numbers, * after those that are marked; `label`, a number."""
    return deal_rows(
        sizes, seed, lambda rng, count: sample_multiplication(rng, count, length), _numbers, ("text", "label")
    )


def generate_delayed_copy(sizes, seed, delay: int = 100, length: int = 10, symbols: int = 8):
    """Rows by split: `tokens`, symbols, `_` for a blank, `|` for the delimiter; `tags`, what is to be written."""
    names = [*(str(number) for number in range(1, symbols + 1)), "_", "|"]

    def sample(rng: np.random.Generator, count: int) -> Sequences:
        return sample_delayed_copy(rng, count, delay, length, symbols)

    def write(drawn: Sequences) -> Iterable[tuple]:
        for inputs, targets in zip(drawn.inputs, drawn.targets, strict=True):
            yield tuple(names[symbol] for symbol in inputs), tuple(names[symbol] for symbol in targets)

    return deal_rows(sizes, seed, sample, write, ("tokens", "tags"))


def _labelled(drawn: Sequences, names: Iterable[str], classes: str) -> Iterable[tuple]:
    names = list(names)
    for inputs, length, target in zip(drawn.inputs, drawn.lengths, drawn.targets, strict=True):
        yield " ".join(names[symbol] for symbol in inputs[:length]), classes[target]


def _numbers(drawn: Sequences) -> Iterable[tuple]:
    for inputs, length, target in zip(drawn.inputs, drawn.lengths, drawn.targets, strict=True):
        text = " ".join(f"{number:.3f}{'*' if marker == 1 else ''}" for number, marker in inputs[:length])
        yield text, round(float(target), 6)


def deal_rows(
    sizes: dict[str, int],
    seed: int,
    sample: Callable[[np.random.Generator, int], Sequences],
    write: Callable[[Sequences], Iterable[tuple]],
    columns: tuple[str, ...],
    repeat: bool = False,
) -> dict[str, dict[str, list]]:
    """Draw sequences until there are enough (different ones, unless they may `repeat`); deal them out to the splits."""
    rng, total = np.random.default_rng(seed), sum(sizes.values())
    unique: dict[tuple, None] = {}
    if repeat:
        return _deal(sizes, iter(write(sample(rng, total))), columns)
    for _ in range(_DRAWS):
        unique |= dict.fromkeys(write(sample(rng, total)))
        if len(unique) >= total:
            return _deal(sizes, iter(unique), columns)
    raise ValueError(f"there are too few different sequences for {total} rows; ask for fewer, or longer ones")


def _deal(sizes: dict[str, int], drawn: Iterator[tuple], columns: tuple[str, ...]) -> dict[str, dict[str, list]]:
    rows = {}
    for split, size in sizes.items():
        chosen = [next(drawn) for _ in range(size)]
        rows[split] = {name: [row[place] for row in chosen] for place, name in enumerate(columns)}
    return rows
