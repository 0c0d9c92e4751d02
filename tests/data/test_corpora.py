"""`load_corpus`: every file format and every known column name gives the same columns; errors name the problem."""

import json

import datasets
import pytest

from hf_edu_models.data import load_corpus
from hf_edu_models.data.split_sizes import cut_missing

PAIRS = {"de": ["ein Hund", "eine Katze", "ein Haus"], "en": ["a dog", "a cat", "a house"]}
TRANSLATION = [{"source": a, "target": b} for a, b in zip(PAIRS["de"], PAIRS["en"], strict=True)]


def write(path, table):
    dataset = datasets.Dataset.from_dict(table)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        dataset.to_parquet(str(path))
    elif path.suffix in (".jsonl", ".json"):
        dataset.to_json(str(path))
    else:
        dataset.to_csv(str(path), sep="\t" if path.suffix == ".tsv" else ",", index=False)
    return path


@pytest.mark.parametrize("extension", ["parquet", "jsonl", "csv", "tsv"])
def test_every_file_format_gives_the_same_rows(extension, tmp_path):
    file = write(tmp_path / f"pairs.{extension}", PAIRS)
    assert load_corpus(file)["train"].to_list() == TRANSLATION
    swapped = load_corpus(str(file), source="en", target="de")["train"]
    assert [(row["target"], row["source"]) for row in swapped] == [tuple(row.values()) for row in TRANSLATION]


