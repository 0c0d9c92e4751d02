"""`hf-edu figure`: the lessons, which compute their numbers in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..lazy import resolve
from .figure import app, save_figure_and_values
from .options import FigureAndTable, Seed


def _save(name: str, out: Path, module: str = "attention_lessons", **options: object) -> None:
    from ..plotting import check_picture_path

    check_picture_path(out)
    lesson = resolve(f".experiments.{module}:{name}")(**options)
    save_figure_and_values(lesson.figure, lesson.rows, out)


@app.command("attention-steps")
def attention_steps(
    sentence: Annotated[str, typer.Argument(help="A sentence of 2 to 12 words.")],
    size: Annotated[int, typer.Option(help="Dimensions of the embeddings.", min=1)] = 16,
    num_heads: Annotated[int, typer.Option(help="Number of heads of the last step.", min=1)] = 2,
    seed: Seed = 0,
    out: FigureAndTable = Path("attention-steps.png"),
) -> None:
    """Self-attention step by step: products, softmax, values, queries and keys, scaling, heads."""
    _save("attention_steps", out, sentence=sentence, size=size, num_heads=num_heads, seed=seed)


@app.command("key-value")
def key_value(
    sharpness: Annotated[float, typer.Option(help="Factor of the scores before the softmax.", min=0.0)] = 10.0,
    out: FigureAndTable = Path("key-value.png"),
) -> None:
    """Attention as a soft dictionary: a worked example with two keys and two values."""
    _save("key_value", out, sharpness=sharpness)


@app.command()
def denoising(
    noise: Annotated[float, typer.Option(help="Standard deviation of the noise.")] = 0.3,
    patch: Annotated[int, typer.Option(help="Number of neighbouring values that are compared.", min=1)] = 9,
    seed: Seed = 0,
    out: FigureAndTable = Path("denoising.png"),
) -> None:
    """Self-attention as a filter (non-local means): average the parts of a signal that look alike."""
    _save("denoising", out, noise=noise, patch=patch, seed=seed)


@app.command()
def scaling(seed: Seed = 0, out: FigureAndTable = Path("scaling.png")) -> None:
    """Why scores are divided by sqrt(d): variance, entropy and gradient of the softmax by d."""
    _save("scaling", out, seed=seed)


@app.command()
def masks(seed: Seed = 0, out: FigureAndTable = Path("masks.png")) -> None:
    """The masks of attention: padding, look-ahead and both."""
    _save("masks", out, seed=seed)


@app.command()
def permutation(seed: Seed = 0, out: FigureAndTable = Path("permutation.png")) -> None:
    """The mask of permutation language modelling (XLNet): tokens predicted in a random order."""
    _save("permutation", out, seed=seed)


@app.command()
def descent(
    surface: Annotated[str, typer.Option(help="ravine: an ill-conditioned quadratic; or cubic.")] = "ravine",
    learning_rate: Annotated[float, typer.Option(help="Learning rate.")] = 0.08,
    momentum: Annotated[float, typer.Option(help="Momentum, at least 0 and below 1.")] = 0.6,
    noise: Annotated[float, typer.Option(help="Standard deviation of the noise on the gradients of SGD.")] = 1.0,
    steps: Annotated[int, typer.Option(help="Number of steps.", min=1)] = 60,
    seed: Seed = 0,
    out: FigureAndTable = Path("descent.png"),
) -> None:
    """Gradient descent, stochastic gradient descent and momentum on a surface."""
    options = {"surface": surface, "learning_rate": learning_rate, "momentum": momentum, "noise": noise}
    _save("descent", out, "descent", **options, steps=steps, seed=seed)


@app.command()
def kernels(
    width: Annotated[float, typer.Option(help="Width of every kernel.")] = 0.5,
    noise: Annotated[float, typer.Option(help="Standard deviation of the noise.", min=0.0)] = 0.5,
    rows: Annotated[int, typer.Option(help="Number of remembered pairs.", min=2)] = 50,
    dimensions: Annotated[int, typer.Option(help="Number of variables of the function.", min=1)] = 1,
    seed: Seed = 0,
    out: FigureAndTable = Path("kernels.png"),
) -> None:
    """Attention's ancestor: the same data smoothed by each kernel, and the weights that did it (Nadaraya 1964)."""
    options = {"width": width, "noise": noise, "rows": rows, "dimensions": dimensions}
    _save("kernels", out, "kernels", **options, seed=seed)


@app.command()
def poincare(
    dataset: Annotated[
        str | None, typer.Option(help="Table with the columns child and parent (or any ancestor); default a tree.")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Number of epochs after the burn-in.", min=1)] = 50,
    learning_rate: Annotated[float, typer.Option(help="Learning rate.", min=0.0)] = 0.1,
    labels: Annotated[int, typer.Option(help="Number of nodes to name, those with most descendants.", min=0)] = 40,
    seed: Seed = 0,
    out: FigureAndTable = Path("poincare.png"),
) -> None:
    """A hierarchy in the hyperbolic disc (Nickel & Kiela 2017), with mean rank and MAP of its ancestors."""
    options = {"dataset": dataset, "epochs": epochs, "learning_rate": learning_rate, "labels": labels}
    _save("poincare", out, "poincare", **options, seed=seed)


@app.command("rnn-types")
def rnn_types(out: FigureAndTable = Path("rnn-types.png")) -> None:
    """One to one, one to many, many to one, many to many: kinds of recurrent networks, and our heads of each."""
    _save("rnn_types", out, "rnn_types")
