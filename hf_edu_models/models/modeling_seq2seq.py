"""Sequence to sequence.

New since `modeling_recurrent.py`: one network encodes the source into a vector, another decodes the target from it.
Papers: Sutskever, Vinyals & Le 2014, arXiv:1409.3215; with `context_every_step` Cho et al. 2014, arXiv:1406.1078.
Differs from the papers: source and target share one vocabulary, with embeddings of their own; biases start at zero and
the forget gate's at 1; the reset gate acts as in torch (see `GRUCell`); a Cho decoder may have several layers.

Shapes: B batch, S source length, T target length, E embedding size, L layers, D hidden size, V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.utils.generic import ModelOutput

from .blocks_cache import StatefulPreTrainedModel
from .blocks_dropout import Dropout
from .blocks_fast_recurrent import FastContextSteps, FastStack, FastStackSteps, Read
from .blocks_readout import MaxoutReadout
from .blocks_recurrent import CELLS, RecurrentStack, State, init_uniformly
from .blocks_recurrent_seq2seq import RecurrentEncoder, RecurrentSeq2SeqModel
from .blocks_seq2seq import Seq2SeqHead, Seq2SeqMethods
from .blocks_state_checks import check_encoded, check_state
from .configuration_seq2seq import EduSeq2SeqConfig


@dataclass
class EduSeq2SeqEncoderOutput(ModelOutput):
    """The encoder's result: its final states are all that the decoder gets of the source.

    Args:
        last_hidden_state: (B, S, D), the top layer at each source position.
        final_state: (B, L, D), the hidden state of every layer after the whole source.
        final_cell_state: (B, L, D), the same for the LSTM's cell state.
    """

    last_hidden_state: Tensor | None = None
    final_state: Tensor | None = None
    final_cell_state: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None


def _split_layers(*parts: Tensor) -> list[State]:
    """From tensors (B, L, D) to the state of each layer."""
    return list(zip(*(part.unbind(dim=1) for part in parts), strict=True))


class SutskeverDecoder(nn.Module):
    """Sutskever et al. 2014: the decoder starts in the encoder's final state.

    s_0 = h_S;  s_t = f(y_{t-1}, s_{t-1});  p(y_t | y_1 .. y_{t-1}, x) = softmax(W s_t)
    """

    def __init__(self, config: EduSeq2SeqConfig):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size)
        self.dropout = Dropout(config.dropout)
        self.stack = RecurrentStack(
            config.cell_type, self.input_size(config), config.hidden_size, config.num_hidden_layers, config.dropout
        )
        self.num_states, self.state_tensors = config.num_hidden_layers, CELLS[config.cell_type].state_tensors

    @staticmethod
    def input_size(config: EduSeq2SeqConfig) -> int:
        return config.embedding_size

    def start(self, source: EduSeq2SeqEncoderOutput, source_mask: Tensor | None) -> list[State]:
        parts = [part for part in (source.final_state, source.final_cell_state) if part is not None]
        return _split_layers(*parts)

    def forward(
        self,
        embeddings: Tensor,
        states: list[State],
        source: EduSeq2SeqEncoderOutput,
        source_mask: Tensor | None,
        mask: Tensor | None,
        implementation: str,
    ) -> tuple[Tensor, list[Tensor], None, list[State]]:
        """Features for the softmax, outputs of every layer, no attention weights, and states after the last token."""
        outputs, states = self.stack(self.dropout(embeddings), states, mask, implementation)
        return self.dropout(outputs[-1]), outputs, None, states

    def fast_steps(self, read: Read, source: EduSeq2SeqEncoderOutput, source_mask: Tensor | None, num_beams: int):
        """The decoder as the searches of `blocks_search.py` take it, or None where only `forward` will do."""
        return FastStackSteps(self.stack, read) if FastStack.can_read(self.stack) else None


class ChoDecoder(SutskeverDecoder):
    """Cho et al. 2014: every step and the output see the context vector c, not only the start.

    c = h_S;  s_0 = tanh(V c);  s_t = f(y_{t-1}, s_{t-1}, c);  p(y_t | ...) = softmax(W g(s_t, y_{t-1}, c)), g a maxout
    """

    def __init__(self, config: EduSeq2SeqConfig):
        super().__init__(config)
        size = config.hidden_size
        self.start_proj = nn.Linear(size, config.num_hidden_layers * size)  # V
        self.readout = MaxoutReadout(size, config.embedding_size, size, config.maxout_size)

    @staticmethod
    def input_size(config: EduSeq2SeqConfig) -> int:
        return config.embedding_size + config.hidden_size

    def start(self, source: EduSeq2SeqEncoderOutput, source_mask: Tensor | None) -> list[State]:
        context = source.final_state[:, -1]  # (B, D)  c
        hidden = torch.tanh(self.start_proj(context)).unflatten(-1, (len(self.stack.layers), -1))  # (B, L, D)
        parts = [hidden] if source.final_cell_state is None else [hidden, torch.zeros_like(hidden)]
        return _split_layers(*parts)

    def forward(
        self,
        embeddings: Tensor,
        states: list[State],
        source: EduSeq2SeqEncoderOutput,
        source_mask: Tensor | None,
        mask: Tensor | None,
        implementation: str,
    ) -> tuple[Tensor, list[Tensor], None, list[State]]:
        embeddings = self.dropout(embeddings)
        contexts = source.final_state[:, -1:].expand(-1, embeddings.shape[1], -1)  # (B, T, D)
        outputs, states = self.stack(torch.cat([embeddings, contexts], dim=-1), states, mask, implementation)
        return self.readout(self.dropout(outputs[-1]), embeddings, contexts), outputs, None, states

    def fast_steps(self, read: Read, source: EduSeq2SeqEncoderOutput, source_mask: Tensor | None, num_beams: int):
        if not FastStack.can_read(self.stack):
            return None
        return FastContextSteps(self.stack, self.readout, read, source.final_state[:, -1])


class EduSeq2SeqPreTrainedModel(Seq2SeqMethods, StatefulPreTrainedModel):
    config_class = EduSeq2SeqConfig
    _no_split_modules = ["RecurrentLayer"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        init_uniformly(module, self.config.initializer_range, self.config.forget_gate_bias)


class EduSeq2SeqEncoder(RecurrentEncoder, EduSeq2SeqPreTrainedModel):
    """h_t = f(x_t, h_{t-1}) over the source, from its last token to its first with `reverse_source` (Section 3.3)."""

    def read(self, embeddings: Tensor, mask: Tensor | None) -> EduSeq2SeqEncoderOutput:
        mask = None if mask is None else self.maybe_reverse(mask)
        outputs, states = self.run_stack(self.maybe_reverse(embeddings), mask)
        parts = [torch.stack(part, dim=1) for part in zip(*states, strict=True)]  # each (B, L, D)
        outputs = [self.maybe_reverse(states) for states in outputs]
        return EduSeq2SeqEncoderOutput(outputs[-1], *parts, hidden_states=outputs)

    def maybe_reverse(self, states: Tensor) -> Tensor:
        return states.flip(1) if self.config.reverse_source else states


class EduSeq2SeqModel(RecurrentSeq2SeqModel, EduSeq2SeqPreTrainedModel):
    """Encoder and decoder, with a bottleneck between them."""

    def __init__(self, config: EduSeq2SeqConfig):
        super().__init__(config)
        self.encoder = EduSeq2SeqEncoder(config)
        self.decoder = (ChoDecoder if config.context_every_step else SutskeverDecoder)(config)
        self.post_init()

    def check_source(self, encoder_outputs, attention_mask: Tensor | None) -> EduSeq2SeqEncoderOutput:
        if getattr(encoder_outputs, "final_state", None) is None:
            raise ValueError(
                f"encoder_outputs is a {type(encoder_outputs).__name__} without final_state; give what get_encoder() "
                "returns with return_dict=True, or input_ids"
            )
        states, config = encoder_outputs.last_hidden_state, self.config
        check_encoded(states, attention_mask, config.hidden_size, self.decoder.embed_tokens.weight.dtype)
        final_states = [encoder_outputs.final_state, encoder_outputs.final_cell_state][: self.decoder.state_tensors]
        shape = (states.shape[0], config.num_hidden_layers, config.hidden_size)
        check_state(final_states, [shape] * len(final_states), states.dtype)
        return encoder_outputs


class EduSeq2SeqForConditionalGeneration(Seq2SeqHead, EduSeq2SeqPreTrainedModel, GenerationMixin):
    """Predicts the target token by token."""

    _tied_weights_keys = {"lm_head.weight": "model.decoder.embed_tokens.weight"}

    def __init__(self, config: EduSeq2SeqConfig):
        super().__init__(config)
        self.model = EduSeq2SeqModel(config)
        self.lm_head = nn.Linear(config.readout_size, config.vocab_size, bias=False)
        self.post_init()
