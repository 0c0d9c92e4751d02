"""Every recipe runs, writes all files of a run, and reports an error of the user in one sentence."""

import importlib.util
import json
import re
import runpy
import shutil
import sys

import pytest
import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoTokenizer

from hf_edu_models.auto import LADDER, find_rung
from hf_edu_models.checkpoints import load_with_head
from hf_edu_models.data import TASKS
from hf_edu_models.manifest import find_damage
from hf_edu_models.prediction import load_predictor
from hf_edu_models.training import (
    RecipeArguments,
    launch,
    load_preset,
    log_history,
    parse_arguments,
    preset_names,
    read_results,
    recipe_files,
)
from hf_edu_models.training.arguments import arguments_class, section_of

RECIPES = recipe_files()
KEYS = {
    "rung", "model_type", "architecture", "recipe", "preset", "command", "task", "data", "init_from", "parameters",
    "seconds", "steps", "epochs", "seed", "machine", "versions", "settings", "main_score", "scores", "samples",
    "published",
}  # fmt: skip


def test_every_rung_has_a_recipe_and_a_smoke_run():
    names = [f"{section_of(file.name)}_" for file in RECIPES.values()]
    assert all(any(name.startswith(f"{rung.name}_") for name in names) for rung in LADDER)
    assert all("smoke" in preset_names(section_of(file.name)) for file in RECIPES.values())


@pytest.mark.parametrize("name", RECIPES)
def test_smoke_writes_all_files_of_a_run(name, smoke):
    folder = smoke(name)
    results = read_results(folder)
    assert set(results) >= KEYS
    assert results["recipe"] == RECIPES[name].name and results["preset"] == "smoke"
    assert results["command"].startswith(f"python recipes/{RECIPES[name].name} --preset smoke")
    assert results["task"] in {*TASKS, "pretraining", "masked_lm", "multi_task"}
    assert set(results["scores"]) == {"validation", "test"} <= set(results["data"]["sizes"])
    for scores in results["scores"].values():
        assert scores[results["main_score"]] == pytest.approx(scores[results["main_score"]])  # a number, not NaN
    assert results["samples"] and results["steps"] > 1 and results["machine"]["processes"] == 1
    assert str(folder) not in json.dumps(results)  # nothing of this machine
    assert (folder / "settings.yaml").is_file()
    assert any("loss" in entry for entry in log_history(folder)) and any(
        "eval_loss" in entry for entry in log_history(folder)
    )


@pytest.mark.parametrize("name", RECIPES)
def test_the_model_loads_and_generates(name, smoke):
    folder = smoke(name)
    if name == "bert-multitask":  # without an Auto class; each of its tasks has one
        folder = folder / "smoke_names"
    results = read_results(folder)
    rung = find_rung(results["model_type"])
    model, tokenizer = load_with_head(str(folder))
    assert type(model).__name__ == results["architecture"] and model.num_parameters() == results["parameters"]
    if name != "bert-pretrain-accelerate":  # a bare loop writes no card
        assert "(pictures/architecture.png)" in (folder / "README.md").read_text()
    if results["task"] == "time_series":
        values, weights = model.forecast(torch.randn(2, 30, 1), steps=3)
        assert values.shape == (2, 3, 1) and weights.shape == (2, 12)
        return
    if tokenizer is None:
        assert load_predictor(str(folder))([{"features": [0.5]}])[0]["value"] == pytest.approx(2, abs=1.5)
        assert (folder / "pictures" / "kernels.png").is_file()
        return
    inputs = tokenizer("There was once a day", return_tensors="pt")
    if "sentences" in rung.inputs["input_ids"]:
        inputs = {key: value[None] for key, value in inputs.items()}
    if not model.can_generate():
        assert torch.isfinite(next(iter(model(**inputs).to_tuple()))).all()
        return
    length = 0 if model.config.is_encoder_decoder else inputs["input_ids"].shape[1]
    message = model.generate(**inputs, max_new_tokens=6, do_sample=False)
    assert 0 < message.shape[1] - length <= 7
    again = model.generate(**inputs, max_new_tokens=6, do_sample=False, use_cache=False)
    assert torch.equal(message, again)


def run_here(name, *options):
    """Run a recipe in this process: starting a new one takes longer than these runs."""
    spec = importlib.util.spec_from_file_location("recipe", RECIPES[name])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    launch(module.main, str(RECIPES[name]), [*map(str, options)])


STREAMED = {"gpt": (), "recurrent": (), "transformer-xl": (), "bert-pretrain": (), "transformer": ("--num_beams", 1)}


