"""Pooled document classifier.

New since `modeling_bahdanau.py`: a document is a list of sentences; means over tokens, then over sentences.
Paper: Nobody 2016; this family exists in a test only.
Differs from the paper: there is none.

Shapes: B batch, N sentences, T tokens, D hidden size, V classes.
"""

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPooling, SequenceClassifierOutput
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults

from .blocks_base import EduPreTrainedModel
from .blocks_checks import embed_documents
from .blocks_losses import classification_loss
from .configuration_pooled import EduPooledConfig


def masked_mean(vectors: Tensor, mask: Tensor) -> Tensor:
    """The mean over the last but one axis, where the mask is 1."""
    return (vectors * mask[..., None]).sum(-2) / mask.sum(-1, keepdim=True).clamp(min=1)


class PooledLayer(GradientCheckpointingLayer):
    """v = mean_n tanh(W mean_t x_nt)."""

    def __init__(self, size: int):
        super().__init__()
        self.proj = nn.Linear(size, size)

    def forward(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        sentences = torch.tanh(self.proj(masked_mean(embeddings, mask)))  # (B, N, D)
        return masked_mean(sentences, (mask.sum(-1) > 0).to(mask.dtype))


class EduPooledPreTrainedModel(EduPreTrainedModel):
    config_class = EduPooledConfig

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            init.normal_(module.weight, std=self.config.initializer_range)
        if isinstance(module, nn.Linear):
            init.zeros_(module.bias)


class EduPooledModel(EduPooledPreTrainedModel):
    """Document embeddings."""

    def __init__(self, config: EduPooledConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layer = PooledLayer(config.hidden_size)
        self.post_init()

    @merge_with_config_defaults
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPooling:
        embeddings = embed_documents(
            self.embed_tokens, self.config, input_ids, attention_mask, inputs_embeds
        )  # (B, N, T, D)
        mask = embeddings.new_ones(embeddings.shape[:-1]) if attention_mask is None else attention_mask
        pooled = self.layer(embeddings, mask.to(embeddings.dtype))  # (B, D)
        return BaseModelOutputWithPooling(
            last_hidden_state=embeddings,
            pooler_output=pooled,
            hidden_states=(embeddings,) if output_hidden_states else None,
        )


class EduPooledForSequenceClassification(EduPooledPreTrainedModel):
    """One class for a document."""

    def __init__(self, config: EduPooledConfig):
        super().__init__(config)
        self.model = EduPooledModel(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch=None,
        **kwargs,
    ) -> SequenceClassifierOutput:
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            output_hidden_states=output_hidden_states,
        )
        logits = self.classifier(outputs.pooler_output)  # (B, V)
        loss = None if labels is None else classification_loss(logits, labels, self.config, num_items_in_batch)
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=outputs.hidden_states)
