"""The notebooks run from their first cell to their last and save the files that they name."""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from hf_edu_models import LADDER

FOLDER = Path(__file__).parents[2] / "recipes" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.py"), key=lambda file: file.name)
CELL = re.compile(r"^# %%(?P<kind>.*)$", flags=re.MULTILINE)
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def cells_of(notebook):
    """Kind (`code` or `markdown`) and content of each cell, by the format's own rule: a line `# %%` begins one."""
    _, *parts = CELL.split(notebook.read_text("utf-8"))
    kinds = ["markdown" if "[markdown]" in mark else "code" for mark in parts[::2]]
    return list(zip(kinds, parts[1::2], strict=True))


def code_of(notebook):
    return "\n".join(content for kind, content in cells_of(notebook) if kind == "code")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """What a notebook printed and the folder it ran in; each runs once, its code cells in order, in a new process."""
    kept = {}

    def run(notebook):
        if notebook not in kept:
            folder = tmp_path_factory.mktemp(notebook.stem)
            (folder / "cells.py").write_text(code_of(notebook), encoding="utf-8")
            quiet = {"HF_EDU_QUICK": "1", "HF_HUB_OFFLINE": "1", "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
            own_cache = {"HF_DATASETS_CACHE": str(folder / "cache"), "PYTHONIOENCODING": "utf-8"}
            done = subprocess.run(
                [sys.executable, "cells.py"],
                cwd=folder,
                env={**os.environ, **quiet, **own_cache},
                capture_output=True,
                text=True,
                encoding="utf-8",
            )
            assert done.returncode == 0, done.stderr
            kept[notebook] = done.stdout, folder
        return kept[notebook]

    return run


def pictures_named_in(code):
    """The files that a notebook's calls of `show` and `save_attention` name."""
    shown = re.findall(r'\bshow\(.*, "(\w+)"\)$', code, flags=re.MULTILINE)
    return {f"pictures/{name}.png" for name in shown}, set(re.findall(r'"(pictures/\w+\.html)"', code))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda file: file.stem)
def test_runs_and_leaves_the_pictures_and_pages_that_it_names(notebook, finished):
    printed, folder = finished(notebook)
    pictures, pages = pictures_named_in(code_of(notebook))
    assert len(pictures) >= 2 and len(pages) == 1
    for picture in pictures:
        assert (folder / picture).read_bytes().startswith(PNG_SIGNATURE)
        assert picture in printed  # outside Jupyter the path is printed
    for page in pages:
        text = (folder / page).read_text("utf-8")
        assert text.lstrip().lower().startswith("<!doctype html>") and "https://" not in text


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda file: file.stem)
def test_every_code_cell_follows_a_text(notebook):
    """Every code cell follows a text cell, and the README lists every notebook."""
    kinds = [kind for kind, _ in cells_of(notebook)]
    assert kinds[0] == kinds[-1] == "markdown"
    assert all(before == "markdown" for before, kind in pairwise(kinds) if kind == "code")
    for kind, content in cells_of(notebook):
        if kind == "markdown":
            assert all(line.startswith("#") for line in content.strip().splitlines())
    assert f"]({notebook.name})" in (FOLDER / "README.md").read_text("utf-8")


# The rungs that the notebook trains; a new one may join it.
SHOWN = ("feedforward", "recurrent", "seq2seq", "bahdanau", "transformer", "gpt", "bert")


def test_the_ladder_closes_with_a_row_for_each_rung(finished):
    printed, _ = finished(FOLDER / "ladder_in_ten_minutes.py")
    rows = [line.strip("| ").split(" | ") for line in printed.splitlines() if re.match(r"\| \d", line)]
    rungs = [rung for rung in LADDER if rung.name in SHOWN]
    assert [(row[0], row[1], row[3]) for row in rows] == [
        (str(n), each.name, each.idea) for n, each in enumerate(rungs, 1)
    ]
    assert all(re.search(r"\d", row[4]) for row in rows)  # a score that was measured


def test_the_ladder_names_every_paper_in_its_text():
    text = "".join(content for kind, content in cells_of(FOLDER / "ladder_in_ten_minutes.py") if kind == "markdown")
    for rung in (rung for rung in LADDER if rung.name in SHOWN):
        for year in re.findall(r"\d{4}", rung.paper):
            assert year in text
        assert rung.paper.split()[0] in text
