"""Linear probes: they find what a layer encodes, and nothing else."""

import json

import numpy as np
import pytest
import torch
from attenders import ATTENDERS, by_name
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value
from tiny import CASES
from typer.testing import CliRunner

import hf_edu_models
from hf_edu_models.cli.explain import app
from hf_edu_models.data import train_tokenizer
from hf_edu_models.explain import draw_probe, probe
from hf_edu_models.explain.probes.linear import WordStates, baselines, collect_states, control_labels, split_rows
from hf_edu_models.explain.word_tokens import encode_words

LETTERS = "thecasonmdr"


def rows_of(count, label, seed=0):
    """Words of random letters; `label` gets the words and a position."""
    rng = np.random.default_rng(seed)
    words = ["".join(rng.choice(list(LETTERS), size=rng.integers(1, 4))) for _ in range(30)]
    rows = []
    for _ in range(count):
        tokens = [str(word) for word in rng.choice(words, size=rng.integers(3, 8))]
        rows.append({"tokens": tokens, "tags": [label(tokens, position) for position in range(len(tokens))]})
    return rows


def first_letter(tokens, position):
    return "early" if tokens[position][0] < "n" else "late"


def is_last(tokens, position):
    return "last" if position == len(tokens) - 1 else "inside"


@pytest.mark.parametrize("attender", **by_name(ATTENDERS))
def test_embeddings_encode_the_first_letter(built, attender):
    """The first token of a word is its first letter, and the label a function of it."""
    model, tokenizer = built(attender)
    result = probe(model, tokenizer, rows_of(60, first_letter), layers=[0], train_size=45, test_size=15)
    (layer,) = result.layers
    assert layer.accuracy > result.majority + 0.2  # embeddings contain positions too
    assert result.labels == ["early", "late"]
    assert layer.selectivity == layer.accuracy - layer.control


def test_only_a_layer_with_context_encodes_the_last_word(built):
    """Whether a word is the last depends on what follows, so the embeddings cannot encode it."""
    model, tokenizer = built(next(each for each in ATTENDERS if each.name == "bert"))
    result = probe(model, tokenizer, rows_of(120, is_last), train_size=90, test_size=30)
    assert len(result.layers) == 3 and [each.layer for each in result.layers] == [0, 1, 2]
    assert result.best.layer > 0 and result.best.accuracy > result.layers[0].accuracy + 0.02


def test_states_are_those_of_first_tokens(built):
    model, tokenizer = built(next(each for each in ATTENDERS if each.name == "hf-bert"))
    rows = rows_of(4, first_letter)
    numbers = {"early": 0, "late": 1}
    words = collect_states(model, tokenizer, rows, numbers, batch_size=3)
    start = 0
    for row in rows:
        text = " ".join(row["tokens"])
        with torch.no_grad():
            states = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
        first = [
            text.index(" ".join(row["tokens"][i:]), len(" ".join(row["tokens"][:i]))) for i in range(len(row["tokens"]))
        ]
        for layer, expected in enumerate(states):
            found = words.states[layer, start : start + len(first)]
            np.testing.assert_allclose(found, expected[0, [position + 1 for position in first]].numpy(), atol=1e-5)
        assert words.labels[start : start + len(first)].tolist() == [numbers[tag] for tag in row["tags"]]
        start += len(first)
    assert start == len(words.labels) == words.states.shape[1]


