"""What surrounds the ideas of the recurrent encoder-decoders: inputs, masks, cache and outputs.

Shapes: B batch, S source length, T target length, E embedding size, D hidden size.
"""

from torch import Tensor, nn
from transformers.modeling_outputs import Seq2SeqModelOutput
from transformers.utils.generic import ModelOutput, can_return_tuple, merge_with_config_defaults

from .blocks_cache import RecurrentCache, open_cache
from .blocks_checks import check_and_embed
from .blocks_dropout import Dropout
from .blocks_fast_recurrent import reader
from .blocks_masks import boolean_mask
from .blocks_packing import reject_packing
from .blocks_recurrent import RecurrentStack, State
from .blocks_recurrent_step import PlainSteps
from .blocks_seq2seq import embed_decoder_inputs
from .blocks_state_checks import check_rows


class RecurrentEncoder:
    """Token embeddings, dropout and recurrent layers; a subclass's `read` makes its output of them."""

    bidirectional = False

    def __init__(self, config):
        super().__init__(config)
        size = config.encoder_hidden_size
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size)
        self.dropout = Dropout(config.dropout)
        self.stack = RecurrentStack(
            config.cell_type, config.embedding_size, size, config.num_hidden_layers, config.dropout, self.bidirectional
        )
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
    ) -> ModelOutput:
        embeddings = check_and_embed(
            self.embed_tokens, self.config, input_ids, attention_mask, inputs_embeds
        )  # (B, S, E)
        outputs = self.read(self.dropout(embeddings), boolean_mask(attention_mask, embeddings.shape[1]))
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        outputs.hidden_states = (embeddings, *outputs.hidden_states) if output_hidden_states else None
        return outputs

    def run_stack(self, embeddings: Tensor, mask: Tensor | None) -> tuple[list[Tensor], list[State]]:
        """The outputs and the last state of every layer."""
        states = [None] * self.config.num_hidden_layers
        return self.stack(embeddings, states, mask, self.config.recurrent_implementation)


class RecurrentSeq2SeqModel:
    """Runs `self.encoder` and `self.decoder`; `last_hidden_state` is what the softmax layer reads."""

    @merge_with_config_defaults
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: ModelOutput | None = None,
        past_key_values: RecurrentCache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs,
    ) -> Seq2SeqModelOutput:
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids, attention_mask, inputs_embeds, output_hidden_states=output_hidden_states, return_dict=True
            )
        source, source_mask = self.prepare_source(encoder_outputs, attention_mask).values()
        reject_packing(self.config.model_type, attention_mask, **kwargs)
        cache = open_cache(past_key_values, self.decoder.num_states)
        inputs = (decoder_input_ids, decoder_inputs_embeds, decoder_attention_mask, cache.get_seq_length())
        embeddings = embed_decoder_inputs(self.decoder.embed_tokens, self.config, *inputs)  # (B, T, E)
        check_rows(embeddings.shape[0], source.last_hidden_state.shape[0])
        mask = boolean_mask(decoder_attention_mask, embeddings.shape[1])

        is_first = cache.get_seq_length() == 0
        states = self.decoder.start(source, source_mask) if is_first else [cache.state(i) for i in range(len(cache))]
        features, outputs, weights, states = self.decoder(
            embeddings, states, source, source_mask, mask, self.config.recurrent_implementation
        )
        if use_cache:
            for layer, state in enumerate(states):
                cache.write(layer, state, embeddings.shape[1])

        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        output_attentions = self.config.output_attentions if output_attentions is None else output_attentions
        return Seq2SeqModelOutput(
            last_hidden_state=features,
            past_key_values=cache if use_cache else None,
            decoder_hidden_states=(embeddings, *outputs) if output_hidden_states else None,
            cross_attentions=(weights[:, None],) if output_attentions and weights is not None else None,
            encoder_last_hidden_state=source.last_hidden_state,
            encoder_hidden_states=source.hidden_states,
        )

    def prepare_source(self, encoder_outputs: ModelOutput, attention_mask: Tensor | None) -> dict:
        """The source as the decoder reads it, and its boolean mask."""
        source = self.check_source(encoder_outputs, attention_mask)
        return {"source": source, "source_mask": boolean_mask(attention_mask, source.last_hidden_state.shape[1])}

    def steps(self, source: ModelOutput, source_mask: Tensor | None, num_beams: int):
        """The decoder for the searches of `blocks_search.py`; the source has one row for each beam."""
        read = reader(self.decoder, len(source.last_hidden_state))
        if read is not None and self.config.recurrent_implementation == "fused":
            steps = self.decoder.fast_steps(read, source, source_mask, num_beams)
            if steps is not None:
                return steps
        return PlainSteps(self.advance, {"source": source, "source_mask": source_mask})

    def advance(self, embeddings: Tensor, states: list[State], source: ModelOutput, source_mask: Tensor | None):
        """Features for the softmax layer and new states."""
        implementation = self.config.recurrent_implementation
        features, _, _, states = self.decoder(embeddings, states, source, source_mask, None, implementation)
        return features, states
