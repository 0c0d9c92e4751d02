"""The Transformer.

New since `modeling_bahdanau.py`: no recurrence at all. Self-attention reads the source and the target so far,
cross-attention connects them; several heads attend at once, and position encodings are added to the embeddings.
Paper: Vaswani et al. 2017, arXiv:1706.03762.
Differs from the paper: source and target share one vocabulary (so does the paper's English-German model); the rest is a
setting, with the paper's as its default.

Shapes: B batch, T target length, S source length, D hidden size, V vocabulary.
"""

from dataclasses import dataclass

from torch import Tensor, nn
from transformers import GenerationMixin
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_outputs import Seq2SeqModelOutput
from transformers.utils.generic import ModelOutput, can_return_tuple, merge_with_config_defaults

from .blocks_cache import cache_source
from .blocks_checks import check_and_embed, check_length, check_shape
from .blocks_dropout import Dropout
from .blocks_fast_step import TransformerStepper, can_read_weights
from .blocks_packing import reject_packing
from .blocks_positions import SinusoidalPositions
from .blocks_seq2seq import Seq2SeqHead, Seq2SeqMethods, embed_decoder_inputs, two_pass_sampling
from .blocks_state_checks import (
    check_attention_cache,
    check_encoded,
    check_rows,
    check_source_cache,
    first_output,
    known_length,
)
from .blocks_transformer import CrossAttentionLayer, TransformerLayer
from .blocks_transformer_stack import (
    AttentionPreTrainedModel,
    choose_attention,
    final_norm,
    head_diversity,
    positions_of,
    run_layers,
    run_self_attention,
)
from .blocks_unpadding import Unpadding, find_unpadding
from .configuration_transformer import EduTransformerConfig


@dataclass
class EduTransformerEncoderOutput(ModelOutput):
    """The source as the decoder attends over it.

    Args:
        keys_and_values: of every decoder layer. `generate()` fills it, so that its steps do not compute it again and
            beams share one copy.
    """

    last_hidden_state: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    keys_and_values: tuple[tuple[Tensor, Tensor], ...] | None = None


class TransformerEmbeddings(nn.Module):
    """sqrt(d) * E(x_t) + PE(t): token embedding, scaled, plus position encoding (Sections 3.4 and 3.5)."""

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

    def forward(self, embeddings: Tensor, attention_mask: Tensor | None, past: int = 0) -> Tensor:
        length = embeddings.shape[1]
        if self.limit is not None:
            check_length(past + length, self.limit)
        positions = self.positions(positions_of(attention_mask, length, past, embeddings.device))
        return self.dropout(embeddings * self.scale + positions.to(embeddings.dtype))


class EduTransformerPreTrainedModel(Seq2SeqMethods, AttentionPreTrainedModel):
    config_class = EduTransformerConfig
    _no_split_modules = ["TransformerLayer", "CrossAttentionLayer"]

    def init_matrix(self, module: nn.Linear | nn.Embedding) -> None:
        """As in the authors' code, for the paper does not say: Glorot uniform, and embeddings of unit scale."""
        if isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
        else:
            init.normal_(module.weight, std=self.config.hidden_size**-0.5)


class EduTransformerEncoder(EduTransformerPreTrainedModel):
    """Layers in which every source position attends over the whole source."""

    def __init__(self, config: EduTransformerConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embed = TransformerEmbeddings(config)
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
        **kwargs,
    ) -> EduTransformerEncoderOutput:
        embeddings = check_and_embed(self.embed_tokens, self.config, input_ids, attention_mask, inputs_embeds)
        states = self.embed(embeddings, attention_mask)  # (B, S, D)
        config, output_attentions = choose_attention(self.config, output_attentions, self.training)
        mask = create_bidirectional_mask(config, states, attention_mask)
        return EduTransformerEncoderOutput(
            **run_self_attention(self, config, states, attention_mask, mask, output_attentions, output_hidden_states)
        )


