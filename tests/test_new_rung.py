"""A model family joins by a row and its own files: nothing else is edited (CONTRIBUTING lists the same steps).

The family classifies documents, (batch, sentences, tokens), which no other one reads. It is added to a copy of the
repository, where the tests of registration, laws, portability, card, recipe and tables then run on it.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PARTS = Path(__file__).parent / "new_rung"
NEW_FILES = {
    "configuration_pooled.py": "hf_edu_models/models/configuration_pooled.py",
    "modeling_pooled.py": "hf_edu_models/models/modeling_pooled.py",
    "recipe.py": "recipes/2016_pooled.py",
    "card.md": "hub_cards/2016_pooled.md",
    "check_pooled.py": "tests/models/test_pooled.py",
}
TESTS = (
    "tests/models/test_pooled.py", "tests/models/test_laws.py", "tests/models/test_bad_input.py",
    "tests/models/test_portability.py", "tests/models/test_shape_comments.py", "tests/models/test_trainer.py",
    "tests/hub/test_cards.py", "tests/recipes/test_smoke.py", "tests/test_house.py", "tests/test_tasks.py",
)  # fmt: skip
# What runs on the new family, and what runs on all families at once; the rest of these files is about others.
CHOSEN = (
    "pooled or test_every or test_the_code_on or test_checkpoints_load_without or registering or table or prints"
    " or test_shape_comments"
)


def run(folder: Path, *arguments: str, program: str = sys.executable) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONPATH": str(folder), "HF_DATASETS_CACHE": str(folder / "cache"), "COLUMNS": "120"}
    return subprocess.run(
        [program, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=580
    )


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A copy of the repository with one more model family."""
    folder = tmp_path_factory.mktemp("repository")
    for name in ("hf_edu_models", "recipes", "hub_cards", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "runs"))
    for name in ("README.md", "pyproject.toml", "LICENSE", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, folder)
    for part, place in NEW_FILES.items():
        shutil.copy(PARTS / part, folder / place)
    ladder = folder / "hf_edu_models/auto.py"
    before, row, after = ladder.read_text().partition('    Rung(\n        name="transformer"')
    ladder.write_text(before + (PARTS / "row.txt").read_text() + row + after)
    with (folder / "recipes/presets/smoke.yaml").open("a") as presets:
        presets.write((PARTS / "smoke.yaml").read_text())
    rows = [{"sentences": ["a good day .", f"number {n} ."], "label": ["no", "yes"][n % 2]} for n in range(60)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "recipes/presets/smoke_documents.jsonl").write_text(lines)
    written = run(folder, "-c", "from hf_edu_models.auto import write_tables; write_tables()")
    assert written.returncode == 0, written.stderr
    return folder


def test_the_tests_of_every_family_pass_on_the_new_one(repository):
    tests = run(repository, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", CHOSEN, *TESTS)
    assert tests.returncode == 0, tests.stdout[-5000:] + tests.stderr[-2000:]
    listed = run(repository, "-m", "pytest", "--collect-only", "-qq", "-k", "pooled", *TESTS).stdout
    counts = {line.partition(":")[0]: int(line.rpartition(" ")[2]) for line in listed.splitlines() if ": " in line}
    assert counts["tests/models/test_laws.py"] >= 10 and counts["tests/recipes/test_smoke.py"] >= 2


def test_the_commands_know_the_new_family(repository):
    hf_edu = str(Path(sys.executable).with_name("hf-edu"))
    ladder = run(repository, "ladder", program=hf_edu).stdout
    assert "edu_pooled" in ladder and "Nobody 2016" in ladder
    assert "| 2016 | [`pooled`]" in (repository / "README.md").read_text()
    assert "pooled" in run(repository, "train", program=hf_edu).stdout
