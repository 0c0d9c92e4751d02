"""What the checks feed a model, and how they read and compare what it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .doctor_patient import Patient

BATCH, SOURCE, LENGTH, CHOICES = 3, 6, 7, 4


def words(patient: Patient, *shape: int, seed: int = 0) -> Tensor:
    """Random ids that are no special token."""
    vocabulary = patient.config.get_text_config(decoder=True).vocab_size
    special = {0, 1, 2}
    for name, value in patient.config.to_dict().items():
        if name.endswith("_token_id"):
            special |= set(value if isinstance(value, list) else [value])
    plain = [number for number in range(min(vocabulary, 1000)) if number not in special] or list(range(vocabulary))
    dice = torch.Generator().manual_seed(seed)
    return torch.tensor(plain)[torch.randint(len(plain), shape, generator=dice)].to(patient.model.device)


def write_inputs(patient: Patient, batch: int = BATCH, seed: int = 0) -> dict[str, Tensor]:
    """A batch without padding or labels."""
    name = patient.model_class.__name__
    if "MultipleChoice" in name:
        return {"input_ids": words(patient, batch, CHOICES, LENGTH, seed=seed)}
    if not patient.is_encoder_decoder:
        return {"input_ids": words(patient, batch, LENGTH, seed=seed)}
    inputs = {"input_ids": words(patient, batch, SOURCE, seed=seed)}
    if "SequenceClassification" in name and isinstance(getattr(patient.config, "eos_token_id", None), int):
        inputs["input_ids"][:, -1] = patient.config.eos_token_id  # where Bart and its kin read the answer
    elif patient.takes("decoder_input_ids"):
        inputs["decoder_input_ids"] = words(patient, batch, LENGTH, seed=seed + 1)
    return inputs


def write_targets(patient: Patient, inputs: dict[str, Tensor], outputs: Any, seed: int = 2) -> dict[str, Tensor]:
    """Labels to go with what the model predicts, by the names that `forward` uses."""
    said = fields(outputs)
    dice = torch.Generator().manual_seed(seed)

    def classes(logits: Tensor) -> Tensor:
        if logits.shape == inputs["input_ids"].shape:  # yes or no for each token
            return torch.randint(2, logits.shape, generator=dice).to(logits.device)
        if logits.shape[-1] == 1:
            return torch.rand(logits.shape[:-1], generator=dice).to(logits.device)
        return torch.randint(logits.shape[-1], logits.shape[:-1], generator=dice).to(logits.device)

    if "start_logits" in said:
        ends = torch.randint(LENGTH, (2, len(said["start_logits"])), generator=dice).to(patient.model.device)
        return {"start_positions": ends[0], "end_positions": ends[1]}
    main = said.get("logits", said.get("prediction_logits"))
    targets = {} if main is None else {"labels": classes(main)}
    if "seq_relationship_logits" in said and patient.takes("next_sentence_label"):
        targets["next_sentence_label"] = classes(said["seq_relationship_logits"])
    return targets


def fields(outputs: Any) -> dict[str, Any]:
    """What a model returned, by name; a tuple's parts are guessed by their shape."""
    if isinstance(outputs, Mapping):
        return {name: value for name, value in outputs.items() if value is not None}
    parts = outputs if isinstance(outputs, tuple | list) else (outputs,)
    tensors = [part for part in parts if isinstance(part, Tensor)]
    names = (["loss"] if tensors and tensors[0].ndim == 0 else []) + ["logits"]
    return dict(zip(names, tensors, strict=False))


def predictions(outputs: Any) -> dict[str, Tensor]:
    """The logits, or the states of a model without a head."""
    said = {name: value for name, value in fields(outputs).items() if isinstance(value, Tensor)}
    logits = {name: value for name, value in said.items() if "logits" in name}
    return logits or {name: value for name, value in said.items() if name in ("last_hidden_state", "pooler_output")}


def main_prediction(outputs: Any) -> Tensor:
    found = predictions(outputs)
    if not found:
        raise ValueError(f"no logits and no last_hidden_state in the outputs, only {', '.join(fields(outputs))}")
    return next(iter(found.values()))


def same(found: Tensor, expected: Tensor) -> bool:
    """Equal but for rounding, measured by how much the expected values differ among themselves."""
    if found.shape != expected.shape:
        return False
    if not expected.is_floating_point():
        return torch.equal(found, expected)
    precision = torch.finfo(expected.dtype).eps
    found, expected = found.double(), expected.double()
    if not torch.equal(found.isfinite(), expected.isfinite()):
        return False
    found, expected = found[expected.isfinite()], expected[expected.isfinite()]
    if expected.numel() == 0:
        return True
    spread = expected.std(correction=0) if expected.numel() > 1 else expected.abs().max()
    allowed = precision**0.5 * spread + 32 * precision * expected.abs().max()
    return bool((found - expected).abs().max() <= allowed)


def several(names: list[str], most: int = 3) -> str:
    """A few names in a sentence, however many there are."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
