"""Transformer-XL.

New since `modeling_gpt.py`: attention also reads the hidden states of the segment before, kept as a memory, so that the
context is longer than what is computed at once. Positions must then be relative: a token of the memory and one of the
segment would have the same absolute position.
Paper: Dai, Yang, Yang, Carbonell, Le & Salakhutdinov 2019, arXiv:1901.02860.
Differs from the paper: one softmax over the vocabulary instead of an adaptive one; each layer has its own u and v; a
batch may be padded, and then distances count real tokens.

Shapes: B batch, T length of the segment, M length of the memory, S = M + T, D hidden size, V vocabulary.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GenerationMixin
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults

from .blocks_cache import RecurrentCache, StatefulPreTrainedModel, open_cache
from .blocks_causal_lm import CausalLMHead
from .blocks_checks import check_and_embed
from .blocks_dropout import Dropout
from .blocks_masks import boolean_mask, last_states, padding_last, reorder, undo_reorder
from .blocks_packing import reject_packing
from .blocks_positions import sinusoids
from .blocks_relative_attention import RelativeAttention
from .blocks_state_checks import check_memory
from .blocks_transformer import FeedForward, PostNorm
from .blocks_transformer_stack import AttentionPreTrainedModel, choose_attention
from .configuration_transformer_xl import EduTransformerXLConfig

Memory = tuple[Tensor, ...]  # hidden states (B, M, D), the newest last; and a 1 for each that is real (B, M, 1)


class TransformerXLLayer(GradientCheckpointingLayer):
    """Relative attention over memory and segment, and a feed-forward network."""

    def __init__(self, config: EduTransformerXLConfig):
        super().__init__()
        self.attention = RelativeAttention(config)
        self.attention_residual = PostNorm(config)
        self.feed_forward = FeedForward(config)
        self.feed_residual = PostNorm(config)

    def forward(self, hidden_states: Tensor, *arguments) -> tuple[Tensor, Tensor | None]:
        """
        Args:
            arguments: those of `RelativeAttention.forward` after the first.
        """
        update, weights = self.attention(hidden_states, *arguments)
        hidden_states = self.attention_residual.after(hidden_states, update)
        return self.feed_residual.after(hidden_states, self.feed_forward(hidden_states)), weights


class EduTransformerXLPreTrainedModel(StatefulPreTrainedModel, AttentionPreTrainedModel):
    config_class = EduTransformerXLConfig
    _no_split_modules = ["TransformerXLLayer"]
    _supports_flash_attn = False  # neither takes a bias for each query and key that is learnt
    _supports_flex_attn = False
    _supports_attention_backend = False

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, RelativeAttention):
            init.normal_(module.content_bias, std=self.config.initializer_range)
            init.normal_(module.position_bias, std=self.config.initializer_range)

    def init_matrix(self, module: nn.Linear | nn.Embedding) -> None:
        init.normal_(module.weight, std=self.config.initializer_range)


class EduTransformerXLModel(EduTransformerXLPreTrainedModel):
    """Token embeddings, and layers that attend to a memory and to the segment up to each token."""

    def __init__(self, config: EduTransformerXLConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(TransformerXLLayer(config) for _ in range(config.num_hidden_layers))
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
            past_key_values: the memory that an earlier call returned, for the segment before this one.
        """
        cache = open_cache(past_key_values, self.config.num_hidden_layers)
        embeddings = check_and_embed(
            self.embed_tokens, self.config, input_ids, attention_mask, inputs_embeds, cache.get_seq_length()
        )  # (B, T, D)
        reject_packing(self.config.model_type, attention_mask, **kwargs)
        memories = [cache.state(layer) for layer in range(self.config.num_hidden_layers)]
        check_memory(memories, embeddings)
        mask = boolean_mask(attention_mask, embeddings.shape[1])
        order = None if mask is None else padding_last(mask)
        config, output_attentions = choose_attention(self.config, output_attentions)
        segment = embeddings if order is None else reorder(embeddings, order)
        states, weights = self.read_segment(segment, memories, config._attn_implementation)

        if use_cache:
            for layer, memory in enumerate(self.remember(memories, states, mask)):
                cache.write(layer, memory, embeddings.shape[1])
        if mask is not None and order is not None:
            states = [undo_reorder(layer, order, mask) for layer in states]
            weights = [_undo_reorder_of_pairs(layer, order, mask) for layer in weights if layer is not None]
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        return BaseModelOutputWithPast(
            last_hidden_state=states[-1],
            past_key_values=cache if use_cache else None,
            hidden_states=tuple(states) if output_hidden_states else None,
            attentions=tuple(weights) if output_attentions else None,
        )

    def read_segment(
        self, embeddings: Tensor, memories: Sequence[Memory | None], implementation: str
    ) -> tuple[list[Tensor], list[Tensor | None]]:
        """Hidden states of a segment with padding last: the input of every layer and the last output; and weights."""
        batch, length, _ = embeddings.shape
        visible = torch.ones(length, length, dtype=torch.bool, device=embeddings.device).tril()[None]  # (1, T, T)
        if memories[0] is not None:
            is_real = memories[0][1].transpose(1, 2) > 0  # (B, 1, M)
            visible = torch.cat([is_real.expand(-1, length, -1), visible.expand(batch, -1, -1)], dim=2)
        distances = torch.arange(visible.shape[-1], device=embeddings.device)  # (S)
        positions = self.dropout(
            sinusoids(distances, self.config.hidden_size).to(embeddings.dtype)
        )  # (S, D)  R_0, R_1, ...
        # As in Section 3.4 of Vaswani et al. 2017; the authors' code has it, too.
        hidden_states = self.dropout(embeddings * self.config.hidden_size**0.5)  # (B, T, D)
        states, weights = [hidden_states], []
        for layer, memory in zip(self.layers, memories, strict=True):
            past = None if memory is None else memory[0]
            hidden_states, layer_weights = layer(hidden_states, past, visible[:, None], positions, implementation)
            states.append(hidden_states)
            weights.append(layer_weights)
        return states, weights

    def remember(self, memories: Sequence[Memory | None], states: list[Tensor], mask: Tensor | None) -> list[Memory]:
        """The new memory of every layer: the last `memory_length` real tokens that it has read.

        Section 3.2: a layer reads [SG(m) o h], where SG stops the gradient.
        """
        past, length = 0 if memories[0] is None else memories[0][0].shape[1], states[0].shape[1]
        if mask is not None and not torch.compiler.is_compiling():
            length = int(mask.sum(dim=1).max())
        count = min(self.config.memory_length, past + length)
        is_new = states[0].new_ones(states[0].shape[:2])[..., None]  # (B, T, 1)
        if mask is not None:
            places = torch.arange(mask.shape[1], device=mask.device)[:, None]
            is_new = is_new * (places < mask.sum(dim=1)[:, None, None])
        kept: list[Memory] = []
        for memory, hidden_states in zip(memories, states, strict=False):  # the last states are no layer's input
            hidden_states = hidden_states.detach()  # SG
            old = (hidden_states[:, :0], is_new[:, :0]) if memory is None else memory
            # Rows are as long as before or longer: in front of a short text are zeros that are not real.
            parts = [
                last_states(torch.cat([F.pad(before, (0, 0, count - past, 0)), now], dim=1), mask, count)
                for before, now in zip(old, (hidden_states, is_new), strict=True)
            ]
            kept.append((parts[0], parts[1]))
        return kept

    def advance(self, embeddings: Tensor, memories: list[Memory]) -> tuple[Tensor, list[Memory]]:
        """Features of new tokens and the new memory, for the searches of `blocks_search.py`."""
        states, _ = self.read_segment(embeddings, memories, self.config._attn_implementation)
        return states[-1], self.remember(memories, states, None)


class EduTransformerXLForCausalLM(CausalLMHead, EduTransformerXLPreTrainedModel, GenerationMixin):
    """Predicts the next token; the softmax layer is tied to the token embeddings."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: EduTransformerXLConfig):
        super().__init__(config)
        self.model = EduTransformerXLModel(config)
        self.dropout = Dropout(config.dropout)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def generate(self, *args, **kwargs):
        """Each new token is a segment of its own: without a memory the whole text is read again for every token."""
        if self.config.memory_length == 0:
            kwargs["use_cache"] = False
        return super().generate(*args, **kwargs)


def _undo_reorder_of_pairs(weights: Tensor, order: Tensor, mask: Tensor) -> Tensor:
    """Weights (B, H, T, S) with queries and keys of the segment where they stood before padding was moved."""
    heads, past = weights.shape[1], weights.shape[3] - weights.shape[2]
    order, mask = order.repeat_interleave(heads, dim=0), mask.repeat_interleave(heads, dim=0)
    by_query = undo_reorder(weights.flatten(0, 1), order, mask)
    segment = undo_reorder(by_query[..., past:].transpose(1, 2), order, mask).transpose(1, 2)
    return torch.cat([by_query[..., :past], segment], dim=-1).unflatten(0, (-1, heads))
