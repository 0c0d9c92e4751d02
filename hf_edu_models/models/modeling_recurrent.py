"""Recurrent language model, classifiers and forecasts of time series.

New since `modeling_feedforward.py`: a state carries everything read so far; gates decide what it keeps.
Papers: Elman 1990; Hochreiter & Schmidhuber 1997; Cho et al. 2014, arXiv:1406.1078; the language model with dropout
between layers is Zaremba, Sutskever & Vinyals 2014, arXiv:1409.2329.
Differs from the papers: the reset gate acts as in torch (see `GRUCell`); the forget gate's bias starts at 1; a batch
may be padded as well as continue the one before.

Shapes: B batch, T time steps, D hidden size, V vocabulary or classes, W window, Q queries, F features (channels of a
time series), P prediction length.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GenerationMixin
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPast, SequenceClassifierOutput, TokenClassifierOutput
from transformers.utils.generic import ModelOutput, can_return_tuple, merge_with_config_defaults

from .blocks_attention import WindowAttention
from .blocks_awd_lstm import EmbeddingDropout, LockedDropout, activation_penalty
from .blocks_cache import RecurrentCache, StatefulPreTrainedModel, open_cache
from .blocks_causal_lm import CausalLMHead
from .blocks_checks import check_and_embed, check_values
from .blocks_classifier import ClassificationHead, LinearBlock
from .blocks_dropout import Dropout
from .blocks_fast_recurrent import FastStack, FastStackSteps, reader
from .blocks_features import FrozenFeatures
from .blocks_layer_mix import init_layer_mix
from .blocks_losses import logits_loss, mean_over_labels, mean_over_rows, number_loss
from .blocks_masks import boolean_mask, padding_last, reorder, undo_reorder
from .blocks_packing import reject_packing
from .blocks_pooling import POOLINGS, redundancy_penalty
from .blocks_recurrent import RecurrentStack, State, init_uniformly
from .blocks_state_checks import check_state
from .configuration_recurrent import EduRecurrentConfig


class EduRecurrentPreTrainedModel(StatefulPreTrainedModel):
    config_class = EduRecurrentConfig
    _no_split_modules = ["RecurrentLayer"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        init_uniformly(module, self.config.initializer_range, self.config.forget_gate_bias)
        init_layer_mix(module)
        if isinstance(module, WindowAttention) and module.lag_bias is not None:
            init.zeros_(module.lag_bias)
        if isinstance(module, nn.BatchNorm1d):
            super()._init_weights(module)

    def penalise(self, loss, outputs, attention_mask, labels, num_items_in_batch=None, dropped=None):
        """In training, the loss plus the penalties of the last layer's outputs: AR and TAR (Merity et al. 2017)."""
        weights = self.config.activation_regularization, self.config.temporal_activation_regularization
        if not self.training or not any(weights):
            return loss
        states = getattr(outputs, "last_hidden_state", None)
        if states is None:
            raise ValueError(
                "activation_regularization and temporal_activation_regularization need hidden states, which Trainer's "
                "label_smoothing_factor does not have; set label_smoothing in the model's configuration instead"
            )
        is_token = labels.shape == states.shape[:2] and not labels.is_floating_point()  # labels of tokens, not of rows
        mask = states.new_ones(states.shape[:2]).bool()  # (B, T)
        if attention_mask is not None:
            mask = attention_mask[:, -states.shape[1] :].bool()
        penalty = activation_penalty(states, states if dropped is None else dropped, mask, *weights)  # (B, T)
        if is_token:
            return loss + mean_over_labels((penalty * (labels != -100)).sum(), labels, num_items_in_batch)
        rows = penalty.sum(dim=1) / mask.sum(dim=1).clamp(min=1)  # (B,)
        return loss + mean_over_rows(rows, labels, num_items_in_batch)

    def resize_token_embeddings(self, *args, **kwargs):
        embeddings = super().resize_token_embeddings(*args, **kwargs)
        for features in self.base_model.features:
            features.resize(self.config.vocab_size)
        return embeddings


def _dropout_of_states(config: EduRecurrentConfig, rate: float) -> Dropout:
    return LockedDropout(rate) if config.lock_dropout_masks else Dropout(rate)


