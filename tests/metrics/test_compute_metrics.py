"""`compute_metrics_for` and `preprocess_logits_for`, as `Trainer` calls them, against scores computed directly."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import sacrebleu
import sklearn.metrics
import torch
from datasets import Dataset
from transformers import (
    BertConfig,
    BertForPreTraining,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
)

from hf_edu_models.data import (
    build_nsp_pairs,
    collator_for,
    encode_corpus,
    group_into_blocks,
    load_corpus,
    train_tokenizer,
)
from hf_edu_models.metrics import compute_metrics_for, preprocess_logits_for
from hf_edu_models.metrics.scorers import exact_match_any


def prediction(predictions, label_ids):
    return SimpleNamespace(predictions=predictions, label_ids=label_ids)


def trainer(model, rows, task, tokenizer, folder, **options):
    return Trainer(
        model=model,
        args=TrainingArguments(str(folder), per_device_eval_batch_size=3, report_to=[], use_cpu=True, **options),
        eval_dataset=rows,
        data_collator=collator_for(task, tokenizer),
        compute_metrics=compute_metrics_for(task, tokenizer),
        preprocess_logits_for_metrics=preprocess_logits_for(task),
    )


def test_translation_is_scored_on_decoded_text():
    references = ["the cat sat on the mat", "a dog ran", "yes"]
    predictions = ["the cat sat on a mat", "a dog ran", "no"]
    tokenizer = train_tokenizer(references + predictions, "bpe", 300, rung="seq2seq")
    labels = tokenizer(text_target=references, padding=True, return_tensors="np")
    label_ids = np.where(labels["attention_mask"] == 1, labels["input_ids"], -100)
    ids = tokenizer(predictions, padding=True, return_tensors="np")["input_ids"]
    start = np.full((3, 1), tokenizer.bos_token_id)
    ids = np.concatenate([start, np.where(ids == tokenizer.pad_token_id, -100, ids)], axis=1)
    found = compute_metrics_for("translation", tokenizer)(prediction(ids, label_ids))
    assert found["bleu"] == pytest.approx(sacrebleu.corpus_bleu(predictions, [references]).score)
    assert found["chrf"] == pytest.approx(sacrebleu.corpus_chrf(predictions, [references]).score)
    assert found["exact_match"] == 1 / 3 and found["wer"] == pytest.approx(2 / 10)
    assert "tok:13a" in found["bleu_signature"] and found["generated_length"] == (ids != -100).sum() / 3
    upper = compute_metrics_for("translation", tokenizer, tokenize="char", lowercase=True)(prediction(ids, label_ids))
    assert "tok:char" in upper["bleu_signature"] and "case:lc" in upper["bleu_signature"]
    with pytest.raises(ValueError, match=r"need the tokenizer"):
        compute_metrics_for("translation")


def test_a_source_with_several_references_counts_once():
    sources, references = ["read", "read", "cat", "dog"], ["R IY D", "R EH D", "K AE T", "D AO G"]
    predictions = ["R EH D", "R EH D", "K AE T", "D OW G"]
    assert exact_match_any(sources, predictions, references) == {"exact_match_any": 2 / 3}
    lowered = [text.lower() for text in predictions]
    assert exact_match_any(sources, lowered, references) == {"exact_match_any": 0.0}
    assert exact_match_any(sources, lowered, references, lowercase=True) == {"exact_match_any": 2 / 3}
    assert exact_match_any(["a", "b"], ["x", "y"], ["x", "z"]) == {}  # one reference each: exact_match says it


@pytest.mark.parametrize("classes", [2, 3])
def test_classification(classes):
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(40, classes)), rng.integers(0, classes, 40)
    found = compute_metrics_for("classification")(prediction((logits, "states"), labels))
    best = logits.argmax(-1)
    average = "binary" if classes == 2 else "macro"
    assert found == {
        "accuracy": sklearn.metrics.accuracy_score(labels, best),
        "f1": pytest.approx(sklearn.metrics.f1_score(labels, best, average=average)),
        "matthews": pytest.approx(sklearn.metrics.matthews_corrcoef(labels, best)),
    }


def test_regression_and_multi_label_classification():
    rng = np.random.default_rng(1)
    values = rng.normal(size=(30, 1))
    found = compute_metrics_for("classification")(prediction(values, 2 * values[:, 0].astype(np.float32)))
    assert found == {"pearson": pytest.approx(1), "spearman": pytest.approx(1)}
    logits, labels = rng.normal(size=(30, 4)), rng.integers(0, 2, (30, 4)).astype(np.float32)
    found = compute_metrics_for("classification")(prediction(logits, labels))
    assert found["f1_micro"] == pytest.approx(sklearn.metrics.f1_score(labels, logits > 0, average="micro"))
    assert found["accuracy"] == sklearn.metrics.accuracy_score(labels, logits > 0)


def test_token_classification_ignores_labels_of_minus_100():
    labels = np.array([[-100, 1, 2, -100], [-100, 0, 1, -100]])
    logits = np.eye(3)[np.array([[1, 1, 2, 0], [2, 0, 0, 1]])]
    spans = compute_metrics_for("token_classification", tag_names=["O", "B-x", "I-x"])(prediction(logits, labels))
    assert spans == {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3), "accuracy": 0.75}
    parts = compute_metrics_for("token_classification", tag_names=["NOUN", "VERB", "ADJ"])(prediction(logits, labels))
    assert parts == {"accuracy": 0.75}
    with pytest.raises(ValueError, match=r"tag_names"):
        compute_metrics_for("token_classification")


def test_multiple_choice():
    logits = np.array([[0.0, 1.0, 0.5], [3.0, 1.0, 2.0]])
    assert compute_metrics_for("multiple_choice")(prediction(logits, np.array([1, 2]))) == {"accuracy": 0.5}


def test_question_answering_is_scored_over_windows(tmp_path):
    context = "the cat sat on the mat and the dog ran away"
    rows = Dataset.from_dict(
        {
            "id": ["a"],
            "context": [context],
            "question": ["who ran?"],
            "answers": [{"text": ["dog"], "answer_start": [32]}],
        }
    )
    tokenizer = train_tokenizer([context, "who ran?"], "wordpiece", 80, rung="bert")
    windows = encode_corpus(rows, tokenizer, max_length=14, stride=4, cache_dir=tmp_path)
    logits = np.zeros((2, len(windows), 14))
    for row, window in enumerate(windows):
        if window["start_positions"]:
            logits[0, row, window["start_positions"]] = logits[1, row, window["end_positions"]] = 9
    score = compute_metrics_for("question_answering", windows=windows, examples=rows, max_answer_length=5)
    assert score(prediction(tuple(logits), None)) == {"exact_match": 100.0, "f1": 100.0}
    with pytest.raises(ValueError, match=r"windows="):
        compute_metrics_for("question_answering")


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    return load_corpus("stories", train_size=8, validation_size=2, test_size=2, cache_dir=tmp_path_factory.mktemp("s"))


def test_the_perplexity_of_trainer_is_that_of_the_text(stories, tmp_path):
    tokenizer = train_tokenizer(stories, "char", 100, rung="gpt")
    blocks = group_into_blocks(stories["validation"], tokenizer, 40, cache_dir=tmp_path)
    assert len({len(row) for row in blocks["input_ids"]}) == 2, "the last block is shorter and must have less weight"
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=len(tokenizer), n_embd=12, n_layer=1, n_head=2, n_positions=40)
    ).eval()
    found = trainer(model, blocks, "language_modeling", tokenizer, tmp_path).evaluate()
    losses = []
    for row in blocks["input_ids"]:
        ids = torch.tensor([row])
        losses.append(torch.nn.functional.cross_entropy(model(ids).logits[0, :-1], ids[0, 1:], reduction="none"))
    assert found["eval_perplexity"] == pytest.approx(math.exp(torch.cat(losses).mean().item()), rel=1e-4)


def test_pretraining_scores_mlm_and_nsp(stories, tmp_path):
    tokenizer = train_tokenizer(stories, "wordpiece", 150, rung="bert", lowercase=True)
    rows = build_nsp_pairs(stories["train"], tokenizer, max_length=40, cache_dir=tmp_path)
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    torch.manual_seed(0)
    model = BertForPreTraining(BertConfig(vocab_size=len(tokenizer), **size)).eval()
    labels = ["labels", "next_sentence_label"]
    with torch.no_grad():
        model.cls.seq_relationship.weight.zero_()
        model.cls.seq_relationship.bias.copy_(torch.tensor([1.0, 0.0]))
    found = trainer(model, rows, "pretraining", tokenizer, tmp_path, label_names=labels).evaluate()
    assert found["eval_nsp_accuracy"] == pytest.approx(1 - np.mean(rows["next_sentence_label"][:]))
    assert 0 <= found["eval_mlm_accuracy"] <= 1


def test_mlm_accuracy():
    tokens, labels = np.array([[4, 5, 6]]), np.array([[-100, 5, 7]])
    assert compute_metrics_for("masked_lm")(prediction(tokens, labels)) == {"mlm_accuracy": 0.5}
    logits = torch.eye(8)[torch.tensor([[4, 5, 6]])]
    assert preprocess_logits_for("masked_lm")((logits, torch.zeros(1, 2), "rest"), None)[0].tolist() == [[4, 5, 6]]
    assert preprocess_logits_for("translation") is None


def test_unknown_tasks_and_options_raise():
    with pytest.raises(ValueError, match=r"task must be one of .*translation.*got 'poetry'"):
        compute_metrics_for("poetry")
    with pytest.raises(TypeError, match=r"classification have no option 'tag_names'; allowed: none"):
        compute_metrics_for("classification", tag_names=["a"])
