"""Kernel regression, kernel by kernel: the fitted curves, and the weights as attention shows them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from ..data.builtin import curves
from ..models.configuration_kernel import EduKernelConfig
from ..models.modeling_kernel import KERNELS, EduKernelForRegression
from ..plotting import GREY, INK, add_caption, colour, new_figure, save_figure
from .attention_lessons import Lesson


def kernels(width: float = 0.5, noise: float = 0.5, rows: int = 50, dimensions: int = 1, seed: int = 0) -> Lesson:
    """Every kernel at one width, and the Gaussian with the width that leave-one-out errors teach it."""
    sizes = {"train": rows, "test": 500}
    corpus = curves.generate(sizes, seed, dimensions, noise)
    (inputs, labels), held_out = (
        (torch.tensor(split["features"]), torch.tensor(split["value"])) for split in corpus.values()
    )
    models = {name: _remember(name, width, inputs, labels) for name in reversed(KERNELS)}
    models["gaussian, learnt"] = _fit_width(_remember("gaussian", width, inputs, labels))
    table: list[dict[str, Any]] = [
        {"kernel": name, "width": model.width} | _errors(model, held_out) for name, model in models.items()
    ]
    truth = curves.function_of if dimensions == 1 else None
    figure = _draw(models, inputs, labels, {row["kernel"]: row["held_out_mse"] for row in table}, truth)
    caption = f"{rows} pairs with noise of standard deviation {noise:g}, seed {seed}; errors on 500 others."
    add_caption(figure, caption)
    return Lesson(figure, table)


def _fit_width(model: EduKernelForRegression, steps: int = 100) -> EduKernelForRegression:
    """Train the width on the leave-one-out error of all memories at once."""
    model.attention.log_width.requires_grad_()
    optimizer = torch.optim.LBFGS([model.attention.log_width], max_iter=steps, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        error = _leave_one_out(model)
        error.backward()
        return error

    optimizer.step(loss)
    return model


def _leave_one_out(model: EduKernelForRegression) -> torch.Tensor:
    """The mean squared error of each memory, predicted from the others."""
    keys, values = model.memory.keys, model.memory.values
    return model(keys, labels=values, memory_ids=torch.arange(len(keys), device=keys.device)).loss


@torch.no_grad()
def _errors(model: EduKernelForRegression, held_out: tuple[torch.Tensor, torch.Tensor]) -> dict[str, float]:
    inputs, labels = held_out
    return {"leave_one_out_mse": _leave_one_out(model).item(), "held_out_mse": model(inputs, labels=labels).loss.item()}


def _remember(kernel: str, width: float, inputs: torch.Tensor, labels: torch.Tensor) -> EduKernelForRegression:
    config = EduKernelConfig(kernel=kernel, width=width, input_size=inputs.shape[1])
    model = EduKernelForRegression(config).eval()
    model.remember(inputs, labels)
    return model


def save_kernels_picture(model: EduKernelForRegression, path: str | os.PathLike) -> Path:
    """The kernels side by side on the memory of a model, at its width."""
    keys, values = model.memory.keys.cpu(), model.memory.values[:, 0].cpu()
    if model.config.projection_size is None and model.config.output_size == 1:
        models = {name: _remember(name, model.width, keys, values) for name in reversed(KERNELS)}
    else:
        models = {model.config.kernel: model}
    scores = {name: _leave_one_out(each).item() for name, each in models.items()}
    figure = _draw(models, keys, values, scores)
    add_caption(figure, f"{len(keys)} memories; the errors are leave-one-out errors.")
    return save_figure(figure, path)


@torch.no_grad()
def _draw(
    models: Mapping[str, EduKernelForRegression],
    inputs: torch.Tensor,
    labels: torch.Tensor,
    scores: Mapping[str, float],
    truth: Any = None,
) -> Figure:
    """A column for each model: its curve through the pairs, and its weights with queries and keys in order.

    Args:
        inputs: the memories, (M, F); of several features the first one is the axis.
        scores: the mean squared error of each model.
        truth: the function without noise of one variable.
    """
    order = inputs[:, 0].argsort()
    inputs, labels = inputs[order], labels[order]
    queries: torch.Tensor = inputs
    own: torch.Tensor | None = order  # of several features: each memory, predicted from the others
    if inputs.shape[1] == 1:
        own = None
        queries = torch.linspace(float(inputs.min()), float(inputs.max()), 100)[:, None]
    figure, axes = new_figure(2.6 * len(models) + 0.6, 5.4, rows=2, columns=len(models), sharey="row")
    grid = np.asarray(axes).reshape(2, len(models))
    for number, (name, model) in enumerate(models.items()):
        outputs = model(queries, memory_ids=own, output_attentions=True)
        curve, weights = grid[:, number]
        curve.plot(inputs[:, 0], labels, "o", color=GREY, markersize=3, label="data")
        if truth is not None:
            curve.plot(queries, [truth(x) for x in queries.tolist()], color=INK, linewidth=1, label="function")
        style = "-" if inputs.shape[1] == 1 else "."
        curve.plot(queries[:, 0], outputs.logits[:, 0], style, color=colour(0), linewidth=2, label="prediction")
        width = "" if model.config.kernel == "mean" else f", width {model.width:.2f}"
        curve.set_title(f"{name}{width}\nmean squared error {scores[name]:.3f}", fontsize=9)
        curve.set_xlabel("x" if inputs.shape[1] == 1 else "x, first feature")
        image = outputs.attentions[0].numpy()[:, order.numpy()]
        weights.imshow(image / image.max(axis=1, keepdims=True), cmap="Blues", aspect="auto", origin="lower", vmin=0)
        weights.grid(False)
        weights.set_xlabel("keys $x_i$, sorted")
    grid[0, 0].set_ylabel("y")
    grid[0, 0].legend(fontsize=8, frameon=False)
    grid[1, 0].set_ylabel("queries x, sorted")
    return figure
