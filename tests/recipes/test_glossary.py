"""The glossary points to the lines of today, in the terminal and on the documentation site."""

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hf_edu_models.cli.commands import app
from hf_edu_models.lessons import glossary
from hf_edu_models.lessons.glossary import GLOSSARY, find_terms, glossary_page, locate
from hf_edu_models.lessons.questions import LESSONS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("term", GLOSSARY, ids=lambda term: term.name)
def test_a_term_is_one_sentence_and_its_line_defines_what_it_names(term):
    file, line = locate(term.code)
    text = (ROOT / file).read_text("utf-8").splitlines()[line - 1]
    assert re.match(rf"\s*(class|def) {term.code.rpartition(':')[2].rpartition('.')[2]}\b", text)
    assert term.sentence.endswith(".") and ". " not in term.sentence and term.sentence[0].isupper()


def test_every_lesson_has_terms_and_no_term_is_listed_twice():
    assert {term.lesson for term in GLOSSARY} == set(LESSONS)
    names = [term.name.lower() for term in GLOSSARY]
    assert len(set(names)) == len(names)


def test_a_line_moves_with_the_code(tmp_path, monkeypatch):
    file, line = locate("models/blocks_attention.py:attend")
    (tmp_path / "models").mkdir()
    copy = Path(shutil.copy(ROOT / file, tmp_path / "models"))
    copy.write_text("# one more line\n" + copy.read_text("utf-8"), encoding="utf-8")
    monkeypatch.setattr(glossary, "_PACKAGE", tmp_path)
    glossary._definitions.cache_clear()
    assert locate("models/blocks_attention.py:attend") == (file, line + 1)
    glossary._definitions.cache_clear()


def test_the_page_links_lesson_and_line_and_is_in_the_site_and_the_readme():
    page = glossary_page({"lstm": "https://example.org/04_lstm.ipynb"})
    rows = [line for line in page.splitlines() if line.startswith("**")]
    assert len(rows) == len(GLOSSARY)
    for term, row in zip(find_terms(), rows, strict=True):
        file, line = locate(term.code)
        assert row.startswith(f"**{term.name}**: {term.sentence}") and f"/{file}#L{line})" in row
    assert "[Lesson 4](https://example.org/04_lstm.ipynb)" in page
    assert "Glossary: glossary.md" in (ROOT / "mkdocs.yml").read_text("utf-8")
    assert "/glossary/)" in (ROOT / "README.md").read_text("utf-8")


def test_the_terminal_explains_a_term_and_names_near_ones():
    run = CliRunner().invoke
    found = run(app, ["glossary", "Forget gate"]).output
    assert "how much of each number of the cell state stays" in found and "lesson 4" in found
    assert f"{locate('models/blocks_recurrent.py:LSTMCell.forward')[1]}" in found
    listed = run(app, ["glossary"], env={"COLUMNS": "300"}).output
    assert all(term.sentence in listed for term in GLOSSARY)
    with pytest.raises(ValueError, match=r"there is .*attention"):
        find_terms("atention")
