"""`hf-edu explain align`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .links import JOINS, diagonal_links, turned

ENDINGS = (".txt", ".json", ".png", ".svg")
USUAL = "grow-diag"


def align(
    model: Annotated[str, typer.Argument(help="A run's folder, a checkpoint's folder, or a Hub id.")],
    source: Annotated[str | None, typer.Option(help="A sentence, with --target its translation.")] = None,
    target: Annotated[str | None, typer.Option(help="The translation of --source.")] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Instead: a built-in task, a file or folder, or a Hub id.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Which part of the data; default test, or the only one.")] = None,
    source_language: Annotated[str | None, typer.Option(help="Column or language of the data to go from.")] = None,
    target_language: Annotated[str | None, typer.Option(help="Column or language of the data to go to.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="name=value of a built-in task, often as needed.")] = None,
    limit: Annotated[int | None, typer.Option(help="At most so many sentence pairs.")] = None,
    layer: Annotated[str, typer.Option(help="A layer from 0 (-1 the last), mean, or best on --choose-on.")] = "-1",
    head: Annotated[str, typer.Option(help="A head from 0, or mean.")] = "mean",
    shift: Annotated[
        bool | None, typer.Option(help="Read the weights where the target word is the decoder's input.")
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="No link below this weight.")] = None,
    choose_on: Annotated[str, typer.Option(help="The split with gold links to choose a layer on.")] = "validation",
    backward: Annotated[
        str | None, typer.Option(help="A model that translates back: links are those of both, joined.")
    ] = None,
    join: Annotated[str | None, typer.Option(help=f"With --backward: {', '.join(JOINS)} (default {USUAL}).")] = None,
    batch_size: Annotated[int, typer.Option(help="Sentence pairs at once.")] = 32,
    out: Annotated[Path | None, typer.Option(help=".txt (0-0 1-2), .json (with weights), .png or .svg.")] = None,
    trust_remote_code: Annotated[bool, typer.Option("--trust-remote-code", help="Run the checkpoint's code.")] = False,
) -> None:
    """Link the words of translations by what the model looks at, and score the links where the data has gold ones."""
    from .alignment import symmetrize

    check_out(out)
    check_join(join, backward)
    corpus = read_pairs(source, target, dataset, source_language, target_language, option)
    rows = take(corpus, split or default_split(corpus), limit)
    console = Console()
    how: dict[str, Any] = {"layer": number_or(layer, "layer", "mean", "best"), "head": number_or(head, "head", "mean")}
    how |= {"shift": shift, "threshold": threshold, "batch_size": batch_size}
    chosen_on = take(corpus, choose_on, limit) if layer == "best" else []
    found = read_links(console, model, rows, chosen_on, how, trust_remote_code)
    links = {"attention": [each.links for each in found]}
    if backward is not None:
        back = read_links(console, backward, turned_rows(rows), turned_rows(chosen_on), how, trust_remote_code)
        found = symmetrize(found, back, join or USUAL)
        links |= {"attention, back": [turned(each.links) for each in back]}
        links |= {f"joined by {join or USUAL}": [each.links for each in found]}
    report(console, found, links, rows, out)


def read_links(
    console: Console,
    name: str,
    rows: list[dict[str, Any]],
    chosen_on: list[dict[str, Any]],
    how: dict[str, Any],
    trust_remote_code: bool,
) -> list[Any]:
    """Load a model and align the rows by it.

    Args:
        chosen_on: the rows on which to choose a layer, where that is asked for.
    """
    from .alignment import align as align_words
    from .loading import load_model

    with console.status(f"loading {name}"):
        loaded, tokenizer = load_model(name, trust_remote_code)
    if how["layer"] == "best":
        how = how | choose_layer(console, loaded, tokenizer, chosen_on, how)
    pairs = [row["source"] for row in rows], [row["target"] for row in rows]
    return align_words(loaded, tokenizer, *pairs, **how | {"shift": bool(how["shift"])}, progress=True)


def turned_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same pairs for a model that translates back."""
    gold = [{name: turned(row[name]) for name in ("sure", "possible") if name in row} for row in rows]
    return [{"source": row["target"], "target": row["source"]} | links for row, links in zip(rows, gold, strict=True)]


def read_pairs(
    source: str | None,
    target: str | None,
    dataset: str | None,
    source_language: str | None,
    target_language: str | None,
    option: list[str] | None,
) -> dict[str, Any]:
    """Rows by split; a pair from the command line is a data set of one row, whatever the split."""
    from ..data.named_values import named_values

    if (dataset is None) == (source is None and target is None):
        raise ValueError("give --source and --target with a sentence each, or --dataset; one of the two")
    if dataset is None:
        if source is None or target is None:
            raise ValueError("give --source and --target together: an alignment has two sides")
        return {"test": [{"source": source, "target": target}]}
    options = named_values("option", option)
    corpus = load_data(dataset, source=source_language, target=target_language, **options)
    names = next(iter(corpus.values())).column_names
    if not {"source", "target"} <= set(names):
        raise ValueError(f"{dataset} has the columns {', '.join(names)}; alignment needs source and target")
    return corpus


