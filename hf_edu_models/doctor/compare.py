"""Inputs and labels for a model under test, and comparison of its outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..auto import reads_documents
from .subject import ModelUnderTest

BATCH, SOURCE, LENGTH, CHOICES = 3, 6, 7, 4


def random_ids(subject: ModelUnderTest, *shape: int, seed: int = 0) -> Tensor:
    """Random token ids without special tokens."""
    vocab_size = subject.config.get_text_config(decoder=True).vocab_size
    special = {0, 1, 2}
    for name, value in subject.config.to_dict().items():
        if name.endswith("_token_id"):
            special |= set(value if isinstance(value, list) else [value])
    ids = [number for number in range(min(vocab_size, 1000)) if number not in special] or list(range(vocab_size))
    generator = torch.Generator().manual_seed(seed)
    return torch.tensor(ids)[torch.randint(len(ids), shape, generator=generator)].to(subject.model.device)


def make_inputs(subject: ModelUnderTest, batch: int = BATCH, seed: int = 0) -> dict[str, Tensor]:
    """A batch without padding and labels."""
    name = subject.model_class.__name__
    if "MultipleChoice" in name or reads_documents(subject.config.model_type):
        return {"input_ids": random_ids(subject, batch, CHOICES, LENGTH, seed=seed)}
    if not subject.is_encoder_decoder:
        return {"input_ids": random_ids(subject, batch, LENGTH, seed=seed)}
    inputs = {"input_ids": random_ids(subject, batch, SOURCE, seed=seed)}
    if "SequenceClassification" in name and isinstance(getattr(subject.config, "eos_token_id", None), int):
        inputs["input_ids"][:, -1] = subject.config.eos_token_id  # Bart and similar models classify its hidden state
    elif subject.accepts("decoder_input_ids"):
        inputs["decoder_input_ids"] = random_ids(subject, batch, LENGTH, seed=seed + 1)
    return inputs


def make_labelled_batch(subject: ModelUnderTest, batch: int = BATCH) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Inputs, and random labels for the logits that the model returns, as far as `forward` accepts them in any way."""
    inputs = make_inputs(subject, batch)
    outputs = output_fields(subject.model(**inputs))
    generator = torch.Generator().manual_seed(2)

    def draw(high: int, shape: tuple[int, ...]) -> Tensor:
        return torch.randint(high, shape, generator=generator).to(subject.model.device)

    def classes(logits: Tensor) -> Tensor:
        if logits.shape == inputs["input_ids"].shape:  # binary for each token
            return draw(2, logits.shape)
        if logits.shape[-1] == 1:  # regression
            return torch.rand(logits.shape[:-1], generator=generator).to(subject.model.device)
        return draw(logits.shape[-1], logits.shape[:-1])

    if "start_logits" in outputs:
        start, end = draw(LENGTH, (2, len(outputs["start_logits"])))
        labels = {"start_positions": start, "end_positions": end}
    else:
        logits = outputs.get("logits", outputs.get("prediction_logits"))
        labels = {} if logits is None else {"labels": classes(logits)}
        if "seq_relationship_logits" in outputs and subject.accepts("next_sentence_label"):
            labels["next_sentence_label"] = classes(outputs["seq_relationship_logits"])
    return inputs, {name: value for name, value in labels.items() if subject.accepts(name) or subject.accepts_kwargs}


def output_fields(outputs: Any) -> dict[str, Any]:
    """The outputs of a model by name; loss and logits are recognised in a tuple by their shapes."""
    if isinstance(outputs, Mapping):
        return {name: value for name, value in outputs.items() if value is not None}
    parts = outputs if isinstance(outputs, tuple | list) else (outputs,)
    tensors = [part for part in parts if isinstance(part, Tensor)]
    names = (["loss"] if tensors and tensors[0].ndim == 0 else []) + ["logits"]
    return dict(zip(names, tensors, strict=False))


def predictions(outputs: Any) -> dict[str, Tensor]:
    """The logits, or the hidden states of a model without a head."""
    tensors = {name: value for name, value in output_fields(outputs).items() if isinstance(value, Tensor)}
    logits = {name: value for name, value in tensors.items() if "logits" in name}
    return logits or {name: value for name, value in tensors.items() if name in ("last_hidden_state", "pooler_output")}


def main_prediction(outputs: Any) -> Tensor:
    found = predictions(outputs)
    if not found:
        raise ValueError(f"no logits and no last_hidden_state in the outputs, only {', '.join(output_fields(outputs))}")
    return next(iter(found.values()))


def is_close(actual: Tensor, expected: Tensor) -> bool:
    """Equal up to rounding errors, relative to the standard deviation of the expected values."""
    if actual.shape != expected.shape:
        return False
    if not expected.is_floating_point():
        return torch.equal(actual, expected)
    precision = torch.finfo(expected.dtype).eps
    actual, expected, finite = actual.double(), expected.double(), expected.isfinite()
    if not torch.equal(actual.isfinite(), finite):
        return False
    actual, expected = actual[finite], expected[finite]
    if expected.numel() == 0:
        return True
    spread = expected.std(correction=0) if expected.numel() > 1 else expected.abs().max()
    allowed = precision**0.5 * spread + 32 * precision * expected.abs().max()
    return bool((actual - expected).abs().max() <= allowed)


def join_names(names: list[str], most: int = 3) -> str:
    """The first names of a list, and how many more there are."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
