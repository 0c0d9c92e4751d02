"""What a model looks at, as arrays: `attention_maps` for every rung that attends, and for transformers' own models.

The weights are those of one pass over the finished sequence. For text that `generate()` wrote this is the winning beam,
whatever other beams looked at: a position's weights depend on the source and on the words before it, on nothing else.

Which row belongs to which token: a decoder reads token t and writes token t + 1 (it reads `<s>` and writes the first
word). Row t of the cross-attention is computed in between, to choose what is written, so it is labelled with the token
*written*. In self-attention rows and columns are the same tokens, those *read*.

Shapes: L layers, H heads, Q queries (rows), S keys (columns), K size of one head.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .attention_vectors import Recorder, Vectors
from .showing import weights_shown
from .tokens import Tokens, readable_tokens

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

TITLES = {
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
        weights: (L, H, Q, S), float32. Every row sums to one; in `window` the first has no past and is zero.
        rows: the tokens that look, Q of them: in `cross` those written, elsewhere those read.
        columns: the tokens looked at, S of them.
        vectors: queries and keys whose scaled product the softmax turns into the weights; None for scores that are no
            product, and for models whose projections are not known here.
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
        return TITLES[self.name]

    def head(self, layer: int, head: int | None = None) -> np.ndarray:
        """(Q, S), one head's weights, or the mean of a layer's heads; layers and heads are counted from 0."""
        layers, heads = self.weights.shape[:2]
        for name, given, count in (("layer", layer, layers), ("head", head, heads)):
            if given is not None and not 0 <= given < count:
                raise ValueError(f"{name} {given} is not in {self.title.lower()}; choose 0 to {count - 1}")
        return self.weights[layer].mean(axis=0) if head is None else self.weights[layer, head]

    def by_words(self) -> AttentionMap:
        """Pieces of a word as one: to a word goes what its pieces get, from a word the mean of what its pieces give.

        As in Clark et al. 2019, arXiv:1906.04341, Section 4.1; rows still sum to one.
        """
        to_rows, to_columns = membership(self.rows), membership(self.columns)
        share = to_rows / to_rows.sum(axis=1, keepdims=True)
        weights = (share @ self.weights @ to_columns.T).astype(np.float32)
        return replace(self, weights=weights, rows=whole(self.rows), columns=whole(self.columns), vectors=None)


@dataclass(frozen=True, eq=False)
class AttentionMaps(Mapping):
    """All the attention of one model on one text, by name: `maps["cross"].weights`.

    Args:
        model: the model's class.
        text, text_pair: what was given to read.
        target: what the decoder wrote, or was made to write; None for a model that only reads.
        origin: `read` (nothing written), `forced` (the target was given) or `generated`.
        maps: what there is of encoder, decoder and cross, or self, or window.
        read: the tokens a decoder reads, `<s>` first; for other models all tokens.
        written: the tokens a decoder writes, one for each read; empty for other models.
        second_start: where the second text of a pair begins, if there is one.
    """

    model: str
    text: str
    maps: dict[str, AttentionMap]
    read: Tokens
    written: Tokens
    text_pair: str | None = None
    target: str | None = None
    origin: str = "read"
    second_start: int | None = field(default=None)

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
        """The map to show first: cross-attention where there is one."""
        return self.maps.get("cross", next(iter(self.maps.values())))

    def by_words(self) -> AttentionMaps:
        """The same with the pieces of each word as one."""
        start = None if self.second_start is None else self.read.words[self.second_start]
        maps = {name: each.by_words() for name, each in self.maps.items()}
        return replace(self, maps=maps, read=whole(self.read), written=whole(self.written), second_start=start)


def attention_maps(
    model: PreTrainedModel,
    tokenizer: Any,
    text: str,
    target: str | None = None,
    text_pair: str | None = None,
    **generate_options: Any,
) -> AttentionMaps:
    """Every layer's and head's weights while `model` reads a text and, if it can, writes another.

    Args:
        tokenizer: the model's; a pair (source, target) where the vocabularies are separate.
        target: what the decoder is made to write. Without it an encoder-decoder writes what `generate()` does; a
            language model only reads, unless there are options for `generate()`.
        text_pair: a second text beside the first, as BERT takes it.
        generate_options: for `generate()`: `num_beams`, `max_new_tokens`, `do_sample`, ...
    """
    check_request(model, text, target, generate_options)
    tokenizers = tokenizer if isinstance(tokenizer, tuple) else (tokenizer, tokenizer)
    with weights_shown(model):
        if model.config.is_encoder_decoder:
            return translate(model, tokenizers, text, target, text_pair, generate_options)
        return read(model, tokenizers[0], text, target, text_pair, generate_options)


def check_request(model: PreTrainedModel, text: str, target: str | None, options: dict) -> None:
    name = type(model).__name__
    if not text:
        raise ValueError("the text is empty; give at least one word to look at")
    if target is not None and options:
        raise ValueError(f"a given target is not generated; leave out the target or {', '.join(options)}")
    if not model.can_generate() and (options or (target is None and model.config.is_encoder_decoder)):
        raise ValueError(f"{name} cannot generate; give a target, or load the class with a head that writes words")
    if not model.can_generate() and target is not None and not model.config.is_encoder_decoder:
        raise ValueError(f"{name} reads and writes nothing, so it takes no target; a second text to read is text_pair")


def translate(model, tokenizers, text, target, text_pair, options) -> AttentionMaps:
    """The maps of an encoder-decoder."""
    import torch

    source_tokenizer, target_tokenizer = tokenizers
    inputs = encode(model, source_tokenizer, text, text_pair)
    if target is None:
        start, *written = generate(model, inputs, options)
    else:
        start, written = start_token(model), target_tokenizer(text_target=target)["input_ids"]
    decoder_ids = torch.tensor([[start, *written[:-1]]], device=model.device)
    with Recorder(model.base_model) as recorder:
        outputs = model.base_model(
            **inputs, decoder_input_ids=decoder_ids, output_attentions=True, use_cache=False, return_dict=True
        )
    source = readable_tokens(source_tokenizer, inputs["input_ids"][0].tolist())
    read_tokens = readable_tokens(target_tokenizer, decoder_ids[0].tolist())
    written_tokens = readable_tokens(target_tokenizer, written)
    sides = {
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
        maps=collect(model, sides, recorder),
        read=read_tokens,
        written=written_tokens,
    )


def read(model, tokenizer, text, target, text_pair, options) -> AttentionMaps:
    """The maps of a model that is one stack: a language model or an encoder."""
    import torch

    inputs = encode(model, tokenizer, text, text_pair)
    given = inputs["input_ids"].shape[1]
    if options:
        inputs = {"input_ids": torch.tensor([generate(model, inputs, options)], device=model.device)}
    elif target is not None:
        more = torch.tensor([tokenizer(target, add_special_tokens=False)["input_ids"]], device=model.device)
        inputs = {"input_ids": torch.cat([inputs["input_ids"], more.to(inputs["input_ids"].dtype)], dim=1)}
    with Recorder(model.base_model) as recorder:
        outputs = model.base_model(**inputs, output_attentions=True, return_dict=True)
    ids = inputs["input_ids"][0].tolist()
    tokens = readable_tokens(tokenizer, ids)
    has_window = bool(getattr(model.config, "attention_window", 0))
    sides = {"window" if has_window else "self": (outputs.get("attentions"), tokens, tokens)}
    continued = tokenizer.decode(ids[given:], skip_special_tokens=True) if options else target
    return AttentionMaps(
        model=type(model).__name__,
        text=text,
        text_pair=text_pair,
        target=continued,
        origin="generated" if options else "read" if target is None else "forced",
        maps=collect(model, sides, recorder),
        read=tokens,
        written=Tokens((), (), ()),
        second_start=None if text_pair is None else second_start(tokenizer, text, text_pair),
    )


def encode(model, tokenizer, text: str, text_pair: str | None) -> dict[str, Tensor]:
    """A batch of one, with what the model's forward takes."""
    batch = tokenizer(text, text_pair, return_tensors="pt")
    taken = inspect.signature(model.base_model.forward).parameters
    batch = {name: value.to(model.device) for name, value in batch.items() if name in taken}
    if not batch["input_ids"].shape[1]:
        raise ValueError(f"the text {text!r} has no token for this tokenizer; give at least one word to look at")
    return batch


