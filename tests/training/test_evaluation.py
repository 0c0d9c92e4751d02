"""The scores at the end of a run are those of the metrics themselves, on the texts as they are, row by row."""

import math

import numpy as np
import pytest
import sacrebleu
from datasets import ClassLabel, Dataset, Features, List, Value
from scipy.stats import spearmanr
from seqeval.metrics import f1_score as span_f1
from sklearn.metrics import f1_score, matthews_corrcoef
from tiny_runs import tokenizer
from transformers.trainer_utils import EvalPrediction, PredictionOutput

from hf_edu_models import EduBahdanauConfig, EduBahdanauForConditionalGeneration
from hf_edu_models.data import collator_for, encode_corpus, load_corpus, token_stream, train_tokenizer
from hf_edu_models.metrics import compute_metrics_for
from hf_edu_models.metrics.scorers import by_word, interval
from hf_edu_models.training import EduSeq2SeqTrainer, RunArguments
from hf_edu_models.training.evaluation import evaluate_split, is_better_when_greater, main_score
from hf_edu_models.training.run import set_generation_defaults


class Oracle:
    """A trainer with fixed predictions."""

    def __init__(self, predictions, labels=None, metrics=None, loss=0.5):
        self.predictions, self.labels, self.metrics, self.loss = predictions, labels, metrics, loss
        self.asked, self.compute_metrics = None, None

    def predict(self, encoded, metric_key_prefix, **options):
        self.asked = options
        if encoded is not None:  # rows may come in any order
            self.predictions = self.predictions[encoded["place"]]
        scores = self.metrics(EvalPrediction(self.predictions, self.labels)) if self.metrics else {}
        metrics = {f"{metric_key_prefix}_{name}": score for name, score in scores.items()}
        metrics |= {f"{metric_key_prefix}_loss": self.loss, f"{metric_key_prefix}_runtime": 3.0}
        return PredictionOutput(self.predictions, self.labels, metrics)


def assert_inside(scores, name):
    low, high = scores[f"{name}_interval"]
    assert low <= scores[name] <= high and low < high


def logits_for(classes, count, generator):
    """Logits whose argmax is the class."""
    logits = generator.normal(size=(len(classes), count))
    logits[np.arange(len(classes)), classes] += 10
    return logits


SAID = ["w4 w5 w6 w7 w8", "w9 w9 w10 w11", "w5 w6 w7 w8 w4", "w12"]
WANTED = ["w4 w5 w6 w7 w8", "W9 w9 w10 w22", "w5 w6 w7 w8 strange", "w12"]


def translated():
    reader = tokenizer()
    ids = [[1, *reader(text)["input_ids"], 2] for text in SAID]
    width = max(map(len, ids))
    predictions = np.array([row + [-100] * (width - len(row)) for row in ids])
    corpus = Dataset.from_dict({"source": ["a", "b", "c", "d"], "target": WANTED})
    encoded = Dataset.from_dict({"input_ids": [[4, 5], [6, 7, 8], [9], [10, 11]], "place": [0, 1, 2, 3]})
    return reader, predictions, corpus, encoded


@pytest.mark.parametrize("lowercase", [False, True])
def test_translation(lowercase):
    reader, predictions, corpus, encoded = translated()
    oracle = Oracle(predictions)
    scored = evaluate_split(
        oracle, "translation", encoded, corpus, reader, num_beams=3, max_new_tokens=9, lowercase=lowercase
    )
    assert oracle.asked == {"num_beams": 3, "max_new_tokens": 9}
    expected = sacrebleu.corpus_bleu(SAID, [WANTED], lowercase=lowercase).score
    assert scored.scores["bleu"] == pytest.approx(expected)
    assert f"case:{'lc' if lowercase else 'mixed'}" in scored.scores["bleu_signature"]
    assert scored.scores["chrf"] == pytest.approx(
        sacrebleu.CHRF(lowercase=lowercase).corpus_score(SAID, [WANTED]).score
    )
    assert scored.scores["exact_match"] == pytest.approx(0.5) and scored.scores["loss"] == 0.5
    assert_inside(scored.scores, "bleu")
    assert_inside(scored.scores, "exact_match")
    assert scored.rows == [
        {"source": source, "reference": right, "prediction": text}
        for source, right, text in zip("abcd", WANTED, SAID, strict=True)
    ]


def test_references_are_the_texts_not_what_the_tokenizer_makes_of_them():
    """A word that the tokenizer does not know would become another one, and a wrong translation right."""
    reader, predictions, corpus, encoded = translated()
    through = [reader.decode(reader(text)["input_ids"]) for text in WANTED]
    assert through != WANTED
    flattering = sacrebleu.corpus_bleu(SAID, [through]).score
    bleu = evaluate_split(Oracle(predictions), "translation", encoded, corpus, reader).scores["bleu"]
    assert bleu == pytest.approx(sacrebleu.corpus_bleu(SAID, [WANTED]).score) and bleu != pytest.approx(flattering)


