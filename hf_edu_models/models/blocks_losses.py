"""Losses and outputs of the heads. Losses are right under gradient accumulation and with several processes.

-100 marks a label that is ignored. Trainer passes `num_items_in_batch`, the number of labels in all batches of one
update; dividing the sum by it makes four batches of 8 equal one of 32. Without it the loss is the mean.

Shapes: P labelled positions, D hidden size, V vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .blocks_checks import LABEL_DTYPES, check_integers, check_is_tensor, check_item_count, check_labels, check_shape


class LinearCrossEntropy(torch.autograd.Function):
    """Cross-entropy of a linear layer, one chunk of positions at a time.

    loss = sum_p log(sum_v exp(z_pv)) - (1 - eps) z_py - eps mean_v(z_pv), with logits z = h W^T + b and smoothing eps

    The gradient of a chunk is computed while its logits exist, and backward only scales it: no logits are computed
    twice, and no more than one chunk of them is in memory. Under autocast to bfloat16 all three products are in it.
    """

    @staticmethod
    def forward(ctx, hidden_states, weight, bias, labels, smoothing, chunk_size):
        needs_grad = any(ctx.needs_input_grad)
        hidden_grad = torch.empty_like(hidden_states) if needs_grad else None  # (P, D)
        weight_grad = torch.zeros_like(weight) if needs_grad else None  # (V, D)
        bias_grad = torch.zeros_like(bias) if needs_grad and bias is not None else None  # (V,)
        mean_row = weight.mean(dim=0, keepdim=True), None if bias is None else bias.mean(dim=0, keepdim=True)
        loss = hidden_states.new_zeros((), dtype=torch.promote_types(hidden_states.dtype, torch.float32))
        hidden_states, weight, bias = _autocast_to_bfloat16(hidden_states, weight, bias)
        for start in range(0, len(labels), chunk_size):
            chunk = slice(start, start + chunk_size)
            targets = labels[chunk, None]
            logits = F.linear(hidden_states[chunk], weight, bias).to(loss.dtype)
            target_logits = (1 - smoothing) * logits.gather(1, targets)
            if smoothing:
                target_logits += smoothing * F.linear(hidden_states[chunk], *mean_row).to(loss.dtype)
            highest = logits.amax(dim=-1, keepdim=True)
            probs = torch.softmax(logits, dim=-1, out=logits)
            # The highest probability is exp(highest) / sum_v exp(z_v), and never too small for its logarithm.
            loss += (highest - target_logits - probs.amax(dim=-1, keepdim=True).log()).sum()
            if needs_grad:
                probs.scatter_add_(1, targets, torch.full_like(highest, smoothing - 1.0))
                logits_grad = probs.to(weight.dtype)
                hidden_grad[chunk] = logits_grad @ weight
                if weight_grad.dtype == weight.dtype:
                    weight_grad.addmm_(logits_grad.t(), hidden_states[chunk].to(weight.dtype))
                else:
                    weight_grad += logits_grad.t() @ hidden_states[chunk]
                if bias is not None:
                    bias_grad += probs.sum(dim=0)
        if needs_grad and smoothing:
            # Smoothing adds the same gradient to every logit, so it is subtracted from the sums.
            hidden_grad -= smoothing * mean_row[0]
            weight_grad -= smoothing / len(weight) * hidden_states.sum(dim=0, dtype=weight_grad.dtype)
            if bias is not None:
                bias_grad -= smoothing * len(labels) / len(weight)
        ctx.save_for_backward(hidden_grad, weight_grad, bias_grad)
        return loss

    @staticmethod
    def backward(ctx, loss_grad):
        grads = [None if grad is None else grad * loss_grad.to(grad.dtype) for grad in ctx.saved_tensors]
        return *grads, None, None, None


def _autocast_to_bfloat16(*tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """The tensors as autocast would give them to a linear layer, if that is bfloat16; each is cast only once."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device) or torch.get_autocast_dtype(device) is not torch.bfloat16:
        return tensors
    return tuple(None if tensor is None else tensor.bfloat16() for tensor in tensors)


