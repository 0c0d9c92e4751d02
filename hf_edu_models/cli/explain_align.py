"""`hf-edu explain align`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .loading import read_corpus, read_model
from .options import BatchSize, DataOptions, Limit, Model, TrustRemoteCode, int_or

_DEFAULT_JOIN = "grow-diag"


def align(
    model: Model,
    source: Annotated[str | None, typer.Option(help="Source sentence; needs --target.")] = None,
    target: Annotated[str | None, typer.Option(help="Translation of --source.")] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Sentence pairs instead: a built-in corpus, file, folder or Hub dataset.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Split of the dataset; default test, or the only one.")] = None,
    source_language: Annotated[str | None, typer.Option(help="Source column or language of the dataset.")] = None,
    target_language: Annotated[str | None, typer.Option(help="Target column or language of the dataset.")] = None,
    option: DataOptions = None,
    limit: Limit = None,
    layer: Annotated[
        str, typer.Option(help="Decoder layer from 0 (-1 is the last), mean, or best on the --choose-on split.")
    ] = "-1",
    head: Annotated[str, typer.Option(help="Attention head from 0, or mean.")] = "mean",
    shift: Annotated[
        bool | None, typer.Option(help="Align a target word by the step at which it is the decoder's input.")
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="Minimum attention weight of a link.")] = None,
    choose_on: Annotated[str, typer.Option(help="Split with gold links for --layer best.")] = "validation",
    backward: Annotated[
        str | None, typer.Option(help="Model of the opposite direction; the links of both are symmetrised.")
    ] = None,
    join: Annotated[
        str | None,
        typer.Option(help="Symmetrisation for --backward: intersect, union, grow-diag (default) or grow-diag-final."),
    ] = None,
    batch_size: BatchSize = 32,
    out: Annotated[
        Path | None, typer.Option(help="Output file: .txt (0-0 1-2), .json (with weights), .png or .svg figure.")
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Align the words of translations by cross-attention; data with gold links is scored by alignment error rate."""
    from ..explain.alignment.links import reverse_links
    from ..explain.alignment.sentence_pairs import check_alignment_path, reverse_rows
    from ..explain.alignment.word_alignment import symmetrize

    check_alignment_path(out)
    _check_join(join, backward)
    corpus = _read_pairs(source, target, dataset, source_language, target_language, option)
    rows = _first_rows(corpus, split or (next(iter(corpus)) if len(corpus) == 1 else "test"), limit)
    options: dict[str, Any] = {"layer": int_or(layer, "layer", "mean", "best"), "head": int_or(head, "head", "mean")}
    options |= {"shift": shift, "threshold": threshold, "batch_size": batch_size}
    choosing = _first_rows(corpus, choose_on, limit) if layer == "best" else []
    found = _align(read_model(model, trust_remote_code), rows, choosing, options)
    links = {"attention": [each.links for each in found]}
    if backward is not None:
        back = _align(read_model(backward, trust_remote_code), reverse_rows(rows), reverse_rows(choosing), options)
        found = symmetrize(found, back, join or _DEFAULT_JOIN)
        links["attention, backward"] = [reverse_links(each.links) for each in back]
        links[f"joined by {join or _DEFAULT_JOIN}"] = [each.links for each in found]
    _report(found, links, rows, out)


def _check_join(join: str | None, backward: str | None) -> None:
    from ..explain.alignment.links import SYMMETRIZATIONS

    if join is not None and backward is None:
        raise ValueError("--join needs a second direction; give the model that translates back with --backward")
    if join is not None and join not in SYMMETRIZATIONS:
        raise ValueError(f"--join must be one of {', '.join(SYMMETRIZATIONS)}, got {join!r}")


def _read_pairs(
    source: str | None,
    target: str | None,
    dataset: str | None,
    source_language: str | None,
    target_language: str | None,
    option: list[str] | None,
) -> dict[str, Any]:
    """Rows by split; a pair from the command line is a test split of one row."""
    from ..data.named_values import named_values

    if (dataset is None) == (source is None and target is None):
        raise ValueError("give --source and --target with a sentence each, or --dataset; one of the two")
    if dataset is None:
        if source is None or target is None:
            raise ValueError("give --source and --target together: an alignment has two sides")
        return {"test": [{"source": source, "target": target}]}
    corpus = read_corpus(dataset, source=source_language, target=target_language, **named_values("option", option))
    names = next(iter(corpus.values())).column_names
    if not {"source", "target"} <= set(names):
        raise ValueError(f"{dataset} has the columns {', '.join(names)}; alignment needs source and target")
    return corpus


