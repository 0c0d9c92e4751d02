"""Rung 6: the two orders, and the last real token."""

import torch
from tiny import ALL, GPT, LENGTH, words
from torch.testing import assert_close

from hf_edu_models import EduGPTConfig, EduGPTForCausalLM

CASES = {case.name: case for case in ALL}


def test_the_classifier_reads_the_last_real_token():
    model = CASES["classify-gpt"].build()
    ids = words(2, LENGTH)
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0
    states = model.model(ids, mask).last_hidden_state
    expected = model.score(torch.stack([states[0, -1], states[1, 3]]))
    assert_close(model(ids, attention_mask=mask).logits, expected)


def test_the_two_orders_differ_and_only_one_normalises_at_the_end():
    old, new = CASES["gpt-2018"].build(), CASES["gpt-2019"].build()
    assert isinstance(old.model.final_norm, torch.nn.Identity)
    assert isinstance(new.model.final_norm, torch.nn.LayerNorm)
    assert not torch.allclose(old(words(2, LENGTH)).logits, new(words(2, LENGTH)).logits)


def test_what_is_added_starts_smaller_with_depth():
    sizes = GPT | {"hidden_size": 60, "num_attention_heads": 3, "intermediate_size": 80, "num_hidden_layers": 8}
    for norm_first, factor in ((True, (2 * 8) ** -0.5), (False, 1.0)):
        layer = EduGPTForCausalLM(EduGPTConfig(**sizes, norm_first=norm_first)).model.layers[3]
        assert_close(layer.feed_forward.inner_proj.weight.std().item(), 0.02, rtol=0.1, atol=0)
        for end in (layer.self_attention.output, layer.feed_forward.outer_proj):
            assert_close(end.weight.std().item(), 0.02 * factor, rtol=0.1, atol=0)
