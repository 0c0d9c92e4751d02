"""`hf-edu demo`: three rungs learn to read dates, side by side, in under three minutes on two cores and no network."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

RUNGS = {
    "seq2seq": "one vector holds the whole source",
    "bahdanau": "looks back at every character",
    "transformer": "attention alone",
}
SHOWN = "bahdanau"  # whose attention is drawn, and which the last lines load
SAMPLE = "Samstag, 16. November 2041"


def run_demo(folder: Path, overwrite: bool = False, preset: str = "demo") -> None:
    """Train the three, compare them, draw the attention of one, and say how to load it.

    Args:
        preset: another one of the recipes' presets; `smoke` only shows that everything runs.
    """
    console = Console()
    prepare(folder, overwrite)
    torch.set_num_threads(1)  # models this small gain little from a second one, and wait for it on a busy machine
    console.print(
        Panel(
            "Dates as people write them in many languages become ISO dates, one character after another.\n"
            "Three rungs of the ladder learn it from the same examples.",
            title="hf-edu demo",
            expand=False,
        )
    )
    results = {rung: train(rung, folder / rung, preset) for rung in RUNGS}
    console.print(comparison(results))
    console.print(translations(folder))
    pages = draw_attention(folder)
    console.print(Text("what the attention looked at: " + ", ".join(map(str, pages)), style="green"), soft_wrap=True)
    console.print("\nEach run is a checkpoint with tokenizer, code and card. Load one in Python:\n")
    console.print(Text(loading_lines(folder / SHOWN), style="cyan"), soft_wrap=True)


def prepare(folder: Path, overwrite: bool) -> None:
    """Never write over anything but an earlier demo, and that only if told to."""
    if not folder.exists() or not any(folder.iterdir()):
        return
    is_demo = {each.name for each in folder.iterdir()} <= {*RUNGS, "attention.png", "attention.html"}
    if not overwrite or not is_demo:
        allowed = "--overwrite replaces it" if is_demo else "it holds other things"
        raise ValueError(f"{folder} is not empty ({allowed}); choose another folder with --out")
    shutil.rmtree(folder)


def train(rung: str, folder: Path, preset: str) -> dict[str, Any]:
    """Run a rung's recipe with a preset, and read what it wrote."""
    import datasets

    from .training.arguments import parse_arguments
    from .training.presets import find_recipe
    from .training.run_folder import read_results

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


def comparison(results: dict[str, dict[str, Any]]) -> Table:
    """One row a rung: what it got right, how large it is, how long it took."""
    held_out = next(iter(results.values()))["data"]["sizes"]["test"]
    table = Table("rung", "idea", title=f"{held_out} dates that none of them had seen", title_justify="left")
    for name in ("exact match", "chrF", "parameters", "seconds"):
        table.add_column(name, justify="right")
    for rung, result in results.items():
        test = result["scores"]["test"]
        numbers = f"{test['exact_match']:.1%}", f"{test['chrf']:.1f}", f"{result['parameters']:,}"
        table.add_row(rung, RUNGS[rung], *numbers, f"{result['seconds']:.0f}")
    return table


def translations(folder: Path) -> Table:
    """One date through all three."""
    table = Table("rung", SAMPLE)
    for rung in RUNGS:
        table.add_row(rung, translate(folder / rung, SAMPLE))
    return table


def translate(folder: Path, text: str) -> str:
    model, tokenizer = load(folder)
    ids = model.generate(**tokenizer(text, return_tensors="pt").to(model.device), max_new_tokens=20)
    return tokenizer.decode(ids[0], skip_special_tokens=True)


def load(folder: Path) -> tuple[Any, Any]:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    return AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def draw_attention(folder: Path) -> list[Path]:
    """The map of one translation as a picture and as a page."""
    from .explain.attention import attention_maps
    from .explain.attention_files import save_attention

    maps = attention_maps(*load(folder / SHOWN), SAMPLE, max_new_tokens=20)
    return [save_attention(maps, folder / f"attention{ending}") for ending in (".png", ".html")]


def loading_lines(folder: Path) -> str:
    return (
        "import hf_edu_models, transformers\n"
        f'model = transformers.AutoModelForSeq2SeqLM.from_pretrained("{folder}")\n'
        f'tokenizer = transformers.AutoTokenizer.from_pretrained("{folder}")'
    )
