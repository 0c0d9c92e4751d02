"""Checks of what a model learns from: labels, the loss and its scale, gradients."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.cache_utils import Cache
from transformers.utils.generic import find_labels

from .doctor_compare import BATCH, fields, main_prediction, same, several, write_inputs, write_targets
from .doctor_patient import Patient
from .doctor_report import Verdict, fail, ok, skipped, warning

NO_LABELS = "the class predicts nothing that labels could be given for"


def targets_of(patient: Patient, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Labels for these inputs, as far as `forward` takes them in any way."""
    with torch.no_grad():
        targets = write_targets(patient, inputs, patient.model(**inputs))
    return {name: value for name, value in targets.items() if patient.takes(name) or patient.takes_anything}


def loss_of(patient: Patient, inputs: dict[str, Tensor], **extra) -> Tensor | None:
    return fields(patient.model(**inputs, **extra)).get("loss")


def check_labels(patient: Patient) -> Verdict:
    inputs = write_inputs(patient)
    targets = targets_of(patient, inputs)
    known = find_labels(patient.model_class)
    with torch.no_grad():
        loss = loss_of(patient, inputs, **targets) if targets else None
    if loss is None:
        return fail("forward takes labels but returns no loss for them") if known and targets else skipped(NO_LABELS)
    hidden = [name for name in targets if name not in known]
    if hidden:
        return fail(f"{several(hidden)} hides in **kwargs, so Trainer finds no labels and computes no metrics")
    heads = [name for name in fields(patient.model(**inputs)) if "logits" in name]
    extra = [name for name in known if name not in targets]
    if extra and len(heads) < len(known):
        return warning(
            f"Trainer takes {several(extra)} for labels that every batch has, and evaluates nothing without them",
            f'read {several(extra)} from **kwargs, or set label_names=["labels"] in TrainingArguments',
        )
    return ok(f"Trainer finds {several(known)}")


def check_evaluation(patient: Patient) -> Verdict:
    """What Trainer's evaluation would gather besides the logits."""
    inputs = write_inputs(patient)
    targets = targets_of(patient, inputs)
    with torch.no_grad():
        said = fields(patient.model(**inputs, **targets))
    if "loss" not in said:
        return skipped(NO_LABELS)
    ignored = getattr(patient.config, "keys_to_ignore_at_inference", ["past_key_values"])
    gathered = {name: value for name, value in said.items() if name not in ignored and "logits" not in name}
    gathered.pop("loss")
    wrong = [name for name, value in gathered.items() if not has_batch_first(value)]
    if wrong:
        return fail(f"evaluation gathers {several(wrong)}, which is not batch first: an error or garbage")
    large = [name for name in gathered if "hidden_state" in name or "attentions" in name]
    if large:
        return warning(f"evaluation keeps {several(large)} of every batch beside the logits, which costs memory")
    return ok("evaluation gathers the predictions and nothing that is large or not batch first")


def has_batch_first(value) -> bool:
    if isinstance(value, Cache):
        return False
    if isinstance(value, tuple | list):
        return all(has_batch_first(each) for each in value)
    return not isinstance(value, Tensor) or value.ndim == 0 or value.shape[0] == BATCH


def check_shift(patient: Patient) -> Verdict:
    """The loss must be the cross-entropy at the right distance, and count no label of -100."""
    inputs = write_inputs(patient)
    targets = targets_of(patient, inputs)
    if "labels" not in targets or targets["labels"].ndim < 2 or targets["labels"].is_floating_point():
        return skipped("no label for each token")
    if targets["labels"].shape == main_prediction(patient.model(**inputs)).shape:
        return skipped("yes or no for each token, which is no choice among classes")
    full = targets["labels"]
    holed = full.clone()
    holed[0, 2:4], holed[1, 1:] = -100, -100
    wanted = 1 if patient.is_decoder_only else 0
    with torch.no_grad():
        found = {
            kind: shifts_of(patient, inputs, targets | {"labels": each})
            for kind, each in (("full", full), ("holed", holed))
        }
    if wanted in found["full"] and wanted in found["holed"]:
        return ok(f"cross-entropy {'with the next word' if wanted else 'in place'}; labels of -100 do not count")
    if wanted in found["full"]:
        return fail(
            "labels of -100 change the loss", "give cross_entropy ignore_index=-100 and divide by the labels that count"
        )
    return wrong_shift(found["full"], wanted)


def wrong_shift(found: list[int], wanted: int) -> Verdict:
    if not found:
        return warning(
            "the loss is not the plain cross-entropy of the logits, so its shift cannot be told",
            "fine for a loss with smoothing or several parts; else compare it with cross_entropy(logits, labels)",
        )
    if found[0] > wanted:
        return fail(f"labels are moved by {found[0]} where {wanted} is right: the loss shifts them once too often")
    return fail(
        "labels are not moved: each word is asked to predict itself",
        "compare logits[:, :-1] with labels[:, 1:], as self.loss_function does in a causal language model",
    )


def shifts_of(patient: Patient, inputs: dict, targets: dict) -> list[int]:
    """By how many places labels and logits are moved against each other, where a plain cross-entropy explains it."""
    outputs = patient.model(**inputs, **targets)
    logits, labels = main_prediction(outputs), targets["labels"]
    parts = fields(outputs)
    loss = parts["loss"]
    if "next_sentence_label" in targets:  # a second loss was added
        loss = loss - F.cross_entropy(parts["seq_relationship_logits"], targets["next_sentence_label"])
    return [shift for shift in range(3) if same(loss, moved_loss(logits, labels, shift))]


def moved_loss(logits: Tensor, labels: Tensor, shift: int) -> Tensor:
    logits, labels = logits[:, : logits.shape[1] - shift], labels[:, shift:]
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten()).to(logits.dtype)


def check_decoder_start(patient: Patient) -> Verdict:
    """With labels alone the decoder must read them moved one to the right."""
    if not patient.is_encoder_decoder or not patient.generates or not patient.takes("labels"):
        return skipped("no encoder-decoder with labels")
    inputs = write_inputs(patient)
    labels = targets_of(patient, inputs)["labels"]
    start = decoder_start(patient)
    if start is None:
        return fail("neither the configuration nor the generation settings say where the decoder starts")
    moved = torch.cat([torch.full_like(labels[:, :1], start), labels[:, :-1]], dim=1)
    del inputs["decoder_input_ids"]
    with torch.no_grad():
        found = patient.model(**inputs, labels=labels).logits
        expected = patient.model(**inputs, decoder_input_ids=moved).logits
    if not same(found, expected):
        return fail("with labels alone, the decoder does not read the start token and then the labels")
    return ok("with labels alone, the decoder reads the start token and then the labels")


def decoder_start(patient: Patient) -> int | None:
    """What `generate` would begin with."""
    places = (patient.config, patient.model.generation_config)
    names = ("decoder_start_token_id", "bos_token_id")
    starts = [getattr(place, name, None) for name in names for place in places]
    return next((start for start in starts if start is not None), None)


def check_accumulation(patient: Patient) -> Verdict:
    """Four small batches must weigh what one large one does, by the rule that Trainer follows."""
    inputs = write_inputs(patient, batch=8)
    targets = targets_of(patient, inputs)
    if not targets:
        return skipped(NO_LABELS)
    if "labels" not in targets or not getattr(patient.model, "accepts_loss_kwargs", patient.takes_anything):
        return ok("Trainer averages the small batches itself")
    if targets["labels"].ndim > 1 and not targets["labels"].is_floating_point():
        targets["labels"][2:5, 2:] = -100  # batches with unequal numbers of labels
    with torch.no_grad():
        whole, half = (loss_of(patient, inputs, **targets, num_items_in_batch=items(count)) for count in (20, 40))
        parts = [piece_loss(patient, inputs, targets, slice(start, start + 2)) for start in range(0, 8, 2)]
    if same(sum(parts), whole) and same(half * 2, whole):
        return ok("four small batches weigh what one large one does")
    what = "the loss ignores num_items_in_batch, which Trainer hands over: accumulated steps are too large"
    if patient.is_transformers_own:
        return warning(what, "not yours to mend: set `model.accepts_loss_kwargs = False` before you make the Trainer")
    return fail(what)


def items(count: int) -> Tensor:
    return torch.tensor(count)


def piece_loss(patient: Patient, inputs: dict, targets: dict, rows: slice) -> Tensor:
    piece = {name: tensor[rows] for name, tensor in (inputs | targets).items()}
    return loss_of(patient, piece, num_items_in_batch=items(20))


def check_gradients(patient: Patient) -> Verdict:
    patient.drop_copy()  # gradients need the room
    inputs = write_inputs(patient)
    extra = {"use_cache": False} if patient.takes("use_cache") else {}
    outputs = patient.model(**inputs, **targets_of(patient, inputs), **extra)
    loss = fields(outputs).get("loss")
    if loss is None:  # a body: everything that it says counts
        tensors = [value for value in fields(outputs).values() if isinstance(value, Tensor) and value.requires_grad]
        loss = sum(tensor.float().square().sum() for tensor in tensors)
    frozen = frozen_names(patient)
    named = patient.model.named_parameters()
    trainable = {name: each for name, each in named if each.requires_grad and name not in frozen}
    if not isinstance(loss, Tensor) or not loss.requires_grad:
        return fail("the loss has no gradient at all", "look for .detach(), .item() or torch.no_grad() in forward")
    gradients = torch.autograd.grad(loss, list(trainable.values()), allow_unused=True)
    unreached = [name for name, each in zip(trainable, gradients, strict=True) if each is None]
    if unreached:
        return fail(f"no gradient reaches {several(unreached)}")
    broken = [name for name, each in zip(trainable, gradients, strict=True) if not each.isfinite().all()]
    if broken:
        return fail(f"the gradient of {several(broken)} is NaN or infinite", "look for a division or a root at zero")
    return ok(f"reach all {len(trainable)} trainable parameters")


def frozen_names(patient: Patient) -> set[str]:
    """What the class freezes when it is built; loading forgets that for some of transformers' models."""
    with torch.device("meta"):
        built = patient.model_class(copy.deepcopy(patient.config))
    return {name for name, each in built.named_parameters() if not each.requires_grad}
