"""TINY["gpt"]: pre-norm and post-norm, initialisation, and the last real token."""

import torch
from tiny import CASES, LENGTH, TINY, random_ids
from torch.testing import assert_close

from hf_edu_models import EduGPTConfig, EduGPTForCausalLM, EduGPTForSequenceClassification


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


def test_the_auxiliary_loss_by_hand():
    """L_3 = L_2 + lambda L_1 in training: L_1 is the mean over texts of what a language model has for each."""
    case = CASES["gpt-ForSequenceClassification-auxiliary"]
    model = case.build().train()
    assert model.lm_head.weight is model.model.embed_tokens.weight
    ids, labels = random_ids(2, LENGTH), torch.tensor([2, 0])
    mask = torch.tensor([[1] * LENGTH, [1] * (LENGTH - 2) + [0, 0]])
    language_model = CASES["gpt"].build().train()
    language_model.load_state_dict(model.state_dict(), strict=False)
    texts = [ids[:1], ids[1:, :-2]]
    text_losses = torch.stack([language_model(text, labels=text).loss for text in texts])
    outputs = model(ids, mask, labels=labels)
    expected = torch.nn.functional.cross_entropy(outputs.logits, labels) + 0.5 * text_losses.mean()
    assert_close(outputs.loss, expected)
    assert_close(model.eval()(ids, mask, labels=labels).loss, torch.nn.functional.cross_entropy(outputs.logits, labels))


def test_a_language_model_becomes_a_classifier_with_the_auxiliary_loss(tmp_path):
    CASES["gpt"].build().save_pretrained(tmp_path)
    model, report = EduGPTForSequenceClassification.from_pretrained(
        tmp_path, lm_loss_weight=0.5, num_labels=3, output_loading_info=True
    )
    assert set(report["missing_keys"]) == {"score.weight"}
    assert model.lm_head.weight is model.model.embed_tokens.weight
