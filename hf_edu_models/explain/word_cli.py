"""`hf-edu explain positions`, `neighbours`, `contexts` and `probe`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

ModelName = Annotated[str, typer.Argument(help="A run's folder, a checkpoint's folder, or a Hub id.")]
RemoteCode = Annotated[bool, typer.Option("--trust-remote-code", help="Run the checkpoint's code.")]
Picture = Annotated[Path, typer.Option(help="A .png or .svg picture.")]


def positions(
    out: Picture,
    model: Annotated[str | None, typer.Argument(help="A model, for its own vectors; or give --size.")] = None,
    size: Annotated[int | None, typer.Option(help="Sinusoids of this size, without a model.")] = None,
    length: Annotated[
        int | None, typer.Option(help="How many positions; default 100, or as many as there are.")
    ] = None,
    trust_remote_code: RemoteCode = False,
) -> None:
    """Draw the vectors that tell positions apart, and the dot product of every two."""
    from .figure_style import check_picture_path, save_figure
    from .positions import count_positions, draw_positions, position_vectors

    check_picture_path(out)
    if (model is None) == (size is None):
        raise ValueError("give a model, for its own positions, or --size, for sinusoids; one of the two")
    origin: Any = size
    if model is not None:
        origin = load(model, trust_remote_code)[0]
        length = length or min(100, count_positions(origin))
    vectors = position_vectors(origin, length or 100)
    title = f"sinusoids of size {size}" if model is None else f"positions of {Path(model).name}"
    save_figure(draw_positions(vectors, title), out)
    Console().print(Text(f"{vectors.shape[0]} positions x {vectors.shape[1]} dimensions, saved in {out}"))


def neighbours(
    model: ModelName,
    word: Annotated[str, typer.Argument(help="One word.")],
    count: Annotated[int, typer.Option("--count", "-k", help="How many.")] = 10,
    trust_remote_code: RemoteCode = False,
) -> None:
    """List the words whose vectors in the model's table are nearest to a word's."""
    from .embeddings import nearest

    found = nearest(*load(model, trust_remote_code), word, count)
    table = Table("nearest", "token", "cosine", title=Text(f"{word}: {' '.join(found.tokens)}"))
    for each in found.neighbours:
        table.add_row(Text(each.text), Text(each.token), f"{each.similarity:.3f}")
    Console().print(table)


def contexts(
    model: ModelName,
    word: Annotated[str, typer.Argument(help="A word that is in every sentence.")],
    sentences: Annotated[list[str], typer.Argument(help="Two sentences or more, each in quotes.")],
    layer: Annotated[str, typer.Option(help="A layer, 0 the embeddings, -1 the last; or static, the table.")] = "-1",
    out: Annotated[Path | None, typer.Option(help="A .png or .svg picture.")] = None,
    trust_remote_code: RemoteCode = False,
) -> None:
    """Compare the vectors that one word has in several sentences."""
    from .alignment_cli import number_or
    from .embeddings import draw_contexts, in_contexts
    from .figure_style import check_picture_path, save_figure

    if out is not None:
        check_picture_path(out)
    chosen = number_or(layer, "layer", "static")
    found = in_contexts(*load(model, trust_remote_code), word, sentences, chosen)
    places = range(1, len(found.sentences) + 1)
    table = Table("", "cosine with", *map(str, places), title=Text(f"{word}, layer {layer}"))
    for place, sentence, row in zip(places, found.sentences, found.similarities, strict=True):
        table.add_row(str(place), Text(sentence), *(f"{value:.2f}" for value in row))
    Console().print(table)
    if out is not None:
        save_figure(draw_contexts(found, f"'{word}' in {len(places)} contexts, layer {layer}"), out)
        Console().print(Text(f"saved in {out}"))


def probe(
    model: ModelName,
    dataset: Annotated[str, typer.Option(help="Words with tags: a file or folder, or a Hub id.")],
    tags: Annotated[str | None, typer.Option(help="The column of labels, where there are several.")] = None,
    config: Annotated[str | None, typer.Option(help="Configuration of a Hub data set.")] = None,
    layer: Annotated[list[int] | None, typer.Option(help="Only this layer, as often as needed; 0 embeddings.")] = None,
    train_size: Annotated[int, typer.Option(help="Sentences to learn from.")] = 1_000,
    test_size: Annotated[int, typer.Option(help="Sentences to be judged on.")] = 500,
    seed: Annotated[int, typer.Option(help="Which sentences, and which random labels for the control.")] = 0,
    batch_size: Annotated[int, typer.Option(help="Sentences at once.")] = 32,
    out: Annotated[Path | None, typer.Option(help="A .png or .svg picture, or .json numbers.")] = None,
    trust_remote_code: RemoteCode = False,
) -> None:
    """Fit a linear probe for token labels on every layer of a frozen model."""
    from .alignment_cli import load_data
    from .probing import check_probe_path, save_probe
    from .probing import probe as probe_layers

    if out is not None:
        check_probe_path(out)
    columns = None if tags is None else {"tags": tags}
    corpus = load_data(dataset, task="token_classification", columns=columns, config=config)
    sizes = {"train_size": train_size, "test_size": test_size, "batch_size": batch_size, "seed": seed}
    result = probe_layers(*load(model, trust_remote_code), corpus, layers=layer or "all", **sizes, progress=True)
    show_probe(result)
    if out is not None:
        save_probe(result, out, f"{Path(dataset).name}: what the layers of {Path(model).name} know")
        Console().print(Text(f"saved in {out}"))


def show_probe(result: Any) -> None:
    table = Table("layer", "accuracy", "macro F1", "control", "selectivity")
    for each in result.layers:
        values = (each.accuracy, each.macro_f1, each.control, each.selectivity)
        table.add_row(str(each.layer), *(f"{100 * value:.1f}" for value in values))
    Console().print(table)
    known = f"each word's usual label: {100 * result.majority_by_word:.1f}"
    Console().print(f"the most frequent label: {100 * result.majority:.1f}; {known}")


def load(model: str, trust_remote_code: bool) -> tuple[Any, Any]:
    from .loading import load_model

    with Console().status(f"loading {model}"):
        return load_model(model, trust_remote_code)
