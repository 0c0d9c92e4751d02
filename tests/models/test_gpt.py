"""TINY["gpt"]: pre-norm and post-norm, initialisation, and the last real token."""

import torch
from tiny import CASES, LENGTH, TINY, random_ids
from torch.testing import assert_close

from hf_edu_models import EduGPTConfig, EduGPTForCausalLM


def test_the_classifier_reads_the_last_real_token():
    model = CASES["gpt-ForSequenceClassification"].build()
    ids = random_ids(2, LENGTH)
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0
    states = model.model(ids, mask).last_hidden_state
    expected = model.score(torch.stack([states[0, -1], states[1, 3]]))
    assert_close(model(ids, attention_mask=mask).logits, expected)


def test_pre_norm_and_post_norm_differ_and_only_one_has_a_final_norm():
    old, new = CASES["gpt-post-norm"].build(), CASES["gpt"].build()
    assert isinstance(old.model.final_norm, torch.nn.Identity)
    assert isinstance(new.model.final_norm, torch.nn.LayerNorm)
    assert not torch.allclose(old(random_ids(2, LENGTH)).logits, new(random_ids(2, LENGTH)).logits)


def test_output_projections_start_smaller_with_depth():
    sizes = TINY["gpt"] | {"hidden_size": 60, "num_attention_heads": 3, "intermediate_size": 80, "num_hidden_layers": 8}
    for norm_first, factor in ((True, (2 * 8) ** -0.5), (False, 1.0)):
        layer = EduGPTForCausalLM(EduGPTConfig(**sizes, norm_first=norm_first)).model.layers[3]
        assert_close(layer.feed_forward.inner_proj.weight.std().item(), 0.02, rtol=0.1, atol=0)
        for end in (layer.self_attention.output, layer.feed_forward.outer_proj):
            assert_close(end.weight.std().item(), 0.02 * factor, rtol=0.1, atol=0)
