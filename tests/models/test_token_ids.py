"""Configurations and tokenizers agree about the special tokens, or a warning says so."""

import warnings

import pytest
from tiny import CASES, inputs_for

from hf_edu_models import LADDER
from hf_edu_models.checkpoints import load_model
from hf_edu_models.data import train_tokenizer
from hf_edu_models.training import EduTrainer, RunArguments

IDS = ("pad_token_id", "bos_token_id", "eos_token_id")
READERS = [rung for rung in LADDER if rung.tokenizer is not None]
GENERATORS = ("feedforward", "recurrent", "seq2seq", "bahdanau", "transformer", "gpt")


def tokenizer_of(rung):
    return train_tokenizer(["one two three four"], "word", 29, rung=rung.name)


@pytest.mark.parametrize("rung", READERS, ids=[rung.name for rung in READERS])
def test_defaults_are_the_ids_of_our_tokenizers(rung):
    """A model that is given only `vocab_size=len(tokenizer)` stops at the end of a text, too."""
    tokenizer, config = tokenizer_of(rung), rung.config()
    assert {name: getattr(config, name) for name in IDS} == {name: getattr(tokenizer, name) for name in IDS}
    assert getattr(config, "decoder_start_token_id", None) in (None, tokenizer.bos_token_id)


@pytest.mark.parametrize("rung", READERS, ids=[rung.name for rung in READERS])
def test_for_tokenizer_takes_ids_from_any_tokenizer(rung):
    tokenizer = tokenizer_of(rung)
    tokenizer.add_special_tokens({"pad_token": "<new pad>", "bos_token": "<new bos>", "eos_token": "<new eos>"})
    config = rung.config.for_tokenizer(tokenizer, hidden_size=24)
    assert config.vocab_size == len(tokenizer) and config.hidden_size == 24
    assert [getattr(config, name) for name in IDS] == [len(tokenizer) - 3, len(tokenizer) - 2, len(tokenizer) - 1]
    assert getattr(config, "decoder_start_token_id", None) == (
        tokenizer.bos_token_id if config.is_encoder_decoder else None
    )
    assert rung.config.for_tokenizer(tokenizer, eos_token_id=0).eos_token_id == 0  # settings take precedence


WARNING = r"eos_token_id is 2 in the config and 3 in the tokenizer; build the config with Edu.*Config.for_tokenizer"


@pytest.mark.parametrize("name", GENERATORS)
def test_a_mismatch_is_said_before_training_and_generation(name, tmp_path):
    case = CASES[name]
    tokenizer, source = tokenizer_of(case.rung), inputs_for(case)["input_ids"]
    model, arguments = case.build(eos_token_id=2), RunArguments(str(tmp_path / "run"), eval_strategy="no", use_cpu=True)
    with pytest.warns(UserWarning, match=WARNING):
        EduTrainer(model, arguments, processing_class=tokenizer)
    with pytest.warns(UserWarning, match=WARNING):
        model.generate(source, max_new_tokens=2, tokenizer=tokenizer)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    with pytest.warns(UserWarning, match=WARNING):
        load_model(str(tmp_path / "model"))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*_token_id")
        agreeing = case.build()
        EduTrainer(agreeing, arguments, processing_class=tokenizer)
        agreeing.generate(source, max_new_tokens=2, tokenizer=tokenizer)
        case.build(eos_token_id=[2, 3]).generate(source, max_new_tokens=2, tokenizer=tokenizer)
