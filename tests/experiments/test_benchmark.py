"""`hf-edu benchmark`: which tasks, which scores, their mean, and what happens to an interrupted or failing one."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from hf_edu_models import (
    EduBertConfig,
    EduBertModel,
    EduGPTConfig,
    EduGPTModel,
    EduKernelConfig,
    EduKernelForRegression,
)
from hf_edu_models.cli import app
from hf_edu_models.experiments.benchmark import collect, plan_benchmark, run_benchmark, table_of
from hf_edu_models.run_folder import write_results
from hf_edu_models.training import run as running
from hf_edu_models.training.presets import load_preset, preset_names, recipes_folder, suites

SIZES = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


@pytest.fixture(scope="module")
def body(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "body"
    EduBertModel(EduBertConfig(**SIZES, max_position_embeddings=100)).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def trained(monkeypatch):
    """The recipe is replaced: it writes results whose scores are as many as the letters of the task and the seed."""
    calls = []

    def write(main, recipe, argv):
        options = dict(zip(argv[::2], argv[1::2], strict=False))
        calls.append((options["--preset"], int(options["--seed"]), "--resume" in argv))
        score = (len(options["--preset"]) + int(options["--seed"])) / 100
        if options["--preset"] == "cb" and len(calls) == 1:
            raise RuntimeError("out of\nmemory")
        names = ("accuracy", "f1", "matthews", "exact_match")
        scores = dict.fromkeys(names, score) | {"pearson": float("nan"), "spearman": score}
        task = "question_answering" if options["--preset"] == "record" else "classification"
        facts = {"task": task, "data": {"sizes": {"validation": 5}}, "seconds": 1.0, "steps": 2}
        write_results(options["--output_dir"], facts | {"scores": {"validation": scores}})

    monkeypatch.setattr(running, "run_recipe", write)
    return calls


def test_the_suites_have_the_tasks_of_their_papers_with_labels_and_a_train_split():
    """The diagnostic sets (AX, LiDiRus) have no train split."""
    glue = {"cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli"}
    superglue = {"boolq", "cb", "copa", "multirc", "record", "rte", "wic", "wsc"}
    russian = {"rcb", "parus", "muserc", "terra", "russe", "rwsd", "danetqa", "rucos"}
    found = {suite: set(tasks) for suite, tasks in suites().items()}
    assert found == {"glue": glue, "superglue": superglue, "russian-superglue": russian}
    assert glue | superglue | russian <= set(preset_names("bert_finetune"))


def test_a_suite_is_not_inherited_and_its_dataset_is_its_own():
    for suite, tasks in suites().items():
        for task in tasks:
            own = yaml.safe_load((recipes_folder() / "presets" / f"{task}.yaml").read_text("utf-8"))
            assert suite in own["suites"]
            assert load_preset(task, "bert_finetune")[0]["dataset_config"] == task
            # The scores of a paper belong to its own data.
            published = load_preset(task, "bert_finetune")[1].get("published", [])
            assert not published or "published" in own["bert_finetune"], task


def test_the_mean_is_over_tasks_and_each_task_over_its_scores_and_seeds(body, trained, tmp_path):
    plan = plan_benchmark("superglue", body, tasks=["wic", "cb", "record"], seeds=2, folder=tmp_path)
    run_benchmark(plan)  # cb fails once
    results = run_benchmark(plan)
    assert {each["task"]: each["score"] for each in results["tasks"]} == pytest.approx(
        {"cb": 2.5, "record": 0.065, "wic": 3.5}  # SQuAD's scores are in per cent, the others are not
    )
    assert results["mean"] == pytest.approx((2.5 + 0.065 + 3.5) / 3)
    assert results["mean_by_seed"] == pytest.approx([(2 + 0.06 + 3) / 3, (3 + 0.07 + 4) / 3])
    name, *_, mean, spread = table_of(results)[-1]
    assert (name, mean, spread) == ("mean of 3 of 8 tasks", "2.0", "1.7 to 2.4")
    assert json.loads((tmp_path / "results.json").read_text("utf-8")) == results
    assert "| cb | accuracy 2.5, f1 2.5 | validation | 5 | 2 | 2.5 | 2.0 to 3.0 |" in (
        tmp_path / "results.md"
    ).read_text("utf-8")


def test_an_error_loses_one_task_and_what_is_finished_is_not_trained_again(body, trained, tmp_path):
    plan = plan_benchmark("superglue", body, tasks=["cb", "wic"], seeds=2, folder=tmp_path)
    first = run_benchmark(plan)
    assert first["errors"] == [{"task": "cb", "seed": 0, "error": "out of memory"}]
    assert [(row["task"], row["seed"]) for row in first["rows"]] == [("wic", 0), ("cb", 1), ("wic", 1)]
    assert first["mean_by_seed"] == [] and "- cb, seed 0: out of memory" in (tmp_path / "results.md").read_text("utf-8")
    trained.append("again")
    assert not run_benchmark(plan)["errors"]
    assert trained[trained.index("again") + 1 :] == [("cb", 0, False)]
    more = plan_benchmark("superglue", body, tasks=["cb", "wic"], seeds=3, folder=tmp_path)
    run_benchmark(more)
    assert trained[-2:] == [("cb", 2, False), ("wic", 2, False)]


def test_an_interrupted_task_resumes_and_loses_its_checkpoints_when_it_is_finished(body, trained, tmp_path):
    plan = plan_benchmark("glue", body, tasks=["stsb"], folder=tmp_path)
    checkpoint = plan.plan[0].folder / "checkpoint-7"
    checkpoint.mkdir(parents=True)
    (checkpoint / "file").touch()
    results = run_benchmark(plan)
    assert trained == [("stsb", 0, True)] and not checkpoint.exists()
    assert results["tasks"][0]["pearson"] == 0.0  # undefined
    assert collect(plan, "test") == results  # no labels there: validation


def test_ctrl_c_ends_the_benchmark(body, monkeypatch, tmp_path):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "run_recipe", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_benchmark(plan_benchmark("glue", body, folder=tmp_path))


def test_local_copies_lengths_and_options_reach_the_recipe(body, tmp_path):
    for name in ("mrpc", "rte", "elsewhere"):
        (tmp_path / "data" / name).mkdir(parents=True)
    data = [str(tmp_path / "data"), f"rte={tmp_path / 'data' / 'elsewhere'}"]
    plan = plan_benchmark("glue", body, tasks=["mrpc", "rte", "sst2"], data=data, options=["--epochs", "2"])
    argv = {each.task: " ".join(each.argv) for each in plan.plan}
    assert f"--dataset {tmp_path / 'data' / 'mrpc'}" in argv["mrpc"]
    assert f"--dataset {tmp_path / 'data' / 'elsewhere'}" in argv["rte"] and "--dataset" not in argv["sst2"]
    assert all("--epochs 2" in each for each in argv.values())
    assert "--max_length 100" in argv["mrpc"] and "--max_length" not in argv["sst2"]  # its own 64 fit
    assert plan.folder == Path("runs/benchmark-glue-body")


def test_tasks_without_a_preset_for_the_rung_are_left_out(tmp_path):
    EduGPTModel(EduGPTConfig(**SIZES)).save_pretrained(tmp_path / "gpt")
    plan = plan_benchmark("superglue", str(tmp_path / "gpt"))
    assert plan.recipe.name == "2018_gpt.py" and {"copa", "record"} <= set(plan.left_out)
    assert {"boolq", "wsc", "multirc"} <= set(plan.scores)
    EduKernelForRegression(EduKernelConfig()).save_pretrained(tmp_path / "kernel")
    with pytest.raises(ValueError, match=r"1964_kernel.py, .*, has no preset of glue"):
        plan_benchmark("glue", str(tmp_path / "kernel"))


WRONG = {
    "suite": (["blue", "BODY"], "there is no benchmark 'blue'; choose one of"),
    "task": (["glue", "BODY", "--tasks", "copa"], "'copa' is no task of glue for 2019_bert_finetune.py; choose from"),
    "option": (["glue", "BODY", "--learning_rat", "1"], "did you mean --learning_rate?"),
    "seed": (["glue", "BODY", "--seed", "1"], "--seed is no option of a benchmark: --seeds has"),
    "data": (["glue", "BODY", "--data", "nowhere"], "--data nowhere is not a folder"),
    "data of another": (["glue", "BODY", "--data", "copa=x"], "'copa' is not one of the tasks"),
    "split": (["glue", "BODY", "--split", "train"], "--split must be validation or test"),
    "run": (["glue", "no/run"], "does not exist"),
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_input_is_one_sentence_before_anything_is_trained(words, body, trained):
    arguments, sentence = WRONG[words]
    run = CliRunner().invoke(app, ["benchmark", *(body if word == "BODY" else word for word in arguments)])
    assert run.exit_code != 0 and sentence in str(run.exception) and not trained


def test_other_options_need_another_folder(body, trained, tmp_path):
    run_benchmark(plan_benchmark("glue", body, tasks=["rte"], folder=tmp_path))
    with pytest.raises(ValueError, match=r"fine-tuned with options .*, but now it is .*choose another --out"):
        plan_benchmark("glue", body, tasks=["rte"], folder=tmp_path, options=["--epochs", "9"])
    (tmp_path / "rte-seed0" / "results.json").unlink()  # as of one that failed before its first checkpoint
    plan_benchmark("glue", body, tasks=["rte"], folder=tmp_path, options=["--epochs", "9"])


def test_the_command_prints_the_table_and_fails_if_a_task_did(body, trained, tmp_path):
    command = ["benchmark", "superglue", body, "--tasks", "cb, wic", "--out", str(tmp_path), "--epochs", "1"]
    first = CliRunner().invoke(app, command)
    assert first.exit_code != 0 and "1 of 2 fine-tunings failed" in str(first.exception)
    second = CliRunner().invoke(app, command, env={"COLUMNS": "150"})
    assert second.exit_code == 0 and "mean of" in second.output  # a narrow terminal wraps the rest
    assert "mean of 2 of 8 tasks" in (tmp_path / "results.md").read_text()
