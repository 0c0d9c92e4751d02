"""What a run is told: presets, flags over them, settings that may and may not change, folders that have a run."""

import shlex
import subprocess
import sys

import pytest
import torch
import yaml
from tiny_runs import arguments

from hf_edu_models.training import load_preset, parse_arguments, preset_names, presets
from hf_edu_models.training.arguments import RecipeArguments, settings_of
from hf_edu_models.training.run import command, launch, public_name, start_run
from hf_edu_models.training.run_folder import SETTINGS, read_settings

RECIPE = "04_bahdanau.py"
BASE = {
    "common": {"dataset": "dates", "num_train_epochs": 4, "model": {"hidden_size": 16}, "published": ["a"]},
    "bahdanau": {"learning_rate": 0.5, "model": {"dropout": 0.25}},
    "transformer": {"learning_rate": 0.1},
}
ON_TOP = {
    "extends": "base",
    "common": {"num_train_epochs": 9},
    "bahdanau": {"model": {"dropout": 0.5}, "license_of_data": "cc0"},
}


@pytest.fixture
def two_presets(tmp_path, monkeypatch):
    folder = tmp_path / "recipes" / "presets"
    folder.mkdir(parents=True)
    for name, content in (("base", BASE), ("on_top", ON_TOP), ("wrong", {"bahdanau": {"no_such_option": 1}})):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    monkeypatch.setattr(presets, "recipes_folder", lambda: folder.parent)
    monkeypatch.chdir(tmp_path)


def parse(*flags):
    return parse_arguments(RECIPE, ["--use_cpu", *flags])


def test_a_section_lies_over_the_common_one(two_presets):
    settings, notes = load_preset("base", "bahdanau")
    assert settings == {
        "dataset": "dates",
        "num_train_epochs": 4,
        "learning_rate": 0.5,
        "model": {"hidden_size": 16, "dropout": 0.25},
    }
    assert notes == {"published": ["a"]}


def test_a_preset_extends_another(two_presets):
    settings, notes = load_preset("on_top", "bahdanau")
    assert settings["num_train_epochs"] == 9 and settings["learning_rate"] == 0.5
    assert settings["model"] == {"hidden_size": 16, "dropout": 0.5}
    assert notes == {"published": ["a"], "license_of_data": "cc0"}
    assert load_preset("on_top", "transformer")[0]["num_train_epochs"] == 9
    assert preset_names("transformer") == ["base", "on_top"]


def test_flags_lie_over_the_preset(two_presets):
    args, training_args = parse("--preset", "base", "--learning_rate", "0.2", "--model", "dropout=0.1", "layers=[1, 2]")
    assert training_args.learning_rate == 0.2 and training_args.num_train_epochs == 4
    assert args.model == {"hidden_size": 16, "dropout": 0.1, "layers": [1, 2]}
    assert args.notes == {"published": ["a"]} and args.recipe == RECIPE
    assert training_args.output_dir == "runs/bahdanau-base"


@pytest.mark.parametrize(
    "flags, sentence",
    [
        (["--preset", "nowhere"], "preset 'nowhere' is not there for bahdanau; choose one of base, on_top, wrong"),
        (["--preset", "wrong"], "preset 'wrong' sets 'no_such_option', which no recipe has"),
        (["--preset", "base", "--hiden", "3"], "no option '--hiden'"),
        (["--preset", "base", "--model", "hidden_size"], "--model takes name=value, got 'hidden_size'"),
        (["--preset", "base", "--resume", "--overwrite"], "give one of them"),
        (["--preset", "base", "--max_minutes", "0"], "max_minutes must be above 0, got 0"),
        (["--preset", "base", "--layer_lr_decay", "2"], "layer_lr_decay must be above 0 and at most 1, got 2"),
        (["--preset", "base", "--mixed_precision", "fp8"], "mixed_precision must be one of auto, no, bf16; got 'fp8'"),
        (["--preset", "base", "--early_stopping_patience=-1"], "must be 0 or more"),
        ([], "needs data: give --preset (one of base, on_top, wrong) or --dataset"),
    ],
)
def test_a_mistake_is_one_sentence(flags, sentence, two_presets, capsys):
    with pytest.raises(SystemExit) as end:
        launch(lambda args, training_args: None, RECIPE, ["--use_cpu", *flags])
    said = capsys.readouterr().err
    assert end.value.code == 2 and said.startswith(f"{RECIPE}: ") and "Traceback" not in said
    assert sentence in said.replace("\n", " ")


def test_ctrl_c_has_its_own_exit_code(two_presets, capsys):
    def interrupted(args, training_args):
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as end:
        launch(interrupted, RECIPE, ["--preset", "base", "--use_cpu"])
    assert end.value.code == 130 and "--resume goes on" in capsys.readouterr().err


