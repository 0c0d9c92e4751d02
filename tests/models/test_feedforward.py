"""Rung 1 against the paper's formula, written out."""

import pytest
import torch
from tiny import FEEDFORWARD, LANGUAGE_MODELS, words
from torch.testing import assert_close

from hf_edu_models import EduFeedForwardConfig, EduFeedForwardForCausalLM


@pytest.mark.parametrize("direct", [True, False])
def test_the_papers_formula(direct):
    model = LANGUAGE_MODELS[1 if direct else 0].build()
    ids = words(1, 6)
    logits = model(ids).logits[0]
    vectors, hidden, output = model.embed_tokens.weight, model.layer.hidden_proj, model.lm_head
    for position in range(2, 6):
        window = vectors[ids[0, position - 2 : position + 1]].flatten()  # x
        features = torch.tanh(hidden.bias + hidden.weight @ window)
        direct_weight, hidden_weight = output.weight.split([30 if direct else 0, 12], dim=1)  # W, U
        expected = output.bias + hidden_weight @ features + (direct_weight @ window if direct else 0)
        assert_close(logits[position], expected)


def test_a_word_before_the_window_is_forgotten():
    model = LANGUAGE_MODELS[0].build()
    ids = words(2, 7)
    changed = ids.clone()
    changed[:, 0] = (ids[:, 0] + 1) % 29
    before, after = model(ids).logits, model(changed).logits
    assert not torch.allclose(before[:, :3], after[:, :3])
    assert_close(before[:, 3:], after[:, 3:])


def test_a_window_of_one_word_is_a_bigram_model():
    model = EduFeedForwardForCausalLM(EduFeedForwardConfig(**FEEDFORWARD | {"window_size": 1})).eval()
    logits = model(torch.tensor([[5, 6, 5, 7, 5]])).logits[0]
    assert_close(logits[[0, 2]], logits[[4, 4]])
    assert model.generate(torch.tensor([[5]]), max_new_tokens=4, eos_token_id=None).shape == (1, 5)
