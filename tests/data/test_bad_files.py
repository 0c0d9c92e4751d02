"""Files and values that are wrong: one sentence with the place and the remedy."""

import json

import pytest

from hf_edu_models.data import load_corpus


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
        ("a.jsonl", lines({"text": {"en": "x"}, "label": 1}), r"'text' holds dict, not text"),
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
