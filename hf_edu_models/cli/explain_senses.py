"""`hf-edu explain senses`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .loading import read_model
from .options import BatchSize, Model, OptionalFigure, Seed, TrustRemoteCode


def senses(
    model: Model,
    word: Annotated[str | None, typer.Argument(help="Word whose senses are compared; default all of the data.")] = None,
    dataset: Annotated[
        str,
        typer.Option(help="Sentences with the senses of words, or pairs of sentences (WiC): a file, folder or Hub id."),
    ] = "",
    config: Annotated[str | None, typer.Option(help="Configuration of a Hub dataset.")] = None,
    layer: Annotated[int | None, typer.Option(help="Layer to draw; default the best one.", min=0)] = None,
    method: Annotated[str, typer.Option(help="pca or tsne.")] = "pca",
    limit: Annotated[int, typer.Option(help="At most so many sentences of each sense.", min=1)] = 100,
    seed: Seed = 0,
    batch_size: BatchSize = 32,
    out: OptionalFigure = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Tell the senses of a word apart by its vectors: static ones beside those of each layer.

    hf-edu explain senses runs/bert_pretrain-wikitext bank --dataset my/coarsewsd20 --out bank.png

    hf-edu explain senses runs/bert_pretrain-wikitext --dataset my/wic
    """
    from ..data import load_splits
    from ..explain.words.maps import check_method
    from ..explain.words.senses import draw_senses, read_occurrences, score_pairs, senses_of
    from ..plotting import check_picture_path, save_figure

    if not dataset:
        raise ValueError("give --dataset with sentences and senses, such as CoarseWSD-20 or WiC")
    check_method(method)
    if out is None and layer is not None:
        raise ValueError("--layer chooses what is drawn; give --out, as in: senses RUN bank --out bank.png")
    if out is not None:
        check_picture_path(out)
        if word is None:
            raise ValueError("--out draws the senses of one word; give it, as in: senses RUN bank --out bank.png")
    splits = load_splits(dataset, config)
    test = next((splits[name] for name in ("test", "validation") if name in splits), None)
    if "train" not in splits or test is None:
        raise ValueError(f"{dataset} has the splits {', '.join(splits)}; senses need train, and test or validation")
    loaded = read_model(model, trust_remote_code)
    options: dict[str, Any] = {"batch_size": batch_size, "progress": True}
    if "sentence2" in test.column_names:
        if word is not None:
            raise ValueError(f"{dataset} has pairs of sentences, which are scored together; leave out {word!r}")
        _print_pairs(score_pairs(*loaded, list(splits["train"]), list(test), **options))
        return
    known, asked = (read_occurrences(rows, word) for rows in (splits["train"], test))
    if not known:
        raise ValueError(f"{dataset} has no sentence of {word!r}; it has {', '.join(read_occurrences(test))}")
    options |= {"limit": limit, "seed": seed}
    found = [senses_of(*loaded, each, known[each], asked.get(each, []), **options) for each in known]
    _print_senses(found)
    if out is not None:
        save_figure(draw_senses(found[0], layer, method, f"senses of '{word}' in {Path(model).name}"), out)
        Console().print(Text(f"saved in {out}"))


def _print_senses(found: list[Any]) -> None:
    """Rows of vectors for one word, rows of words for several."""
    names = list(found[0].accuracies)
    labels = ["guessing", *(name if name[0] == "s" else f"layer {name}" for name in names)]
    values = [[each.majority, *(each.accuracies[name] for name in names)] for each in found]
    if len(found) == 1:
        table = Table("vectors", "accuracy", title=Text(f"{found[0].word}, {len(set(found[0].senses))} senses"))
        for label, value in zip(labels, values[0], strict=True):
            table.add_row(label, f"{100 * value:.1f}")
    else:
        table = Table("word", "senses", *labels)
        for each, row in zip(found, values, strict=True):
            table.add_row(Text(each.word), str(len(set(each.senses))), *(f"{100 * value:.1f}" for value in row))
        columns = zip(*values, strict=True)
        table.add_row("mean", "", *(f"{100 * sum(column) / len(found):.1f}" for column in columns))
    Console().print(table)
    Console().print("accuracy of the nearest centroid, mean over the senses")


def _print_pairs(scores: Any) -> None:
    table = Table("vectors", "accuracy", "threshold of the cosine")
    for name, accuracy in scores.accuracies.items():
        label = name if name[0] == "s" else f"layer {name}"
        table.add_row(label, f"{100 * accuracy:.1f}", f"{scores.thresholds[name]:.3f}")
    Console().print(table)
    sizes = f"{scores.train_size:,} training pairs, {scores.test_size:,} test pairs"
    Console().print(f"majority class: {100 * scores.majority:.1f}; {sizes}")
