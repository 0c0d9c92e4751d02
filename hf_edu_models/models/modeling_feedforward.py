"""Feed-forward language model, and the text classifier that averages its embeddings.

New on this rung: words are vectors, learnt together with the probabilities; the past is a fixed window of them.
Papers: Bengio, Ducharme, Vincent & Jauvin 2003, "A Neural Probabilistic Language Model", JMLR 3; the classifier is the
deep averaging network of Iyyer et al. 2015, "Deep Unordered Composition Rivals Syntactic Methods for Text
Classification" (ACL).
Differs from the papers: all windows of a sequence are computed at once; a window that reaches before the first token
has zero vectors there; no mixture with a trigram model.

Shapes: B batch, T time steps, E embedding size, D hidden size, V vocabulary or classes.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn
from transformers import GenerationMixin
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, SequenceClassifierOutput
from transformers.utils.generic import ModelOutput, can_return_tuple, merge_with_config_defaults

from .blocks_cache import RecurrentCache, StatefulPreTrainedModel, open_cache
from .blocks_causal_lm import CausalLMHead
from .blocks_checks import check_and_embed
from .blocks_classifier import ClassificationHead
from .blocks_dropout import Dropout, TokenDropout
from .blocks_masks import boolean_mask, last_states, padding_last, reorder, undo_reorder
from .blocks_packing import reject_packing
from .blocks_pooling import MeanPooling
from .blocks_state_checks import check_state
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


class HiddenLayer(GradientCheckpointingLayer):
    """z_i = tanh(W_i z_{i-1} + b_i)"""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__()
        self.proj = nn.Linear(input_size, hidden_size)  # W_i, b_i

    def forward(self, hidden_states: Tensor) -> Tensor:
        return torch.tanh(self.proj(hidden_states))


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
    """Embeddings and the window layer; `last_hidden_state` is what the softmax layer reads.

    Without the window layer it is the embeddings: what the classifier averages.
    """

    def __init__(self, config: EduFeedForwardConfig, add_window_layer: bool = True):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size)  # C
        sizes = config.embedding_size, config.window_size, config.hidden_size, config.direct_connections
        self.layer = WindowLayer(*sizes) if add_window_layer else None
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
        cache = open_cache(past_key_values, 1)
        embeddings = check_and_embed(
            self.embed_tokens, self.config, input_ids, attention_mask, inputs_embeds, cache.get_seq_length()
        )  # (B, T, E)
        reject_packing(self.config.model_type, attention_mask, **kwargs)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        if self.layer is None:
            return BaseModelOutputWithPast(embeddings, hidden_states=(embeddings,) if output_hidden_states else None)
        mask = boolean_mask(attention_mask, embeddings.shape[1])
        order = None if mask is None else padding_last(mask)

        window = cache.state(0) or self.start(embeddings)
        batch, _, size = embeddings.shape
        check_state(window, [(batch, self.config.window_size - 1, size)], embeddings.dtype)
        (past,) = window
        history = torch.cat([past, embeddings if order is None else reorder(embeddings, order)], dim=1)
        features = self.layer(history)
        if order is not None:
            features = undo_reorder(features, order, mask)

        if use_cache:
            cache.write(0, (last_states(history, mask, past.shape[1]),), embeddings.shape[1])
        return BaseModelOutputWithPast(
            last_hidden_state=features,
            past_key_values=cache if use_cache else None,
            hidden_states=(embeddings, features) if output_hidden_states else None,
        )

    def advance(self, embeddings: Tensor, states: list[tuple[Tensor]]) -> tuple[Tensor, list[tuple[Tensor]]]:
        """Features of new tokens, and the new window, for the searches of `blocks_search.py`."""
        history = torch.cat([states[0][0], embeddings], dim=1)
        return self.layer(history), [(history[:, embeddings.shape[1] :],)]

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


class EduFeedForwardForSequenceClassification(ClassificationHead, EduFeedForwardPreTrainedModel):
    """Deep averaging: z_0 = mean_t v_t;  z_i = tanh(W_i z_{i-1} + b_i);  p = softmax(W_s z_n + b)

    The order of the words has no effect. Word dropout leaves whole words out of the mean.
    """

    output_class = SequenceClassifierOutput
    _keys_to_ignore_on_load_unexpected = [r"model\.layer\.", r"lm_head"]  # of a language model that it starts from

    def __init__(self, config: EduFeedForwardConfig):
        super().__init__(config)
        self.model = EduFeedForwardModel(config, add_window_layer=False)
        self.word_dropout = TokenDropout(config.word_dropout)
        self.pooling = MeanPooling(config.embedding_size)
        sizes = [config.embedding_size] + [config.hidden_size] * config.classifier_layers
        self.layers = nn.ModuleList(HiddenLayer(*pair) for pair in pairwise(sizes))
        self.dropout = Dropout(config.dropout)
        self.score = nn.Linear(sizes[-1], config.num_labels)  # W_s, b
        self.post_init()

    def predict(self, outputs: ModelOutput, attention_mask: Tensor | None) -> tuple[Tensor, None]:
        embeddings = outputs.last_hidden_state  # (B, T, E)
        mask = self.word_dropout(embeddings, boolean_mask(attention_mask, embeddings.shape[1]))
        hidden_state = self.pooling(embeddings, mask)[0].squeeze(1)  # (B, E)  z_0
        for layer in self.layers:
            hidden_state = layer(hidden_state)  # (B, D)  z_i
        return self.score(self.dropout(hidden_state)), None
