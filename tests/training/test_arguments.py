"""Arguments of a run: presets, flags, settings that may and may not change on resume, folders that have a run."""

import json
import re
import runpy
import shlex
import subprocess
import sys

import datasets
import pytest
import torch
import yaml
from tiny_runs import arguments, write_checkpoint

from hf_edu_models import cpu_kernels
from hf_edu_models.data import load_corpus
from hf_edu_models.redaction import clean_value
from hf_edu_models.run_folder import SETTINGS, read_settings
from hf_edu_models.training import load_preset, parse_arguments, preset_names, presets, recipe_files
from hf_edu_models.training.arguments import (
    PretrainingArguments,
    RecipeArguments,
    RunArguments,
    arguments_class,
    settings_of,
)
from hf_edu_models.training.run import command, launch, start_run
from hf_edu_models.training.setup import corpus_for

RECIPE = "2015_bahdanau.py"
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


def test_a_section_overrides_the_common_one(two_presets):
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


def test_only_the_requested_preset_is_parsed(two_presets):
    (presets.recipes_folder() / "presets" / "broken.yaml").write_text("{")
    assert load_preset("base", "transformer")[0]["learning_rate"] == 0.1
    with pytest.raises(yaml.YAMLError):
        preset_names("transformer")


def test_a_recipe_names_its_arguments_class_beside_main():
    recipes = {name: runpy.run_path(str(file)) for name, file in recipe_files().items() if "pretrain" in name}
    assert all(arguments_class(recipe["main"]) is PretrainingArguments for recipe in recipes.values()) and recipes
    assert arguments_class(parse) is RecipeArguments


def test_flags_override_the_preset(two_presets):
    args, training_args = parse("--preset", "base", "--learning_rate", "0.2", "--model", "dropout=0.1", "layers=[1, 2]")
    assert training_args.learning_rate == 0.2 and training_args.num_train_epochs == 4
    assert args.model == {"hidden_size": 16, "dropout": 0.1, "layers": [1, 2]}
    assert args.notes == {"published": ["a"]} and args.recipe == RECIPE
    assert training_args.output_dir == "runs/bahdanau-base"


def test_a_size_overrides_the_preset_and_model_overrides_the_size(two_presets):
    flags = ["--use_cpu", "--preset", "base", "--size", "big", "--model", "num_hidden_layers=3"]
    args, _ = parse_arguments("recipes/2017_transformer.py", flags)
    sizes = {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096, "num_hidden_layers": 3}
    assert args.model.items() >= (sizes | {"dropout": 0.3}).items()
    for recipe in ("2019_bert_pretrain.py", "2019_bert_pretrain_accelerate.py", "2019_bert_finetune.py"):
        args, _ = parse_arguments(recipe, ["--use_cpu", "--dataset", "stories", "--size", "mini"])
        assert args.model["hidden_size"] == 256


