"""`--features` and `--freeze_body`: what they train, and what they reject."""

import pytest
import torch
from transformers import AutoModelForPreTraining, AutoModelForTokenClassification

from hf_edu_models import EduElmoConfig, EduElmoForPreTraining
from hf_edu_models.data import train_tokenizer
from hf_edu_models.training import RecipeArguments, model_for
from hf_edu_models.training.arguments import FeatureArguments
from hf_edu_models.training.features import spelling_table


@pytest.fixture
def run(tmp_path):
    config = EduElmoConfig(vocab_size=29, hidden_size=6, cell_size=8, dropout=0.5)
    EduElmoForPreTraining(config).save_pretrained(tmp_path / "run")
    return config, RecipeArguments(dataset="x", init_from=str(tmp_path / "run"), freeze_body=True)


def test_a_frozen_body_trains_the_head_alone(run):
    config, args = run
    model = model_for(AutoModelForTokenClassification, config, args).train()
    learnt = {name.partition(".")[0] for name, weight in model.named_parameters() if weight.requires_grad}
    assert learnt == {"layer_mix", "classifier"}
    ids = torch.randint(4, 29, (2, 7))
    assert torch.equal(model.model(ids)[0], model.model(ids)[0]), "no dropout in the frozen body"
    assert model.dropout.p == 0.5


def test_a_frozen_body_with_nothing_above(run, tmp_path):
    config, args = run
    config.tie_word_embeddings = True
    EduElmoForPreTraining(config).save_pretrained(tmp_path / "tied")
    args.init_from = str(tmp_path / "tied")
    model = model_for(AutoModelForPreTraining, config, args)
    assert [name for name, weight in model.named_parameters() if weight.requires_grad] == ["lm_head.bias"]


@pytest.mark.parametrize(
    "arguments, settings, message",
    [
        (RecipeArguments, {"freeze_body": True}, "--freeze_body needs --init-from"),
        (RecipeArguments, {"freeze_body": True, "init_from": "x", "new_weights": True}, "--freeze_body needs"),
        (FeatureArguments, {"features": "x", "init_from": "y"}, "--features starts a new model"),
    ],
)
def test_options_that_do_not_fit(arguments, settings, message):
    with pytest.raises(ValueError, match=message):
        arguments(dataset="x", **settings)


@pytest.mark.parametrize("kind", ["bpe", "char", "wordpiece"])
def test_a_text_is_spelled_in_another_vocabulary(kind, tmp_path):
    """Token by token or as a whole: characters and bytes write the same; WordPiece continues a word with its marks."""
    text = "undone words undo"
    ours = train_tokenizer(["un words undo"] * 2 + [text], "wordpiece", 34, rung="recurrent", cache_dir=tmp_path)
    theirs = train_tokenizer([f" {text}"] * 3, kind, 300 if kind == "bpe" else 60, rung="gpt", cache_dir=tmp_path)
    table = spelling_table(ours, theirs)
    assert table.shape[0] == len(ours) and (table[ours.pad_token_id] == -1).all()
    ids = table[ours(text, add_special_tokens=False)["input_ids"]].flatten()
    spelled = theirs.decode(ids[ids >= 0])
    assert spelled.strip() == text and theirs.unk_token_id not in ids
