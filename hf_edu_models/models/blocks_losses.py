"""Losses that are right under gradient accumulation and with several processes, and never hold the logits twice.

Trainer hands `num_items_in_batch`, the number of labels in all the batches of one update; dividing the sum by it makes
four batches of 8 equal one of 32. Without it the loss is the mean.

Shapes: P labelled positions, D hidden size, V vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .blocks_checks import check_labels


class LinearCrossEntropy(torch.autograd.Function):
    """Cross-entropy of a linear layer, a chunk of positions at a time.

    Each chunk's gradient is taken while its logits are at hand, so backward only scales what is ready: no position's
    logits are computed twice, and no more than one chunk of them exists.
    """

    @staticmethod
    def forward(ctx, hidden_states, weight, bias, labels, smoothing, chunk_size):
        needs_grad = any(ctx.needs_input_grad)
        hidden_grad = torch.empty_like(hidden_states) if needs_grad else None  # (P, D)
        weight_grad = torch.zeros_like(weight) if needs_grad else None  # (V, D)
        bias_grad = torch.zeros_like(bias) if needs_grad and bias is not None else None  # (V,)
        mean_word = weight.mean(dim=0, keepdim=True), None if bias is None else bias.mean(dim=0, keepdim=True)
        loss = hidden_states.new_zeros((), dtype=torch.promote_types(hidden_states.dtype, torch.float32))
        for start in range(0, len(labels), chunk_size):
            chunk = slice(start, start + chunk_size)
            wanted = labels[chunk, None]
            logits = F.linear(hidden_states[chunk], weight, bias).to(loss.dtype)
            # In place from here on: shift, exponentiate, divide. What is left is the softmax.
            highest = logits.amax(dim=-1, keepdim=True)
            logits -= highest
            aim = (1 - smoothing) * logits.gather(1, wanted)
            if smoothing:
                aim += smoothing * (F.linear(hidden_states[chunk], *mean_word).to(loss.dtype) - highest)
            totals = logits.exp_().sum(dim=-1, keepdim=True)
            loss += (totals.log() - aim).sum()
            if needs_grad:
                logits_grad = logits.div_(totals)
                logits_grad.scatter_add_(1, wanted, torch.full_like(totals, smoothing - 1.0))
                logits_grad = logits_grad.to(weight.dtype)
                hidden_grad[chunk] = logits_grad @ weight
                weight_grad.addmm_(logits_grad.t(), hidden_states[chunk].to(weight.dtype))
                if bias is not None:
                    bias_grad += logits_grad.sum(dim=0)
        if needs_grad and smoothing:
            # What is spread evenly pulls every word alike, so it is taken off sums, not off the logits.
            hidden_grad -= smoothing * mean_word[0]
            weight_grad -= smoothing / len(weight) * hidden_states.sum(dim=0)
            if bias is not None:
                bias_grad -= smoothing * len(labels) / len(weight)
        ctx.save_for_backward(hidden_grad, weight_grad, bias_grad)
        return loss

    @staticmethod
    def backward(ctx, loss_grad):
        grads = [None if grad is None else grad * loss_grad.to(grad.dtype) for grad in ctx.saved_tensors]
        return *grads, None, None, None


def token_loss(
    hidden_states: Tensor,
    lm_head: nn.Linear,
    labels: Tensor,
    num_items_in_batch=None,
    label_smoothing: float = 0.0,
    chunk_size: int = 1024,
) -> Tensor:
    """Cross-entropy of `lm_head(hidden_states)` at the positions whose label is not -100."""
    check_labels(labels, lm_head.out_features)
    labels = labels.reshape(-1).to(hidden_states.device)
    counted = (labels != -100).nonzero().squeeze(1)  # (P,)
    hidden_states = hidden_states.reshape(-1, hidden_states.shape[-1])[counted]  # (P, D)
    loss = LinearCrossEntropy.apply(
        hidden_states, lm_head.weight, lm_head.bias, labels[counted], label_smoothing, chunk_size
    )
    return loss / divisor(len(counted), num_items_in_batch, loss)


def divisor(count: int, num_items_in_batch, loss: Tensor):
    if num_items_in_batch is None:
        return max(count, 1)
    return num_items_in_batch.to(loss.device) if torch.is_tensor(num_items_in_batch) else num_items_in_batch


def predict_words(
    features: Tensor,
    lm_head: nn.Linear,
    labels: Tensor | None,
    skip_logits: bool,
    num_items_in_batch=None,
    label_smoothing: float = 0.0,
) -> tuple[Tensor | None, Tensor | None]:
    """Loss and logits, each where it is wanted: logits of every position are most of a training step's memory."""
    if skip_logits and labels is not None:
        return token_loss(features, lm_head, labels, num_items_in_batch, label_smoothing), None
    logits = lm_head(features)
    return None if labels is None else logits_loss(logits, labels, num_items_in_batch, label_smoothing), logits


def next_words(labels: Tensor | None, shift_labels: Tensor | None = None) -> Tensor | None:
    """What each position of a language model must predict: the label one place on, and nothing at the end.

    `shift_labels` is that already. It is no parameter of a model's `forward`, because Trainer takes every parameter
    with "label" in its name for one that each batch has.
    """
    if shift_labels is not None or labels is None:
        return shift_labels
    return F.pad(labels[:, 1:], (0, 1), value=-100)


def logits_loss(logits: Tensor, labels: Tensor, num_items_in_batch=None, label_smoothing: float = 0.0) -> Tensor:
    """The same cross-entropy where the logits are wanted anyway."""
    check_labels(labels, logits.shape[-1])
    labels = labels.reshape(-1).to(logits.device)
    logits = logits.reshape(-1, logits.shape[-1]).to(torch.promote_types(logits.dtype, torch.float32))
    loss = F.cross_entropy(logits, labels, ignore_index=-100, reduction="sum", label_smoothing=label_smoothing)
    return loss / divisor(int((labels != -100).sum()), num_items_in_batch, loss)


def classification_loss(logits: Tensor, labels: Tensor, config, num_items_in_batch=None) -> Tensor:
    """The loss of a sequence classifier, by `config.problem_type` or, as transformers does, by the labels' kind."""
    if config.problem_type is None:
        config.problem_type = guess_problem_type(labels, config.num_labels)
    if config.problem_type == "single_label_classification":
        return logits_loss(logits, labels, num_items_in_batch)
    labels = labels.to(logits.device, logits.dtype)
    logits = logits.reshape_as(labels)
    if config.problem_type == "regression":
        loss = F.mse_loss(logits, labels, reduction="sum")
    else:
        loss = F.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
    return loss / divisor(labels.numel(), num_items_in_batch, loss)


def guess_problem_type(labels: Tensor, num_labels: int) -> str:
    if num_labels == 1:
        return "regression"
    is_integer = not torch.is_floating_point(labels)
    return "single_label_classification" if is_integer else "multi_label_classification"