@pytest.mark.parametrize("name", STREAMED)
def test_a_stream_is_trained_on_and_resumed(name, tmp_path):
    """Stopped after three steps and resumed: the same weights as a run of six."""
    runs = {steps: tmp_path / steps for steps in ("whole", "resumed")}
    options = ("--preset", "smoke", "--streaming", "--buffer_size", 150, "--quiet", *STREAMED[name])
    saving = ("--save_steps", 3, "--eval_strategy", "no", "--lr_scheduler_type", "constant")
    for folder, steps, extra in ((runs["whole"], 6, ()), (runs["resumed"], 3, ()), (runs["resumed"], 6, ("--resume",))):
        run_here(name, *options, *saving, "--max_steps", steps, "--output_dir", folder, *extra)
    weights, expected = (load_file(runs[run] / "model.safetensors") for run in ("resumed", "whole"))
    assert all(torch.equal(weights[key], expected[key]) for key in expected)
    assert set(read_results(runs["whole"])["data"]["sizes"]) == {"validation", "test"}  # train has no length


def test_streaming_is_for_tasks_without_labels(moods, tmp_path, capsys):
    options = (
        "--preset",
        "smoke",
        "--dataset",
        moods,
        "--streaming",
        "--max_steps",
        2,
        "--output_dir",
        tmp_path / "run",
    )
    with pytest.raises(SystemExit):
        run_here("recurrent", *options, "--data_options", "label_names=glad,low")
    assert "--streaming is for language_modeling, documents, translation" in capsys.readouterr().err


@pytest.fixture(scope="session")
def moods(tmp_path_factory):
    """Labelled sentences with words of the stories."""
    folder = tmp_path_factory.mktemp("moods")
    feelings = [("happy", "glad"), ("proud", "glad"), ("sad", "low"), ("angry", "low")]
    names = ("Anna", "Ben", "Kira", "Leo", "Mina", "Olga")
    rows = [{"text": f"{name} felt {word} .", "label": label} for name in names for word, label in feelings]
    for split in ("train", "validation", "test"):
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


FINE_TUNING = {  # the pre-trained run and the recipe that fine-tunes it
    "recurrent": ("recurrent", ("--unfreeze-every", "0.5", "--layer-lr-decay", "0.5")),
    "gpt": ("gpt", ()),
    "bert-pretrain": ("bert-finetune", ()),
}


@pytest.mark.parametrize("start", FINE_TUNING)
def test_pre_trained_models_are_fine_tuned_as_classifiers(start, smoke, moods, tmp_path):
    recipe, options = FINE_TUNING[start]
    checkpoint, folder = smoke(start), tmp_path / "run"
    options = ("--preset", "smoke", "--dataset", moods, "--init-from", checkpoint, *options)
    run_here(recipe, *options, "--max_steps", "1", "--learning_rate", "0", "--output_dir", folder)
    results = read_results(folder)
    assert results["task"] == "classification" and results["init_from"] == checkpoint.name
    before = load_with_head(str(checkpoint))[0].model
    after = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    assert set(after.config.id2label.values()) == {"glad", "low"}
    kept = after.model.state_dict()
    for name, weight in before.state_dict().items():  # the learning rate is 0
        torch.testing.assert_close(kept[name], weight, rtol=0, atol=0)
    assert AutoTokenizer.from_pretrained(folder).get_vocab() == AutoTokenizer.from_pretrained(checkpoint).get_vocab()


def test_new_weights_are_initialised_in_a_model_of_the_same_sizes(smoke, moods, tmp_path):
    """The baseline without pre-training: the same tokenizer and sizes."""
    checkpoint, folder = smoke("bert-pretrain"), tmp_path / "run"
    options = ("--preset", "smoke", "--dataset", moods, "--init-from", checkpoint, "--new_weights")
    # Another seed than that of pre-training, which would give the same initialisation.
    run_here("bert-finetune", *options, "--seed", "7", "--max_steps", "1", "--output_dir", folder)
    assert read_results(folder)["init_from"] is None, "nothing of its weights is left"
    learnt = transformers.AutoModelForPreTraining.from_pretrained(checkpoint).model.state_dict()
    after = transformers.AutoModelForSequenceClassification.from_pretrained(folder).model.state_dict()
    assert {name: weight.shape for name, weight in after.items()} == {name: w.shape for name, w in learnt.items()}
    words = "embeddings.word_embeddings.weight"
    closeness = torch.cosine_similarity(after[words].flatten(), learnt[words].flatten(), dim=0)
    assert abs(closeness) < 0.1
    with pytest.raises(ValueError, match="--new_weights needs --init-from"):
        RecipeArguments(new_weights=True)
    assert AutoTokenizer.from_pretrained(folder).get_vocab() == AutoTokenizer.from_pretrained(checkpoint).get_vocab()