def _first_rows(corpus: dict[str, Any], split: str, limit: int | None) -> list[dict[str, Any]]:
    if split not in corpus:
        raise ValueError(f"the data has no split {split!r}; it has {', '.join(corpus)}")
    rows = corpus[split]
    return [rows[number] for number in range(min(len(rows), limit or len(rows)))]


def _align(
    loaded: tuple[Any, Any], rows: list[dict[str, Any]], choosing: list[dict[str, Any]], options: dict[str, Any]
) -> list[Any]:
    """Align the rows; `choosing` has the rows on which --layer best selects a layer."""
    from ..explain.alignment.word_alignment import align as align_words

    if options["layer"] == "best":
        options = options | _choose_layer(loaded, choosing, options)
    pairs = [row["source"] for row in rows], [row["target"] for row in rows]
    return align_words(*loaded, *pairs, **options | {"shift": bool(options["shift"])}, progress=True)


def _choose_layer(loaded: tuple[Any, Any], rows: list[dict[str, Any]], options: dict[str, Any]) -> dict[str, Any]:
    """The layer, and unless it is set the shift, with the lowest alignment error rate on held-out rows."""
    from ..explain.alignment.sentence_pairs import has_gold_links
    from ..explain.alignment.word_alignment import best_layer

    if not has_gold_links(rows):
        raise ValueError("--layer best needs a split with gold links (sure, possible); name it with --choose-on")
    scores = best_layer(
        *loaded, rows, **{name: options[name] for name in ("head", "threshold", "batch_size")}, progress=True
    )
    table = Table("layer", "target word is the", "aer", "precision", "recall", title="choosing a layer")
    for score in scores:
        step = "input" if score.shift else "output"
        table.add_row(str(score.layer), step, *_percent(score.aer, score.precision, score.recall))
    Console().print(table)
    best = next(score for score in scores if options["shift"] in (None, score.shift))
    return {"layer": best.layer, "shift": best.shift}


def _report(found: list[Any], links: dict[str, list[Any]], rows: list[dict[str, Any]], out: Path | None) -> None:
    """Print scores if there are gold links; save the links, or print them if nothing else is printed."""
    from ..explain.alignment.sentence_pairs import has_gold_links, save_alignments

    console = Console()
    if has_gold_links(rows):
        console.print(_score_table(found, links, rows))
    if out is not None:
        save_alignments(found, rows, out)
        console.print(Text(f"saved in {out}"))
    elif len(found) == 1:
        console.print(_link_table(found[0]))
    elif not has_gold_links(rows):
        print("\n".join(alignment.pharaoh() for alignment in found))


def _score_table(found: list[Any], links: dict[str, list[Any]], rows: list[dict[str, Any]]) -> Table:
    from ..explain.alignment.links import diagonal_links
    from ..explain.alignment.word_alignment import score_links

    diagonals = [diagonal_links(len(each.source), len(each.target)) for each in found]
    table = Table("links", "aer", "precision", "recall", title=f"{len(rows):,} sentence pairs")
    for name, chosen in (links | {"the diagonal": diagonals}).items():
        scores = score_links(chosen, rows)
        table.add_row(name, *_percent(scores["aer"], scores["precision"], scores["recall"]))
    return table


def _link_table(alignment: Any) -> Table:
    table = Table("target", "source", "attention", title=Text(alignment.pharaoh()))
    for j, word in enumerate(alignment.target):
        linked = [i for i, target in alignment.links if target == j]  # several, if two directions are joined
        weights = ", ".join(f"{alignment.weights[j, i]:.2f}" for i in linked)
        table.add_row(Text(word), Text(", ".join(alignment.source[i] for i in linked)), weights)
    return table


def _percent(*fractions: float) -> list[str]:
    return [f"{100 * fraction:.1f}" for fraction in fractions]
