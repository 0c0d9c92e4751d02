"""Batches of one task each, a trainer that scores every task, and a run with a folder for each."""

import itertools
import json
from collections import Counter

import pytest
import torch
import transformers
from tiny_runs import arguments, joint
from torch.testing import assert_close
from transformers import TrainerCallback

import hf_edu_models
from hf_edu_models.cli import app
from hf_edu_models.data import TaskBatchSampler, TaskCollator, TaskRows
from hf_edu_models.run_folder import log_history, read_results
from hf_edu_models.training import launch, recipe_files
from hf_edu_models.training.presets import recipes_folder

SIZES = {"large": 640, "middle": 160, "small": 10}


def tasks_of(batches, sizes=SIZES) -> list[str]:
    """The task of each batch, which must be the same for all of its rows."""
    rows = TaskRows({name: [{"row": row} for row in range(size)] for name, size in sizes.items()})
    names = [{rows[index]["task"] for index in batch} for batch in batches]
    assert all(len(each) == 1 for each in names)
    return [name for (name,) in names]


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_tasks_are_drawn_by_a_power_of_their_size(alpha):
    sampler, drawn = TaskBatchSampler(SIZES, batch_size=4, alpha=alpha), Counter()
    for epoch in range(20):
        sampler.set_epoch(epoch)
        batches = list(sampler)
        assert len(batches) == len(sampler) == 160 + 40 + 3 and all(len(batch) == 4 for batch in batches)
        drawn.update(tasks_of(batches))
    total = sum(size**alpha for size in SIZES.values())
    for name, size in SIZES.items():
        assert drawn[name] / drawn.total() == pytest.approx(size**alpha / total, abs=0.03)


def test_every_row_of_a_task_is_read_before_one_is_read_again():
    batches = list(TaskBatchSampler({"small": 10}, batch_size=4, alpha=0, seed=1))
    more = TaskBatchSampler({"small": 10, "other": 40}, batch_size=4, alpha=0)
    for stream in ([*itertools.chain(*batches)], [row for batch in more for row in batch if row < 10]):
        for start in range(0, len(stream) - 9, 10):
            assert sorted(stream[start : start + 10]) == list(range(10))


def test_an_epoch_depends_on_seed_and_number_alone():
    first, second = TaskBatchSampler(SIZES, 4, seed=3), TaskBatchSampler(SIZES, 4, seed=3)
    list(first)
    for sampler in (first, second):
        sampler.set_epoch(5)
    assert list(first) == list(second)
    second.set_epoch(6)
    assert list(first) != list(second)


def test_processes_get_parts_of_the_same_batch():
    whole = list(TaskBatchSampler(SIZES, 8, seed=2))
    parts = [list(TaskBatchSampler(SIZES, 4, seed=2, num_replicas=2, rank=rank)) for rank in range(2)]
    assert [sorted([*one, *two]) for one, two in zip(*parts, strict=True)] == [sorted(batch) for batch in whole]


def test_a_batch_is_collated_as_its_task_is():
    rows = TaskRows({"one": [{"value": 1}, {"value": 2}], "two": [{"value": 3}]})
    collator = TaskCollator({"one": lambda rows: {"sum": sum(row["value"] for row in rows)}, "two": None})
    assert len(rows) == 3 and collator([rows[0], rows[1]]) == {"sum": 3, "task": "one"}
    with pytest.raises(ValueError, match="the task two has no rows; leave it out"):
        TaskRows({"one": [1], "two": []})


def test_a_step_is_the_mean_over_its_batches(tmp_path):
    """Two batches of different tasks in one step: the gradient is the mean of theirs, however many labels they have."""
    plain = {"optim": "sgd", "lr_scheduler_type": "constant", "learning_rate": 0.5, "max_grad_norm": 0.0}
    trainer = joint(arguments(tmp_path, **plain, gradient_accumulation_steps=2, max_steps=1, save_strategy="no"), 0.0)
    model, found = trainer.model, []

    class Collect(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, **kwargs):
            found.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])

    trainer.add_callback(Collect())
    trainer.train()
    trainer.start_epoch(0, 0)
    again = joint(arguments(tmp_path, **plain), 0.0)  # the same initialisation
    again.start_epoch(0, 0)
    batches = list(itertools.islice(trainer.get_train_dataloader(), 2))
    assert len({batch["task"] for batch in batches}) == 2, "two tasks; another seed if this fails"
    expected = torch.zeros(())
    for batch in batches:
        expected = expected + again.model.train()(**batch).loss / 2
    expected.backward()
    wanted = [parameter.grad for parameter in again.model.parameters() if parameter.grad is not None]
    assert_close(found[0], wanted)


