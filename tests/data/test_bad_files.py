"""Files and values that are wrong: one sentence with the place and the remedy."""

import json
import re

import datasets
import pytest

from hf_edu_models.data import cache, encode_corpus, load_corpus, notes, train_tokenizer


def save(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


LATIN = "text,label\ngood,a\ncafé,b\n".encode("latin-1")


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.txt", "a.conll", "a.jsonl"])
def test_another_encoding_names_the_line_and_the_option(name, tmp_path):
    content = {"a.tsv": LATIN.replace(b",", b"\t"), "a.conll": b"good O\n\ncaf\xe9 O\n"}.get(name, LATIN)
    content = '{"text": "a"}\n\n{"text": "café"}\n'.encode("latin-1") if name == "a.jsonl" else content
    with pytest.raises(ValueError, match=rf"{name}, line 3, is not utf-8 \(byte 0xe9\).*encoding=latin-1"):
        load_corpus(save(tmp_path / name, content))
    rows = load_corpus(tmp_path / name, encoding="latin-1")["train"]
    assert "café" in json.dumps(rows[-1], ensure_ascii=False)


def test_another_encoding_in_pairs_and_far_behind(tmp_path):
    save(tmp_path / "c.de", b"caf\xe9\n")
    save(tmp_path / "c.en", b"bar\n")
    with pytest.raises(ValueError, match=r"c\.de, line 1, is not utf-8"):
        load_corpus(tmp_path)
    assert load_corpus(tmp_path, encoding="latin-1")["train"][0] == {"source": "café", "target": "bar"}
    late = b"text,label\n" + b"good,a\n" * 5_000 + b"caf\xe9,b\n"
    with pytest.raises(ValueError, match=r"late\.csv, line 5002, is not utf-8"):
        load_corpus(save(tmp_path / "late.csv", late))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", r"a\.csv is empty"),
        ("a.txt", "", r"a\.txt is empty"),
        ("a.conll", "\n\n", r"a\.conll has (no rows|one column)"),
        ("a.csv", "text,label\n", r"a\.csv has no rows; is a header all"),
        ("a.csv", "text,label\nx\0y,a\n", r"a\.csv, line 2, has a NUL byte"),
        ("a.txt", "text\n".encode("utf-16"), r"a\.txt, line 1, is not utf-8 .*encoding=utf-16"),
        ("a.csv", "text\nhello, world\n", r"a\.csv, line 2, has 2 cells and the first 1; put quotes"),
        ("a.csv", "text,label\n,a\ny,b\n", r"'text' is empty in 1 of 2 rows of train, first in row 0"),
        ("a.csv", "text,label,text\nx,a,y\n", r"line 1, has two columns 'text'; rename one"),
        ("a.jsonl", '{"text": "a"}\n{"text": "b"\n{"text": "c"}\n', r"cannot be read: a\.jsonl, line 2: "),
        ("a.json", '[{"text": "a"},\n{"text": ]', r"cannot be read: a\.json, line 2: "),
        ("a.json", '{"data": [{"title": "x", "paragraphs": [{"context": ', r"a\.json cannot be read: .*truncated"),
        ("a.tmx", "<tmx><body><tu>", r"a\.tmx cannot be read: .*truncated"),
        ("a.csv", "text,label\nx,1\ny,\nz,0\n", r"'label' is empty in 1 of 3 rows of train, first in row 1"),
        ("a.jsonl", lines({"text": "x", "label": "a"}, {"text": "y", "label": None}), r"'label' is empty in 1 of 2"),
        ("a.csv", "text,label\n1,a\n2,b\n", r"'text' holds int64, not text; choose another with --columns text=NAME"),
        (
            "a.jsonl",
            lines({"text": {"en": "x"}, "label": 1}),
            r"'text' is nested \(en\); choose one of its fields with --columns text=COLUMN.en",
        ),
        ("a.jsonl", lines({"text": "x", "label": {"name": "a"}}), r"'label' holds dict, not classes"),
        ("a.jsonl", lines({"text": "x", "label": 1}, {"text": "y", "label": "a"}), r"label"),
    ],
)
def test_bad_content_raises(name, content, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        load_corpus(save(tmp_path / name, content))


def test_labels_of_true_and_false(tmp_path):
    rows = load_corpus(save(tmp_path / "a.jsonl", lines({"text": "x", "label": True}, {"text": "y", "label": False})))
    assert rows["train"]["label"][:] == [1, 0]


def test_an_empty_file_in_a_folder_of_documents_is_left_out(tmp_path):
    for number, text in enumerate(("a\n", "", "b\n")):
        save(tmp_path / f"{number}.txt", text)
    assert load_corpus(tmp_path)["train"]["text"][:] == ["a", "b"]


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b""], ids=["half", "empty"])
def test_a_damaged_cache_is_named_and_rebuilt(tmp_path, damage, capfd, monkeypatch):
    """Generated corpora, files of our own formats, tables, and what was encoded from them."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "words.conll").write_text("Ada B-PER\nran O\n\n" * 20)
    (tmp_path / "moods.csv").write_text("text,label\n" + "a b,x\nc d,y\n" * 20)
    for name in ("dates", str(tmp_path / "words.conll"), str(tmp_path / "moods.csv")):
        sizes = {"train_size": 20, "validation_size": 2, "test_size": 2} if name == "dates" else {}
        rung = "bahdanau" if name == "dates" else "bert"

        def load(name=name, sizes=sizes, rung=rung):
            corpus = load_corpus(name, cache_dir=tmp_path / "cache", **sizes)
            reader = train_tokenizer(corpus, kind="char", rung=rung, cache_dir=tmp_path / "cache")
            return [list(encode_corpus(corpus, reader, cache_dir=tmp_path / "cache")[split]) for split in corpus]

        expected = load()
        files = list((tmp_path / "cache").rglob("*.arrow"))
        assert files
        for file in files:
            file.write_bytes(damage(file.read_bytes()))
        capfd.readouterr()
        notes._printed.clear()
        assert load() == expected
        assert "is damaged or truncated; it is deleted and built again" in capfd.readouterr().err


def test_a_damaged_file_outside_the_cache_is_not_deleted(tmp_path):
    datasets.Dataset.from_dict({"text": ["a"] * 50}).save_to_disk(tmp_path / "mine")
    (file,) = (tmp_path / "mine").glob("*.arrow")
    file.write_bytes(file.read_bytes()[:100])

    @cache.rebuild_damaged
    def read(cache_dir):
        return datasets.load_from_disk(str(tmp_path / "mine"))

    with pytest.raises((ValueError, OSError)):
        read(cache_dir=tmp_path / "cache")
    assert file.exists()


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("b.jsonl", '{"text": "a"}\n{"text": \n{"text": "c"}\n', "b.jsonl, line 2: Expecting value; fix the line"),
        ("b.txt", "\n \n\n", "b.txt has no text: all 3 rows of train are blank"),
        ("b.conll", "\n\n", "has no rows: all of its lines are blank"),
        (
            "n.jsonl",
            '{"text": {"a": "x"}, "label": "y"}\n',
            r"is nested (a); choose one of its fields with --columns text=",
        ),
    ],
)
def test_unusable_content_has_its_line_and_a_remedy(tmp_path, name, content, sentence):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        load_corpus(tmp_path / name, cache_dir=tmp_path / "cache")


def test_a_field_of_a_nested_column_and_near_matches_of_a_file(tmp_path):
    (tmp_path / "reviews.jsonl").write_text(
        '{"review": {"body": "x y"}, "stars": 1}\n{"review": {"body": "z"}, "stars": 0}\n'
    )
    columns = {"text": "review.body", "label": "stars"}
    rows = load_corpus(tmp_path / "reviews.jsonl", columns=columns, cache_dir=tmp_path / "cache")["train"]
    assert rows["text"][:] == ["x y", "z"]
    with pytest.raises(ValueError, match="'review' has no field 'title'; it has body"):
        load_corpus(
            tmp_path / "reviews.jsonl", columns=columns | {"text": "review.title"}, cache_dir=tmp_path / "cache"
        )
    with pytest.raises(FileNotFoundError, match=r"did you mean .*reviews\.jsonl\?"):
        load_corpus(tmp_path / "review.jsonl")


def test_a_question_with_choices_in_columns(tmp_path):
    (tmp_path / "quiz.csv").write_text("question,answer0,answer1,label\nwhat is a b,x,y,0\nwhat is c d,x,y,1\n")
    row = load_corpus(tmp_path / "quiz.csv", cache_dir=tmp_path / "cache")["train"][1]
    assert row == {"context": "what is c d", "choices": ["x", "y"], "label": 1}
