"""The picture of a forecast: the past, what is predicted, and how much weight each lag had."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ...plotting import GREY, colour, new_figure

_SHOWN_PAST = 200  # steps of the past
_MAX_CHANNELS = 4


def draw_forecast(forecast: Any) -> Figure:
    """A panel for each of the first channels, and the weights by lag, the distance of a state from the forecast.

    Args:
        forecast: a `forecasting.Forecast`.
    """
    channels = forecast.channels[:_MAX_CHANNELS]
    panels = len(channels) + (forecast.weights is not None)
    figure, axes = new_figure(9, 1.2 + 1.7 * panels, rows=panels)
    axes = np.atleast_1d(axes)
    past, steps = forecast.past[-_SHOWN_PAST:], len(forecast.values)
    times = np.arange(-len(past) + 1, steps + 1)
    for number, (axis, name) in enumerate(zip(axes, channels, strict=False)):
        axis.plot(times[: len(past)], past[:, number], color=GREY, linewidth=1, label="past")
        joined = np.concatenate([past[-1:, number], forecast.values[:, number]])
        axis.plot(times[len(past) - 1 :], joined, color=colour(0), linewidth=2, label="forecast")
        axis.set_ylabel(name.replace("$", r"\$"))
    axes[0].legend(fontsize=8, frameon=False, loc="upper left")
    axes[len(channels) - 1].set_xlabel("steps from the last value of the past")
    if forecast.weights is not None:
        window = len(forecast.weights)
        # The state of the last value is one step before the first forecast, and not part of the window.
        axes[-1].bar(np.arange(window, 0, -1) + 1, forecast.weights, color=colour(1))
        axes[-1].set_xlabel("lag: steps from a state of the window to the first forecast")
        axes[-1].set_ylabel("weight")
    return figure
