"""Corpora with + between them: all rows, separate documents, one task."""

import datasets
import pytest

from hf_edu_models.data import load_corpus


@pytest.fixture
def folders(tmp_path):
    first = {"article": ["1", "1", "2"], "paragraph": ["a b", "c d", "e f"]}
    second = {"doc": [1, 2], "text": ["g h", "i j"], "tokens": [["g", "h"], ["i", "j"]], "upos": [["X", "X"]] * 2}
    for name, table, splits in (("one", first, ("train", "test")), ("two", second, ("train", "validation"))):
        for split in splits:
            (tmp_path / name).mkdir(exist_ok=True)
            datasets.Dataset.from_dict(table).to_parquet(str(tmp_path / name / f"{split}.parquet"))
    return tmp_path


def test_rows_are_in_order_and_documents_stay_separate(folders):
    corpus = load_corpus(f"{folders / 'one'}+{folders / 'two'}", task="language_modeling")
    assert corpus["train"]["text"] == ["a b", "c d", "e f", "g h", "i j"]
    documents = list(corpus["train"]["document"])
    assert documents[0] == documents[1] and len(set(documents)) == 4
    assert corpus["train"]["corpus"] == [0, 0, 0, 1, 1]
    assert len(corpus["test"]) == 3 and len(corpus["validation"]) == 2


def test_sizes_apply_to_the_concatenation(folders):
    names = f"{folders / 'one'}+{folders / 'two'}"
    corpus = load_corpus(names, task="language_modeling", train_size=4, validation_size=1)
    assert {split: len(rows) for split, rows in corpus.items()} == {"train": 4, "test": 3, "validation": 1}
    streamed = load_corpus(names, task="language_modeling", streaming=True)
    assert [row["text"] for row in streamed["validation"]] == ["g h", "i j"]


def test_corpora_of_different_tasks_raise(folders):
    with pytest.raises(ValueError, match="two has the columns tags, tokens, but the first document, text"):
        load_corpus(f"{folders / 'one'}+{folders / 'two'}")


def test_a_path_may_contain_a_plus(folders):
    (folders / "one").rename(folders / "c++")
    assert len(load_corpus(folders / "c++")["train"]) == 3


def test_built_in_corpora_can_be_concatenated(tmp_path):
    one, two = (load_corpus(name, cache_dir=tmp_path) for name in ("stories", "stories+stories"))
    assert len(two["train"]) == 2 * len(one["train"])
    assert len(set(two["train"]["document"])) == 2 * len(set(one["train"]["document"]))