def load_data(name: str, **options: Any) -> Any:
    """A corpus; an option that it does not take is the user's mistake, on a command line."""
    from ..data import load_corpus

    try:
        return load_corpus(name, **options)
    except TypeError as problem:
        raise ValueError(str(problem)) from None


def take(corpus: dict[str, Any], split: str, limit: int | None) -> list[dict[str, Any]]:
    if split not in corpus:
        raise ValueError(f"the data has no split {split!r}; it has {', '.join(corpus)}")
    if limit is not None and limit < 1:
        raise ValueError(f"--limit must be at least 1, got {limit}")
    rows = corpus[split]
    return [rows[number] for number in range(min(len(rows), limit or len(rows)))]


def default_split(corpus: dict[str, Any]) -> str:
    return next(iter(corpus)) if len(corpus) == 1 else "test"


def has_gold(rows: list[dict[str, Any]]) -> bool:
    return bool(rows) and {"sure", "possible"} <= set(rows[0])


def choose_layer(
    console: Console,
    model: Any,
    tokenizer: Any,
    rows: list[dict[str, Any]],
    how: dict[str, Any],
) -> dict[str, Any]:
    """The layer, and unless it is given the reading, with the lowest error on other rows than those to be scored."""
    from .alignment import best_layer

    if not has_gold(rows):
        raise ValueError(
            "--layer best needs a split with gold links (sure, possible) to choose on; name it --choose-on"
        )
    options = {name: how[name] for name in ("head", "threshold", "batch_size")}
    scores = best_layer(model, tokenizer, rows, **options, progress=True)
    table = Table("layer", "read where the word is", "aer", "precision", "recall", title="choosing a layer")
    for score in scores:
        reading = "input" if score.shift else "output"
        table.add_row(str(score.layer), reading, *percent(score.aer, score.precision, score.recall))
    console.print(table)
    best = next(score for score in scores if how["shift"] in (None, score.shift))
    return {"layer": best.layer, "shift": best.shift}


def report(
    console: Console, found: list[Any], links: dict[str, list[Any]], rows: list[dict[str, Any]], out: Path | None
) -> None:
    """Scores where there are gold links; the links into a file, or on the screen where nothing else is said."""
    if has_gold(rows):
        console.print(score_table(found, links, rows))
    if out is not None:
        write(found, rows, out)
        console.print(Text(f"saved in {out}"))
    elif len(found) == 1:
        console.print(link_table(found[0]))
    elif not has_gold(rows):
        print("\n".join(alignment.pharaoh() for alignment in found))


def score_table(found: list[Any], links: dict[str, list[Any]], rows: list[dict[str, Any]]) -> Table:
    from .alignment import score_links

    diagonals = [diagonal_links(len(each.source), len(each.target)) for each in found]
    table = Table("links", "aer", "precision", "recall", title=f"{len(rows):,} sentence pairs")
    for name, chosen in (links | {"the diagonal": diagonals}).items():
        scores = score_links(chosen, rows)
        table.add_row(name, *percent(scores["aer"], scores["precision"], scores["recall"]))
    return table


def link_table(alignment: Any) -> Table:
    table = Table("target", "source", "attention", title=Text(alignment.pharaoh()))
    for j, word in enumerate(alignment.target):
        linked = [i for i, target in alignment.links if target == j]  # joined links may be several
        weights = ", ".join(f"{alignment.weights[j, i]:.2f}" for i in linked)
        table.add_row(Text(word), Text(", ".join(alignment.source[i] for i in linked)), weights)
    return table


def write(found: list[Any], rows: list[dict[str, Any]], out: Path) -> None:
    from .alignment_pictures import draw_alignments, how_many_fit
    from .figure_style import save_figure

    out.parent.mkdir(parents=True, exist_ok=True)
    ending = out.suffix.lower()
    if ending == ".txt":
        out.write_text("".join(f"{alignment.pharaoh()}\n" for alignment in found), encoding="utf-8")
    elif ending == ".json":
        text = json.dumps([alignment.to_dict() for alignment in found], ensure_ascii=False)
        out.write_text(f"{text}\n", encoding="utf-8")
    else:
        count = how_many_fit(found)
        save_figure(draw_alignments(found[:count], rows[:count] if has_gold(rows) else None), out)


def check_out(out: Path | None) -> None:
    """Before the work, not after it."""
    if out is not None and out.suffix.lower() not in ENDINGS:
        raise ValueError(f"{out} must end in one of {', '.join(ENDINGS)}")


def check_join(join: str | None, backward: str | None) -> None:
    if join is not None and backward is None:
        raise ValueError("--join is for two directions; give the model that translates back with --backward")
    if join is not None and join not in JOINS:
        raise ValueError(f"--join must be one of {', '.join(JOINS)}; got {join!r}")


def number_or(text: str, name: str, *words: str) -> int | str:
    if text in words:
        return text
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"--{name} must be a whole number or {' or '.join(words)}; got {text!r}") from None


def percent(*shares: float) -> list[str]:
    return [f"{100 * share:.1f}" for share in shares]
