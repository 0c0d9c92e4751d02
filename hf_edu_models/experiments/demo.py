"""`hf-edu demo`: three rungs learn to normalise dates, in under three minutes on two cores and without a network."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

DEMO_RUNGS = {
    "seq2seq": "one context vector for the whole source",
    "bahdanau": "attention over every source character",
    "transformer": "attention alone",
}
SAMPLE = "Samstag, 16. November 2041"
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
    console.print(_translation_table(folder))
    files = ", ".join(map(str, _draw_attention(folder)))
    console.print(Text(f"attention weights: {files}", style="green"), soft_wrap=True)
    console.print("\nEach run is a checkpoint with tokenizer, code and card. Load one in Python:\n")
    lines = (
        "import hf_edu_models, transformers\n"
        f'model = transformers.AutoModelForSeq2SeqLM.from_pretrained("{folder / _EXPLAINED}")\n'
        f'tokenizer = transformers.AutoTokenizer.from_pretrained("{folder / _EXPLAINED}")'
    )
    console.print(Text(lines, style="cyan"), soft_wrap=True)


def clear_demo_folder(folder: Path, overwrite: bool) -> None:
    """Remove an earlier demo if `overwrite` is set; raise an error for a folder with anything else."""
    if not folder.exists() or not any(folder.iterdir()):
        return
    is_demo = {each.name for each in folder.iterdir()} <= {*DEMO_RUNGS, "attention.png", "attention.html"}
    if not overwrite or not is_demo:
        reason = "--overwrite replaces it" if is_demo else "it has other files"
        raise ValueError(f"{folder} is not empty ({reason}); choose another folder with --out")
    shutil.rmtree(folder)


def _train(rung: str, folder: Path, preset: str) -> dict[str, Any]:
    """Run a rung's recipe and return its results."""
    import datasets

    from ..run_folder import read_results
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


def _translation_table(folder: Path) -> Table:
    """One date, translated by all three."""
    from ..checkpoints import load_model

    table = Table("rung", SAMPLE)
    for rung in DEMO_RUNGS:
        model, tokenizer = load_model(str(folder / rung))
        ids = model.generate(**tokenizer(SAMPLE, return_tensors="pt").to(model.device), max_new_tokens=20)
        table.add_row(rung, tokenizer.decode(ids[0], skip_special_tokens=True))
    return table


def _draw_attention(folder: Path) -> list[Path]:
    """The attention weights of one translation, as a picture and as a page."""
    from ..checkpoints import load_model
    from ..explain.attention.files import save_attention
    from ..explain.attention.maps import attention_maps

    maps = attention_maps(*load_model(str(folder / _EXPLAINED)), SAMPLE, max_new_tokens=20)
    return [save_attention(maps, folder / f"attention{extension}") for extension in (".png", ".html")]
