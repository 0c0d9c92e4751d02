"""Checks of training: labels, the loss and its scale, gradients."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.cache_utils import Cache
from transformers.utils.generic import find_labels

from .compare import BATCH, is_close, join_names, main_prediction, make_labelled_batch, output_fields
from .outputs import NEEDS_FORWARD
from .report import Finding, check, fail, ok, skipped, warning
from .subject import ModelUnderTest

NO_LABELS = "the class has no logits to give labels for"


@check("labels", "name `labels` as an explicit parameter of forward", NEEDS_FORWARD)
def check_label_names(subject: ModelUnderTest) -> Finding:
    inputs, labels = make_labelled_batch(subject)
    found = find_labels(subject.model_class)
    if not labels or "loss" not in output_fields(subject.model(**inputs, **labels)):
        return fail("forward accepts labels but returns no loss") if found and labels else skipped(NO_LABELS)
    hidden = [name for name in labels if name not in found]
    if hidden:
        return fail(f"{join_names(hidden)} is in **kwargs, so Trainer finds no labels and computes no metrics")
    heads = [name for name in output_fields(subject.model(**inputs)) if "logits" in name]
    extra = [name for name in found if name not in labels]
    if extra and len(heads) < len(found):
        return warning(
            f"Trainer treats {join_names(extra)} as labels of every batch, and evaluates nothing without them",
            f'read {join_names(extra)} from **kwargs, or set label_names=["labels"] in TrainingArguments',
        )
    return ok(f"Trainer finds {join_names(found)}")


@check(
    "evaluation",
    'write `keys_to_ignore_at_inference = ["past_key_values", "encoder_last_hidden_state"]` in the configuration, '
    "with every other output that is not a prediction",
    NEEDS_FORWARD,
)
def check_evaluation_outputs(subject: ModelUnderTest) -> Finding:
    """What the evaluation of Trainer gathers besides the logits."""
    inputs, labels = make_labelled_batch(subject)
    outputs = output_fields(subject.model(**inputs, **labels))
    if outputs.pop("loss", None) is None:
        return skipped(NO_LABELS)
    ignored = getattr(subject.config, "keys_to_ignore_at_inference", ["past_key_values"])
    gathered = {name: value for name, value in outputs.items() if name not in ignored and "logits" not in name}
    wrong = [name for name, value in gathered.items() if not _is_batch_first(value)]
    if wrong:
        return fail(f"evaluation gathers {join_names(wrong)}, which is not batch first: an error or garbage")
    large = [name for name in gathered if "hidden_state" in name or "attentions" in name]
    if large:
        return warning(f"evaluation gathers {join_names(large)} of every batch besides the logits, which costs memory")
    return ok("evaluation gathers the predictions, and nothing large or not batch first")


def _is_batch_first(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_batch_first(each) for each in value)
    if isinstance(value, Tensor):
        return value.ndim == 0 or value.shape[0] == BATCH
    return not isinstance(value, Cache)


@check(
    "loss",
    "use fixed_cross_entropy on logits and labels without shifting them; self.loss_function is the causal loss, which "
    "shifts the labels itself",
    NEEDS_FORWARD,
)
def check_label_shift(subject: ModelUnderTest) -> Finding:
    """The loss must be the cross-entropy with the right shift, and ignore labels of -100."""
    inputs, labels = make_labelled_batch(subject)
    full = labels.get("labels")
    if full is None or full.ndim < 2 or full.is_floating_point():
        return skipped("no labels for each token")
    if full.shape == main_prediction(subject.model(**inputs)).shape:
        return skipped("binary labels for each token, so no cross-entropy over classes")
    masked = full.clone()
    masked[0, 2:4], masked[1, 1:] = -100, -100
    right = 1 if subject.is_decoder_only else 0
    shifts, masked_shifts = (_explaining_shifts(subject, inputs, labels | {"labels": each}) for each in (full, masked))
    if right in shifts and right in masked_shifts:
        return ok(f"cross-entropy with {'shifted' if right else 'unshifted'} labels; labels of -100 are ignored")
    if right in shifts:
        remedy = "use cross_entropy with ignore_index=-100, and divide by the number of labels that are not -100"
        return fail("labels of -100 change the loss", remedy)
    if not shifts:
        return warning(
            "the loss is not the cross-entropy of the logits, so its shift cannot be checked",
            "fine for label smoothing or a sum of losses; otherwise compare it with cross_entropy(logits, labels)",
        )
    if shifts[0] > right:
        return fail(f"labels are shifted by {shifts[0]} where {right} is right: the loss shifts them once too often")
    return fail(
        "labels are not shifted: each token has to predict itself",
        "compare logits[:, :-1] with labels[:, 1:], as self.loss_function does in a causal language model",
    )


def _explaining_shifts(subject: ModelUnderTest, inputs: dict, labels: dict) -> list[int]:
    """The shifts between logits and labels for which the loss is a plain cross-entropy."""
    outputs = output_fields(subject.model(**inputs, **labels))
    logits, loss = main_prediction(outputs), outputs["loss"]
    if "next_sentence_label" in labels:  # the sum of two losses
        loss = loss - F.cross_entropy(outputs["seq_relationship_logits"], labels["next_sentence_label"])

    def cross_entropy(shift: int) -> Tensor:
        shifted = logits[:, : logits.shape[1] - shift].flatten(0, 1).float()
        return F.cross_entropy(shifted, labels["labels"][:, shift:].flatten()).to(logits.dtype)

    return [shift for shift in range(3) if is_close(loss, cross_entropy(shift))]


@check(
    "decoder start",
    "put decoder_start_token_id before the labels and drop the last one, once, in forward",
    NEEDS_FORWARD,
)
def check_decoder_start(subject: ModelUnderTest) -> Finding:
    """With labels alone the decoder input must be the labels shifted right."""
    if not subject.is_encoder_decoder or not subject.can_generate or not subject.accepts("labels"):
        return skipped("no encoder-decoder with labels")
    inputs, labels_by_name = make_labelled_batch(subject)
    labels, start = labels_by_name["labels"], _decoder_start_token_id(subject)
    if start is None:
        return fail("neither the configuration nor the generation config has a decoder_start_token_id")
    shifted = torch.cat([torch.full_like(labels[:, :1], start), labels[:, :-1]], dim=1)
    actual = subject.model(input_ids=inputs["input_ids"], labels=labels).logits
    expected = subject.model(input_ids=inputs["input_ids"], decoder_input_ids=shifted).logits
    if not is_close(actual, expected):
        return fail("with labels alone, the decoder input is not the start token and then the labels")
    return ok("with labels alone, the decoder input is the start token and then the labels")


def _decoder_start_token_id(subject: ModelUnderTest) -> int | None:
    """The token id that `generate` starts with."""
    configs = (subject.config, subject.model.generation_config)
    starts = [getattr(each, name, None) for name in ("decoder_start_token_id", "bos_token_id") for each in configs]
    return next((start for start in starts if start is not None), None)


@check(
    "accumulation",
    "divide the summed loss by num_items_in_batch (fixed_cross_entropy does), or set accepts_loss_kwargs = False",
    NEEDS_FORWARD,
)
def check_gradient_accumulation(subject: ModelUnderTest) -> Finding:
    """Four accumulated batches must give the loss of one large batch, by the rule of Trainer."""
    inputs, labels = make_labelled_batch(subject, batch=8)
    if not labels:
        return skipped(NO_LABELS)
    if "labels" not in labels or not getattr(subject.model, "accepts_loss_kwargs", subject.accepts_kwargs):
        return ok("Trainer averages over the accumulated batches itself")
    if labels["labels"].ndim > 1 and not labels["labels"].is_floating_point():
        labels["labels"][2:5, 2:] = -100  # so that the batches have unequal numbers of labels

    def loss(rows: slice, num_items: int) -> Tensor:
        batch = {name: tensor[rows] for name, tensor in (inputs | labels).items()}
        return output_fields(subject.model(**batch, num_items_in_batch=torch.tensor(num_items)))["loss"]

    whole, half = loss(slice(None), 20), loss(slice(None), 40)
    accumulated = torch.stack([loss(slice(start, start + 2), 20) for start in range(0, 8, 2)]).sum()
    if is_close(accumulated, whole) and is_close(half * 2, whole):
        return ok("four accumulated batches give the loss of one large batch")
    what = "the loss ignores num_items_in_batch, which Trainer passes: with accumulation the updates are too large"
    if not subject.is_custom:
        return warning(what, "a bug of transformers: set `model.accepts_loss_kwargs = False` before you create Trainer")
    return fail(what)


@check("gradients", "use the parameter in forward, delete it, or freeze it with requires_grad_(False)", NEEDS_FORWARD)
@torch.enable_grad()
def check_gradients(subject: ModelUnderTest) -> Finding:
    subject.drop_copy()  # the gradients need its memory
    inputs, labels = make_labelled_batch(subject)
    extra = {"use_cache": False} if subject.accepts("use_cache") else {}
    outputs = output_fields(subject.model(**inputs, **labels, **extra))
    loss = outputs.get("loss")
    if loss is None:  # a base model: any function of all outputs
        tensors = [value for value in outputs.values() if isinstance(value, Tensor) and value.requires_grad]
        loss = sum(tensor.float().square().sum() for tensor in tensors)
    if not isinstance(loss, Tensor) or not loss.requires_grad:
        return fail("the loss has no gradient at all", "look for .detach(), .item() or torch.no_grad() in forward")
    with torch.device("meta"):  # loading forgets for some of transformers' models what the class freezes
        frozen = {name for name, each in subject.fresh().named_parameters() if not each.requires_grad}
    named = subject.model.named_parameters()
    trainable = {name: each for name, each in named if each.requires_grad and name not in frozen}
    values = torch.autograd.grad(loss, list(trainable.values()), allow_unused=True)
    gradients = dict(zip(trainable, values, strict=True))
    unused = [name for name, gradient in gradients.items() if gradient is None]
    if unused:
        return fail(f"no gradient for {join_names(unused)}")
    broken = [name for name, gradient in gradients.items() if not gradient.isfinite().all()]
    if broken:
        return fail(f"the gradient of {join_names(broken)} is NaN or infinite", "look for a division or root of zero")
    return ok(f"all {len(trainable)} trainable parameters have gradients")
