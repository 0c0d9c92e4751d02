"""Sequence to sequence: rung 3 of the ladder.

New since rung 2 (`modeling_recurrent.py`): one network reads the source into a vector, another writes from it.
Papers: Sutskever, Vinyals & Le 2014, arXiv:1409.3215; with `context_every_step` Cho et al. 2014, arXiv:1406.1078.
Differs from the papers: source and target share one vocabulary, with a table of vectors each; biases start at zero and
the forget gate's at 1; the reset gate acts as in torch (see `GRUCell`); a Cho decoder may have several layers.

Shapes: B batch, S source length, T target length, E embedding size, L layers, D hidden size, V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import Seq2SeqModelOutput
from transformers.utils.generic import ModelOutput, can_return_tuple, merge_with_config_defaults

from .blocks_cache import RecurrentCache
from .blocks_checks import check_one_of, check_tokens
from .blocks_dropout import Dropout
from .blocks_masks import keep_from
from .blocks_readout import MaxoutReadout
from .blocks_recurrent import RecurrentStack, State, init_uniformly
from .blocks_seq2seq import Seq2SeqHead, Seq2SeqMethods, decoder_words, mix_own_words
from .configuration_seq2seq import EduSeq2SeqConfig


@dataclass
class EduSeq2SeqEncoderOutput(ModelOutput):
    """What the encoder leaves: its last states are all that the decoder will know of the source.

    Args:
        last_hidden_state: (B, S, D), the top layer at each source position.
        final_state: (B, L, D), every layer after the whole source.
        final_memory: (B, L, D), the same of the LSTM's memory.
    """

    last_hidden_state: Tensor | None = None
    final_state: Tensor | None = None
    final_memory: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class StartStateDecoder(nn.Module):
    """Sutskever et al. 2014: the decoder starts in the state that the encoder ended in."""

    def __init__(self, config: EduSeq2SeqConfig):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size)
        self.dropout = Dropout(config.dropout)
        self.stack = RecurrentStack(
            config.cell_type, self.input_size(config), config.hidden_size, config.num_hidden_layers, config.dropout
        )

    @staticmethod
    def input_size(config: EduSeq2SeqConfig) -> int:
        return config.embedding_size

    def start(self, source: EduSeq2SeqEncoderOutput) -> list[State]:
        parts = [part for part in (source.final_state, source.final_memory) if part is not None]
        return [tuple(layer) for layer in zip(*(part.unbind(dim=1) for part in parts), strict=True)]

    def forward(
        self, words: Tensor, states: list[State], source: EduSeq2SeqEncoderOutput, keep: Tensor | None, how: str
    ) -> tuple[Tensor, list[Tensor], list[State]]:
        """Features for the softmax, the outputs of every layer, and the states after the last word."""
        outputs, states = self.stack(self.dropout(words), states, keep, how)
        return self.dropout(outputs[-1]), outputs, states


class EveryStepDecoder(StartStateDecoder):
    """Cho et al. 2014: the context vector reaches every step and the output as well as the start."""

    def __init__(self, config: EduSeq2SeqConfig):
        super().__init__(config)
        size = config.hidden_size
        self.start_proj = nn.Linear(size, config.num_hidden_layers * size)  # V
        self.readout = MaxoutReadout(size, config.embedding_size, size, config.maxout_size)

    @staticmethod
    def input_size(config: EduSeq2SeqConfig) -> int:
        return config.embedding_size + config.hidden_size

    def start(self, source: EduSeq2SeqEncoderOutput) -> list[State]:
        context = source.final_state[:, -1]  # (B, D)  c
        hidden = torch.tanh(self.start_proj(context)).unflatten(-1, (len(self.stack.layers), -1))  # (B, L, D)
        parts = [hidden] if source.final_memory is None else [hidden, torch.zeros_like(hidden)]
        return [tuple(layer) for layer in zip(*(part.unbind(dim=1) for part in parts), strict=True)]

    def forward(
        self, words: Tensor, states: list[State], source: EduSeq2SeqEncoderOutput, keep: Tensor | None, how: str
    ) -> tuple[Tensor, list[Tensor], list[State]]:
        words = self.dropout(words)
        contexts = source.final_state[:, -1:].expand(-1, words.shape[1], -1)  # (B, T, D)
        outputs, states = self.stack(torch.cat([words, contexts], dim=-1), states, keep, how)
        return self.readout(self.dropout(outputs[-1]), words, contexts), outputs, states


class EduSeq2SeqPreTrainedModel(Seq2SeqMethods, PreTrainedModel):
    config_class = EduSeq2SeqConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = True
    _no_split_modules = ["RecurrentLayer"]
    _is_stateful = True

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        init_uniformly(module, self.config.initializer_range, self.config.forget_gate_bias)


class EduSeq2SeqEncoder(EduSeq2SeqPreTrainedModel):
    """Reads the source, backwards if so configured, into the states of its layers."""

    def __init__(self, config: EduSeq2SeqConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size)
        self.dropout = Dropout(config.dropout)
        self.stack = RecurrentStack(
            config.cell_type, config.embedding_size, config.hidden_size, config.num_hidden_layers, config.dropout
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
    ) -> EduSeq2SeqEncoderOutput:
        check_one_of(input_ids, inputs_embeds)
        check_tokens(input_ids, attention_mask, self.config.vocab_size)
        words = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds  # (B, S, E)
        keep = keep_from(attention_mask, words.shape[1])
        turn = self.turn if self.config.reverse_source else lambda states: states

        if keep is not None:
            keep = turn(keep)
        states = [None] * self.config.num_hidden_layers
        outputs, states = self.stack(turn(self.dropout(words)), states, keep, self.config.recurrent_implementation)
        parts = [torch.stack(part, dim=1) for part in zip(*states, strict=True)]  # each (B, L, D)
        outputs = [turn(states) for states in outputs]
        wants_states = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        return EduSeq2SeqEncoderOutput(
            last_hidden_state=outputs[-1],
            final_state=parts[0],
            final_memory=parts[1] if len(parts) > 1 else None,
            hidden_states=(words, *outputs) if wants_states else None,
        )

    @staticmethod
    def turn(states: Tensor) -> Tensor:
        """Last word first, padding with its mask: a real word next to the decoder's first (Section 3.3)."""
        return states.flip(1)


