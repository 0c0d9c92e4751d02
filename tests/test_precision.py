"""Models in 8-bit integers and other precisions give nearly the results of the exact ones."""

import pytest
import torch
from torch import nn

from hf_edu_models import EduGPTConfig, EduGPTForCausalLM, EduRecurrentConfig, EduRecurrentForCausalLM, precision
from hf_edu_models.models.blocks_int8 import Int8Linear, has_exact_int8
from hf_edu_models.precision import set_precision

needs_int8 = pytest.mark.skipif(not has_exact_int8(), reason="8-bit products overflow on this CPU")


def build(seed=0):
    torch.manual_seed(seed)
    sizes = {"hidden_size": 48, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 80}
    config = EduGPTConfig(vocab_size=60, max_position_embeddings=40, initializer_range=0.2, **sizes)
    return EduGPTForCausalLM(config).eval()


def inputs(batch=4):
    return torch.randint(4, 60, (batch, 9), generator=torch.Generator().manual_seed(1))


@needs_int8
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_is_within_the_rounding_of_its_weights_and_inputs(bias):
    linear, states = nn.Linear(48, 30, bias=bias), torch.randn(2, 3, 48)
    rounded = Int8Linear(linear)
    with torch.no_grad():
        exact, found = linear(states), rounded(states)
        weight_steps = linear.weight.abs().amax(dim=1) / 127
        steps = states.abs().amax(dim=-1, keepdim=True) / 127
        # |q.w - x.W| <= sum |x| half a step of w + sum |w| half a step of x + both
        bound = states.abs().sum(dim=-1, keepdim=True) * weight_steps / 2 + steps * linear.weight.abs().sum(dim=1) / 2
        bound = bound + 48 * steps * weight_steps / 4
        assert ((exact - found).abs() <= bound + 1e-5).all()
        assert (exact - found).norm() < 0.02 * exact.norm()
        assert rounded(torch.zeros(1, 48)).abs().sum() == (linear(torch.zeros(1, 48)).abs().sum() if bias else 0)
        torch.testing.assert_close(rounded(states)[1, 2], rounded(states[1:, 2:])[0, 0], rtol=0, atol=0)


@needs_int8
@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("batch", [1, 4])
def test_a_model_of_8_bits_writes_nearly_the_same(beams, batch):
    exact, rounded = build(), set_precision(build(), int8=True)
    assert not any(isinstance(module, nn.Linear) for module in rounded.modules())
    with torch.no_grad():
        ids = inputs(batch)
        logits, found = exact(ids).logits, rounded(ids).logits
        assert 0 < (logits - found).norm() < 0.05 * logits.norm()
    made = []
    make = rounded.make_stepper
    rounded.make_stepper = lambda *args: made.append(make(*args)) or made[-1]
    options = {"num_beams": beams, "max_new_tokens": 8, "eos_token_id": None, "pad_token_id": 0}
    ours, theirs = rounded.generate(ids, **options), exact.generate(ids, **options)
    assert made and made[0] is not None, "the search did not run"
    same = (ours[:, 9:] == theirs[:, 9:]).float().mean()
    assert same >= 0.5
    rounded.make_stepper = lambda *args: None
    assert torch.equal(ours, rounded.generate(ids, **options)), "GenerationMixin finds other tokens"


@needs_int8
def test_rounded_weights_are_not_saved(tmp_path):
    with pytest.raises(ValueError, match="int8 weights are rounded and only for inference"):
        set_precision(build(), int8=True).save_pretrained(tmp_path)


def test_what_int8_cannot_do(monkeypatch):
    recurrent = EduRecurrentForCausalLM(EduRecurrentConfig(vocab_size=20, hidden_size=8))
    with pytest.raises(ValueError, match="EduRecurrentForCausalLM is recurrent"):
        set_precision(recurrent, int8=True)
    with pytest.raises(ValueError, match="remove --dtype bfloat16"):
        set_precision(build(), "bfloat16", int8=True)
    with pytest.raises(ValueError, match="the model is on meta; add --device cpu"):
        set_precision(build().to("meta"), int8=True)
    monkeypatch.setattr(precision, "has_exact_int8", lambda: False)
    with pytest.raises(ValueError, match="does not multiply 8-bit integers"):
        set_precision(build(), int8=True)


def test_auto_is_float32_for_searches(monkeypatch):
    monkeypatch.setattr("hf_edu_models.cpu_kernels.has_fast_bfloat16", lambda: True)
    assert set_precision(build(), "auto").dtype is torch.bfloat16
    assert set_precision(build(), "auto", generates=True).dtype is torch.float32
    assert set_precision(build(), "bfloat16", generates=True).dtype is torch.bfloat16
    assert set_precision(build()).dtype is torch.float32
