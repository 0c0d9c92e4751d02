"""The recurrent state as a transformers cache."""

import torch
from tiny import CASES, LENGTH, random_ids
from transformers import Cache

from hf_edu_models.models.blocks_cache import RecurrentCache

LSTM = CASES["recurrent"]


def fill(batch=3):
    cache = RecurrentCache()
    for level in range(2):
        cache.write(level, (torch.randn(batch, 4), torch.randn(batch, 4)), new_tokens=5)
    cache.write(2, (torch.randn(batch, 4),), new_tokens=5)
    return cache


def test_it_is_a_cache():
    cache = fill()
    assert isinstance(cache, Cache) and len(cache) == 3 and cache.is_initialized
    assert cache.get_seq_length() == 5 and cache.get_mask_sizes(2, 0) == (7, 0) and cache.get_max_length() == -1
    assert cache.state(3) is None and len(cache.state(0)) == 2 and len(cache.state(2)) == 1


def test_beams_reorder_hidden_and_cell_state():
    cache = fill()
    before = [cache.state(level) for level in range(3)]
    copies = [[part.clone() for part in state] for state in before]
    order = torch.tensor([2, 0, 0])
    cache.reorder_cache(order)
    for level in range(3):
        for part, old, copy in zip(cache.state(level), before[level], copies[level], strict=True):
            assert torch.equal(part, copy[order])
            assert torch.equal(old, copy), "a state that was handed out stays as it was"


def test_rows_are_repeated_and_selected():
    cache = fill()
    hidden = cache.state(0)[0]
    cache.batch_repeat_interleave(2)
    assert torch.equal(cache.state(0)[0], hidden.repeat_interleave(2, 0))
    cache.batch_select_indices(torch.tensor([0, 4]))
    assert torch.equal(cache.state(0)[0], hidden[[0, 2]])
    cache.reset()
    assert cache.get_seq_length() == 0 and not cache.state(0)[1].any()


def test_a_detached_copy_has_the_values_without_the_graph():
    model = LSTM.build()
    cache = model(random_ids(2, LENGTH), use_cache=True).past_key_values
    copy = cache.detach()
    assert copy.get_seq_length() == LENGTH and copy is not cache
    for level in range(len(cache)):
        for part, original in zip(copy.state(level), cache.state(level), strict=True):
            assert torch.equal(part, original) and original.requires_grad and not part.requires_grad
