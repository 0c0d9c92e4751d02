"""Built-in tasks `copy` and `reverse`: what a single context vector can and cannot carry, by length.

A row is a sequence of symbols and the same sequence again, as it was or backwards. Nothing is to be learned but to
remember, so the score against the length shows the bottleneck by itself (Cho et al. 2014, arXiv:1409.1259).
"""

from __future__ import annotations

import random
import string

SYMBOLS = string.ascii_lowercase + string.ascii_uppercase + string.digits


def generate_copy(sizes, seed, min_length: int = 4, max_length: int = 20, symbols: int = 26):
    """Rows by split, `target` equal to `source`."""
    return _generate(sizes, seed, min_length, max_length, symbols, lambda sequence: sequence)


def generate_reverse(sizes, seed, min_length: int = 4, max_length: int = 20, symbols: int = 26):
    """Rows by split, `target` is `source` from its end to its start."""
    return _generate(sizes, seed, min_length, max_length, symbols, lambda sequence: sequence[::-1])


def _generate(sizes, seed, min_length, max_length, symbols, answer) -> dict[str, dict[str, list]]:
    _check(sum(sizes.values()), min_length, max_length, symbols)
    rng = random.Random(seed)
    alphabet = SYMBOLS[:symbols]
    drawn: dict[str, None] = {}
    while len(drawn) < sum(sizes.values()):
        length = rng.randint(min_length, max_length)
        drawn.setdefault("".join(rng.choices(alphabet, k=length)))
    sequences, rows = iter(drawn), {}
    for split, size in sizes.items():
        chosen = [next(sequences) for _ in range(size)]
        rows[split] = {
            "source": [" ".join(sequence) for sequence in chosen],
            "target": [" ".join(answer(sequence)) for sequence in chosen],
        }
    return rows


def _check(total: int, min_length: int, max_length: int, symbols: int) -> None:
    if not 1 <= symbols <= len(SYMBOLS):
        raise ValueError(f"symbols must be from 1 to {len(SYMBOLS)}, got {symbols}")
    if not 1 <= min_length <= max_length:
        raise ValueError(f"lengths need 1 <= min_length <= max_length, got {min_length} and {max_length}")
    # Half of what exists at most: drawing without repetition would otherwise take for ever.
    scarce = sum(min(symbols**length, 2 * total) for length in range(min_length, max_length + 1))
    if scarce < 2 * total or symbols**min_length * (max_length - min_length + 1) < total // 50:
        raise ValueError(
            f"too few sequences of {symbols} symbols and lengths {min_length} to {max_length} for {total} rows; "
            "ask for fewer rows, more symbols or longer sequences"
        )
