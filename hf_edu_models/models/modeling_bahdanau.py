"""Attention: rung 4 of the ladder.

New since rung 3 (`modeling_seq2seq.py`): no single vector holds the source; before each word the decoder looks back at
every source position and weighs them.
Paper: Bahdanau, Cho & Bengio 2015, arXiv:1409.0473; the other scores are Luong, Pham & Manning 2015, arXiv:1508.04025.
Differs from the paper: source and target share one vocabulary, with a table of vectors each; the reset gate acts as in
torch (see `GRUCell`); the cell may be an LSTM or a plain one; the output sees the new state s_i.

Shapes: B batch, S source length, T target length, E embedding size, D hidden size, C annotation size, A alignment size.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import Seq2SeqModelOutput
from transformers.utils.generic import ModelOutput, can_return_tuple, merge_with_config_defaults

from .blocks_attention import SCORES, AdditiveScore, attend
from .blocks_attentive_loop import FUSED_CELLS, FUSED_SCORES, LARGEST_EXPONENT, AttentiveLoop, LoopWeights, run_loop
from .blocks_cache import RecurrentCache
from .blocks_checks import check_one_of, check_tokens
from .blocks_dropout import Dropout
from .blocks_masks import keep_from, keep_where
from .blocks_readout import READOUTS
from .blocks_recurrent import CELLS, RecurrentStack, RNNCell, State, init_cell_biases, orthogonal_blocks
from .blocks_seq2seq import Seq2SeqHead, Seq2SeqMethods, decoder_words
from .configuration_bahdanau import EduBahdanauConfig


@dataclass
class EduBahdanauEncoderOutput(ModelOutput):
    """The source as the decoder may look at it.

    Args:
        last_hidden_state: (B, S, C), the annotations: what both directions know at each source position.
        score_keys: (B, S, A), the annotations ready for scoring. `generate()` fills this and what follows, so that its
            steps need not compute it again.
        cell_inputs: (B, S, gates x D), the annotations as the decoder's cell takes them.
        step_weights: the weights of one step as one matrix.
    """

    last_hidden_state: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    score_keys: Tensor | None = None
    cell_inputs: Tensor | None = None
    step_weights: LoopWeights | None = None


class AttentiveDecoder(nn.Module):
    """At each step: score the annotations against the state, mix them by the weights, and move the state on."""

    def __init__(self, config: EduBahdanauConfig):
        super().__init__()
        self.cell_type, self.score_type = config.cell_type, config.attention_score
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size)
        self.dropout = Dropout(config.dropout)
        self.start_proj = nn.Linear(config.encoder_hidden_size, config.hidden_size)  # W_s
        self.score = SCORES[config.attention_score](config.hidden_size, config.annotation_size, config.attention_size)
        self.cell = CELLS[config.cell_type](config.embedding_size + config.annotation_size, config.hidden_size)
        self.readout = READOUTS[config.readout](
            config.hidden_size, config.embedding_size, config.annotation_size, config.maxout_size
        )

    def start(self, annotations: Tensor, keep: Tensor | None) -> State:
        """s_0, from where the backward encoder ended: at the first word."""
        rows = torch.arange(annotations.shape[0], device=annotations.device)
        first = 0 if keep is None else keep.long().argmax(dim=1)
        _, coming = annotations[rows, first].chunk(2, dim=-1)
        hidden = torch.tanh(self.start_proj(coming))  # (B, D)
        return (hidden, *(torch.zeros_like(hidden),) * (self.cell.state_tensors - 1))

    def forward(
        self,
        words: Tensor,
        state: State,
        source: EduBahdanauEncoderOutput,
        source_keep: Tensor | None,
        keep: Tensor | None,
        implementation: str,
    ) -> tuple[Tensor, Tensor, Tensor, State]:
        """Features for the softmax, states (B, T, D), weights (B, T, S) and the state after the last word."""
        words = self.dropout(words)
        annotations = source.last_hidden_state
        projected = None
        if implementation == "fused" and keep is None:  # padded target words are rare enough for the eager loop
            projected = self.project(source)
        if projected is not None:
            states, weights, state = self.run_fused(words, state, *projected, source_keep)
        else:
            states, weights, state = self.run_eager(words, state, annotations, source_keep, keep)
        contexts = torch.bmm(weights, annotations)  # (B, T, C)
        return self.readout(self.dropout(states), words, contexts), states, weights, state

    def run_eager(
        self, words: Tensor, state: State, annotations: Tensor, source_keep: Tensor | None, keep: Tensor | None
    ) -> tuple[Tensor, Tensor, State]:
        """The paper, step by step."""
        keys = self.score.prepare(annotations)
        states, weights = [], []
        for position, word in enumerate(words.unbind(dim=1)):
            scores = self.score(state[0], keys)  # (B, S)  e_ij: how well s_{i-1} and h_j match
            context, step_weights = attend(scores, annotations, source_keep)
            new_state = self.cell(torch.cat([word, context], dim=-1), state)  # s_i = f(s_{i-1}, y_{i-1}, c_i)
            if keep is not None:
                new_state = keep_where(keep[:, position], new_state, state)
            state = new_state
            states.append(state[0])
            weights.append(step_weights)
        return torch.stack(states, dim=1), torch.stack(weights, dim=1), state

    def run_fused(
        self,
        words: Tensor,
        state: State,
        keys: Tensor,
        cell_inputs: Tensor,
        step_weights: LoopWeights,
        source_keep: Tensor | None,
    ) -> tuple[Tensor, Tensor, State]:
        """The same numbers by `AttentiveLoop`, which says how."""
        from_words = F.linear(words, self.cell.input_weight[:, : words.shape[-1]], self.cell.input_bias)
        start = (state[0], state[1] if len(state) > 1 else None)
        kinds = FUSED_CELLS[self.cell_type], FUSED_SCORES[self.score_type]
        run = AttentiveLoop.apply if torch.is_grad_enabled() else run_loop
        states, memories, weights = run(*kinds, from_words, keys, cell_inputs, source_keep, *start, *step_weights)
        last = (states[:, -1],) if memories is None else (states[:, -1], memories[:, -1])
        return states, weights, last

    def project(self, source: EduBahdanauEncoderOutput) -> tuple[Tensor, Tensor, LoopWeights] | None:
        """What `run_fused` needs of source and weights; None where only the eager loop is exact."""
        if source.step_weights is not None and not torch.is_grad_enabled():
            return source.score_keys, source.cell_inputs, source.step_weights
        annotations = source.last_hidden_state
        is_mixed = torch.is_autocast_enabled(annotations.device.type)
        if is_mixed or annotations.dtype not in (torch.float32, torch.float64) or torch.compiler.is_compiling():
            return None
        keys = self.score.prepare(annotations)  # (B, S, A)
        if isinstance(self.score, AdditiveScore):
            # No state is beyond 1, so no query is beyond the sum of its weights.
            largest_query = self.score.query_weight.abs().sum(dim=1).max()
            if torch.maximum(keys.abs().max(), largest_query) > LARGEST_EXPONENT:
                return None
        if not torch.is_grad_enabled():
            keys = FUSED_SCORES[self.score_type].ready(keys)
        cell_inputs = F.linear(annotations, self.cell.input_weight[:, self.embed_tokens.embedding_dim :])
        return keys, cell_inputs, self.loop_weights()

    def loop_weights(self) -> LoopWeights:
        """The weights of one step as one matrix."""
        matrix, bias = self.cell.state_weight, self.cell.state_bias
        if not isinstance(self.score, AdditiveScore):
            return LoopWeights(matrix, bias, None)
        bias = torch.cat([torch.zeros_like(self.score.score_vector), bias])
        return LoopWeights(torch.cat([self.score.query_weight, matrix]), bias, self.score.score_vector)


class EduBahdanauPreTrainedModel(Seq2SeqMethods, PreTrainedModel):
    config_class = EduBahdanauConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = True
    _no_split_modules = ["RecurrentLayer", "AttentiveDecoder"]
    _is_stateful = True

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """The paper's appendix on parameter initialization."""
        spread = self.config.initializer_range
        if isinstance(module, RNNCell):
            init.normal_(module.input_weight, std=spread)
            init.copy_(module.state_weight, orthogonal_blocks(module.state_weight, module.gates))
            init_cell_biases(module, self.config.forget_gate_bias)
        elif isinstance(module, AdditiveScore):
            init.normal_(module.query_weight, std=0.1 * spread)
            init.normal_(module.key_weight, std=0.1 * spread)
            init.zeros_(module.score_vector)
        elif isinstance(module, nn.Linear | nn.Embedding):
            init.normal_(module.weight, std=spread)
            if getattr(module, "bias", None) is not None:
                init.zeros_(module.bias)