class EduRecurrentModel(EduRecurrentPreTrainedModel):
    """Embeddings, recurrent layers and, with `attention_window`, attention over the last states.

    With `features` the hidden states of frozen models join the embeddings: [x_k; ELMo_k] (Peters et al. 2018).
    """

    def __init__(self, config: EduRecurrentConfig, add_embeddings: bool = True):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size) if add_embeddings else None
        self.features = nn.ModuleList(
            FrozenFeatures(config.vocab_size, entry, config.feature_mix) for entry in config.features or []
        )
        self.embedding_dropout = EmbeddingDropout(config.embedding_dropout)
        input_dropout, layer_dropout = (
            config.dropout if rate is None else rate for rate in (config.input_dropout, config.layer_dropout)
        )
        self.dropout = _dropout_of_states(config, input_dropout)
        self.stack = RecurrentStack(
            config.cell_type,
            config.embedding_size + sum(features.size for features in self.features),
            config.hidden_size,
            config.num_hidden_layers,
            layer_dropout,
            config.bidirectional,
            config.weight_dropout,
            config.lock_dropout_masks,
        )
        window = config.attention_window
        lag_bias = config.attention_lag_bias
        self.window_attention = WindowAttention(config.hidden_size, window, lag_bias) if window else None
        self.post_init()

    @merge_with_config_defaults
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: RecurrentCache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPast:
        """
        Args:
            past_key_values: the state that an earlier call returned, to continue from; for truncated backpropagation
                through time, `past_key_values.detach()`.
        """
        num_layers = self.config.num_hidden_layers
        cache = open_cache(past_key_values, num_layers if self.window_attention is None else num_layers + 1)
        embeddings = check_and_embed(
            self.embed_tokens, self.config, input_ids, attention_mask, inputs_embeds, cache.get_seq_length()
        )
        reject_packing(self.config.model_type, attention_mask, **kwargs)
        mask = boolean_mask(attention_mask, embeddings.shape[1])
        states = [cache.state(layer) for layer in range(num_layers)]
        inputs = self.embedding_dropout(embeddings, input_ids, self.config.vocab_size)
        inputs = self.add_features(inputs, input_ids, mask)
        outputs, states = self.stack(self.dropout(inputs), states, mask, self.config.recurrent_implementation)
        hidden_states = outputs[-1]  # (B, T, D), twice as wide in both directions
        attentions = None
        if self.window_attention is not None:
            hidden_states, weights, window_states = self.attend_to_window(hidden_states, cache.state(num_layers), mask)
            attentions = weights[:, None]  # (B, 1, T, W)
            states.append(window_states)
        if use_cache:
            for layer, state in enumerate(states):
                cache.write(layer, state, embeddings.shape[1])

        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        output_attentions = self.config.output_attentions if output_attentions is None else output_attentions
        return BaseModelOutputWithPast(
            last_hidden_state=hidden_states,
            past_key_values=cache if use_cache else None,
            hidden_states=(embeddings, *outputs[:-1], hidden_states) if output_hidden_states else None,
            attentions=(attentions,) if output_attentions and attentions is not None else None,
        )

    def add_features(self, embeddings: Tensor, input_ids: Tensor | None, mask: Tensor | None) -> Tensor:
        if not self.features:
            return embeddings
        if input_ids is None:
            raise ValueError("features are read from the text; give input_ids instead of inputs_embeds")
        vectors = torch.cat([embeddings, *(features(input_ids, mask) for features in self.features)], dim=-1)
        return vectors

    def advance(self, embeddings: Tensor, states: list[State]) -> tuple[Tensor, list[State]]:
        """Features of new tokens and new states, for the searches of `blocks_search.py`."""
        layers = self.config.num_hidden_layers
        outputs, new_states = self.stack(embeddings, states[:layers], None, self.config.recurrent_implementation)
        if self.window_attention is None:
            return outputs[-1], new_states
        hidden_states, _, window_states = self.window_attention(outputs[-1], states[layers], None)
        return hidden_states, [*new_states, window_states]

    def attend_to_window(self, hidden_states: Tensor, window_states: tuple[Tensor, Tensor] | None, mask: Tensor | None):
        """`WindowAttention` with padding moved behind the real tokens."""
        window_states = self.window_attention.start(hidden_states) if window_states is None else window_states
        (batch, _, size), window = hidden_states.shape, self.config.attention_window
        check_state(window_states, [(batch, window, size), (batch, window, 1)], hidden_states.dtype)
        if mask is None:
            return self.window_attention(hidden_states, window_states, None)
        order = padding_last(mask)
        outputs, weights, window_states = self.window_attention(
            reorder(hidden_states, order), window_states, mask.gather(1, order)
        )
        return undo_reorder(outputs, order, mask), undo_reorder(weights, order, mask), window_states


