"""`hf-edu predict` and `hf-edu encode`: the predictions of transformers' own pipelines, at any batch size and input."""

import json

import numpy as np
import pytest
import torch
import transformers
from test_pipelines import CONTEXT, SIZES, TEXTS, randomize
from typer.testing import CliRunner

import hf_edu_models
from hf_edu_models.auto import LADDER
from hf_edu_models.cli import app
from hf_edu_models.data import train_tokenizer
from hf_edu_models.explain.hidden_states import TextEncoder
from hf_edu_models.tasks import TASKS, task_of_class

MOODS = ["glad", "sad", "calm"]
TAGS = ["O", "B-PER", "I-PER", "B-LOC"]
PAIR = ("two dogs run", "a cat sleeps in the park")
HEADS = {
    "class": ("ForSequenceClassification", {"id2label": dict(enumerate(MOODS))}),
    "number": ("ForSequenceClassification", {"num_labels": 1, "problem_type": "regression"}),
    "labels": (
        "ForSequenceClassification",
        {"id2label": dict(enumerate(MOODS)), "problem_type": "multi_label_classification"},
    ),
    "tags": ("ForTokenClassification", {"id2label": dict(enumerate(TAGS))}),
    "answer": ("ForQuestionAnswering", {}),
    "choice": ("ForMultipleChoice", {}),
    "next": ("ForNextSentencePrediction", {}),
    "pretrained": ("ForPreTraining", {}),
    "body": ("Model", {}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny BERT with every head, in double precision: a batch rounds differently from a single row."""
    folder = tmp_path_factory.mktemp("predictors")
    tokenizer = train_tokenizer([*TEXTS, CONTEXT], kind="wordpiece", vocab_size=90, task="bert")
    sizes = {key: value for key, value in SIZES.items() if key != "dropout"} | {"max_position_embeddings": 24}
    for name, (head, settings) in HEADS.items():
        config = hf_edu_models.EduBertConfig(vocab_size=len(tokenizer), **sizes, **settings)
        randomize(getattr(hf_edu_models, f"EduBert{head}")(config)).double().save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


def run(*arguments, verb="predict", stdin=None):
    result = CliRunner().invoke(app, [verb, *map(str, arguments)], input=stdin)
    assert result.exception is None, result.exception
    return result.stdout.splitlines()


def predict(*arguments, stdin=None):
    return [json.loads(line) for line in run(*arguments, "--json", stdin=stdin)]


def error_of(*arguments, verb="predict", stdin=None):
    result = CliRunner().invoke(app, [verb, *map(str, arguments)], input=stdin)
    assert isinstance(result.exception, ValueError | FileNotFoundError), result.output
    return str(result.exception)


def logits_of(folder, *texts, **options):
    task = TASKS[task_of_class(f"EduBert{HEADS[folder.name][0]}")]
    model = getattr(transformers, task.auto_class).from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        return model(**tokenizer(*texts, return_tensors="pt", **options))


def test_every_head_has_a_verb():
    verbs = {name: task.verb for name, task in TASKS.items()}
    assert {"generate", "predict", "encode", "forecast"} == set(verbs.values()) and verbs[
        "feature_extraction"
    ] == "encode"
    assert all(task.code("predictor") for task in TASKS.values() if task.predictor)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_classes_are_those_of_the_pipeline(folder, batch_size):
    reference = transformers.pipeline("text-classification", str(folder / "class"), top_k=None)
    for text, found in zip(TEXTS, predict(folder / "class", *TEXTS, "--batch-size", batch_size), strict=True):
        expected = {each["label"]: each["score"] for each in reference(text)[0]}
        assert found["text"] == text and found["probabilities"] == pytest.approx(expected, abs=1e-4)
        assert found["label"] == max(expected, key=expected.get)
    assert run(folder / "class", TEXTS[-1])[0].startswith(f"{found['label']} 0.")


def test_blank_lines_stay_and_a_file_and_a_pipe_are_read(folder, tmp_path):
    lines = ["", *TEXTS, " "]
    expected = run(folder / "class", *lines)
    assert expected[0] == expected[-1] == "" and len(expected) == len(lines)
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n")
    assert run(folder / "class", "--file", tmp_path / "in.txt") == expected
    assert run(folder / "class", stdin="\n".join(lines) + "\n") == expected
    assert run(folder / "class", "--file", tmp_path / "in.txt", "--out", tmp_path / "out") == []
    assert (tmp_path / "out").read_text().splitlines() == expected


def test_pairs_numbers_and_sets_of_labels(folder):
    (pair,) = predict(folder / "number", PAIR[0], "--pair", PAIR[1])
    assert pair["value"] == pytest.approx(logits_of(folder / "number", *PAIR).logits.item(), abs=1e-4)
    (found,) = predict(folder / "labels", json.dumps({"text": PAIR[0], "text_pair": PAIR[1]}))
    expected = logits_of(folder / "labels", *PAIR).logits[0].sigmoid().tolist()
    assert [found["probabilities"][name] for name in MOODS] == pytest.approx(expected, abs=1e-4)
    assert set(found["labels"]) == {name for name, each in zip(MOODS, expected, strict=True) if each > 0.5}
    assert len({each["value"] for each in predict(folder / "number", *TEXTS)}) > 2


def test_tags_are_those_of_the_pipeline_with_their_places(folder):
    text = "two dogs run in the park, a cat sleeps"
    (found,) = predict(folder / "tags", text)
    reference = transformers.pipeline("token-classification", str(folder / "tags"), ignore_labels=[])
    first = {each["start"]: each["entity"] for each in reference(text)}  # the first subword of a word has its start
    position, expected = 0, []
    for word in found["tokens"]:
        position = text.index(word, position)
        expected.append(first[position])
        position += len(word)
    assert found["tokens"][5:7] == ["park", ","] and found["tags"] == expected and len(set(expected)) > 1
    assert all(text[span["start"] : span["end"]] == span["text"] for span in found["spans"])
    (given,) = predict(folder / "tags", json.dumps({"tokens": found["tokens"]}))
    assert given["tags"] == found["tags"]
    assert [span["label"] for span in given["spans"]] == [span["label"] for span in found["spans"]] != []


def test_every_word_of_a_long_text_has_a_tag(folder):
    words = ("two dogs run in the park " * 20).split()
    (found,) = predict(folder / "tags", " ".join(words))
    assert found["tokens"] == words and None not in found["probabilities"]


def test_an_answer_has_its_place(folder):
    question = "who runs?"
    (found,) = predict(folder / "answer", question, "--context", CONTEXT)
    assert CONTEXT[found["start"] : found["end"]] == found["answer"] and found["answer"]
    reference = transformers.pipeline("edu-question-answering", model=str(folder / "answer"))
    assert reference(question=question, context=CONTEXT)["answer"] == found["answer"]
    assert predict(folder / "answer", stdin=f"{question}\t{CONTEXT}\n\n") == [found, None]
    assert "needs question and context, got question" in error_of(folder / "answer", question)


def test_choices_in_any_number(folder):
    rows = [["two dogs", "run", "sleep in the park"], ["a cat", "sings", "runs", "sleeps"]]
    found = predict(folder / "choice", stdin="".join("\t".join(row) + "\n" for row in rows))
    for (context, *choices), each in zip(rows, found, strict=True):
        model = transformers.AutoModelForMultipleChoice.from_pretrained(folder / "choice").eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "choice")
        inputs = tokenizer([context] * len(choices), choices, padding=True, return_tensors="pt")
        with torch.no_grad():
            expected = model(**{name: value[None] for name, value in inputs.items()}).logits[0].softmax(-1)
        assert each["probabilities"] == pytest.approx(expected.tolist(), abs=1e-4)
        assert each["choice"] == choices[int(expected.argmax())] == choices[each["number"]]
    options = [word for choice in rows[0][1:] for word in ("--choice", choice)]
    assert predict(folder / "choice", rows[0][0], *options) == found[:1]
    assert "at least two choices" in error_of(folder / "choice", "a", "--choice", "b")


@pytest.mark.parametrize(("name", "logits"), [("next", "logits"), ("pretrained", "seq_relationship_logits")])
def test_next_sentences(folder, name, logits):
    (found,) = predict(folder / name, PAIR[0], "--pair", PAIR[1])
    expected = logits_of(folder / name, *PAIR)[logits].softmax(-1)[0, 0].item()
    assert found["probability"] == pytest.approx(expected, abs=1e-4) and found["follows"] == (expected > 0.5)


def test_tables_are_read_by_column(folder, tmp_path):
    (tmp_path / "reviews.csv").write_text(
        "id,body,mood\n" + "".join(f"{n},{text},glad\n" for n, text in enumerate(TEXTS))
    )
    expected = run(folder / "class", *TEXTS)
    assert run(folder / "class", "--file", tmp_path / "reviews.csv") == expected  # `body` is known to be a text
    assert run(folder / "class", "--file", tmp_path / "reviews.csv", "--columns", "text=1") == expected
    assert "which does not exist" in error_of(
        folder / "class", "--file", tmp_path / "reviews.csv", "--columns", "text=x"
    )
    (tmp_path / "other.csv").write_text("number,what\n1,two dogs\n")
    assert "--columns text=number" in error_of(folder / "class", "--file", tmp_path / "other.csv")
    (tmp_path / "words.conll").write_text("two O\ndogs B-PER\n\n")
    assert predict(folder / "tags", "--file", tmp_path / "words.conll")[0]["tokens"] == ["two", "dogs"]


def test_errors_name_the_right_command(folder):
    assert f"has no trained head; use hf-edu encode {folder / 'body'} TEXT" in error_of(folder / "body", "a")
    assert f"use hf-edu predict {folder / 'class'} TEXT" in error_of(folder / "class", "a", verb="generate")
    assert "has no use for --context" in error_of(folder / "class", "a", "--context", "b")
    assert "--columns is for" in error_of(folder / "class", "a", "--columns", "text=b")
    assert "text 2: EduBertForSequenceClassification needs text, got body" in error_of(
        folder / "class", "a", '{"body": "b"}'
    )


def test_a_document_is_split_into_sentences(tmp_path):
    tokenizer = train_tokenizer([*TEXTS, CONTEXT], kind="word", rung="hierarchical")
    rung = next(rung for rung in LADDER if rung.name == "hierarchical")
    settings = {name: value for name, value in rung.tiny.items() if name != "vocab_size"}
    config = rung.config.for_tokenizer(tokenizer, **settings, id2label=dict(enumerate(MOODS)))
    model = randomize(hf_edu_models.EduHierarchicalForSequenceClassification(config)).double()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    sentences = ["two cats sleep .", "birds sing and a dog runs home ."]
    inputs = tokenizer(sentences, padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(**{name: inputs[name][None] for name in ("input_ids", "attention_mask")}).logits[0]
    found, given, _ = predict(tmp_path, " ".join(sentences), json.dumps({"sentences": sentences}), "a long text . " * 9)
    assert [found["probabilities"][name] for name in MOODS] == pytest.approx(logits.softmax(-1).tolist(), abs=1e-4)
    assert given["probabilities"] == found["probabilities"]


@pytest.mark.parametrize("pooling", ["mean", "max", "first", "last"])
@pytest.mark.parametrize("layer", [-1, 0, 1])
def test_vectors_are_those_of_a_single_text(folder, tmp_path, pooling, layer):
    run(folder / "body", "", *TEXTS, "--out", tmp_path / "v.npy", "--pooling", pooling, "--layer", layer, verb="encode")
    vectors = np.load(tmp_path / "v.npy")
    assert (
        vectors.dtype == np.float32 and not vectors[0].any() and [each.name for each in tmp_path.iterdir()] == ["v.npy"]
    )
    for text, vector in zip(TEXTS, vectors[1:], strict=True):
        states = _states(folder / "body", text)[layer][0]
        expected = {"mean": states.mean(0), "max": states.max(0).values, "first": states[0], "last": states[-1]}
        np.testing.assert_allclose(vector, expected[pooling], rtol=1e-4, atol=1e-5)
    printed = run(folder / "body", TEXTS[0], "--pooling", pooling, "--layer", layer, verb="encode")
    np.testing.assert_allclose(json.loads(printed[0]), vectors[1], rtol=1e-4, atol=1e-5)


def test_bfloat16_is_near(folder):
    exact, near = (predict(folder / "class", *TEXTS, *more) for more in ([], ["--dtype", "bfloat16"]))
    for row, other in zip(exact, near, strict=True):
        values = list(row["probabilities"].values())
        assert list(other["probabilities"].values()) == pytest.approx(values, abs=0.03) and row != other
    exact, near = (
        json.loads(run(folder / "body", TEXTS[0], *more, verb="encode")[0]) for more in ([], ["--dtype", "bfloat16"])
    )
    assert exact != near and np.linalg.norm(np.subtract(exact, near)) < 0.03 * np.linalg.norm(exact)
    assert "dtype must be float32, bfloat16 or auto; got 'half'" in error_of(folder / "class", "a", "--dtype", "half")


def _states(folder, text):
    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        return model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states


@pytest.mark.parametrize("rung", [rung for rung in LADDER if rung.tokenizer], ids=lambda rung: rung.name)
def test_every_rung_encodes_a_batch_as_its_rows(rung):
    tokenizer = train_tokenizer(TEXTS, kind="char", rung=rung.name)
    settings = {name: value for name, value in rung.tiny.items() if name != "vocab_size"}
    model = rung.head("AutoModel")(rung.config.for_tokenizer(tokenizer, **settings)).eval()
    together = [vector for _, vector in TextEncoder(model, tokenizer, batch_size=5)(TEXTS)]
    for text, vector in zip(TEXTS, together, strict=True):
        ((_, alone),) = TextEncoder(model, tokenizer)([text])
        np.testing.assert_allclose(vector, alone, rtol=1e-4, atol=1e-5)
    assert len({vector.tobytes() for vector in together}) == len(TEXTS)


def test_unusable_options_are_rejected_before_texts_are_read(folder, tmp_path):
    assert "layer must be from -3 to 2" in error_of(folder / "body", "a", "--layer", "9", verb="encode")
    assert "pooling 'middle' is not known" in error_of(folder / "body", "a", "--pooling", "middle", verb="encode")
    assert "must end in .npy" in error_of(folder / "body", "a", "--out", tmp_path / "v.txt", verb="encode")


def test_long_texts_are_counted(folder):
    text = "two dogs run in the park " * 20
    result = CliRunner().invoke(app, ["predict", str(folder / "class"), text])
    assert "1 texts exceeded the maximum length" in result.stderr
    result = CliRunner().invoke(app, ["encode", str(folder / "body"), text, "a"])
    assert "1 texts exceeded the maximum length" in result.stderr and len(result.stdout.splitlines()) == 2
