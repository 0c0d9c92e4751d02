"""`hf-edu data`, and what importing `hf_edu_models.data` loads."""

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
    return lambda *arguments: CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


def test_rows_of_a_builtin_corpus(command):
    result = command("reverse", "--show", "2", "--split", "test", "--option", "max_length=5")
    assert result.exit_code == 0, result.output
    assert "test: 500 rows" in result.output and "source" in result.output and "train:" not in result.output


def test_rows_of_a_file_with_class_names_and_markup(command, tmp_path):
    rows = {"body": ["[bold]not markup[/bold]", "x" * 500], "topic": ["sport", "news"]}
    datasets.Dataset.from_dict(rows).to_parquet(str(tmp_path / "train.parquet"))
    result = command(str(tmp_path), "--column", "text=body", "--column", "label=topic")
    assert result.exit_code == 0, result.output
    assert "[bold]not markup[/bold]" in result.output and "sport" in result.output and "…" in result.output


def test_rows_of_a_stream(command, tmp_path):
    datasets.Dataset.from_dict({"de": ["Hund"], "en": ["dog"]}).to_json(str(tmp_path / "train.jsonl"))
    result = command(str(tmp_path), "--streaming", "--source", "en", "--target", "de")
    assert result.exit_code == 0, result.output
    assert "streaming" in result.output and result.output.index("dog") < result.output.index("Hund")


def test_a_stream_with_text_labels(command, tmp_path):
    datasets.Dataset.from_dict({"text": ["a"], "label": ["late"]}).to_json(str(tmp_path / "train.jsonl"))
    assert "pass label_names" in str(command(str(tmp_path), "--streaming").exception)
    result = command(str(tmp_path), "--streaming", "--label", "early", "--label", "late")
    assert result.exit_code == 0 and "late" in result.output


def test_mistakes_raise_a_clear_error(command):
    assert "has no split 'dev'; it has train" in str(command("copy", "--split", "dev").exception)
    assert "--data_options takes name=value, got 'five'" in str(command("copy", "--option", "five").exception)
    negative = command("copy", "--show", "-1")
    assert negative.exit_code == 2 and "--show" in negative.output


def test_every_public_name_can_be_imported():
    for name in hf_edu_models.data.__all__:
        assert getattr(hf_edu_models.data, name) is not None
    with pytest.raises(AttributeError, match=r"no 'load_corpora'; it has .*load_corpus"):
        hf_edu_models.data.load_corpora  # noqa: B018


def test_importing_the_package_loads_nothing_heavy():
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