def test_classification():
    generator = np.random.default_rng(0)
    right, predicted = generator.integers(0, 3, 30), generator.integers(0, 3, 30)
    predicted[:20] = right[:20]
    features = Features({"text": Value("string"), "label": ClassLabel(names=["no", "yes", "perhaps"])})
    corpus = Dataset.from_dict({"text": [f"t{n}" for n in range(30)], "label": right}, features=features)
    oracle = Oracle(logits_for(predicted, 3, generator), right, compute_metrics_for("classification"))
    scored = evaluate_split(oracle, "classification", None, corpus, None)
    assert scored.scores["accuracy"] == pytest.approx((right == predicted).mean())
    assert scored.scores["f1"] == pytest.approx(f1_score(right, predicted, average="macro"))
    assert matthews_corrcoef(right, predicted) == pytest.approx(
        next(v for k, v in scored.scores.items() if "matthews" in k)
    )
    assert_inside(scored.scores, "accuracy")
    assert "runtime" not in scored.scores and scored.scores["loss"] == 0.5
    names = features["label"].names
    expected = [
        {"text": f"t{n}", "label": names[a], "prediction": names[b]}
        for n, (a, b) in enumerate(zip(right, predicted, strict=True))
    ]
    assert scored.rows == expected


def test_multi_label_classification():
    generator = np.random.default_rng(0)
    logits, right = generator.normal(size=(12, 3)), generator.integers(0, 2, (12, 3))
    features = Features({"text": Value("string"), "label": List(ClassLabel(names=["a", "b", "c"]))})
    numbers = [row.nonzero()[0].tolist() for row in right]
    corpus = Dataset.from_dict({"text": ["x"] * 12, "label": numbers}, features=features)
    oracle = Oracle(logits, right.astype(float), compute_metrics_for("classification"))
    scored = evaluate_split(oracle, "classification", None, corpus, None)
    assert scored.scores["f1_micro"] == pytest.approx(f1_score(right, logits > 0, average="micro", zero_division=0))
    assert [row["label"] for row in scored.rows] == [["abc"[n] for n in row] for row in numbers]
    assert [row["prediction"] for row in scored.rows] == [["abc"[n] for n in row.nonzero()[0]] for row in logits > 0]


def test_regression():
    generator = np.random.default_rng(0)
    right = generator.normal(size=25).astype(np.float32)
    predicted = (right + generator.normal(size=25)).astype(np.float32)[:, None]
    corpus = Dataset.from_dict({"text": ["x"] * 25, "text_pair": ["y"] * 25, "label": right})
    oracle = Oracle(predicted, right, compute_metrics_for("classification"))
    scored = evaluate_split(oracle, "classification", None, corpus, None)
    assert scored.scores["spearman"] == pytest.approx(spearmanr(predicted[:, 0], right).statistic, rel=1e-5)
    assert_inside(scored.scores, "spearman")
    assert scored.rows[3] == {
        "text": "x", "text_pair": "y", "label": pytest.approx(right[3]), "prediction": pytest.approx(predicted[3, 0])
    }  # fmt: skip


def test_multiple_choice():
    generator = np.random.default_rng(0)
    right, predicted = generator.integers(0, 4, 20), generator.integers(0, 4, 20)
    predicted[:12] = right[:12]
    choices = [[f"{row}{letter}" for letter in "abcd"] for row in range(20)]
    corpus = Dataset.from_dict({"context": [f"c{n}" for n in range(20)], "choices": choices, "label": right})
    oracle = Oracle(logits_for(predicted, 4, generator), right, compute_metrics_for("multiple_choice"))
    scored = evaluate_split(oracle, "multiple_choice", None, corpus, None)
    assert scored.scores["accuracy"] == pytest.approx((right == predicted).mean())
    assert_inside(scored.scores, "accuracy")
    assert scored.rows[13] == {
        "context": "c13", "label": choices[13][right[13]], "prediction": choices[13][predicted[13]]
    }  # fmt: skip


