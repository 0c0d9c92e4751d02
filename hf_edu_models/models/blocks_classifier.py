"""What the classification heads of the models without a Transformer share."""

from typing import Any

from torch import Tensor
from transformers.utils.generic import ModelOutput, can_return_tuple

from .blocks_losses import classification_loss, head_output


class ClassificationHead:
    """`self.model` reads, `predict` makes logits of its outputs, `loss` compares them with the labels.

    A subclass sets `output_class`, the type of its outputs, and defines `predict`.
    """

    model: Any
    config: Any
    output_class: type

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
        loss = None if labels is None else self.loss(logits, labels, num_items_in_batch, weights)
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