class EduRecurrentForCausalLM(CausalLMHead, EduRecurrentPreTrainedModel, GenerationMixin):
    """Predicts the next token from the state: p(w_{t+1} | w_1 .. w_t) = softmax(W h_t)"""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: EduRecurrentConfig):
        if config.bidirectional:
            raise ValueError(
                "bidirectional is True, but a language model must not read the tokens that it predicts; "
                "set it to False, or use a classification head"
            )
        if config.features:
            raise ValueError(
                "features may have read what a language model predicts; leave them out, or use a classification head"
            )
        super().__init__(config)
        self.model = EduRecurrentModel(config)
        self.dropout = _dropout_of_states(config, config.dropout)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def fast_steps(self, rows: int) -> FastStackSteps | None:
        stack, read = self.model.stack, reader(self.model.stack, rows)
        is_fused = self.config.recurrent_implementation == "fused" and self.model.window_attention is None
        return FastStackSteps(stack, read) if is_fused and read and FastStack.can_read(stack) else None


class RecurrentClassifier(ClassificationHead, EduRecurrentPreTrainedModel):
    """What both classifiers share; a subclass adds a linear layer."""

    def __init__(self, config: EduRecurrentConfig):
        super().__init__(config)
        self.model = EduRecurrentModel(config)
        self.dropout = Dropout(config.dropout)


