"""Every field of a task's row is real, and every head of the ladder has a task."""

import pytest
import transformers

from hf_edu_models import LADDER
from hf_edu_models.auto import AXES
from hf_edu_models.tasks import TASKS, find_task, task_of_class, task_of_head

CODE = ("snippet", "encoder", "collator", "scorer", "writer", "predictor")


@pytest.mark.parametrize("name", TASKS)
def test_every_reference_to_code_resolves(name):
    task = TASKS[name]
    for each in CODE:
        assert getattr(task, each) is None or callable(task.code(each))
    assert hasattr(transformers, task.auto_class)
    assert set(task.inputs) <= {*task.columns, *task.optional_columns}
    for per, limit in task.targets.values():
        assert per in ("token", "row", *AXES)
        assert limit in ("vocab_size", "num_labels", "real", *AXES) or isinstance(limit, int)
    assert {axis for axes in task.values.values() for axis in axes} <= set(AXES)


def test_every_head_of_the_ladder_has_a_task():
    for rung in LADDER:
        for auto_name, class_name in rung.config.heads.items():
            assert TASKS[task_of_class(class_name)].auto_class == auto_name
            assert task_of_head(class_name) is TASKS[task_of_class(class_name)]


def test_a_shared_head_belongs_to_the_general_task():
    assert task_of_class("MarianMTModel") == "translation" and task_of_class("GPT2LMHeadModel") == "language_modeling"
    assert task_of_class("BertForSequenceClassification") == "classification" and task_of_class("Bert") is None


def test_an_unknown_task_is_named_with_those_that_fit():
    with pytest.raises(ValueError, match=r"task must be one of .*masked_lm.*; got 'poetry'"):
        find_task("poetry")
    with pytest.raises(ValueError, match=r"must be one of alignment, translation, .*classification.*; got 'masked_lm'"):
        find_task("masked_lm", "encoder")