LABELLED = {
    "regression": ({"text": "a cat", "text_pair": "a dog", "label": 2.5}, {"label": 1.0}),
    "several": ({"text": "a cat", "label": ["x", "y"]}, {"label": ["y"]}),
    "tags": ({"tokens": ["a", "cat"], "tags": ["DET", "NOUN"]}, {"tags": ["DET", "VERB"]}),
    "spans": ({"tokens": ["Ada", "Byron"], "tags": ["B-P", "I-P"]}, {"tags": ["O", "O"]}),
    "answers": (
        {"context": "Ada has a cat", "question": "who ?", "answers": {"text": ["Ada"], "answer_start": [0]}},
        {"answers": {"text": ["cat"], "answer_start": [10]}},
    ),
    "endings": ({"context": "Ada has", "choices": ["a cat", "of run"], "label": 0}, {"label": 1}),
}
EXPECTED = {
    "regression": ("spearman", "AutoModelForSequenceClassification"),
    "several": ("f1_macro", "AutoModelForSequenceClassification"),
    "tags": ("accuracy", "AutoModelForTokenClassification"),
    "spans": ("f1", "AutoModelForTokenClassification"),
    "answers": ("f1", "AutoModelForQuestionAnswering"),
    "endings": ("accuracy", "AutoModelForMultipleChoice"),
}


