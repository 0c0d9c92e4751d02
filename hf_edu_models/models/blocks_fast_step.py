"""One step of Transformer and GPT decoders for the searches of `blocks_search.py`.

The layers are in `blocks_transformer.py`; `blocks_fast_layers.py` computes the same, faster, and `blocks_beam_cache.py`
holds keys and values. Here they become `Stepper`s.

Shapes: N sentences, M beams, D hidden size, P length of a prompt, S length of a source.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from .blocks_beam_cache import BeamCache, hide
from .blocks_cache import cache_source
from .blocks_fast_layers import FastLayer, SourceAttention, read_source
from .blocks_generation import is_as_written
from .blocks_losses import is_plain_linear
from .blocks_packed_linear import can_keep, can_pack, read_linear
from .blocks_search import Stepper

_FIRST_POSITIONS = 32


def can_read_weights(*modules: nn.Module) -> bool:
    """Whether all modules are as their files define them, and every linear layer is plain."""
    inner = [module for top in modules for module in top.modules()]
    linear = [module for module in inner if isinstance(module, nn.Linear)]
    return all(map(is_as_written, inner)) and all(map(is_plain_linear, linear))


class AttentionStepper(Stepper):
    """
    Args:
        model: has `layers` and `final_norm`.
        sources: keys and values (N, H, S, K) of each layer's cross-attention, if it has one.
        source_mask: added to the scores of cross-attention (N * H, 1, S).
    """

    def __init__(self, model: Any, lm_head: nn.Module, sentences: int, beams: int, sources=None, source_mask=None):
        config, linears, rows = model.config, [lm_head, *model.layers.modules()], sentences * beams
        layout = rows if can_pack(linears, rows) else 0
        read = partial(read_linear, rows=layout, is_kept=can_keep(linears))
        size, heads = config.hidden_size, config.num_attention_heads
        self.cached = BeamCache(next(model.parameters()), len(model.layers), heads, size // heads, beams)
        mask = self.cached.nothing_hidden if source_mask is None else source_mask
        self.sources: list[SourceAttention | None] = [None] * len(model.layers)
        if sources is not None:
            attentions = [layer.cross_attention for layer in model.layers]
            pairs = zip(attentions, sources, strict=True)
            self.sources = [read_source(attention, read, pair, mask, rows) for attention, pair in pairs]
        layers = zip(model.layers, self.sources, strict=True)
        self.layers = [FastLayer(layer, read, source) for layer, source in layers]
        self.final_norm, self.lm_head, self.beams = model.final_norm.forward, read(lm_head), beams

    def step(self, tokens: Tensor) -> Tensor:
        return self.lm_head(self.run_layers(self.embed(tokens), self.beams))

    def embed(self, tokens: Tensor) -> Tensor:
        """Embeddings (N * M, D) of the next token of each row."""
        raise NotImplementedError

    def run_layers(self, hidden: Tensor, beams: int) -> Tensor:
        """Hidden states (N * M, D) of one new token, after all layers."""
        pasts, mask = self.cached.extend(len(hidden) // beams, beams)
        for layer, past in zip(self.layers, pasts, strict=True):
            hidden = layer(hidden, past, mask)
        return self.final_norm(hidden)

    def reorder(self, parents: Tensor) -> None:
        self.cached.reorder(parents)

    def keep(self, sentences: Tensor) -> None:
        self.cached.keep(sentences)
        for source in filter(None, self.sources):
            source.keep(sentences)

    def cache(self):
        return self.cached.to_transformers()


class TransformerStepper(AttentionStepper):
    """The Transformer's decoder.

    Args:
        prompts: (N, P), without padding.
        encoder_outputs: with keys and values of each layer.
        source_mask: (N, S), 0 for padding, or None.
    """

    def __init__(
        self,
        decoder: Any,
        embed_tokens: nn.Module,
        lm_head: nn.Module,
        prompts: Tensor,
        num_beams: int,
        encoder_outputs,
        source_mask: Tensor | None,
    ):
        mask, weight = None, next(decoder.parameters())
        if source_mask is not None and not bool(source_mask.all()):
            heads = decoder.config.num_attention_heads
            mask = hide(source_mask == 0, weight.dtype)[:, None].repeat_interleave(heads, dim=0)
        super().__init__(decoder, lm_head, len(prompts), num_beams, encoder_outputs.keys_and_values, mask)
        self.encoder_outputs, self.prompts = encoder_outputs, prompts
        self.embed_tokens, self.embeddings = embed_tokens.forward, decoder.embed
        self.positions = weight.new_empty(0)  # a table, computed for some positions at a time
        self.past = 0  # tokens read

    def first_logits(self) -> Tensor:
        for tokens in self.prompts.unbind(dim=1):
            hidden = self.run_layers(self.embed(tokens), 1)
        self.cached.finish_prompt(None)
        return self.lm_head(hidden)

    def embed(self, tokens: Tensor) -> Tensor:
        if self.past >= len(self.positions):
            positions = torch.arange(2 * self.past + _FIRST_POSITIONS, device=tokens.device)[: self.embeddings.limit]
            self.positions = self.embeddings.positions(positions).to(self.positions.dtype)
        self.past += 1
        return torch.add(self.positions[self.past - 1], self.embed_tokens(tokens), alpha=self.embeddings.scale)

    def cache(self) -> EncoderDecoderCache:
        cache = EncoderDecoderCache(super().cache(), DynamicCache())
        cache_source(cache, self.encoder_outputs.keys_and_values, self.beams)
        return cache


class GPTStepper(AttentionStepper):
    """GPT: its `forward` reads the prompts, which are long, and fills a cache.

    Args:
        positions: (N,), of the last token of each prompt.
        attention_mask: (N, P) of the prompts, or None without padding.
    """

    def __init__(
        self, model: Any, lm_head: nn.Module, num_beams: int, outputs, positions: Tensor, attention_mask: Tensor | None
    ):
        super().__init__(model, lm_head, len(positions), num_beams)
        self.embed_tokens, self.embed_positions = model.embed_tokens.forward, model.embed_positions.forward
        self.logits = self.lm_head(outputs.last_hidden_state[:, -1])
        self.positions = positions.repeat_interleave(num_beams)
        self.cached.read_prompt(outputs.past_key_values.layers)
        self.cached.finish_prompt(attention_mask)

    def first_logits(self) -> Tensor:
        return self.logits

    def embed(self, tokens: Tensor) -> Tensor:
        self.positions = self.positions + 1
        return self.embed_tokens(tokens) + self.embed_positions(self.positions)

    def keep(self, sentences: Tensor) -> None:
        super().keep(sentences)
        self.positions = self.positions.view(-1, self.beams)[sentences].flatten()