def test_a_body_keeps_its_sizes_and_takes_the_dropout_of_the_preset(two_presets):
    args, _ = parse("--preset", "on_top", "--init-from", "runs/body")
    assert args.model == {"dropout": 0.5}
    args, _ = parse("--preset", "on_top", "--init-from", "runs/body", "--model", "dropout=0", "maxout_size=8")
    assert args.model == {"dropout": 0, "maxout_size": 8}


def test_labels_are_smoothed_in_the_model(two_presets):
    """Trainer's own smoothing wants all logits at once; the model's never holds them."""
    args, training_args = parse("--preset", "base", "--label_smoothing_factor", "0.1")
    assert args.model["label_smoothing"] == 0.1 and training_args.label_smoothing_factor == 0.0


def test_averaging_and_patience_bring_what_they_need(tmp_path):
    assert arguments(tmp_path, average_checkpoints=5, save_total_limit=2).save_total_limit == 5
    stops = arguments(tmp_path, early_stopping_patience=2, eval_strategy="steps", eval_steps=3)
    assert stops.load_best_model_at_end


def start(folder, *flags, resume=False, overwrite=False):
    given = ["--resume"] * resume + ["--overwrite"] * overwrite
    args, training_args = parse("--dataset", "reverse", "--output_dir", str(folder), *given, *flags)
    return start_run(args, training_args, "translation")


def test_the_best_checkpoint_is_the_best_translator_and_not_the_one_with_the_lowest_loss(tmp_path):
    """Trainer's own choice is the loss; whoever asks for it gets it."""
    patient = ("--early_stopping_patience", "2")
    usual = start(tmp_path / "usual", *patient).training_args
    assert (usual.metric_for_best_model, usual.greater_is_better) == ("bleu", True)
    asked = start(tmp_path / "asked", *patient, "--metric_for_best_model", "loss").training_args
    assert (asked.metric_for_best_model, asked.greater_is_better) == ("loss", False)
    assert "metric_for_best_model" not in read_settings(tmp_path / "usual")
    assert read_settings(tmp_path / "asked")["metric_for_best_model"] == "loss"


