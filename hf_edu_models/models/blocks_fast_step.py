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
from .blocks_packed_linear import Function, can_keep, can_pack, read_linear
from .blocks_search import Stepper
from .blocks_transformer import TransformerLayer

_FIRST_TOKENS = 32  # a new cache has memory for so many


def can_read_weights(*modules: nn.Module) -> bool:
    """Whether all modules are as their files define them, and every linear layer is plain."""
    inner = [module for top in modules for module in top.modules()]
    linear = [module for module in inner if isinstance(module, nn.Linear)]
    return all(map(is_as_written, inner)) and all(map(is_plain_linear, linear))


def _read_norm(norm: nn.LayerNorm) -> Function:
    shape, weight, bias, epsilon = list(norm.normalized_shape), norm.weight, norm.bias, norm.eps
    return lambda states: torch.layer_norm(states, shape, weight, bias, epsilon)


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
    def read(cls, layer: TransformerLayer, read: Callable[[nn.Module], Function]) -> "FastLayer":
        """
        Args:
            read: makes a function of a linear layer.
        """
        attention, feed = layer.self_attention, layer.feed_forward
        cross = getattr(layer, "cross_attention", None)
        return cls(
            _read_norm(layer.self_residual.norm),
            read(attention.qkv_proj),
            read(attention.output),
            None if cross is None else _read_norm(layer.cross_residual.norm),
            read(nn.Identity() if cross is None else cross.q_proj),
            read(nn.Identity() if cross is None else cross.output),
            _read_norm(layer.feed_residual.norm),
            read(feed.inner_proj),
            feed.activation.forward,
            read(feed.outer_proj),
            attention.aggregate,
        )


class Source(NamedTuple):
    """What cross-attention reads: keys (N * H, K, S) and values (N * H, S, K) of every layer, and a mask for scores."""

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
        linears, rows = [lm_head, *model.layers.modules()], num_sentences * num_beams
        rows = rows if can_pack(linears, rows) else 0
        read = partial(read_linear, rows=rows, is_kept=can_keep(linears))
        self.is_vector = rows == 1  # hidden states are (D,) then
        self.beams, self.norm_first, self.heads = num_beams, config.norm_first, config.num_attention_heads
        self.head_size = config.hidden_size // self.heads
        self.layers = [FastLayer.read(layer, read) for layer in model.layers]
        self.final_norm, self.lm_head = model.final_norm.forward, read(lm_head)
        self.used = self.prompt = 0  # slots that are filled, and those of the prompt
        self.cached = weight.new_empty(len(self.layers), 2, 0, 0, self.head_size)  # keys and values (N * H, P, K)
        self.mask = self.nothing_hidden = weight.new_zeros(1, 1, 1)  # added to scores; (N, M, P) if it hides anything

    def step(self, tokens: Tensor) -> Tensor:
        return self.logits_of(self.run_layers(self.embed(tokens), self.beams))

    def logits_of(self, hidden: Tensor) -> Tensor:
        logits = self.lm_head(hidden)
        return logits[None] if self.is_vector else logits

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
        new = self.cached[:, :, :, slots].unbind()  # of all layers at once
        keys, values = self.cached[:, :, :, : slots.stop].unbind(dim=1)
        pasts = zip(new, keys.transpose(2, 3).unbind(), values.unbind(), strict=True)
        hidden = hidden[0] if self.is_vector else hidden
        for number, (layer, past) in enumerate(zip(self.layers, pasts, strict=True)):
            hidden = self.residual(hidden, layer.self_norm, self.attend_to_self, layer, past, mask)
            if layer.cross_norm is not None:
                hidden = self.residual(hidden, layer.cross_norm, self.attend_to_source, layer, number, beams)
            hidden = self.residual(hidden, layer.feed_norm, self.transform, layer)
        return self.final_norm(hidden)

    def residual(self, hidden: Tensor, norm: Function, sublayer: Callable, *arguments) -> Tensor:
        """`PreNorm` or `PostNorm` around a sublayer."""
        if self.norm_first:
            return hidden + sublayer(norm(hidden), *arguments)
        return norm(hidden + sublayer(hidden, *arguments))

    def attend_to_self(self, hidden: Tensor, layer: FastLayer, past: tuple[Tensor, ...], mask: Tensor) -> Tensor:
        """
        Args:
            past: the layer's cache: slots for the new keys and values, all keys (N * H, K, P), all values.
        """
        new, keys, values = past
        beams = new.shape[2]
        if self.is_vector:
            projected = layer.project(hidden).view(3, self.heads, 1, self.head_size)
        else:
            projected = layer.project(hidden).view(-1, beams, 3, self.heads, self.head_size)
            projected = projected.permute(2, 0, 3, 1, 4).reshape(3, -1, beams, self.head_size)
        new.copy_(projected[1:])
        return layer.self_output(self.attend(projected[0], keys, values, mask, layer))

    def attend_to_source(self, hidden: Tensor, layer: FastLayer, number: int, beams: int) -> Tensor:
        source: Any = self.source
        query = layer.query(hidden)
        if beams > 1:
            query = query.view(-1, beams, self.heads, self.head_size).transpose(1, 2)
        keys, values = source.pairs[number]
        query = query.reshape(-1, beams, self.head_size)
        return layer.cross_output(self.attend(query, keys, values, source.mask, layer))

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, layer: FastLayer) -> Tensor:
        """Vaswani et al. 2017, Eq. (1), of queries (N * H, beams, K); the aggregated heads of each row."""
        if mask is self.nothing_hidden:
            scores = torch.bmm(query, keys).mul_(self.head_size**-0.5)
        else:
            scores = torch.baddbmm(mask, query, keys, alpha=self.head_size**-0.5)
        heads = torch.bmm(scores.softmax(dim=-1), values)
        if heads.shape[1] > 1:
            heads = heads.view(-1, self.heads, *heads.shape[1:]).transpose(1, 2).flatten(0, 1)
        elif not self.is_vector:
            heads = heads.view(-1, self.heads, self.head_size)
        else:
            heads = heads.squeeze(1)
        return layer.aggregate(heads)

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
        pairs = encoder_outputs.keys_and_values
        pairs = [(keys.flatten(0, 1).transpose(1, 2), values.flatten(0, 1)) for keys, values in pairs]
        self.source, self.encoder_outputs = Source(pairs, mask), encoder_outputs
        self.embed_tokens, self.embeddings, self.prompts = embed_tokens.forward, decoder.embed, prompts
        self.positions = self.mask.new_empty(0)  # a table, computed for some positions at a time
        self.past = 0  # tokens read

    def first_logits(self) -> Tensor:
        for tokens in self.prompts.unbind(dim=1):
            hidden = self.run_layers(self.embed(tokens), 1)
        self.finish_prompt(None)
        return self.logits_of(hidden)

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
        hidden = outputs.last_hidden_state[:, -1]
        self.logits = self.logits_of(hidden[0] if self.is_vector else hidden)
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
