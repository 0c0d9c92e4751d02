"""One loader: the disk before the Hub, near matches, one sentence."""

import re
import time

import pytest
import torch
import transformers

from hf_edu_models import EduBertConfig, EduBertForMaskedLM, EduGPTConfig, EduGPTForCausalLM
from hf_edu_models.checkpoints import (
    check_exists,
    length_limit,
    load_config,
    load_model,
    load_tokenizer,
    load_with_head,
    position_limit,
    read_checkpoint,
)
from hf_edu_models.data import train_tokenizer

SIZES = {
    "hidden_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 3,
    "intermediate_size": 16,
    "max_position_embeddings": 20,
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A language model and a masked one, each with its tokenizer."""
    folder = tmp_path_factory.mktemp("runs")
    for name, rung, config, head in (
        ("gpt-texts", "gpt", EduGPTConfig, EduGPTForCausalLM),
        ("bert-texts", "bert", EduBertConfig, EduBertForMaskedLM),
    ):
        tokenizer = train_tokenizer(["a cat", "a dog"] * 3, "char", rung=rung, cache_dir=folder / "cache")
        ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
        head(config(vocab_size=len(tokenizer), **SIZES, **ids)).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


def test_a_generating_head_is_loaded_and_a_reading_one_left_out(runs):
    model, tokenizer = load_model(str(runs / "gpt-texts"))
    assert type(model).__name__ == "EduGPTForCausalLM" and not model.training
    assert length_limit(model.config, tokenizer) == position_limit(model.config) == 20
    assert type(load_model(str(runs / "bert-texts"))[0]).__name__ == "EduBertModel"
    masked, _ = load_with_head(str(runs / "bert-texts"))
    again = transformers.AutoModelForMaskedLM.from_pretrained(runs / "bert-texts")
    assert type(masked) is type(again)
    for mine, theirs in zip(masked.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(
    "load", [load_config, load_tokenizer, load_model, load_with_head, check_exists, read_checkpoint]
)
def test_a_mistyped_folder_is_answered_from_the_disk_with_near_matches(load, runs, monkeypatch):
    """Online, asking a Hub that does not answer would take many seconds of retries."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.chdir(runs.parent)
    start = time.process_time()
    with pytest.raises(FileNotFoundError, match=r"gpt-text.*Did you mean .*gpt-texts") as error:
        load(f"{runs.name}/gpt-text")
    assert "\n" not in str(error.value) and time.process_time() - start < 2


def test_a_folder_without_a_model_is_named(runs, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no config\.json; give the folder of a finished run"):
        load_config(str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"no config\.json.*Did you mean .*-texts"):
        load_model(str(runs))


def test_a_hub_id_that_cannot_be_reached_is_one_sentence(monkeypatch):
    expected = r"nobody/nothing does not exist, and no Hub that can be reached has it; give a run"
    with pytest.raises(FileNotFoundError, match=expected):
        load_model("nobody/nothing")
    questions = []

    def nobody_answers(self, name, timeout):
        questions.append(name)
        raise ConnectionError("no route to host")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", nobody_answers)
    with pytest.raises(FileNotFoundError, match=expected):
        load_model("nobody/nothing")
    assert questions == ["nobody/nothing"]


def test_limits():
    assert position_limit({"max_position_embeddings": 9}) == 9
    assert position_limit({"max_position_embeddings": 9, "position_embedding_type": "sinusoidal"}) is None
    assert position_limit(transformers.GPT2Config(n_positions=7)) == 7


def test_near_matches_are_printed_before_the_hub_is_asked(runs, monkeypatch, capsys):
    """`run/gpt-texts` may be a Hub id: the answer comes at once, and the Hub is asked once, afterwards."""
    printed = []

    def nobody_answers(self, name, timeout):
        printed.append(capsys.readouterr().err)
        raise ConnectionError("no route to host")

    monkeypatch.chdir(runs)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", nobody_answers)
    with pytest.raises(FileNotFoundError, match="Did you mean gpt-texts"):
        load_model("gpt-text")
    assert len(printed) == 1 and re.search(r"Did you mean gpt-texts.*Asking the Hub", printed[0])
