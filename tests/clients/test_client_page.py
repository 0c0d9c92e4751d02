"""The page about client libraries says what the tests hold."""

import re
from pathlib import Path

import pytest

from hf_edu_models import LADDER

FOLDER = Path(__file__).parent
PAGE = (FOLDER.parents[1] / "recipes" / "README.md").read_text("utf-8")
SECTION = PAGE.split("## Client libraries\n")[1].split("\n## ")[0]
LINES = [line.strip("|").split("|") for line in SECTION.splitlines() if line.startswith("| ")]
CLIENTS = [[cell.strip() for cell in cells] for cells in LINES]
del CLIENTS[0]  # the names of the columns


def test_every_row_names_the_test_that_holds_it():
    named = set()
    for client, _, _, used_as, tests in CLIENTS:
        files = re.findall(r"`([\w./]+)`", tests)
        assert files, client
        text = "".join((FOLDER / file).read_text("utf-8") for file in files)
        named |= set(files)
        names = re.findall(r"\w{4,}", used_as.split("(")[0].split(":")[0]) or [client]
        assert any(name in text for name in names) or used_as.startswith(("`hf-edu", "`from_pretrained")), client
    own = {file.name for file in FOLDER.glob("test_*.py")} - {Path(__file__).name}
    assert own <= named


def test_every_family_of_a_row_exists():
    names = {rung.name for rung in LADDER}
    for client, _, families, _, _ in CLIENTS:
        if not families.startswith("all"):
            assert {family.strip() for family in families.split(",")} <= names, client


def test_the_lora_example_runs():
    pytest.importorskip("peft")
    (code,) = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
    exec(code, {})
