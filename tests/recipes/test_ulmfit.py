"""ULMFiT: three stages in one command, each resumable, none repeated."""

import importlib.util
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from hf_edu_models.run_folder import list_checkpoints
from hf_edu_models.training import (
    UlmfitArguments,
    launch,
    parse_arguments,
    read_results,
    recipe_files,
    stage_arguments,
    start_stages,
)

RECIPE = recipe_files()["ulmfit"]
STAGES = ("general_lm", "target_lm", ".")


def load_recipe():
    spec = importlib.util.spec_from_file_location("ulmfit", RECIPE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(folder, *options):
    launch(load_recipe().main, str(RECIPE), ["--preset", "smoke", "--quiet", "--output_dir", str(folder), *options])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ulmfit") / "whole"
    run(folder)
    return folder


def stamps(folder) -> dict:
    return {stage: (folder / stage / "results.json").stat().st_mtime_ns for stage in STAGES}


def test_each_stage_starts_from_the_one_before(whole):
    results = {stage: read_results(whole / stage) for stage in STAGES}
    assert [results[stage]["task"] for stage in STAGES] == ["language_modeling"] * 2 + ["classification"]
    assert [results[stage]["init_from"] for stage in STAGES] == [None, "general_lm", "target_lm"]
    assert all(results[stage]["command"] == results["."]["command"] for stage in STAGES)
    vocabularies = [(whole / stage / "tokenizer.json").read_text() for stage in STAGES]
    assert json.loads(vocabularies[0])["model"] == json.loads(vocabularies[2])["model"]
    settings = {stage: results[stage]["settings"] for stage in STAGES}
    assert "unfreeze_every" not in settings["target_lm"] and settings["."]["unfreeze_every"] == 0.5
    assert "layer_lr_decay" not in settings["general_lm"] and settings["target_lm"]["layer_lr_decay"] == 0.385
    assert settings["target_lm"]["learning_rate"] == 0.004 and settings["."]["learning_rate"] == 0.01


def test_a_finished_stage_is_not_repeated(whole):
    before = stamps(whole)
    run(whole, "--resume")
    after = stamps(whole)
    assert after["general_lm"] == before["general_lm"] and after["target_lm"] == before["target_lm"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_run_that_was_stopped_in_a_stage_ends_with_the_same_weights(stage, whole, tmp_path, monkeypatch):
    """Stopped after three steps of the stage, each of which has saved a checkpoint."""
    from hf_edu_models.training.trainers import ResumableTrainerMixin

    training_step = ResumableTrainerMixin.training_step
    folder = tmp_path / "stopped"

    def stop(self, *args, **kwargs):
        if self.args.output_dir == str(folder / stage) and self.state.global_step == 3:
            raise KeyboardInterrupt
        return training_step(self, *args, **kwargs)

    saving = ("--save_strategy", "steps", "--save_steps", "1", "--load_best_model_at_end", "false")
    monkeypatch.setattr(ResumableTrainerMixin, "training_step", stop)
    with pytest.raises(SystemExit) as stopped:
        run(folder, *saving)
    assert stopped.value.code == 130
    monkeypatch.undo()
    assert list_checkpoints(folder / stage) and not (folder / stage / "results.json").exists()
    run(folder, *saving, "--resume")
    for each in STAGES:
        weights, expected = (load_file(run / each / "model.safetensors") for run in (folder, whole))
        assert weights.keys() == expected.keys()
        assert all(torch.equal(weights[name], expected[name]) for name in weights), each


def test_a_language_model_of_ones_own(whole, tmp_path):
    """Two stages, or the classifier alone; from scratch, nothing is left of its weights."""
    short = ("--max_steps", "1", "--target_lm", "max_steps=1")
    run(tmp_path / "two", "--init-from", str(whole / "general_lm"), *short)
    assert not (tmp_path / "two" / "general_lm").exists() and (tmp_path / "two" / "target_lm").is_dir()
    still = ("--init-from", str(whole / "target_lm"), "--classify_only", "--max_steps", "1", "--learning_rate", "0")
    run(tmp_path / "one", *still)
    run(tmp_path / "scratch", *still, "--new_weights", "--seed", "7")
    learnt, kept, new = (
        load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
        for folder in (whole / "target_lm", tmp_path / "one", tmp_path / "scratch")
    )
    assert torch.equal(kept, learnt)
    assert abs(torch.cosine_similarity(new.flatten(), learnt.flatten(), dim=0)) < 0.1


def test_a_language_model_without_the_settings_of_the_preset_gets_its_regularisation_and_its_head(whole, tmp_path):
    """Those of a run of `recurrent` have defaults: no penalty, the last state, one linear layer."""
    plain, saved = tmp_path / "plain", json.loads((whole / "general_lm" / "config.json").read_text())
    shutil.copytree(whole / "general_lm", plain)
    ours = {"pooling", "classifier_hidden_size", "activation_regularization", "lock_dropout_masks", "weight_dropout"}
    (plain / "config.json").write_text(json.dumps({name: saved[name] for name in saved if name not in ours}))
    (plain / "manifest.json").unlink(missing_ok=True)
    run(tmp_path / "two", "--init-from", str(plain), "--max_steps", "1", "--target_lm", "max_steps=1")
    for folder in (tmp_path / "two", tmp_path / "two" / "target_lm"):
        found = json.loads((folder / "config.json").read_text())
        assert {name: found[name] for name in ours} == {name: saved[name] for name in ours}
    assert "hidden.norm.running_mean" in load_file(tmp_path / "two" / "model.safetensors")


def test_overwriting_deletes_neither_what_the_run_starts_from_nor_what_is_no_run(whole, tmp_path, capsys):
    shutil.copytree(whole, tmp_path / "run")
    with pytest.raises(SystemExit):
        run(tmp_path / "run", "--overwrite", "--classify_only", "--init-from", str(tmp_path / "run" / "target_lm"))
    assert "--overwrite would delete" in " ".join(capsys.readouterr().err.split())
    assert (tmp_path / "run" / "target_lm" / "model.safetensors").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("x")
    args, training_args = parse_arguments(
        str(RECIPE),
        ["--preset", "smoke", "--use_cpu", "--overwrite", "--output_dir", str(tmp_path / "mine")],
        UlmfitArguments,
    )
    start_stages(args, training_args, STAGES)
    assert (tmp_path / "mine" / "notes.txt").exists()


def test_overwriting_deletes_all_stages_once(whole, tmp_path):
    folder = tmp_path / "run"
    (folder / "general_lm").mkdir(parents=True)
    (folder / "general_lm" / "results.json").write_text("{}")
    run(folder, "--overwrite", "--max_steps", "1")
    assert [read_results(folder / stage)["steps"] for stage in STAGES] == [1, 1, 1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "already has a run; --resume continues it"),
        (
            ("--resume", "--general_lm", "learning_rate=0.5", "--target_lm", "max_length=9"),
            "was started with max_length",
        ),
        (("--classify_only",), "--classify_only needs --init-from"),
        (("--init-from", "x", "--new_weights"), "--new_weights would forget the language models"),
        (("--general_lm", "no_such=3"), "there is no option '--no_such'"),
    ],
)
def test_a_wrong_command_is_one_sentence(options, sentence, whole, capsys):
    with pytest.raises(SystemExit) as stopped:
        run(whole, *options)
    assert stopped.value.code == 2 and sentence in " ".join(capsys.readouterr().err.split())


