"""Columns and splits as people name them, and the corpus of a recipe made of them."""

import json

import pytest

from hf_edu_models.data import load_corpus, notes
from hf_edu_models.training.arguments import RecipeArguments, parse_arguments
from hf_edu_models.training.presets import find_recipe
from hf_edu_models.training.setup import corpus_for, task_of


@pytest.fixture(autouse=True)
def fresh_notes(monkeypatch):
    monkeypatch.setattr(notes, "_printed", set())


def save(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def reviews(tmp_path, count=40, **columns):
    rows = [{"Message": f"film {i}", "Category": "ham" if i % 3 else "spam"} for i in range(count)]
    return save(
        tmp_path / "reviews.jsonl",
        [row | {name: value(i) for name, value in columns.items()} for i, row in enumerate(rows)],
    )


@pytest.mark.parametrize("text", ["body", "message", "comment", "title", "Text"])
@pytest.mark.parametrize("label", ["category", "class", "topic", "sentiment", "intent", "target", "Label"])
def test_usual_names_of_text_and_label(text, label, tmp_path):
    row = load_corpus(save(tmp_path / "a.jsonl", [{"n": 1, text: "good", label: "x"}]))["train"][0]
    assert row == {"text": "good", "label": 0}


def test_target_with_source_stays_a_translation(tmp_path):
    rows = load_corpus(save(tmp_path / "a.jsonl", [{"source": "a", "target": "b", "topic": "c"}]))["train"]
    assert rows[0] == {"source": "a", "target": "b"}


@pytest.mark.parametrize("prefix", ["answer", "option_", "ending"])
def test_any_number_of_choices(prefix, tmp_path):
    row = {"context": "He", "label": 1} | {f"{prefix}{i}": f"c{i}" for i in (1, 0, 10, 2)}
    found = load_corpus(save(tmp_path / "a.jsonl", [row]))["train"][0]
    assert found == {"context": "He", "choices": ["c0", "c1", "c2", "c10"], "label": 1}


def test_errors_print_the_option_to_type(tmp_path):
    file = save(tmp_path / "a.jsonl", [{"my words": "a", "kind": "b"}])
    with pytest.raises(
        ValueError, match=r"--columns 'text=my words' --columns label=kind \(in Python columns=\{'text'"
    ):
        load_corpus(file)
    with pytest.raises(ValueError, match=r"source and target\? .*--columns 'source=my words' --columns target=kind"):
        load_corpus(file, task="translation")
    with pytest.raises(ValueError, match=r"needs the column 'text' .*--columns 'text=my words'"):
        load_corpus(file, task="classification", columns={"label": "kind"})
    flags = [
        "--dataset",
        str(file),
        "--columns",
        "text=my words",
        "--columns",
        "label=kind",
        "--data_options",
        "unit=line",
    ]
    args, _ = parse_arguments(str(find_recipe("gpt")), flags)
    assert load_corpus(args.dataset, **args.corpus)["train"][0] == {"text": "a", "label": 0}


def test_a_preset_leaves_another_dataset_alone(tmp_path):
    args, _ = parse_arguments(str(find_recipe("transformer")), ["--preset", "multi30k", "--dataset", "other.tsv"])
    assert args.source is None and args.target is None and not args.columns


def test_a_split_column_makes_the_splits(tmp_path, capsys):
    names = ["train"] * 6 + ["dev", "Test", "test", "train"]
    file = reviews(tmp_path, 10, split=lambda i: names[i], number=lambda i: i)
    corpus = load_corpus(file, test_size=1, columns={"text": "Message", "label": "Category", "number": "number"})
    assert {split: list(rows["number"]) for split, rows in corpus.items()} == {
        "train": [0, 1, 2, 3, 4, 5, 9],
        "validation": [6],
        "test": [8] if corpus["test"]["number"][0] == 8 else [7],
    }
    assert "rows by the column 'split': train 7, validation 1, test 2" in capsys.readouterr().err
    assert list(load_corpus(file, splits={"validation": "test"})) == ["validation"]
    with pytest.raises(ValueError, match="'split' is empty in row 3"):
        load_corpus(reviews(tmp_path, 6, split=lambda i: "train" if i != 3 else None))
    other = load_corpus(reviews(tmp_path, 6, split=lambda i: "banana"))
    assert list(other) == ["train"] and len(other["train"]) == 6


def test_columns_left_out_are_named_once(tmp_path, capsys):
    file = reviews(tmp_path, year=lambda i: 1999, author=lambda i: "x")
    for _ in range(2):
        load_corpus(file)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["note: reviews.jsonl is read for classification; columns left out: year, author"]


def test_one_file_is_cut_into_three_splits(tmp_path, capsys):
    args = RecipeArguments(dataset=str(reviews(tmp_path)))
    corpus = corpus_for(args)
    assert {split: len(rows) for split, rows in corpus.items()} == {"train": 32, "validation": 4, "test": 4}
    assert "no validation split: of 40 rows 4 for validation and 4 for test" in capsys.readouterr().err
    assert (args.validation_size, args.test_size) == (4, 4), "recorded, so that `hf-edu evaluate` cuts the same"
    again = load_corpus(args.dataset, **args.corpus)
    assert again["test"].to_list() == corpus["test"].to_list()
    chosen = corpus_for(RecipeArguments(dataset=args.dataset, validation_size=7))
    assert {split: len(rows) for split, rows in chosen.items()} == {"train": 33, "validation": 7}


def test_a_language_model_says_that_it_leaves_the_labels_out(tmp_path, capsys):
    args = RecipeArguments(dataset=str(reviews(tmp_path)))
    corpus = corpus_for(args, tasks=("language_modeling",))
    assert task_of(corpus) == "language_modeling" and corpus["train"].column_names == ["text"]
    assert "it does not use the labels of" in capsys.readouterr().err and args.task == "language_modeling"


@pytest.mark.parametrize("recipe", ["seq2seq", "bahdanau", "transformer"])
def test_a_recipe_rejects_data_of_another_kind(recipe, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": "recipe"}
    file = find_recipe(recipe)
    exec(compile(file.read_text(), str(file), "exec"), scope)
    args, training_args = parse_arguments(str(file), ["--preset", "smoke", "--dataset", str(reviews(tmp_path, 80))])
    message = r"reviews.jsonl is for classification \(text, label\); this recipe takes translation \(source, target\)"
    with pytest.raises(ValueError, match=message):
        scope["main"](args, training_args)
    assert not (tmp_path / "runs").exists(), "checked before a folder is made"


@pytest.mark.parametrize("columns", [None, {"text": "body"}])
def test_texts_are_cut_into_sentences_for_documents(tmp_path, columns):
    text = "It was late. Was it? “No!” said Ada"
    name = "body" if columns else "review"
    rows = [{name: text, "label": "no"}, {name: "One.", "label": "yes"}]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    corpus = load_corpus(tmp_path / "data.jsonl", task="documents", columns=columns)["train"]
    assert corpus.column_names == ["sentences", "label"]
    assert corpus["sentences"][:] == [["It was late.", "Was it?", "“No!”", "said Ada"], ["One."]]


def test_every_row_of_a_folder_of_documents_is_in_a_split(tmp_path):
    for number in range(6):
        (tmp_path / f"story{number}.txt").write_text("One line.\nAnother one.\nThe last one.\n")
    corpus = corpus_for(RecipeArguments(dataset=str(tmp_path)), tasks=("language_modeling",))
    documents = {split: set(rows["document"]) for split, rows in corpus.items()}
    assert sum(map(len, corpus.values())) == 18 and sum(map(len, documents.values())) == 6


def test_sentences_of_labelled_texts_are_pretrained_on_without_their_labels(tmp_path, capsys):
    corpus_for(RecipeArguments(dataset=str(reviews(tmp_path))), tasks=("language_modeling", "documents"))
    assert "are cut into sentences; its labels are not used" in capsys.readouterr().err
