"""Rows of text to token ids and labels, and logits back to answers."""

import datasets
import numpy as np
import pytest
import torch

from hf_edu_models.data import collator_for, encode_corpus, find_answers, train_tokenizer
from hf_edu_models.data.question_answering import answer_positions
from hf_edu_models.data.row_encoders import align_tags, inside_tags

WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "while",
    "seven",
    "unbelievable",
    "elephants",
    "watch",
    "from",
    "Timbuktu",
]


def make(columns, **features):
    dataset = datasets.Dataset.from_dict(columns)
    for name, feature in features.items():
        dataset = dataset.cast_column(name, feature)
    return dataset


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([" ".join(WORDS)], "wordpiece", 60, rung="bert")


@pytest.fixture(scope="module")
def seq2seq():
    return train_tokenizer([" ".join(WORDS)], "bpe", 300, rung="seq2seq")


def test_translation(seq2seq, tmp_path):
    corpus = make({"source": ["the fox", "a dog"], "target": ["over the lazy dog", "seven"]})
    rows = encode_corpus(corpus, seq2seq, cache_dir=tmp_path)
    assert rows.column_names == ["input_ids", "attention_mask", "labels"]
    for row, (source, target) in zip(rows, corpus.select_columns(["source", "target"]).to_pandas().values, strict=True):
        assert seq2seq.decode(row["input_ids"]) == source + "</s>" and seq2seq.decode(row["labels"]) == target + "</s>"
    batch = collator_for("translation", seq2seq)([dict(row) for row in rows])
    shorter = len(rows[1]["labels"])
    assert (batch["labels"][1, shorter:] == -100).all() and (batch["labels"][1, :shorter] != -100).all()
    assert (batch["input_ids"][batch["attention_mask"] == 0] == seq2seq.pad_token_id).all()


def test_translation_with_two_vocabularies(tmp_path):
    corpus = make({"source": ["hund katze"], "target": ["dog cat"]})
    source, target = train_tokenizer(corpus, "word", 40, joint=False)
    row = encode_corpus(corpus, source, target_tokenizer=target, cache_dir=tmp_path)[0]
    assert source.decode(row["input_ids"]) == "hund katze</s>" and target.decode(row["labels"]) == "dog cat</s>"


def test_long_texts_are_truncated(seq2seq, tmp_path):
    corpus = make({"source": [" ".join(WORDS)], "target": [" ".join(WORDS)]})
    row = encode_corpus(corpus, seq2seq, max_length=6, cache_dir=tmp_path)[0]
    assert len(row["input_ids"]) == len(row["labels"]) == 6
    assert row["input_ids"][-1] == row["labels"][-1] == seq2seq.eos_token_id


def test_single_label_regression_and_multi_label_classification(tokenizer, tmp_path):
    texts = ["the fox", "a dog"]
    one = make({"text": texts, "label": [1, 0]}, label=datasets.ClassLabel(names=["no", "yes"]))
    assert encode_corpus(one, tokenizer, cache_dir=tmp_path)["labels"][:] == [1, 0]
    number = make({"text": texts, "text_pair": texts, "label": [0.5, 4.0]})
    rows = encode_corpus(number, tokenizer, cache_dir=tmp_path)
    assert rows["labels"][:] == [0.5, 4.0] and set(rows[0]["token_type_ids"]) == {0, 1}
    batch = collator_for("classification", tokenizer)([dict(row) for row in rows])
    assert batch["labels"].dtype == torch.float32
    many = make({"text": texts, "label": [[0, 2], []]}, label=datasets.List(datasets.ClassLabel(names=["a", "b", "c"])))
    assert encode_corpus(many, tokenizer, cache_dir=tmp_path)["labels"][:] == [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]


@pytest.fixture(scope="module")
def tagged():
    names = ["O", "B-animal", "I-animal", "B-location"]
    tags = datasets.List(datasets.ClassLabel(names=names))
    return make({"tokens": [["unbelievable", "elephants", "watch"], ["Timbuktu"]], "tags": [[1, 2, 0], [3]]}, tags=tags)


@pytest.mark.parametrize("label_all", [False, True])
def test_the_first_subword_of_a_word_has_its_tag(tokenizer, tagged, label_all, tmp_path):
    rows = encode_corpus(tagged, tokenizer, label_all_subwords=label_all, cache_dir=tmp_path)
    assert max(len(row["labels"]) for row in rows) > 5, "words are split into subwords"
    for row, original in zip(rows, tagged, strict=True):
        words = tokenizer(original["tokens"], is_split_into_words=True).word_ids()
        firsts = [position for position, word in enumerate(words) if word is not None and word != words[position - 1]]
        assert [row["labels"][position] for position in firsts] == original["tags"]
        for position, word in enumerate(words):
            if word is None:
                assert row["labels"][position] == -100
            elif position not in firsts:
                inside = {0: 0, 1: 2, 2: 2, 3: 3}[original["tags"][word]]
                assert row["labels"][position] == (inside if label_all else -100)
    batch = collator_for("token_classification", tokenizer)([dict(row) for row in rows])
    assert (batch["labels"][batch["attention_mask"] == 0] == -100).all()


