"""`hf-edu explain gradients`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .figure import save_figure_and_values
from .options import FigureAndTable, Seed


def gradients(
    model: Annotated[
        str | None, typer.Argument(help="Folder of a run or checkpoint of this package, or a model id on the Hub.")
    ] = None,
    text: Annotated[str | None, typer.Argument(help="Input text.")] = None,
    target: Annotated[
        str | None, typer.Option(help="Target text of an encoder-decoder; default the generated text.")
    ] = None,
    loss_at: Annotated[str, typer.Option(help="Compute the loss at the `last` label or at `all` labels.")] = "last",
    lesson: Annotated[
        bool, typer.Option("--lesson", help="Compare untrained RNN, GRU and LSTM cells instead of a model.")
    ] = False,
    length: Annotated[int, typer.Option(help="Sequence length of --lesson.")] = 100,
    hidden_size: Annotated[int, typer.Option(help="Hidden size of --lesson.")] = 64,
    gate_bias: Annotated[float, typer.Option(help="Initial bias of the forget and update gates of --lesson.")] = 1.0,
    seed: Seed = 0,
    out: FigureAndTable = Path("gradients.png"),
) -> None:
    """Show the gradient norm at each time step and layer, or with --lesson why gradients vanish and explode."""
    from ..plotting import check_picture_path

    check_picture_path(out)
    if lesson and model is None and text is None:
        rows, figure = _compare_cells(length=length, hidden_size=hidden_size, gate_bias=gate_bias, seed=seed)
    elif not lesson and model is not None and text is not None:
        rows, figure = _gradient_flow(model, text, target, loss_at)
    else:
        raise ValueError("give either a model and a text, or --lesson")
    save_figure_and_values(figure, rows, out)


def _compare_cells(gate_bias: float, **options: Any) -> tuple[list[dict], Any]:
    from ..explain.gradients.exploding import exploding_gradient_lesson
    from ..explain.gradients.pictures import draw_lesson
    from ..explain.gradients.truncation import truncation_lesson
    from ..explain.gradients.vanishing import vanishing_gradient_lesson

    vanishing = vanishing_gradient_lesson(gate_bias=gate_bias, **options)
    exploding, truncation = exploding_gradient_lesson(**options), truncation_lesson(gate_bias=gate_bias, **options)
    rows = vanishing.rows() + exploding.rows() + truncation.rows()
    return rows, draw_lesson(vanishing, exploding, truncation)


def _gradient_flow(name: str, text: str, target: str | None, loss_at: str) -> tuple[list[dict], Any]:
    from ..checkpoints import load_with_head
    from ..explain.gradients.batch import labelled_batch
    from ..explain.gradients.flow import gradient_flow
    from ..explain.gradients.pictures import draw_gradient_flow

    model, tokenizer = load_with_head(name)
    batch, tokens = labelled_batch(model, tokenizer, text, target)
    flow = gradient_flow(model, batch, loss_at)
    return flow.rows(), draw_gradient_flow(flow, tokens, title=f"Gradient flow in {Path(name).name}")
