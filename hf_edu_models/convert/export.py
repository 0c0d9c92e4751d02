"""Exports a checkpoint to ONNX, OpenVINO or a program of `torch.export`, for any batch size and length.

The program takes token ids and attention masks and returns logits (or what the head returns), without a cache. It is
compared with the model at other shapes than the one it was recorded with before it is kept.
"""

from __future__ import annotations

import logging
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ..auto import reads_documents
from ..checkpoints import load_with_head, position_limit, quiet
from .onnx_scan import carry_captured_values

SHAPES = ((3, 4, 5), (1, 9, 3), (5, 7, 11))  # batch, length of text or source, length of the target
TOLERANCE = 1e-4
CHOICES = 2
Inputs = dict[str, Tensor]


@dataclass(frozen=True)
class Format:
    """A format to export to.

    Args:
        file: name of the program's file.
        packages: what writing and running it needs, beside torch.
        write: records the model with an example and the axes that may change, into a file.
        open: the program in a file, as a function from inputs to the tensors that it returns.
    """

    file: str
    packages: tuple[str, ...]
    write: Callable[[PreTrainedModel, Inputs, dict, Path], None]
    open: Callable[[Path], Callable[[Inputs], list[Tensor]]]


@dataclass(frozen=True)
class Export:
    """What `export_checkpoint` did.

    Args:
        difference: the largest difference from the model's outputs at real tokens, over all of `SHAPES`.
    """

    file: Path
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    difference: float


def export_checkpoint(source: str, destination: Path, to: str, trust_remote_code: bool = False) -> Export:
    """Save a checkpoint's program, with its configuration and tokenizer beside it; or nothing, if the results differ.

    Args:
        source: a run, a folder or a Hub id.
        destination: a folder; a program that is there already is replaced.
        to: a key of `_FORMATS`.
    """
    if to not in _FORMATS:
        raise ValueError(f"cannot export to {to!r}; choose one of {', '.join(_FORMATS)}")
    missing = [package for package in _FORMATS[to].packages if find_spec(package) is None]
    if missing:
        raise ValueError(f"exporting to {to} needs {', '.join(missing)}; pip install {' '.join(missing)}")
    model, tokenizer = load_with_head(source, trust_remote_code)
    destination = Path(destination)
    unfinished = destination / f".{_FORMATS[to].file}.{os.getpid()}.unfinished"
    unfinished.mkdir(parents=True)
    try:
        done = export_model(model, unfinished, to)
        for file in unfinished.iterdir():
            file.replace(destination / file.name)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    model.config.save_pretrained(destination)
    tokenizer.save_pretrained(destination)
    return Export(destination / done.file.name, done.inputs, done.outputs, done.difference)


@torch.no_grad()
def export_model(model: PreTrainedModel, folder: Path, to: str) -> Export:
    """Write the program of a model in evaluation mode, and compare its results with the model's."""
    format, file = _FORMATS[to], Path(folder) / _FORMATS[to].file
    example = _example_inputs(model, 2, 6, 8)
    any_size = torch.export.Dim.DYNAMIC
    axes = {name: {0: any_size, ids.ndim - 1: any_size} for name, ids in example.items()}
    if reads_documents(model.config.model_type):
        axes = {name: dict.fromkeys(range(3), any_size) for name in example}
    torch.compiler.reset()  # what was recorded in this process before may put guards into the program
    with quiet(), _without_cache(model):
        format.write(model, example, axes, file)
        program, differences = format.open(file), []
        for batch, *lengths in SHAPES:
            inputs = _example_inputs(model, batch, *lengths)
            expected = model(**inputs)
            pairs = zip(program(inputs), _tensors(expected), strict=True)
            differences += [_difference(found, tensor, inputs) for found, tensor in pairs]
    difference = max(differences)
    if not all(number <= TOLERANCE for number in differences):  # NaN is not, either
        raise ValueError(
            f"the exported {type(model).__name__} differs from the model by {difference:.1e}, more than {TOLERANCE}; "
            "nothing was saved"
        )
    return Export(file, tuple(example), tuple(expected), difference)


@contextmanager
def _without_cache(model: PreTrainedModel) -> Iterator[None]:
    settings = {"use_cache": model.config.use_cache} if hasattr(model.config, "use_cache") else {}
    try:
        for name in settings:
            setattr(model.config, name, False)
        yield
    finally:
        for name, value in settings.items():
            setattr(model.config, name, value)


