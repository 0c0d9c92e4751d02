"""GPT: rung 6 of the ladder.

New since rung 5 (`modeling_transformer.py`): the decoder alone, trained on plain text to say the next word, then used
for everything else.
Papers: Radford, Narasimhan, Salimans & Sutskever 2018; Radford et al. 2019.
Differs from the papers: `norm_first` chooses between the two orders, everything else is common to both; a batch may be
padded on either side.

Shapes: B batch, T length, D hidden size, V vocabulary.
"""

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache
from transformers.masking_utils import create_causal_mask
from transformers.modeling_outputs import (
    BaseModelOutputWithPast,
    CausalLMOutputWithPast,
    SequenceClassifierOutputWithPast,
)
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults

from .blocks_checks import check_length, check_one_of, check_tokens
from .blocks_dropout import Dropout
from .blocks_losses import classification_loss, next_words, predict_words
from .blocks_masks import last_real
from .blocks_transformer import (
    OutputProjection,
    TransformerLayer,
    choose_attention,
    final_norm,
    find_packing,
    padded,
    positions_of,
    run_layers,
)
from .configuration_gpt import EduGPTConfig


class EduGPTPreTrainedModel(PreTrainedModel):
    config_class = EduGPTConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = True
    _no_split_modules = ["TransformerLayer"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        spread = self.config.initializer_range
        if isinstance(module, OutputProjection) and self.config.norm_first:
            # Radford et al. 2019, Section 2.3: sums grow with depth, so what is added starts smaller.
            spread = spread * (2 * self.config.num_hidden_layers) ** -0.5
        if isinstance(module, nn.Linear | nn.Embedding):
            init.normal_(module.weight, std=spread)
            if getattr(module, "bias", None) is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)


class EduGPTModel(EduGPTPreTrainedModel):
    """Word and position vectors, and layers that see only what came before."""

    def __init__(self, config: EduGPTConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embed_positions = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(
            TransformerLayer(config, number, is_causal=True) for number in range(config.num_hidden_layers)
        )
        self.final_norm = final_norm(config)
        self.post_init()

    @merge_with_config_defaults
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> BaseModelOutputWithPast:
        check_one_of(input_ids, inputs_embeds)
        check_tokens(input_ids, attention_mask, self.config.vocab_size)
        words = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds  # (B, T, D)
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        cache = past_key_values if use_cache else None
        past = 0 if past_key_values is None else past_key_values.get_seq_length()
        length = words.shape[1]
        check_length(past + length, self.config.max_position_embeddings)
        if position_ids is None:
            position_ids = positions_of(attention_mask, length, past, words.device)
        states = self.dropout(words + self.embed_positions(position_ids))  # (B, T, D)

        config, shows_weights = choose_attention(self.config, output_attentions)
        mask = create_causal_mask(config, states, attention_mask, past_key_values)
        packing = find_packing(attention_mask, length)
        wants_states = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        states, all_states, all_weights = run_layers(
            self.layers, self.final_norm, states, mask, config._attn_implementation, packing, past_key_values
        )
        return BaseModelOutputWithPast(
            last_hidden_state=states,
            past_key_values=cache,
            hidden_states=padded(all_states, packing) if wants_states else None,
            attentions=tuple(all_weights) if shows_weights else None,
        )


class EduGPTForCausalLM(EduGPTPreTrainedModel, GenerationMixin):
    """Says the next word; the softmax layer is the table of word vectors."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: EduGPTConfig):
        super().__init__(config)
        self.model = EduGPTModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
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
        targets = next_words(labels, **kwargs)
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=False if targets is not None and self.training else use_cache,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            return_dict=True,
        )
        features = outputs.last_hidden_state if targets is not None else outputs.last_hidden_state[:, -logits_to_keep:]
        skip_logits = self.training if skip_logits is None else skip_logits
        loss, logits = predict_words(features, self.lm_head, targets, skip_logits, num_items_in_batch)
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class EduGPTForSequenceClassification(EduGPTPreTrainedModel):
    """A label for the whole text, read off its last real token, the only one that has seen everything."""

    def __init__(self, config: EduGPTConfig):
        super().__init__(config)
        self.model = EduGPTModel(config)
        self.score = nn.Linear(config.hidden_size, config.num_labels, bias=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> SequenceClassifierOutputWithPast:
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            use_cache=False,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            return_dict=True,
        )
        states = outputs.last_hidden_state
        rows = torch.arange(len(states), device=states.device)
        last = -1 if attention_mask is None else last_real(attention_mask.long())
        logits = self.score(states[rows, last])
        loss = None if labels is None else classification_loss(logits, labels, self.config, num_items_in_batch)
        return SequenceClassifierOutputWithPast(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )
