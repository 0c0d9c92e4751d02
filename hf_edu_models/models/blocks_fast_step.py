"""One step of Transformer and GPT decoders for the searches of `blocks_search.py`: what their layers compute, faster.

The layers are in `blocks_transformer.py`; here their weights are read once, and a step is tensor operations alone.
Keys and values are written into memory that grows by doubling. Beams are never moved: all beams of a sentence attend
over all of its keys, and a mask hides those that are not in a beam's own past. Reordering beams reorders that mask.

Shapes: N sentences, M beams, H heads, K size of one head, D hidden size, P slots of the cache.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from .blocks_cache import cache_source
from .blocks_generation import is_as_written
from .blocks_losses import is_plain_linear
from .blocks_packed_linear import Function, can_pack, read_linear
from .blocks_search import Stepper
from .blocks_transformer import TransformerLayer

_FIRST_TOKENS = 32  # a new cache has memory for so many


def can_read_weights(*modules: nn.Module) -> bool:
    """Whether all modules are as their files define them, and every linear layer is plain."""
    inner = [module for top in modules for module in top.modules()]
    linear = [module for module in inner if isinstance(module, nn.Linear)]
    return all(map(is_as_written, inner)) and all(map(is_plain_linear, linear))


def _read_norm(norm: nn.LayerNorm) -> Function:
    shape = list(norm.normalized_shape)
    return partial(torch.layer_norm, normalized_shape=shape, weight=norm.weight, bias=norm.bias, eps=norm.eps)


class FastLayer(NamedTuple):
    """The parts of a layer as functions; cross-attention, the second row, is the encoder-decoder's."""

    self_norm: Function
    project: Function
    self_output: Function
    cross_norm: Function | None
    query: Function
    cross_output: Function
    feed_norm: Function
    inner: Function
    activation: Function
    outer: Function
    aggregate: Function

    @classmethod
    def read(cls, layer: TransformerLayer, rows: int) -> "FastLayer":
        """
        Args:
            rows: pack the weights for so many, or not if it is 0.
        """
        attention, feed = layer.self_attention, layer.feed_forward
        cross = getattr(layer, "cross_attention", None)
        return cls(
            _read_norm(layer.self_residual.norm),
            read_linear(attention.qkv_proj, rows),
            read_linear(attention.output, rows),
            None if cross is None else _read_norm(layer.cross_residual.norm),
            read_linear(nn.Identity() if cross is None else cross.q_proj, rows),
            read_linear(nn.Identity() if cross is None else cross.output, rows),
            _read_norm(layer.feed_residual.norm),
            read_linear(feed.inner_proj, rows),
            feed.activation.forward,
            read_linear(feed.outer_proj, rows),
            attention.aggregate,
        )


class Source(NamedTuple):
    """What cross-attention reads: keys and values (N * H, S, K) of every layer, and a mask that is added to scores."""

    pairs: list[tuple[Tensor, Tensor]]
    mask: Tensor


class AttentionStepper(Stepper):
    """The layers of a decoder, with a cache of their keys and values.

    A token of the prompt has one slot of the cache, which all beams see, and later tokens have one for each beam.

    Args:
        model: has `layers` and `final_norm`.
    """

    source: Source | None = None  # of an encoder-decoder

    def __init__(self, model: Any, lm_head: nn.Module, num_sentences: int, num_beams: int):
        config, weight = model.config, next(model.parameters())
        rows = num_sentences * num_beams
        rows = rows if can_pack([lm_head, *model.layers.modules()], rows) else 0
        self.beams, self.norm_first, self.heads = num_beams, config.norm_first, config.num_attention_heads
        self.head_size = config.hidden_size // self.heads
        self.layers = [FastLayer.read(layer, rows) for layer in model.layers]
        self.final_norm, self.lm_head = model.final_norm.forward, read_linear(lm_head, rows)
        self.used = self.prompt = 0  # slots that are filled, and those of the prompt
        self.cached = weight.new_empty(len(self.layers), 2, 0, 0, self.head_size)  # keys and values (N * H, P, K)
        self.mask = self.nothing_hidden = weight.new_zeros(1, 1, 1)  # added to scores; (N, M, P) if it hides anything

    def step(self, tokens: Tensor) -> Tensor:
        return self.lm_head(self.run_layers(self.embed(tokens), self.beams))

    def embed(self, tokens: Tensor) -> Tensor:
        """Embeddings (rows, D) of the next token of each row."""
        raise NotImplementedError

    def run_layers(self, hidden: Tensor, beams: int) -> Tensor:
        """Hidden states (N * beams, D) of one new token, after all layers."""
        slots = slice(self.used, self.used + beams)
        self.used = slots.stop
        if slots.stop > self.cached.shape[3]:
            self.allocate(len(hidden) // beams, 2 * slots.start + _FIRST_TOKENS * beams)
        mask = self.nothing_hidden
        if self.mask is not self.nothing_hidden:
            self.mask[:, :, slots].diagonal(dim1=1, dim2=2).zero_()  # a beam sees its own new token
            mask = self.mask[:, None, :, : slots.stop].expand(-1, self.heads, -1, -1).flatten(0, 1)
        for number, layer in enumerate(self.layers):
            hidden = self.residual(hidden, layer.self_norm, self.attend_to_self, layer, number, slots, mask)
            if layer.cross_norm is not None:
                hidden = self.residual(hidden, layer.cross_norm, self.attend_to_source, layer, number, beams)
            hidden = self.residual(hidden, layer.feed_norm, self.transform, layer)
        return self.final_norm(hidden)

    def residual(self, hidden: Tensor, norm: Function, sublayer: Callable, *arguments) -> Tensor:
        """`PreNorm` or `PostNorm` around a sublayer."""
        if self.norm_first:
            return hidden + sublayer(norm(hidden), *arguments)
        return norm(hidden + sublayer(hidden, *arguments))

    def attend_to_self(self, hidden: Tensor, layer: FastLayer, number: int, slots: slice, mask: Tensor) -> Tensor:
        beams = slots.stop - slots.start
        projected = layer.project(hidden).view(-1, beams, 3, self.heads, self.head_size)
        projected = projected.permute(2, 0, 3, 1, 4).reshape(3, -1, beams, self.head_size)
        cached = self.cached[number]
        cached[:, :, slots] = projected[1:]
        keys, values = cached[:, :, : slots.stop]
        return layer.self_output(layer.aggregate(self.attend(projected[0], keys, values, mask)))

    def attend_to_source(self, hidden: Tensor, layer: FastLayer, number: int, beams: int) -> Tensor:
        source: Any = self.source
        query = layer.query(hidden).view(-1, beams, self.heads, self.head_size)
        query = query.transpose(1, 2).reshape(-1, beams, self.head_size)
        keys, values = source.pairs[number]
        return layer.cross_output(layer.aggregate(self.attend(query, keys, values, source.mask)))

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Vaswani et al. 2017, Eq. (1): heads (N * beams, H, K) of queries (N * H, beams, K)."""
        scores = torch.baddbmm(mask, query, keys.transpose(1, 2), alpha=self.head_size**-0.5)
        heads = torch.bmm(scores.softmax(dim=-1), values)
        return heads.view(-1, self.heads, *heads.shape[1:]).transpose(1, 2).flatten(0, 1)

    def transform(self, hidden: Tensor, layer: FastLayer) -> Tensor:
        return layer.outer(layer.activation(layer.inner(hidden)))

    def allocate(self, sentences: int, slots: int) -> None:
        """Memory for so many slots; those in use are copied."""
        old, used = self.cached, min(self.used, self.cached.shape[3])
        self.cached = old.new_empty(len(self.layers), 2, sentences * self.heads, slots, self.head_size)
        if used:
            self.cached[..., :used, :] = old[..., :used, :]
        if self.mask is not self.nothing_hidden:
            missing = slots - self.mask.shape[2]
            self.mask = F.pad(self.mask, (0, missing), value=torch.finfo(self.mask.dtype).min)

    def finish_prompt(self, attention_mask: Tensor | None) -> None:
        """From here on, each beam has a slot of its own; the prompt's are hidden where the mask (N, P) is 0."""
        self.prompt = self.used
        if self.beams == 1 and attention_mask is None:
            return
        sentences, slots = self.cached.shape[2] // self.heads, self.cached.shape[3]
        is_prompt = torch.arange(slots, device=self.cached.device) < self.prompt
        self.mask = self.hide(~is_prompt).expand(sentences, self.beams, -1).clone()
        if attention_mask is not None:
            self.mask[:, :, : self.prompt] = self.hide(attention_mask == 0)[:, None]

    def hide(self, is_hidden: Tensor) -> Tensor:
        """What is added to scores: 0, and the lowest number where a key is hidden."""
        zeros = torch.zeros_like(is_hidden, dtype=self.cached.dtype)
        return zeros.masked_fill(is_hidden, torch.finfo(zeros.dtype).min)

    def reorder(self, parents: Tensor) -> None:
        self.mask = self.mask.gather(1, parents[:, :, None].expand_as(self.mask))

    def keep(self, sentences: Tensor) -> None:
        def select(states: Tensor, dim: int) -> Tensor:
            return states.unflatten(dim, (-1, self.heads)).index_select(dim, sentences).flatten(dim, dim + 1)

        self.cached = select(self.cached, 2)
        if self.mask is not self.nothing_hidden:
            self.mask = self.mask[sentences]
        if self.source is not None:
            pairs = [(select(keys, 0), select(values, 0)) for keys, values in self.source.pairs]
            mask = self.source.mask
            self.source = Source(pairs, mask if mask is self.nothing_hidden else select(mask, 0))

    def cache(self) -> DynamicCache:
        """Keys and values (N * M, H, T, K) of each beam's own past."""
        cache, states = DynamicCache(), self.cached[..., : self.used, :].unflatten(2, (-1, self.heads))
        if self.beams > 1:
            is_own = self.mask[:, :, self.prompt : self.used] == 0
            own = is_own.flatten(0, 1).nonzero()[:, 1].view(len(is_own) * self.beams, -1) + self.prompt
            slots = torch.arange(self.prompt, device=own.device).expand(len(own), -1)
            slots = torch.cat([slots, own], dim=1)[:, None, :, None]
            states = states.repeat_interleave(self.beams, dim=2)
            states = states.gather(4, slots.expand(*states.shape[:4], -1, self.head_size))
        for number, (keys, values) in enumerate(states):
            cache.update(keys, values, number)
        return cache


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
        super().__init__(decoder, lm_head, len(prompts), num_beams)
        mask = self.nothing_hidden
        if source_mask is not None and not bool(source_mask.all()):
            mask = self.hide(source_mask == 0)[:, None, None].expand(-1, self.heads, -1, -1).flatten(0, 1)
        pairs = [(keys.flatten(0, 1), values.flatten(0, 1)) for keys, values in encoder_outputs.keys_and_values]
        self.source, self.encoder_outputs = Source(pairs, mask), encoder_outputs
        self.embed_tokens, self.embeddings, self.prompts = embed_tokens.forward, decoder.embed, prompts
        self.positions = self.mask.new_empty(0)  # a table, computed for some positions at a time
        self.past = 0  # tokens read

    def first_logits(self) -> Tensor:
        for tokens in self.prompts.unbind(dim=1):
            hidden = self.run_layers(self.embed(tokens), 1)
        self.finish_prompt(None)
        return self.lm_head(hidden)

    def embed(self, tokens: Tensor) -> Tensor:
        if self.past >= len(self.positions):
            positions = torch.arange(2 * self.past + _FIRST_TOKENS, device=tokens.device)[: self.embeddings.limit]
            self.positions = self.embeddings.positions(positions).to(self.mask.dtype)
        self.past += 1
        return self.embed_tokens(tokens) * self.embeddings.scale + self.positions[self.past - 1]

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
        layers = outputs.past_key_values.layers
        sentences, _, prompt, _ = layers[0].keys.shape
        self.allocate(sentences, prompt + _FIRST_TOKENS * num_beams)
        for cached, layer in zip(self.cached, layers, strict=True):
            cached[0, :, :prompt], cached[1, :, :prompt] = layer.keys.flatten(0, 1), layer.values.flatten(0, 1)
        self.used = prompt
        self.finish_prompt(attention_mask)

    def first_logits(self) -> Tensor:
        return self.logits

    def embed(self, tokens: Tensor) -> Tensor:
        self.positions = self.positions + 1
        return self.embed_tokens(tokens) + self.embed_positions(self.positions)

    def keep(self, sentences: Tensor) -> None:
        super().keep(sentences)
        self.positions = self.positions.view(-1, self.beams)[sentences].flatten()