def test_a_folder_with_a_run_is_not_written_over(tmp_path):
    start(tmp_path / "run")
    (tmp_path / "run" / "kept.txt").write_text("x")
    start(tmp_path / "run")  # it had ended before it had learnt anything
    assert (tmp_path / "run" / "kept.txt").exists()
    (tmp_path / "run" / "checkpoint-3").mkdir()
    with pytest.raises(ValueError, match="has a run already; --resume goes on with it, --overwrite throws it away"):
        start(tmp_path / "run")
    assert (tmp_path / "run" / "kept.txt").exists()
    start(tmp_path / "run", overwrite=True)
    assert not (tmp_path / "run" / "kept.txt").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("x")  # a folder of other things is no run, and stays as it is
    start(tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine" / "notes.txt").exists()


def test_resuming_asks_for_the_same_settings(tmp_path):
    small = ["--model", "hidden_size=16"]
    start(tmp_path, *small, "--seed", "3")
    (tmp_path / "checkpoint-4").mkdir()
    with pytest.raises(
        ValueError, match=r"begun with model \{'hidden_size': 16\}, but now it is .*24.*give it as before"
    ):
        start(tmp_path, "--model", "hidden_size=24", "--seed", "3", resume=True)
    with pytest.raises(ValueError, match="begun with seed 3, but now it is at its default"):
        start(tmp_path, *small, resume=True)
    start(tmp_path, *small, "--seed", "3", "--num_train_epochs", "9", "--learning_rate", "0.1", resume=True)
    assert read_settings(tmp_path)["num_train_epochs"] == 9
    (tmp_path / "checkpoint-12").mkdir()
    resumed = start(tmp_path, *small, "--seed", "3", "--num_train_epochs", "9", resume=True)
    assert resumed.checkpoint == str(tmp_path / "checkpoint-12")  # by number, not by name


def test_resuming_where_nothing_was_saved_begins_anew(tmp_path):
    assert start(tmp_path, resume=True).checkpoint is None


def test_settings_are_what_was_changed(tmp_path):
    start(tmp_path, "--learning_rate", "0.25", "--model", "dropout=0.5")
    settings = yaml.safe_load((tmp_path / SETTINGS).read_text())
    assert settings["learning_rate"] == 0.25 and settings["model"] == {"dropout": 0.5}
    assert settings["dataset"] == "reverse" and "output_dir" not in settings and "weight_decay" not in settings


@pytest.mark.parametrize(
    "value, public",
    [
        ("/home/me/secret/corpus.tsv", "corpus.tsv"),
        ("~/secret/corpus.tsv", "corpus.tsv"),
        ("../secret/corpus.tsv", "corpus.tsv"),
        ("wmt/wmt14", "wmt/wmt14"),
        ("dates", "dates"),
        (3, 3),
    ],
)
def test_paths_of_this_machine_stay_here(value, public):
    assert public_name(value) == public


def test_every_flag_is_in_the_command_however_the_recipe_was_started(two_presets):
    args, _ = parse("--preset", "base", "--seed", "3", "--output_dir", "here")
    assert command(args) == f"python recipes/{RECIPE} --use_cpu --preset base --seed 3"


def test_columns_of_a_preset_are_the_words_that_stand_there():
    args, _ = parse_arguments("02_recurrent.py", ["--use_cpu", "--preset", "pos"])
    assert args.columns == {"tags": "upos"}


def test_the_command_is_one_that_anybody_can_type():
    typed = (
        "--preset dates --dataset /home/me/secret/a.tsv --output_dir /home/me/runs --seed 1 --resume --hub_token hf_x"
    )
    args = RecipeArguments(preset="dates")
    args.recipe, args.given = RECIPE, shlex.split(typed)
    assert command(args) == f"python recipes/{RECIPE} --preset dates --dataset a.tsv --seed 1"


def test_paths_inside_of_other_words_stay_here():
    """Both spellings of an option, and names with values."""
    words = ["--dataset=/home/me/secret/a.tsv", "--data_options", "data_files=/home/me/secret/b.tsv"]
    args = RecipeArguments(dataset="x")
    args.recipe, args.given = RECIPE, words
    assert command(args) == f"python recipes/{RECIPE} --dataset=a.tsv --data_options data_files=b.tsv"
    assert public_name({"data_files": ["/home/me/secret/b.tsv"]}) == {"data_files": ["b.tsv"]}


def test_nothing_is_told_to_the_allocator_on_import():
    """Only a run may ask glibc to keep memory; a program that imports the library keeps its own settings."""
    code = """
import ctypes
asked = []
real = ctypes.CDLL.__getattr__
ctypes.CDLL.__getattr__ = lambda self, name: (asked.append(name), real(self, name))[1]
import hf_edu_models, hf_edu_models.training.run, hf_edu_models.training.trainers
assert "mallopt" not in asked, asked
from hf_edu_models.training import keep_freed_memory
assert isinstance(keep_freed_memory(), bool)
import platform
assert ("mallopt" in asked) == (platform.libc_ver()[0] == "glibc"), asked
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_older_glibc_takes_less(monkeypatch):
    """Before 2.35 it refuses a threshold above 32 MiB, and then nothing would have been told at all."""
    from types import SimpleNamespace

    from hf_edu_models.training import memory

    told = []

    def mallopt(parameter, value):
        allowed = parameter != memory.MMAP_THRESHOLD or value <= 2**25
        told.extend([(parameter, value)] * allowed)
        return int(allowed)

    monkeypatch.setattr(memory.platform, "system", lambda: "Linux")
    monkeypatch.setattr(memory.platform, "libc_ver", lambda: ("glibc", "2.31"))
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    assert memory.keep_freed_memory() is True
    assert told == [(memory.MMAP_THRESHOLD, 2**25), (memory.TRIM_THRESHOLD, 2**31 - 1)]
    monkeypatch.setattr(memory.platform, "system", lambda: "Darwin")
    assert memory.keep_freed_memory() is False


def test_a_run_tells_the_allocator(monkeypatch, tmp_path):
    from hf_edu_models.training import run

    called = []
    monkeypatch.setattr(run, "keep_freed_memory", lambda: called.append(1))
    start(tmp_path)
    assert called


def vaswani(step: int, size: int, warmup: int) -> float:
    """Section 5.3, the formula (3)."""
    return size**-0.5 * min(step**-0.5, step * warmup**-1.5)


def test_the_inverse_square_root_is_the_papers(tmp_path):
    from transformers import get_scheduler

    size, warmup = 512, 4000
    rate = (size * warmup) ** -0.5
    training_args = arguments(
        tmp_path, lr_scheduler_type="inverse_sqrt", learning_rate=rate, warmup_steps=warmup, max_steps=9000
    )
    optimizer = torch.optim.Adam([torch.zeros(1)], lr=training_args.learning_rate)
    steps = training_args.get_warmup_steps(training_args.max_steps)
    schedule = get_scheduler(training_args.lr_scheduler_type, optimizer, steps, training_args.max_steps)
    for step in range(1, 9000):
        optimizer.step()
        schedule.step()
        if step in (1, 17, 3999, 4000, 4001, 8888):
            assert optimizer.param_groups[0]["lr"] == pytest.approx(vaswani(step, size, warmup))


def test_settings_leave_the_machine_out(tmp_path):
    args, training_args = parse("--dataset", "reverse", "--output_dir", str(tmp_path))
    assert set(settings_of(args, training_args)) <= {"dataset", "use_cpu"}
