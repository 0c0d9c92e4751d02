"""BERT: rung 7 of the ladder.

New since rung 6 (`modeling_gpt.py`): every word sees the words on both sides, so it learns from words that are hidden,
and from whether one text follows another; the body is then fine-tuned with one small layer a task.
Paper: Devlin, Chang, Lee & Toutanova 2019, arXiv:1810.04805.
Differs from the paper: the layer before the masked words' softmax, and its tie to the word vectors, are as in the
authors' code; the softmax is computed only for the words that have a label, unless all are asked for.

Shapes: B batch, T length, D hidden size, V vocabulary, C choices.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    NextSentencePredictorOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils import logging
from transformers.utils.generic import ModelOutput, can_return_tuple

from .blocks_checks import check_length, check_one_of, check_shape, check_token_types, check_tokens
from .blocks_dropout import Dropout
from .blocks_losses import classification_loss, logits_loss, predict_words
from .blocks_positions import SinusoidalPositions
from .blocks_transformer import (
    TransformerLayer,
    choose_attention,
    final_norm,
    find_packing,
    padded,
    positions_of,
    run_layers,
)
from .configuration_bert import EduBertConfig


class Positions(nn.Embedding):
    """A vector for each position, learnt like a word's."""

    def start_as_sinusoids(self, amplitude: float) -> None:
        """In random vectors each place has to find its neighbours for itself; in sinusoids one rotation leads to the
        neighbour of any place."""
        places = torch.arange(self.num_embeddings, device=self.weight.device)
        waves = SinusoidalPositions(self.embedding_dim)(places)
        init.copy_(self.weight, amplitude * waves[:, : self.embedding_dim])


class Embeddings(nn.Module):
    """A word is the sum of three vectors: itself, where it stands, and which of two texts it is in (Section 3)."""

    def __init__(self, config: EduBertConfig):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = Positions(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.dropout)

    def forward(self, words: Tensor, token_type_ids: Tensor, positions: Tensor) -> Tensor:
        total = words + self.token_type_embeddings(token_type_ids) + self.position_embeddings(positions)
        return self.dropout(self.norm(total))


class MaskedWordHead(nn.Module):
    """From a state to the word that was hidden there; `decoder` is tied to the word vectors."""

    def __init__(self, config: EduBertConfig):
        super().__init__()
        self.transform = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACT2FN[config.hidden_act]
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(
        self, states: Tensor, labels: Tensor | None, skip_logits: bool, num_items_in_batch=None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Loss and logits; without logits, only the hidden words go through the layer at all."""
        if skip_logits and labels is not None:
            check_shape("labels", labels, states.shape[:-1])
            counted = labels != -100
            states, labels = states[counted], labels[counted]
        features = self.norm(self.activation(self.transform(states)))
        return predict_words(features, self.decoder, labels, skip_logits, num_items_in_batch)


class EduBertPreTrainedModel(PreTrainedModel):
    config_class = EduBertConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = True
    _no_split_modules = ["Embeddings", "TransformerLayer"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """The authors' code: a normal distribution, cut off at two standard deviations."""
        spread = self.config.initializer_range
        if isinstance(module, Positions) and self.config.position_init == "sinusoidal":
            module.start_as_sinusoids(2 * spread)
        elif isinstance(module, nn.Linear | nn.Embedding):
            init.trunc_normal_(module.weight, std=spread, a=-2 * spread, b=2 * spread)
            if getattr(module, "bias", None) is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)