def test_settings_of_the_data_stay_with_their_dataset():
    flags = ["--preset", "smoke", "--train_size", "50", "--columns", "text=body", "--use_cpu"]
    args, training_args = parse_arguments(str(RECIPE), [*flags, "--general_lm", "dataset=dates"], UlmfitArguments)
    general, _ = stage_arguments(str(RECIPE), "general_lm", args, training_args)
    assert (general.dataset, general.train_size, general.columns) == ("dates", 60, {})  # its own train_size
    target, _ = stage_arguments(str(RECIPE), "target_lm", args, training_args)
    assert (target.dataset, target.train_size, target.columns) == (args.dataset, 50, {"text": "body"})
    imdb = ["--preset", "imdb", "--use_cpu"]
    args, _ = parse_arguments(str(RECIPE), [*imdb, "--general_lm", "dataset=my/texts"], UlmfitArguments)
    assert args.general_lm["dataset"] == "my/texts" and "dataset_config" not in args.general_lm
    with pytest.raises(ValueError, match="give --general_lm dataset=NAME"):
        parse_arguments(str(RECIPE), ["--use_cpu", "--dataset", "x"], UlmfitArguments)


def test_settings_that_change_the_language_model_are_rejected(whole, tmp_path, capsys):
    """Those of the new head are not: the checkpoint has none."""
    for change in ("hidden_size=30", "bidirectional=true"):
        with pytest.raises(SystemExit):
            model = ("--init-from", str(whole / "target_lm"), "--classify_only", "--model", change)
            run(tmp_path / "changed", *model)
        assert "does not fit the weights of" in " ".join(capsys.readouterr().err.split())
