"""The demo trains, compares, draws and tells how to load; and it never writes over somebody's files."""

import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from hf_edu_models.cli import app
from hf_edu_models.demo import RUNGS, SAMPLE, prepare, run_demo
from hf_edu_models.training import load_preset, read_results

CHILD = "from pathlib import Path; from hf_edu_models.demo import run_demo; run_demo(Path('demo'), preset='smoke')"


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What a demo of the smallest size prints, and where it was."""
    folder = tmp_path_factory.mktemp("demo")
    run = subprocess.run([sys.executable, "-c", CHILD], cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return folder, run.stdout


def test_the_table_has_what_the_runs_say(shown):
    folder, text = shown
    for rung in RUNGS:
        results = read_results(folder / "demo" / rung)
        (row,) = re.findall(rf"│ {rung} .*%.*", text)
        assert f"{results['scores']['test']['exact_match']:.1%}" in row
        assert f"{results['parameters']:,}" in row
    assert SAMPLE in text


def test_the_attention_is_drawn_and_every_run_has_its_card(shown):
    folder, _ = shown
    assert (folder / "demo/attention.png").read_bytes().startswith(b"\x89PNG")
    assert "<script" in (folder / "demo/attention.html").read_text("utf-8")
    for rung in RUNGS:
        assert "## Load it" in (folder / "demo" / rung / "README.md").read_text("utf-8")
        assert (folder / "demo" / rung / "tokenizer.json").exists()
        assert not list((folder / "demo" / rung).glob("checkpoint-*"))


def test_the_last_three_lines_load_the_model(shown):
    folder, text = shown
    lines = [line.strip() for line in text.splitlines() if line.strip()][-3:]
    assert lines[0].startswith("import hf_edu_models")
    script = "\n".join([*lines, f"print(type(model).__name__, tokenizer.tokenize({SAMPLE!r})[:3])"])
    run = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True)
    assert "EduBahdanauForConditionalGeneration ['S', 'a', 'm']" in run.stdout, run.stderr


def test_other_peoples_files_are_safe(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="is not empty"):
        prepare(tmp_path, overwrite=True)
    assert (tmp_path / "thesis.tex").exists()
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code != 0 and "is not empty" in str(result.exception)


def test_an_earlier_demo_is_replaced_only_when_told_to(tmp_path):
    (tmp_path / "demo" / "seq2seq").mkdir(parents=True)
    with pytest.raises(ValueError, match="--overwrite"):
        run_demo(tmp_path / "demo")
    prepare(tmp_path / "demo", overwrite=True)
    assert not (tmp_path / "demo").exists()


def test_the_demo_learns_from_the_dates_alone():
    for rung in RUNGS:
        settings, _ = load_preset("demo", rung)
        assert settings["dataset"] == "dates"  # built in: no network