def second_start(tokenizer, text: str, text_pair: str) -> int | None:
    """The first token of the second text; the separator before it still belongs to the first."""
    encoded = tokenizer(text, text_pair)
    if not getattr(encoded, "is_fast", False):
        return None
    places = [place for place, sequence in enumerate(encoded.sequence_ids()) if sequence == 1]
    return places[0] if places else None


def start_token(model) -> int:
    for config in (model.config, model.generation_config):
        for name in ("decoder_start_token_id", "bos_token_id"):
            if getattr(config, name, None) is not None:
                return getattr(config, name)
    raise ValueError("the decoder has no start token; set config.decoder_start_token_id to the id that it begins with")


def generate(model, inputs: dict[str, Tensor], options: dict) -> list[int]:
    """The ids of the best sequence, with what it starts from, up to its end token."""
    length = {"max_new_tokens", "max_length", "stopping_criteria", "generation_config"}
    if not length & set(options) and getattr(model.generation_config, "max_length", None) in (None, 20):
        options = options | {"max_new_tokens": 2 * inputs["input_ids"].shape[1] + 10}
    result = model.generate(**inputs, **options)
    ids = getattr(result, "sequences", result)[0].tolist()
    begin = 1 if model.config.is_encoder_decoder else inputs["input_ids"].shape[1]
    ends = options.get("eos_token_id", model.generation_config.eos_token_id)
    ends = {ends} if isinstance(ends, int) else set(ends or ())
    # Behind the end there is only padding.
    last = next((place for place in range(begin, len(ids)) if ids[place] in ends), len(ids) - 1)
    return ids[: last + 1]


