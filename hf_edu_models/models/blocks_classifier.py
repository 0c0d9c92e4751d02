"""What the classification heads of the models without a Transformer share."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from transformers.utils.generic import ModelOutput, can_return_tuple

from .blocks_dropout import Dropout
from .blocks_losses import classification_loss, head_output


class LinearBlock(nn.Module):
    """Howard & Ruder 2018, Section 3.3: batch norm, dropout and a linear layer."""

    def __init__(self, input_size: int, output_size: int, dropout: float):
        super().__init__()
        self.norm = nn.BatchNorm1d(input_size)
        self.dropout = Dropout(dropout)
        self.linear = nn.Linear(input_size, output_size)

    def forward(self, features: Tensor) -> Tensor:
        norm = self.norm
        is_alone = self.training and features.shape[0] == 1  # one row has no variance: the last batch of an epoch
        if is_alone:
            mean, variance = norm.running_mean, norm.running_var
            normed = F.batch_norm(features, mean, variance, norm.weight, norm.bias, eps=norm.eps)
        else:
            normed = norm(features)
        return self.linear(self.dropout(normed))


class ClassificationHead:
    """`self.model` reads, `predict` makes logits of its outputs, `loss` compares them with the labels.

    A subclass sets `output_class`, the type of its outputs, and defines `predict`.
    """

    model: Any
    config: Any
    output_class: type
    penalise: Any

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs,
    ) -> ModelOutput:
        kwargs |= {"inputs_embeds": inputs_embeds, "use_cache": False}
        outputs = self.model(input_ids, attention_mask, **kwargs, return_dict=True)
        logits, weights = self.predict(outputs, attention_mask)
        loss = None
        if labels is not None:
            loss = self.loss(logits, labels, num_items_in_batch, weights)
            loss = self.penalise(loss, outputs, attention_mask, labels, num_items_in_batch)
        output_attentions = kwargs.get("output_attentions")
        output_attentions = self.config.output_attentions if output_attentions is None else output_attentions
        if weights is not None and output_attentions:
            outputs["attentions"] = (*(outputs.attentions or ()), weights[:, :, None])
        return head_output(self.output_class, outputs, loss=loss, logits=logits)

    def predict(self, outputs: ModelOutput, attention_mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The logits, and the weights (B, Q, T) of a pooling by attention, which join the attentions."""
        raise NotImplementedError

    def loss(self, logits: Tensor, labels: Tensor, num_items_in_batch, weights: Tensor | None) -> Tensor:
        return classification_loss(logits, labels, self.config, num_items_in_batch)
