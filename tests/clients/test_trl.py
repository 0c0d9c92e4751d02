"""TRL's trainers run on our models as on GPT-2."""

import pytest
from datasets import Dataset
from tiny import CASES

from hf_edu_models.data import train_tokenizer

trl = pytest.importorskip("trl")
REWARDED = ["gpt-ForSequenceClassification", "recurrent-ForSequenceClassification", "bert-ForSequenceClassification"]


@pytest.mark.parametrize("name", REWARDED)
def test_reward_model_learns_a_preference(name, tmp_path):
    case = CASES[name]
    good, bad = "good good good", "bad bad bad"
    tokenizer = train_tokenizer([good, bad], "word", 29, rung=case.rung.name)
    tokenizer.eos_token = tokenizer.eos_token or tokenizer.sep_token
    model = case.build(num_labels=1)
    model.config.pad_token_id = tokenizer.pad_token_id
    rows = Dataset.from_list([{"chosen": good, "rejected": bad}] * 8)
    settings = {"max_steps": 8, "learning_rate": 0.01, "use_cpu": True, "bf16": False, "report_to": []}
    arguments = trl.RewardConfig(str(tmp_path), **settings, logging_steps=1, gradient_checkpointing=False)
    trainer = trl.RewardTrainer(model, arguments, train_dataset=rows, processing_class=tokenizer)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0]
