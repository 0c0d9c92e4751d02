"""The Transformer against torch's own attention and layers."""

import math

import pytest
import torch
import torch.nn.functional as F
import transformers
from tiny import (
    ALL,
    CASES,
    LENGTH,
    SOURCE,
    TINY,
    TRANSLATORS,
    by_name,
    inputs_for,
    padded_inputs_for,
    random_ids,
    targets_for,
)
from torch import nn
from torch.testing import assert_close
from transformers.cache_utils import DynamicLayer

from hf_edu_models import EduTransformerConfig, EduTransformerForConditionalGeneration
from hf_edu_models.models.blocks_bfloat16_attention import attend, prefers_products
from hf_edu_models.models.blocks_cache import SharedSourceLayer
from hf_edu_models.models.blocks_positions import SinusoidalPositions
from hf_edu_models.models.blocks_transformer import MultiHeadAttention, eager_attention
from hf_edu_models.models.blocks_transformer_stack import head_diversity
from hf_edu_models.models.blocks_unpadding import Unpadding, find_unpadding

TRANSFORMERS = [case for case in TRANSLATORS if case.name.startswith("transformer")]
PAPER = CASES["transformer"]


def test_eager_attention_is_torchs():
    query, key, value = torch.randn(2, 3, 7, 4), torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5, 4)
    visible = torch.rand(2, 1, 7, 5) > 0.3
    visible[..., 0] = True
    mask = torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float32).min)
    module = nn.Module()
    for attention_mask, reference in ((None, None), (mask, visible)):
        heads, weights = eager_attention(module, query, key, value, attention_mask, scaling=4**-0.5)
        expected = F.scaled_dot_product_attention(query, key, value, attn_mask=reference)
        assert_close(heads, expected.transpose(1, 2))
        assert_close(weights.sum(-1), torch.ones(2, 3, 7))


HAS_ONEDNN = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


@HAS_ONEDNN
@pytest.mark.parametrize("mask", ["none", "causal", "boolean", "added"])
def test_bfloat16_attention_is_as_near_to_float32_as_torchs(mask, monkeypatch):
    """In outputs and gradients, by matrix products; they are what a CPU with kernels for bfloat16 runs."""
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    states = torch.randn(2, 3, 7, 4), torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5, 4)
    visible = torch.rand(2, 1, 7, 5) > 0.3
    visible[..., 0] = True
    hidden = torch.zeros(2, 1, 7, 5).masked_fill(~visible, torch.finfo(torch.float32).min)
    masks = {"boolean": visible, "added": hidden}

    def run(dtype, by_products):
        query, key, value = (state.to(dtype, copy=True).requires_grad_() for state in states)
        given = masks.get(mask)
        given = given.to(dtype) if mask == "added" else given
        if by_products:
            assert prefers_products(query, key)
            found = attend(query, key, value, given, 0.5, 0.0, is_causal=mask == "causal")
        else:
            options = {"attn_mask": given, "is_causal": mask == "causal", "scale": 0.5}
            found = F.scaled_dot_product_attention(query, key, value, **options)
        grads = torch.autograd.grad(found.float().square().sum(), (query, key, value))
        return [each.float() for each in (found, *grads)]

    exact, ours, torchs = run(torch.float32, False), run(torch.bfloat16, True), run(torch.bfloat16, False)
    for right, mine, theirs in zip(exact, ours, torchs, strict=True):
        assert (mine - right).norm() <= 2 * (theirs - right).norm() + 0.002 * right.norm()


@HAS_ONEDNN
def test_which_attention_is_by_products(monkeypatch):
    """Not in float32, and not for long texts, whose weights would fill the memory; dropout drops weights."""
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    short, long = torch.ones(1, 2, 64, 4, dtype=torch.bfloat16), torch.ones(1, 2, 1, 4, dtype=torch.bfloat16)
    assert prefers_products(short, short) and not prefers_products(short.float(), short.float())
    long = long.expand(1, 2, 4096, 4)
    assert not prefers_products(long, long) and prefers_products(short, long)
    heads = attend(short, short, short, None, 0.5, 0.5)
    assert len(heads.unique()) > 20 and abs(heads.mean() - 1) < 0.1


@pytest.mark.parametrize("form", ["eager", "sdpa"])
@pytest.mark.parametrize("is_cross", [False, True])
def test_multi_head_attention_is_torchs(form, is_cross):
    config = EduTransformerConfig(**TINY["transformer"], attention_bias=True)
    ours = MultiHeadAttention(config, 0, is_cross=is_cross).eval()
    reference = nn.MultiheadAttention(12, 3, batch_first=True).eval()
    for parameter in reference.parameters():
        nn.init.normal_(parameter)
    weight, bias = reference.in_proj_weight, reference.in_proj_bias
    states, source = torch.randn(2, 7, 12), torch.randn(2, 5, 12)
    with torch.no_grad():
        ours.output.weight.copy_(reference.out_proj.weight)
        ours.output.bias.copy_(reference.out_proj.bias)
        if is_cross:
            for layer, rows in ((ours.q_proj, slice(0, 12)), (ours.kv_proj, slice(12, 36))):
                layer.weight.copy_(weight[rows])
                layer.bias.copy_(bias[rows])
            keys_and_values = ours.keys_and_values(source)
            found, weights = ours.cross_attend(states, *keys_and_values, None, form)
            expected, expected_weights = reference(states, source, source, average_attn_weights=False)
        else:
            ours.qkv_proj.weight.copy_(weight)
            ours.qkv_proj.bias.copy_(bias)
            found, weights = ours(states, None, form)
            expected, expected_weights = reference(states, states, states, average_attn_weights=False)
    assert_close(found, expected)
    if form == "eager":
        assert_close(weights, expected_weights)


def copy_layer(ours, theirs):
    """Copy our layer's weights into torch's."""
    theirs.self_attn.in_proj_weight.copy_(ours.self_attention.qkv_proj.weight)
    theirs.self_attn.in_proj_bias.copy_(ours.self_attention.qkv_proj.bias)
    pairs = [
        (ours.self_attention.output, theirs.self_attn.out_proj),
        (ours.feed_forward.inner_proj, theirs.linear1),
        (ours.feed_forward.outer_proj, theirs.linear2),
        (ours.self_residual.norm, theirs.norm1),
    ]
    if hasattr(ours, "cross_attention"):
        cross = ours.cross_attention
        theirs.multihead_attn.in_proj_weight.copy_(torch.cat([cross.q_proj.weight, cross.kv_proj.weight]))
        theirs.multihead_attn.in_proj_bias.copy_(torch.cat([cross.q_proj.bias, cross.kv_proj.bias]))
        pairs += [(cross.output, theirs.multihead_attn.out_proj), (ours.cross_residual.norm, theirs.norm2)]
        pairs += [(ours.feed_residual.norm, theirs.norm3)]
    else:
        pairs += [(ours.feed_residual.norm, theirs.norm2)]
    for mine, other in pairs:
        other.load_state_dict(mine.state_dict())


@torch.no_grad()
@pytest.mark.parametrize("norm_first", [False, True])
def test_the_whole_stack_is_torchs(norm_first):
    model = PAPER.build(attention_bias=True, norm_first=norm_first)
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -0.6, 0.6)
    options = {"batch_first": True, "dropout": 0.0, "norm_first": norm_first}
    reference = nn.Transformer(12, 3, 2, 2, 20, **options).eval()
    body = model.model
    for mine, theirs in ((body.encoder, reference.encoder), (body.decoder, reference.decoder)):
        for layer, other in zip(mine.layers, theirs.layers, strict=True):
            copy_layer(layer, other)
        if norm_first:
            theirs.norm.load_state_dict(mine.final_norm.state_dict())
        else:
            theirs.norm = None
    source, target = random_ids(2, SOURCE), random_ids(2, LENGTH, seed=2)
    positions = SinusoidalPositions(12, "interleaved")
    vectors = [
        body.encoder.embed_tokens(ids) * math.sqrt(12) + positions(torch.arange(ids.shape[1]))
        for ids in (source, target)
    ]
    states = reference(*vectors, tgt_mask=nn.Transformer.generate_square_subsequent_mask(LENGTH), tgt_is_causal=True)
    assert_close(model(input_ids=source, decoder_input_ids=target).logits, model.lm_head(states))


def test_sinusoids_are_the_papers():
    table = SinusoidalPositions(8, "interleaved")(torch.arange(600))
    for position in (0, 1, 17, 599):
        for pair in range(4):
            angle = position / 10_000 ** (2 * pair / 8)
            assert_close(table[position, 2 * pair].item(), math.sin(angle), atol=1e-6, rtol=0)
            assert_close(table[position, 2 * pair + 1].item(), math.cos(angle), atol=1e-6, rtol=0)
    halves = SinusoidalPositions(8, "halves")(torch.arange(600))
    assert torch.equal(halves, torch.cat([table[:, 0::2], table[:, 1::2]], dim=1))


def test_sinusoids_have_no_last_position():
    model = PAPER.build(max_position_embeddings=4)
    assert model(input_ids=random_ids(1, 50), decoder_input_ids=random_ids(1, 60)).logits.shape == (1, 60, 29)


def test_embeddings_are_shared_and_tied(tmp_path):
    model = PAPER.build()
    model.save_pretrained(tmp_path)
    for same in (model, type(model).from_pretrained(tmp_path)):
        assert same.lm_head.weight is same.model.encoder.embed_tokens.weight
        assert same.model.decoder.embed_tokens is None
    apart = CASES["transformer-pre-norm"].build()
    assert apart.lm_head.weight is apart.model.decoder.embed_tokens.weight
    assert apart.lm_head.weight is not apart.model.encoder.embed_tokens.weight
    loose = CASES["transformer-concat"].build()
    assert loose.lm_head.weight is not loose.model.encoder.embed_tokens.weight


def test_embeddings_are_scaled():
    scaled, plain = PAPER.build(), PAPER.build(scale_embeddings=False)
    plain.model.encoder.embed_tokens.weight.data *= math.sqrt(12)
    source = random_ids(2, SOURCE)
    assert_close(scaled.model.encoder(source)[0], plain.model.encoder(source)[0])


@torch.no_grad()
def test_head_aggregations():
    heads = torch.randn(2, 7, 3, 4)
    for name in ("project", "concat", "mean"):
        attention = MultiHeadAttention(EduTransformerConfig(**TINY["transformer"], head_aggregation=name), 0)
        layer, found = attention.output, attention.output(attention.aggregate(heads))
        assert found.shape == (2, 7, 12)
        if name == "project":
            assert_close(found, heads.reshape(2, 7, 12) @ layer.weight.T)
        elif name == "concat":
            assert_close(found, heads.reshape(2, 7, 12))
        else:
            assert_close(found, (heads[:, :, 0] + heads[:, :, 1] + heads[:, :, 2]) / 3 @ layer.weight.T)


def test_the_diversity_penalty_by_hand():
    """Two heads. Both on the first token: A A^T - I has two ones. One on each token: it is zero."""
    same = torch.tensor([[[[1.0, 0.0]], [[1.0, 0.0]]]])  # (batch, heads, positions, words)
    apart = torch.tensor([[[[1.0, 0.0]], [[0.0, 1.0]]]])
    assert_close(head_diversity((same,), None), torch.tensor([2.0]))
    assert_close(head_diversity((apart,), None), torch.tensor([0.0]))
    assert_close(head_diversity((same, apart), None), torch.tensor([1.0]))
    both = torch.cat([same, apart], dim=2)
    assert_close(head_diversity((both,), torch.tensor([[False, True]])), torch.tensor([0.0]))


DIVERSE = [case for case in ALL if case.settings.get("head_diversity_weight")]


@pytest.mark.parametrize("case", **by_name(DIVERSE))
def test_the_diversity_penalty_is_in_training_only(case):
    """It also makes heads attend apart: training on it alone lowers it."""
    inputs = inputs_for(case) | targets_for(case)
    plain, penalised = case.build(head_diversity_weight=0.0), case.build()
    assert_close(plain(**inputs).loss, penalised(**inputs).loss)
    assert penalised.train()(**inputs).loss > plain.train()(**inputs).loss
    optimizer = torch.optim.Adam(penalised.parameters(), 0.01)
    penalties = []
    for _ in range(30):
        optimizer.zero_grad()
        penalty = penalised.attention_penalties(penalised(**inputs), None, inputs["labels"]).mean()
        penalty.backward()
        optimizer.step()
        penalties.append(penalty.item())
    assert penalties[-1] < 0.9 * penalties[0]


@pytest.mark.parametrize("case", **by_name(DIVERSE))
def test_padding_changes_no_diversity_penalty(case):
    """Two rows of different lengths in one batch have the penalties that they have alone."""
    model = case.build().train()
    inputs, labels = padded_inputs_for(case, 2, 7, 6), targets_for(case)["labels"]
    if labels.ndim == 2:
        labels = labels[:, : inputs[case.key].shape[-1]].clone()
        labels[-1, -1] = -100
    whole = model.attention_penalties(model(**inputs, labels=labels), inputs["attention_mask"], labels)
    short = {name: value[-1:, ..., :-1] for name, value in inputs.items()}
    last = labels[-1:, :-1] if labels.ndim == 2 else labels[-1:]
    alone = model.attention_penalties(model(**short, labels=last), short["attention_mask"], last)
    assert_close(whole[-len(alone) :], alone)


def test_unpad_and_pad():
    states = torch.randn(2, 4, 3)
    unpadding = Unpadding(torch.tensor([1, 2, 5]), 2, 4)
    unpadded = unpadding.unpad(states)
    assert_close(unpadded, torch.stack([states[0, 1], states[0, 2], states[1, 1]]))
    padded = unpadding.pad(unpadded)
    assert_close(padded[0, 1:3], states[0, 1:3])
    assert not padded[0, 0].any() and not padded[1, 2:].any()
    assert Unpadding().unpad(states) is states and Unpadding().pad(states) is states


def test_layers_compute_no_padding():
    """Layers get only real tokens: of the source by its mask, of the target by its labels."""
    model, seen = PAPER.build().train(), []
    for layer in (model.model.encoder.layers[0], model.model.decoder.layers[0]):
        layer.feed_forward.register_forward_pre_hook(lambda module, inputs: seen.append(tuple(inputs[0].shape)))
    source, labels = random_ids(2, SOURCE), random_ids(2, LENGTH, seed=2)
    mask = torch.tensor([[1] * SOURCE, [1, 1, 0, 0, 0]])
    labels[1, 3:] = -100
    model(input_ids=source, attention_mask=mask, labels=labels).loss.backward()
    assert seen == [(SOURCE + 2, 12), (LENGTH + 3, 12)]
    seen.clear()
    model(input_ids=source, labels=random_ids(2, LENGTH))
    assert seen == [(2, SOURCE, 12), (2, LENGTH, 12)]


def test_attention_row_by_row_is_padded_attention(monkeypatch):
    """Without gradients on a CPU; with padding on the right, on the left and in the middle."""
    encoder, source = PAPER.build(form="sdpa").model.encoder, random_ids(4, SOURCE)
    mask = torch.tensor([[1] * SOURCE, [1, 1, 0, 0, 0], [0, 0, 1, 1, 1], [1, 0, 1, 0, 0]])
    padded = encoder(input_ids=source, attention_mask=mask).last_hidden_state
    monkeypatch.delattr(MultiHeadAttention, "attend_heads")  # what attends to a padded batch
    with torch.no_grad():
        assert find_unpadding(mask, SOURCE, by_row=True).lengths == (5, 2, 3, 2)
        by_row = encoder(input_ids=source, attention_mask=mask).last_hidden_state
    assert_close(by_row[mask.bool()], padded[mask.bool()])


def test_initialisation():
    model = EduTransformerForConditionalGeneration(EduTransformerConfig(**TINY["transformer"] | {"hidden_size": 60}))
    assert_close(model.lm_head.weight.std().item(), 60**-0.5, rtol=0.1, atol=0)
    inner = model.model.encoder.layers[0].feed_forward.inner_proj.weight
    bound = math.sqrt(6 / (60 + 20))
    assert 0.95 * bound < inner.abs().max() <= bound


@pytest.mark.parametrize("case", **by_name(TRANSFORMERS))
@pytest.mark.parametrize("beams", [1, 3])
def test_beams_share_their_source(case, beams):
    """The source is projected once and not repeated, and every beam attends over its own."""
    model, seen = case.build(), []
    attention = model.model.decoder.layers[0].cross_attention
    attention.kv_proj.register_forward_hook(lambda module, inputs, outputs: seen.append(outputs.numel()))
    source = random_ids(3, SOURCE)
    mask = torch.tensor([[1] * SOURCE, [1, 1, 1, 0, 0], [0, 1, 1, 1, 1]])
    options = {"max_new_tokens": 5, "eos_token_id": None, "output_attentions": True, "return_dict_in_generate": True}
    outputs = model.generate(source, attention_mask=mask, num_beams=beams, **options)
    assert len(seen) == 1 and seen[0] <= 3 * SOURCE * 24
    inputs = {"input_ids": source, "attention_mask": mask, "decoder_input_ids": outputs.sequences[:, :-1]}
    expected = model(**inputs, output_attentions=True).cross_attentions
    for layer, expected_weights in enumerate(expected):
        weights = torch.cat([step[layer] for step in outputs.cross_attentions], dim=2)
        if beams > 1:
            rows = outputs.beam_indices[:, :5]
            weights = torch.stack([weights[rows[:, step], :, step] for step in range(5)], dim=2)
        assert_close(weights, expected_weights)


BAHDANAU = CASES["bahdanau"]


@pytest.mark.parametrize("case", [PAPER, BAHDANAU], ids=["transformer", "bahdanau"])
def test_encoder_outputs_as_input(case):
    model = case.build()
    source, target = random_ids(2, SOURCE), random_ids(2, LENGTH, seed=2)
    logits = model(input_ids=source, decoder_input_ids=target).logits
    encoded = model.get_encoder()(source)
    for encoder_outputs in (encoded, encoded.to_tuple()):
        assert_close(model(encoder_outputs=encoder_outputs, decoder_input_ids=target).logits, logits)
    model.generate(encoder_outputs=encoded, max_new_tokens=3)
    # What `generate` keeps for its steps is not left in the caller's outputs, where training would find it.
    model(encoder_outputs=encoded, labels=target).loss.backward()
    assert all(parameter.grad is not None for parameter in model.model.decoder.parameters())


def test_generate_with_encoder_outputs():
    model = PAPER.build()
    source = random_ids(2, SOURCE)
    expected = model.generate(source, num_beams=3, max_new_tokens=6)
    encoded = model.get_encoder()(source)
    assert torch.equal(model.generate(encoder_outputs=encoded, num_beams=3, max_new_tokens=6), expected)
    other = transformers.modeling_outputs.BaseModelOutput(last_hidden_state=encoded.last_hidden_state)
    assert torch.equal(model.generate(encoder_outputs=other, num_beams=3, max_new_tokens=6), expected)


def marian():
    """transformers' own encoder-decoder."""
    sizes = {"d_model": 12, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20, "max_position_embeddings": 40}
    sizes |= {f"{side}_{part}": number for side in ("encoder", "decoder") for part, number in LAYERS_AND_HEADS.items()}
    ids = {"pad_token_id": 0, "decoder_start_token_id": 1, "bos_token_id": 1, "eos_token_id": 2}
    ids["forced_eos_token_id"] = None
    return transformers.MarianMTModel(transformers.MarianConfig(vocab_size=29, **sizes, **ids)).eval()


LAYERS_AND_HEADS = {"layers": 2, "attention_heads": 3}


@pytest.mark.parametrize("build", [PAPER.build, marian], ids=["edu_transformer", "marian"])
@pytest.mark.parametrize(
    "options",
    [{}, {"num_beams": 3}, {"do_sample": True, "num_return_sequences": 3}, {"cache_implementation": "static"}],
    ids=["greedy", "beam", "sample", "static"],
)
def test_generate_fills_the_cross_attention_cache(build, options):
    """With the keys and values of the source, a row for each beam, as every encoder-decoder does."""
    torch.manual_seed(0)
    model, source = build(), random_ids(2, SOURCE)
    options = options | {"max_new_tokens": 6, "return_dict_in_generate": True}
    cache = model.generate(source, **options).past_key_values.cross_attention_cache
    start = torch.full((2, 1), model.config.decoder_start_token_id)
    expected = model(source, decoder_input_ids=start, use_cache=True).past_key_values.cross_attention_cache
    rows = 2 * max(options.get("num_beams", 1), options.get("num_return_sequences", 1))
    assert len(cache) == len(expected) == 2
    assert cache.get_seq_length() == SOURCE
    for found, wanted in zip(cache.layers, expected.layers, strict=True):
        assert found.keys.shape == (rows, 3, SOURCE, 4)
        assert_close(found.keys, wanted.keys.repeat_interleave(rows // 2, dim=0))
        assert_close(found.values, wanted.values.repeat_interleave(rows // 2, dim=0))


def test_a_shared_source_is_a_cache_layer():
    """Whatever is done to it, it reads as a layer that holds a row for each beam."""
    keys, values = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5, 4)
    changes = {
        "reorder_cache": torch.tensor([2, 0, 1, 3, 3, 5]),
        "reorder_cache ": torch.tensor([3, 4, 5, 0, 1, 5]),
        "batch_select_indices": torch.tensor([0, 4]),
        "batch_repeat_interleave": 2,
        "crop": -2,
    }
    for name, argument in changes.items():
        shared, plain = SharedSourceLayer(keys, values, 3), DynamicLayer()
        plain.update(keys.repeat_interleave(3, dim=0), values.repeat_interleave(3, dim=0))
        for layer in (shared, plain):
            getattr(layer, name.strip())(argument)
        assert shared.get_seq_length() == plain.get_seq_length()
        assert_close((shared.keys, shared.values), (plain.keys, plain.values))