def test_the_body_is_frozen(built):
    model, tokenizer = built(ATTENDERS[1])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.train()
    probe(model, tokenizer, rows_of(10, first_letter), train_size=6, test_size=4)
    assert model.training
    model.eval()
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_control_gives_a_word_one_label_everywhere():
    rng = np.random.default_rng(0)
    spellings = [f"w{number}" for number in rng.integers(200, size=4000)]
    labels = rng.choice([0, 1, 2], p=[0.7, 0.2, 0.1], size=4000)
    train, test = (
        WordStates(np.zeros((1, 2000, 1)), labels[part], spellings[part]) for part in (slice(2000), slice(2000, None))
    )
    drawn = np.concatenate(control_labels(train, test, seed=0))
    by_word = {}
    for spelling, label in zip(spellings, drawn, strict=True):
        assert by_word.setdefault(spelling, label) == label
    shares = np.bincount(list(by_word.values())) / len(by_word)
    np.testing.assert_allclose(shares, [0.7, 0.2, 0.1], atol=0.1)
    assert not np.array_equal(drawn, np.concatenate(control_labels(train, test, seed=1)))


def test_the_control_task_can_be_learned_from_distinct_vectors(tmp_path):
    """Thirty words in forty dimensions: any label of a word is a linear function of its vector."""
    rows = rows_of(100, is_last)
    tokenizer = train_tokenizer([" ".join(row["tokens"]) for row in rows], kind="word", cache_dir=tmp_path)
    torch.manual_seed(0)
    config = hf_edu_models.EduRecurrentConfig(vocab_size=len(tokenizer), embedding_size=40, hidden_size=12)
    model = hf_edu_models.EduRecurrentForCausalLM(config)
    (layer,) = probe(model, tokenizer, rows, layers=[0], train_size=80, test_size=20).layers
    assert layer.control > 0.95 > layer.accuracy


def test_baselines_by_hand():
    train = WordStates(np.zeros((1, 5, 1)), np.array([0, 0, 1, 1, 1]), ["a", "a", "a", "b", "b"])
    test = WordStates(np.zeros((1, 4, 1)), np.array([0, 1, 1, 0]), ["a", "b", "new", "b"])
    assert baselines(train, test)[:2] == (0.5, 0.75)
    assert baselines(train, test)[2].tolist() == [0, 1, 1, 1]


def test_the_same_seed_gives_the_same_numbers(built):
    model, tokenizer = built(ATTENDERS[1])
    rows = rows_of(30, first_letter)
    one, same, other = (probe(model, tokenizer, rows, train_size=20, test_size=10, seed=seed) for seed in (1, 1, 2))
    assert one == same != other


def test_splits_of_a_corpus_are_kept_apart():
    train, test = rows_of(20, first_letter, seed=1), rows_of(9, first_letter, seed=2)
    for name in ("test", "validation"):
        training, held_out = split_rows({"train": train, name: test}, 15, 50, seed=0)
        assert len(training) == 15 and len(held_out) == 9
        assert all(row in train for row in training) and all(row in test for row in held_out)
    training, held_out = split_rows(train, 15, 5, seed=0)
    assert len(training) == 15 and len(held_out) == 5
    assert sorted(map(str, training + held_out)) == sorted(map(str, train))
    assert [len(part) for part in split_rows(train[:3], 1000, 500, seed=0)] == [2, 1]


@pytest.mark.parametrize(
    "rows, options, message",
    [
        ([], {}, "no rows"),
        ([{"text": "a"}], {}, "'tokens' and 'tags', got text"),
        (rows_of(1, first_letter), {}, "at least two sentences"),
        (rows_of(9, lambda tokens, position: "same"), {}, "the same label"),
        ({"train": rows_of(9, first_letter), "dev": []}, {}, "test or validation split"),
        (rows_of(9, first_letter), {"train_size": 0}, "train_size must be at least 1"),
        (rows_of(9, first_letter), {"layers": [7]}, "layer must be from -3 to 2"),
    ],
)
def test_wrong_input_raises_an_error(built, rows, options, message):
    with pytest.raises(ValueError, match=message):
        probe(*built(ATTENDERS[1]), rows, **options)