@pytest.mark.parametrize("names", [["O", "B-X", "I-X"], ["NOUN", "VERB", "DET"]], ids=["spans", "words"])
def test_token_classification(names):
    generator = np.random.default_rng(0)
    lengths = generator.integers(2, 7, 15)
    labels = np.full((15, 8), -100)
    for row, length in enumerate(lengths):
        labels[row, 1 : 2 * length : 1][:length] = generator.integers(0, 3, length)
    predicted = np.where(generator.random(labels.shape) < 0.7, labels.clip(0), generator.integers(0, 3, labels.shape))
    right = [[names[tag] for tag in row if tag != -100] for row in labels]
    guesses = [
        [names[tag] for tag, label in zip(*pair, strict=True) if label != -100]
        for pair in zip(predicted, labels, strict=True)
    ]
    features = Features({"tokens": List(Value("string")), "tags": List(ClassLabel(names=names))})
    rows = {"tokens": [[f"{row}.{n}" for n in range(len(tags))] for row, tags in enumerate(right)], "tags": right}
    corpus = Dataset.from_dict(rows, features=features)
    logits = np.eye(3)[predicted]
    oracle = Oracle(logits, labels, compute_metrics_for("token_classification", tag_names=names))
    scored = evaluate_split(oracle, "token_classification", None, corpus, None)
    if names[0] == "O":
        assert scored.scores["f1"] == pytest.approx(span_f1(right, guesses))
        assert_inside(scored.scores, "f1")
    else:
        assert scored.scores["accuracy"] == pytest.approx((predicted == labels)[labels != -100].mean())
        assert_inside(scored.scores, "accuracy")
    assert [row["tags"] for row in scored.rows] == right and [row["prediction"] for row in scored.rows] == guesses
    assert [row["tokens"] for row in scored.rows] == rows["tokens"]


def test_question_answering(monkeypatch):
    """Where the windows come from is tested with the data; here is what is made of the answers."""
    from hf_edu_models.metrics import scorers

    golds = [["a red house"], ["blue", "the blue one"], ["green tree"]]
    predicted = ["red house", "blue one", "sea"]
    corpus = Dataset.from_dict(
        {
            "id": ["1", "2", "3"],
            "question": ["q1", "q2", "q3"],
            "context": ["c1", "c2", "c3"],
            "answers": [{"text": texts, "answer_start": [0] * len(texts)} for texts in golds],
        }
    )
    found = [{"id": str(n + 1), "prediction_text": text} for n, text in reversed(list(enumerate(predicted)))]
    monkeypatch.setattr(scorers, "find_answers", lambda *args: found)  # in another order than the rows
    scored = evaluate_split(Oracle((np.zeros(3), np.zeros(3))), "question_answering", None, corpus, None)
    # SQuAD leaves articles out: "red house" is right, "blue one" is "the blue one", "sea" is nothing.
    assert scored.scores["exact_match"] == pytest.approx(100 * 2 / 3) and scored.scores["f1"] == pytest.approx(
        100 * 2 / 3
    )
    assert_inside(scored.scores, "f1")
    assert [(row["question"], row["reference"], row["prediction"]) for row in scored.rows] == [
        ("q1", "a red house", "red house"), ("q2", "blue", "blue one"), ("q3", "green tree", "sea")
    ]  # fmt: skip


def test_language_modeling():
    reader = tokenizer()
    texts = ["w5 w6 w7", "w8 w9"]
    corpus = Dataset.from_dict({"text": texts})
    losses, counts = np.array([3.0, 8.0, 2.0]), np.array([2, 3, 1])
    oracle = Oracle(np.stack([losses, counts], axis=1).astype(np.float32))
    scores = evaluate_split(oracle, "language_modeling", None, corpus, reader).scores
    assert scores["perplexity"] == pytest.approx(math.exp(13 / 6))
    assert_inside(scores, "perplexity")


@pytest.mark.parametrize("with_pairs", [True, False])
def test_pretraining(with_pairs):
    generator = np.random.default_rng(0)
    labels = np.where(generator.random((20, 6)) < 0.5, generator.integers(4, 9, (20, 6)), -100)
    predicted = np.where(generator.random(labels.shape) < 0.6, labels, 3)
    following = generator.integers(0, 2, 20)
    guessed = np.where(generator.random(20) < 0.7, following, 1 - following)
    predictions = (predicted, logits_for(guessed, 2, generator)) if with_pairs else predicted
    both = (labels, following) if with_pairs else labels
    oracle = Oracle(predictions, both, compute_metrics_for("pretraining"))
    scores = evaluate_split(oracle, "pretraining" if with_pairs else "masked_lm", None, None, None).scores
    assert scores["mlm_accuracy"] == pytest.approx((predicted == labels)[labels != -100].mean())
    assert_inside(scores, "mlm_accuracy")
    assert ("nsp_accuracy" in scores) == with_pairs
    if with_pairs:
        assert scores["nsp_accuracy"] == pytest.approx((guessed == following).mean())
        assert_inside(scores, "nsp_accuracy")


