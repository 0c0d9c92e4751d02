"""`hf-edu explain gradients`: the lesson, or one text through one model."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def gradients(
    model: Annotated[str | None, typer.Argument(help="A run, a checkpoint's folder or a Hub id of a rung.")] = None,
    text: Annotated[str | None, typer.Argument(help="What the model reads.")] = None,
    target: Annotated[
        str | None, typer.Option(help="What a translator should write; its own words if not given.")
    ] = None,
    loss_at: Annotated[str, typer.Option(help="Count the `last` label only, or `all` of them.")] = "last",
    lesson: Annotated[
        bool, typer.Option("--lesson", help="New rnn, gru and lstm cells: who forgets, and why.")
    ] = False,
    length: Annotated[int, typer.Option(help="Steps of the lesson.")] = 100,
    hidden_size: Annotated[int, typer.Option(help="Size of the lesson's cells.")] = 64,
    gate_bias: Annotated[float, typer.Option(help="Where the lesson's keeping gates start.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the lesson's cells and words.")] = 0,
    out: Annotated[Path, typer.Option(help="The picture, .png or .svg; the numbers go beside it as .csv.")] = Path(
        "gradients.png"
    ),
) -> None:
    """Show how much gradient reaches each step and layer, or with --lesson why gradients vanish."""
    from .figure_style import check_picture_path, save_figure

    check_picture_path(out)
    if lesson == (model is not None) or (model is None) != (text is None):
        raise ValueError("give either a model and a text, or --lesson")
    if lesson:
        rows, figure = _lesson(length, hidden_size, gate_bias, seed)
    else:
        rows, figure = _one_text(model, text, target, loss_at)
    from .tables import write_csv

    save_figure(figure, out)
    table = write_csv(out.with_suffix(".csv"), rows)
    Console().print(f"picture in {out}, numbers in {table}", soft_wrap=True, markup=False)


def _lesson(length: int, hidden_size: int, gate_bias: float, seed: int):
    from .gradient_pictures import draw_lesson
    from .vanishing import vanishing_gradient_lesson

    found = vanishing_gradient_lesson(length=length, hidden_size=hidden_size, gate_bias=gate_bias, seed=seed)
    return found.rows(), draw_lesson(found)


def _one_text(name: str, text: str, target: str | None, loss_at: str):
    from .gradient_pictures import draw_gradient_flow
    from .gradient_texts import batch_of, load_with_head
    from .gradients import gradient_flow

    model, tokenizer = load_with_head(name)
    batch, tokens = batch_of(model, tokenizer, text, target)
    flow = gradient_flow(model, batch, loss_at)
    return flow.rows(), draw_gradient_flow(flow, tokens, title=f"Gradient flow in {Path(name).name}")
