"""Time series: dates in order, without gaps; scaled by the train split, and cut into windows of past and future."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np

from .columns import by_split, read_column


def parse_dates(values: list, split: str = "the series") -> list[datetime]:
    """Dates as `datetime`; an error names the row of what is no date."""
    dates = []
    for row, value in enumerate(values):
        try:
            dates.append(value if isinstance(value, datetime) else datetime.fromisoformat(str(value)))
        except ValueError:
            raise ValueError(
                f"'date' is {value!r} in row {row} of {split} (from 0), but a date such as 2016-07-01 00:00:00 is "
                "needed"
            ) from None
    return dates


def check_dates(corpus: Mapping[str, Any]) -> None:
    """Raise an error where dates do not go on in steps of about the same length, or where a split begins too early."""
    end = None
    for split in sorted(corpus, key=("train", "validation", "test", *corpus).index):
        dates = parse_dates(read_column(corpus[split], "date"), split)
        steps = [(after - before).total_seconds() for before, after in itertools.pairwise(dates)]
        usual = float(np.median(steps)) if steps else 0.0
        for row, step in enumerate(steps, start=1):
            if not 0 < step <= 1.5 * usual:  # months differ in length, hours do not
                problem = "is not after" if step <= 0 else "leaves a gap after"
                raise ValueError(
                    f"the date {dates[row]} in row {row} of {split} (from 0) {problem} {dates[row - 1]}; sort the "
                    "rows, and fill gaps in"
                )
        if split in ("train", "validation", "test") and dates:
            if end is not None and dates[0] <= end:
                raise ValueError(
                    f"{split} begins at {dates[0]}, but the split before ends at {end}; a forecast must be tested on "
                    "what comes later"
                )
            end = dates[-1]


def values_of(series: Any) -> np.ndarray:
    """The values of a series, (T, C)."""
    return np.asarray(read_column(series, "values"), dtype=np.float64)


def fit_scale(train: Any) -> dict[str, list[float]]:
    """Mean and standard deviation of each channel of the train split, as fields of a configuration."""
    values = values_of(train)
    spread = values.std(axis=0)
    return {"input_mean": values.mean(axis=0).tolist(), "input_std": np.where(spread > 0, spread, 1.0).tolist()}


class SeriesWindows:
    """All windows of a series, one for each step, as a dataset: `past_values` (T, C) and `future_values` (P, C)."""

    def __init__(self, values: np.ndarray, context_length: int, prediction_length: int):
        windows = np.lib.stride_tricks.sliding_window_view(
            values.astype(np.float32), context_length + prediction_length, axis=0
        ).swapaxes(1, 2)  # views: nothing is copied
        self.past, self.future = windows[:, :context_length], windows[:, context_length:]

    def __len__(self) -> int:
        return len(self.past)

    def __getitem__(self, row: int) -> dict[str, np.ndarray]:
        return {"past_values": self.past[row], "future_values": self.future[row]}


@by_split
def make_windows(series: Any, config: Any) -> SeriesWindows:
    """Windows of a split (or of all splits) in the scale and with the lengths of a configuration."""
    values, length = values_of(series), config.context_length + config.prediction_length
    if len(values) < length:
        raise ValueError(
            f"a split has {len(values)} rows, but a window needs context_length {config.context_length} + "
            f"prediction_length {config.prediction_length}; give longer splits or shorter windows"
        )
    scaled = (values - np.asarray(config.input_mean)) / np.asarray(config.input_std)
    return SeriesWindows(scaled, config.context_length, config.prediction_length)


def find_season(past: np.ndarray) -> int | None:
    """The lag at which a series (of windows (N, T, C)) is most like itself: the highest peak of its autocorrelation."""
    centred = past - past.mean(axis=1, keepdims=True)
    lags = range(1, past.shape[1] // 2 + 1)
    total = float(np.square(centred).mean())
    if not total > 0:
        return None
    scores = [math.inf, *(float((centred[:, lag:] * centred[:, :-lag]).mean()) / total for lag in lags)]
    peaks = [lag for lag in lags if lag > 1 and scores[lag] > scores[lag - 1] and scores[lag] >= max(scores[lag:])]
    return max(peaks, key=lambda lag: scores[lag]) if peaks else None


def naive_forecasts(past: np.ndarray, steps: int) -> dict[str, np.ndarray]:
    """What any model must beat, (N, P, C): the last value, and the value of one season ago."""
    found = {"last_value": np.repeat(past[:, -1:], steps, axis=1)}
    season = find_season(past)
    if season is not None:
        found["seasonal_naive"] = past[:, [past.shape[1] - season + step % season for step in range(steps)]]
    return found
