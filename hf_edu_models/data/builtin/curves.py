"""Built-in corpus `curve`: a noisy function of one or several variables.

y = 2 sin(x) + x^0.8 + noise for x from 0 to 5; of several variables the mean of the same function of each.
"""

from __future__ import annotations

import math
import random

LOW, HIGH = 0.0, 5.0


def function_of(features: list[float]) -> float:
    """The function without noise."""
    return sum(2 * math.sin(x) + x**0.8 for x in features) / len(features)


def generate(sizes, seed, dimensions: int = 1, noise: float = 0.5):
    """Rows by split: `features`, drawn uniformly, and `value`, with Gaussian noise."""
    if dimensions < 1:
        raise ValueError(f"dimensions must be 1 or more, got {dimensions}")
    if not 0 <= noise < math.inf:
        raise ValueError(f"noise must be 0 or more, a standard deviation; got {noise}")
    rng, rows = random.Random(seed), {}
    for split, size in sizes.items():
        points = [[round(rng.uniform(LOW, HIGH), 4) for _ in range(dimensions)] for _ in range(size)]
        values = [round(function_of(point) + rng.gauss(0, noise), 4) for point in points]
        rows[split] = {"features": points, "value": values}
    return rows