def test_inside_tags_exist_in_the_tag_set():
    assert inside_tags(["O", "B-a", "I-a", "B-b"]) == {1: 2}
    assert align_tags([None, 0, 0, 1, None], [3, 1], {1: 2}, label_all=True) == [-100, 3, 3, 1, -100]


def test_multiple_choice(tokenizer, tmp_path):
    corpus = make(
        {"context": ["the fox", "a dog"], "choices": [["jumps", "over it"], ["a", "lazy dog"]], "label": [0, 1]}
    )
    rows = encode_corpus(corpus, tokenizer, cache_dir=tmp_path)
    for row, original in zip(rows, corpus, strict=True):
        for ids, choice in zip(row["input_ids"], original["choices"], strict=True):
            assert ids == tokenizer(original["context"], choice)["input_ids"]
    batch = collator_for("multiple_choice", tokenizer)([dict(row) for row in rows])
    assert batch["input_ids"].shape[:2] == (2, 2) and batch["labels"].tolist() == [0, 1]


def test_documents_are_three_dimensional(tokenizer, tmp_path):
    corpus = make({"sentences": [["the fox jumps", "over"], ["a lazy dog", "", "while", "seven"]], "label": [0, 1]})
    rows = encode_corpus(corpus, tokenizer, cache_dir=tmp_path)
    batch = collator_for("documents", tokenizer)([dict(row) for row in rows])
    counts = batch["attention_mask"].bool().any(-1).sum(-1)
    assert counts.tolist() == [2, 3], "the empty sentence is gone"
    for row, document in enumerate(rows["input_ids"]):
        for position, sentence in enumerate(document):
            tokens = batch["input_ids"][row, position][batch["attention_mask"][row, position].bool()]
            assert tokens.tolist() == sentence
    assert (batch["input_ids"][batch["attention_mask"] == 0] == tokenizer.pad_token_id).all()
    assert batch["labels"].tolist() == [0, 1]
    cut = encode_corpus(corpus, tokenizer, max_sentences=2, max_length=3, cache_dir=tmp_path)
    assert all(len(row) <= 2 and all(len(each) <= 3 for each in row) for row in cut["input_ids"])
    with pytest.raises(ValueError, match=r"document 0 of this batch has no sentence"):
        encode_corpus(make({"sentences": [[" "]], "label": [0]}), tokenizer, cache_dir=tmp_path)


def answer(context, text):
    return {"text": [text], "answer_start": [context.index(text)]}


@pytest.fixture(scope="module")
def questions():
    context = " ".join(WORDS * 3)
    texts = ["unbelievable elephants", "the quick", "from Timbuktu", "lazy"]
    rows = {
        "id": [str(n) for n in range(5)],
        "context": [context] * 5,
        "question": ["the fox?"] * 4 + [" ".join(WORDS * 4)],
    }
    rows["answers"] = [answer(context, text) for text in texts] + [{"text": [], "answer_start": []}]
    return datasets.Dataset.from_dict(rows)


@pytest.mark.parametrize(("max_length", "stride"), [(24, 0), (40, 12), (512, 128)])
def test_windows_cover_the_context_and_contain_the_answer(tokenizer, questions, max_length, stride, tmp_path):
    windows = encode_corpus(questions, tokenizer, max_length=max_length, stride=stride, cache_dir=tmp_path)
    examples = {row["id"]: row for row in questions}
    found, covered = set(), {identity: set() for identity in examples}
    for window in windows:
        example = examples[window["example_id"]]
        assert len(window["input_ids"]) <= max_length
        for first, last in window["offset_mapping"]:
            covered[window["example_id"]].update(range(first, last) if first >= 0 else ())
        start, end = window["start_positions"], window["end_positions"]
        if start:
            answer_text = example["context"][window["offset_mapping"][start][0] : window["offset_mapping"][end][1]]
            assert answer_text == example["answers"]["text"][0]
            found.add(window["example_id"])
    letters = {position for position, character in enumerate(questions[0]["context"]) if character != " "}
    assert all(letters <= positions for positions in covered.values())
    if stride or max_length == 512:
        assert found == {"0", "1", "2", "3"}


