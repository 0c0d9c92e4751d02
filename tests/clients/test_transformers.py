"""transformers' own Trainer and tables treat our models as they treat its own."""

import json
import subprocess
import sys

import pytest
import torch
from tiny import EVERY, GENERATORS, LANGUAGE_MODELS, by_name, inputs_for
from transformers import Trainer, TrainingArguments, pipeline
from transformers.models.auto import modeling_auto

from hf_edu_models import LADDER
from hf_edu_models.data import train_tokenizer
from hf_edu_models.training import EduTrainer


def losses_of_trainer(model, rows, folder, trainer=Trainer, accumulation=1) -> list[float]:
    """The first training loss without label smoothing, and with so little that it must be the same."""
    losses = []
    for smoothing in (0.0, 1e-9):
        arguments = TrainingArguments(
            folder,
            label_smoothing_factor=smoothing,
            learning_rate=0.0,
            max_steps=1,
            per_device_train_batch_size=len(rows) // accumulation,
            gradient_accumulation_steps=accumulation,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        losses.append(trainer(model, arguments, train_dataset=rows).train().training_loss)
    return losses


def rows_for(case) -> list[dict]:
    ids = inputs_for(case)["input_ids"]
    return [{"input_ids": row, "labels": row} for row in ids]


@pytest.mark.parametrize("case", **by_name(LANGUAGE_MODELS))
def test_label_smoothing_shifts_the_labels(case, tmp_path):
    # Trainer smooths the logits' loss, which has no penalty of heads or states.
    without_penalty = {"head_diversity_weight": 0.0} if case.attends else {}
    if case.rung.name == "recurrent":
        without_penalty = {"activation_regularization": 0.0, "temporal_activation_regularization": 0.0}
    plain, smoothed = losses_of_trainer(case.build(**without_penalty), rows_for(case), tmp_path)
    assert smoothed == pytest.approx(plain, abs=1e-5)


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("case", **by_name([case for case in LANGUAGE_MODELS if case.attends]))
def test_label_smoothing_of_our_trainers_keeps_the_penalty_of_heads(case, accumulation, tmp_path):
    rows = [row | {"attention_mask": torch.ones_like(row["labels"])} for row in rows_for(case)]
    rows[0]["attention_mask"][-2:], rows[0]["labels"] = 0, rows[0]["labels"].clone()
    rows[0]["labels"][-2:] = -100
    model = case.build(head_diversity_weight=0.5, dropout=0.0)
    found = losses_of_trainer(model, rows, tmp_path, EduTrainer, accumulation)
    without = losses_of_trainer(case.build(head_diversity_weight=0.0, dropout=0.0), rows, tmp_path, EduTrainer)
    assert found[1] == pytest.approx(found[0], abs=1e-5)
    assert found[0] > without[0] + 0.01


STRANGER = """
import json, sys

class NoPackage:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "hf_edu_models":
            raise ImportError("not here")

sys.meta_path.insert(0, NoPackage())
import torch
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments
from transformers.models.auto import modeling_auto

answers = {}
for folder in json.load(open("folders.json")):
    config = AutoConfig.from_pretrained(folder, trust_remote_code=True)
    names = {}
    for auto in config.auto_map:
        if auto != "AutoConfig":
            names[auto] = getattr(modeling_auto, auto)._model_mapping._model_mapping[config.model_type]
    losses = []
    if "AutoModelForCausalLM" in names:
        model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
        rows = [{"input_ids": torch.arange(3, 9), "labels": torch.arange(3, 9)}]
        for smoothing in (0.0, 1e-9):
            arguments = TrainingArguments(
                "out", label_smoothing_factor=smoothing, learning_rate=0.0, max_steps=1, report_to=[], use_cpu=True
            )
            losses.append(Trainer(model, arguments, train_dataset=rows).train().training_loss)
    answers[config.model_type] = names, losses
json.dump(answers, open("answers.json", "w"))
"""


def test_remote_code_has_its_names_in_the_tables_too(tmp_path):
    """In a process without the package: the tables of class names, and what Trainer does by them."""
    folders = []
    for rung in LADDER:
        case = next(case for case in EVERY if case.head in rung.config.heads.values())
        folders.append(str(tmp_path / rung.name))
        case.build(dropout=0.0).save_pretrained(folders[-1])
    (tmp_path / "folders.json").write_text(json.dumps(folders))
    (tmp_path / "stranger.py").write_text(STRANGER)
    environment = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "PATH": ""}
    command = [sys.executable, "stranger.py"]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    answers = json.loads((tmp_path / "answers.json").read_text())
    for rung in LADDER:
        names, losses = answers[rung.model_type]
        assert names == rung.config.heads
        assert len(losses) == (2 if "AutoModelForCausalLM" in names else 0)
        assert not losses or losses[0] == pytest.approx(losses[1], abs=1e-5)


@pytest.mark.parametrize("rung", LADDER, ids=[rung.name for rung in LADDER])
def test_name_tables_and_mappings_agree(rung):
    for auto, name in rung.config.heads.items():
        mapping = getattr(modeling_auto, auto)._model_mapping
        assert mapping._model_mapping[rung.model_type] == name
        assert list(mapping.keys()).count(rung.config) == 1
        assert [value.__name__ for value in mapping._extra_content.values()].count(name) == 1
        assert len(mapping) == len(mapping.keys())
        assert mapping[rung.config].__name__ == name
    assert modeling_auto.MODEL_MAPPING_NAMES[rung.model_type] == rung.config.heads["AutoModel"]


@pytest.mark.parametrize("case", **by_name([case for case in GENERATORS if case.name == case.rung.name]))
def test_generation_stops_at_a_string(case):
    tokenizer = train_tokenizer(["stop at any of these letters"], "bpe", 300, rung=case.rung.name)
    model, source = case.build(vocab_size=300, eos_token_id=None), inputs_for(case, batch=1)["input_ids"]
    settings = {"max_new_tokens": 9, "suppress_tokens": [*range(5), *range(97, 300)], "pad_token_id": 0}
    free = model.generate(source, **settings)[0].tolist()
    start = 1 if case.task == "translation" else source.shape[1]
    stop = tokenizer.decode(free[start + 2])
    found = model.generate(source, **settings, stop_strings=stop, tokenizer=tokenizer)[0].tolist()
    assert found == free[: start + free[start:].index(free[start + 2]) + 1]


@pytest.mark.parametrize("kind", ["word", "unigram"])
@pytest.mark.parametrize("case", **by_name([case for case in LANGUAGE_MODELS if case.name == case.rung.name]))
def test_the_text_generation_pipeline_keeps_the_space_after_the_prompt(case, kind):
    tokenizer = train_tokenizer(["the cat sat on the mat and the dog ran"], kind, 400, rung=case.rung.name)
    model, prompt = case.build(vocab_size=400, eos_token_id=None), "the cat"
    words = [token_id for token, token_id in tokenizer.get_vocab().items() if token.startswith("▁")]
    settings = {"max_new_tokens": 4, "suppress_tokens": sorted(set(range(400)) - set(words)), "do_sample": False}
    found = pipeline("text-generation", model=model, tokenizer=tokenizer)(prompt, **settings)[0]["generated_text"]
    ids = model.generate(**tokenizer(prompt, return_tensors="pt"), **settings)[0]
    assert found == tokenizer.decode(ids, skip_special_tokens=True).removeprefix(" ")
    assert found.startswith(f"{prompt} ")
