"""Dropout against its definition."""

import pytest
import torch
from torch.testing import assert_close

from hf_edu_models.models.blocks_dropout import Dropout


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_dropout_probability_and_scale(share):
    layer = Dropout(share)
    states = torch.ones(1001, 203)  # no multiple of four
    outputs = layer(states)
    dropped = (outputs == 0).float().mean().item()
    spread = (share * (1 - share) / states.numel()) ** 0.5
    assert abs(dropped - share) < 5 * spread + 1 / 65536
    assert_close(outputs[outputs != 0].unique(), torch.tensor([1 / (1 - share)]), rtol=1e-4, atol=0)


def test_elements_are_dropped_independently():
    """One random draw decides on four elements."""
    outputs = (Dropout(0.5)(torch.ones(40_000, 4)) == 0).float()
    correlations = torch.corrcoef(outputs.t()) - torch.eye(4)
    assert correlations.abs().max() < 0.03
    lines = (Dropout(0.5)(torch.ones(160_000)) == 0).float()
    assert abs(torch.corrcoef(torch.stack([lines[:-1], lines[1:]]))[0, 1]) < 0.02


def test_gradient_seed_and_limits():
    states = torch.randn(50, 7, requires_grad=True)
    layer = Dropout(0.3)
    torch.manual_seed(3)
    outputs = layer(states)
    (gradient,) = torch.autograd.grad(outputs.sum(), states)
    assert_close(gradient * states, outputs)
    torch.manual_seed(3)
    assert torch.equal(layer(states), outputs)
    assert torch.equal(layer.eval()(states), states)
    assert torch.equal(Dropout(0.0)(states), states) and not Dropout(1.0)(states).any()
    assert layer.train()(states.bfloat16()).dtype == torch.bfloat16