@pytest.mark.parametrize(
    "flags, sentence",
    [
        (["--preset", "nowhere"], "no preset 'nowhere' for bahdanau; choose one of base, on_top, wrong"),
        (["--preset", "wrong"], "preset 'wrong' sets 'no_such_option', which is no option of the recipe"),
        (["--preset", "base", "--hiden", "3"], "no option '--hiden'"),
        (["--preset", "base", "--model", "hidden_size"], "--model takes name=value, got 'hidden_size'"),
        (["--preset", "base", "--resume", "--overwrite"], "give one of them"),
        (["--preset", "base", "--max_minutes", "0"], "max_minutes must be above 0, got 0"),
        (["--preset", "base", "--slanted_triangular", "1"], "slanted_triangular must be at least 0 and below 1, got 1"),
        (["--preset", "base", "--slanted_ratio", "0.5"], "slanted_ratio must be at least 1, got 0.5"),
        (["--preset", "base", "--halve_lr_after=-1"], "halve_lr_after must be 0 or more, got -1"),
        (["--preset", "base", "--halve_lr_after", "4", "--max_steps", "9"], "counts epochs; give --num_train_epochs"),
        (["--preset", "base", "--halve_lr_after", "4", "--slanted_triangular", "0.1"], "give one of them"),
        (["--preset", "base", "--layer_lr_decay", "2"], "layer_lr_decay must be above 0 and at most 1, got 2"),
        (
            ["--preset", "base", "--mixed_precision", "fp8"],
            "mixed_precision must be one of auto, no, bf16, if_faster; got 'fp8'",
        ),
        (["--preset", "base", "--early_stopping_patience=-1"], "must be 0 or more"),
        (["--preset", "base", "--streaming"], "--streaming needs --max_steps"),
        (["--preset", "base", "--streaming", "--max_steps", "5", "--max_tokens", "9"], "--max_tokens needs the whole"),
        (["--preset", "base", "--streaming", "--max_steps", "5", "--num_proc", "2"], "--num_proc needs the whole"),
        (["--preset", "base", "--streaming", "--max_steps", "5", "--buffer_size", "0"], "1 row or more, got 0"),
        (["--preset", "base", "--size", "big"], "EduBahdanauConfig has no sizes by name, got size 'big'"),
        (
            ["--preset", "base", "--size", "big", "--init-from", "run"],
            "run has its own size; leave out --size big",
        ),
        ([], "needs data: give --preset (one of base, on_top, wrong) or --dataset"),
    ],
)
def test_a_user_error_is_one_sentence(flags, sentence, two_presets, capsys):
    with pytest.raises(SystemExit) as end:
        launch(lambda args, training_args: None, RECIPE, ["--use_cpu", *flags])
    error = capsys.readouterr().err
    assert end.value.code == 2 and error.startswith(f"{RECIPE}: ") and "Traceback" not in error
    assert sentence in error.replace("\n", " ")


def test_help_shows_the_docstring_of_the_recipe_and_the_defaults(capsys):
    recipe = recipe_files()["bert-pretrain"]
    with pytest.raises(SystemExit):
        parse_arguments(str(recipe), ["--help"], PretrainingArguments)
    text = capsys.readouterr().out
    assert text.startswith(f"usage: {recipe.name} --preset NAME [options]\n")
    assert recipe.read_text("utf-8").split('"""')[1] in text
    assert "Fraction of the tokens to predict. (default: 0.15)" in text


def test_help_shows_our_options_and_help_all_those_of_trainer(capsys):
    texts = {}
    for flag in ("--help", "--help-all"):
        with pytest.raises(SystemExit) as end:
            parse_arguments(RECIPE, [flag])
        texts[flag] = capsys.readouterr().out
        assert end.value.code == 0 and "--learning_rate, --lr VALUE" in texts[flag]
    options = {flag: set(re.findall(r"^  (--\w+)", text, re.MULTILINE)) for flag, text in texts.items()}
    assert {"--columns", "--no_header", "--max_minutes"} <= options["--help"] and len(options["--help"]) < 50
    assert options["--help"] < options["--help-all"] and "--torch_compile" in options["--help-all"] - options["--help"]


def test_short_names_of_options(two_presets):
    short = ["--lr", "0.3", "--epochs=7", "--batch-size", "5", "--out", "here", "--device", "cpu"]
    args, training_args = parse_arguments(RECIPE, ["--preset", "base", *short])
    long = ["--learning_rate", "0.3", "--num_train_epochs", "7", "--per_device_train_batch_size", "5"]
    same_args, same = parse_arguments(RECIPE, ["--preset", "base", *long, "--output_dir", "here", "--use_cpu"])
    names = ("learning_rate", "num_train_epochs", "per_device_train_batch_size", "output_dir", "use_cpu")
    assert [getattr(training_args, name) for name in names] == [getattr(same, name) for name in names]
    assert "here" not in command(args) and settings_of(args, training_args) == settings_of(same_args, same)


