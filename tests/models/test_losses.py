"""The loss without logits against torch's own."""

import pytest
import torch
import torch.nn.functional as F
from tiny import LENGTH, SOURCE, TRANSLATORS, by_name, random_ids
from torch import nn
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from hf_edu_models.models.blocks_losses import classification_loss, logits_loss, shift_labels, token_loss


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("chunk_size", [1, 4, 100])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_token_loss_is_cross_entropy(bias, chunk_size, smoothing):
    head = nn.Linear(5, 11, bias=bias).double()
    hidden_states = torch.randn(3, 4, 5, dtype=torch.double, requires_grad=True)
    labels = torch.randint(0, 11, (3, 4))
    labels[0, 1:3] = -100
    inputs = [hidden_states, *head.parameters()]
    expected = F.cross_entropy(head(hidden_states).flatten(0, 1), labels.flatten(), label_smoothing=smoothing)
    found = token_loss(hidden_states, head, labels, label_smoothing=smoothing, chunk_size=chunk_size)
    assert_close(found, expected)
    # A factor after the loss must reach the gradients that were taken before it.
    mine, theirs = (torch.autograd.grad(3 * loss, inputs) for loss in (found, expected))
    for ours, reference in zip(mine, theirs, strict=True):
        assert_close(ours, reference)


class DtypesOfProducts(TorchDispatchMode):
    """Records what dtype each matrix product has."""

    def __init__(self):
        super().__init__()
        self.dtypes = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function.overloadpacket.__name__ in ("mm", "addmm", "addmm_"):
            self.dtypes.append(result.dtype)
        return result


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_token_loss_under_autocast(smoothing):
    """All products are in bfloat16, gradients in the dtype of the weights; torch's own are as far from float32."""
    head = nn.Linear(24, 50)
    hidden_states = torch.randn(3, 40, 24, requires_grad=True)
    labels, inputs = torch.randint(0, 50, (3, 40)), [hidden_states, *head.parameters()]
    exact = F.cross_entropy(head(hidden_states).flatten(0, 1), labels.flatten(), label_smoothing=smoothing)
    with torch.autocast("cpu", torch.bfloat16):
        logits = head(hidden_states)
        theirs = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing)
        with DtypesOfProducts() as products:
            ours = token_loss(hidden_states, head, labels, label_smoothing=smoothing, chunk_size=16)
    assert len(products.dtypes) >= 3 * 8, "logits and two gradients of each chunk"
    assert set(products.dtypes) == {torch.bfloat16}
    assert_close(ours, exact, rtol=0.01, atol=0.01)
    reference = torch.autograd.grad(exact, inputs, retain_graph=True)
    found, others = (torch.autograd.grad(loss, inputs, retain_graph=True) for loss in (ours, theirs))
    for mine, torchs, right in zip(found, others, reference, strict=True):
        assert mine.dtype == torch.float32
        assert (mine - right).norm() <= 1.5 * (torchs - right).norm() + 0.002 * right.norm()


def test_token_loss_is_finite_for_large_logits():
    head = nn.Linear(2, 3, bias=False)
    nn.init.constant_(head.weight, 1000.0)
    head.weight.data[1] = -1000.0
    hidden_states = torch.ones(1, 1, 2, requires_grad=True)
    loss = token_loss(hidden_states, head, torch.tensor([[1]]))
    loss.backward()
    assert_close(loss, F.cross_entropy(head(hidden_states)[0], torch.tensor([1])))
    assert hidden_states.grad.isfinite().all()


def test_token_loss_without_gradient_has_no_graph():
    head = nn.Linear(5, 11)
    with torch.no_grad():
        assert token_loss(torch.randn(2, 3, 5), head, torch.zeros(2, 3, dtype=torch.long)).grad_fn is None


def test_token_loss_holds_one_chunk_of_logits():
    """The largest tensor it makes is a chunk's logits, not all positions'."""
    head, hidden_states = nn.Linear(4, 64), torch.randn(1, 40, 4, requires_grad=True)
    with torch.profiler.profile(profile_memory=True) as profile:
        token_loss(hidden_states, head, torch.zeros(1, 40, dtype=torch.long), chunk_size=10).backward()
    largest = max(event.cpu_memory_usage for event in profile.events())
    assert 10 * 64 * 4 <= largest < 40 * 64 * 4


def test_labels_shift_by_one_position():
    assert shift_labels(torch.tensor([[4, 5, 6], [7, -100, 8]])).tolist() == [[5, 6, -100], [-100, 8, -100]]


class Config:
    def __init__(self, problem_type=None, num_labels=3):
        self.problem_type, self.num_labels = problem_type, num_labels


@pytest.mark.parametrize(
    "labels, num_labels, problem, reference",
    [
        (torch.tensor([0, 2]), 3, "single_label_classification", F.cross_entropy),
        (torch.tensor([[0.0, 1, 1], [1, 0, 0]]), 3, "multi_label_classification", F.binary_cross_entropy_with_logits),
        (torch.tensor([0.5, 2.5]), 1, "regression", lambda logits, labels: F.mse_loss(logits.squeeze(1), labels)),
    ],
)
def test_the_three_problem_types(labels, num_labels, problem, reference):
    config, logits = Config(num_labels=num_labels), torch.randn(2, num_labels)
    assert_close(classification_loss(logits, labels, config), reference(logits, labels))
    assert config.problem_type == problem
    # Two updates' worth of labels: each batch carries its part.
    half = classification_loss(logits, labels, config, num_items_in_batch=2 * labels.numel())
    assert_close(half, reference(logits, labels) / 2)


def test_logits_loss_of_bfloat16_is_computed_in_float32():
    logits, labels = torch.randn(6, 9).bfloat16(), torch.arange(6)
    assert_close(logits_loss(logits, labels), F.cross_entropy(logits.float(), labels))


@pytest.mark.parametrize("case", **by_name(TRANSLATORS))
def test_label_smoothing_is_torchs_and_only_in_training(case):
    without_penalty = {"head_diversity_weight": 0.0} if case.attends else {}
    model = case.build(label_smoothing=0.3, **without_penalty).train()
    inputs = {"input_ids": random_ids(2, SOURCE), "labels": random_ids(2, LENGTH, seed=2)}
    inputs["labels"][1, 4:] = -100
    logits, labels = model(**inputs, skip_logits=False).logits.flatten(0, 1), inputs["labels"].flatten()
    expected = F.cross_entropy(logits, labels, label_smoothing=0.3)
    assert_close(model(**inputs).loss, expected)
    assert_close(model(**inputs, skip_logits=False).loss, expected)
    assert_close(model.eval()(**inputs).loss, F.cross_entropy(logits, labels))