@pytest.mark.parametrize("streaming", [False, True])
def test_a_folder_has_one_split_per_file(streaming, tmp_path):
    for split in ("train", "dev", "test"):
        write(tmp_path / f"{split}.jsonl", PAIRS)
    corpus = load_corpus(tmp_path, streaming=streaming)
    assert list(corpus) == ["train", "validation", "test"]
    assert isinstance(corpus, datasets.IterableDatasetDict if streaming else datasets.DatasetDict)
    assert all(list(split) == TRANSLATION for split in corpus.values())


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("extensions", [("src", "tgt"), ("de", "en")])
def test_pairs_of_line_aligned_files(extensions, streaming, tmp_path):
    for split in ("train", "valid"):
        for extension, lines in zip(extensions, PAIRS.values(), strict=True):
            (tmp_path / f"{split}.{extension}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    direction = {} if extensions[0] == "src" else {"source": "de", "target": "en"}
    corpus = load_corpus(tmp_path, streaming=streaming, **direction)
    assert list(corpus) == ["train", "validation"] and list(corpus["validation"]) == TRANSLATION
    by_prefix = load_corpus(tmp_path / "train", streaming=streaming, **direction)
    by_file = load_corpus(tmp_path / f"train.{extensions[0]}", streaming=streaming, **direction)
    assert list(by_prefix["train"]) == list(by_file["train"]) == TRANSLATION


def test_text_by_line_paragraph_and_document(tmp_path):
    text = "one\ntwo\n\nthree\u2028still three\n"
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    assert load_corpus(tmp_path / "a.txt")["train"]["text"][:] == ["one", "two", "", "three\u2028still three"]
    assert load_corpus(tmp_path, unit="paragraph")["train"]["text"][0].rstrip("\n") == "one\ntwo"
    assert load_corpus(tmp_path / "a.txt", unit="document")["train"]["text"][:] == [text]


CASES = {
    "sst2": ({"sentence": ["good", "bad"], "label": [1, 0]}, {"text": "good", "label": 1}),
    "rte": (
        {"sentence1": ["a", "b"], "sentence2": ["c", "d"], "label": ["not", "entailment"]},
        {"text": "a", "text_pair": "c", "label": 1},
    ),
    "qnli": (
        {"question": ["q"], "sentence": ["a"], "label": ["yes"]},
        {"text": "a", "text_pair": "q", "label": 0},
    ),
    "boolq": (
        {"question": ["q"], "passage": ["a"], "title": ["t"], "label": [0]},
        {"text": "a", "text_pair": "q", "label": 0},
    ),
    "wic": (
        {"word": ["w"], "sentence1": ["a w"], "sentence2": ["b w"], "start1": [2], "label": [0]},
        {"text": "w a w", "text_pair": "b w", "label": 0},
    ),
    "copa": (
        {"premise": ["a"], "question": ["cause"], "choice1": ["b"], "choice2": ["c"], "label": [1]},
        {"context": "a cause", "choices": ["b", "c"], "label": 1},
    ),
    "stsb": (
        {"sentence1": ["a"], "sentence2": ["c"], "score": [2.5], "genre": ["x"]},
        {"text": "a", "text_pair": "c", "label": 2.5},
    ),
    "go_emotions": ({"text": ["a", "b"], "labels": [["joy", "anger"], []]}, {"text": "a", "label": [1, 0]}),
    "wnut": (
        {"tokens": [["in", "Rome"]], "ner_tags": [["O", "B-location"]]},
        {"tokens": ["in", "Rome"], "tags": [0, 1]},
    ),
    "ud": (
        {"doc": ["1"], "text": ["I go"], "tokens": [["I", "go"]], "upos": [["PRON", "VERB"]], "xpos": [["X", "Y"]]},
        {"tokens": ["I", "go"], "tags": [0, 1]},
    ),
    "squad": (
        {
            "id": ["7"],
            "title": ["t"],
            "context": ["a b"],
            "question": ["?"],
            "answers": [{"text": ["b"], "answer_start": [2]}],
        },
        {"id": "7", "context": "a b", "question": "?", "answers": {"text": ["b"], "answer_start": [2]}},
    ),
    "flat_qa": (
        {"context": ["a b"], "question": ["?"], "answer_text": [["b", "a b"]], "answer_start": [[2, 0]]},
        {"id": "0", "context": "a b", "question": "?", "answers": {"text": ["b", "a b"], "answer_start": [2, 0]}},
    ),
    "one_answer_qa": (
        {"id": ["x"], "context": ["a b"], "question": ["?"], "answer_text": ["b"], "answer_start": [2]},
        {"id": "x", "context": "a b", "question": "?", "answers": {"text": ["b"], "answer_start": [2]}},
    ),
    "hellaswag": (
        {"ctx": ["He"], **{f"ending{i}": [f"e{i}"] for i in range(4)}, "label": [3]},
        {"context": "He", "choices": ["e0", "e1", "e2", "e3"], "label": 3},
    ),
    "swag": (
        {"sent1": ["A."], "sent2": ["He"], **{f"ending{i}": [f"e{i}"] for i in range(4)}, "label": [0]},
        {"context": "A.", "choices": ["He e0", "He e1", "He e2", "He e3"], "label": 0},
    ),
    "reviews": (
        {"sentences": [["good .", "fun ."]], "label": [0], "doc_id": ["d"]},
        {"sentences": ["good .", "fun ."], "label": 0, "document": "d"},
    ),
    "wikitext": (
        {"article": ["A"], "section": [""], "paragraph": ["text"]},
        {"text": "text", "document": "A"},
    ),
    "translation_dict": (
        {"translation": [{"de": "ein Hund", "en": "a dog"}]},
        {"source": "ein Hund", "target": "a dog"},
    ),
    "hansards": (
        {"en": ["a b"], "fr": ["c d"], "sure": ["0-0"], "possible": ["1-0 0-1"]},
        {"source": "a b", "target": "c d", "sure": [[0, 0]], "possible": [[1, 0], [0, 1]]},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_known_columns_are_mapped(name, tmp_path):
    table, first = CASES[name]
    found = load_corpus(write(tmp_path / "train.parquet", table))["train"]
    assert found[0] == first
    assert list(found[0]) == list(first), "columns have the order of the task"


def test_links_are_swapped_with_the_direction(tmp_path):
    file = write(tmp_path / "test.parquet", CASES["hansards"][0])
    row = load_corpus(file, source="fr", target="en")["train"][0]
    assert row == {"source": "c d", "target": "a b", "sure": [[0, 0]], "possible": [[0, 1], [1, 0]]}


def test_class_names_come_from_all_splits(tmp_path):
    write(tmp_path / "train.jsonl", {"text": ["a", "b"], "label": ["no", "yes"]})
    write(tmp_path / "test.jsonl", {"text": ["c"], "label": ["maybe"]})
    corpus = load_corpus(tmp_path)
    for split in corpus.values():
        assert split.features["label"].names == ["maybe", "no", "yes"]
    assert corpus["test"]["label"][:] == [0]
    ordered = load_corpus(tmp_path, label_names=["yes", "no", "maybe"])
    assert ordered["train"]["label"][:] == [1, 0] and ordered["test"]["label"][:] == [2]


def test_integer_classes_keep_their_order_and_missing_labels(tmp_path):
    corpus = load_corpus(write(tmp_path / "x.parquet", {"text": ["a", "b", "c"], "label": [2, -1, 0]}))
    assert corpus["train"].features["label"].names == ["0", "1", "2"]
    assert corpus["train"]["label"][:] == [2, -1, 0]


def test_streams_take_class_names_from_the_caller(tmp_path):
    file = write(tmp_path / "x.jsonl", {"text": ["a", "b"], "label": ["no", "yes"]})
    stream = load_corpus(file, streaming=True, label_names=["yes", "no"])
    assert [row["label"] for row in stream["train"]] == [1, 0]
    with pytest.raises(ValueError, match=r"label_names"):
        load_corpus(file, streaming=True)
    numbers = write(tmp_path / "y.jsonl", {"text": ["a", "b"], "label": [3, 1]})
    assert [row["label"] for row in load_corpus(numbers, streaming=True)["train"]] == [3, 1]


def test_columns_maps_and_selects_any_column(tmp_path):
    file = write(tmp_path / "x.parquet", {"body": ["hello"], "topic": ["b"], "year": [1999]})
    row = load_corpus(file, columns={"text": "body", "label": "topic", "year": "year"})["train"][0]
    assert row == {"text": "hello", "label": 0, "year": 1999}


def test_task_chooses_where_the_columns_fit_two(tmp_path):
    file = write(tmp_path / "x.parquet", CASES["ud"][0])
    assert load_corpus(file, task="language_modeling")["train"][0] == {"text": "I go", "document": "1"}
    tags = load_corpus(file, columns={"tags": "xpos"})["train"]
    assert tags.features["tags"].feature.names == ["X", "Y"]


def test_missing_splits_are_cut_from_train_without_overlap(tmp_path):
    file = write(
        tmp_path / "x.parquet", {"source": [f"s{i}" for i in range(50)], "target": [f"t{i}" for i in range(50)]}
    )
    corpus = load_corpus(file, validation_size=10, test_size=5, train_size=20)
    rows = {split: set(dataset["source"]) for split, dataset in corpus.items()}
    assert [len(rows[split]) for split in ("train", "validation", "test")] == [20, 10, 5]
    assert len(set.union(*rows.values())) == 35
    again = load_corpus(file, validation_size=10, test_size=5, train_size=20)
    assert all(again[split].to_dict() == corpus[split].to_dict() for split in corpus)
    stream = load_corpus(file, validation_size=10, train_size=20, streaming=True)
    taken = {split: [row["source"] for row in dataset] for split, dataset in stream.items()}
    assert len(taken["train"]) == 20 and len(taken["validation"]) == 10
    assert not set(taken["train"]) & set(taken["validation"])


def test_running_text_is_cut_between_documents():
    documents = ["a"] * 4 + ["b"] * 3 + ["c"] * 3
    train = datasets.Dataset.from_dict({"text": [f"{i}" for i in range(10)], "document": documents})
    found = cut_missing({"train": train}, {"validation": 4}, seed=0, streaming=False)
    assert found["validation"]["document"][:] == ["b"] * 3 + ["c"] * 3
    assert found["train"]["text"][:] == ["0", "1", "2", "3"]
    with pytest.raises(ValueError, match=r"every document"):
        cut_missing({"train": train}, {"validation": 9}, seed=0, streaming=False)


def test_splits_can_be_selected_and_renamed(tmp_path):
    for split in ("train", "test"):
        write(tmp_path / f"{split}.jsonl", PAIRS)
    assert list(load_corpus(tmp_path, splits={"validation": "test"})) == ["validation"]
    with pytest.raises(ValueError, match=r"'dev', which is not there; there are train, test"):
        load_corpus(tmp_path, splits={"validation": "dev"})


def test_hub_datasets_are_loaded_with_config_and_revision(monkeypatch, tmp_path):
    call = {}

    def fake(path, **options):
        call.update(options, id=path)
        return datasets.DatasetDict({"train": datasets.Dataset.from_dict(CASES["translation_dict"][0])})

    monkeypatch.setattr(datasets, "load_dataset", fake)
    corpus = load_corpus("owner/data", config="de-en", revision="abc", source="en", target="de")
    assert corpus["train"][0] == {"source": "a dog", "target": "ein Hund"}
    assert (call["id"], call["name"], call["revision"], call["streaming"]) == ("owner/data", "de-en", "abc", False)


def test_an_unreachable_hub_raises(monkeypatch):
    def offline(*args, **kwargs):
        raise ConnectionError("no route to the Hub")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(
        FileNotFoundError, match=r"'owner/nothing' is not a built-in corpus .*dates.*no route to the Hub"
    ):
        load_corpus("owner/nothing")


def many(tmp_path):
    return write(tmp_path / "m.parquet", PAIRS | {"fr": ["un chien", "un chat", "une maison"]})


@pytest.mark.parametrize(
    ("make", "options", "kind", "message"),
    [
        (lambda p: p / "none.csv", {}, FileNotFoundError, "none.csv does not exist; .* has nothing"),
        (many, {}, ValueError, "3 languages to choose from .*pass source= and target="),
        (many, {"source": "de", "target": "it"}, ValueError, "target='it' does not exist; there are 'de', 'en', 'fr'"),
        (many, {"source": "de"}, ValueError, "give source and target together"),
        (many, {"source": "de", "target": "de"}, ValueError, "both 'de'"),
        (many, {"columns": {"text": "body"}}, ValueError, "'body', which does not exist; there are 'de'"),
        (many, {"task": "dreaming"}, ValueError, "task must be one of .*got 'dreaming'"),
        (many, {"task": "classification"}, ValueError, "classification needs the column 'text'"),
        (many, {"source": "de", "target": "en", "unit": "page"}, ValueError, "line, paragraph, document; got 'page'"),
        (many, {"source": "de", "target": "en", "revision": "x"}, ValueError, "revision='x' is for Hub"),
        (many, {"source": "de", "target": "en", "test_size": 3}, ValueError, "leaves nothing of the 3 rows"),
        (many, {"columns": {"text": "de", "label": "en"}, "label_names": ["a"]}, ValueError, "does not cover"),
        (many, {"source": "de", "target": "en", "unit": "paragraph"}, ValueError, "unit='paragraph' is for text files"),
        (many, {"source": "de", "target": "en", "config": "x"}, ValueError, "config='x' is for Hub"),
        (many, {"source": "de", "target": "en", "label_names": ["x"]}, ValueError, "no 'label' and no 'tags'"),
        (lambda p: write(p / "o.parquet", {"strange": [1]}), {}, ValueError, "no task fits the columns 'strange'"),
    ],
)
def test_invalid_arguments_raise(make, options, kind, message, tmp_path):
    with pytest.raises(kind, match=message):
        load_corpus(make(tmp_path), **options)


def test_an_incomplete_or_unequal_pair_of_files_raises(tmp_path):
    (tmp_path / "train.src").write_text("a\nb\n")
    with pytest.raises(FileNotFoundError, match=r"no partner train\.tgt"):
        load_corpus(tmp_path)
    (tmp_path / "train.tgt").write_text("a\n")
    with pytest.raises(ValueError, match=r"train\.src has 2 lines and train\.tgt has 1"):
        load_corpus(tmp_path)


def test_unknown_file_extensions_raise(tmp_path):
    (tmp_path / "notes.pdf").write_text("x")
    with pytest.raises(FileNotFoundError, match=r"it has notes\.pdf"):
        load_corpus(tmp_path)
    with pytest.raises(ValueError, match=r"extension '\.pdf'; use \.parquet"):
        load_corpus(tmp_path / "notes.pdf")


@pytest.mark.parametrize("extension", [".jsonl", ".parquet"])
def test_different_columns_and_truncated_files_raise(extension, tmp_path):
    write(tmp_path / f"train{extension}", PAIRS)
    write(tmp_path / f"test{extension}", PAIRS | {"number": [1, 2, 3]})
    options = {"cache_dir": tmp_path / "cache"}
    with pytest.raises(ValueError, match="columns de, en, number and with de, en; give all of them the same"):
        load_corpus(tmp_path, **options)
    file = tmp_path / f"test{extension}"
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(ValueError, match=r"cannot be read: .*truncated\?"):
        load_corpus(file, **options)


def test_built_in_corpora_can_be_streamed(tmp_path):
    stream = load_corpus("copy", train_size=20, validation_size=2, test_size=2, streaming=True, cache_dir=tmp_path)
    assert isinstance(stream, datasets.IterableDatasetDict)
    assert len(list(stream["train"])) == 20


@pytest.mark.parametrize("option", ["task", "source", "config", "revision", "unit"])
def test_built_in_corpora_reject_the_options_of_files(option):
    with pytest.raises(TypeError, match=f"dates is built in and has no '{option}'; it takes languages"):
        load_corpus("dates", **{option: "x"})


def test_files_are_cached_in_cache_dir(tmp_path):
    load_corpus(write(tmp_path / "x.parquet", PAIRS), cache_dir=tmp_path / "here")
    assert list((tmp_path / "here").rglob("*.arrow"))


def test_files_reject_the_options_of_built_in_corpora(tmp_path):
    file = write(tmp_path / "x.parquet", PAIRS)
    with pytest.raises(TypeError, match=r"no option 'languages'"):
        load_corpus(file, languages=["de"])


def test_rows_are_json_serialisable(tmp_path):
    """Rows hold plain Python values only."""
    for name, (table, _) in CASES.items():
        json.dumps(load_corpus(write(tmp_path / f"{name}.parquet", table))["train"][0])
