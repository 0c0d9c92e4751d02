"""Feed-forward language model against the paper's formula, and old checkpoints."""

import pytest
import torch
import transformers
from safetensors.torch import save_file
from tiny import CASES, TINY, random_ids
from torch.testing import assert_close

from hf_edu_models import EduFeedForwardConfig, EduFeedForwardForCausalLM


@pytest.mark.parametrize("direct", [True, False])
def test_the_papers_formula(direct):
    model = CASES["feedforward" if direct else "feedforward-indirect"].build()
    ids = random_ids(1, 6)
    logits = model(ids).logits[0]
    vectors, hidden, output = model.model.embed_tokens.weight, model.model.layer.hidden_proj, model.lm_head
    for position in range(2, 6):
        window = vectors[ids[0, position - 2 : position + 1]].flatten()  # x
        features = torch.tanh(hidden.bias + hidden.weight @ window)
        direct_weight, hidden_weight = output.weight.split([30 if direct else 0, 12], dim=1)  # W, U
        expected = output.bias + hidden_weight @ features + (direct_weight @ window if direct else 0)
        assert_close(logits[position], expected)


def test_a_token_before_the_window_has_no_effect():
    model = CASES["feedforward-indirect"].build()
    ids = random_ids(2, 7)
    changed = ids.clone()
    changed[:, 0] = (ids[:, 0] + 1) % 29
    before, after = model(ids).logits, model(changed).logits
    assert not torch.allclose(before[:, :3], after[:, :3])
    assert_close(before[:, 3:], after[:, 3:])


def test_a_window_of_one_token_is_a_bigram_model():
    model = EduFeedForwardForCausalLM(EduFeedForwardConfig(**TINY["feedforward"] | {"window_size": 1})).eval()
    logits = model(torch.tensor([[5, 6, 5, 7, 5]])).logits[0]
    assert_close(logits[[0, 2]], logits[[4, 4]])
    assert model.generate(torch.tensor([[5]]), max_new_tokens=4, eos_token_id=None).shape == (1, 5)


@pytest.mark.parametrize("case", [CASES["feedforward-indirect"], CASES["feedforward"]], ids=["window", "direct"])
def test_checkpoints_from_before_the_base_model_load(case, tmp_path):
    """They have its parameters without the prefix `model.`; from_pretrained and load_state_dict both rename them."""
    model = case.build(seed=1)
    old_keys = {name.removeprefix("model."): parameter for name, parameter in model.state_dict().items()}
    assert "embed_tokens.weight" in old_keys and "layer.hidden_proj.bias" in old_keys
    model.config.save_pretrained(tmp_path)
    save_file(old_keys, tmp_path / "model.safetensors", metadata={"format": "pt"})
    loaded, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    other = case.build(seed=2)
    other.load_state_dict(old_keys, strict=True)
    body = transformers.AutoModel.from_pretrained(tmp_path)
    expected = model(random_ids(2, 6), output_hidden_states=True)
    assert torch.equal(body(random_ids(2, 6)).last_hidden_state, expected.hidden_states[-1])
    for same in (loaded, other):
        assert torch.equal(same(random_ids(2, 6)).logits, expected.logits)


def test_the_classifier_averages_and_reads_no_order():
    model, ids = CASES["feedforward-ForSequenceClassification"].build(), random_ids(2, 7)
    hidden = model.model.embed_tokens.weight[ids].mean(1)
    for layer in model.layers:
        hidden = torch.tanh(hidden @ layer.proj.weight.T + layer.proj.bias)
    assert_close(model(ids).logits, hidden @ model.score.weight.T + model.score.bias)
    assert_close(model(ids.flip(1)).logits, model(ids).logits)


def test_word_dropout_leaves_whole_words_out_of_the_mean():
    model = CASES["feedforward-ForSequenceClassification"].build(word_dropout=0.5, classifier_layers=1).train()
    ids = random_ids(1, 2)
    embeddings = model.model.embed_tokens(ids)[0]
    means = [embeddings[0], embeddings[1], embeddings.mean(0), torch.zeros(10)]
    allowed = torch.stack([model.score(model.layers[0](mean)) for mean in means])
    found = torch.cat([model(ids).logits for _ in range(40)])
    distances = (found[:, None] - allowed).abs().amax(-1)  # each is one of the four
    assert (distances.min(1).values < 1e-5).all() and len(set(distances.argmin(1).tolist())) == 4


def test_a_classifier_starts_from_the_embeddings_of_a_language_model(tmp_path):
    language_model = CASES["feedforward"].build()
    language_model.save_pretrained(tmp_path)
    classifier, report = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not report["unexpected_keys"]
    assert torch.equal(classifier.model.embed_tokens.weight, language_model.model.embed_tokens.weight)
