"""Encoder-decoder with attention.

New since `modeling_seq2seq.py`: no single vector holds the source; before each target token the decoder attends over
every source position and weighs them.
Paper: Bahdanau, Cho & Bengio 2015, arXiv:1409.0473; other scores: Luong, Pham & Manning 2015, arXiv:1508.04025.
Differs from the paper: source and target share one vocabulary, with embeddings of their own; gates are as in torch (see
`GRUCell`); the cell may be an LSTM or a plain RNN; the output reads the new state s_i, the paper's s_{i-1}.

Shapes: B batch, S source length, T target length, E embedding size, D hidden size, C annotation size.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import GenerationMixin
from transformers import initialization as init
from transformers.utils.generic import ModelOutput

from .blocks_attention import NORMALIZERS, SCORES, AdditiveScore, ProjectedScore, attend
from .blocks_cache import StatefulPreTrainedModel
from .blocks_dropout import Dropout
from .blocks_fast_recurrent import FastAttentiveSteps, Read
from .blocks_fused_attention import SourceProjection, StepWeights, attend_fused, project_source
from .blocks_masks import first_token, update_where
from .blocks_readout import READOUTS
from .blocks_recurrent import CELLS, State, init_orthogonally
from .blocks_recurrent_seq2seq import RecurrentEncoder, RecurrentSeq2SeqModel
from .blocks_scan import scan_steps
from .blocks_seq2seq import Seq2SeqHead, Seq2SeqMethods
from .blocks_state_checks import check_encoded, check_state, first_output
from .configuration_bahdanau import EduBahdanauConfig


@dataclass
class EduBahdanauEncoderOutput(ModelOutput):
    """The source as the decoder attends over it.

    Args:
        last_hidden_state: (B, S, C), the annotations h_j: what both directions know at each source position.
        score_keys, cell_inputs, step_weights: the fields of `SourceProjection`. `generate()` fills the first two, and
            its first step the third, so that no step computes them again.
    """

    last_hidden_state: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    score_keys: Tensor | None = None
    cell_inputs: Tensor | None = None
    step_weights: tuple[Tensor | None, ...] | None = None


class AttentiveDecoder(nn.Module):
    """At each step: score the annotations against the state, average them by the weights, update the state.

    e_ij = a(s_{i-1}, h_j);  alpha_ij = softmax_j(e_ij);  c_i = sum_j alpha_ij h_j;  s_i = f(s_{i-1}, y_{i-1}, c_i)
    """

    def __init__(self, config: EduBahdanauConfig):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size)
        self.dropout = Dropout(config.dropout)
        self.start_proj = nn.Linear(config.encoder_hidden_size, config.hidden_size)  # W_s
        self.score = SCORES[config.attention_score](config.hidden_size, config.annotation_size, config.attention_size)
        self.normalizer = NORMALIZERS[config.attention_normalizer]()
        self.num_states, self.state_tensors = 1, CELLS[config.cell_type].state_tensors
        self.cell = CELLS[config.cell_type](config.embedding_size + config.annotation_size, config.hidden_size)
        self.readout = READOUTS[config.readout](
            config.hidden_size, config.embedding_size, config.annotation_size, config.maxout_size
        )

    def start(self, source: EduBahdanauEncoderOutput, source_mask: Tensor | None) -> list[State]:
        """s_0 = tanh(W_s h_1), h_1 the backward encoder's state at the first token, where it ends (App. A.2.2)."""
        _, backward_state = first_token(source.last_hidden_state, source_mask).chunk(2, dim=-1)
        hidden = torch.tanh(self.start_proj(backward_state))  # (B, D)  s_0
        return [(hidden, *(torch.zeros_like(hidden),) * (self.state_tensors - 1))]

    def unroll(
        self, embeddings: Tensor, state: State, annotations: Tensor, source_mask: Tensor | None, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, State]:
        """The paper, step by step: states (B, T, D), weights (B, T, S) and the last state."""
        keys = self.score.prepare(annotations)

        def step(state, embedding, is_real):
            scores = self.score(state[0], keys)  # (B, S)  e_ij: how well s_{i-1} and h_j match
            context, weights = attend(scores, annotations, source_mask, self.normalizer)
            new_state = self.cell(torch.cat([embedding, context], dim=-1), state)  # s_i = f(s_{i-1}, y_{i-1}, c_i)
            state = new_state if is_real is None else update_where(is_real, new_state, state)
            return state, (state[0], weights)

        (states, weights), state = scan_steps(step, state, embeddings, mask)
        return states, weights, state

    def forward(
        self,
        embeddings: Tensor,
        states: list[State],
        source: EduBahdanauEncoderOutput,
        source_mask: Tensor | None,
        mask: Tensor | None,
        implementation: str,
    ) -> tuple[Tensor, list[Tensor], Tensor, list[State]]:
        """Features for the softmax, states (B, T, D), weights (B, T, S) and the state after the last token."""
        (state,) = states  # one layer
        check_state(state, [(embeddings.shape[0], self.start_proj.out_features)] * self.state_tensors, embeddings.dtype)
        embeddings, annotations = self.dropout(embeddings), source.last_hidden_state
        # A padded target is rare enough for the eager loop.
        projection = self.project(source) if implementation == "fused" and mask is None else None
        if projection is None:
            hidden_states, weights, state = self.unroll(embeddings, state, annotations, source_mask, mask)
        else:
            step_weights = self.step_weights(source)
            hidden_states, weights, state = attend_fused(self, embeddings, state, projection, step_weights, source_mask)
        contexts = torch.bmm(weights, annotations)  # (B, T, C)
        features = self.readout(self.dropout(hidden_states), embeddings, contexts)
        return features, [hidden_states], weights, [state]

    def project(self, source: EduBahdanauEncoderOutput) -> SourceProjection | None:
        """The source for the fused form, computed unless `generate()` has done so; None to run eager."""
        if source.score_keys is not None and not (torch.is_grad_enabled() or torch.compiler.is_compiling()):
            return SourceProjection(source.score_keys, source.cell_inputs)
        return project_source(self, source.last_hidden_state)

    def step_weights(self, source: EduBahdanauEncoderOutput) -> StepWeights:
        """The weights of one step; the first step of `generate()` leaves them for the next ones."""
        if source.step_weights is not None and not torch.is_grad_enabled():
            return StepWeights(*source.step_weights)
        weights = self.score.fused.step_weights(self.score, self.cell)
        if source.score_keys is not None and not torch.is_grad_enabled():
            source.step_weights = tuple(weights)
        return weights

    def fast_steps(self, read: Read, source: EduBahdanauEncoderOutput, source_mask: Tensor | None, num_beams: int):
        """The decoder as the searches of `blocks_search.py` take it, or None where only `forward` will do."""
        projection = self.project(source)
        if projection is None:
            return None
        return FastAttentiveSteps(self, read, projection, source.last_hidden_state, source_mask, num_beams)


