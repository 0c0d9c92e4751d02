"""Kernel regression against scikit-learn's kernels, a loop over the memory, and a grid search of the width."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import euclidean_distances, rbf_kernel
from tiny import random_numbers
from torch.testing import assert_close
from transformers import AutoModel, Trainer, TrainingArguments

from hf_edu_models import EduKernelConfig, EduKernelForRegression
from hf_edu_models.data.builtin.curves import generate
from hf_edu_models.models.modeling_kernel import KERNELS

QUERIES, KEYS, VALUES = random_numbers(5, 3), random_numbers(8, 3, seed=2), random_numbers(8, 2, seed=3)


def remembering(keys, values, **settings):
    """A model with a memory."""
    model = EduKernelForRegression(EduKernelConfig(input_size=keys.shape[1], **settings)).eval()
    model.remember(keys, values)
    return model


def kernel_by_hand(name, distance, width):
    """K(|| x - x_i || / h) of one pair, as the textbooks have it."""
    u = distance / width
    return {
        "gaussian": math.exp(-0.5 * u * u),
        "epanechnikov": max(0.0, 0.75 * (1 - u * u)),
        "boxcar": 0.5 if u <= 1 else 0.0,
        "mean": 1.0,
    }[name]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("width", [0.7, 2.0])
def test_it_is_a_loop_over_the_memory(kernel, width):
    model = remembering(KEYS, VALUES, kernel=kernel, width=width, output_size=2)
    outputs = model(QUERIES, output_attentions=True)
    for row, query in enumerate(QUERIES.tolist()):
        weights = [kernel_by_hand(kernel, math.dist(query, key), width) for key in KEYS.tolist()]
        if not any(weights):  # nothing is near
            weights = [kernel_by_hand("gaussian", math.dist(query, key), width) for key in KEYS.tolist()]
        shares = torch.tensor(weights) / sum(weights)
        assert_close(outputs.attentions[0][row], shares)
        assert_close(outputs.logits[row], shares @ VALUES)


def test_the_gaussian_is_scikit_learns():
    """gamma is 1 / (2 h^2)."""
    weights = rbf_kernel(QUERIES.numpy(), KEYS.numpy(), gamma=1 / (2 * 1.3**2))
    expected = weights / weights.sum(axis=1, keepdims=True) @ VALUES.numpy()
    found = remembering(KEYS, VALUES, width=1.3, output_size=2)(QUERIES).logits
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-4)


def test_projections_make_scaled_dot_product_attention_of_it():
    """Between keys of equal length, || q - k ||^2 differs from -2 q . k by what the softmax does not see."""
    model = remembering(KEYS, VALUES, output_size=2, projection_size=4)
    queries, keys = model.attention.query_proj, model.attention.key_proj
    torch.nn.init.normal_(queries.weight), torch.nn.init.orthogonal_(keys.weight)
    model.memory.keys = torch.nn.functional.normalize(KEYS, dim=1)  # an orthogonal projection keeps their length
    scores = queries(QUERIES) @ keys(model.memory.keys).T
    assert_close(model(QUERIES).logits, scores.softmax(dim=-1) @ VALUES)


def test_projections_start_as_the_identity():
    plain, projected = (remembering(KEYS, VALUES, output_size=2, projection_size=size) for size in (None, 3))
    assert_close(projected(QUERIES).logits, plain(QUERIES).logits)


@pytest.mark.parametrize("kernel", KERNELS)
def test_leaving_one_out_is_a_memory_without_it(kernel):
    model = remembering(KEYS, VALUES, kernel=kernel, output_size=2)
    outputs = model(KEYS, memory_ids=torch.arange(8), output_attentions=True)
    assert not outputs.attentions[0].diagonal().any()
    for row in range(8):
        others = [number for number in range(8) if number != row]
        without = remembering(KEYS[others], VALUES[others], kernel=kernel, output_size=2)
        assert_close(outputs.logits[row], without(KEYS[row : row + 1]).logits[0])
    assert_close(model(KEYS, memory_ids=torch.full((8,), -1)).logits, model(KEYS).logits)


@pytest.mark.parametrize("kernel", ["gaussian", "epanechnikov"])
def test_trainer_finds_the_width_of_a_grid_search(kernel, tmp_path):
    """The leave-one-out error of the learnt width is the lowest of all; of Epanechnikov's several minima, one."""
    data = generate({"train": 60}, seed=0)["train"]
    inputs, labels = torch.tensor(data["features"]), torch.tensor(data["value"])
    distances = euclidean_distances(inputs.numpy())
    values = labels.numpy()

    def error(width):
        by_hand = np.vectorize(lambda distance: kernel_by_hand(kernel, distance, width))
        weights = by_hand(distances) * (1 - np.eye(60))
        return np.mean((weights @ values / weights.sum(axis=1) - values) ** 2)

    model = remembering(inputs, labels, kernel=kernel, width=1.5, learn_width=True)
    rows = [
        {"input_values": x, "labels": y, "memory_ids": n} for n, (x, y) in enumerate(zip(inputs, labels, strict=True))
    ]
    arguments = TrainingArguments(
        tmp_path, max_steps=250, per_device_train_batch_size=60, learning_rate=0.1, report_to="none", use_cpu=True
    )
    Trainer(model, arguments, train_dataset=rows).train()
    found = model(inputs, labels=labels, memory_ids=torch.arange(60)).loss.item()
    assert found == pytest.approx(error(model.width), rel=1e-4)
    grid = np.linspace(0.1, 2, 191) if kernel == "gaussian" else model.width * np.linspace(0.9, 1.1, 21)
    best = min(grid, key=error)
    assert model.width == pytest.approx(best, abs=0.011)
    assert found <= error(best) * 1.001


