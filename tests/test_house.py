"""The README, the ladder and the package say the same."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import transformers
from hatchling.builders.wheel import WheelBuilder
from typer.testing import CliRunner

import hf_edu_models
from hf_edu_models import LADDER
from hf_edu_models.auto import TABLE_MARKS, markdown_table, pages_with_table
from hf_edu_models.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = dict(pages_with_table())
GUIDES = ("hub", "models", "speed", "your-data")


@pytest.mark.parametrize("page", ["README.md", *(f"recipes/guides/{name}.md" for name in GUIDES)])
def test_every_python_block_of_a_page_runs(tmp_path, page):
    """Top to bottom, as a reader would paste them."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert blocks
    script = tmp_path / "readme.py"
    script.write_text("\n".join(blocks))
    run = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_the_readme_leads_to_every_guide_and_installs_on_its_first_screen():
    lines = README.splitlines()
    assert lines.index("pip install -e . && hf-edu demo") < 25
    assert {file.stem for file in (ROOT / "recipes/guides").glob("*.md")} == set(GUIDES)
    for name in GUIDES:
        assert f"](recipes/guides/{name}.md)" in README


def test_every_link_of_the_pages_leads_to_a_file():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "recipes").rglob("*.md")]
    pages += (ROOT / "hf_edu_models").rglob("*.md")
    broken = []
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            if not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken, "\n".join(broken)


def test_the_two_commands_stand_in_the_readme():
    commands = re.findall(r"^pip install .*", README, flags=re.MULTILINE)
    assert commands == ["pip install -e . && hf-edu demo", 'pip install -e ".[dev]" && pytest -n auto --dist loadfile']


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_table_is_the_ladders(page):
    text = page.read_text()
    shown = text.partition(TABLE_MARKS[0])[2].partition(TABLE_MARKS[1])[0]
    assert shown.strip() == markdown_table(PAGES[page])
    for file in re.findall(r"\]\((.*?modeling_\w+\.py)\)", shown):
        assert page.parent.joinpath(file).exists()


def test_the_command_prints_every_rung():
    run = CliRunner().invoke(app, ["ladder", "--classes"], env={"COLUMNS": "80"})
    assert run.exit_code == 0, run.output
    for rung in LADDER:
        for word in (rung.model_type, *rung.paper.split(), *rung.config.heads, *rung.config.heads.values()):
            assert word in run.output
    assert "EduRecurrentModel" not in CliRunner().invoke(app, ["ladder"], env={"COLUMNS": "80"}).output


@pytest.mark.parametrize(
    "page", sorted((ROOT / "hf_edu_models").glob("**/README.md")), ids=lambda page: page.parent.name
)
def test_the_page_of_a_folder_lists_its_files(page):
    by_rung = {f"{kind}_{rung.name}.py" for rung in LADDER for kind in ("modeling", "configuration")}
    missing = {file.name for file in page.parent.glob("*.py")} - set(re.findall(r"\w+\.py", page.read_text())) - by_rung
    assert missing <= {"__init__.py"}


def test_every_package_has_a_page():
    packages = {file.parent for file in (ROOT / "hf_edu_models").glob("*/__init__.py")}
    assert all((package / "README.md").is_file() for package in packages)


def test_every_class_is_a_public_name():
    for rung in LADDER:
        assert getattr(hf_edu_models, rung.config.__name__) is rung.config
        for head in rung.heads.values():
            assert getattr(hf_edu_models, head.__name__) is head
            assert head.__name__ in hf_edu_models.__all__
    assert [rung.number for rung in LADDER] == list(range(1, len(LADDER) + 1))


def test_every_model_file_opens_with_its_five_facts():
    for rung in LADDER:
        text = (ROOT / f"hf_edu_models/models/modeling_{rung.name}.py").read_text()
        header = text.split('"""')[1]
        assert header.splitlines()[0].endswith(".") and header.splitlines()[1] == ""
        assert not re.search(r"rung \d", text), "a new rung must renumber nothing"
        for fact in ("New ", "Paper", "Differs from the paper", "Shapes: "):
            assert fact in header, f"{rung.name}: {fact}"


def test_the_wheel_carries_recipes_presets_and_cards(tmp_path):
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    names = zipfile.ZipFile(wheel).namelist()
    for file in (ROOT / "recipes").rglob("*.py"):
        assert f"hf_edu_models/{file.relative_to(ROOT)}" in names
    assert "hf_edu_models/models/modeling_recurrent.py" in names and "hf_edu_models/models/README.md" in names
    for file in [*(ROOT / "recipes/presets").iterdir(), *(ROOT / "hub_cards").iterdir()]:
        assert f"hf_edu_models/{file.relative_to(ROOT)}" in names
    assert not [name for name in names if "__pycache__" in name]


def run_command(*arguments, folder):
    command = [Path(sys.executable).with_name("hf-edu"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, "COLUMNS": "100"})


def test_the_command_shows_data_and_no_traceback(tmp_path):
    (tmp_path / "train.tsv").write_text("source\ttarget\nein Hund\ta dog\neine Katze\ta cat\n")
    run = run_command("data", "train.tsv", "--show", "1", folder=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "ein Hund" in run.stdout and "eine Katze" not in run.stdout
    wrong = run_command("data", "no_such_file.tsv", folder=tmp_path)
    assert wrong.returncode == 2
    assert "no_such_file.tsv" in wrong.stderr and "Traceback" not in wrong.stderr


def test_the_command_converts_a_checkpoint_and_refuses_to_overwrite(tmp_path):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 20}
    transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=30, **sizes)).save_pretrained(tmp_path / "theirs")
    arguments = ["convert", str(tmp_path / "theirs"), str(tmp_path / "ours")]
    run = CliRunner().invoke(app, arguments)
    assert run.exit_code == 0 and "BertForMaskedLM -> EduBertForMaskedLM" in run.output
    loaded = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "ours")
    assert type(loaded) is hf_edu_models.EduBertForMaskedLM
    again = CliRunner().invoke(app, arguments)
    assert "exists and is not empty" in str(again.exception)
