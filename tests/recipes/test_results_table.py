"""Tables of results: one per task, seeds are one row, the best is bold, and every figure is that of its run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "recipes" / "benchmarks" / "results_table.py"


def write_run(folder, seed, score, metric="bleu", splits=("test", "validation"), published=(), command=None, bar=None):
    scores = {metric: score, f"{metric}_interval": [score - 0.25, score + 0.25]}
    results = {
        "model_type": "edu_bahdanau",
        "architecture": "EduBahdanauForConditionalGeneration",
        "command": command or f"python recipes/2015_bahdanau.py --preset dates --seed {seed} --max_tokens 512",
        "data": {"name": "dates"} if metric == "accuracy" else {"name": "dates", "source": "de", "target": "en"},
        "parameters": 1234567,
        "seconds": 90 + 60 * seed,
        "seed": seed,
        "machine": {"device": "cpu", "threads": 2, "processes": 1},
        "main_score": metric,
        "scores": dict.fromkeys(splits, scores),
        "samples": [],
        "published": list(published),
    } | ({"bar": bar} if bar else {})
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps(results), encoding="utf-8")
    return folder


def table(*folders, arguments=()):
    command = [sys.executable, str(SCRIPT), *map(str, folders), *arguments]
    shown = subprocess.run(command, capture_output=True, text=True)
    return shown.returncode, shown.stdout, shown.stderr


@pytest.fixture
def runs(tmp_path):
    published = {
        "system": "a tutorial",
        "score": 28.3,
        "metric": "bleu",
        "source": "somewhere",
        "note": "greedy search",
    }
    first = write_run(tmp_path / "a", 1, 30.0, published=[published])
    return first, write_run(tmp_path / "b", 2, 33.0), write_run(tmp_path / "c", 1, 0.5, "accuracy", ("validation",))


def cells(line):
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_seeds_are_one_row_and_each_task_a_table(runs):
    code, out, _ = table(*runs)
    translation, classes = (each.splitlines() for each in out.strip().split("\n\n#### "))
    assert code == 0
    assert translation[0] == "#### dates de-en, test" and classes[0] == "dates, validation"
    names = cells(translation[2])
    ours, published = (dict(zip(names, cells(line), strict=True)) for line in translation[4:])
    assert (ours["bleu"], ours["interval or seeds"]) == ("**31.5**", "30.0 to 33.0 (seeds 1, 2)")
    assert (ours["minutes"], ours["cores"]) == ("2 / 4", "2")
    assert "<code>python recipes/2015_bahdanau.py --preset dates --max_tokens 512</code>" in ours["run"]
    assert (published["model"], published["bleu"]) == ("published: a tutorial", "28.3")
    assert published["run"] == "not like for like: greedy search"
    only = dict(zip(cells(classes[2]), cells(classes[4]), strict=True))
    assert (only["accuracy"], only["interval or seeds"]) == ("**50.0%**", "25.0% to 75.0% (seed 1)")


def test_the_best_is_bold_and_low_perplexity_is_better(tmp_path):
    for name, perplexity in {"low": 20.0, "high": 30.0}.items():
        write_run(tmp_path / name, 1, perplexity, "perplexity", command=f"python {name}.py")
    _, out, _ = table(tmp_path / "high", tmp_path / "low")
    assert "| **20.00** |" in out and "| 30.00 |" in out


def test_unfinished_runs_are_skipped_and_none_at_all_is_an_error(runs, tmp_path):
    (tmp_path / "empty").mkdir()
    assert table(runs[2], tmp_path / "empty")[1] == table(runs[2])[1]
    code, _, error = table(tmp_path / "empty")
    assert code == 1 and "no finished run" in error


def test_a_run_below_the_bar_of_its_preset_fails(tmp_path):
    bar = {"system": "majority", "score": 0.6, "metric": "accuracy", "data": "rte", "split": "test"}
    above = write_run(tmp_path / "above", 1, 0.7, "accuracy", bar=bar)
    equal = write_run(tmp_path / "equal", 1, 0.6, "accuracy", bar=bar)
    without = write_run(tmp_path / "without", 1, 0.1, "accuracy")
    code, out, _ = table(above, without, arguments=["--check"])
    assert code == 0 and "1 of 2 runs have a bar; 0 are not above it" in out and "| bar: majority | 60.0% |" in out
    code, out, _ = table(above, equal, arguments=["--check"])
    assert code == 1 and f"{equal}: test accuracy 60.0% against 60.0% of majority; the run is not above its bar" in out
    assert table(equal)[0] == 0
    # Only the rows that the bar was measured on are compared.
    other = write_run(tmp_path / "other", 1, 0.5, "accuracy", bar=bar, splits=("validation",))
    assert table(other, arguments=["--check"])[0] == 0


def test_percentages_of_squad_are_not_multiplied_again(tmp_path):
    _, out, _ = table(write_run(tmp_path / "a", 1, 31.5, "f1"))
    assert "**31.5%**" in out and "31.2% to 31.8%" in out
