"""Attention weights as arrays: `attention_maps`, for every rung with attention and for transformers' own models.

The weights are those of one forward pass over the finished sequence. For generated text that is the best beam: the
weights at a position depend on the source and on the tokens before it, not on other beams.

Rows and tokens: a decoder reads token t and predicts token t + 1 (it reads `<s>` and predicts the first token). Row t
of the cross-attention is computed for that prediction, so its label is the *predicted* token. In self-attention rows
and columns are the tokens that are *read*.

Shapes: L layers, H heads, Q queries (rows), S keys (columns), K size of one head.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..inference import decoder_start_token, use_eager_attention
from ..tokens import Tokens, readable_tokens
from .vectors import VectorRecorder, Vectors

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

_TITLES = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Cross-attention",
    "self": "Self-attention",
    "window": "Attention over a window of past states",
}


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """One kind of attention of one model on one text.

    Args:
        name: `encoder`, `decoder`, `cross`, `self` or `window`.
        weights: (L, H, Q, S), float32. Every row sums to one; the first row of `window` has no past and is zero.
        rows: The Q query tokens: in `cross` those predicted, elsewhere those read.
        columns: The S key tokens.
        vectors: Queries and keys whose scaled dot product gives the weights after the softmax; None for other scores,
            and for models whose projections are not known.
    """

    name: str
    weights: np.ndarray
    rows: Tokens
    columns: Tokens
    vectors: Vectors | None = None

    @property
    def query_tokens(self) -> list[str]:
        return list(self.rows.labels)

    @property
    def key_tokens(self) -> list[str]:
        return list(self.columns.labels)

    @property
    def title(self) -> str:
        return _TITLES[self.name]

    def head(self, layer: int, head: int | None = None) -> np.ndarray:
        """(Q, S), the weights of one head, or the mean over the heads of a layer; both count from 0."""
        for name, index, count in zip(("layer", "head"), (layer, head), self.weights.shape, strict=False):
            if index is not None and not 0 <= index < count:
                raise ValueError(f"{name} {index} is not in {self.title.lower()}; choose 0 to {count - 1}")
        return self.weights[layer].mean(axis=0) if head is None else self.weights[layer, head]

    def by_words(self) -> AttentionMap:
        """Merge subwords into words: sum over the keys of a word, mean over its queries; rows still sum to one.

        As in Clark et al. 2019, arXiv:1906.04341, Section 4.1.
        """
        rows, columns = (np.eye(len(side.word_labels))[list(side.word_ids)] for side in (self.rows, self.columns))
        weights = ((rows / rows.sum(axis=0)).T @ self.weights @ columns).astype(np.float32)
        return replace(self, weights=weights, rows=self.rows.merged(), columns=self.columns.merged(), vectors=None)


@dataclass(frozen=True, eq=False)
class AttentionMaps(Mapping):
    """All attention maps of one model on one text, by name: `maps["cross"].weights`.

    Args:
        model: Name of the model's class.
        text, text_pair: The input.
        target: The text that the decoder generated or was given; None for a model that only reads.
        origin: `read` (no target), `forced` (the target was given) or `generated`.
        maps: `encoder`, `decoder` and `cross`, or `self`, or `window`: those that the model has.
        read: The tokens that a decoder reads, `<s>` first; for other models all tokens.
        written: The tokens that a decoder predicts, one for each token read; empty for other models.
        second_start: Index of the first token of `text_pair`.
    """

    model: str
    text: str
    maps: dict[str, AttentionMap]
    read: Tokens
    written: Tokens
    text_pair: str | None = None
    target: str | None = None
    origin: str = "read"
    second_start: int | None = None

    def __getitem__(self, name: str) -> AttentionMap:
        if name not in self.maps:
            raise KeyError(f"{self.model} has no {name!r}; it has {', '.join(self.maps)}")
        return self.maps[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.maps)

    def __len__(self) -> int:
        return len(self.maps)

    @property
    def main(self) -> AttentionMap:
        """The map to show first: cross-attention if there is one."""
        return self.maps.get("cross", next(iter(self.maps.values())))

    def by_words(self) -> AttentionMaps:
        """The same maps with subwords merged into words."""
        start = None if self.second_start is None else self.read.word_ids[self.second_start]
        maps = {name: each.by_words() for name, each in self.maps.items()}
        return replace(self, maps=maps, read=self.read.merged(), written=self.written.merged(), second_start=start)


def attention_maps(
    model: PreTrainedModel,
    tokenizer: Any,
    text: str,
    target: str | None = None,
    text_pair: str | None = None,
    **generate_options: Any,
) -> AttentionMaps:
    """The attention weights of every layer and head for one text.

    Args:
        tokenizer: The model's tokenizer; a pair (source, target) for separate vocabularies.
        target: The decoder's output, by teacher forcing. Without it an encoder-decoder calls `generate()`; a language
            model only reads, unless there are options for `generate()`.
        text_pair: A second text, as BERT takes it.
        generate_options: For `generate()`: `num_beams`, `max_new_tokens`, `do_sample`, ...
    """
    _check_request(model, text, target, generate_options)
    tokenizers = tokenizer if isinstance(tokenizer, tuple) else (tokenizer, tokenizer)
    with use_eager_attention(model):
        if model.config.is_encoder_decoder:
            return _encoder_decoder_maps(model, tokenizers, text, target, text_pair, generate_options)
        return _single_stack_maps(model, tokenizers[0], text, target, text_pair, generate_options)


def _check_request(model: PreTrainedModel, text: str, target: str | None, options: dict) -> None:
    name = type(model).__name__
    if not text:
        raise ValueError("the text is empty; it needs at least one token")
    if target is not None and options:
        raise ValueError(f"a given target is not generated; leave out the target or {', '.join(options)}")
    if not model.can_generate() and (options or (target is None and model.config.is_encoder_decoder)):
        raise ValueError(f"{name} cannot generate; give a target, or load a class with a language modelling head")
    if not model.can_generate() and target is not None and not model.config.is_encoder_decoder:
        raise ValueError(f"{name} does not generate, so it takes no target; pass a second input text as text_pair")


def _encoder_decoder_maps(model, tokenizers, text, target, text_pair, options) -> AttentionMaps:
    import torch

    source_tokenizer, target_tokenizer = tokenizers
    inputs = _encode(model, source_tokenizer, text, text_pair)
    if target is None:
        start, *written = _generate(model, inputs, options)
    else:
        start, written = decoder_start_token(model), target_tokenizer(text_target=target)["input_ids"]
    decoder_ids = torch.tensor([[start, *written[:-1]]], device=model.device)
    with VectorRecorder(model.base_model) as recorder:
        outputs = model.base_model(
            **inputs, decoder_input_ids=decoder_ids, output_attentions=True, use_cache=False, return_dict=True
        )
    source = readable_tokens(source_tokenizer, inputs["input_ids"][0].tolist())
    read_tokens = readable_tokens(target_tokenizer, decoder_ids[0].tolist())
    written_tokens = readable_tokens(target_tokenizer, written)
    attentions = {
        "encoder": (outputs.get("encoder_attentions"), source, source),
        "decoder": (outputs.get("decoder_attentions"), read_tokens, read_tokens),
        "cross": (outputs.get("cross_attentions"), written_tokens, source),
    }
    return AttentionMaps(
        model=type(model).__name__,
        text=text,
        text_pair=text_pair,
        target=target_tokenizer.decode(written, skip_special_tokens=True) if target is None else target,
        origin="generated" if target is None else "forced",
        maps=_collect(model, attentions, recorder),
        read=read_tokens,
        written=written_tokens,
    )


def _single_stack_maps(model, tokenizer, text, target, text_pair, options) -> AttentionMaps:
    """The maps of a decoder-only language model or of an encoder."""
    import torch

    inputs = _encode(model, tokenizer, text, text_pair)
    prompt_length = inputs["input_ids"].shape[1]
    if options:
        inputs = {"input_ids": torch.tensor([_generate(model, inputs, options)], device=model.device)}
    elif target is not None:
        continuation = tokenizer(target, add_special_tokens=False)["input_ids"]
        ids = [*inputs["input_ids"][0].tolist(), *continuation]
        inputs = {"input_ids": torch.tensor([ids], device=model.device)}
    with VectorRecorder(model.base_model) as recorder:
        outputs = model.base_model(**inputs, output_attentions=True, return_dict=True)
    ids = inputs["input_ids"][0].tolist()
    tokens = readable_tokens(tokenizer, ids)
    name = "window" if getattr(model.config, "attention_window", 0) else "self"
    return AttentionMaps(
        model=type(model).__name__,
        text=text,
        text_pair=text_pair,
        target=tokenizer.decode(ids[prompt_length:], skip_special_tokens=True) if options else target,
        origin="generated" if options else "read" if target is None else "forced",
        maps=_collect(model, {name: (outputs.get("attentions"), tokens, tokens)}, recorder),
        read=tokens,
        written=Tokens((), (), ()),
        second_start=None if text_pair is None else _second_start(tokenizer, text, text_pair),
    )


def _encode(model, tokenizer, text: str, text_pair: str | None) -> dict[str, Tensor]:
    """A batch of one, with the arguments that the model's forward takes."""
    batch = tokenizer(text, text_pair, return_tensors="pt")
    parameters = inspect.signature(model.base_model.forward).parameters
    batch = {name: value.to(model.device) for name, value in batch.items() if name in parameters}
    if not batch["input_ids"].shape[1]:
        raise ValueError(f"the text {text!r} has no tokens for this tokenizer; it needs at least one")
    return batch


def _second_start(tokenizer, text: str, text_pair: str) -> int | None:
    """The first token of the second text; the separator before it belongs to the first."""
    encoded = tokenizer(text, text_pair)
    if not getattr(encoded, "is_fast", False):
        return None
    return next((index for index, sequence in enumerate(encoded.sequence_ids()) if sequence == 1), None)


def _generate(model, inputs: dict[str, Tensor], options: dict) -> list[int]:
    """The ids of the best sequence, from its start token or prompt to its first EOS token."""
    limits = {"max_new_tokens", "max_length", "stopping_criteria", "generation_config"}
    if not limits & set(options) and getattr(model.generation_config, "max_length", None) in (None, 20):
        options = options | {"max_new_tokens": 2 * inputs["input_ids"].shape[1] + 10}
    result = model.generate(**inputs, **options)
    ids = getattr(result, "sequences", result)[0].tolist()
    begin = 1 if model.config.is_encoder_decoder else inputs["input_ids"].shape[1]
    eos = options.get("eos_token_id", model.generation_config.eos_token_id)
    eos = {eos} if isinstance(eos, int) else set(eos or ())
    # After EOS there is only padding.
    last = next((index for index in range(begin, len(ids)) if ids[index] in eos), len(ids) - 1)
    return ids[: last + 1]


def _collect(model, attentions: dict, recorder: VectorRecorder) -> dict[str, AttentionMap]:
    """The maps that the model has; raises an error if there are none."""
    maps = {}
    for name, (layers, rows, columns) in attentions.items():
        if layers is None or not len(layers) or layers[0] is None:
            continue
        weights = np.stack([layer[0].float().cpu().numpy() for layer in layers])  # (L, H, Q, S)
        if name == "window":
            weights = _expand_window(weights)
        maps[name] = AttentionMap(name, weights, rows, columns, recorder.vectors(name, weights))
    if not maps:
        raise ValueError(
            f"{type(model).__name__} does not attend, so it has no attention weights; rungs with attention are "
            "bahdanau, transformer, gpt, bert, and recurrent with attention_window above 0"
        )
    return maps


def _expand_window(weights: np.ndarray) -> np.ndarray:
    """From a window (L, H, Q, W), whose last column is the token just before, to all tokens (L, H, Q, Q)."""
    *front, length, window = weights.shape
    wide = np.zeros((*front, length, window + length), dtype=weights.dtype)
    for row in range(length):
        wide[..., row, row : row + window] = weights[..., row, :]
    return wide[..., window:]