class EduTransformerDecoder(EduTransformerPreTrainedModel):
    """Layers in which every target position attends over itself, those before it, and the whole source."""

    def __init__(self, config: EduTransformerConfig):
        super().__init__(config)
        self.embed_tokens = None if config.share_embeddings else nn.Embedding(config.vocab_size, config.hidden_size)
        self.embed = TransformerEmbeddings(config)
        self.layers = nn.ModuleList(CrossAttentionLayer(config, number) for number in range(config.decoder_layers))
        self.final_norm = final_norm(config)
        self.post_init()

    def forward(
        self,
        embeddings: Tensor,
        source: EduTransformerEncoderOutput,
        source_mask: Tensor | None,
        attention_mask: Tensor | None,
        unpadding: Unpadding,
        cache: EncoderDecoderCache | None,
        output_attentions: bool | None,
        output_hidden_states: bool | None,
    ) -> dict:
        """The decoder's fields of a `Seq2SeqModelOutput`."""
        self_cache = None if cache is None else cache.self_attention_cache
        check_attention_cache(self_cache, embeddings.shape[0], len(self.layers), self.config, embeddings.dtype)
        past = 0 if cache is None else cache.get_seq_length()
        states = self.embed(embeddings, attention_mask, past)  # (B, T, D)
        config, output_attentions = choose_attention(self.config, output_attentions, self.training)
        mask = create_causal_mask(config, states, attention_mask, self_cache)
        encoded = source.last_hidden_state  # (B, S, D)
        queries = states.reshape(encoded.shape[0], -1, states.shape[-1])  # beams of one source in one row
        cross_mask = create_bidirectional_mask(config, queries, source_mask, encoder_hidden_states=encoded)
        source_unpadding = find_unpadding(source_mask, encoded.shape[1])
        if source.keys_and_values is None and cache is None:  # each layer projects the source itself
            keys_and_values = ((source_unpadding.unpad(encoded), None),) * len(self.layers)
        else:
            keys_and_values = source.keys_and_values or self.project_source(encoded, source_mask, cache)
        if cache is not None and not cache.is_updated.get(0):
            cache_source(cache, keys_and_values, num_beams=states.shape[0] // encoded.shape[0])

        shared = (mask, config._attn_implementation, unpadding, self_cache)
        arguments = [(*shared, key, value, cross_mask, source_unpadding) for key, value in keys_and_values]
        states, all_states, weights = run_layers(self, states, unpadding, arguments, output_hidden_states)
        self_weights, cross_weights = zip(*weights, strict=True)
        return {
            "last_hidden_state": states,
            "decoder_hidden_states": all_states,
            "decoder_attentions": self_weights if output_attentions else None,
            "cross_attentions": cross_weights if output_attentions else None,
        }

    def project_source(
        self, encoded: Tensor, source_mask: Tensor | None, cache: EncoderDecoderCache | None
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        """The source as keys and values of every layer, from the cache if they are in it."""
        if cache is not None and cache.is_updated.get(0):
            return tuple((layer.keys, layer.values) for layer in cache.cross_attention_cache.layers)
        unpadding = find_unpadding(source_mask, encoded.shape[1])
        encoded = unpadding.unpad(encoded)
        return tuple(layer.cross_attention.keys_and_values(encoded, unpadding) for layer in self.layers)


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
        **kwargs,
    ) -> Seq2SeqModelOutput:
        """
        Args:
            labels: only to find where the target ends: states after its last label are zeros.
        """
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids, attention_mask, inputs_embeds, output_attentions, output_hidden_states, return_dict=True
            )
        elif not isinstance(encoder_outputs, EduTransformerEncoderOutput):  # another encoder's, or a tuple
            encoder_outputs = EduTransformerEncoderOutput(last_hidden_state=first_output(encoder_outputs))
        embed_tokens = self.decoder.embed_tokens or self.encoder.embed_tokens
        check_encoded(encoder_outputs[0], attention_mask, self.config.hidden_size, embed_tokens.weight.dtype)
        reject_packing(self.config.model_type, attention_mask, **kwargs)
        cache = past_key_values
        check_source_cache(cache, encoder_outputs[0].shape[1])
        inputs = (decoder_input_ids, decoder_inputs_embeds, decoder_attention_mask, known_length(cache))
        embeddings = embed_decoder_inputs(embed_tokens, self.config, *inputs)
        if encoder_outputs.keys_and_values is None:  # else `generate()` lets beams share a source
            check_rows(embeddings.shape[0], encoder_outputs[0].shape[0])
        if use_cache and cache is None:
            cache = EncoderDecoderCache(DynamicCache(config=self.config), DynamicCache(config=self.config))
        is_real = decoder_attention_mask
        if labels is not None:
            check_shape("labels", labels, embeddings.shape[:2], why=", one for each prediction")
        if labels is not None and decoder_attention_mask is None:
            # Attention is causal, so what follows the last label affects no label: it needs no mask and no computation.
            is_real = _until_last_label(labels)
        outputs = self.decoder(
            embeddings,
            encoder_outputs,
            attention_mask,
            decoder_attention_mask,
            find_unpadding(is_real, embeddings.shape[1]),
            cache,
            output_attentions,
            output_hidden_states,
        )
        return Seq2SeqModelOutput(
            past_key_values=cache if use_cache else None,
            encoder_last_hidden_state=encoder_outputs[0],
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
            **outputs,
        )


