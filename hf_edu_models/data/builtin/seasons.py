"""Built-in corpus `seasons`: a time series whose next value depends on values of known lags, and on nothing else.

x_t = 0.95 (x_{t - lag 1} + ... + x_{t - lag n}) / n + noise
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta

_START = datetime(2020, 1, 1)
_WARM_UP = 500  # steps before the first row, so that the start is forgotten


def generate(sizes, seed, lags: tuple[int, ...] = (5, 12), noise: float = 1.0):
    """Rows by split, one an hour: `date` and `values`, a list of one number; validation and test come later."""
    lags = (lags,) if isinstance(lags, int) else tuple(lags)
    if not lags or not all(isinstance(lag, int) and lag >= 1 for lag in lags):
        raise ValueError(f"lags must be integers of 1 or more, got {lags}")
    if not noise > 0:
        raise ValueError(f"noise must be above 0, a standard deviation; got {noise}")
    rng = random.Random(seed)
    series = [rng.gauss(0, noise) for _ in range(max(lags))]
    for _ in range(_WARM_UP + sum(sizes.values())):
        series.append(0.95 * sum(series[-lag] for lag in lags) / len(lags) + rng.gauss(0, noise))
    rows, row = {}, 0
    for split, size in sizes.items():
        values = series[-sum(sizes.values()) :][row : row + size]
        dates = [str(_START + timedelta(hours=row + number)) for number in range(size)]
        rows[split] = {"date": dates, "values": [[round(value, 4)] for value in values]}
        row += size
    return rows
