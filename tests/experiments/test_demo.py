"""The demo trains, compares, draws and prints how to load a model; it never overwrites other files."""

import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from hf_edu_models.cli import app
from hf_edu_models.experiments.demo import DEMO_RUNGS, SAMPLE, clear_demo_folder, run_demo
from hf_edu_models.training import load_preset, read_results

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
    assert SAMPLE in text


def test_the_attention_is_drawn_and_every_run_has_its_card(demo_output):
    folder, _ = demo_output
    assert (folder / "demo/attention.png").read_bytes().startswith(b"\x89PNG")
    assert "<script" in (folder / "demo/attention.html").read_text("utf-8")
    for rung in DEMO_RUNGS:
        assert "## How to use" in (folder / "demo" / rung / "README.md").read_text("utf-8")
        assert (folder / "demo" / rung / "tokenizer.json").exists()
        assert not list((folder / "demo" / rung).glob("checkpoint-*"))


def test_the_last_three_lines_load_the_model(demo_output):
    folder, text = demo_output
    lines = [line.strip() for line in text.splitlines() if line.strip()][-3:]
    assert lines[0].startswith("import hf_edu_models")
    script = "\n".join([*lines, f"print(type(model).__name__, tokenizer.tokenize({SAMPLE!r})[:3])"])
    run = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True)
    assert "EduBahdanauForConditionalGeneration ['S', 'a', 'm']" in run.stdout, run.stderr


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