class EduSeq2SeqModel(EduSeq2SeqPreTrainedModel):
    """Encoder and decoder, with a bottleneck between them; `last_hidden_state` is what the softmax layer sees."""

    def __init__(self, config: EduSeq2SeqConfig):
        super().__init__(config)
        self.encoder = EduSeq2SeqEncoder(config)
        self.decoder = (EveryStepDecoder if config.context_every_step else StartStateDecoder)(config)
        self.post_init()

    @merge_with_config_defaults
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: EduSeq2SeqEncoderOutput | None = None,
        past_key_values: RecurrentCache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> Seq2SeqModelOutput:
        source = encoder_outputs
        if source is None:
            source = self.encoder(
                input_ids, attention_mask, inputs_embeds, output_hidden_states=output_hidden_states, return_dict=True
            )
        if getattr(source, "final_state", None) is None:
            raise ValueError(
                f"encoder_outputs is a {type(source).__name__} without final_state; give what get_encoder() returns "
                "with return_dict=True, or input_ids"
            )
        check_tokens(decoder_input_ids, None, self.config.vocab_size, "decoder_input_ids")
        words = decoder_words(self.decoder, decoder_input_ids, decoder_inputs_embeds)  # (B, T, E)
        keep = keep_from(decoder_attention_mask, words.shape[1])

        cache = RecurrentCache() if past_key_values is None else past_key_values
        is_first = cache.get_seq_length() == 0
        states = self.decoder.start(source) if is_first else [cache.state(i) for i in range(len(cache))]
        features, outputs, states = self.decoder(words, states, source, keep, self.config.recurrent_implementation)
        if use_cache:
            for level, state in enumerate(states):
                cache.write(level, state, words.shape[1])

        wants_states = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        return Seq2SeqModelOutput(
            last_hidden_state=features,
            past_key_values=cache if use_cache else None,
            decoder_hidden_states=(words, *outputs) if wants_states else None,
            encoder_last_hidden_state=source.last_hidden_state,
            encoder_hidden_states=source.hidden_states,
        )


class EduSeq2SeqForConditionalGeneration(Seq2SeqHead, EduSeq2SeqPreTrainedModel, GenerationMixin):
    """Writes the target word by word."""

    _tied_weights_keys = {"lm_head.weight": "model.decoder.embed_tokens.weight"}

    def __init__(self, config: EduSeq2SeqConfig):
        super().__init__(config)
        self.model = EduSeq2SeqModel(config)
        self.lm_head = nn.Linear(config.readout_size, config.vocab_size, bias=False)
        self.post_init()

    def words_to_feed(self, decoder_input_ids: Tensor, encoder_outputs, attention_mask: Tensor | None) -> Tensor:
        """Scheduled sampling: some of the reference's words give way to the model's own."""
        if self.config.teacher_forcing_ratio == 1:
            return decoder_input_ids
        share = self.config.teacher_forcing_ratio
        return mix_own_words(self, decoder_input_ids, encoder_outputs, attention_mask, share)