def test_evaluation_scores_every_task_and_their_mean(tmp_path):
    trainer = joint(arguments(tmp_path), 0.0)
    scores = trainer.evaluate()
    assert scores["eval_mean_score"] == pytest.approx((scores["eval_moods_accuracy"] + scores["eval_names_f1"]) / 2)
    assert scores["eval_loss"] == pytest.approx(scores["eval_moods_loss"] + scores["eval_names_loss"])
    # The score of a task is that of its model alone, on the same rows.
    alone = trainer.model.single_task("moods").eval()
    rows = trainer.tasks["moods"].encoded["validation"]
    hits = [alone(torch.tensor([row["input_ids"]])).logits.argmax().item() == row["labels"] for row in rows]
    assert scores["eval_moods_accuracy"] == pytest.approx(sum(hits) / len(hits))


@pytest.mark.parametrize("option", [{"max_tokens": 100}, {"train_sampling_strategy": "group_by_length"}])
def test_batches_by_length_are_rejected(option, tmp_path):
    with pytest.raises(ValueError, match="leave out --max_tokens and --train_sampling_strategy"):
        joint(arguments(tmp_path, **option), 0.0)


def run_here(*options):
    import importlib.util

    file = recipe_files()["bert-multitask"]
    spec = importlib.util.spec_from_file_location("recipe", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    launch(module.main, str(file), ["--preset", "smoke", "--quiet", *map(str, options)])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with a text, a number for two texts, and tags."""
    data = tmp_path_factory.mktemp("data")
    for split, count in (("train", 24), ("validation", 8)):
        rows = [{"text": f"w{n % 5} a", "text_pair": f"w{n % 3} b", "label": 0.5 * (n % 4)} for n in range(count)]
        (data / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder = tmp_path_factory.mktemp("runs") / "run"
    files = "+".join(str(recipes_folder() / "presets" / name) for name in ("smoke_moods.jsonl", "smoke_names.jsonl"))
    options = ("--dataset", f"{files}+close={data}", "--task_weights", "close=0.5", "--average_checkpoints", "2")
    run_here(*options, "--output_dir", folder)
    return folder


def test_each_task_of_a_run_is_a_run_of_its_own(run):
    scores = {"smoke_moods": "accuracy", "smoke_names": "f1", "close": "spearman"}
    results = read_results(run)
    assert results["architecture"] == "EduBertForMultiTask" and results["main_score"] == "mean_score"
    for name, score in scores.items():
        own = read_results(run / name)
        assert own["main_score"] == score
        for split, found in own["scores"].items():
            assert results["scores"][split][f"{name}_{score}"] == found[score]
        task = hf_edu_models.tasks.TASKS[own["task"]]
        model = getattr(transformers, task.auto_class).from_pretrained(run / name)
        assert type(model).__name__ == own["architecture"]
        card = (run / name / "README.md").read_text()
        assert f"together with the tasks `{own['trained_with'][0]}`, `" in card and own["architecture"] in card
        assert f"[{name}]({name}/README.md)" in (run / "README.md").read_text()
        assert any(f"eval_{score}" in entry for entry in log_history(run / name))
        assert (run / name / "predictions.jsonl").is_file()
    assert results["scores"]["test"].keys() >= {"smoke_moods_accuracy", "smoke_names_f1", "mean_score"}
    tasks = hf_edu_models.EduBertForMultiTask.from_pretrained(run).config.tasks
    assert {name: task["weight"] for name, task in tasks.items()} == {"smoke_moods": 1, "smoke_names": 1, "close": 0.5}
    assert tasks["close"]["problem_type"] == "regression"


def test_a_task_is_evaluated_and_used_by_its_folder(run, capsys):
    from typer.testing import CliRunner

    result = CliRunner().invoke(app, ["evaluate", str(run / "smoke_moods"), "--split", "validation"])
    scores = read_results(run / "smoke_moods")["scores"]["validation"]
    assert result.exit_code == 0, result.output
    assert f"accuracy │ {scores['accuracy']:.4g} [" in result.output
    result = CliRunner().invoke(app, ["card", str(run)])
    assert "transformers has no Auto class; give the folder of one of its tasks" in str(
        result.exception or result.output
    )


WRONG = {
    "weight": (
        ["--task_weights", "smoke_moods=-1"],
        "the weight of the task smoke_moods must be a number of at least 0",
    ),
    "unknown": (["--task_weights", "sst3=1"], "has a weight for 'sst3', but the tasks are smoke_moods, smoke_names"),
    "alpha": (["--sampling_alpha", "2"], "sampling_alpha must be between 0 and 1, got 2.0"),
    "twice": (["--dataset", "copa+copa"], "two tasks are named copa; give one of them another name"),
    "name": (["--dataset", "my-file.jsonl"], "a task cannot be named 'my-file'; give it a name of letters"),
    "kind": (["--dataset", "words=stories"], "stories is for language_modeling"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options_are_one_sentence(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    options, message = WRONG[name]
    with pytest.raises(SystemExit) as ended:
        run_here(*options)
    assert ended.value.code == 2 and message in capsys.readouterr().err
