"""What `hf-edu data` prints, and that looking at the package costs nothing."""

import datasets
import pytest
import typer
from typer.testing import CliRunner

import hf_edu_models.data
from hf_edu_models.data import show_corpus


@pytest.fixture
def command():
    app = typer.Typer()
    app.command()(show_corpus)
    return lambda *words: CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})


def test_samples_of_a_builtin_task(command):
    result = command("reverse", "--show", "2", "--split", "test", "--option", "max_length=5")
    assert result.exit_code == 0, result.output
    assert "test: 500 rows" in result.output and "source" in result.output and "train:" not in result.output


def test_samples_of_a_file_with_class_names_and_strange_text(command, tmp_path):
    rows = {"body": ["[bold]not markup[/bold]", "x" * 500], "topic": ["sport", "news"]}
    datasets.Dataset.from_dict(rows).to_parquet(str(tmp_path / "train.parquet"))
    result = command(str(tmp_path), "--column", "text=body", "--column", "label=topic")
    assert result.exit_code == 0, result.output
    assert "[bold]not markup[/bold]" in result.output and "sport" in result.output and "…" in result.output


def test_a_stream_shows_too(command, tmp_path):
    datasets.Dataset.from_dict({"de": ["Hund"], "en": ["dog"]}).to_json(str(tmp_path / "train.jsonl"))
    result = command(str(tmp_path), "--streaming", "--source", "en", "--target", "de")
    assert result.exit_code == 0, result.output
    assert "a stream" in result.output and result.output.index("dog") < result.output.index("Hund")


def test_a_stream_of_words_for_labels(command, tmp_path):
    datasets.Dataset.from_dict({"text": ["a"], "label": ["late"]}).to_json(str(tmp_path / "train.jsonl"))
    assert "pass label_names" in str(command(str(tmp_path), "--streaming").exception)
    result = command(str(tmp_path), "--streaming", "--label", "early", "--label", "late")
    assert result.exit_code == 0 and "late" in result.output


def test_mistakes_are_named(command):
    assert "has no split 'dev'; it has train" in str(command("copy", "--split", "dev").exception)
    assert "--option takes name=value, got 'five'" in str(command("copy", "--option", "five").exception)
    assert "0 or more rows, got -1" in str(command("copy", "--show", "-1").exception)


def test_every_public_name_is_there():
    for name in hf_edu_models.data.__all__:
        assert getattr(hf_edu_models.data, name) is not None
    with pytest.raises(AttributeError, match=r"no 'load_corpora'; it has .*load_corpus"):
        hf_edu_models.data.load_corpora  # noqa: B018


def test_importing_costs_nothing():
    import subprocess
    import sys
    from pathlib import Path

    code = (
        "import sys, types; package = types.ModuleType('hf_edu_models'); "
        f"package.__path__ = [{str(Path(hf_edu_models.data.__file__).parents[1])!r}]; "
        "sys.modules['hf_edu_models'] = package; import hf_edu_models.data, hf_edu_models.metrics; "
        "heavy = {'torch', 'transformers', 'datasets', 'evaluate', 'sklearn', 'babel', 'numpy'} & set(sys.modules); "
        "assert not heavy, heavy; from hf_edu_models.data import load_corpus; assert load_corpus; "
        "assert 'torch' not in sys.modules and 'hf_edu_models.models' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
