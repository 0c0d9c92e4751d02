"""Products by oneDNN: the numbers of torch's own kernels, wherever they are called from, and only while enabled."""

import re
import subprocess
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from hf_edu_models import cpu_kernels

ALWAYS = "onednn:0,0,0"
PAGE = Path(__file__).parent.parent / "recipes/guides/speed.md"

pytestmark = pytest.mark.skipif(not cpu_kernels.is_available(), reason="this torch has no oneDNN")


@pytest.fixture
def products(monkeypatch):
    """Shapes of the products that oneDNN computes."""
    calls, multiply = [], cpu_kernels._multiply

    def record(first, second, bias=None):
        calls.append((*first.shape, second.shape[1]))
        return multiply(first, second, bias)

    monkeypatch.setattr(cpu_kernels, "_multiply", record)
    return calls


def matrix(rows: int, columns: int, layout: str) -> torch.Tensor:
    """The same numbers in each layout: by rows, by columns, or as a part of a wider matrix."""
    draw = torch.Generator().manual_seed(rows)
    numbers = torch.rand(rows, columns, generator=draw) - 0.5
    if layout == "columns":
        return numbers.t().contiguous().t()
    return F.pad(numbers, (2, 3))[:, 2:-3] if layout == "part" else numbers


@pytest.mark.parametrize("sizes", [(6, 8, 10), (40, 8, 6), (5, 40, 70)])
@pytest.mark.parametrize("second", ["rows", "columns", "part"])
@pytest.mark.parametrize("first", ["rows", "columns", "part"])
def test_products(first, second, sizes, products):
    rows, inner, columns = sizes
    left, right = matrix(rows, inner, first), matrix(inner, columns, second)
    bias, total = torch.rand(columns), torch.rand(rows, columns)
    expected = (left.double() @ right.double()).float()
    with cpu_kernels.enabled(ALWAYS):
        results = left @ right, torch.addmm(bias, left, right), torch.addmm(total, left, right)
        accumulated = total.clone().addmm_(left, right)
        scaled = torch.addmm(total, left, right, beta=0.5, alpha=2)
    assert_close(results, (expected, bias + expected, total + expected))
    assert_close((accumulated, scaled), (total + expected, 0.5 * total + 2 * expected))
    assert all(result.is_contiguous() for result in results)
    assert {(sizes), (columns, inner, rows)} >= set(products) and len(products) >= 4


@pytest.mark.parametrize("sizes", [(1, 8, 10), (6, 8, 1), (6, 0, 10), (3, 8, 10)])
def test_vectors_stay_in_torch(sizes, products):
    rows, inner, columns = sizes
    left, right = torch.rand(rows, inner), torch.rand(inner, columns)
    with cpu_kernels.enabled(ALWAYS):
        assert_close(left @ right, (left.double() @ right.double()).float())
    assert not products


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.complex64])
def test_other_dtypes_stay_in_torch(dtype, products):
    left, right = (10 * torch.rand(6, 8)).to(dtype), (10 * torch.rand(8, 10)).to(dtype)
    expected = left @ right
    with cpu_kernels.enabled(ALWAYS):
        assert torch.equal(left @ right, expected)
    assert not products


def test_only_products_that_gain(products):
    """By the number of multiplications and by layout: x W^T, g W, g^T x."""
    inputs = torch.rand(16, 8, requires_grad=True)
    small, large = torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 16, bias=False)
    with cpu_kernels.enabled("onednn:11,-,11"):  # from 2,048 multiplications on, never, from 2,048 on
        small(inputs).sum().backward()
        assert not products
        large(inputs).backward(torch.rand(16, 16))
    assert products == [(16, 8, 16), (16, 16, 8)]


def test_gradients_of_first_and_second_order():
    layer = torch.nn.Linear(8, 10)
    inputs = torch.rand(3, 6, 8)

    def derivatives(dtype):
        module, x = torch.nn.Linear(8, 10).to(dtype), inputs.detach().to(dtype).requires_grad_()
        module.load_state_dict(layer.state_dict())
        grads = torch.autograd.grad(module(x).tanh().sum(), [x, *module.parameters()], create_graph=True)
        return [*grads, *torch.autograd.grad(sum(grad.square().sum() for grad in grads), [x, *module.parameters()])]

    expected = [grad.float() for grad in derivatives(torch.float64)]
    with cpu_kernels.enabled(ALWAYS):
        assert_close(derivatives(torch.float32), expected)