class EduRecurrentForSequenceClassification(RecurrentClassifier):
    """One label, several labels or a number for the whole text.

    The states of its tokens are pooled: `last` takes the state where each direction ends, `attention` a weighted mean.
    With `attention` several queries (hops) are concatenated; with `label_attention` each label has a query of its own:
    logit_l = w_l . s_l + b_l. The last of `attentions`, (B, Q, 1, T), are the weights of the pooling. With
    `classifier_hidden_size` there are two linear blocks instead of one linear layer (Howard & Ruder 2018, Section 3.3).
    """

    output_class = SequenceClassifierOutput

    def __init__(self, config: EduRecurrentConfig):
        super().__init__(config)
        pooling, size = POOLINGS[config.pooling], config.output_size
        self.pooling = pooling(size, config.attention_size, config.num_queries, bidirectional=config.bidirectional)
        width = size * (config.num_queries if config.pooling == "attention" else self.pooling.width)
        hidden = config.classifier_hidden_size
        self.hidden = None if hidden is None else LinearBlock(width, hidden, config.dropout)
        if self.hidden is None:
            self.score = nn.Linear(width, config.num_labels)
        else:
            self.score = LinearBlock(hidden, config.num_labels, config.dropout)
        self.post_init()

    def predict(self, outputs: ModelOutput, attention_mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        mask = None if attention_mask is None else attention_mask.bool()
        pooled, weights = self.pooling(outputs.last_hidden_state, mask)
        if self.config.pooling == "label_attention":
            logits = self.score(self.dropout(pooled)).diagonal(dim1=1, dim2=2)  # (B, V)  row l of W reads s_l alone
            return logits, weights
        if self.hidden is not None:
            return self.score(F.relu(self.hidden(pooled.flatten(1)))), weights
        return self.score(self.dropout(pooled.flatten(1))), weights

    def loss(self, logits: Tensor, labels: Tensor, num_items_in_batch, weights: Tensor | None) -> Tensor:
        loss = super().loss(logits, labels, num_items_in_batch, weights)
        if not self.config.redundancy_weight:
            return loss
        penalty = mean_over_rows(redundancy_penalty(weights), labels, num_items_in_batch)
        return loss + self.config.redundancy_weight * penalty


class EduRecurrentForTokenClassification(RecurrentClassifier):
    """One label for each token."""

    output_class = TokenClassifierOutput

    def __init__(self, config: EduRecurrentConfig):
        super().__init__(config)
        self.classifier = nn.Linear(config.output_size, config.num_labels)
        self.post_init()

    def predict(self, outputs: ModelOutput, attention_mask: Tensor | None) -> tuple[Tensor, None]:
        return self.classifier(self.dropout(outputs.last_hidden_state)), None

    def loss(self, logits: Tensor, labels: Tensor, num_items_in_batch, weights: None) -> Tensor:
        return logits_loss(logits, labels, num_items_in_batch)


@dataclass
class TimeSeriesPredictionOutput(ModelOutput):
    """
    Args:
        prediction_outputs: the forecasts (B, P, F), in the scale of `past_values`.
        attentions: with `attention_window` the weights (B, 1, T, W) of the states before each step, the last one right.
    """

    loss: Tensor | None = None
    prediction_outputs: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


class EduRecurrentForTimeSeriesPrediction(EduRecurrentPreTrainedModel):
    """x_{t+1} .. x_{t+P} = x_t + W out_t + b: the last value, and what the state makes of the past.

    The values are read through a linear layer instead of embeddings. With `attention_window`, out_t joins the state h_t
    and sum_tau alpha(t, tau) h_{t-tau}. The scale is that of the train split: mean 0 and standard deviation 1;
    `forecast` takes and returns values in the units of the series.
    """

    main_input_name = "past_values"
    _keys_to_ignore_on_load_unexpected = [r"embed_tokens", r"lm_head"]  # of a language model

    def __init__(self, config: EduRecurrentConfig):
        if config.bidirectional:
            raise ValueError("bidirectional is True, but a forecast must not read the future; set it to False")
        if config.embedding_dropout:
            raise ValueError("embedding_dropout drops words, but a time series has none; use input_dropout instead")
        super().__init__(config)
        self.value_proj = nn.Linear(config.num_input_channels, config.embedding_size)
        self.model = EduRecurrentModel(config, add_embeddings=False)
        self.dropout = Dropout(config.dropout)
        self.forecast_proj = nn.Linear(config.hidden_size, config.prediction_length * config.num_input_channels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        past_values: Tensor,
        future_values: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs,
    ) -> TimeSeriesPredictionOutput:
        """
        Args:
            past_values: (B, T, F).
            future_values: (B, P, F), what the forecasts are compared with by their mean squared error.
        """
        channels, steps = self.config.num_input_channels, self.config.prediction_length
        check_values("past_values", past_values, (None, None, channels))
        embeddings = self.value_proj(past_values.to(self.value_proj.weight.dtype))  # (B, T, E)
        kwargs |= {"inputs_embeds": embeddings, "use_cache": False, "return_dict": True}
        outputs = self.model(**kwargs)
        change = self.forecast_proj(self.dropout(outputs.last_hidden_state[:, -1]))
        change = change.unflatten(1, (steps, channels))  # (B, P, F)
        predictions = past_values[:, -1:].to(change.dtype) + change  # (B, P, F)
        loss = None
        if future_values is not None:
            check_values("future_values", future_values, (past_values.shape[0], steps, channels))
            loss = number_loss(predictions, future_values, True, num_items_in_batch)
            loss = self.penalise(loss, outputs, None, future_values, num_items_in_batch)
        return TimeSeriesPredictionOutput(loss, predictions, outputs.hidden_states, outputs.attentions)

    @torch.no_grad()
    def forecast(self, past_values: Tensor, steps: int | None = None) -> tuple[Tensor, Tensor | None]:
        """Forecasts (B, steps, F) in the units of the series, and the weights (B, W) of the first ones.

        More steps than the prediction length are made by reading forecasts as if they had happened.
        """
        steps = self.config.prediction_length if steps is None else steps
        if steps < 1:
            raise ValueError(f"steps must be 1 or more, got {steps}")
        check_values("past_values", past_values, (None, None, self.config.num_input_channels))
        mean, std = (past_values.new_tensor(each) for each in (self.config.input_mean, self.config.input_std))
        values = (past_values - mean) / std  # (B, T, F)
        past, weights = values.shape[1], None
        while values.shape[1] < past + steps:
            outputs = self(values[:, -self.config.context_length :], output_attentions=True)
            if weights is None and outputs.attentions:
                weights = outputs.attentions[0][:, 0, -1]  # (B, W)
            values = torch.cat([values, outputs.prediction_outputs.to(values.dtype)], dim=1)
        return values[:, past : past + steps] * std + mean, weights
