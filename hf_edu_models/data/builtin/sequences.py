"""Built-in corpora `copy` and `reverse`: a random sequence of symbols, and the same sequence again or reversed.

The model only has to remember the source, so the score by length shows how much a single context vector can hold
(Cho et al. 2014, arXiv:1409.1259).
"""

from __future__ import annotations

import random
import string

_SYMBOLS = string.ascii_lowercase + string.ascii_uppercase + string.digits


def generate_copy(sizes, seed, min_length: int = 4, max_length: int = 20, symbols: int = 26):
    """Rows by split, `target` equal to `source`."""
    return _generate(sizes, seed, min_length, max_length, symbols, lambda sequence: sequence)


def generate_reverse(sizes, seed, min_length: int = 4, max_length: int = 20, symbols: int = 26):
    """Rows by split, `target` is `source` reversed."""
    return _generate(sizes, seed, min_length, max_length, symbols, lambda sequence: sequence[::-1])


def _generate(sizes, seed, min_length, max_length, symbols, transform) -> dict[str, dict[str, list]]:
    _check(sum(sizes.values()), min_length, max_length, symbols)
    rng = random.Random(seed)
    alphabet = _SYMBOLS[:symbols]
    unique: dict[str, None] = {}
    while len(unique) < sum(sizes.values()):
        length = rng.randint(min_length, max_length)
        unique.setdefault("".join(rng.choices(alphabet, k=length)))
    sequences, rows = iter(unique), {}
    for split, size in sizes.items():
        chosen = [next(sequences) for _ in range(size)]
        rows[split] = {
            "source": [" ".join(sequence) for sequence in chosen],
            "target": [" ".join(transform(sequence)) for sequence in chosen],
        }
    return rows


def _check(total: int, min_length: int, max_length: int, symbols: int) -> None:
    if not 1 <= symbols <= len(_SYMBOLS):
        raise ValueError(f"symbols must be from 1 to {len(_SYMBOLS)}, got {symbols}")
    if not 1 <= min_length <= max_length:
        raise ValueError(f"lengths need 1 <= min_length <= max_length, got {min_length} and {max_length}")
    # At most half of all sequences: sampling the last ones without repetition would take too long.
    available = sum(min(symbols**length, 2 * total) for length in range(min_length, max_length + 1))
    if available < 2 * total or symbols**min_length * (max_length - min_length + 1) < total // 50:
        raise ValueError(
            f"too few sequences of {symbols} symbols and lengths {min_length} to {max_length} for {total} rows; "
            "ask for fewer rows, more symbols or longer sequences"
        )
