"""Kernel regression, the ancestor of attention.

New on this rung: a prediction is a weighted mean of what was seen. The query x is compared with every key x_i, and the
weights of the values y_i follow from the comparison.
Papers: Nadaraya 1964, "On Estimating Regression"; Watson 1964, "Smooth Regression Analysis".
Differs from the papers: the width of the kernel, and projections of queries and keys, may be learnt by gradient descent
on the leave-one-out error; where no key is within the width of a compact kernel, the Gaussian kernel stands in.

Shapes: B batch (queries), M memories (keys and values), F features, Y values of y.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.utils.generic import ModelOutput, can_return_tuple

from .blocks_base import EduPreTrainedModel
from .blocks_checks import check_integers, check_values
from .blocks_losses import number_loss
from .configuration_kernel import EduKernelConfig


@dataclass
class KernelRegressionOutput(ModelOutput):
    """
    Args:
        logits: the predictions f(x), (B, Y), by the name that Trainer and other programs look for.
        attentions: the weights of the memories, queries by keys: one tensor (B, M).
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    attentions: tuple[Tensor, ...] | None = None


class GaussianKernel(nn.Module):
    """log K(u) = -u^2 / 2. A kernel takes squared distances u^2, in units of the width; -inf stands for K(u) = 0."""

    def forward(self, distances: Tensor) -> Tensor:
        return -distances / 2


class EpanechnikovKernel(nn.Module):
    """K(u) = 1 - u^2 for |u| < 1, and 0 beyond (Epanechnikov 1969)."""

    def forward(self, distances: Tensor) -> Tensor:
        is_beyond = distances >= 1
        return torch.log1p(-distances.masked_fill(is_beyond, 0.0)).masked_fill(is_beyond, -math.inf)


class BoxcarKernel(nn.Module):
    """K(u) = 1 for |u| <= 1, and 0 beyond: the mean of the neighbours."""

    def forward(self, distances: Tensor) -> Tensor:
        return torch.zeros_like(distances).masked_fill(distances > 1, -math.inf)


class MeanKernel(nn.Module):
    """K(u) = 1: the mean of all values, whatever the query."""

    def forward(self, distances: Tensor) -> Tensor:
        return torch.zeros_like(distances)


KERNELS = {
    "gaussian": GaussianKernel,
    "epanechnikov": EpanechnikovKernel,
    "boxcar": BoxcarKernel,
    "mean": MeanKernel,
}


class KernelAttention(nn.Module):
    """alpha_i = K(u_i) / sum_j K(u_j) = softmax_i(log K(u_i)),  u_i = || W_q x - W_k x_i || / h"""

    def __init__(self, config: EduKernelConfig):
        super().__init__()
        self.kernel = KERNELS[config.kernel]()
        self.log_width = nn.Parameter(torch.tensor(math.log(config.width)), config.learn_width)  # log h
        features, size = config.input_size, config.projection_size
        self.query_proj = nn.Identity() if size is None else nn.Linear(features, size, bias=False)  # W_q
        self.key_proj = nn.Identity() if size is None else nn.Linear(features, size, bias=False)  # W_k

    def forward(self, queries: Tensor, keys: Tensor, left_out: Tensor | None = None) -> Tensor:
        """The weights (B, M).

        Args:
            left_out: the number of a key for each query that gets no weight, -1 for none.
        """
        queries, keys = self.query_proj(queries), self.key_proj(keys)
        precise = torch.promote_types(queries.dtype, torch.float32)  # squares of half precision overflow early
        differences = (queries[:, None] - keys).to(precise)  # (B, M, F)
        distances = differences.square().sum(dim=-1) * torch.exp(-2 * self.log_width.to(precise))  # (B, M)  u^2
        scores = self.kernel(distances)  # (B, M)  log K(u)
        is_hidden = torch.zeros_like(distances, dtype=torch.bool)  # (B, M)
        if left_out is not None:
            is_hidden = torch.arange(len(keys), device=keys.device) == left_out[:, None]  # (B, M)
        scores = scores.masked_fill(is_hidden, -math.inf)
        is_alone = scores.isneginf().all(dim=-1, keepdim=True)  # (B, 1)
        scores = torch.where(is_alone, (-distances / 2).masked_fill(is_hidden, -math.inf), scores)
        weights = scores.softmax(dim=-1).to(queries.dtype)  # (B, M)  alpha_i
        return weights