class EduBahdanauPreTrainedModel(Seq2SeqMethods, StatefulPreTrainedModel):
    config_class = EduBahdanauConfig
    _no_split_modules = ["RecurrentLayer"]  # not the decoder: the softmax layer may be tied to its embeddings

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """The paper's App. B.1 on parameter initialization."""
        std = self.config.initializer_range
        init_orthogonally(module, std, self.config.forget_gate_bias)
        if isinstance(module, AdditiveScore):
            init.normal_(module.query_weight, std=0.1 * std)
            init.normal_(module.key_weight, std=0.1 * std)
            init.zeros_(module.score_vector)
        elif isinstance(module, ProjectedScore):  # as in the Transformer
            init.xavier_uniform_(module.query_weight)
            init.xavier_uniform_(module.key_weight)


class EduBahdanauEncoder(RecurrentEncoder, EduBahdanauPreTrainedModel):
    """Reads the source in both directions; the annotation h_j = [h_j forward; h_j backward], Eq. (7)."""

    bidirectional = True

    def read(self, embeddings: Tensor, mask: Tensor | None) -> EduBahdanauEncoderOutput:
        outputs, _ = self.run_stack(embeddings, mask)
        annotations = self.dropout(outputs[-1])  # (B, S, C)  h_j, Eq. (7)
        return EduBahdanauEncoderOutput(annotations, hidden_states=outputs)


class EduBahdanauModel(RecurrentSeq2SeqModel, EduBahdanauPreTrainedModel):
    """Encoder and attentive decoder."""

    def __init__(self, config: EduBahdanauConfig):
        super().__init__(config)
        self.encoder = EduBahdanauEncoder(config)
        self.decoder = AttentiveDecoder(config)
        self.post_init()

    def check_source(self, encoder_outputs, attention_mask: Tensor | None) -> EduBahdanauEncoderOutput:
        """Another encoder's output, or a tuple, will do: its first field is the annotations."""
        if not isinstance(encoder_outputs, EduBahdanauEncoderOutput):
            encoder_outputs = EduBahdanauEncoderOutput(last_hidden_state=first_output(encoder_outputs))
        annotations, dtype = encoder_outputs.last_hidden_state, self.decoder.embed_tokens.weight.dtype
        check_encoded(annotations, attention_mask, self.config.annotation_size, dtype)
        return encoder_outputs


class EduBahdanauForConditionalGeneration(Seq2SeqHead, EduBahdanauPreTrainedModel, GenerationMixin):
    """Predicts the target token by token, attending over the source for each."""

    _tied_weights_keys = {"lm_head.weight": "model.decoder.embed_tokens.weight"}

    def __init__(self, config: EduBahdanauConfig):
        super().__init__(config)
        self.model = EduBahdanauModel(config)
        self.lm_head = nn.Linear(config.maxout_size, config.vocab_size, bias=False)  # W_o
        self.post_init()

    def _expand_inputs_for_generation(self, *args, **model_kwargs):
        """Project the source once for all steps, and before it is repeated for the beams."""
        source = model_kwargs.get("encoder_outputs")
        if isinstance(source, EduBahdanauEncoderOutput) and self.config.recurrent_implementation == "fused":
            projection = self.model.decoder.project(source)
            if projection is not None:  # in a copy: the caller's outputs stay as they were
                model_kwargs["encoder_outputs"] = EduBahdanauEncoderOutput(**source | projection._asdict())
        return super()._expand_inputs_for_generation(*args, **model_kwargs)