class EduBertModel(EduBertPreTrainedModel):
    """Embeddings, layers that see both sides, and a pooled first state.

    Args:
        add_pooling_layer: heads that read every state leave the pooler out: it would never learn.
    """

    def __init__(self, config: EduBertConfig, add_pooling_layer: bool = True):
        super().__init__(config)
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(TransformerLayer(config, number) for number in range(config.num_hidden_layers))
        self.final_norm = final_norm(config)
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if add_pooling_layer else None
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.embeddings.word_embeddings = value

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> BaseModelOutputWithPooling:
        check_one_of(input_ids, inputs_embeds)
        check_tokens(input_ids, attention_mask, self.config.vocab_size)
        check_token_types(token_type_ids, self.config.type_vocab_size)
        words = self.embeddings.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds  # (B, T, D)
        batch, length, _ = words.shape
        check_length(length, self.config.max_position_embeddings)
        if position_ids is None:
            position_ids = positions_of(attention_mask, length, 0, words.device)
        if token_type_ids is None:
            token_type_ids = torch.zeros((batch, length), dtype=torch.long, device=words.device)
        states = self.embeddings(words, token_type_ids, position_ids)  # (B, T, D)

        config, shows_weights = choose_attention(self.config, output_attentions)
        mask = create_bidirectional_mask(config, states, attention_mask)
        packing = find_packing(attention_mask, length)
        wants_states = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        states, all_states, all_weights = run_layers(
            self.layers, self.final_norm, states, mask, config._attn_implementation, packing
        )
        return BaseModelOutputWithPooling(
            last_hidden_state=states,
            pooler_output=None if self.pooler is None else self.pool_first(states, attention_mask),
            hidden_states=padded(all_states, packing) if wants_states else None,
            attentions=tuple(all_weights) if shows_weights else None,
        )

    def pool_first(self, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        return torch.tanh(self.pooler(self.first_states(states, attention_mask)))

    def first_states(self, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        """The state of [CLS], the first real token."""
        if attention_mask is None or attention_mask.ndim != 2:
            return states[:, 0]
        rows = torch.arange(len(states), device=states.device)
        return states[rows, attention_mask.long().argmax(dim=1)]

    @torch.no_grad()
    def encode(
        self,
        texts: list[str] | str,
        tokenizer,
        pooling: str = "mean",
        layer: int = -1,
        batch_size: int = 32,
        normalize: bool = False,
        show_progress: bool = True,
    ) -> Tensor:
        """One vector for each text, in the order given.

        Args:
            pooling: `mean` over the real tokens, `max` over them, or `cls`, the first one's.
            layer: which layer's states: -1 the last, 0 the embeddings.
            normalize: bring each vector to length one.
        """
        if pooling not in ("mean", "cls", "max"):
            raise ValueError(f"pooling '{pooling}' is not known; choose one of mean, cls, max")
        if not -len(self.layers) - 1 <= layer <= len(self.layers):
            raise ValueError(f"layer {layer} is not there; choose {-len(self.layers) - 1} to {len(self.layers)}")
        texts = [texts] if isinstance(texts, str) else list(texts)
        limit = self.config.max_position_embeddings
        rows = [tokenizer(text, truncation=True, max_length=limit) for text in texts]
        order = sorted(range(len(texts)), key=lambda number: -len(rows[number]["input_ids"]))
        was_training = self.training
        self.eval()
        vectors = torch.empty(len(texts), self.config.hidden_size, dtype=self.dtype)
        starts = range(0, len(order), batch_size)
        for start in logging.tqdm(starts, desc="encode", disable=not show_progress or len(starts) < 2):
            numbers = order[start : start + batch_size]
            batch = tokenizer.pad([rows[number] for number in numbers], return_tensors="pt").to(self.device)
            outputs = self(**batch, output_hidden_states=True)
            vectors[numbers] = self.pool(outputs.hidden_states[layer], batch["attention_mask"], pooling).cpu()
        self.train(was_training)
        return nn.functional.normalize(vectors, dim=-1) if normalize else vectors

    def pool(self, states: Tensor, attention_mask: Tensor, pooling: str) -> Tensor:
        if pooling == "cls":
            return self.first_states(states, attention_mask)
        keep = attention_mask[:, :, None].bool()
        if pooling == "max":
            return states.masked_fill(~keep, torch.finfo(states.dtype).min).amax(dim=1)
        return (states * keep).sum(dim=1) / keep.sum(dim=1)


@dataclass
class EduBertForPreTrainingOutput(ModelOutput):
    """`loss` is `mlm_loss` plus `nsp_loss`."""

    loss: Tensor | None = None
    prediction_logits: Tensor | None = None
    seq_relationship_logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    mlm_loss: Tensor | None = None
    nsp_loss: Tensor | None = None


class WithMaskedWords(EduBertPreTrainedModel):
    """What the two heads with a word softmax share."""

    _tied_weights_keys = {"lm_head.decoder.weight": "model.embeddings.word_embeddings.weight"}

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head.decoder

    def set_output_embeddings(self, value: nn.Linear) -> None:
        self.lm_head.decoder = value


class EduBertForPreTraining(WithMaskedWords):
    """Hidden words and next sentence at once (Section 3.1)."""

    accepts_loss_kwargs = False  # a sum of two means: Trainer itself must divide it over accumulated batches

    def __init__(self, config: EduBertConfig):
        super().__init__(config)
        self.model = EduBertModel(config)
        self.lm_head = MaskedWordHead(config)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        next_sentence_label: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        skip_logits: bool | None = None,
    ) -> EduBertForPreTrainingOutput:
        """
        Args:
            labels: the hidden words, -100 everywhere else.
            next_sentence_label: 0 where the second text follows the first, 1 where it is a random one.
            skip_logits: leave out the words' logits; by default in training with labels.
        """
        outputs = self.model(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            output_attentions,
            output_hidden_states,
            return_dict=True,
        )
        skip_logits = self.training if skip_logits is None else skip_logits
        mlm_loss, logits = self.lm_head(outputs.last_hidden_state, labels, skip_logits)
        relationship = self.seq_relationship(outputs.pooler_output)
        nsp_loss = None if next_sentence_label is None else logits_loss(relationship, next_sentence_label)
        parts = [part for part in (mlm_loss, nsp_loss) if part is not None]
        return EduBertForPreTrainingOutput(
            loss=sum(parts) if parts else None,
            prediction_logits=logits,
            seq_relationship_logits=relationship,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            mlm_loss=mlm_loss,
            nsp_loss=nsp_loss,
        )


class EduBertForMaskedLM(WithMaskedWords):
    """Hidden words alone."""

    def __init__(self, config: EduBertConfig):
        super().__init__(config)
        self.model = EduBertModel(config, add_pooling_layer=False)
        self.lm_head = MaskedWordHead(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        skip_logits: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> MaskedLMOutput:
        outputs = self.model(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            output_attentions,
            output_hidden_states,
            return_dict=True,
        )
        skip_logits = self.training if skip_logits is None else skip_logits
        loss, logits = self.lm_head(outputs.last_hidden_state, labels, skip_logits, num_items_in_batch)
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class OneLayerHead(EduBertPreTrainedModel):
    """A fine-tuning head: dropout and one linear layer on the body (Section 4)."""

    num_outputs: int | None = None  # `config.num_labels` unless a head says otherwise
    reads_pooled = True  # or every state
    output_class = SequenceClassifierOutput

    def __init__(self, config: EduBertConfig):
        super().__init__(config)
        self.model = EduBertModel(config, add_pooling_layer=self.reads_pooled)
        self.dropout = Dropout(config.dropout if config.classifier_dropout is None else config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, self.num_outputs or config.num_labels)
        self.post_init()

    def predict(self, *inputs) -> tuple[Tensor, BaseModelOutputWithPooling]:
        """What the layer says, and all that the body said."""
        outputs = self.model(*inputs, return_dict=True)
        states = outputs.pooler_output if self.reads_pooled else outputs.last_hidden_state
        return self.classifier(self.dropout(states)), outputs

    def loss(self, logits: Tensor, labels: Tensor, num_items_in_batch=None) -> Tensor:
        return logits_loss(logits, labels, num_items_in_batch)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> ModelOutput:
        given = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        logits, outputs = self.predict(*given, output_attentions, output_hidden_states)
        return self.output_class(
            loss=None if labels is None else self.loss(logits, labels, num_items_in_batch),
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class EduBertForNextSentencePrediction(OneLayerHead):
    """Whether the second text follows the first: logit 0 for yes, 1 for no."""

    num_outputs = 2
    output_class = NextSentencePredictorOutput


class EduBertForSequenceClassification(OneLayerHead):
    """One label, several labels or a number for a text or a pair of texts."""

    def loss(self, logits: Tensor, labels: Tensor, num_items_in_batch=None) -> Tensor:
        return classification_loss(logits, labels, self.config, num_items_in_batch)


class EduBertForTokenClassification(OneLayerHead):
    """A label for each token."""

    reads_pooled = False
    output_class = TokenClassifierOutput

    def loss(self, logits: Tensor, labels: Tensor, num_items_in_batch=None) -> Tensor:
        check_shape("labels", labels, logits.shape[:-1])
        return logits_loss(logits, labels, num_items_in_batch)


class EduBertForQuestionAnswering(OneLayerHead):
    """Where in the text the answer starts and ends: a softmax over the positions for each (Section 4.2)."""

    num_outputs = 2
    reads_pooled = False

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> QuestionAnsweringModelOutput:
        given = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        logits, outputs = self.predict(*given, output_attentions, output_hidden_states)
        start_logits, end_logits = (part.squeeze(-1) for part in logits.split(1, dim=-1))  # each (B, T)
        loss = None
        if start_positions is not None and end_positions is not None:
            start_loss = position_loss(start_logits, start_positions, attention_mask)
            loss = (start_loss + position_loss(end_logits, end_positions, attention_mask)) / 2
        return QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start_logits,
            end_logits=end_logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


def position_loss(logits: Tensor, positions: Tensor, attention_mask: Tensor | None) -> Tensor:
    """A softmax over the real positions; an answer that was cut off with the text counts for nothing."""
    if attention_mask is not None:
        logits = logits.masked_fill(attention_mask == 0, torch.finfo(logits.dtype).min)
    return logits_loss(logits, positions.masked_fill(positions >= logits.shape[1], -100))


class EduBertForMultipleChoice(OneLayerHead):
    """Which of several endings fits: one number for each, and a softmax over them (Section 4.4)."""

    num_outputs = 1

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> MultipleChoiceModelOutput:
        """Every input has the choices as its second dimension: (B, C, T)."""
        check_one_of(input_ids, inputs_embeds)
        given = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        choices = (inputs_embeds if input_ids is None else input_ids).shape[1]
        flat = tuple(None if tensor is None else tensor.flatten(0, 1) for tensor in given)
        numbers, outputs = self.predict(*flat, output_attentions, output_hidden_states)
        logits = numbers.view(-1, choices)  # (B, C)
        loss = None if labels is None else logits_loss(logits, labels, num_items_in_batch)
        return MultipleChoiceModelOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )
