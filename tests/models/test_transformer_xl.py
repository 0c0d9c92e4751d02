"""Transformer-XL: a loop over single numbers as its reference, the memory, and what is rejected."""

import math

import pytest
import torch
import torch.nn.functional as F
from huggingface_hub.errors import StrictDataclassClassValidationError
from tiny import CASES, LENGTH, random_ids
from torch.testing import assert_close

from hf_edu_models import EduTransformerXLConfig, EduTransformerXLForCausalLM
from hf_edu_models.models.blocks_relative_attention import shift

XL = CASES["transformer_xl"]
FORMS = pytest.mark.parametrize("form", ["eager", "fused"])


def sinusoid(distance, size):
    return torch.tensor(
        [
            math.sin(distance / 10_000 ** (index / size))
            if index % 2 == 0
            else math.cos(distance / 10_000 ** ((index - 1) / size))
            for index in range(size)
        ]
    )


def attend_by_loops(layer, memory, states):
    """Section 3.3, one score at a time. `memory` and `states` are lists of vectors of one text."""
    heads, size = layer.content_bias.shape[0], layer.head_size
    context, updates = [*memory, *states], []
    for number, state in enumerate(states):
        i, outputs = len(memory) + number, []
        for head in range(heads):
            rows = slice(head * size, (head + 1) * size)
            key_weight, value_weight = layer.kv_proj.weight.chunk(2)
            u, v = layer.content_bias[head, 0], layer.position_bias[head, 0]
            query = layer.q_proj.weight[rows] @ state
            scores = []
            for j in range(i + 1):
                key = key_weight[rows] @ context[j]
                position = layer.position_proj.weight[rows] @ sinusoid(i - j, len(state))
                terms = query.dot(key), query.dot(position), u.dot(key), v.dot(position)
                scores.append(sum(terms) / math.sqrt(size))
            weights = torch.stack(scores).softmax(0)
            outputs.append(sum(weights[j] * (value_weight[rows] @ context[j]) for j in range(i + 1)))
        updates.append(layer.output.weight @ torch.cat(outputs))
    return updates


def read_by_loops(model, segments, memory_length):
    """The logits of one text, segment by segment, with a memory of `memory_length` vectors for each layer."""
    body = model.model
    memories, logits = [[] for _ in body.layers], []
    for segment in segments:
        states = [body.embed_tokens.weight[token] * math.sqrt(model.config.hidden_size) for token in segment]
        for number, layer in enumerate(body.layers):
            updates = attend_by_loops(layer.attention, memories[number], states)
            kept = [*memories[number], *states]
            memories[number] = [state.detach() for state in kept[len(kept) - min(memory_length, len(kept)) :]]
            states = [layer.attention_residual.norm(a + b) for a, b in zip(states, updates, strict=True)]
            inner = [layer.feed_forward.outer_proj(layer.feed_forward.inner_proj(state).relu()) for state in states]
            states = [layer.feed_residual.norm(a + b) for a, b in zip(states, inner, strict=True)]
        logits += [model.lm_head.weight @ state for state in states]
    return torch.stack(logits)


@FORMS
@pytest.mark.parametrize("memory_length", [0, 3, 5, 40])
def test_segments_equal_a_loop_over_single_scores(memory_length, form):
    """Outputs and gradients, with a memory shorter than a segment, longer, and none."""
    model = XL.build(form=form, memory_length=memory_length)
    ids = random_ids(1, 11)
    pieces, cache, logits = ids.split([4, 2, 5], dim=1), None, []
    for piece in pieces:
        outputs = model(piece, past_key_values=cache, use_cache=True)
        cache = outputs.past_key_values
        logits.append(outputs.logits[0])
    expected = read_by_loops(model, [piece[0].tolist() for piece in pieces], memory_length)
    assert_close(torch.cat(logits), expected, rtol=1e-4, atol=1e-5)
    assert cache.state(0)[0].shape[1] == min(memory_length, 11) and cache.get_seq_length() == 11
    gradients = []
    for each in (torch.cat(logits), expected):
        model.zero_grad()
        F.cross_entropy(each[:-1], ids[0, 1:]).backward()
        gradients.append({name: weight.grad.clone() for name, weight in model.named_parameters()})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        assert_close(gradient, gradients[1][name], rtol=1e-3, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


def test_eager_equals_sdpa_with_a_memory_and_padding():
    """Padding in both segments, and rows whose memories differ in length: outputs, gradients and the new memory."""
    first, second = random_ids(3, 6), random_ids(3, LENGTH, seed=4)
    masks = torch.ones_like(first), torch.ones_like(second)
    masks[0][0, :4] = masks[0][2, 5:] = masks[1][1, :2] = masks[1][2, 3:] = 0
    results = []
    for form in ("eager", "fused"):
        model = XL.build(form=form, memory_length=5)
        memory = model(first, masks[0], use_cache=True).past_key_values
        outputs = model(
            second, torch.cat(masks, dim=1), memory, labels=second.masked_fill(masks[1] == 0, -100), use_cache=True
        )
        outputs.loss.backward()
        states = [part for level in range(2) for part in outputs.past_key_values.state(level)]
        gradients = {name: weight.grad for name, weight in model.named_parameters()}
        results.append((outputs.logits[masks[1] == 1], states, gradients))
    assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)


@FORMS
def test_a_padded_memory_is_the_memory_of_the_text_alone(form):
    model = XL.build(form=form, memory_length=5)
    first, second = random_ids(2, 6), random_ids(2, 4, seed=4)
    mask = torch.ones_like(first)
    mask[1, :3] = 0
    both = model(second, past_key_values=model(first, mask, use_cache=True).past_key_values).logits
    for row, start in ((0, 0), (1, 3)):
        memory = model(first[row : row + 1, start:], use_cache=True).past_key_values
        assert_close(model(second[row : row + 1], past_key_values=memory).logits[0], both[row])


def test_attentions_are_those_of_memory_and_segment():
    model = XL.build()
    first, second = random_ids(2, 4), random_ids(2, LENGTH, seed=4)
    memory = model(first, use_cache=True).past_key_values
    mask = torch.ones_like(second)
    mask[1, :2] = 0
    outputs = model(second, torch.cat([torch.ones_like(first), mask], dim=1), memory, output_attentions=True)
    for weights in outputs.attentions:
        assert weights.shape == (2, 3, LENGTH, 4 + LENGTH)
        assert_close(weights.sum(-1)[mask.bool()[:, None].expand(-1, 3, -1)], torch.ones(36))
        assert not weights[1, :, 2:, 4:6].any() and not weights[0, :, :, 4:].triu(1).any()


def test_no_gradient_goes_into_the_memory():
    model = XL.build()
    memory = model(random_ids(2, 4), use_cache=True).past_key_values
    assert not any(part.requires_grad for level in range(2) for part in memory.state(level))


def test_shifted_columns_are_distances():
    columns = torch.arange(5).flip(0).expand(1, 1, 3, 5)  # distances 4 .. 0
    moved = shift(columns.double())[0, 0]
    for row in range(3):
        assert moved[row, : row + 3].tolist() == [2 + row - key for key in range(row + 3)]


def test_a_longer_memory_may_be_chosen_later(tmp_path):
    XL.build(memory_length=2).save_pretrained(tmp_path)
    model = EduTransformerXLForCausalLM.from_pretrained(tmp_path, memory_length=30).eval()
    ids = random_ids(1, 12)
    memory = model(ids[:, :9], use_cache=True).past_key_values
    assert_close(model(ids[:, 9:], past_key_values=memory).logits, model(ids).logits[:, 9:])


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": True}])
def test_generation_without_a_memory_reads_the_text_again(options):
    """With the step by step reading of the other models a token would see itself alone."""
    model, ids = XL.build(memory_length=0), random_ids(2, 5)
    longer = EduTransformerXLForCausalLM(EduTransformerXLConfig(**XL.settings)).eval()
    longer.load_state_dict(model.state_dict())
    found = []
    for each in (model, longer):
        torch.manual_seed(2)
        found.append(each.generate(ids, max_new_tokens=8, eos_token_id=None, **options))
    assert torch.equal(*found)


def test_generation_goes_on_from_the_memory_of_earlier_segments():
    model, text = XL.build(memory_length=40), random_ids(1, 13)
    memory = None
    for piece in text[:, :12].split(4, dim=1):
        memory = model(piece, past_key_values=memory, use_cache=True).past_key_values
    options = {"max_new_tokens": 9, "eos_token_id": None}
    assert torch.equal(model.generate(text, past_key_values=memory, **options), model.generate(text, **options))


def test_what_does_not_fit_is_one_sentence():
    model = XL.build()
    memory = model(random_ids(3, 4), use_cache=True).past_key_values
    with pytest.raises(ValueError, match=r"past_key_values is the memory of 3 rows, but the batch has 2; give what an"):
        model(random_ids(2, 4), past_key_values=memory)
    wider = XL.build(hidden_size=24)(random_ids(2, 4), use_cache=True).past_key_values
    with pytest.raises(ValueError, match=r"has shapes .*24.* is needed"):
        model(random_ids(2, 4), past_key_values=wider)
    deeper = XL.build(num_hidden_layers=3)(random_ids(2, 4), use_cache=True).past_key_values
    with pytest.raises(ValueError, match="has 3 states, but the model has 2"):
        model(random_ids(2, 4), past_key_values=deeper)
    for settings, message in (
        ({"memory_length": -1}, "memory_length must be at least 0, got -1"),
        ({"hidden_size": 15}, "hidden_size 15 is odd"),
        ({"hidden_size": 14}, "hidden_size 14 cannot be split into 3 equal heads"),
    ):
        with pytest.raises(StrictDataclassClassValidationError, match=message):
            EduTransformerXLConfig(**(XL.settings | settings))
