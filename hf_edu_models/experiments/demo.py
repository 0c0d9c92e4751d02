"""`hf-edu demo`: three rungs learn to normalise dates, in under three minutes on two cores and without a network."""

from __future__ import annotations

import runpy
import shlex
import shutil
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ..run_folder import read_predictions, read_results

DEMO_RUNGS = {
    "seq2seq": "one context vector for the whole source",
    "bahdanau": "attention over every source character",
    "transformer": "attention alone",
}
_EXPLAINED = "bahdanau"  # the rung whose attention is drawn, and which the last lines load


def run_demo(folder: Path, overwrite: bool = False, preset: str = "demo") -> None:
    """Train three rungs, compare them, draw the attention of one, and print how to load it.

    Args:
        preset: A preset of the recipes; `smoke` only checks that everything runs.
    """
    import torch

    console = Console()
    clear_demo_folder(folder, overwrite)
    torch.set_num_threads(1)  # models this small gain little from a second thread, and wait for it on a busy machine
    intro = (
        "Dates in many languages and formats become ISO dates, character by character.\n"
        "Three rungs of the ladder learn it from the same examples."
    )
    console.print(Panel(intro, title="hf-edu demo", expand=False))
    results = {rung: _train(rung, folder / rung, preset) for rung in DEMO_RUNGS}
    console.print(_score_table(results))
    example = find_example(folder)
    console.print(_example_table(example))
    files = ", ".join(map(str, _draw_attention(folder, example["source"])))
    console.print(Text(f"attention weights: {files}", style="green"), soft_wrap=True)
    page = _write_lab(folder, example["source"])
    console.print(
        Text(f"all three models in one page, to type, watch and change: {page}", style="green"), soft_wrap=True
    )
    console.print("\nEach run is a checkpoint with tokenizer, code and card. What to do next:\n")
    for purpose, command in next_commands(folder / _EXPLAINED, example["source"]).items():
        console.print(Text(f"# {purpose}", style="dim"), soft_wrap=True)
        console.print(Text(command, style="cyan"), soft_wrap=True)
    console.print("\nLoad it in Python:\n")
    lines = (
        "import hf_edu_models, transformers\n"
        f'model = transformers.AutoModelForSeq2SeqLM.from_pretrained("{folder / _EXPLAINED}")\n'
        f'tokenizer = transformers.AutoTokenizer.from_pretrained("{folder / _EXPLAINED}")'
    )
    console.print(Text(lines, style="cyan"), soft_wrap=True)


def next_commands(run: Path, text: str) -> dict[str, str]:
    """Commands that work as pasted, by their purpose."""
    folder, quoted = shlex.quote(str(run)), shlex.quote(text)
    return {
        "translate a date of your own": f"hf-edu translate {folder} 'Friday, May 3, 2030'",
        "put one model into a page that runs it": f"hf-edu lab {folder} --out lab.html",
        "see where it looks while it writes": f"hf-edu explain attention {folder} {quoted} --out map.html",
        "score it again, with confidence intervals": f"hf-edu evaluate {folder}",
        "train it for longer": "hf-edu train bahdanau --preset dates",
        "see what would be uploaded to the Hub": f"hf-edu push {folder} you/dates --dry-run",
        "see the other models": "hf-edu ladder",
    }


def clear_demo_folder(folder: Path, overwrite: bool) -> None:
    """Remove an earlier demo if `overwrite` is set; raise an error for a folder with anything else."""
    if not folder.exists() or not any(folder.iterdir()):
        return
    is_demo = {each.name for each in folder.iterdir()} <= {*DEMO_RUNGS, "attention.png", "attention.html", "lab.html"}
    if not overwrite or not is_demo:
        reason = "--overwrite replaces it" if is_demo else "it has other files"
        raise ValueError(f"{folder} is not empty ({reason}); choose another folder with --out")
    shutil.rmtree(folder)


def _train(rung: str, folder: Path, preset: str) -> dict[str, Any]:
    """Run a rung's recipe and return its results."""
    import datasets

    from ..training.arguments import parse_arguments
    from ..training.presets import find_recipe

    recipe = str(find_recipe(rung))
    arguments = ["--preset", preset, "--quiet", "--output_dir", str(folder)]
    datasets.disable_progress_bars()
    try:
        runpy.run_path(recipe, run_name="recipe")["main"](*parse_arguments(recipe, arguments))
    finally:
        datasets.enable_progress_bars()
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)  # a demo is not resumed
    return read_results(folder)


def _score_table(results: dict[str, dict[str, Any]]) -> Table:
    """One row for each rung: scores, size, training time."""
    size = next(iter(results.values()))["data"]["sizes"]["test"]
    table = Table("rung", "idea", title=f"test split: {size} unseen dates", title_justify="left")
    for name in ("exact match", "chrF", "parameters", "seconds"):
        table.add_column(name, justify="right")
    for rung, result in results.items():
        test = result["scores"]["test"]
        numbers = f"{test['exact_match']:.1%}", f"{test['chrf']:.1f}", f"{result['parameters']:,}"
        table.add_row(rung, DEMO_RUNGS[rung], *numbers, f"{result['seconds']:.0f}")
    return table


def find_example(folder: Path) -> dict[str, Any]:
    """The longest test date that only the context vector gets wrong, with the outputs of all three rungs.

    Other dates stand in for it where there is none: one that the context vector gets wrong, or any.
    """
    rows = {rung: read_predictions(folder / rung) for rung in DEMO_RUNGS}
    first, *others = DEMO_RUNGS

    def rank(number: int) -> tuple:
        correct = {rung: each[number]["prediction"] == each[number]["reference"] for rung, each in rows.items()}
        length = len(rows[first][number]["source"])
        return not correct[first], correct[_EXPLAINED], sum(correct[rung] for rung in others), length

    best = max(range(len(rows[first])), key=rank)
    row = rows[first][best]
    outputs = {rung: each[best]["prediction"] for rung, each in rows.items()}
    return {"source": row["source"], "reference": row["reference"], "outputs": outputs}


def _example_table(example: dict[str, Any]) -> Table:
    """One date, translated by all three: correct characters in green, wrong ones in red."""
    table = Table("rung", example["source"], "")
    for rung, output in example["outputs"].items():
        text = Text()
        for number, character in enumerate(output):
            is_correct = example["reference"][number : number + 1] == character
            text.append(character, style="green" if is_correct else "bold red")
        is_right = output == example["reference"]
        table.add_row(rung, text, Text("right", style="green") if is_right else Text("wrong", style="bold red"))
    table.add_row("reference", example["reference"], "", style="dim")
    return table


def _draw_attention(folder: Path, text: str) -> list[Path]:
    """The attention weights of one translation, as a picture and as a page."""
    from ..checkpoints import load_model
    from ..explain.attention.files import save_attention
    from ..explain.attention.maps import attention_maps

    maps = attention_maps(*load_model(str(folder / _EXPLAINED)), text, max_new_tokens=20)
    return [save_attention(maps, folder / f"attention{extension}") for extension in (".png", ".html")]


def _write_lab(folder: Path, text: str) -> Path:
    """The three models in one page, where they run."""
    from ..lab import build_lab

    return build_lab([folder / rung for rung in DEMO_RUNGS], folder / "lab.html", text=text).path
