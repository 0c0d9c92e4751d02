"""Every metric equals the library that defines it, also on unusual input, without network."""

import math
import random
import socket

import evaluate
import jiwer
import numpy as np
import pytest
import sacrebleu
import scipy.stats
import seqeval.metrics
import seqeval.scheme
import sklearn.metrics
import torch

from hf_edu_models import metrics

WORDS = ["a", "the", "cat", "dog", "sat", "ran", "on", "mat", ".", ",", "under", "over", "quickly", "and"]


def sentences(count, seed, empty=0.1):
    rng = random.Random(seed)
    return ["" if rng.random() < empty else " ".join(rng.choices(WORDS, k=rng.randint(1, 12))) for _ in range(count)]


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def reject(*args, **kwargs):
        raise AssertionError("a metric asked for the network")

    monkeypatch.setattr(socket.socket, "connect", reject)


TEXTS = {
    "random": (sentences(40, 1), sentences(40, 2)),
    "equal": (sentences(20, 3), sentences(20, 3)),
    "empty prediction": ([""], ["the cat sat"]),
    "empty reference": (["the cat sat"], [""]),
    "both empty": ([""], [""]),
    "one word": (["cat"], ["cat"]),
    "other scripts": (["今日は良い天気です。", "Привет, мир!"], ["今日は天気です。", "Привет мир"]),
    "spaces": (["  the   cat "], ["the cat"]),
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("options", [{}, {"lowercase": True, "tokenize": "char"}, {"effective_order": True}])
def test_bleu_equals_sacrebleu(name, options):
    predictions, references = TEXTS[name]
    found = metrics.load("bleu").compute(predictions=predictions, references=references, **options)
    reference = sacrebleu.BLEU(**options)
    expected = reference.corpus_score(predictions, [references])
    assert found["bleu"] == expected.score and found["precisions"] == expected.precisions
    assert found["brevity_penalty"] == expected.bp
    assert found["bleu_signature"] == str(reference.get_signature())
    assert "nrefs:1" in found["bleu_signature"] and "version:" in found["bleu_signature"]


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("options", [{}, {"word_order": 2}, {"lowercase": True}])
def test_chrf_equals_sacrebleu(name, options):
    predictions, references = TEXTS[name]
    found = metrics.load("chrf").compute(predictions=predictions, references=references, **options)
    reference = sacrebleu.CHRF(**options)
    assert found["chrf"] == reference.corpus_score(predictions, [references]).score
    assert found["chrf_signature"] == str(reference.get_signature())


@pytest.mark.parametrize("name", ["bleu", "chrf"])
def test_several_references_of_unequal_number(name):
    predictions, first, second = sentences(30, 5, 0), sentences(30, 6, 0), sentences(30, 7, 0)
    reference = {"bleu": sacrebleu.BLEU, "chrf": sacrebleu.CHRF}[name]()
    pairs = [list(pair) for pair in zip(first, second, strict=True)]
    assert (
        metrics.load(name).compute(predictions=predictions, references=pairs)[name]
        == reference.corpus_score(predictions, [first, second]).score
    )
    pairs[3] = pairs[3][:1]
    assert (
        name != "bleu"
        or "nrefs:var" in metrics.load(name).compute(predictions=predictions, references=pairs)["bleu_signature"]
    )
    second[3] = None
    assert (
        metrics.load(name).compute(predictions=predictions, references=pairs)[name]
        == reference.corpus_score(predictions, [first, second]).score
    )


@pytest.mark.parametrize("name", TEXTS)
def test_wer_equals_jiwer(name):
    predictions, references = TEXTS[name]
    assert metrics.load("wer").compute(predictions=predictions, references=references)["wer"] == jiwer.wer(
        list(references), list(predictions)
    )


def test_exact_match():
    metric = metrics.load("exact_match")
    rows = {"predictions": ["The cat!", "", "dog"], "references": ["the cat", "", "cat"]}
    assert metric.compute(**rows) == {"exact_match": 1 / 3}
    assert metric.compute(**rows, ignore_case=True, ignore_punctuation=True) == {"exact_match": 2 / 3}
    assert metric.compute(predictions=["b"], references=[["a", "b"]]) == {"exact_match": 1.0}


@pytest.mark.parametrize("classes", [2, 4])
def test_classification_metrics_equal_scikit_learn(classes):
    rng = np.random.default_rng(classes)
    predictions, references = rng.integers(0, classes, (2, 200))
    weights = rng.random(200)
    rows = {"predictions": predictions, "references": references}
    assert metrics.load("accuracy").compute(**rows)["accuracy"] == sklearn.metrics.accuracy_score(
        references, predictions
    )
    weighted = metrics.load("accuracy").compute(**rows, sample_weight=weights)["accuracy"]
    assert weighted == pytest.approx(sklearn.metrics.accuracy_score(references, predictions, sample_weight=weights))
    assert metrics.load("matthews").compute(**rows)["matthews"] == sklearn.metrics.matthews_corrcoef(
        references, predictions
    )
    for average in ("macro", "micro", "weighted", *(["binary"] if classes == 2 else [])):
        expected = sklearn.metrics.f1_score(references, predictions, average=average)
        assert metrics.load("f1").compute(**rows, average=average)["f1"] == pytest.approx(expected)
    each = metrics.load("f1").compute(**rows, average=None)["f1"]
    assert each == pytest.approx(sklearn.metrics.f1_score(references, predictions, average=None).tolist())


def test_classification_edge_cases_equal_scikit_learn():
    constant = {"predictions": [1, 1, 1], "references": [0, 1, 1]}
    assert metrics.load("matthews").compute(**constant)["matthews"] == 0.0
    never = {"predictions": [0, 0], "references": [0, 0]}
    assert metrics.load("f1").compute(**never, zero_division=0)["f1"] == 0.0
    assert metrics.load("f1").compute(**never, zero_division=1)["f1"] == 1.0
    with pytest.raises(ValueError, match=r"multiclass"):
        metrics.load("f1").compute(predictions=[0, 1, 2], references=[0, 1, 2])


def test_multilabel_metrics_equal_scikit_learn():
    predictions, references = np.random.default_rng(0).integers(0, 2, (2, 50, 6))
    rows = {"predictions": predictions, "references": references}
    assert metrics.load("f1", "multilabel").compute(**rows, average="micro")["f1"] == pytest.approx(
        sklearn.metrics.f1_score(references, predictions, average="micro")
    )
    assert metrics.load("accuracy", "multilabel").compute(**rows)["accuracy"] == sklearn.metrics.accuracy_score(
        references, predictions
    )


def test_correlations_equal_scipy_also_with_ties():
    rng = np.random.default_rng(0)
    predictions, references = rng.normal(size=60).round(1), rng.integers(0, 6, 60).astype(float)
    found = metrics.load("pearson_spearman").compute(predictions=predictions, references=references)
    assert found["pearson"] == pytest.approx(scipy.stats.pearsonr(predictions, references)[0])
    assert found["spearman"] == pytest.approx(scipy.stats.spearmanr(predictions, references)[0])
    with pytest.warns(scipy.stats.ConstantInputWarning):
        constant = metrics.load("pearson_spearman").compute(predictions=[1.0, 1.0], references=[1.0, 2.0])
    assert math.isnan(constant["pearson"]) and math.isnan(constant["spearman"])
    with pytest.raises(ValueError, match=r"two rows or more, got 1"):
        metrics.load("pearson_spearman").compute(predictions=[1.0], references=[1.0])


def tags(count, seed):
    rng = random.Random(seed)
    names = ["O", "O", "B-per", "I-per", "B-loc", "I-loc"]
    return [rng.choices(names, k=1 + index % 9) for index in range(count)]


@pytest.mark.parametrize("options", [{}, {"mode": "strict", "scheme": "IOB2"}])
def test_entity_metrics_equal_seqeval(options):
    predictions, references = tags(80, 1), tags(80, 2)
    found = metrics.load("seqeval").compute(predictions=predictions, references=references, **options)
    scheme = {"scheme": seqeval.scheme.IOB2, "mode": "strict"} if options else {}
    for name in ("precision", "recall", "f1"):
        expected = getattr(seqeval.metrics, f"{name}_score")(references, predictions, **scheme)
        assert found[f"overall_{name}"] == pytest.approx(expected)
    assert found["overall_accuracy"] == seqeval.metrics.accuracy_score(references, predictions)
    report = seqeval.metrics.classification_report(references, predictions, output_dict=True, **scheme)
    assert (
        found["per"]["f1"] == pytest.approx(report["per"]["f1-score"])
        and found["loc"]["number"] == report["loc"]["support"]
    )


def test_no_entity_is_predicted():
    found = metrics.load("seqeval").compute(predictions=[["O", "O"]], references=[["O", "B-x"]])
    assert found["overall_f1"] == 0 and found["overall_accuracy"] == 0.5
    with pytest.raises(ValueError, match=r"IOB1, IOB2.*got 'BIO'"):
        metrics.load("seqeval").compute(predictions=[["O"]], references=[["O"]], scheme="BIO")


def squad(prediction, *answers):
    reference = {"id": "q", "answers": {"text": list(answers), "answer_start": [0] * len(answers)}}
    found = metrics.load("squad").compute(
        predictions=[{"id": "q", "prediction_text": prediction}], references=[reference]
    )
    return found["exact_match"], found["f1"]


def test_squad_definitions():
    assert squad("The  Cat!", "cat") == (100, 100), "articles, case, punctuation and spaces do not count"
    assert squad("black cat", "cat", "a dog") == (0, pytest.approx(200 / 3)), "the best of the answers counts"
    assert squad("cat cat", "cat") == (0, pytest.approx(200 / 3)), "repeated words count"
    assert squad("theatre", "atre") == (0, 0), "an article is a word"
    assert squad("dog", "cat") == (0, 0)
    assert squad("", "cat") == (0, 0)
    assert squad("") == (100, 100) and squad("cat") == (0, 0), "an unanswerable question"
    assert squad("", "the") == (100, 100), "an answer of articles only is empty"


def test_squad_is_the_mean_over_questions_by_id():
    answers = {"text": ["x"], "answer_start": [0]}
    references = [{"id": str(n), "answers": answers} for n in range(4)]
    predictions = [{"id": str(n), "prediction_text": "x" if n else "y"} for n in (3, 2, 1, 0)]
    assert metrics.load("squad").compute(predictions=predictions, references=references) == {
        "exact_match": 75.0,
        "f1": 75.0,
    }
    predictions[0]["id"] = "other"
    with pytest.raises(ValueError, match=r"no prediction for the question '3'"):
        metrics.load("squad").compute(predictions=predictions, references=references)


def test_every_token_has_the_same_weight_in_the_perplexity():
    torch.manual_seed(0)
    logits, targets = torch.randn(17, 9), torch.randint(0, 9, (17,))
    losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    expected = losses.mean().exp().item()
    parts = [losses[:2], losses[2:11], losses[11:]]
    found = metrics.load("perplexity").compute(
        predictions=[part.sum().item() for part in parts], references=[len(part) for part in parts], words=5
    )
    assert found["perplexity"] == pytest.approx(expected, rel=1e-5) and found["tokens"] == 17
    assert found["word_perplexity"] == pytest.approx(math.exp(losses.sum().item() / 5), rel=1e-5)
    uniform = metrics.load("perplexity").compute(predictions=[4 * math.log(50)], references=[4])
    assert uniform["perplexity"] == pytest.approx(50), "the perplexity of uniform predictions is the vocabulary size"
    assert metrics.load("perplexity").compute(predictions=[1e6], references=[1])["perplexity"] == math.inf
    with pytest.raises(ValueError, match=r"one token or more, got 0"):
        metrics.load("perplexity").compute(predictions=[0.0], references=[0])


def test_mlm_accuracy_counts_masked_tokens_only():
    metric = metrics.load("mlm_accuracy")
    found = metric.compute(predictions=[[1, 2, 3], [4, 5]], references=[[-100, 2, 9], [-100, 5]])
    assert found == {"mlm_accuracy": 2 / 3, "masked_tokens": 3}
    assert math.isnan(metric.compute(predictions=[[1]], references=[[-100]])["mlm_accuracy"])
    with pytest.raises(ValueError, match=r"1 predictions and 2 labels"):
        metric.compute(predictions=[[1]], references=[[1, 2]])


def test_alignment_error_rate():
    metric = metrics.load("aer")
    gold = {"sure": [[0, 0], [1, 1]], "possible": [[2, 1]]}
    assert metric.compute(predictions=[[[0, 0], [1, 1]]], references=[gold])["aer"] == 0
    assert metric.compute(predictions=[[[0, 0], [1, 1], [2, 1]]], references=[gold])["aer"] == 0, "possible is no error"
    assert metric.compute(predictions=[[[5, 5]]], references=[gold])["aer"] == 1
    found = metric.compute(predictions=["0-0 2-1 3-3"], references=[{"sure": "0-0 1-1", "possible": "2-1"}])
    assert found["aer"] == pytest.approx(1 - (1 + 2) / (3 + 2))
    assert found["precision"] == pytest.approx(2 / 3) and found["recall"] == pytest.approx(1 / 2)
    assert metric.compute(predictions=[[]], references=[{"sure": [], "possible": []}])["aer"] == 0
    two = metric.compute(
        predictions=["0-0", "1-1"], references=[{"sure": "0-0", "possible": ""}, {"sure": "0-1 2-2", "possible": ""}]
    )
    assert two["aer"] == pytest.approx(1 - 2 / 5), "over all rows, not a mean over rows"


def test_the_gold_links_of_numbers_have_no_alignment_error(tmp_path):
    from hf_edu_models.data import load_corpus

    rows = load_corpus("numbers", train_size=50, validation_size=5, test_size=5, cache_dir=tmp_path)["train"]
    references = [{"sure": row["sure"], "possible": row["possible"]} for row in rows]
    assert metrics.load("aer").compute(predictions=rows["sure"][:], references=references)["aer"] == 0
    diagonal = [[[index, index] for index in range(len(row["source"].split()))] for row in rows]
    assert metrics.load("aer").compute(predictions=diagonal, references=references)["aer"] > 0.2


EXAMPLES = {
    "bleu": (["a b c d"], ["a b c d"]),
    "chrf": (["a b"], ["a b"]),
    "wer": (["a b"], ["a b"]),
    "exact_match": (["a"], ["a"]),
    "accuracy": ([1, 0], [1, 0]),
    "f1": ([1, 0], [1, 0]),
    "matthews": ([1, 0], [1, 0]),
    "pearson_spearman": ([1.0, 0.0], [1.0, 0.0]),
    "seqeval": ([["B-x"]], [["B-x"]]),
    "squad": ([{"id": "a", "prediction_text": "b"}], [{"id": "a", "answers": {"text": ["b"], "answer_start": [0]}}]),
    "perplexity": ([0.0], [1]),
    "mlm_accuracy": ([[1]], [[1]]),
    "aer": (["0-0"], [{"sure": "0-0", "possible": ""}]),
}


@pytest.mark.parametrize("name", metrics.METRICS)
def test_every_metric_is_an_evaluation_module(name):
    metric = metrics.load(name)
    assert isinstance(metric, evaluate.Metric) and metric.module_type == "metric"
    predictions, references = EXAMPLES[name]
    whole = metric.compute(predictions=predictions * 4, references=references * 4)
    for prediction, reference in zip(predictions, references, strict=True):
        metric.add(prediction=prediction, reference=reference)
    metric.add_batch(predictions=predictions * 2, references=references * 2)
    metric.add_batch(predictions=[], references=[])
    metric.add_batch(predictions=predictions, references=references)
    parts = metric.compute()
    assert {k: v for k, v in parts.items() if k != "precisions"} == {
        k: v for k, v in whole.items() if k != "precisions"
    }
    with pytest.raises(ValueError, match=r"nothing to score"):
        metric.compute(predictions=[], references=[])
    with pytest.raises(ValueError, match=r"1 predictions and 0 references|2 predictions and 0 references"):
        metric.compute(predictions=predictions, references=[])


def test_metrics_can_be_combined():
    both = evaluate.combine([metrics.load(name) for name in ("bleu", "chrf", "wer", "exact_match")])
    found = both.compute(predictions=["the cat sat on"], references=["the cat sat on"])
    assert found["bleu"] == pytest.approx(100) and found["wer"] == 0 and found["exact_match"] == 1
    assert "nrefs" in found["bleu_signature"] and "nrefs" in found["chrf_signature"]
    classes = evaluate.combine([metrics.load(name) for name in ("accuracy", "f1", "matthews")])
    classes.add_batch(predictions=[1, 0, 1], references=[1, 0, 0])
    assert set(classes.compute()) == {"accuracy", "f1", "matthews"}


def test_two_processes_score_as_one(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    options = {"num_process": 2, "experiment_id": "law", "cache_dir": str(tmp_path)}
    predictions, references = [1, 0, 1, 1], [1, 1, 1, 0]

    def run(rank):
        metric = metrics.load("f1", process_id=rank, **options)
        metric.add_batch(predictions=predictions[rank::2], references=references[rank::2])
        return metric.compute()

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(run, range(2)))
    assert found == [metrics.load("f1").compute(predictions=predictions, references=references), None]


def test_metrics_work_in_the_evaluator(tmp_path):
    from datasets import Dataset
    from transformers import BertConfig, BertForSequenceClassification

    from hf_edu_models.data import train_tokenizer

    torch.manual_seed(0)
    texts = sentences(12, 9, 0)
    tokenizer = train_tokenizer(texts, "wordpiece", 60, rung="bert", model_max_length=32)
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model = BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), **size)).eval()
    data = Dataset.from_dict({"text": texts, "label": [index % 2 for index in range(12)]})
    found = evaluate.evaluator("text-classification").compute(
        model_or_pipeline=model,
        tokenizer=tokenizer,
        data=data,
        metric=metrics.load("accuracy"),
        label_mapping={"LABEL_0": 0, "LABEL_1": 1},
    )
    encoded = tokenizer(texts, padding=True, return_tensors="pt")
    best = model(**encoded).logits.argmax(-1)
    assert found["accuracy"] == sklearn.metrics.accuracy_score(data["label"][:], best.tolist())


def test_unknown_names_raise():
    with pytest.raises(ValueError, match=r"metric must be one of bleu, chrf.*got 'rouge'"):
        metrics.load("rouge")
    with pytest.raises(ValueError, match=r"bleu has no configuration 'multilabel'; it has: none"):
        metrics.load("bleu", "multilabel")
    with pytest.raises(ValueError, match=r"f1 has no configuration 'x'; it has: multilabel"):
        metrics.load("f1", "x")