def is_plain_linear(module: nn.Module) -> bool:
    """Whether `module(x)` is x W^T + b and nothing else, so that a fast path may read its weights.

    PEFT and quantizers replace the module or its weight, hooks and Accelerate wrap its call.
    """
    if not isinstance(module, nn.Linear) or type(module).forward is not nn.Linear.forward or "forward" in vars(module):
        return False
    if type(module.weight) not in (nn.Parameter, Tensor):
        return False
    hooks = (module._forward_pre_hooks, module._forward_hooks, module._backward_pre_hooks, module._backward_hooks)
    return not any(hooks) and not nn.modules.module._has_any_global_hook()


def token_loss(
    hidden_states: Tensor,
    lm_head: nn.Module,
    labels: Tensor,
    num_items_in_batch=None,
    label_smoothing: float = 0.0,
    chunk_size: int = 1024,
) -> Tensor:
    """Cross-entropy of `lm_head(hidden_states)` at the positions whose label is not -100."""
    is_plain = is_plain_linear(lm_head)
    num_tokens = lm_head.out_features if is_plain else None  # `logits_loss` will know
    labels = check_labels(labels, num_tokens, hidden_states.shape[:-1]).reshape(-1).to(hidden_states.device)
    counted = (labels != -100).nonzero().squeeze(1)  # (P,)
    hidden_states = hidden_states.reshape(-1, hidden_states.shape[-1])[counted]  # (P, D)
    if not is_plain:
        return logits_loss(lm_head(hidden_states), labels[counted], num_items_in_batch, label_smoothing)
    loss = LinearCrossEntropy.apply(
        hidden_states, lm_head.weight, lm_head.bias, labels[counted], label_smoothing, chunk_size
    )
    return loss / _divisor(len(counted), num_items_in_batch, loss)


def _divisor(count: int, num_items_in_batch, loss: Tensor):
    """What a summed loss is divided by; where no label counts, the sum is 0 and so is the loss."""
    if num_items_in_batch is None:
        return max(count, 1)
    if not torch.compiler.is_compiling():
        if count == 0:
            return 1
        check_item_count(num_items_in_batch, count)
    return num_items_in_batch.to(loss.device) if torch.is_tensor(num_items_in_batch) else num_items_in_batch


def mean_over_labels(total: Tensor, labels: Tensor, num_items_in_batch=None) -> Tensor:
    """A summed loss as the mean over the labels that count."""
    return total / _divisor(int((labels != -100).sum()), num_items_in_batch, total)


def lm_loss_and_logits(
    features: Tensor,
    lm_head: nn.Module,
    labels: Tensor | None,
    skip_logits: bool,
    num_items_in_batch=None,
    label_smoothing: float = 0.0,
) -> tuple[Tensor | None, Tensor | None]:
    """The loss if there are labels, and the logits unless they are skipped: they are most of the memory of training."""
    if labels is None:
        return None, lm_head(features)
    # How many labels count is known only when a compiled program runs: it computes all logits.
    if skip_logits and not torch.compiler.is_compiling():
        return token_loss(features, lm_head, labels, num_items_in_batch, label_smoothing), None
    logits = lm_head(features)
    return logits_loss(logits, labels, num_items_in_batch, label_smoothing), None if skip_logits else logits


def shift_labels(labels: Tensor | None, shifted: Tensor | None = None) -> Tensor | None:
    """The label that each position of a causal language model predicts: the next one, and none at the end.

    Args:
        shifted: labels that are shifted already; they take precedence.
    """
    if shifted is not None or labels is None:
        return shifted
    if not torch.compiler.is_compiling():
        check_integers("labels", labels, "batch, length", LABEL_DTYPES)
    return F.pad(labels.long()[:, 1:], (0, 1), value=-100)


