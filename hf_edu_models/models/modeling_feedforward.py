"""Feed-forward language model: rung 1 of the ladder.

New on this rung: words are vectors, learnt together with the probabilities; the past is a fixed window of them.
Paper: Bengio, Ducharme, Vincent & Jauvin 2003, "A Neural Probabilistic Language Model", JMLR 3.
Differs from the paper: all windows of a sequence are computed at once; a window that reaches before the first word
sees zero vectors there; no mixture with a trigram model.

Shapes: B batch, T time steps, E embedding size, D hidden size, V vocabulary.
"""

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults

from .blocks_cache import RecurrentCache
from .blocks_checks import check_one_of, check_tokens
from .blocks_dropout import Dropout
from .blocks_losses import next_words, predict_words
from .blocks_masks import keep_from, last_states, put_back, real_first, reorder
from .configuration_feedforward import EduFeedForwardConfig


class WindowLayer(GradientCheckpointingLayer):
    """tanh(d + Hx), where x is the last few word vectors side by side; with direct connections x itself as well."""

    def __init__(self, embedding_size: int, window_size: int, hidden_size: int, direct_connections: bool):
        super().__init__()
        self.window_size = window_size
        self.direct_connections = direct_connections
        self.hidden_proj = nn.Linear(window_size * embedding_size, hidden_size)  # H, d

    def forward(self, words: Tensor) -> Tensor:
        """Features of every window in `words`: one fewer than the window is long is lost at the front."""
        windows = words.unfold(1, self.window_size, 1).transpose(2, 3).flatten(2)
        features = torch.tanh(self.hidden_proj(windows))  # (B, T, D)
        return torch.cat([windows, features], dim=-1) if self.direct_connections else features


class EduFeedForwardPreTrainedModel(PreTrainedModel):
    config_class = EduFeedForwardConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = True
    _is_stateful = True

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            # Small enough that tanh starts in its linear part, however wide the window is.
            init.uniform_(module.weight, -(module.in_features**-0.5), module.in_features**-0.5)
            init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            init.uniform_(module.weight, -0.5, 0.5)


class EduFeedForwardForCausalLM(EduFeedForwardPreTrainedModel, GenerationMixin):
    """The whole model: look up, concatenate, squash, and one softmax over the vocabulary."""

    def __init__(self, config: EduFeedForwardConfig):
        super().__init__(config)
        direct_size = config.window_size * config.embedding_size if config.direct_connections else 0
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size)  # C
        self.layer = WindowLayer(
            config.embedding_size, config.window_size, config.hidden_size, config.direct_connections
        )
        self.dropout = Dropout(config.dropout)
        self.lm_head = nn.Linear(direct_size + config.hidden_size, config.vocab_size)  # W and U side by side, b
        self.post_init()

    @merge_with_config_defaults
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: RecurrentCache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        skip_logits: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Tensor,
    ) -> CausalLMOutputWithPast:
        """
        Args:
            past_key_values: the last words seen, as an earlier call returned them.
            skip_logits: leave out the logits; by default in training with labels, where only the loss is needed.
            kwargs: `shift_labels`, labels that already stand at the position that predicts them, instead of `labels`.
        """
        check_one_of(input_ids, inputs_embeds)
        check_tokens(input_ids, attention_mask, self.config.vocab_size)
        words = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds  # (B, T, E)
        keep = keep_from(attention_mask, words.shape[1])
        order = None if keep is None else real_first(keep)

        past = self.past_words(words, past_key_values)
        history = torch.cat([past, words if order is None else reorder(words, order)], dim=1)
        features = self.layer(history)
        if order is not None:
            features = put_back(features, order, keep)

        if use_cache:
            past_key_values = RecurrentCache() if past_key_values is None else past_key_values
            past_key_values.write(0, (last_states(history, keep, past.shape[1]),), words.shape[1])
        targets = next_words(labels, **kwargs)
        skip_logits = self.training if skip_logits is None else skip_logits
        loss, logits = predict_words(self.dropout(features), self.lm_head, targets, skip_logits, num_items_in_batch)
        wants_states = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=past_key_values if use_cache else None,
            hidden_states=(words, features) if wants_states else None,
        )

    def past_words(self, words: Tensor, cache: RecurrentCache | None) -> Tensor:
        """The vectors that the first window reaches back to: remembered, or zeros before the first word."""
        state = None if cache is None else cache.state(0)
        if state is not None:
            return state[0]
        return words.new_zeros(words.shape[0], self.config.window_size - 1, words.shape[2])