class EduBahdanauEncoder(EduBahdanauPreTrainedModel):
    """Reads the source in both directions; position j's annotation knows the words before it and after it."""

    def __init__(self, config: EduBahdanauConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size)
        self.dropout = Dropout(config.dropout)
        self.stack = RecurrentStack(
            config.cell_type,
            config.embedding_size,
            config.encoder_hidden_size,
            config.num_hidden_layers,
            config.dropout,
            bidirectional=True,
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
    ) -> EduBahdanauEncoderOutput:
        check_one_of(input_ids, inputs_embeds)
        check_tokens(input_ids, attention_mask, self.config.vocab_size)
        words = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds  # (B, S, E)
        keep = keep_from(attention_mask, words.shape[1])
        states = [None] * self.config.num_hidden_layers
        outputs, _ = self.stack(self.dropout(words), states, keep, self.config.recurrent_implementation)
        annotations = self.dropout(outputs[-1])  # (B, S, C)  h_j
        wants_states = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        return EduBahdanauEncoderOutput(
            last_hidden_state=annotations, hidden_states=(words, *outputs) if wants_states else None
        )


class EduBahdanauModel(EduBahdanauPreTrainedModel):
    """Encoder and attentive decoder; `last_hidden_state` is what the softmax layer sees."""

    def __init__(self, config: EduBahdanauConfig):
        super().__init__(config)
        self.encoder = EduBahdanauEncoder(config)
        self.decoder = AttentiveDecoder(config)
        self.post_init()

    @merge_with_config_defaults
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: EduBahdanauEncoderOutput | None = None,
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
        elif not isinstance(source, EduBahdanauEncoderOutput):  # another encoder's, or a tuple
            source = EduBahdanauEncoderOutput(last_hidden_state=source[0])
        check_tokens(decoder_input_ids, None, self.config.vocab_size, "decoder_input_ids")
        words = decoder_words(self.decoder, decoder_input_ids, decoder_inputs_embeds)  # (B, T, E)
        source_keep = keep_from(attention_mask, source.last_hidden_state.shape[1])
        keep = keep_from(decoder_attention_mask, words.shape[1])

        cache = RecurrentCache() if past_key_values is None else past_key_values
        state = cache.state(0) or self.decoder.start(source.last_hidden_state, source_keep)
        features, states, weights, state = self.decoder(
            words, state, source, source_keep, keep, self.config.recurrent_implementation
        )
        attentions = weights[:, None]  # (B, 1, T, S)
        if use_cache:
            cache.write(0, state, words.shape[1])

        wants_states = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        wants_weights = self.config.output_attentions if output_attentions is None else output_attentions
        return Seq2SeqModelOutput(
            last_hidden_state=features,
            past_key_values=cache if use_cache else None,
            decoder_hidden_states=(words, states) if wants_states else None,
            cross_attentions=(attentions,) if wants_weights else None,
            encoder_last_hidden_state=source.last_hidden_state,
            encoder_hidden_states=source.hidden_states,
        )


class EduBahdanauForConditionalGeneration(Seq2SeqHead, EduBahdanauPreTrainedModel, GenerationMixin):
    """Writes the target word by word, looking back at the source for each."""

    _tied_weights_keys = {"lm_head.weight": "model.decoder.embed_tokens.weight"}

    def __init__(self, config: EduBahdanauConfig):
        super().__init__(config)
        self.model = EduBahdanauModel(config)
        self.lm_head = nn.Linear(config.maxout_size, config.vocab_size, bias=False)  # W_o
        self.post_init()

    def _expand_inputs_for_generation(self, *args, **model_kwargs):
        """Project the annotations before they are repeated for the beams, and once for all the steps."""
        source = model_kwargs.get("encoder_outputs")
        if isinstance(source, EduBahdanauEncoderOutput) and self.config.recurrent_implementation == "fused":
            projected = self.model.decoder.project(source)
            if projected is not None:
                names = ("score_keys", "cell_inputs", "step_weights")
                # A copy: the caller's own outputs stay as they were.
                source = EduBahdanauEncoderOutput(**source | dict(zip(names, projected, strict=True)))
                model_kwargs["encoder_outputs"] = source
        return super()._expand_inputs_for_generation(*args, **model_kwargs)
