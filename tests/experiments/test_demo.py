"""The demo trains, compares, draws and prints how to load a model; it never overwrites other files."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hf_edu_models.cli import app
from hf_edu_models.experiments.demo import DEMO_RUNGS, clear_demo_folder, find_example, next_commands, run_demo
from hf_edu_models.run_folder import write_predictions
from hf_edu_models.training import load_preset, parse_arguments, read_results
from hf_edu_models.training.presets import find_recipe

CHILD = """
from pathlib import Path
from hf_edu_models.experiments.demo import run_demo
run_demo(Path("demo"), preset="smoke")
"""


@pytest.fixture(scope="module")
def demo_output(tmp_path_factory):
    """The folder and the output of a demo with the smoke preset."""
    folder = tmp_path_factory.mktemp("demo")
    run = subprocess.run([sys.executable, "-c", CHILD], cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return folder, run.stdout


def test_the_table_has_the_results_of_the_runs(demo_output):
    folder, text = demo_output
    for rung in DEMO_RUNGS:
        results = read_results(folder / "demo" / rung)
        (row,) = re.findall(rf"│ {rung} .*%.*", text)
        assert f"{results['scores']['test']['exact_match']:.1%}" in row
        assert f"{results['parameters']:,}" in row
    example = find_example(folder / "demo")
    assert example["source"] in text and example["reference"] in text


def test_the_attention_is_drawn_and_every_run_has_its_card(demo_output):
    folder, _ = demo_output
    assert (folder / "demo/attention.png").read_bytes().startswith(b"\x89PNG")
    assert "<script" in (folder / "demo/attention.html").read_text("utf-8")
    for rung in DEMO_RUNGS:
        assert "## How to use" in (folder / "demo" / rung / "README.md").read_text("utf-8")
        assert (folder / "demo" / rung / "tokenizer.json").exists()
        assert not list((folder / "demo" / rung).glob("checkpoint-*"))


def test_the_lab_has_all_three_models_and_is_named(demo_output):
    folder, text = demo_output
    page = folder / "demo" / "lab.html"
    assert "demo/lab.html" in text and page.stat().st_size < 3_000_000
    content = page.read_text("utf-8")
    assert all(f'"name": "{rung}"' in content for rung in DEMO_RUNGS) and content.count('id="weights-') == 3


def test_the_last_three_lines_load_the_model(demo_output):
    folder, text = demo_output
    lines = [line.strip() for line in text.splitlines() if line.strip()][-3:]
    assert lines[0].startswith("import hf_edu_models")
    script = "\n".join([*lines, "print(type(model).__name__, tokenizer.tokenize('Samstag')[:3])"])
    run = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True)
    assert "EduBahdanauForConditionalGeneration ['S', 'a', 'm']" in run.stdout, run.stderr


def test_the_example_is_one_that_only_the_context_vector_gets_wrong(tmp_path):
    outputs = {"seq2seq": "aXXb", "bahdanau": "aaba", "transformer": "aaXa"}  # one letter for each date; X is wrong
    for rung, letters in outputs.items():
        dates = [("short", "a"), ("a long one", "a"), ("the longest of all", "b"), ("right", "a")]
        rows = [
            {"source": source, "reference": reference, "prediction": letter}
            for (source, reference), letter in zip(dates, letters, strict=True)
        ]
        (tmp_path / rung).mkdir()
        write_predictions(tmp_path / rung, rows)
    assert find_example(tmp_path)["source"] == "a long one"


def test_what_to_do_next_works_as_pasted(demo_output, monkeypatch):
    folder, text = demo_output
    monkeypatch.chdir(folder)
    example = find_example(Path("demo"))["source"]
    commands = next_commands(Path("demo/bahdanau"), example)
    assert all(command in text for command in commands.values())
    for command in commands.values():
        program, *arguments = shlex.split(command)
        if "train" in arguments:  # minutes
            recipe = str(find_recipe(arguments[1]))
            assert parse_arguments(recipe, arguments[2:])[0].dataset == "dates"
            continue
        result = CliRunner().invoke(app, arguments)
        assert program == "hf-edu" and result.exit_code == 0, result.output
    assert (folder / "map.html").exists() and (folder / "lab.html").exists()


def test_other_files_are_safe(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="is not empty"):
        clear_demo_folder(tmp_path, overwrite=True)
    assert (tmp_path / "thesis.tex").exists()
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code != 0 and "is not empty" in str(result.exception)


def test_an_earlier_demo_is_replaced_only_with_overwrite(tmp_path):
    (tmp_path / "demo" / "seq2seq").mkdir(parents=True)
    with pytest.raises(ValueError, match="--overwrite"):
        run_demo(tmp_path / "demo")
    clear_demo_folder(tmp_path / "demo", overwrite=True)
    assert not (tmp_path / "demo").exists()


def test_the_demo_trains_on_dates_alone():
    for rung in DEMO_RUNGS:
        settings, _ = load_preset("demo", rung)
        assert settings["dataset"] == "dates"  # built in: no network
