"""What a model reads: embeddings as models sum them, merges as tokenizers apply them, masking as in training."""

import csv
from itertools import pairwise

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model
from typer.testing import CliRunner

import hf_edu_models
from hf_edu_models.cli.commands import app
from hf_edu_models.data import train_tokenizer
from hf_edu_models.explain.words.inputs import byte_pair_merges, draw_input, model_input

TEXTS = ["Be alert ! BERT will hurt !", "the alert bert hurts the other berts", "lower lowest newer newest"] * 9
SIZES = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 10}


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    return {
        "bert": train_tokenizer(TEXTS, kind="wordpiece", vocab_size=70, rung="bert", cache_dir=folder),
        "gpt": train_tokenizer(TEXTS, kind="bpe", vocab_size=300, rung="gpt", cache_dir=folder),
    }


def first_sum(model, module, ids, segments):
    """What goes into the first layer norm of a BERT."""
    seen = []
    hook = module.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    with torch.no_grad():
        model(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([segments]))
    hook.remove()
    return seen[0][0].numpy()


def test_the_sum_is_what_ours_and_transformers_bert_normalise(tokenizers):
    tokenizer = tokenizers["bert"]
    ours = hf_edu_models.EduBertModel(hf_edu_models.EduBertConfig.for_tokenizer(tokenizer, **SIZES)).eval()
    theirs = BertModel(BertConfig(vocab_size=len(tokenizer), **SIZES)).eval()
    for model, norm in ((ours, ours.embeddings.norm), (theirs, theirs.embeddings.LayerNorm)):
        found = model_input(tokenizer, "Be alert!", "BERT will hurt!", model)
        assert list(found.embeddings) == ["word", "position", "segment", "sum"]
        expected = first_sum(model, norm, found.ids, found.segments)
        np.testing.assert_allclose(found.embeddings["sum"], expected, rtol=1e-5, atol=1e-6)
        assert set(found.segments) == {0, 1} and len(draw_input(found, "title").axes) == 8


def test_the_sum_is_the_first_hidden_state_of_models_without_a_norm_there(tokenizers):
    tokenizer = tokenizers["gpt"]
    models = [
        GPT2Model(GPT2Config(vocab_size=len(tokenizer), n_embd=12, n_layer=1, n_head=3)),
        hf_edu_models.EduGPTModel(hf_edu_models.EduGPTConfig.for_tokenizer(tokenizer, **SIZES)),
        hf_edu_models.EduTransformerModel(hf_edu_models.EduTransformerConfig.for_tokenizer(tokenizer, **SIZES)),
        hf_edu_models.EduRecurrentModel(hf_edu_models.EduRecurrentConfig.for_tokenizer(tokenizer, hidden_size=12)),
    ]
    for model in models:
        model.eval()
        reader = model.get_encoder() if model.config.is_encoder_decoder else model
        found = model_input(tokenizer, "Be alert!", model=model)
        total = found.embeddings.get("sum", found.embeddings["word"])
        with torch.no_grad():
            first = reader(input_ids=torch.tensor([found.ids]), output_hidden_states=True).hidden_states[0]
        np.testing.assert_allclose(total, first[0].numpy(), rtol=1e-5, atol=1e-6)


def test_merges_end_with_the_tokens_of_the_tokenizer(tokenizers):
    tokenizer = tokenizers["gpt"]
    text = "Be alert! newest berts"
    merged = byte_pair_merges(tokenizer, text)
    ends = [list(steps[-1].symbols) if steps else list(word) for word, steps in merged]
    assert [symbol for symbols in ends for symbol in symbols] == tokenizer.tokenize(text)
    for _, steps in merged:
        for before, after in pairwise(steps):
            assert len(after.symbols) == len(before.symbols) - 1
    assert any(len(steps) > 2 for _, steps in merged)
    assert byte_pair_merges(tokenizers["bert"], text) == []


def test_masking_is_80_10_10_of_the_chosen_and_reproducible(tokenizers):
    tokenizer, text = tokenizers["bert"], " ".join(["alert"] * 2_000)
    found = model_input(tokenizer, text, mlm_probability=0.5)
    again = model_input(tokenizer, text, mlm_probability=0.5)
    assert found.masked == again.masked != model_input(tokenizer, text, mlm_probability=0.5, seed=1).masked
    shown = [each for each in found.masked_tokens(tokenizer) if each]
    share = {name: np.mean([name in each for each in shown]) for name in ("[MASK]", "(random)", "(stays)")}
    assert len(shown) == pytest.approx(0.5 * len(found.ids), rel=0.1)
    # A random token may be the same one again.
    expected = {"[MASK]": 0.8, "(random)": 0.1, "(stays)": 0.1}
    assert share == pytest.approx(expected, abs=0.04)
    assert model_input(tokenizers["gpt"], "Be alert!").masked is None


def run(*arguments):
    return CliRunner().invoke(app, ["explain", "input", *map(str, arguments)])


def test_the_command_reads_runs_and_tokenizers(tokenizers, tmp_path):
    tokenizer = tokenizers["bert"]
    model = hf_edu_models.EduBertForMaskedLM(hf_edu_models.EduBertConfig.for_tokenizer(tokenizer, **SIZES))
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "bert")
    tokenizers["gpt"].save_pretrained(tmp_path / "bpe")
    out = tmp_path / "input.png"
    shown = run(tmp_path / "bert", "Be alert!", "BERT will hurt!", "--out", out)
    assert shown.exit_code == 0, shown.output + str(shown.exception)
    assert "segment" in shown.output and "no merges" in shown.output and "Masking, seed 0" in shown.output
    with open(out.with_suffix(".csv")) as file:
        rows = list(csv.DictReader(file))
    assert [int(row["id"]) for row in rows] == tokenizer("Be alert!", "BERT will hurt!")["input_ids"]
    assert float(rows[0]["word_norm"]) > 0 and out.read_bytes().startswith(b"\x89PNG")
    shown = run(tmp_path / "bpe", "newest berts")
    assert shown.exit_code == 0 and "n e w e s t" in shown.output and "no mask token" in shown.output
    assert "no embeddings to draw" in str(run(tmp_path / "bpe", "newest", "--out", out).exception)
    assert "the text is empty" in str(run(tmp_path / "bert", " ").exception)
    assert "mlm_probability must be above 0" in str(run(tmp_path / "bert", "a", "--mlm-probability", "0").exception)