def test_the_memory_is_saved_with_the_weights(tmp_path):
    model = remembering(KEYS, VALUES, output_size=2)
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert type(loaded) is EduKernelForRegression and loaded.config.num_memories == 8
    assert torch.equal(loaded.memory.keys, KEYS) and torch.equal(loaded.memory.values, VALUES)
    loaded.remember(KEYS[:5], VALUES[:5])
    loaded.save_pretrained(tmp_path)
    assert len(AutoModel.from_pretrained(tmp_path).memory.keys) == 5


def test_a_far_query_gets_the_nearest_value():
    model = remembering(torch.tensor([[0.0], [1.0]]), torch.tensor([3.0, 5.0]), kernel="epanechnikov")
    assert model(torch.tensor([[100.0]])).logits.item() == pytest.approx(5.0)


def test_the_kernels_of_the_configuration_are_those_of_the_model():
    for kernel in KERNELS:
        EduKernelConfig(kernel=kernel)
    with pytest.raises(Exception, match=f"kernel 'triangle' is not known; choose one of {', '.join(KERNELS)}"):
        EduKernelConfig(kernel="triangle")


NAN = torch.tensor([[0.0, math.nan, 1.0]])
WRONG = {
    "features": ({"input_values": QUERIES[:, :2]}, r"input_values has shape \(5, 2\), but \(any, 3\) is needed"),
    "axes": ({"input_values": QUERIES[0]}, r"input_values has shape \(3,\), but \(any, 3\) is needed"),
    "NaN": ({"input_values": NAN}, "input_values has values from nan to nan, .*; give finite ones"),
    "integers": ({"input_values": QUERIES.long()}, r"dtype torch.int64, but real numbers are needed; call .float\(\)"),
    "nothing": ({"input_values": QUERIES[:0]}, r"input_values has shape \(0, 3\); give at least one row"),
    "a list": ({"input_values": QUERIES.tolist()}, "input_values is of type list, but a tensor is needed"),
    "labels": ({"input_values": QUERIES, "labels": torch.zeros(4)}, r"labels has shape \(4,\)"),
    "a far memory": (
        {"input_values": QUERIES, "memory_ids": torch.tensor([0, 1, 2, 3, 8])},
        r"memory_ids has shape \(5,\) and numbers from 0 to 8, but one from 0 to 7, or -1, is needed",
    ),
    "too few memories": (
        {"input_values": QUERIES, "memory_ids": torch.tensor([0])},
        r"is needed for each of 5 queries",
    ),
    "real memories": ({"input_values": QUERIES, "memory_ids": torch.zeros(5)}, "memory_ids has dtype torch.float32"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_rejected(name):
    call, sentence = WRONG[name]
    with pytest.raises(ValueError, match=sentence):
        remembering(KEYS, VALUES[:, 0])(**call)


def test_a_model_without_a_memory_says_so():
    for config in (EduKernelConfig(), EduKernelConfig(num_memories=4)):
        with pytest.raises(ValueError, match=r"there is no memory yet; call model.remember\(input_values, labels\)"):
            EduKernelForRegression(config)(torch.zeros(2, 1))
    single = remembering(torch.zeros(1, 1), torch.zeros(1))
    with pytest.raises(ValueError, match="the memory has a single pair, so nothing is left"):
        single(torch.zeros(1, 1), memory_ids=torch.tensor([0]))


@pytest.mark.parametrize("values", [VALUES[:5, :1], VALUES * math.nan, VALUES])
def test_a_wrong_memory_is_rejected(values):
    with pytest.raises(ValueError, match=r"labels has (shape|values)"):
        remembering(KEYS, values)


CONFIGURATIONS = [
    ({"width": 0}, "width must be above 0, got 0; it is a distance"),
    ({"width": -1.5}, "width must be above 0, got -1.5"),
    ({"width": math.nan}, "width must be finite, got nan"),
    ({"num_memories": -1}, "num_memories must be 0 or more, got -1"),
    ({"input_size": 0}, "input_size must be at least 1, got 0"),
    ({"kernel": "boxcar", "learn_width": True}, "the kernel 'boxcar' has no gradient, so learn_width"),
    ({"kernel": "mean", "projection_size": 2}, "the kernel 'mean' has no gradient"),
]


@pytest.mark.parametrize(("settings", "sentence"), CONFIGURATIONS)
def test_an_invalid_configuration(settings, sentence):
    with pytest.raises(Exception) as error:
        EduKernelConfig(**settings)
    assert sentence in str(error.value)