def _until_last_label(labels: Tensor) -> Tensor:
    """1 up to the last label of each row, 0 after it."""
    return (labels != -100).flip(1).cummax(dim=1).values.flip(1).long()


class EduTransformerForConditionalGeneration(Seq2SeqHead, EduTransformerPreTrainedModel, GenerationMixin):
    """Predicts the target token by token; the softmax layer is tied to the embeddings (Section 3.4)."""

    decoder_takes_labels = True
    _tp_plan = {"lm_head": "colwise_gather_output"}

    def __init__(self, config: EduTransformerConfig):
        super().__init__(config)
        self.model = EduTransformerModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.logits_bias)
        side = "encoder" if config.share_embeddings else "decoder"
        self._tied_weights_keys = {"lm_head.weight": f"model.{side}.embed_tokens.weight"}
        self.post_init()

    def _expand_inputs_for_generation(self, expand_size=1, is_encoder_decoder=False, input_ids=None, **model_kwargs):
        """Repeat the target for the beams, but not the source: in `cross_attend` beams share it."""
        source, mask = model_kwargs.get("encoder_outputs"), model_kwargs.get("attention_mask")
        if not isinstance(source, EduTransformerEncoderOutput):
            return super()._expand_inputs_for_generation(expand_size, is_encoder_decoder, input_ids, **model_kwargs)
        # A copy: keys in the caller's outputs would be outdated after a training step.
        keys_and_values = self.model.decoder.project_source(source.last_hidden_state, mask, None)
        source = EduTransformerEncoderOutput(**source | {"keys_and_values": keys_and_values})
        rest = {key: value for key, value in model_kwargs.items() if key not in ("encoder_outputs", "attention_mask")}
        input_ids, rest = super()._expand_inputs_for_generation(expand_size, False, input_ids, **rest)
        return input_ids, rest | {"encoder_outputs": source, "attention_mask": mask}

    def make_stepper(self, prompts: Tensor, num_beams: int, max_length: int, inputs: dict):
        source, decoder = inputs["encoder_outputs"], self.model.decoder
        embed_tokens, limit = decoder.embed_tokens or self.model.encoder.embed_tokens, decoder.embed.limit
        if getattr(source, "keys_and_values", None) is None or (limit is not None and max_length > limit + 1):
            return None
        if not can_read_weights(decoder, embed_tokens, self.lm_head):
            return None
        mask = inputs.get("attention_mask")
        return TransformerStepper(decoder, embed_tokens, self.lm_head, prompts, num_beams, source, mask)

    def sample_decoder_inputs(
        self, decoder_input_ids: Tensor, encoder_outputs, attention_mask: Tensor | None, teacher_forcing_ratio: float
    ) -> Tensor:
        return two_pass_sampling(self, decoder_input_ids, encoder_outputs, attention_mask, teacher_forcing_ratio)

    def attention_penalties(self, outputs: Seq2SeqModelOutput, attention_mask: Tensor | None, labels: Tensor) -> Tensor:
        """Of the target, positions that have a label count."""
        is_labelled = labels != -100
        penalties = head_diversity(outputs.decoder_attentions, is_labelled)
        penalties = penalties + head_diversity(outputs.cross_attentions, is_labelled)
        if outputs.encoder_attentions is not None:  # the source may come encoded
            penalties = penalties + head_diversity(outputs.encoder_attentions, attention_mask)
        return penalties
