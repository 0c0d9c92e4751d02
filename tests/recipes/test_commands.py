"""`hf-edu train` runs a recipe, and `hf-edu evaluate` repeats the scores of a run."""

import json
import re

import pytest
from typer.testing import CliRunner

from hf_edu_models.cli import app
from hf_edu_models.data import train_tokenizer
from hf_edu_models.run_folder import write_settings
from hf_edu_models.training import preset_names, read_results, recipe_files
from hf_edu_models.training.arguments import section_of
from hf_edu_models.training.evaluate_checkpoint import EvaluationRequest, arguments_for, collator_of, score_checkpoint
from hf_edu_models.training.presets import suites

# One run per encoding of a split: pairs, blocks, streams, labelled texts, masked language modelling.
SCORED = ["bahdanau", "transformer", "gpt", "recurrent", "transformer-xl", "bert-finetune", "bert-pretrain"]


@pytest.fixture(autouse=True)
def same_cache(run_recipe, smoke, monkeypatch):
    """Use the data cache and the working folder of the recipes."""
    monkeypatch.chdir(smoke("bahdanau").parent.parent)


@pytest.mark.parametrize("name", SCORED)
def test_evaluate_repeats_the_scores_of_a_run(name, smoke):
    run = smoke(name)
    results = read_results(run)
    scored = score_checkpoint(EvaluationRequest(str(run)))
    score = results["main_score"]
    assert scored.scores[score] == pytest.approx(results["scores"]["test"][score], rel=1e-4)


def test_data_that_has_moved_is_split_as_in_the_run(tmp_path):
    own = {"dataset": "/old/place/input.txt", "task": "language_modeling", "test_size": 20, "max_length": 16}
    write_settings(tmp_path, own)
    moved = arguments_for(EvaluationRequest(str(tmp_path), dataset="/new/place/input.txt"))
    assert (moved.dataset, moved.test_size, moved.task) == ("/new/place/input.txt", 20, "language_modeling")
    other = arguments_for(EvaluationRequest(str(tmp_path), dataset="/new/place/other.txt"))
    assert (other.test_size, other.task, other.max_length) == (None, None, 16)


def test_the_command_prints_scores_and_writes_predictions(smoke, tmp_path):
    out = tmp_path / "scores.json"
    run = CliRunner().invoke(app, ["evaluate", str(smoke("bahdanau")), "--limit", "7", "--out", str(out)])
    assert run.exit_code == 0, run.output
    assert "exact_match" in run.output and "nrefs:1" in run.output
    found = json.loads(out.read_text("utf-8"))
    assert len(found["predictions"]) == 7 and {"source", "reference", "prediction"} == found["predictions"][0].keys()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["no/such/run"], "does not exist; give a run"),
        (["RUN", "--split", "dev"], "has no split 'dev'"),
        (["RUN", "--dataset", "stories"], "is for"),
        (["RUN", "--dataset", "no_such_file.tsv"], "no_such_file.tsv"),
    ],
)
def test_user_errors_are_one_sentence(options, sentence, smoke):
    options = [str(smoke("bahdanau")) if word == "RUN" else word for word in options]
    run = CliRunner().invoke(app, ["evaluate", *options])
    assert run.exit_code != 0 and sentence in str(run.exception)


def test_train_runs_the_recipe_and_passes_its_exit_code_on(tmp_path):
    options = ["--preset", "smoke", "--output_dir", str(tmp_path / "run"), "--quiet", "--train_size", "64"]
    run = CliRunner().invoke(app, ["train", "bahdanau", *options])
    assert run.exit_code == 0, run.output
    results = read_results(tmp_path / "run")
    assert results["data"]["sizes"]["train"] == 64
    assert results["command"] == "python recipes/2015_bahdanau.py --preset smoke --quiet --train_size 64"
    again = CliRunner().invoke(app, ["train", "bahdanau", *options])
    assert again.exit_code == 2


def test_train_lists_the_recipes_and_knows_their_own_options(capfd):
    listed = CliRunner().invoke(app, ["train"], env={"COLUMNS": "100"})
    assert listed.exit_code == 0 and all(name in listed.output for name in recipe_files())
    own = CliRunner().invoke(app, ["train", "bert-pretrain", "--help"])
    assert own.exit_code == 0 and "--whole_word_mask" in own.output + capfd.readouterr().out


def test_the_page_lists_every_recipe_with_its_presets():
    """By name, or as the benchmarks below, whose table names all of their tasks."""
    page = next(iter(recipe_files().values())).with_name("README.md").read_text("utf-8")
    benchmarks = {name for tasks in suites().values() for name in tasks}
    table = page.partition("### Benchmarks and sizes by name")[2].partition("`hf-edu benchmark")[0]
    assert benchmarks <= set(re.findall(r"\w+", table))
    for file in recipe_files().values():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{file.name}` |")]
        listed = {word.strip() for word in row.split("|")[3].split(",")}
        summary = {word for word in listed if word.endswith("of the benchmarks below")}
        names = set(preset_names(section_of(str(file)))) - {"smoke", "paper", "demo"}
        assert listed - summary == (names - benchmarks if summary else names) | (listed & benchmarks)
        assert not summary or names & benchmarks


def test_tokens_are_masked_as_in_the_run(tmp_path):
    reader = train_tokenizer(["a dog ran", "the cat sat"] * 3, "wordpiece", 60, task="bert")
    write_settings(tmp_path, {"mlm_probability": 0.4, "whole_word_mask": True})
    collator = collator_of("masked_lm", reader, EvaluationRequest(str(tmp_path)))
    assert collator.mlm_probability == 0.4 and collator.whole_word_mask and collator.masking == "words"
    write_settings(tmp_path, {"masking": "spans"})
    assert collator_of("masked_lm", reader, EvaluationRequest(str(tmp_path))).masking == "spans"
    assert not hasattr(collator_of("classification", reader, EvaluationRequest(str(tmp_path))), "mlm_probability")