def test_an_interval_is_a_bootstrap_over_rows():
    values = np.random.default_rng(1).normal(size=400)
    low, high = interval(lambda rows: values[rows].mean(), 400)
    half = 1.96 * values.std() / 20  # of a mean, by the normal distribution
    assert low == pytest.approx(values.mean() - half, abs=0.02) and high == pytest.approx(
        values.mean() + half, abs=0.02
    )
    assert interval(lambda rows: 0.0, 1) is None


def test_main_score():
    assert main_score("translation") == "bleu" and main_score("classification") == "accuracy"
    assert main_score("translation", "eval_chrf") == "chrf" and main_score("language_modeling") == "perplexity"
    assert is_better_when_greater("bleu") and is_better_when_greater("eval_accuracy")
    assert not any(map(is_better_when_greater, ("loss", "eval_loss", "perplexity", "wer")))


def test_scores_are_python_numbers():
    """results.json takes them as they are."""
    oracle = Oracle(np.stack([np.ones(3), np.ones(3)], axis=1))
    corpus = Dataset.from_dict({"text": ["w5 w6"]})
    scores = evaluate_split(oracle, "language_modeling", None, corpus, tokenizer()).scores
    assert {type(value) for value in scores.values()} <= {float, int, list, str, type(None)}


def test_the_saved_model_generates_as_it_was_scored(tmp_path):
    """Trainer's predictions leave no default of theirs (a length of 20) in the model's generation settings."""
    corpus = load_corpus("reverse", train_size=8, validation_size=4, test_size=4)
    reader = train_tokenizer(corpus, "char", rung="bahdanau")
    encoded = encode_corpus(corpus, reader)
    config = EduBahdanauConfig.for_tokenizer(reader, embedding_size=6, hidden_size=8, maxout_size=5)
    model = EduBahdanauForConditionalGeneration(config)
    set_generation_defaults(model, {"num_beams": 2, "max_new_tokens": 9})
    arguments = RunArguments(output_dir=str(tmp_path), predict_with_generate=True, eval_strategy="no", use_cpu=True)
    trainer = EduSeq2SeqTrainer(
        model=model,
        args=arguments,
        data_collator=collator_for("translation", reader),
        processing_class=reader,
    )
    scored = evaluate_split(trainer, "translation", encoded["test"], corpus["test"], reader, num_beams=2)
    assert model.generation_config.max_length is None
    source = reader([row["source"] for row in scored.rows], return_tensors="pt", padding=True)
    predicted = reader.batch_decode(model.eval().generate(**source), skip_special_tokens=True)
    assert [text.strip() for text in predicted] == [row["prediction"] for row in scored.rows]


def test_a_word_perplexity_says_how_many_words_were_unknown():
    texts = Dataset.from_dict({"text": ["red red red blue", "red red blue green"]})
    characters = train_tokenizer(texts, "char", task="language_modeling")
    assert set(by_word(1.0, texts, characters)) == {"word_perplexity", "bits_per_character"}
    small = train_tokenizer(texts, "word", 100, task="language_modeling")
    new = Dataset.from_dict({"text": ["red grey grey blue"]})
    tokens = len(token_stream(new, small))
    assert by_word(1.0, new, small)["unknown"] == pytest.approx(2 / tokens)


@pytest.mark.parametrize("lowercase", [False, True])
def test_training_and_the_end_of_a_run_score_alike(lowercase):
    """One scorer: what Trainer logs for predictions is what results.json says of them."""
    reader, predictions, _, encoded = translated()
    known = ["w4 w5 w6 w7 w8", "W9 w9 w10 w11", "w5 w6 w7 w8 w4", "w9"]
    labels = reader(text_target=[text.lower() for text in known], padding=True, return_tensors="np")["input_ids"]
    references = reader.batch_decode(labels, skip_special_tokens=True)
    corpus = Dataset.from_dict({"source": ["a", "b", "c", "d"], "target": references})
    logged = compute_metrics_for("translation", reader, lowercase=lowercase)(EvalPrediction(predictions, labels))
    scored = evaluate_split(Oracle(predictions), "translation", encoded, corpus, reader, lowercase=lowercase).scores
    shared = logged.keys() & scored.keys()
    assert {"bleu", "chrf", "wer", "exact_match", "bleu_signature"} <= shared
    assert {name: logged[name] for name in shared} == {name: pytest.approx(scored[name]) for name in shared}


def test_case_counts_in_every_score_or_in_none():
    reader, predictions, corpus, encoded = translated()
    shouted = corpus.map(lambda row: {"target": row["target"].upper()})
    options = {"lowercase": True}
    plain, loud = (
        evaluate_split(Oracle(predictions.copy()), "translation", encoded, rows, reader, **options).scores
        for rows in (corpus, shouted)
    )
    assert plain == loud
    assert evaluate_split(Oracle(predictions), "translation", encoded, shouted, reader).scores["exact_match"] == 0