@pytest.mark.parametrize("head", ["EduFeedForwardForCausalLM", "EduRecurrentForTokenClassification", "EduSeq2SeqModel"])
def test_models_without_attention_are_probed_too(tokenizers, head):
    tokenizer = tokenizers["language_modeling"]
    model_class = getattr(hf_edu_models, head)
    torch.manual_seed(0)
    config = model_class.config_class(vocab_size=len(tokenizer), hidden_size=12, embedding_size=10)
    result = probe(model_class(config), tokenizer, rows_of(60, first_letter), train_size=45, test_size=15)
    assert result.layers[0].accuracy > 0.95 and len(result.layers) > 1


@pytest.fixture
def corpus_folder(tmp_path):
    rows = rows_of(50, lambda tokens, position: int(tokens[position][0] < "n"))
    features = Features(tokens=List(Value("string")), tags=List(ClassLabel(names=["1", "0"])))
    whole = Dataset.from_list(rows, features=features)
    DatasetDict(train=whole.select(range(35)), test=whole.select(range(35, 50))).save_to_disk(tmp_path / "tags")
    return tmp_path / "tags"


def test_numbered_classes_keep_their_names(built, corpus_folder):
    """Even if the names are numbers themselves, in another order."""
    corpus = DatasetDict.load_from_disk(corpus_folder)
    result = probe(*built(ATTENDERS[1]), corpus, layers=[0])
    assert result.labels == ["1", "0"] and result.layers[0].accuracy > 0.9
    assert result.train_words == sum(len(row["tokens"]) for row in corpus["train"])


def test_words_without_a_label_are_left_out(built):
    rows = rows_of(20, first_letter)
    for row in rows:
        row["tags"][0] = None
    result = probe(*built(ATTENDERS[1]), rows, layers=[0], train_size=15, test_size=5)
    assert result.train_words + result.test_words == sum(len(row["tokens"]) - 1 for row in rows)


def test_the_picture_shows_the_numbers(built):
    result = probe(*built(ATTENDERS[1]), rows_of(20, first_letter), train_size=15, test_size=5)
    lines = draw_probe(result).axes[0].lines
    assert list(lines[0].get_ydata()) == [each.accuracy for each in result.layers]
    assert list(lines[1].get_ydata()) == [each.control for each in result.layers]


def test_the_command_prints_writes_and_draws(built, corpus_folder, tmp_path):
    model, tokenizer = built(ATTENDERS[1])
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "model")
    arguments = ["probe", str(tmp_path / "model"), "--dataset", str(corpus_folder), "--layer", "0", "--layer", "1"]
    for name in ("x.json", "x.png"):
        done = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / name)], env={"COLUMNS": "120"})
        assert done.exit_code == 0 and "selectivity" in done.output, done.output
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    saved = json.loads((tmp_path / "x.json").read_text())
    expected = probe(model, tokenizer, DatasetDict.load_from_disk(corpus_folder), layers=[0, 1])
    assert saved == json.loads(json.dumps(expected.to_dict()))
    wrong = CliRunner().invoke(app, [*arguments, "--out", "x.pdf"])
    assert isinstance(wrong.exception, ValueError)


def test_words_are_encoded_as_in_a_text(tokenizers):
    tokens = ["the", "cat"]
    assert encode_words(tokenizers["bert"], tokens).input_ids == tokenizers["bert"]("the cat")["input_ids"]


def test_sentences_longer_than_the_models_positions_are_truncated():
    tokenizer = train_tokenizer(["a b c d"], "word", 60, rung="bert")
    model = CASES["bert-ForMaskedLM"].build(vocab_size=len(tokenizer))
    short = [{"tokens": ["a", "b", "c"], "tags": ["x", "y", "x"]}] * 4
    long = [{"tokens": ["a", "b", "c", "d"] * 30, "tags": ["x", "y", "x", "y"] * 30}]
    result = probe(model, tokenizer, {"train": short + long, "test": short}, max_iterations=5)
    assert result.truncated == 1
    assert result.train_words == 4 * 3 + 38 and result.test_words == 4 * 3  # 40 positions less [CLS] and [SEP]
