"""TRL's trainers run on our models as on GPT-2."""

import pytest
import torch
from datasets import Dataset
from tiny import CASES, LANGUAGE_MODELS, by_name, inputs_for
from transformers import AutoModelForCausalLM

from hf_edu_models.data import train_tokenizer

# Older ones look for the class of a model in transformers itself, and for logits that training does not compute.
trl = pytest.importorskip("trl", minversion="1.16")
REWARDED = ["gpt-ForSequenceClassification", "recurrent-ForSequenceClassification", "bert-ForSequenceClassification"]
WRITERS = by_name([case for case in LANGUAGE_MODELS if case.name == case.rung.name])
GOOD, BAD = " good good good", " bad bad bad"
PREFERENCES = Dataset.from_list([{"prompt": "say", "chosen": GOOD, "rejected": BAD}] * 8)


def settings_for(folder, **changes) -> dict:
    settings = {
        "output_dir": str(folder / "run"),
        "max_steps": 8,
        "learning_rate": 0.01,
        "use_cpu": True,
        "bf16": False,
    }
    settings |= {"report_to": [], "logging_steps": 1, "save_strategy": "no", "gradient_checkpointing": False}
    return settings | {"per_device_train_batch_size": 8, "disable_tqdm": True} | changes


def tokenizer_of(case):
    return train_tokenizer([f"say{GOOD}{BAD}"], "word", 29, rung=case.rung.name)


def assert_learns(trainer, name: str = "loss", sign: int = -1) -> None:
    """A logged number falls (or rises) in training."""
    trainer.train()
    values = [entry[name] for entry in trainer.state.log_history if name in entry]
    assert sign * values[-1] > sign * values[0], values


@pytest.mark.parametrize("name", REWARDED)
def test_reward_model_learns_a_preference(name, tmp_path):
    case = CASES[name]
    tokenizer, model = tokenizer_of(case), case.build(num_labels=1)
    tokenizer.eos_token = tokenizer.eos_token or tokenizer.sep_token
    model.config.pad_token_id = tokenizer.pad_token_id
    arguments = trl.RewardConfig(**settings_for(tmp_path))
    rows = PREFERENCES.remove_columns("prompt")
    assert_learns(trl.RewardTrainer(model, arguments, train_dataset=rows, processing_class=tokenizer))


@pytest.mark.parametrize("case", **WRITERS)
def test_supervised_fine_tuning(case, tmp_path):
    arguments = trl.SFTConfig(**settings_for(tmp_path), max_length=8)
    rows = Dataset.from_list([{"prompt": "say", "completion": GOOD}] * 8)
    trainer = trl.SFTTrainer(case.build(), arguments, train_dataset=rows, processing_class=tokenizer_of(case))
    assert_learns(trainer)


@pytest.mark.parametrize("case", **WRITERS)
def test_direct_preference_optimization(case, tmp_path):
    """From a checkpoint, as TRL loads the reference model itself; `disable_dropout` reaches attention weights too."""
    fields = [name for name in case.rung.config.__dataclass_fields__ if name.endswith("dropout")]
    case.build(**dict.fromkeys(fields, 0.5)).save_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    inputs = inputs_for(case)
    assert bool(fields) != torch.equal(model.train()(**inputs).logits, model(**inputs).logits)
    arguments = trl.DPOConfig(**settings_for(tmp_path), max_length=8, disable_dropout=True)
    trainer = trl.DPOTrainer(model, args=arguments, train_dataset=PREFERENCES, processing_class=tokenizer_of(case))
    assert torch.equal(model.train()(**inputs).logits, model(**inputs).logits)
    assert_learns(trainer, "rewards/margins", sign=1)


@pytest.mark.slow
@pytest.mark.parametrize("case", **WRITERS)
def test_group_relative_policy_optimization(case, tmp_path):
    """The reward is the share of one word among the sampled ones."""

    def reward(completions, **_):
        return [float(text.count("good")) for text in completions]

    settings = settings_for(tmp_path, max_steps=20, learning_rate=0.05, per_device_train_batch_size=32)
    arguments = trl.GRPOConfig(**settings, max_completion_length=5, num_generations=32)
    rows, tokenizer = PREFERENCES.select_columns("prompt"), tokenizer_of(case)
    trainer = trl.GRPOTrainer(case.build(), reward, arguments, train_dataset=rows, processing_class=tokenizer)
    assert_learns(trainer, "reward", sign=1)
