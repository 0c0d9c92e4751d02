"""Analogies, similarities and maps of words, on vectors whose answers are known."""

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from hf_edu_models.cli import app
from hf_edu_models.convert.word_vectors import WordVectors, model_of
from hf_edu_models.explain.words.analogies import (
    read_analogies,
    score_analogies,
    score_similarities,
    solve,
    table_of,
    word_table,
)
from hf_edu_models.explain.words.maps import draw_map, map_words, write_map_page

# Sex, royalty, and a direction of its own for each country with its capital.
VECTORS = {
    "man": [1, 0, 0, 0, 0.1], "woman": [-1, 0, 0, 0, 0.1], "king": [1, 2, 0, 0, 0.1], "queen": [-1, 2, 0, 0, 0.1],
    "france": [0, 0, 2, 0, 0.1], "paris": [0, 0, 2, 1, 0.1],
    "italy": [0.5, 0, -2, 0, 0.1], "rome": [0.5, 0, -2, 1, 0.1],
    "of": [0, 0.1, 0, 0, -2],
}  # fmt: skip
WORDS = [*VECTORS]


@pytest.fixture
def table():
    return word_table(WORDS, np.array([*VECTORS.values()]))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    model, tokenizer = model_of(WordVectors(WORDS, np.array([*VECTORS.values()], np.float32)))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_king_minus_man_plus_woman_is_queen(table):
    answers = solve(table, ["king", "woman"], ["man"], 3)
    assert answers[0].word == "queen" and not {"king", "woman", "man"} & {answer.word for answer in answers}
    vector = table.vectors[2] - table.vectors[0] + table.vectors[1]
    assert answers[0].similarity == pytest.approx(vector @ table.vectors[3] / np.linalg.norm(vector), rel=1e-5)
    assert solve(table, ["King", "woman"], ["man"], 1)[0].word == "queen"  # as neighbours does: lowercased if need be
    with pytest.raises(ValueError, match="the word 'quen' is not in the vocabulary; it has queen"):
        solve(table, ["quen"], [])


def test_scores_count_known_questions_by_category(table, tmp_path):
    file = tmp_path / "questions.txt"
    file.write_text(
        ": family\nman king woman queen\nMan Woman King Queen\n: capitals\nfrance paris italy of\nfrance paris x y\n"
    )
    scores = {score.category: score for score in score_analogies(table, read_analogies(file))}
    assert (scores["family"].correct, scores["family"].known, scores["family"].total) == (2, 2, 2)
    assert (scores["capitals"].correct, scores["capitals"].known, scores["capitals"].total) == (0, 1, 2)
    assert scores["all"].accuracy == pytest.approx(2 / 3)
    csv = tmp_path / "questions.csv"
    csv.write_text("category,a,b,c,d\ncapitals,france,paris,italy,rome\n")
    assert score_analogies(table, read_analogies(csv))[-1].accuracy == 1
    file.write_text("three words only\n")
    with pytest.raises(ValueError, match="line 1: four words are needed"):
        read_analogies(file)


def test_similarities_are_ranked_as_scipy_ranks(table):
    pairs = [("man", "king", 9.0), ("man", "of", 1.0), ("paris", "france", 8.0), ("rome", "unknown", 3.0)]
    correlation, known = score_similarities(table, pairs)
    assert known == 3 and -1 <= correlation <= 1
    cosines = [table.vectors[table.row(a)] @ table.vectors[table.row(b)] for a, b, _ in pairs[:3]]
    assert (correlation == pytest.approx(1)) == (np.argsort(cosines).tolist() == [1, 2, 0])
    with pytest.raises(ValueError, match="1 of 1 pairs have known words; a correlation needs three"):
        score_similarities(table, pairs[:1])


def test_a_map_by_pca_has_the_distances_of_two_components(table):
    found = map_words(table, WORDS)
    centred = table.vectors - table.vectors.mean(0)
    values = np.linalg.eigvalsh(centred.T @ centred)[::-1]
    np.testing.assert_allclose((found.points**2).sum(0), values[:2], rtol=1e-4)
    assert found.kept == pytest.approx(values[:2].sum() / values.sum(), rel=1e-4)
    near = map_words(table, WORDS, "tsne").points
    assert near.shape == (len(WORDS), 2) and np.isfinite(near).all()
    for wrong, message in (
        ({"method": "umap"}, "method must be one of pca, tsne"),
        ({"words": ["man", "king"]}, "three words"),
    ):
        with pytest.raises(ValueError, match=message):
            map_words(table, **{"words": WORDS} | wrong)


def test_labels_are_drawn_for_every_word(table):
    figure = draw_map(map_words(table, WORDS, groups=[0] * 4 + [1] * 5), "words", arrows=[("man", "king")])
    assert {text.get_text() for text in figure.axes[0].texts} >= set(WORDS)


def test_the_page_makes_no_request_and_has_words_as_data(table, tmp_path):
    words = word_table(["</script><b>", *WORDS[1:]], table.vectors)
    page = write_map_page(map_words(words, words.words), "a <map>", tmp_path / "map.html", words).read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert [each["word"] for each in data["words"]] == words.words and data["heading"] == "a <map>"
    assert data["words"][2]["near"][0][0] in words.words
    assert "http" not in page.replace("http-equiv", "") and "default-src 'none'" in page


def test_the_commands(run, tmp_path):
    runner = CliRunner()

    def call(*arguments):
        return runner.invoke(app, ["explain", *map(str, arguments)], env={"COLUMNS": "100"}, catch_exceptions=False)

    assert "queen" in call("analogies", run, "king", "man", "woman").output.splitlines()[4]
    questions = tmp_path / "questions.txt"
    questions.write_text("man king woman queen\n")
    assert "100.0%" in call("analogies", run, "--file", questions).output
    assert "queen" in call("neighbours", run, "king").output
    assert "9 words, saved" in call("map", run, "--out", tmp_path / "map.png").output.replace("\n", "")
    assert (
        "4 words, saved" in call("map", run, "--words", "king queen / man woman", "--out", tmp_path / "m.html").output
    )
    with pytest.raises(ValueError, match="give three words, as in 'king man woman'"):
        call("analogies", run, "king", "man")


def test_the_table_of_a_model_is_its_words(run):
    from hf_edu_models.checkpoints import load_model

    table = table_of(*load_model(str(run)))
    assert table.words == WORDS
    np.testing.assert_allclose(table.vectors, word_table(WORDS, np.array([*VECTORS.values()])).vectors, rtol=1e-5)