def logits_loss(
    logits: Tensor, labels: Tensor, num_items_in_batch=None, label_smoothing: float = 0.0, name: str = "labels"
) -> Tensor:
    """Cross-entropy of logits that exist anyway; one label for a row may have an axis of its own."""
    shapes = [logits.shape[:-1]] if logits.ndim > 2 else [logits.shape[:-1], (*logits.shape[:-1], 1)]
    labels = check_labels(labels, logits.shape[-1], *shapes, name=name)
    labels = labels.reshape(-1).to(logits.device)
    logits = logits.reshape(-1, logits.shape[-1]).to(torch.promote_types(logits.dtype, torch.float32))
    loss = F.cross_entropy(logits, labels, ignore_index=-100, reduction="sum", label_smoothing=label_smoothing)
    return loss / _divisor(int((labels != -100).sum()), num_items_in_batch, loss)


def position_loss(name: str, logits: Tensor, positions: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Cross-entropy over the real positions; an answer that was truncated with the text is ignored."""
    positions = check_labels(positions, None, logits.shape[:1], (logits.shape[0], 1), name=name)
    if attention_mask is not None and attention_mask.ndim == 2:
        logits = logits.masked_fill(attention_mask == 0, torch.finfo(logits.dtype).min)
    return logits_loss(logits, positions.masked_fill(positions >= logits.shape[1], -100), name=name)


def classification_loss(logits: Tensor, labels: Tensor, config, num_items_in_batch=None) -> Tensor:
    """The loss for `config.problem_type`, which is inferred from the labels if unset, as transformers does."""
    check_is_tensor("labels", labels)
    problem_type = config.problem_type or _infer_problem_type(labels, config.num_labels)
    if problem_type == "single_label_classification":
        loss = logits_loss(logits, labels, num_items_in_batch)
    else:
        loss = number_loss(logits, labels, problem_type == "regression", num_items_in_batch)
    config.problem_type = problem_type  # only now that the labels fit it
    return loss


def number_loss(logits: Tensor, labels: Tensor, is_regression: bool, num_items_in_batch) -> Tensor:
    """Squared error, or the cross-entropy of every label for itself; a single number needs no axis of its own."""
    shapes = [logits.shape, logits.shape[:1]] if logits.shape[-1] == 1 else [logits.shape]
    check_shape("labels", labels, *shapes, why=", a number for each logit (classes are integers)")
    labels = labels.to(logits.device, logits.dtype)
    loss_function = F.mse_loss if is_regression else F.binary_cross_entropy_with_logits
    loss = loss_function(logits.reshape_as(labels), labels, reduction="sum")
    return loss / _divisor(labels.numel(), num_items_in_batch, loss)


def mean_over_rows(values: Tensor, labels: Tensor, num_items_in_batch=None) -> Tensor:
    """The mean of a term of the loss that each row (of a batch) has; a row counts as often as it has labels.

    So it has the divisor of the other terms, and accumulated batches equal one. Rows of several texts (choices) may
    have a value for each text.
    """
    values = values.view(labels.shape[0], -1).mean(dim=1)  # (B,)
    is_counted = torch.ones_like(labels) if labels.is_floating_point() else labels != -100
    counts = is_counted.reshape(labels.shape[0], -1).sum(dim=1).to(values.device)  # (B,)
    total = (values * counts).sum()
    return total / _divisor(int(counts.sum()), num_items_in_batch, total)


def head_output(output_class: type, model_outputs, **fields):
    """The output of a head: its own fields, and hidden states, attentions and cache of its model."""
    features = ("last_hidden_state", "pooler_output")
    return output_class(**fields, **{name: value for name, value in model_outputs.items() if name not in features})


def _infer_problem_type(labels: Tensor, num_labels: int) -> str:
    if num_labels == 1:
        return "regression"
    is_integer = not torch.is_floating_point(labels)
    return "single_label_classification" if is_integer else "multi_label_classification"
