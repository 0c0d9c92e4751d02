"""`EduBertForMultiTask`: each of its heads is the model of its task alone, and a batch trains one of them."""

import pytest
import torch
import transformers
from tiny import LENGTH, TINY, random_ids
from torch.testing import assert_close

from hf_edu_models import EduBertConfig, EduBertForMultiTask
from hf_edu_models.tasks import TASKS

HEADS = {
    "sentiment": {"task": "classification", "labels": ["bad", "good", "mixed"], "weight": 0.5},
    "similarity": {"task": "classification", "labels": None, "problem_type": "regression", "weight": 2},
    "topics": {"task": "classification", "labels": ["art", "law"], "problem_type": "multi_label_classification"},
    "names": {"task": "token_classification", "labels": ["O", "B-PER", "I-PER", "B-LOC"]},
}
LABELS = {
    "sentiment": torch.tensor([2, 0]),
    "similarity": torch.tensor([0.5, 4.0]),
    "topics": torch.tensor([[1.0, 0.0], [1.0, 1.0]]),
    "names": random_ids(2, LENGTH, seed=3) % 4,
}
LABELS["names"][-1, -1] = -100
MASK = torch.tensor([[1] * LENGTH, [1] * (LENGTH - 1) + [0]])


def build(tasks=HEADS, **changes) -> EduBertForMultiTask:
    torch.manual_seed(0)
    return EduBertForMultiTask(EduBertConfig(**(TINY["bert"] | changes), tasks=tasks)).eval()


@pytest.mark.parametrize("task", HEADS)
def test_a_head_is_the_model_of_its_task_alone(task, tmp_path):
    """Saved alone, it loads through the Auto class of its task, with the same logits and, without weight, loss."""
    model, inputs = build(), {"input_ids": random_ids(2, LENGTH), "attention_mask": MASK}
    whole = model(**inputs, task=task, labels=LABELS[task])
    model.single_task(task).save_pretrained(tmp_path)
    auto_class = getattr(transformers, TASKS[HEADS[task]["task"]].auto_class)
    alone = auto_class.from_pretrained(tmp_path)
    assert type(alone) is model.head_class(task) and alone.config.tasks is None
    assert list(alone.config.id2label.values()) == (HEADS[task]["labels"] or ["LABEL_0"])
    outputs = alone(**inputs, labels=LABELS[task])
    assert type(outputs) is type(whole)
    assert_close(whole.logits, outputs.logits)
    assert_close(whole.loss, HEADS[task].get("weight", 1) * outputs.loss)


def test_it_loads_as_it_was_saved(tmp_path):
    model = build()
    model.save_pretrained(tmp_path)
    loaded = EduBertForMultiTask.from_pretrained(tmp_path)
    assert loaded.config.tasks == HEADS
    for task in HEADS:
        ids = random_ids(2, LENGTH)
        assert_close(loaded(ids, task=task).logits, model(ids, task=task).logits, rtol=0, atol=0)


def test_its_body_starts_other_models(tmp_path):
    model = build()
    model.save_pretrained(tmp_path)
    body = transformers.AutoModel.from_pretrained(tmp_path)
    ids = random_ids(2, LENGTH)
    assert_close(body(ids).pooler_output, model.model(ids).pooler_output, rtol=0, atol=0)


@pytest.mark.parametrize("task", HEADS)
def test_a_batch_trains_the_body_and_one_head(task):
    model = build().train()
    model(random_ids(2, LENGTH), MASK, task=task, labels=LABELS[task]).loss.backward()
    trained = {name for name, head in model.classifiers.items() if head.weight.grad is not None}
    assert trained == {task}
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.model.layers[0].parameters())


def test_a_task_of_weight_zero_trains_nothing():
    model = build({"names": HEADS["names"] | {"weight": 0}})
    model(random_ids(2, LENGTH), labels=LABELS["names"]).loss.backward()  # its only task need not be named
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in model.parameters())


@pytest.mark.parametrize("task", [None, "sentimental"])
def test_an_unknown_task_is_named(task):
    with pytest.raises(ValueError, match=f"task must be one of sentiment, similarity, topics, names; got {task!r}"):
        build()(random_ids(2, LENGTH), task=task)


TAGS = {"task": "token_classification", "labels": ["O"]}
WRONG = {
    "weight": ({"tags": TAGS | {"weight": -1}}, "the weight of the task tags must be at least 0 and finite, got -1"),
    "no weight": ({"tags": TAGS | {"weight": float("nan")}}, "the weight of the task tags must be at least 0"),
    "kind": ({"tags": TAGS | {"task": "translation"}}, "task of tags: 'translation' is not known; choose one of"),
    "problem": ({"tags": TAGS | {"problem_type": "hard"}}, "problem_type of tags: 'hard' is not known; choose one of"),
    "labels": ({"tags": TAGS | {"labels": []}}, r"the task tags has the labels \[\]; give the names of its classes"),
    "numbers": ({"tags": TAGS | {"labels": None}}, "the task tags has the labels None; give the names"),
    "field": ({"tags": TAGS | {"loss": 1}}, "the task tags has task, labels, loss; give task and labels"),
    "name": ({"my.tags": TAGS}, "the task 'my.tags' needs another name: letters, digits and _"),
    "none": (None, "EduBertForMultiTask needs tasks in its configuration, such as"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_tasks_are_one_sentence(name):
    tasks, message = WRONG[name]
    with pytest.raises(Exception, match=message):
        build(tasks)