def collect(model, sides: dict, recorder: Recorder) -> dict[str, AttentionMap]:
    """The maps that there are; a model that has none is refused with a sentence."""
    maps = {}
    for name, (attentions, rows, columns) in sides.items():
        if attentions is None or not len(attentions) or attentions[0] is None:
            continue
        weights = np.stack([layer[0].float().cpu().numpy() for layer in attentions])  # (L, H, Q, S)
        if name == "window":
            weights = spread(weights)
        maps[name] = AttentionMap(name, weights, rows, columns, recorder.vectors(name, weights))
    if not maps:
        raise ValueError(
            f"{type(model).__name__} does not attend, so there are no weights to show; of the ladder attend bahdanau, "
            "transformer, gpt, bert, and recurrent with attention_window above 0"
        )
    return maps


def spread(weights: np.ndarray) -> np.ndarray:
    """From the window (L, H, Q, W), whose last place is the token just before, to all tokens (L, H, Q, Q)."""
    *front, length, window = weights.shape
    wide = np.zeros((*front, length, window + length), dtype=weights.dtype)
    for place in range(length):
        wide[..., place, place : place + window] = weights[..., place, :]
    return wide[..., window:]


def membership(tokens: Tokens) -> np.ndarray:
    """(words, tokens): 1 where a token is a piece of a word."""
    return (np.arange(len(tokens.word_labels))[:, None] == np.array(tokens.words)[None, :]).astype(np.float64)


def whole(tokens: Tokens) -> Tokens:
    return Tokens(tokens.word_labels, tuple(range(len(tokens.word_labels))), tokens.word_labels)
