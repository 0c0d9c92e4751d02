"""GPT.

New since `modeling_transformer.py`: the decoder alone, pre-trained on plain text to predict the next token, then used
for everything else.
Papers: Radford, Narasimhan, Salimans & Sutskever 2018; Radford et al. 2019.
Differs from the papers: `norm_first` chooses between the two orders, everything else is common to both; a batch may be
padded on either side.

Shapes: B batch, T length, D hidden size, V vocabulary.
"""

import torch
from torch import Tensor, nn
from transformers import GenerationMixin
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache
from transformers.modeling_outputs import (
    BaseModelOutputWithPast,
    CausalLMOutputWithPast,
    SequenceClassifierOutputWithPast,
)
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults

from .blocks_causal_lm import CausalLMHead
from .blocks_checks import check_and_embed, check_positions
from .blocks_dropout import Dropout
from .blocks_fast_step import GPTStepper, can_read_weights
from .blocks_losses import classification_loss, head_output, mean_over_rows
from .blocks_masks import last_token
from .blocks_packing import find_documents, packed_causal_mask, reject_packing
from .blocks_state_checks import check_attention_cache, known_length
from .blocks_transformer import OutputProjection, TransformerLayer
from .blocks_transformer_stack import (
    AttentionPreTrainedModel,
    choose_attention,
    final_norm,
    positions_of,
    run_self_attention,
)
from .configuration_gpt import EduGPTConfig


class EduGPTPreTrainedModel(AttentionPreTrainedModel):
    config_class = EduGPTConfig

    def init_matrix(self, module: nn.Linear | nn.Embedding) -> None:
        std = self.config.initializer_range
        if isinstance(module, OutputProjection) and self.config.norm_first:
            # Radford et al. 2019, Section 2.3: the residual sum grows with depth, so its terms start smaller.
            std = std * (2 * self.config.num_hidden_layers) ** -0.5
        init.normal_(module.weight, std=std)


class EduGPTModel(EduGPTPreTrainedModel):
    """Token and position embeddings, and layers in which every token attends to itself and those before it."""

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
        **kwargs,
    ) -> BaseModelOutputWithPast:
        """
        Args:
            position_ids: where they start again, another document starts, which does not see those before it.
            kwargs: for the attention function, as in transformers' models.
        """
        is_paged = "cache" in kwargs  # in continuous batching
        past = None if is_paged else known_length(past_key_values)
        embeddings = check_and_embed(
            self.embed_tokens, self.config, input_ids, attention_mask, inputs_embeds, past
        )  # (B, T, D)
        batch, length, _ = embeddings.shape
        check_attention_cache(past_key_values, batch, self.config.num_hidden_layers, self.config, embeddings.dtype)
        if position_ids is not None:
            check_positions(position_ids, self.config.max_position_embeddings, batch, length)
        is_cached = past_key_values is not None or is_paged
        documents = None if is_cached else find_documents(position_ids, attention_mask, use_cache)
        use_cache = use_cache and documents is None  # a cache would continue all documents of a row at once
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        past = 0 if past_key_values is None else past_key_values.get_seq_length()
        if position_ids is None:
            reject_packing("edu_gpt without position_ids", **kwargs)
            position_ids = positions_of(attention_mask, length, past, embeddings.device)
            check_positions(position_ids, self.config.max_position_embeddings, batch, length)
        states = self.dropout(embeddings + self.embed_positions(position_ids))  # (B, T, D)

        config, output_attentions = choose_attention(self.config, output_attentions, self.training)
        mask = packed_causal_mask(config, states, attention_mask, past_key_values, documents)
        if documents is not None:
            kwargs["position_ids"] = position_ids  # flash attention finds the documents in them
        flags = (output_attentions, output_hidden_states)
        outputs = run_self_attention(self, config, states, attention_mask, mask, *flags, past_key_values, kwargs)
        return BaseModelOutputWithPast(past_key_values=past_key_values if use_cache else None, **outputs)


