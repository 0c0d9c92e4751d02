"""Forecasts of a time series with a checkpoint: from the rows of a file to values, dates and weights by lag."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .checkpoints import load_as, load_config, saved_class
from .data.corpora import load_corpus, value_names
from .data.series import parse_dates, values_of
from .generation import find_device
from .tasks import TASKS, task_of_class


@dataclass(frozen=True)
class Forecast:
    """A forecast in the units of the series.

    Args:
        channels: names of the columns of values.
        dates: of the past, then of the forecast.
        past, values: (T, C) and (steps, C).
        weights: of each state of the window for the first forecast, the most recent last; None without attention.
    """

    channels: list[str]
    dates: list[datetime]
    past: np.ndarray
    values: np.ndarray
    weights: np.ndarray | None

    @property
    def rows(self) -> list[dict[str, Any]]:
        future = zip(self.dates[len(self.past) :], self.values.tolist(), strict=True)
        return [{"date": str(date)} | dict(zip(self.channels, values, strict=True)) for date, values in future]


def forecast_file(
    name: str, file: Path, steps: int | None = None, device: str | None = None, trust_remote_code: bool = False
) -> Forecast:
    """Continue the series in a file (its last split, if it has several).

    Args:
        name: a run, a folder or a Hub id.
        steps: number of forecasts; default the model's own prediction length.
    """
    from transformers import AutoModelForTimeSeriesPrediction

    config = load_config(name, trust_remote_code)
    if task_of_class(saved_class(config)) != "time_series":
        verb = TASKS[task_of_class(saved_class(config)) or "feature_extraction"].verb
        raise ValueError(f"{name} holds {saved_class(config)}, which makes no forecasts; use hf-edu {verb}")
    model = load_as(AutoModelForTimeSeriesPrediction, name, trust_remote_code).to(find_device(device))
    series = list(load_corpus(file, task="time_series").values())[-1]
    values = values_of(series)
    if values.shape[1] != model.config.num_input_channels:
        raise ValueError(
            f"{file} has {values.shape[1]} columns of values, but {name} was trained on "
            f"{model.config.num_input_channels}"
        )
    past = torch.tensor(values, dtype=torch.float32, device=model.device)
    found, weights = model.forecast(past[None], steps)
    dates = parse_dates(series["date"][:])
    step = dates[-1] - dates[-2]
    dates = [*dates, *(dates[-1] + step * number for number in range(1, found.shape[1] + 1))]
    weights = None if weights is None else weights[0].cpu().numpy()
    return Forecast(value_names(file), dates, values, found[0].cpu().numpy(), weights)