def test_what_belongs_to_the_data_of_a_preset_does_not_apply_to_other_data(tmp_path, monkeypatch):
    own = {
        "dataset": "ada/pairs",
        "source": "de",
        "target": "en",
        "columns": {"source": "a"},
        "published": [{"score": 1}],
    }
    folder = tmp_path / "recipes" / "presets"
    folder.mkdir(parents=True)
    (folder / "pairs.yaml").write_text(
        yaml.safe_dump({"bahdanau": own | {"task": "translation", "learning_rate": 0.5}})
    )
    monkeypatch.setattr(presets, "recipes_folder", lambda: folder.parent)
    args, training_args = parse("--preset", "pairs", "--dataset", "mine.tsv")
    assert (args.source, args.target, args.columns, args.task, args.notes) == (None, None, {}, None, {})
    assert training_args.learning_rate == 0.5
    copy, _ = parse("--preset", "pairs", "--dataset", "data/pairs")
    assert copy.source is None and copy.notes == {"published": [{"score": 1}]}


@pytest.mark.parametrize("columns", [["cs", "de", "en", "fr"], ["de", "en"], ["source", "target"]])
def test_columns_of_a_preset_hold_for_a_dataset_that_has_them(columns, tmp_path, monkeypatch, capsys):
    own = {"dataset": "ada/captions", "source": "en", "target": "de"}
    folder = tmp_path / "recipes" / "presets"
    folder.mkdir(parents=True)
    (folder / "captions.yaml").write_text(yaml.safe_dump({"bahdanau": own}))
    monkeypatch.setattr(presets, "recipes_folder", lambda: folder.parent)
    for split in ("train", "validation"):
        rows = [json.dumps({name: f"{name} {split} {row}" for name in columns}) for row in range(3)]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(rows))
    flags = ["--preset", "captions", "--dataset", str(tmp_path)]
    args, _ = parse(*flags)
    row = corpus_for(args, tasks=["translation"])["train"][0]
    if "en" in columns:
        assert row == {"source": "en train 0", "target": "de train 0"} and (args.source, args.target) == ("en", "de")
    else:
        assert row == {"source": "source train 0", "target": "target train 0"} and args.source is None
    if "fr" in columns:
        args, _ = parse(*flags, "--streaming", "--max_steps", "2")
        assert next(iter(corpus_for(args)["train"])) == row
        args, _ = parse(*flags, "--source", "fr", "--target", "cs")
        assert corpus_for(args)["train"][0] == {"source": "fr train 0", "target": "cs train 0"}


def test_columns_of_a_preset_that_the_dataset_does_not_have_are_left_out(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"cs": "a", "fr": "b", "it": "c"}\n')
    args, _ = parse_arguments(
        "recipes/2017_transformer.py", ["--preset", "multi30k-en-de", "--dataset", str(tmp_path), "--use_cpu"]
    )
    with pytest.raises(ValueError, match="3 languages to choose from"):
        corpus_for(args, tasks=["translation"])


@pytest.mark.parametrize("name", ["upos", "kind"])
def test_a_renamed_column_of_a_preset_holds_where_it_exists(name, tmp_path):
    rows = [json.dumps({"tokens": ["a", "b"], name: ["x", "y"], "xpos": ["q", "r"]})] * 3
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    args, _ = parse_arguments(
        "recipes/2019_bert_finetune.py", ["--preset", "pos", "--dataset", str(tmp_path), "--use_cpu"]
    )
    assert args.preset_columns == {"columns": {"tags": "upos"}}
    if name == "upos":
        assert corpus_for(args)["train"].features["tags"].feature.names == ["x", "y"]
        assert args.columns == {"tags": "upos"}
    else:
        with pytest.raises(ValueError, match="no task fits the columns"):
            corpus_for(args)


def test_a_table_without_a_header():
    args, _ = parse("--dataset", "mine.csv", "--no_header", "--columns", "text=1", "label=0")
    assert args.corpus["header"] is False and args.corpus["columns"] == {"text": "1", "label": "0"}