class EduGPTForCausalLM(CausalLMHead, EduGPTPreTrainedModel, GenerationMixin):
    """Predicts the next token; the softmax layer is tied to the token embeddings."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
    _tp_plan = {"lm_head": "colwise_gather_output"}
    _pp_plan = {"lm_head": (["hidden_states"], ["logits"])}

    def __init__(self, config: EduGPTConfig):
        super().__init__(config)
        self.model = EduGPTModel(config)
        self.dropout = nn.Identity()  # the papers have none here
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs,
    ) -> CausalLMOutputWithPast:
        """`CausalLMHead.forward` with position ids, and without a cache in training."""
        is_training_step = self.training and (labels is not None or kwargs.get("shift_labels") is not None)
        return super().forward(
            input_ids,
            attention_mask,
            past_key_values,
            inputs_embeds,
            labels,
            False if is_training_step else use_cache,
            logits_to_keep,
            position_ids=position_ids,
            **kwargs,
        )

    def make_stepper(self, prompts: Tensor, num_beams: int, max_length: int, inputs: dict):
        if max_length > self.config.max_position_embeddings + 1 or not can_read_weights(self.model, self.lm_head):
            return None
        mask, positions = inputs.get("attention_mask"), inputs["position_ids"]
        mask = None if mask is None else mask[::num_beams]
        positions = positions[::num_beams].expand(len(prompts), -1)
        outputs = self.model(prompts, mask, positions, use_cache=True, return_dict=True)
        return GPTStepper(self.model, self.lm_head, num_beams, outputs, positions[:, -1], mask)


class EduGPTForSequenceClassification(EduGPTPreTrainedModel):
    """A label for the whole text, from its last real token, the only one that attends to everything.

    With `lm_loss_weight` lambda it goes on predicting the next token in training: L_3 = L_2 + lambda L_1, where L_2 is
    the loss of the labels and L_1 that of the text (Radford et al. 2018, Section 3.2).
    """

    def __init__(self, config: EduGPTConfig):
        super().__init__(config)
        self.model = EduGPTModel(config)
        self.score = nn.Linear(config.hidden_size, config.num_labels, bias=False)
        if config.lm_loss_weight:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
            self._tied_weights_keys = EduGPTForCausalLM._tied_weights_keys
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear | None:
        return getattr(self, "lm_head", None)

    def set_output_embeddings(self, value: nn.Linear) -> None:
        if self.config.lm_loss_weight:
            self.lm_head = value

    def text_losses(self, hidden_states: Tensor, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """L_1 of each text: the mean over its tokens, as in the authors' code."""
        logits = self.lm_head(hidden_states[:, :-1])  # (B, T - 1, V)
        if attention_mask is None or attention_mask.ndim == 4:
            attention_mask = torch.ones_like(input_ids)  # (B, T)
        is_counted = (attention_mask[:, 1:] * attention_mask[:, :-1]).to(logits.dtype)  # padding may be on the left
        losses = nn.functional.cross_entropy(
            logits.transpose(1, 2), input_ids[:, 1:].long(), reduction="none"
        )  # (B, T - 1)
        return (losses * is_counted).sum(dim=1) / is_counted.sum(dim=1).clamp(min=1)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = False,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs,
    ) -> SequenceClassifierOutputWithPast:
        inputs = (input_ids, attention_mask, position_ids, past_key_values, inputs_embeds)
        outputs = self.model(*inputs, use_cache=use_cache, **kwargs, return_dict=True)
        logits = self.score(last_token(outputs.last_hidden_state, attention_mask))
        loss = None
        if labels is not None:
            loss = classification_loss(logits, labels, self.config, num_items_in_batch)  # L_2
            loss = self.penalise(loss, outputs, attention_mask, labels, num_items_in_batch)
        if labels is not None and self.training and self.config.lm_loss_weight and input_ids is not None:
            texts = self.text_losses(outputs.last_hidden_state, input_ids, attention_mask)
            loss = loss + self.config.lm_loss_weight * mean_over_rows(texts, labels, num_items_in_batch)
        return head_output(SequenceClassifierOutputWithPast, outputs, loss=loss, logits=logits)