class Memory(nn.Module):
    """The training set, saved with the weights; NaN where nothing has been remembered yet."""

    keys: Tensor
    values: Tensor

    def __init__(self, config: EduKernelConfig):
        super().__init__()
        self.register_buffer("keys", torch.full((config.num_memories, config.input_size), math.nan))  # x_i
        self.register_buffer("values", torch.full((config.num_memories, config.output_size), math.nan))  # y_i

    def is_empty(self) -> bool:
        return self.values.numel() == 0 or bool(self.values[0, 0].isnan())


class EduKernelForRegression(EduPreTrainedModel):
    """f(x) = sum_i softmax_i(-|| x - x_i ||^2 / (2 h^2)) y_i with the Gaussian kernel, and likewise with the others.

    `remember` stores the training set. In training, `memory_ids` says which memory each query is, so that it does not
    predict itself: the loss is the leave-one-out error.
    """

    config_class = EduKernelConfig
    memory: Memory
    main_input_name = "input_values"
    supports_gradient_checkpointing = False  # it is a single layer

    def __init__(self, config: EduKernelConfig):
        super().__init__(config)
        self.attention = KernelAttention(config)
        self.memory = Memory(config)
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, KernelAttention):
            init.constant_(module.log_width, math.log(self.config.width))
        elif isinstance(module, nn.Linear):
            init.eye_(module.weight)  # learning starts from the kernel without projections
        elif isinstance(module, Memory):
            init.constant_(module.keys, math.nan)
            init.constant_(module.values, math.nan)

    @property
    def width(self) -> float:
        """The width h of the kernel."""
        return self.attention.log_width.exp().item()

    @torch.no_grad()
    def remember(self, input_values: Tensor, labels: Tensor) -> None:
        """Make these pairs the memory, in place of any others.

        Args:
            labels: (M, Y), or (M) for a single value.
        """
        keys = self.memory.keys
        check_values("input_values", input_values, (None, self.config.input_size))
        labels = labels[:, None] if labels.ndim == 1 else labels
        check_values("labels", labels, (len(input_values), self.config.output_size))
        self.memory.keys, self.memory.values = (each.detach().clone().to(keys) for each in (input_values, labels))
        self.config.num_memories = len(input_values)

    @can_return_tuple
    def forward(
        self,
        input_values: Tensor,
        labels: Tensor | None = None,
        memory_ids: Tensor | None = None,
        output_attentions: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs,
    ) -> KernelRegressionOutput:
        """
        Args:
            input_values: the queries x, (B, F).
            labels: the values y, (B, Y), or (B) for a single value.
            memory_ids: the number of each query in the memory, which is left out of its own prediction; -1 for none.
        """
        self.check(input_values, memory_ids)
        keys, values = self.memory.keys, self.memory.values
        weights = self.attention(input_values.to(keys.dtype), keys, memory_ids)  # (B, M)  alpha_i
        predictions = weights @ values  # (B, Y)  f(x)
        loss = None if labels is None else number_loss(predictions, labels, True, num_items_in_batch)
        output_attentions = self.config.output_attentions if output_attentions is None else output_attentions
        return KernelRegressionOutput(loss, predictions, (weights,) if output_attentions else None)

    def check(self, input_values: Tensor, memory_ids: Tensor | None) -> None:
        if torch.compiler.is_compiling():
            return
        if self.memory.is_empty():
            raise ValueError(
                "there is no memory yet; call model.remember(input_values, labels) with the training set, or load a "
                "model that was saved with one"
            )
        check_values("input_values", input_values, (None, self.config.input_size))
        if memory_ids is None:
            return
        check_integers("memory_ids", memory_ids, "batch")
        size, (low, high) = len(self.memory.keys), (bound.item() for bound in memory_ids.aminmax())
        if len(memory_ids) != len(input_values) or low < -1 or high >= size:
            raise ValueError(
                f"memory_ids has shape {tuple(memory_ids.shape)} and numbers from {low} to {high}, but one from 0 to "
                f"{size - 1}, or -1, is needed for each of {len(input_values)} queries"
            )
        if size == 1 and high == 0:
            raise ValueError("the memory has a single pair, so nothing is left to predict it from; remember more")