def test_an_answer_that_crosses_the_border_of_a_window_is_outside():
    offsets = [(-1, -1), (0, 3), (4, 9), (-1, -1)]
    assert answer_positions(offsets, {"text": ["abc defgh"], "answer_start": [0]}) == (1, 2)
    assert answer_positions(offsets, {"text": ["defgh ij"], "answer_start": [4]}) == (0, 0)
    assert answer_positions(offsets, {"text": ["zz abc"], "answer_start": [-3]}) == (0, 0)
    assert answer_positions(offsets, {"text": [], "answer_start": []}) == (0, 0)


def test_perfect_logits_give_the_answers(tokenizer, questions, tmp_path):
    windows = encode_corpus(questions, tokenizer, max_length=40, stride=12, cache_dir=tmp_path)
    longest = max(len(ids) for ids in windows["input_ids"]) + 3
    starts, ends = (np.full((len(windows), longest), -5.0) for _ in range(2))
    for row, window in enumerate(windows):
        starts[row, window["start_positions"]] = ends[row, window["end_positions"]] = 5.0
    answer_text = {
        row["id"]: row["prediction_text"] for row in find_answers(starts, ends, windows, questions, null_threshold=0.0)
    }
    assert answer_text == {row["id"]: (row["answers"]["text"] or [""])[0] for row in questions}


def test_the_best_span_is_the_best_of_all_spans(tokenizer, questions, tmp_path):
    windows = encode_corpus(questions.select([0]), tokenizer, max_length=30, stride=8, cache_dir=tmp_path)
    rng = np.random.default_rng(0)
    starts, ends = rng.normal(size=(2, len(windows), 30))
    best = (-np.inf, None)
    for window, first, last in zip(windows, starts, ends, strict=True):
        for i, a in enumerate(window["offset_mapping"]):
            for j, b in enumerate(window["offset_mapping"]):
                if a[0] >= 0 and b[0] >= 0 and 0 <= j - i < 7 and first[i] + last[j] > best[0]:
                    best = (first[i] + last[j], questions[0]["context"][a[0] : b[1]])
    answer_text = find_answers(starts, ends, windows, questions.select([0]), best=30, max_answer_length=7)
    assert answer_text == [{"id": "0", "prediction_text": best[1]}]


def test_question_answering_batches_hold_model_inputs_only(tokenizer, questions, tmp_path):
    windows = encode_corpus(questions, tokenizer, max_length=40, stride=12, cache_dir=tmp_path)
    batch = collator_for("question_answering", tokenizer)([windows[0], windows[1]])
    assert set(batch) == {"input_ids", "token_type_ids", "attention_mask", "start_positions", "end_positions"}


def test_encoding_is_cached_by_content_and_runs_in_parallel(tokenizer, tagged, tmp_path, monkeypatch):
    once = encode_corpus(tagged, tokenizer, cache_dir=tmp_path)
    tokenizer(["another", "state of the tokenizer"], padding=True, truncation=True, max_length=3)
    same = datasets.Dataset.from_dict(tagged.to_dict(), features=tagged.features)
    files = sorted(tmp_path.rglob("*.arrow"))
    again = encode_corpus(same, tokenizer, cache_dir=tmp_path)
    assert sorted(tmp_path.rglob("*.arrow")) == files and again.to_dict() == once.to_dict()
    both = encode_corpus(tagged, tokenizer, num_proc=2, cache_dir=tmp_path / "two")
    assert both.to_dict() == once.to_dict()
    encode_corpus(tagged, tokenizer, label_all_subwords=True, cache_dir=tmp_path)
    assert len(sorted(tmp_path.glob("encoded/*.arrow"))) == 2


def test_streams_are_encoded_lazily(tokenizer, tagged, tmp_path):
    stream = encode_corpus(tagged.to_iterable_dataset(), tokenizer)
    assert [row["labels"] for row in stream] == encode_corpus(tagged, tokenizer, cache_dir=tmp_path)["labels"][:]


def test_invalid_arguments_raise(tokenizer, questions, tagged, tmp_path):
    with pytest.raises(TypeError, match=r"token_classification has no option 'stride'; it takes max_length"):
        encode_corpus(tagged, tokenizer, stride=3, cache_dir=tmp_path)
    with pytest.raises(ValueError, match=r"task must be one of .*translation.*got 'poetry'"):
        encode_corpus(tagged, tokenizer, task="poetry", cache_dir=tmp_path)
    with pytest.raises(ValueError, match=r"no room for a question and a stride of 30"):
        encode_corpus(questions, tokenizer, max_length=30, stride=30, cache_dir=tmp_path)
    with pytest.raises(ValueError, match=r"1 rows of logits do not belong to 5 windows"):
        find_answers(np.zeros((1, 3)), np.zeros((1, 3)), questions, questions)
    with pytest.raises(ValueError, match=r"task must be one of .*got 'poetry'"):
        collator_for("poetry", tokenizer)