def test_functional_transforms():
    weights, inputs = torch.rand(5, 10, 8), torch.rand(6, 8)
    expected = torch.stack([F.linear(inputs, weight) for weight in weights])
    with cpu_kernels.enabled(ALWAYS):
        assert_close(torch.func.vmap(F.linear, in_dims=(None, 0))(inputs, weights), expected)
        _, slope = torch.func.jvp(lambda x: F.linear(x, weights[0]), (inputs,), (inputs,))
    assert_close(slope, expected[0])


def test_autocast_compile_and_export():
    model, inputs = torch.nn.Sequential(torch.nn.Linear(8, 10), torch.nn.Tanh()), torch.rand(6, 8)
    expected = model(inputs)
    with cpu_kernels.enabled(ALWAYS):
        with torch.autocast("cpu", torch.bfloat16):
            assert model(inputs).dtype is torch.bfloat16
        program = torch.export.export(model, (inputs,))
        assert_close(torch.compile(model, backend="aot_eager")(inputs), expected)
    assert "mkldnn" not in str(program.graph)
    assert_close(program.module()(inputs), expected)


def test_nested_and_restored():
    left, right = torch.rand(64, 64), torch.rand(64, 64)
    expected = left @ right
    with cpu_kernels.enabled(ALWAYS):
        with cpu_kernels.enabled("off"):
            assert torch.equal(left @ right, expected)
        assert cpu_kernels.enable("onednn:6,6,6") == "onednn:6,6,6"
    assert torch.equal(left @ right, expected) and cpu_kernels.current() == "off"


def test_results_repeat_bit_for_bit():
    left, right = torch.rand(50, 300), torch.rand(300, 70)
    with cpu_kernels.enabled(ALWAYS):
        expected = left @ right
        for offset in range(1, 8):  # wherever in memory the numbers are
            moved = torch.empty(left.numel() + offset)[offset:].view_as(left).copy_(left)
            assert torch.equal(moved @ right, expected)


def test_probe_and_environment(monkeypatch):
    monkeypatch.delenv(cpu_kernels.VARIABLE, raising=False)
    choice = cpu_kernels.probe()
    cpu_kernels.read_choice(choice)
    with cpu_kernels.enabled(ALWAYS):
        assert cpu_kernels.current() == ALWAYS
    for given in ("off", ALWAYS):
        monkeypatch.setenv(cpu_kernels.VARIABLE, given)
        with cpu_kernels.enabled() as chosen:
            assert chosen == given == cpu_kernels.current()


@pytest.mark.parametrize("choice", ["fast", "onednn", "onednn:20", "onednn:20,x,20", "mkl:1,2,3"])
def test_wrong_choice(choice):
    with pytest.raises(ValueError, match=f"must be auto, off or a choice that a run has saved; got '{choice}'"):
        cpu_kernels.enable(choice)


class Loop(torch.nn.Linear):
    """A model that is no Transformer."""


class Attends(torch.nn.Linear):
    _supports_sdpa = True


def test_dtype(monkeypatch):
    for is_fast, expected in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(cpu_kernels, "has_fast_bfloat16", lambda is_fast=is_fast: is_fast)
        assert cpu_kernels.choose_dtype("auto", Attends(2, 2)) is expected
        assert cpu_kernels.choose_dtype("auto", Loop(2, 2)) is torch.float32
    assert cpu_kernels.choose_dtype("bfloat16", Loop(2, 2)) is torch.bfloat16
    with pytest.raises(ValueError, match="must be float32, bfloat16 or auto; got 'int8'"):
        cpu_kernels.choose_dtype("int8", Loop(2, 2))


@pytest.mark.parametrize(("code", "output", "is_faster"), [(0, "1.5\n", True), (0, "1.0\n", False), (-4, "", False)])
def test_bfloat16_is_measured_once(code, output, is_faster, monkeypatch, tmp_path):
    """In another process; -4 is that of an illegal instruction."""
    calls = []

    def run(command, **options):
        calls.append(command)
        return subprocess.CompletedProcess(command, code, output, "")

    monkeypatch.setattr(cpu_kernels.constants, "HF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(cpu_kernels.subprocess, "run", run)
    assert cpu_kernels.has_fast_bfloat16() is is_faster
    assert cpu_kernels.has_fast_bfloat16() is is_faster
    assert len(calls) == 1


def test_example_of_the_guide(monkeypatch):
    monkeypatch.setenv(cpu_kernels.VARIABLE, ALWAYS)
    section = PAGE.read_text("utf-8").partition("## Faster on AMD CPUs, with any model")[2]
    example = re.search(r"```python\n(.*?)```", section, re.DOTALL).group(1)
    names: dict = {}
    exec(example, names)
    assert torch.isfinite(names["loss"]) and cpu_kernels.current() == "off"
