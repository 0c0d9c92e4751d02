"""Feed-forward language model.

New on this rung: words are vectors, learnt together with the probabilities; the past is a fixed window of them.
Paper: Bengio, Ducharme, Vincent & Jauvin 2003, "A Neural Probabilistic Language Model", JMLR 3.
Differs from the paper: all windows of a sequence are computed at once; a window that reaches before the first token
has zero vectors there; no mixture with a trigram model.

Shapes: B batch, T time steps, E embedding size, D hidden size, V vocabulary.
"""

import torch
from torch import Tensor, nn
from transformers import GenerationMixin
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults

from .blocks_cache import RecurrentCache, StatefulPreTrainedModel
from .blocks_causal_lm import CausalLMHead
from .blocks_checks import check_and_embed
from .blocks_dropout import Dropout
from .blocks_masks import boolean_mask, last_states, padding_last, reorder, undo_reorder
from .blocks_packing import reject_packing
from .configuration_feedforward import EduFeedForwardConfig


class WindowLayer(GradientCheckpointingLayer):
    """tanh(d + H x), where x is the concatenated embeddings of a window; with direct connections [x; tanh(d + H x)]."""

    def __init__(self, embedding_size: int, window_size: int, hidden_size: int, direct_connections: bool):
        super().__init__()
        self.window_size = window_size
        self.direct_connections = direct_connections
        self.hidden_proj = nn.Linear(window_size * embedding_size, hidden_size)  # H, d

    def forward(self, embeddings: Tensor) -> Tensor:
        """Features of every whole window: `window_size - 1` fewer than there are embeddings."""
        windows = embeddings.unfold(1, self.window_size, 1).transpose(2, 3).flatten(2)  # x
        features = torch.tanh(self.hidden_proj(windows))  # (B, T, D)
        return torch.cat([windows, features], dim=-1) if self.direct_connections else features


class EduFeedForwardPreTrainedModel(StatefulPreTrainedModel):
    config_class = EduFeedForwardConfig

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            # Small enough that tanh starts in its linear part, whatever the window size.
            init.uniform_(module.weight, -(module.in_features**-0.5), module.in_features**-0.5)
            init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            init.uniform_(module.weight, -0.5, 0.5)


class EduFeedForwardModel(EduFeedForwardPreTrainedModel):
    """Embeddings and the window layer; `last_hidden_state` is what the softmax layer reads."""

    def __init__(self, config: EduFeedForwardConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size)  # C
        self.layer = WindowLayer(
            config.embedding_size, config.window_size, config.hidden_size, config.direct_connections
        )
        self.post_init()

    @merge_with_config_defaults
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: RecurrentCache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPast:
        """
        Args:
            past_key_values: the embeddings of the last window, as an earlier call returned them.
        """
        reject_packing(self.config.model_type, attention_mask, **kwargs)
        embeddings = check_and_embed(
            self.embed_tokens, self.config, input_ids, attention_mask, inputs_embeds
        )  # (B, T, E)
        mask = boolean_mask(attention_mask, embeddings.shape[1])
        order = None if mask is None else padding_last(mask)

        cache = RecurrentCache() if past_key_values is None else past_key_values
        (past,) = cache.state(0) or self.start(embeddings)
        history = torch.cat([past, embeddings if order is None else reorder(embeddings, order)], dim=1)
        features = self.layer(history)
        if order is not None:
            features = undo_reorder(features, order, mask)

        if use_cache:
            cache.write(0, (last_states(history, mask, past.shape[1]),), embeddings.shape[1])
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        return BaseModelOutputWithPast(
            last_hidden_state=features,
            past_key_values=cache if use_cache else None,
            hidden_states=(embeddings, features) if output_hidden_states else None,
        )

    def start(self, embeddings: Tensor) -> tuple[Tensor]:
        """What the first window reaches back to before the first token: zeros."""
        return (embeddings.new_zeros(embeddings.shape[0], self.config.window_size - 1, embeddings.shape[2]),)


class EduFeedForwardForCausalLM(CausalLMHead, EduFeedForwardPreTrainedModel, GenerationMixin):
    """The whole model: softmax(b + W x + U tanh(d + H x)), the probability of every next word."""

    def __init__(self, config: EduFeedForwardConfig):
        super().__init__(config)
        direct_size = config.window_size * config.embedding_size if config.direct_connections else 0
        self.model = EduFeedForwardModel(config)
        self.dropout = Dropout(config.dropout)
        self.lm_head = nn.Linear(direct_size + config.hidden_size, config.vocab_size)  # [W, U], b
        self.post_init()

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *arguments) -> None:
        """Checkpoints from before `EduFeedForwardModel` have its parameters without the prefix `model.`."""
        for key in [key for key in state_dict if key.startswith((f"{prefix}embed_tokens.", f"{prefix}layer."))]:
            state_dict[f"{prefix}model.{key.removeprefix(prefix)}"] = state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, *arguments)