def test_ctrl_c_has_its_own_exit_code(two_presets, capsys):
    def interrupted(args, training_args):
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as end:
        launch(interrupted, RECIPE, ["--preset", "base", "--use_cpu"])
    assert end.value.code == 130 and "--resume continues" in capsys.readouterr().err


def test_init_from_keeps_its_sizes_and_takes_the_dropout_of_the_preset(two_presets):
    args, _ = parse("--preset", "on_top", "--init-from", "runs/body")
    assert args.model == {"dropout": 0.5}
    args, _ = parse("--preset", "on_top", "--init-from", "runs/body", "--model", "dropout=0", "maxout_size=8")
    assert args.model == {"dropout": 0, "maxout_size": 8}


def test_label_smoothing_is_done_in_the_model(two_presets):
    """Trainer's own label smoothing needs all logits at once; the model never materialises them."""
    args, training_args = parse("--preset", "base", "--label_smoothing_factor", "0.1")
    assert args.model["label_smoothing"] == 0.1 and training_args.label_smoothing_factor == 0.0


def test_averaging_and_early_stopping_set_the_arguments_they_need(tmp_path):
    assert arguments(tmp_path, average_checkpoints=5, save_total_limit=2).save_total_limit == 5
    stops = arguments(tmp_path, early_stopping_patience=2, eval_strategy="steps", eval_steps=3)
    assert stops.load_best_model_at_end


def start(folder, *flags, resume=False, overwrite=False):
    switches = ["--resume"] * resume + ["--overwrite"] * overwrite
    args, training_args = parse("--dataset", "reverse", "--output_dir", str(folder), *switches, *flags)
    return start_run(args, training_args, "translation")


def test_the_best_checkpoint_is_chosen_by_bleu_and_not_by_loss(tmp_path):
    """Trainer's default is the loss, which can still be chosen."""
    patient = ("--early_stopping_patience", "2")
    usual = start(tmp_path / "usual", *patient).training_args
    assert (usual.metric_for_best_model, usual.greater_is_better) == ("bleu", True)
    asked = start(tmp_path / "asked", *patient, "--metric_for_best_model", "loss").training_args
    assert (asked.metric_for_best_model, asked.greater_is_better) == ("loss", False)
    assert "metric_for_best_model" not in read_settings(tmp_path / "usual")
    assert read_settings(tmp_path / "asked")["metric_for_best_model"] == "loss"