def _example_inputs(model: PreTrainedModel, batch: int, *lengths: int) -> Inputs:
    """Random token ids with a padding mask for each, in the names that the model's `forward` has."""
    names = ["input_ids", "decoder_input_ids"] if model.config.is_encoder_decoder else ["input_ids"]
    limit = position_limit(model.config) or max(lengths)
    between = [CHOICES] if "MultipleChoice" in type(model).__name__ else []
    if reads_documents(model.config.model_type):
        between = [batch + 1]  # sentences: another number for each batch
    inputs = {}
    for name, length in zip(names, lengths, strict=False):
        shape = (batch, *between, min(length, limit))
        inputs[name] = torch.randint(model.config.vocab_size, shape, generator=torch.Generator().manual_seed(batch))
        mask = torch.ones_like(inputs[name])
        mask[-1, ..., -1] = 0
        inputs[name.replace("input_ids", "attention_mask")] = mask
    return inputs


def _tensors(outputs: Any) -> list[Tensor]:
    """All tensors of a model's output, in order."""
    return [leaf for leaf in torch.utils._pytree.tree_leaves(tuple(outputs.values())) if isinstance(leaf, Tensor)]


def _difference(found: Tensor, expected: Tensor, inputs: Inputs) -> float:
    """The largest difference at real tokens: what a model computes at padding may differ between implementations."""
    if found.shape != expected.shape:
        return float("inf")
    difference = (found - expected).abs()
    for name, mask in inputs.items():
        if name.endswith("attention_mask") and difference.shape[: mask.ndim] == mask.shape:
            difference = difference[mask == 1]
    return float(difference.max())


def _write_onnx(model: PreTrainedModel, example: Inputs, axes: dict, file: Path) -> None:
    names = [name for name, value in model(**example).items() if isinstance(value, Tensor)]
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns that torchvision is missing
    with redirect_stdout(StringIO()), warnings.catch_warnings():  # progress of every step
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            model, (), kwargs=example, input_names=list(example), dynamic_shapes=axes, dynamo=True, verbose=False
        )
    assert program is not None  # it is with `dynamo=True`
    for output, name in zip(program.model.graph.outputs, names, strict=False):
        output.name = name
    program.save(str(file))


def _open_onnx(file: Path) -> Callable[[Inputs], list[Tensor]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    names = [field.name for field in session.get_inputs()]

    def run(inputs: Inputs) -> list[Tensor]:
        return [torch.from_numpy(array) for array in session.run(None, {name: inputs[name].numpy() for name in names})]

    return run


def _write_openvino(model: PreTrainedModel, example: Inputs, axes: dict, file: Path) -> None:
    """Through ONNX: OpenVINO does not convert the loops of `torch.export`."""
    import onnx
    import openvino

    with TemporaryDirectory() as folder:
        recorded = Path(folder) / "model.onnx"
        _write_onnx(model, example, axes, recorded)
        graph = onnx.load(recorded)
        carry_captured_values(graph)
        onnx.save(graph, recorded)
        program = openvino.convert_model(recorded)
    openvino.save_model(program, file, compress_to_fp16=False)


def _open_openvino(file: Path) -> Callable[[Inputs], list[Tensor]]:
    import openvino

    # Where a CPU computes in bfloat16, OpenVINO does so by default.
    program = openvino.Core().compile_model(file, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

    def run(inputs: Inputs) -> list[Tensor]:
        found = program({field.any_name: inputs[field.any_name].numpy() for field in program.inputs})
        return [torch.from_numpy(found[output]) for output in program.outputs]

    return run


def _write_torch(model: PreTrainedModel, example: Inputs, axes: dict, file: Path) -> None:
    torch.export.save(torch.export.export(model, (), example, dynamic_shapes=axes), file)


def _open_torch(file: Path) -> Callable[[Inputs], list[Tensor]]:
    program = torch.export.load(file).module()
    return lambda inputs: _tensors(program(**inputs))


_FORMATS = {
    "onnx": Format("model.onnx", ("onnx", "onnxscript", "onnxruntime"), _write_onnx, _open_onnx),
    "openvino": Format("model.xml", ("onnx", "onnxscript", "openvino"), _write_openvino, _open_openvino),
    "torch": Format("model.pt2", (), _write_torch, _open_torch),
}
