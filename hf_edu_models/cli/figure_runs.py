"""`hf-edu figure`: the lessons about finished runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from .figure import Dataset, print_table, save_figure_and_values
from .figure_trained import app
from .loading import read_corpus
from .options import FigureAndTable, Model, Seed, Split, TrustRemoteCode

Runs = Annotated[list[str], typer.Argument(help="Language models: runs, checkpoints or Hub ids.")]
Texts = Annotated[str, typer.Option(help="Texts: a built-in corpus, file, folder or Hub dataset.")]


@app.command()
def reach(
    runs: Runs,
    dataset: Texts = "stories",
    split: Split = "test",
    length: Annotated[int, typer.Option(help="Number of tokens of each text.", min=2)] = 64,
    texts: Annotated[int, typer.Option(help="Number of texts.", min=2)] = 40,
    out: FigureAndTable = Path("reach.png"),
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """How far back models see: the change of their predictions by distance from a token that is replaced."""
    from ..checkpoints import load_with_head
    from ..experiments.reach import draw_reach, token_texts
    from ..experiments.reach import reach as measure
    from ..plotting import check_picture_path

    check_picture_path(out)
    names, corpus = _names(runs), _read_split(dataset, split)
    changes = {}
    for run in runs:
        with Console().status(f"reading with {run}"):
            model, tokenizer = load_with_head(run, trust_remote_code)
            changes[names[run]] = measure(model, token_texts(tokenizer, corpus["text"], length, texts))
    rows = [
        {"model": name, "distance": distance, "change": float(change)}
        for name, values in changes.items()
        for distance, change in enumerate(values, start=1)
    ]
    shown = {1, 2, 3, 5, 10, 20, 50, length}
    print_table([row | {"change": f"{row['change']:.1e}"} for row in rows if row["distance"] in shown], tuple(rows[0]))
    about = f"{texts} texts of {length} tokens at most, {dataset}, {split}. A line ends where nothing changes."
    save_figure_and_values(draw_reach(changes, about), rows, out)


@app.command()
def context(
    runs: Runs,
    dataset: Texts = "stories",
    split: Split = "test",
    longest: Annotated[int, typer.Option(help="Number of tokens of the longest context.", min=2)] = 128,
    texts: Annotated[int, typer.Option(help="Number of tokens to predict.", min=2)] = 500,
    segment: Annotated[
        int | None,
        typer.Option(help="Read in segments of so many tokens, each with the memory of those before.", min=1),
    ] = None,
    out: FigureAndTable = Path("context.png"),
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """What a longer context is worth: the perplexity of the same tokens, given 1, 2, 4, ... tokens before them."""
    from ..checkpoints import length_limit, load_with_head
    from ..experiments.reach import draw_contexts, effective_context, losses_by_context, token_windows
    from ..plotting import check_picture_path

    check_picture_path(out)
    names, corpus = _names(runs), _read_split(dataset, split)
    contexts = [2**power for power in range(longest.bit_length())]
    losses: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    for run in runs:
        with Console().status(f"reading with {run}"):
            model, tokenizer = load_with_head(run, trust_remote_code)
            windows = token_windows(tokenizer, corpus, contexts[-1] + 1, texts)
            lengths = [each for each in contexts if each <= (length_limit(model.config, tokenizer) or each)]
            losses[names[run]] = values = losses_by_context(model, windows, lengths, segment)
        row: dict[str, Any] = {"model": names[run], "effective context": effective_context(lengths, values)}
        rows += [
            row | {"context": each, "perplexity": math.exp(loss)} for each, loss in zip(lengths, values, strict=True)
        ]
    print_table(rows, ("model", "context", "perplexity", "effective context"))
    about = f"{len(windows)} tokens, {dataset}, {split}. A dot: the longest context that lowers the perplexity by 1%."
    save_figure_and_values(draw_contexts(contexts, losses, about), rows, out)


def _names(runs: list[str]) -> dict[str, str]:
    """What each run is called in a figure: its folder's name, if no other has it."""
    if len(set(runs)) < len(runs):
        raise ValueError("a run is listed twice; list each once")
    names = [Path(run).name for run in runs]
    return dict(zip(runs, runs if len(set(names)) < len(runs) else names, strict=True))


def _read_split(dataset: str, split: str) -> Any:
    corpus = read_corpus(dataset, task=None if dataset == "stories" else "language_modeling")
    if split not in corpus:
        raise ValueError(f"{dataset} has no split {split!r}; it has {', '.join(corpus)}")
    return corpus[split]


@app.command()
def landscape(
    run: Model,
    dataset: Dataset = None,
    split: Split = "validation",
    rows: Annotated[int, typer.Option(help="Number of examples whose loss is computed.", min=1)] = 64,
    points: Annotated[int, typer.Option(help="Points of each axis, an odd number.")] = 21,
    distance: Annotated[float, typer.Option(help="How far to go; 1 is as far as the weights are from zero.")] = 1.0,
    seed: Seed = 0,
    out: FigureAndTable = Path("landscape.png"),
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """The loss around the weights of a run, along two filter-normalised directions (Li et al. 2018)."""
    from ..experiments.landscape import draw_landscape
    from ..experiments.landscape import landscape as measure
    from ..plotting import check_picture_path
    from ..training.evaluate_checkpoint import EvaluationRequest, read_batch

    check_picture_path(out)
    console = Console()
    with console.status(f"computing {points} x {points} losses of {run}"):
        request = EvaluationRequest(run, dataset, split, limit=rows, trust_remote_code=trust_remote_code)
        model, batch = read_batch(request)
        found = measure(model, batch, points, distance, seed)
    console.print(
        f"loss {found.center:.4g} at the weights, {found.losses.min():.4g} to {found.losses.max():.4g} around"
    )
    about = f"{len(batch['labels'])} examples of {split}, seed {seed}."
    save_figure_and_values(draw_landscape(found, f"Loss around {Path(run).name}", about), found.rows(), out)