def test_a_folder_with_a_run_is_not_overwritten(tmp_path):
    start(tmp_path / "run")
    (tmp_path / "run" / "kept.txt").write_text("x")
    start(tmp_path / "run")  # it ended before its first checkpoint
    assert (tmp_path / "run" / "kept.txt").exists()
    write_checkpoint(tmp_path / "run" / "checkpoint-3")
    with pytest.raises(ValueError, match="already has a run; --resume continues it, --overwrite deletes it"):
        start(tmp_path / "run")
    assert (tmp_path / "run" / "kept.txt").exists()
    with pytest.raises(ValueError, match=r"--overwrite would delete .*checkpoint-3, which --init-from"):
        start(tmp_path / "run", "--init-from", str(tmp_path / "run" / "checkpoint-3"), overwrite=True)
    start(tmp_path / "run", overwrite=True)
    assert not (tmp_path / "run" / "kept.txt").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("x")  # a folder without a run is not deleted
    start(tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine" / "notes.txt").exists()


def test_resuming_needs_the_same_settings(tmp_path):
    small = ["--model", "hidden_size=16"]
    start(tmp_path, *small, "--seed", "3")
    write_checkpoint(tmp_path / "checkpoint-4")
    with pytest.raises(
        ValueError, match=r"started with model \{'hidden_size': 16\}, but now it is .*24.*use the same value"
    ):
        start(tmp_path, "--model", "hidden_size=24", "--seed", "3", resume=True)
    with pytest.raises(ValueError, match="started with seed 3, but now it is at its default"):
        start(tmp_path, *small, resume=True)
    start(tmp_path, *small, "--seed", "3", "--num_train_epochs", "9", "--learning_rate", "0.1", resume=True)
    assert read_settings(tmp_path)["num_train_epochs"] == 9
    write_checkpoint(tmp_path / "checkpoint-12")
    resumed = start(tmp_path, *small, "--seed", "3", "--num_train_epochs", "9", resume=True)
    assert resumed.checkpoint == str(tmp_path / "checkpoint-12")  # by number, not by name


@pytest.mark.skipif(not cpu_kernels.is_available(), reason="this torch has no oneDNN")
def test_a_resumed_run_keeps_its_cpu_kernels(tmp_path, monkeypatch):
    """Those of its start, whatever a probe would choose now; a run from before there was a choice had none."""
    monkeypatch.setenv(cpu_kernels.VARIABLE, "onednn:20,20,20")
    with cpu_kernels.enabled("off"):  # restored afterwards
        assert start(tmp_path).training_args.cpu_kernels == cpu_kernels.current() == "onednn:20,20,20"
        write_checkpoint(tmp_path / "checkpoint-4")
        monkeypatch.setenv(cpu_kernels.VARIABLE, "off")
        start(tmp_path, resume=True)
        assert cpu_kernels.current() == read_settings(tmp_path)["cpu_kernels"] == "onednn:20,20,20"
        start(tmp_path, "--cpu_kernels", "off", resume=True)
        assert cpu_kernels.current() == "off"
        (tmp_path / SETTINGS).write_text("dataset: reverse")
        monkeypatch.setenv(cpu_kernels.VARIABLE, "onednn:20,20,20")
        start(tmp_path, resume=True)
        assert cpu_kernels.current() == read_settings(tmp_path)["cpu_kernels"] == "off"
    with pytest.raises(ValueError, match="cpu_kernels must be auto, off or a choice"):
        parse("--dataset", "reverse", "--cpu_kernels", "fast")


def test_a_preset_reads_its_own_file_only(monkeypatch):
    read = []
    load = presets.yaml.safe_load
    monkeypatch.setattr(presets.yaml, "safe_load", lambda text: read.append(text) or load(text))
    load_preset("multi30k", "bahdanau")
    assert len(read) == 1


def test_resuming_without_a_checkpoint_starts_a_new_run(tmp_path):
    assert start(tmp_path, resume=True).checkpoint is None


def test_settings_are_those_that_differ_from_their_defaults(tmp_path):
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
def test_local_paths_are_redacted(value, public):
    assert clean_value(value) == public


def test_every_flag_is_in_the_command_however_the_recipe_was_started(two_presets):
    args, _ = parse("--preset", "base", "--seed", "3", "--output_dir", "here")
    assert command(args) == f"python recipes/{RECIPE} --use_cpu --preset base --seed 3"


def test_columns_of_a_preset_are_strings():
    args, _ = parse_arguments("2010_recurrent.py", ["--use_cpu", "--preset", "pos"])
    assert args.columns == {"tags": "upos"}


def test_the_command_has_no_local_paths_and_secrets():
    typed = (
        "--preset dates --dataset /home/me/secret/a.tsv --output_dir /home/me/runs --seed 1 --resume --hub_token hf_x"
    )
    args = RecipeArguments(preset="dates")
    args.recipe, args.argv = RECIPE, shlex.split(typed)
    assert command(args) == f"python recipes/{RECIPE} --preset dates --dataset a.tsv --seed 1"


def test_paths_inside_other_words_are_redacted():
    """Both spellings of an option, and name=value."""
    words = ["--dataset=/home/me/secret/a.tsv", "--data_options", "data_files=/home/me/secret/b.tsv"]
    args = RecipeArguments(dataset="x")
    args.recipe, args.argv = RECIPE, words
    assert command(args) == f"python recipes/{RECIPE} --dataset=a.tsv --data_options data_files=b.tsv"
    assert clean_value({"data_files": ["/home/me/secret/b.tsv"]}) == {"data_files": ["b.tsv"]}


@pytest.mark.parametrize("is_faster", [True, False])
def test_mixed_precision_if_faster(is_faster, monkeypatch):
    """On a CPU, bfloat16 only where it was measured to be faster; what was chosen is saved with the run."""
    monkeypatch.setattr("hf_edu_models.training.arguments.has_fast_bfloat16", lambda: is_faster)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    chosen = {
        name: RunArguments(output_dir="run", mixed_precision=name) for name in ("if_faster", "auto", "no", "bf16")
    }
    assert [chosen[name].bf16 for name in chosen] == [is_faster, False, False, True]
    assert settings_of(RecipeArguments(dataset="x"), chosen["if_faster"]).get("bf16", False) is is_faster


def test_importing_does_not_configure_malloc():
    """A program that only imports the library keeps its own settings."""
    code = """
import ctypes
asked = []
real = ctypes.CDLL.__getattr__
ctypes.CDLL.__getattr__ = lambda self, name: (asked.append(name), real(self, name))[1]
import hf_edu_models, hf_edu_models.training.run, hf_edu_models.training.trainers
assert "mallopt" not in asked, asked
from hf_edu_models.training import configure_malloc
assert isinstance(configure_malloc(), bool)
import platform
assert ("mallopt" in asked) == (platform.libc_ver()[0] == "glibc"), asked
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_older_glibc_has_a_lower_limit(monkeypatch):
    """Before 2.35 it rejects a threshold above 32 MiB, and would keep its default."""
    from types import SimpleNamespace

    from hf_edu_models import malloc

    calls = []

    def mallopt(parameter, value):
        allowed = parameter != malloc.MMAP_THRESHOLD or value <= 2**25
        calls.extend([(parameter, value)] * allowed)
        return int(allowed)

    monkeypatch.setattr(malloc.platform, "system", lambda: "Linux")
    monkeypatch.setattr(malloc.platform, "libc_ver", lambda: ("glibc", "2.31"))
    monkeypatch.setattr(malloc.ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    assert malloc.configure_malloc() is True
    assert calls == [(malloc.MMAP_THRESHOLD, 2**25), (malloc.TRIM_THRESHOLD, 2**31 - 1)]
    monkeypatch.setattr(malloc.platform, "system", lambda: "Darwin")
    assert malloc.configure_malloc() is False


def test_a_run_configures_malloc(monkeypatch, tmp_path):
    from hf_edu_models.training import run

    called = []
    monkeypatch.setattr(run, "configure_malloc", lambda: called.append(1))
    start(tmp_path)
    assert called


def vaswani(step: int, size: int, warmup: int) -> float:
    """Section 5.3, Eq. (3)."""
    return size**-0.5 * min(step**-0.5, step * warmup**-1.5)


def test_the_inverse_square_root_schedule_is_that_of_the_paper(tmp_path):
    from transformers import get_scheduler

    size, warmup = 512, 4000
    peak = (size * warmup) ** -0.5
    training_args = arguments(
        tmp_path, lr_scheduler_type="inverse_sqrt", learning_rate=peak, warmup_steps=warmup, max_steps=9000
    )
    optimizer = torch.optim.Adam([torch.zeros(1)], lr=training_args.learning_rate)
    steps = training_args.get_warmup_steps(training_args.max_steps)
    schedule = get_scheduler(training_args.lr_scheduler_type, optimizer, steps, training_args.max_steps)
    for step in range(1, 9000):
        optimizer.step()
        schedule.step()
        if step in (1, 17, 3999, 4000, 4001, 8888):
            assert optimizer.param_groups[0]["lr"] == pytest.approx(vaswani(step, size, warmup))


def test_settings_do_not_depend_on_the_machine(tmp_path):
    args, training_args = parse("--dataset", "reverse", "--output_dir", str(tmp_path))
    assert set(settings_of(args, training_args)) <= {"dataset", "use_cpu"}


HUB_COLUMNS = {
    "qqp": ("question1", "question2", "label", "idx"),
    "mnli": ("premise", "hypothesis", "label", "idx"),
    "qnli": ("question", "sentence", "label", "idx"),
    "wnli": ("sentence1", "sentence2", "label", "idx"),
    "boolq": ("question", "passage", "idx", "label"),
    "cb": ("premise", "hypothesis", "idx", "label"),
    "copa": ("premise", "choice1", "choice2", "question", "idx", "label"),
    "wic": ("word", "sentence1", "sentence2", "start1", "start2", "end1", "end2", "idx", "label"),
    "terra": ("premise", "hypothesis", "idx", "label"),
    "multirc": ("paragraph", "question", "answer", "idx", "label"),
    "wsc": ("text", "span1_index", "span2_index", "span1_text", "span2_text", "idx", "label"),
    "rcb": ("premise", "hypothesis", "verb", "negation", "idx", "label"),
    "parus": ("premise", "choice1", "choice2", "question", "idx", "label"),
    "muserc": ("paragraph", "question", "answer", "idx", "label"),
    "russe": ("word", "sentence1", "sentence2", "start1", "start2", "end1", "end2", "gold_sense1", "idx", "label"),
    "rwsd": ("text", "span1_index", "span2_index", "span1_text", "span2_text", "idx", "label"),
    "danetqa": ("question", "passage", "idx", "label"),
}


@pytest.mark.parametrize("preset", HUB_COLUMNS)
def test_the_preset_of_a_benchmark_finds_its_columns(preset, monkeypatch):
    """The Hub is replaced by two rows with the columns of its dataset; MNLI has two validation splits."""
    table = {name: [0, 1] if name in ("label", "idx") else ["a", "b"] for name in HUB_COLUMNS[preset]}
    held_out = ("validation_matched", "validation_mismatched") if preset == "mnli" else ("validation",)
    rows = datasets.Dataset.from_dict(table)
    loaded = datasets.DatasetDict(dict.fromkeys(("train", *held_out), rows))
    monkeypatch.setattr("datasets.load_dataset", lambda *arguments, **options: loaded)
    args, _ = parse_arguments("recipes/2019_bert_finetune.py", ["--use_cpu", "--preset", preset])
    corpus = load_corpus(args.dataset, **args.corpus)
    assert args.dataset_config == preset and set(corpus) == {"train", "validation"}
    two = {"context", "choices"} if preset in ("copa", "parus") else {"text", "text_pair"}
    assert set(corpus["train"].column_names) == two | {"label"}


@pytest.mark.parametrize("preset", ["record", "rucos"])
def test_a_query_with_a_placeholder_is_a_question_and_its_answers_are_found_in_the_passage(preset, monkeypatch):
    passage = "Ada met Ida in Rome. Ida left."
    rows = {"passage": [passage] * 2, "query": ["@placeholder left", "In @placeholder"], "idx": [0, 1]}
    rows |= {"entities": [["Ada", "Ida", "Rome"]] * 2, "answers": [["Ida", "Eva"], ["Rome"]]}
    hidden = rows | {"answers": [[], None]}
    splits = {"train": rows, "validation": rows, "test": hidden}
    types = datasets.Features(
        passage=datasets.Value("string"), query=datasets.Value("string"), idx=datasets.Value("int64"),
        entities=datasets.List(datasets.Value("string")), answers=datasets.List(datasets.Value("string")),
    )  # fmt: skip
    loaded = {split: datasets.Dataset.from_dict(each, features=types) for split, each in splits.items()}
    monkeypatch.setattr("datasets.load_dataset", lambda *arguments, **options: datasets.DatasetDict(loaded))
    args, _ = parse_arguments("recipes/2019_bert_finetune.py", ["--use_cpu", "--preset", preset])
    corpus = corpus_for(args, ["question_answering"])
    assert set(corpus) == {"train", "validation"}  # no answers, no split
    for row, answer in zip(corpus["train"], ("Ida", "Rome"), strict=True):
        (text,), (start,) = row["answers"]["text"], row["answers"]["answer_start"]  # Eva is not in the passage
        assert text == answer and passage[start : start + len(text)] == answer
