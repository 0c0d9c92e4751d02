"""Recurrent language model and classifiers: rung 2 of the ladder.

New since rung 1 (`modeling_feedforward.py`): a state carries everything read so far; gates decide what it keeps.
Papers: Elman 1990; Hochreiter & Schmidhuber 1997; Cho et al. 2014, arXiv:1406.1078; the language model with dropout
between layers is Zaremba, Sutskever & Vinyals 2014, arXiv:1409.2329.
Differs from the papers: the reset gate acts as in torch (see `GRUCell`); the forget gate's bias starts at 1; a batch
may be padded as well as continue the one before.

Shapes: B batch, T time steps, D hidden size, V vocabulary, W window.
"""

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import (
    BaseModelOutputWithPast,
    CausalLMOutputWithPast,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults

from .blocks_attention import WindowAttention
from .blocks_cache import RecurrentCache
from .blocks_checks import check_one_of, check_tokens
from .blocks_dropout import Dropout
from .blocks_losses import classification_loss, logits_loss, next_words, predict_words
from .blocks_masks import keep_from, last_real, put_back, real_first, reorder
from .blocks_recurrent import RecurrentStack, init_uniformly
from .configuration_recurrent import EduRecurrentConfig


class EduRecurrentPreTrainedModel(PreTrainedModel):
    config_class = EduRecurrentConfig
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


class EduRecurrentModel(EduRecurrentPreTrainedModel):
    """Word vectors, recurrent layers and, if asked for, attention over the last states."""

    def __init__(self, config: EduRecurrentConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size)
        self.dropout = Dropout(config.dropout)
        self.stack = RecurrentStack(
            config.cell_type,
            config.embedding_size,
            config.hidden_size,
            config.num_hidden_layers,
            config.dropout,
            config.bidirectional,
        )
        window = config.attention_window
        self.window_attention = WindowAttention(config.hidden_size, window) if window else None
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
    ) -> BaseModelOutputWithPast:
        """
        Args:
            past_key_values: the state that an earlier call returned; give it to go on from there, and
                `past_key_values.detach()` to go on without its gradient (truncated backpropagation through time).
        """
        check_one_of(input_ids, inputs_embeds)
        check_tokens(input_ids, attention_mask, self.config.vocab_size)
        words = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        keep = keep_from(attention_mask, words.shape[1])

        levels = self.config.num_hidden_layers
        cache = RecurrentCache() if past_key_values is None else past_key_values
        states = [cache.state(level) for level in range(levels)]
        outputs, states = self.stack(self.dropout(words), states, keep, self.config.recurrent_implementation)
        hidden_states = outputs[-1]  # (B, T, D), twice as wide in both directions
        attentions = None
        if self.window_attention is not None:
            hidden_states, weights, memory = self.look_back(hidden_states, cache.state(levels), keep)
            attentions = weights[:, None]  # (B, 1, T, W)
            states.append(memory)
        if use_cache:
            for level, state in enumerate(states):
                cache.write(level, state, words.shape[1])

        wants_states = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        wants_weights = self.config.output_attentions if output_attentions is None else output_attentions
        return BaseModelOutputWithPast(
            last_hidden_state=hidden_states,
            past_key_values=cache if use_cache else None,
            hidden_states=(words, *outputs[:-1], hidden_states) if wants_states else None,
            attentions=(attentions,) if wants_weights and attentions is not None else None,
        )

    def look_back(self, hidden_states: Tensor, memory, keep: Tensor | None):
        """Attend over the last states, with padding out of the way."""
        memory = self.window_attention.start(hidden_states) if memory is None else memory
        if keep is None:
            return self.window_attention(hidden_states, memory, None)
        order = real_first(keep)
        in_front = keep.gather(1, order)
        outputs, weights, memory = self.window_attention(reorder(hidden_states, order), memory, in_front)
        return put_back(outputs, order, keep), put_back(weights, order, keep), memory


class EduRecurrentForCausalLM(EduRecurrentPreTrainedModel, GenerationMixin):
    """Predicts the next word from the state."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: EduRecurrentConfig):
        if config.bidirectional:
            raise ValueError(
                "bidirectional is True, but a language model may not read the words that it predicts; "
                "set it to False, or use a classification head"
            )
        super().__init__(config)
        self.model = EduRecurrentModel(config)
        self.dropout = Dropout(config.dropout)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: RecurrentCache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        logits_to_keep: int = 0,
        skip_logits: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Tensor,
    ) -> CausalLMOutputWithPast:
        """
        Args:
            logits_to_keep: compute logits for this many last positions only; 0 for all of them.
            skip_logits: leave out the logits; by default in training with labels, where only the loss is needed.
            kwargs: `shift_labels`, labels that already stand at the position that predicts them, instead of `labels`.
        """
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            return_dict=True,
        )
        targets = next_words(labels, **kwargs)
        features = outputs.last_hidden_state if targets is not None else outputs.last_hidden_state[:, -logits_to_keep:]
        skip_logits = self.training if skip_logits is None else skip_logits
        loss, logits = predict_words(self.dropout(features), self.lm_head, targets, skip_logits, num_items_in_batch)
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class EduRecurrentForSequenceClassification(EduRecurrentPreTrainedModel):
    """One label, several labels or a number for the whole text, read off where each direction ends."""

    def __init__(self, config: EduRecurrentConfig):
        super().__init__(config)
        self.model = EduRecurrentModel(config)
        self.dropout = Dropout(config.dropout)
        self.score = nn.Linear(output_size(config), config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> SequenceClassifierOutput:
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            use_cache=False,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            return_dict=True,
        )
        logits = self.score(self.dropout(self.read_ends(outputs.last_hidden_state, attention_mask)))
        loss = None
        if labels is not None:
            loss = classification_loss(logits, labels, self.config, num_items_in_batch)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )

    def read_ends(self, hidden_states: Tensor, attention_mask: Tensor | None) -> Tensor:
        """The forward half at the last real token and, in both directions, the backward half at the first."""
        batch, length, _ = hidden_states.shape
        rows = torch.arange(batch, device=hidden_states.device)
        keep = rows.new_ones(batch, length) if attention_mask is None else attention_mask.long()
        last, first = last_real(keep), keep.argmax(dim=1)
        if not self.config.bidirectional:
            return hidden_states[rows, last]
        seen, coming = hidden_states.chunk(2, dim=-1)
        return torch.cat([seen[rows, last], coming[rows, first]], dim=-1)


class EduRecurrentForTokenClassification(EduRecurrentPreTrainedModel):
    """A label for each token."""

    def __init__(self, config: EduRecurrentConfig):
        super().__init__(config)
        self.model = EduRecurrentModel(config)
        self.dropout = Dropout(config.dropout)
        self.classifier = nn.Linear(output_size(config), config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> TokenClassifierOutput:
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            use_cache=False,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            return_dict=True,
        )
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        loss = None if labels is None else logits_loss(logits, labels, num_items_in_batch)
        return TokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


def output_size(config: EduRecurrentConfig) -> int:
    return 2 * config.hidden_size if config.bidirectional else config.hidden_size
