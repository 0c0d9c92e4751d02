"""Formats as people have them: CoNLL, SQuAD, TMX, Moses pairs, tables without a header, folders of documents."""

import json

import pytest

from hf_edu_models.data import load_corpus, notes
from hf_edu_models.data.tag_schemes import scheme_of, to_bio


@pytest.fixture(autouse=True)
def fresh_notes(monkeypatch):
    monkeypatch.setattr(notes, "_printed", set())


def save(path, text, encoding="utf-8"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))
    return path


def tags_of(dataset):
    names = dataset.features["tags"].feature.names
    return [[names[tag] for tag in row] for row in dataset["tags"]]


CONLL = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O
German JJ I-NP I-MISC

Rome NNP I-NP I-LOC
Paris NNP I-NP B-LOC
# NN I-NP O
"""
TOKENS = [["EU", "rejects", "German"], ["Rome", "Paris", "#"]]


@pytest.mark.parametrize("name", ["a.conll", "a.bio", "a.iob", "a.txt"])
@pytest.mark.parametrize("separator", [" ", "\t"])
def test_conll_files_have_a_row_per_sentence(name, separator, tmp_path, capsys):
    file = save(tmp_path / name, CONLL.replace(" ", separator))
    rows = load_corpus(file)["train"]
    assert rows["tokens"][:] == TOKENS
    assert tags_of(rows) == [["B-ORG", "O", "B-MISC"], ["B-LOC", "B-LOC", "O"]], "IOB1 is converted to BIO"
    assert f"{name}: tags are IOB1; converted to BIO" in capsys.readouterr().err
    chosen = load_corpus(file, columns={"tags": 1})["train"]
    assert tags_of(chosen) == [["NNP", "VBZ", "JJ"], ["NNP", "NNP", "NN"]]
    assert load_corpus(file, columns={"tags": "1"})["train"].to_list() == chosen.to_list()


def test_conllu_columns_by_name_or_number(tmp_path):
    lines = ["# newdoc", "# text = vámonos", "1-2\tvámonos" + "\t_" * 8]
    lines += ["1\tvamos\tir\tVERB\tX" + "\t_" * 5, "2\tnos\tnosotros\tPRON\tY" + "\t_" * 5]
    lines += ["2.1\tya" + "\t_" * 8, ""]
    for name in ("es-ud-train.conllu", "es-ud-dev.conllu"):
        save(tmp_path / name, "\n".join(lines))
    corpus = load_corpus(tmp_path)
    assert list(corpus) == ["train", "validation"]
    assert corpus["train"]["tokens"][:] == [["vamos", "nos"]] and tags_of(corpus["train"]) == [["VERB", "PRON"]]
    for column in ("xpos", 4):
        assert tags_of(load_corpus(tmp_path, columns={"tags": column})["validation"]) == [["X", "Y"]]
    assert list(load_corpus(tmp_path, columns={"tags": "xpos"}, streaming=True, label_names=["X", "Y"])["train"])


@pytest.mark.parametrize(
    "text", ["two words\n\nor three here\n", "roses red\n\nviolets blue\n", "one\n\ntwo\n", "A B\n"]
)
def test_running_text_is_not_taken_for_columns(text, tmp_path):
    file = save(tmp_path / "a.txt", text)
    assert load_corpus(file)["train"]["text"][:] == text.splitlines()


def test_a_columnar_text_can_still_be_read_as_text(tmp_path):
    file = save(tmp_path / "a.txt", CONLL)
    assert len(load_corpus(file, task="language_modeling")["train"]) == len(CONLL.splitlines())


def test_a_conll_line_with_a_missing_column_raises(tmp_path):
    with pytest.raises(ValueError, match=r"a\.conll, line 3, has 1 columns and the first line 2"):
        load_corpus(save(tmp_path / "a.conll", "EU B-ORG\nsays O\nno\n"))
    with pytest.raises(ValueError, match=r"a\.bio has one column"):
        load_corpus(save(tmp_path / "a.bio", "EU\nsays\n"))


def test_a_changed_file_is_read_again(tmp_path):
    assert load_corpus(save(tmp_path / "a.conll", "EU B-ORG\n"))["train"]["tokens"][:] == [["EU"]]
    assert load_corpus(save(tmp_path / "a.conll", "UN B-ORG\n"))["train"]["tokens"][:] == [["UN"]]


SCHEMES = {
    "IOB1": ["I-A", "I-A", "B-A", "I-B", "O", "I-A"],
    "BIOES": ["B-A", "E-A", "S-A", "S-B", "O", "S-A"],
    "BIO": ["B-A", "I-A", "B-A", "B-B", "O", "B-A"],
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_has_the_entities_that_seqeval_finds(scheme):
    from seqeval.metrics.sequence_labeling import get_entities
    from seqeval.scheme import BILOU, IOB1, IOB2, IOBES, Entities

    tags = SCHEMES[scheme]
    assert scheme_of([tags]) == scheme and to_bio(tags) == SCHEMES["BIO"]
    reference = Entities([tags], {"IOB1": IOB1, "BIOES": IOBES, "BIO": IOB2}[scheme]).entities[0]
    assert [(e.tag, e.start, e.end - 1) for e in reference] == get_entities(to_bio(tags))
    bilou = [tag.replace("E-", "L-").replace("S-", "U-") for tag in SCHEMES["BIOES"]]
    assert to_bio(bilou) == SCHEMES["BIO"] and Entities([bilou], BILOU).entities


def test_other_tags_are_left_alone():
    assert scheme_of([["NOUN", "O"]]) is None and scheme_of([["O"]]) is None
    assert scheme_of([["B-A", "O", "I-A"]]) == "BIO", "an error of the annotators"


def article(*questions):
    return {"title": "t", "paragraphs": [{"context": "Rome is in Italy.", "qas": list(questions)}]}


@pytest.mark.parametrize("indent", [None, 2])
def test_squad_as_it_is_published(indent, tmp_path):
    asked = {"id": "1", "question": "Where?", "answers": [{"text": "Italy", "answer_start": 11}] * 2}
    impossible = {"id": 2, "question": "Who?", "is_impossible": True, "plausible_answers": [{"text": "x"}]}
    first = {"data": [article(asked)], "version": "1.1"}
    second = {"version": "v2.0", "data": [article(impossible), article(asked | {"is_impossible": False})]}
    save(tmp_path / "train-v1.1.json", json.dumps(first, indent=indent))
    save(tmp_path / "dev-v2.0.json", json.dumps(second, indent=indent))
    corpus = load_corpus(tmp_path)
    assert corpus["train"].to_list() == [
        {
            "id": "1",
            "context": "Rome is in Italy.",
            "question": "Where?",
            "answers": {"text": ["Italy"] * 2, "answer_start": [11] * 2},
        }
    ]
    assert [row["answers"]["text"] for row in corpus["validation"]] == [[], ["Italy"] * 2]
    assert load_corpus(tmp_path / "dev-v2.0.json")["train"]["id"][:] == ["2", "1"]


def test_anki_is_a_table_without_header(tmp_path, capsys):
    attribution = "CC-BY 2.0 (France) Attribution: tatoeba.org #1 (CK) & #2 (x)"
    lines = ["Go.\tGeh.", '"Hi," he said.\t"Hallo", sagte er.', "Zero.\tnull"]
    lines = [f"{line}\t{attribution}" for line in lines]
    pairs = [tuple(line.split("\t")[:2]) for line in lines]
    for name in ("deu.txt", "deu.tsv"):
        rows = load_corpus(save(tmp_path / name, "\n".join(lines) + "\n"))["train"]
        assert [(row["source"], row["target"]) for row in rows] == pairs
        assert f"{name} has no header: column 0 is 'source'" in capsys.readouterr().err
    swapped = load_corpus(tmp_path / "deu.tsv", columns={"source": 1, "target": 0})["train"]
    assert swapped[0] == {"source": "Geh.", "target": "Go."}


@pytest.mark.parametrize(
    ("lines", "columns"),
    [
        ([f"film {i},{'pos' if i % 2 else 'neg'}" for i in range(12)], ["text", "label"]),
        ([f"{i % 2};film{',' * i} {i}" for i in range(12)], ["label", "text"]),
        (["It rains.,Es regnet.", "It snows.,Es schneit."], ["source", "target"]),
        (["body,topic", "It rains.,weather", "It scores.,sport"], None),
        ([",review text,stars", "0,fine,3", "1,fair,2"], None),
        (["de,en", "ein,one"], None),
    ],
)
def test_headers_are_found(lines, columns, tmp_path):
    file = save(tmp_path / "a.csv", "\n".join(lines) + "\n", "utf-8-sig")
    names = {} if columns else {"columns": {"text": 1, "label": 0}}
    found = load_corpus(file, **names)["train"]
    assert len(found) == len(lines) - (columns is None)
    if columns:
        assert set(found.column_names) == set(columns)
        text = next(name for name in columns if name in ("text", "source"))
        assert found[1][text] in (lines[1].split(",")[0], lines[1].split(";")[-1])


def test_header_can_be_given(tmp_path):
    file = save(tmp_path / "a.tsv", "hello\thallo\nday\tTag\n")
    with pytest.raises(ValueError, match="hello"):
        load_corpus(file)
    assert load_corpus(file, header=False)["train"][0] == {"source": "hello", "target": "hallo"}
    chosen = load_corpus(file, header=False, columns={"text": "0", "label": "1"}, label_names=["Tag", "hallo"])["train"]
    assert chosen[0] == {"text": "hello", "label": 1}
    many = save(tmp_path / "train.tsv", "1\t2\ta b\tx\n3\t4\tc d\ty\n")
    assert load_corpus(many, columns={"text": 2, "label": 3})["train"]["text"][:] == ["a b", "c d"]


TMX = """<?xml version="1.0"?><!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="DE"/><body>
<tu><tuv xml:lang="DE"><seg>Ein <bpt i="1">&lt;b&gt;</bpt><hi>Hund</hi><ept i="1"/>!</seg></tuv>
<tuv xml:lang="en-GB"><seg>A dog &amp; co</seg></tuv></tu>
<tu><tuv xml:lang="DE"><seg>allein</seg></tuv></tu></body></tmx>"""


def test_tmx(tmp_path, capsys):
    file = save(tmp_path / "a.tmx", TMX)
    assert load_corpus(file)["train"].to_list() == [{"source": "Ein Hund!", "target": "A dog & co"}]
    assert "1 of 2 units lack one of de, en-GB" in capsys.readouterr().err
    assert load_corpus(file, source="en-GB", target="de")["train"][0]["target"] == "Ein Hund!"
    bomb = TMX.replace('"tmx14.dtd"', '"tmx14.dtd" [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]').replace("allein", "&b;")
    with pytest.raises(ValueError, match="declares the entity 'a'"):
        load_corpus(save(tmp_path / "b.tmx", bomb))


def test_moses_pairs_by_folder_prefix_and_file(tmp_path):
    save(tmp_path / "corpus.de", "ein Hund\neine Katze\n")
    save(tmp_path / "corpus.en", "a dog\na cat\n")
    rows = [{"source": "ein Hund", "target": "a dog"}, {"source": "eine Katze", "target": "a cat"}]
    for path in (tmp_path, tmp_path / "corpus", tmp_path / "corpus.de"):
        corpus = load_corpus(path)
        assert list(corpus) == ["train"] and corpus["train"].to_list() == rows
    assert load_corpus(tmp_path / "corpus.en")["train"][0] == {"source": "a dog", "target": "ein Hund"}


def test_every_file_of_a_folder_is_a_document(tmp_path, bert_tokenizer):
    from hf_edu_models.data import build_nsp_pairs

    for number in range(20):
        save(tmp_path / f"{number}.txt", f"the dog sees {number}.\n\nthe cat sleeps.\nit rains.\n")
    rows = load_corpus(tmp_path)["train"]
    assert len(set(rows["document"])) == 20 and len(rows) == 80
    assert load_corpus(tmp_path, task="language_modeling")["train"].column_names == ["text", "document"]
    assert len(build_nsp_pairs(rows, bert_tokenizer, max_length=16)) >= 20
    cut = load_corpus(tmp_path, validation_size=8)
    assert len(set(cut["validation"]["document"])) == 2
    save(tmp_path / "splits" / "train.txt", "a\n")
    save(tmp_path / "splits" / "test.txt", "b\n")
    assert load_corpus(tmp_path / "splits")["test"].to_list() == [{"text": "b"}]
