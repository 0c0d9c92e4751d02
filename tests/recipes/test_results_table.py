"""The results table: seeds are one row, fractions are percentages, and every figure is that of its run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "recipes" / "benchmarks" / "results_table.py"


def write_run(folder, seed, score, metric="bleu", splits=("test", "validation"), published=()):
    scores = {metric: score, f"{metric}_interval": [score - 1, score + 1]}
    results = {
        "model_type": "edu_bahdanau",
        "architecture": "EduBahdanauForConditionalGeneration",
        "command": f"python recipes/2015_bahdanau.py --preset dates --seed {seed} --max_tokens 512",
        "data": {"name": "dates"} if metric == "accuracy" else {"name": "dates", "source": "de", "target": "en"},
        "parameters": 1234567,
        "seconds": 90 + 60 * seed,
        "seed": seed,
        "machine": {"device": "cpu", "threads": 2, "processes": 1},
        "main_score": metric,
        "scores": dict.fromkeys(splits, scores),
        "samples": [],
        "published": list(published),
    }
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps(results), encoding="utf-8")
    return folder


def table(*folders, arguments=()):
    command = [sys.executable, str(SCRIPT), *map(str, folders), *arguments]
    shown = subprocess.run(command, capture_output=True, text=True)
    return shown.returncode, shown.stdout, shown.stderr


@pytest.fixture
def runs(tmp_path):
    published = {"system": "a tutorial", "score": 28.3, "metric": "bleu", "source": "somewhere", "note": ""}
    first = write_run(tmp_path / "a", 1, 30.0, published=[published])
    return first, write_run(tmp_path / "b", 2, 33.0), write_run(tmp_path / "c", 1, 0.5, "accuracy", ("validation",))


def cells(line):
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_seeds_are_one_row_and_other_settings_another(runs):
    code, out, _ = table(*runs)
    lines = out.splitlines()
    assert code == 0 and len(lines) == 4  # two lines of heading
    names = cells(lines[0])
    first, second = (dict(zip(names, cells(line), strict=True)) for line in lines[2:])
    assert (first["score"], first["interval"], first["seed"]) == ("bleu 31.5", "30.0 to 33.0", "1, 2")
    assert (first["minutes"], first["cores"], first["published"]) == ("2 / 4", "2", "28.3 (a tutorial)")
    assert first["command"] == "`python recipes/2015_bahdanau.py --preset dates --max_tokens 512`"
    assert (second["score"], second["interval"]) == ("accuracy 50.0%", "-50.0% to 150.0%")
    assert first["data"] == "dates de-en, test"
    assert second["data"] == "dates, validation" and second["published"] == "-"


def test_unfinished_runs_are_skipped_and_none_at_all_is_an_error(runs, tmp_path):
    (tmp_path / "empty").mkdir()
    assert len(table(runs[0], tmp_path / "empty")[1].splitlines()) == 3
    code, _, error = table(tmp_path / "empty")
    assert code == 1 and "no finished run" in error
