"""PEFT's LoRA adapts every rung: all linear layers, our defaults, or the parameters of recurrent cells."""

import pytest
import torch
from tiny import ALL, RECURRENT_GENERATORS, by_name, inputs_for, logits_of, targets_for
from torch import nn
from torch.testing import assert_close

peft = pytest.importorskip("peft")


def adapt(model, **settings):
    """The model with adapters that change something."""
    torch.manual_seed(0)
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, init_lora_weights=False, **settings))
    assert any("lora_" in name for name, _ in adapted.named_parameters())
    return adapted


def check_training_and_merge(case, adapted):
    """Adapters get gradients, count in training as in evaluation, and give the same results once merged."""
    inputs, targets = inputs_for(case), targets_for(case)
    with adapted.disable_adapter():
        plain = logits_of(adapted(**inputs))
    expected = logits_of(adapted(**inputs))
    assert not torch.allclose(expected, plain)
    adapted.train()
    loss = adapted(**inputs, **targets).loss
    loss.backward()
    trained = {name: parameter.grad for name, parameter in adapted.named_parameters() if parameter.requires_grad}
    assert trained and all("lora_" in name for name in trained)
    assert all(gradient is not None and gradient.isfinite().all() for gradient in trained.values())
    adapted.eval()
    if any(isinstance(module, nn.BatchNorm1d) for module in adapted.modules()):
        expected = logits_of(adapted(**inputs))  # its running statistics are those of one more batch
    merged = adapted.merge_and_unload()
    assert_close(logits_of(merged(**inputs)), expected, atol=1e-5, rtol=1e-5)
    assert_close(merged.train()(**inputs, **targets).loss, loss.detach(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("case", **by_name(ALL))
def test_all_linear_layers(case):
    model = case.build()
    if [module for module in model.modules() if type(module) is nn.Linear] == [model.get_output_embeddings()]:
        # PEFT leaves the output layer out, and the rest are recurrent cells: see `test_recurrent_cells`.
        with pytest.raises(ValueError, match="No `target_modules` passed but also no `target_parameters` found"):
            adapt(model, target_modules="all-linear")
        return
    check_training_and_merge(case, adapt(model, target_modules="all-linear"))


@pytest.mark.parametrize("case", **by_name(ALL))
def test_without_target_modules(case):
    check_training_and_merge(case, adapt(case.build()))


CELLS = [case for case in RECURRENT_GENERATORS if case.rung.name in ("recurrent", "seq2seq", "bahdanau")]


@pytest.mark.parametrize("case", **by_name(CELLS))
def test_recurrent_cells(case):
    cell = "forward_cell" if case.rung.name != "bahdanau" else "cell"
    parameters = [f"{cell}.input_weight", f"{cell}.state_weight"]
    check_training_and_merge(case, adapt(case.build(), target_parameters=parameters, target_modules=[]))


@pytest.mark.parametrize(
    "case", **by_name([case for case in ALL if hasattr(case.build(), "lm_head") and not case.per_row])
)
def test_the_softmax_layer(case):
    name = "lm_head.decoder" if case.rung.name == "bert" else "lm_head"
    adapted = adapt(case.build(tie_word_embeddings=False), target_modules=[name])
    check_training_and_merge(case, adapted)