@pytest.mark.parametrize("kind", LABELLED)
def test_the_columns_choose_the_head_of_bert(kind, tmp_path):
    first, changes = LABELLED[kind]
    data = tmp_path / "data"
    data.mkdir()
    for split, count in (("train", 8), ("validation", 4), ("test", 6)):
        rows = [{"id": f"{split}{number}"} | (first if number % 2 else first | changes) for number in range(count)]
        rows = rows if kind == "answers" else [{k: v for k, v in row.items() if k != "id"} for row in rows]
        (data / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("--preset", "smoke", "--dataset", data, "--max_steps", "1", "--output_dir", tmp_path / "run")
    run_here("bert-finetune", *options)
    results = read_results(tmp_path / "run")
    score, head = EXPECTED[kind]
    assert results["main_score"] == score and score in results["scores"]["test"]
    getattr(transformers, head).from_pretrained(tmp_path / "run")


SECTIONS = {section_of(file.name): file for name, file in RECIPES.items()}
RUNG_OF_SECTION = {"ulmfit": "recurrent"}
PRESETS = [(preset, section) for section in SECTIONS for preset in preset_names(section)]


@pytest.mark.parametrize(("preset", "section"), PRESETS)
def test_presets_parse_and_their_models_can_be_built(preset, section):
    main = runpy.run_path(str(SECTIONS[section]))["main"]
    settings, notes = load_preset(preset, section)
    assert ("dataset" in settings) != ("get_data" in notes)  # data on the Hub, or a word on where to get it
    argv = ["--preset", preset] + ([] if "dataset" in settings else ["--dataset", "input.txt"])
    args, training_args = parse_arguments(str(SECTIONS[section]), argv, arguments_class(main))
    assert args.dataset and training_args.learning_rate > 0
    for entry in args.notes.get("published", []):
        assert {"system", "score", "metric", "source"} <= set(entry)
    name = RUNG_OF_SECTION.get(section, section)
    rungs = [rung for rung in LADDER if f"{name}_".startswith(f"{rung.name}_")]
    rung = max(rungs, key=lambda rung: len(rung.name))
    known = set(rung.config().to_dict())
    assert set(args.model) <= known
    sizes = {"vocab_size": args.vocab_size} if rung.tokenizer else {}
    with torch.device("meta"):
        for head in rung.heads.values():
            reads_the_past = any(name in head.__name__ for name in ("CausalLM", "TimeSeries"))
            has_no_words = args.model.get("embedding_dropout") and "TimeSeries" in head.__name__
            if not (args.model.get("bidirectional") and reads_the_past) and not has_no_words:
                head(rung.config(**sizes | args.model))


ERRORS = {
    "option": (["--bla", "3"], "no option '--bla'"),
    "value": (["--preset", "smoke", "--num_train_epochs", "many"], "invalid float value: 'many'"),
    "preset": (["--preset", "nope"], r"no preset 'nope' for bert_finetune; choose one of .*sst2"),
    "nothing": ([], "needs data: give --preset"),
    "data": (["--preset", "smoke", "--dataset", "./nowhere"], "nowhere does not exist"),
    "no labels": (["--preset", "smoke", "--dataset", "stories"], "stories is for language_modeling"),
    "built-in": (["--preset", "smoke", "--dataset", "stories", "--data_options", "a=3"], "stories has no option 'a'"),
    "setting": (["--preset", "smoke", "--model", "hiden_size=8"], "no setting 'hiden_size'; did you mean hidden_size"),
    "type": (["--preset", "smoke", "--model", "hidden_size=big"], "'hidden_size' expected int"),
    "heads": (["--preset", "smoke", "--model", "hidden_size=33"], "cannot be split into 2 equal heads"),
    "start": (
        ["--preset", "smoke", "--init-from", "./nowhere"],
        r"\./nowhere does not exist; give a run, a checkpoint or a Hub id",
    ),
}


@pytest.mark.parametrize("error", ERRORS)
def test_a_user_error_is_one_sentence(error, tmp_path, capsys, monkeypatch):
    options, message = ERRORS[error]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    with pytest.raises(SystemExit) as ended:
        run_here("bert-finetune", *options)
    captured = capsys.readouterr()
    assert ended.value.code == 2
    last = captured.err.strip().splitlines()[-1]
    assert last.startswith("2019_bert_finetune.py: ") and re.search(message, last)
    assert "Traceback" not in captured.err


def test_a_user_error_has_exit_code_2(run_recipe):
    process = run_recipe("feedforward", "--preset", "nope", check=False)
    assert process.returncode == 2
    assert (
        process.stderr.strip().startswith("2003_feedforward.py: no preset 'nope'") and "Traceback" not in process.stderr
    )


def test_a_checkpoint_of_another_size_or_rung_raises_an_error(smoke, tmp_path, capsys, moods):
    start = ["--preset", "smoke", "--dataset", str(moods), "--output_dir", str(tmp_path), "--init-from"]
    for name, options, message in (
        ("bert-finetune", [smoke("gpt")], "is a edu_gpt, but this recipe trains a edu_bert"),
        ("gpt", [smoke("gpt"), "--model", "num_hidden_layers=3"], "does not fit the weights of"),
        ("recurrent", [smoke("recurrent"), "--model", "bidirectional=true"], "does not fit the weights of"),
        ("gpt", [smoke("gpt"), "--max_length", "512"], "give --max_length 32"),
    ):
        with pytest.raises(SystemExit) as ended:
            run_here(name, *start, *options)
        assert ended.value.code == 2 and message in " ".join(capsys.readouterr().err.split())


def test_the_bare_loop_resumes_from_its_last_good_checkpoint(run_recipe, smoke, tmp_path):
    """The random states belong to a checkpoint: Accelerate itself goes on in silence without them."""
    whole, cut = smoke("bert-pretrain-accelerate"), tmp_path / "cut"
    shutil.copytree(whole, cut)
    (cut / "model.safetensors").unlink()  # the last checkpoint is of step 6 of 8: what came after is lost
    assert not (cut / "checkpoint-8").exists() and find_damage(cut / "checkpoint-6") is None
    (cut / "checkpoint-6" / "random_states_0.pkl").unlink()
    options = ("--preset", "smoke", "--save_strategy", "steps", "--save_steps", "3", "--output_dir", cut, "--resume")
    process = run_recipe("bert-pretrain-accelerate", *options, check=False)
    assert process.returncode == 0 and "random_states_0.pkl is missing; it is kept as damaged-" in process.stderr
    assert (cut / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert find_damage(cut) is None and find_damage(cut / "checkpoint-6") is None


def test_the_bare_loop_works_in_two_processes(run_recipe, smoke, tmp_path):
    launcher = (sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2")
    name, options = "bert-pretrain-accelerate", ("--preset", "smoke", "--output_dir", tmp_path / "two")
    two, one = read_results(run_recipe(name, *options, launcher=launcher)), read_results(smoke(name))
    assert two["machine"]["processes"] == 2
    assert two["steps"] * 2 == one["steps"]  # each batch is twice as large


def test_the_bare_loop_rejects_unsupported_options(capsys):
    with pytest.raises(SystemExit) as ended:
        run_here("bert-pretrain-accelerate", "--preset", "smoke", "--max_minutes", "3")
    assert ended.value.code == 2 and "does not support --max_minutes" in capsys.readouterr().err
