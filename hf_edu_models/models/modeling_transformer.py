"""The Transformer: rung 5 of the ladder.

New since rung 4 (`modeling_bahdanau.py`): no recurrence at all. Attention reads the source, the target so far, and from
one to the other; several heads look at once, and positions are added to the words.
Paper: Vaswani et al. 2017, arXiv:1706.03762.
Differs from the paper: source and target share one vocabulary (so does the paper's English-German model); the rest is a
setting, with the paper's as its default.

Shapes: B batch, T target length, S source length, D hidden size, V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_outputs import Seq2SeqModelOutput
from transformers.utils.generic import ModelOutput, can_return_tuple, merge_with_config_defaults

from .blocks_checks import check_length, check_one_of, check_tokens
from .blocks_dropout import Dropout
from .blocks_positions import SinusoidalPositions
from .blocks_seq2seq import Seq2SeqHead, Seq2SeqMethods, decoder_words
from .blocks_transformer import (
    CrossAttentionLayer,
    Packing,
    TransformerLayer,
    choose_attention,
    final_norm,
    find_packing,
    head_diversity,
    padded,
    positions_of,
    run_layers,
)
from .configuration_transformer import EduTransformerConfig


@dataclass
class EduTransformerEncoderOutput(ModelOutput):
    """The source as the decoder may look at it.

    Args:
        memory: keys and values of every decoder layer. `generate()` fills it, so that its steps need not compute it
            again, and so that beams share one copy.
    """

    last_hidden_state: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    memory: tuple[tuple[Tensor, Tensor], ...] | None = None


class WordsAndPositions(nn.Module):
    """A word's vector, scaled up, plus its position's (Sections 3.4 and 3.5)."""

    def __init__(self, config: EduTransformerConfig):
        super().__init__()
        self.scale = config.hidden_size**0.5 if config.scale_embeddings else 1.0
        self.limit = None
        if config.position_embedding_type == "learned":
            self.limit = config.max_position_embeddings
            self.positions = nn.Embedding(self.limit, config.hidden_size)
        else:
            self.positions = SinusoidalPositions(config.hidden_size, config.sinusoid_layout)
        self.dropout = Dropout(config.dropout)

    def forward(self, words: Tensor, mask: Tensor | None, past: int = 0) -> Tensor:
        length = words.shape[1]
        if self.limit is not None:
            check_length(past + length, self.limit)
        positions = self.positions(positions_of(mask, length, past, words.device))
        return self.dropout(words * self.scale + positions.to(words.dtype))


class EduTransformerPreTrainedModel(Seq2SeqMethods, PreTrainedModel):
    config_class = EduTransformerConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = True
    _no_split_modules = ["TransformerLayer", "CrossAttentionLayer"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """The paper does not say; the authors' code has Glorot's range, and vectors that scaling brings to size one."""
        if isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=self.config.hidden_size**-0.5)
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)


class EduTransformerEncoder(EduTransformerPreTrainedModel):
    """Every source position looks at every other."""

    def __init__(self, config: EduTransformerConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embed = WordsAndPositions(config)
        self.layers = nn.ModuleList(TransformerLayer(config, number) for number in range(config.num_hidden_layers))
        self.final_norm = final_norm(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> EduTransformerEncoderOutput:
        check_one_of(input_ids, inputs_embeds)
        check_tokens(input_ids, attention_mask, self.config.vocab_size)
        words = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        states = self.embed(words, attention_mask)  # (B, S, D)

        config, shows_weights = choose_attention(self.config, output_attentions)
        mask = create_bidirectional_mask(config, states, attention_mask)
        packing = find_packing(attention_mask, states.shape[1])
        wants_states = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        states, all_states, all_weights = run_layers(
            self.layers, self.final_norm, states, mask, config._attn_implementation, packing
        )
        return EduTransformerEncoderOutput(
            last_hidden_state=states,
            hidden_states=padded(all_states, packing) if wants_states else None,
            attentions=tuple(all_weights) if shows_weights else None,
        )


class EduTransformerDecoder(EduTransformerPreTrainedModel):
    """Every target position looks at those before it, and at the whole source."""

    def __init__(self, config: EduTransformerConfig):
        super().__init__(config)
        self.embed_tokens = None if config.share_embeddings else nn.Embedding(config.vocab_size, config.hidden_size)
        self.embed = WordsAndPositions(config)
        self.layers = nn.ModuleList(CrossAttentionLayer(config, number) for number in range(config.decoder_layers))
        self.final_norm = final_norm(config)
        self.post_init()

    def forward(
        self,
        words: Tensor,
        source: Tensor,
        memory: tuple[tuple[Tensor, Tensor], ...] | None,
        source_mask: Tensor | None,
        mask: Tensor | None,
        packing: Packing | None,
        cache: EncoderDecoderCache | None,
        output_attentions: bool | None,
    ) -> tuple[Tensor, list[Tensor], list[Tensor], list[Tensor]]:
        """The last states, then every layer's states, weights over the target and weights over the source."""
        self_cache = None if cache is None else cache.self_attention_cache
        past = 0 if cache is None else cache.get_seq_length()
        states = self.embed(words, mask, past)  # (B, T, D)
        config, shows_weights = choose_attention(self.config, output_attentions)
        causal_mask = create_causal_mask(config, states, mask, self_cache)
        queries = states.reshape(len(source), -1, states.shape[-1])  # beams of one source in one row
        cross_mask = create_bidirectional_mask(config, queries, source_mask, encoder_hidden_states=source)
        if memory is None:
            memory = self.read_source(source, source_mask, cache)

        all_states, self_weights, cross_weights = [states], [], []
        if packing is not None:
            states = packing.pack(states)
        for layer, keys_and_values in zip(self.layers, memory, strict=True):
            states, seen, looked = layer(
                states, causal_mask, config._attn_implementation, packing, self_cache, keys_and_values, cross_mask
            )
            all_states.append(states)
            if shows_weights:
                self_weights.append(seen)
                cross_weights.append(looked)
        all_states[-1] = states = self.final_norm(states)
        if packing is not None:
            states = packing.unpack(states)
        return states, all_states, self_weights, cross_weights

    def read_source(
        self, source: Tensor, source_mask: Tensor | None, cache: EncoderDecoderCache | None
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        """The source as every layer's keys and values: projected once, and remembered if there is a cache."""
        if cache is not None and cache.is_updated.get(0):
            return tuple((layer.keys, layer.values) for layer in cache.cross_attention_cache.layers)
        packing = find_packing(source_mask, source.shape[1])
        if packing is not None:
            source = packing.pack(source)
        memory = tuple(layer.cross_attention.keys_and_values(source, packing) for layer in self.layers)
        if cache is not None:
            for number, (key, value) in enumerate(memory):
                cache.cross_attention_cache.update(key, value, number)
                cache.is_updated[number] = True
        return memory


class EduTransformerModel(EduTransformerPreTrainedModel):
    """Encoder and decoder."""

    def __init__(self, config: EduTransformerConfig):
        super().__init__(config)
        self.encoder = EduTransformerEncoder(config)
        self.decoder = EduTransformerDecoder(config)
        self.post_init()

    @merge_with_config_defaults
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: EduTransformerEncoderOutput | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        labels: Tensor | None = None,
    ) -> Seq2SeqModelOutput:
        """
        Args:
            labels: only to see where the target ends: states after its last label are zeros.
        """
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids, attention_mask, inputs_embeds, output_attentions, output_hidden_states, return_dict=True
            )
        elif not isinstance(encoder_outputs, EduTransformerEncoderOutput):  # another encoder's, or a tuple
            encoder_outputs = EduTransformerEncoderOutput(last_hidden_state=encoder_outputs[0])
        check_tokens(decoder_input_ids, None, self.config.vocab_size, "decoder_input_ids")
        table = self.decoder if self.decoder.embed_tokens is not None else self.encoder
        words = decoder_words(table, decoder_input_ids, decoder_inputs_embeds)
        cache = past_key_values
        if use_cache and cache is None:
            cache = EncoderDecoderCache(DynamicCache(config=self.config), DynamicCache(config=self.config))
        if labels is not None and decoder_attention_mask is None:
            # Nothing looks ahead, so what follows the last label reaches no label: no mask, and no work either.
            packing = find_packing(until_last_label(labels), words.shape[1])
        else:
            packing = find_packing(decoder_attention_mask, words.shape[1])
        wants_states = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        states, all_states, self_weights, cross_weights = self.decoder(
            words,
            encoder_outputs[0],
            encoder_outputs.memory,
            attention_mask,
            decoder_attention_mask,
            packing,
            cache,
            output_attentions,
        )
        return Seq2SeqModelOutput(
            last_hidden_state=states,
            past_key_values=cache if use_cache else None,
            decoder_hidden_states=padded(all_states, packing) if wants_states else None,
            decoder_attentions=tuple(self_weights) or None,
            cross_attentions=tuple(cross_weights) or None,
            encoder_last_hidden_state=encoder_outputs[0],
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )


def until_last_label(labels: Tensor) -> Tensor:
    """1 up to each row's last label, 0 behind it."""
    return (labels != -100).flip(1).cummax(dim=1).values.flip(1).long()


class EduTransformerForConditionalGeneration(Seq2SeqHead, EduTransformerPreTrainedModel, GenerationMixin):
    """Writes the target word by word; the softmax layer is the table of word vectors (Section 3.4)."""

    decoder_takes_labels = True

    def __init__(self, config: EduTransformerConfig):
        super().__init__(config)
        self.model = EduTransformerModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.logits_bias)
        side = "encoder" if config.share_embeddings else "decoder"
        self._tied_weights_keys = {"lm_head.weight": f"model.{side}.embed_tokens.weight"}
        self.post_init()

    def _expand_inputs_for_generation(self, expand_size=1, is_encoder_decoder=False, input_ids=None, **model_kwargs):
        """Repeat the target for the beams, but not the source: `look_at` lets beams share it."""
        source, mask = model_kwargs.get("encoder_outputs"), model_kwargs.get("attention_mask")
        if not isinstance(source, EduTransformerEncoderOutput):
            return super()._expand_inputs_for_generation(expand_size, is_encoder_decoder, input_ids, **model_kwargs)
        # A copy: the caller's own outputs must not carry keys that later training would take for current ones.
        memory = self.model.decoder.read_source(source.last_hidden_state, mask, None)
        source = EduTransformerEncoderOutput(**source | {"memory": memory})
        rest = {key: value for key, value in model_kwargs.items() if key not in ("encoder_outputs", "attention_mask")}
        input_ids, rest = super()._expand_inputs_for_generation(expand_size, False, input_ids, **rest)
        return input_ids, rest | {"encoder_outputs": source, "attention_mask": mask}

    def penalises_attention(self) -> bool:
        return self.config.head_diversity_weight > 0

    def attention_penalty(self, outputs: Seq2SeqModelOutput, attention_mask: Tensor | None) -> Tensor:
        keep = None if attention_mask is None else attention_mask.bool()
        penalty = head_diversity(outputs.encoder_attentions, keep)
        penalty = penalty + head_diversity(outputs.decoder_attentions, None)
        penalty = penalty + head_diversity(outputs.cross_attentions, None)
        return self.config.head_diversity_weight * penalty
