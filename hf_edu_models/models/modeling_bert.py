"""BERT.

New since `modeling_gpt.py`: every token attends to both sides, so the model is pre-trained to predict masked tokens
(MLM) and whether one text follows another (NSP); it is then fine-tuned with one small layer per task.
Paper: Devlin, Chang, Lee & Toutanova 2019, arXiv:1810.04805.
Differs from the paper: the layer before the MLM softmax, and its tie to the token embeddings, are as in the authors'
code; in training the softmax is computed only for tokens that have a label.

Shapes: B batch, T length, D hidden size, V vocabulary, C choices, W windows.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
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
from transformers.utils.generic import ModelOutput, can_return_tuple

from .blocks_checks import (
    check_and_embed,
    check_choices,
    check_length,
    check_one_of,
    check_positions,
    check_shape,
    check_token_types,
)
from .blocks_dropout import Dropout
from .blocks_losses import classification_loss, head_output, lm_loss_and_logits, logits_loss, position_loss
from .blocks_masks import first_token
from .blocks_packing import reject_packing
from .blocks_positions import SinusoidalPositions
from .blocks_sentence_embeddings import SentenceEmbeddings
from .blocks_transformer import TransformerLayer
from .blocks_transformer_stack import (
    AttentionPreTrainedModel,
    choose_attention,
    final_norm,
    positions_of,
    run_self_attention,
)
from .blocks_windows import flatten_windows, has_windows, pool_windows
from .configuration_bert import EduBertConfig


class BertPositionEmbeddings(nn.Embedding):
    """One learnt vector for each position."""

    def init_sinusoidal(self, amplitude: float) -> None:
        """In sinusoids the same rotation leads from any position to its neighbour; random vectors must learn that."""
        positions = torch.arange(self.num_embeddings, device=self.weight.device)
        encodings = SinusoidalPositions(self.embedding_dim)(positions)
        init.copy_(self.weight, amplitude * encodings[:, : self.embedding_dim])


class BertEmbeddings(nn.Module):
    """LayerNorm(E_token + E_position + E_segment); the segment is which of two texts a token is in (Section 3)."""

    def __init__(self, config: EduBertConfig):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = BertPositionEmbeddings(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.dropout)

    def forward(self, embeddings: Tensor, token_type_ids: Tensor, positions: Tensor) -> Tensor:
        total = embeddings + self.token_type_embeddings(token_type_ids) + self.position_embeddings(positions)
        return self.dropout(self.norm(total))


class BertMLMHead(nn.Module):
    """Masked language modelling head: softmax(E LayerNorm(gelu(W h + b)) + b'), E tied to the token embeddings."""

    def __init__(self, config: EduBertConfig):
        super().__init__()
        self.transform = nn.Linear(config.hidden_size, config.hidden_size)  # W, b
        self.activation = ACT2FN[config.hidden_act]
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)  # E, b'

    def forward(
        self, hidden_states: Tensor, labels: Tensor | None, skip_logits: bool | None, num_items_in_batch=None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Loss and logits; without logits only the masked tokens go through the head."""
        skip_logits = self.training if skip_logits is None else skip_logits
        if skip_logits and labels is not None:
            check_shape("labels", labels, hidden_states.shape[:-1], why=", one for each prediction")
            if not torch.compiler.is_compiling():  # the number of masked tokens depends on the data
                is_masked = labels != -100
                hidden_states, labels = hidden_states[is_masked], labels[is_masked]
        features = self.norm(self.activation(self.transform(hidden_states)))
        return lm_loss_and_logits(features, self.decoder, labels, skip_logits, num_items_in_batch)


class EduBertPreTrainedModel(AttentionPreTrainedModel):
    config_class = EduBertConfig
    _no_split_modules = ["TransformerLayer"]  # not the embeddings: the MLM head is tied to them

    def init_matrix(self, module: nn.Linear | nn.Embedding) -> None:
        """The authors' code: a normal distribution, truncated at two standard deviations."""
        std = self.config.initializer_range
        if isinstance(module, BertPositionEmbeddings) and self.config.position_init == "sinusoidal":
            module.init_sinusoidal(2 * std)
        else:
            init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)


class EduBertModel(SentenceEmbeddings, EduBertPreTrainedModel):
    """Embeddings, layers that attend to both sides, and the pooled state of [CLS]: tanh(W h_[CLS] + b).

    Args:
        add_pooling_layer: False for heads that read every hidden state, where the pooler would get no gradient.
    """

    def __init__(self, config: EduBertConfig, add_pooling_layer: bool = True):
        super().__init__(config)
        self.embeddings = BertEmbeddings(config)
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
        **kwargs,
    ) -> BaseModelOutputWithPooling:
        table, limit = self.get_input_embeddings(), self.config.max_position_embeddings
        embeddings = check_and_embed(table, self.config, input_ids, attention_mask, inputs_embeds)  # (B, T, D)
        batch, length, _ = embeddings.shape
        check_token_types(token_type_ids, self.config.type_vocab_size, batch, length)
        check_length(length, limit)
        if position_ids is not None:
            check_positions(position_ids, limit, batch, length, waits=False)
        reject_packing(self.config.model_type, attention_mask, position_ids, **kwargs)
        if position_ids is None:
            position_ids = positions_of(attention_mask, length, 0, embeddings.device)
        if token_type_ids is None:
            token_type_ids = torch.zeros((batch, length), dtype=torch.long, device=embeddings.device)
        states = self.embeddings(embeddings, token_type_ids, position_ids)  # (B, T, D)

        config, output_attentions = choose_attention(self.config, output_attentions, self.training)
        mask = create_bidirectional_mask(config, states, attention_mask)
        outputs = run_self_attention(
            self, config, states, attention_mask, mask, output_attentions, output_hidden_states
        )
        pooled = None
        if self.pooler is not None:
            pooled = torch.tanh(self.pooler(first_token(outputs["last_hidden_state"], attention_mask)))  # (B, D)
        return BaseModelOutputWithPooling(pooler_output=pooled, **outputs)


@dataclass
class EduBertForPreTrainingOutput(ModelOutput):
    """`loss` is `mlm_weight` times `mlm_loss` plus `nsp_weight` times `nsp_loss`."""

    loss: Tensor | None = None
    prediction_logits: Tensor | None = None
    seq_relationship_logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    mlm_loss: Tensor | None = None
    nsp_loss: Tensor | None = None


class BertWithMLMHead(EduBertPreTrainedModel):
    """What the two models with a masked language modelling head share."""

    _tied_weights_keys = {"lm_head.decoder.weight": "model.embeddings.word_embeddings.weight"}

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head.decoder

    def set_output_embeddings(self, value: nn.Linear) -> None:
        self.lm_head.decoder = value


class EduBertForPreTraining(BertWithMLMHead):
    """Masked language modelling and next sentence prediction (Section 3.1)."""

    accepts_loss_kwargs = False  # a sum of two means: Trainer itself must divide it over accumulated batches

    def __init__(self, config: EduBertConfig):
        super().__init__(config)
        self.model = EduBertModel(config)
        self.lm_head = BertMLMHead(config)
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
        skip_logits: bool | None = None,
        **kwargs,
    ) -> EduBertForPreTrainingOutput:
        """
        Args:
            labels: the ids of the masked tokens, -100 everywhere else.
            next_sentence_label: 0 where the second text follows the first, 1 where it is a random one.
            skip_logits: compute the loss without returning MLM logits; the default in training with labels.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        outputs = self.model(*inputs, **kwargs, return_dict=True)
        mlm_loss, mlm_logits = self.lm_head(outputs.last_hidden_state, labels, skip_logits)
        nsp_logits = self.seq_relationship(outputs.pooler_output)
        nsp_loss = None
        if next_sentence_label is not None:
            nsp_loss = logits_loss(nsp_logits, next_sentence_label, name="next_sentence_label")
        weighted = ((self.config.mlm_weight, mlm_loss), (self.config.nsp_weight, nsp_loss))
        losses = [weight * loss for weight, loss in weighted if loss is not None]
        loss = None
        if losses:
            rows = labels if next_sentence_label is None else next_sentence_label
            loss = self.penalise(sum(losses), outputs, attention_mask, rows)
        fields = {"loss": loss, "mlm_loss": mlm_loss, "nsp_loss": nsp_loss}
        fields |= {"prediction_logits": mlm_logits, "seq_relationship_logits": nsp_logits}
        return head_output(EduBertForPreTrainingOutput, outputs, **fields)


class EduBertForMaskedLM(BertWithMLMHead):
    """Masked language modelling."""

    def __init__(self, config: EduBertConfig):
        super().__init__(config)
        self.model = EduBertModel(config, add_pooling_layer=False)
        self.lm_head = BertMLMHead(config)
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
        skip_logits: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs,
    ) -> MaskedLMOutput:
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        outputs = self.model(*inputs, **kwargs, return_dict=True)
        loss, logits = self.lm_head(outputs.last_hidden_state, labels, skip_logits, num_items_in_batch)
        if labels is not None:
            loss = self.penalise(loss, outputs, attention_mask, labels, num_items_in_batch)
        return head_output(MaskedLMOutput, outputs, loss=loss, logits=logits)


class BertWithLinearHead(EduBertPreTrainedModel):
    """A fine-tuning model: dropout and one linear layer on the pooled state or on every hidden state (Section 4)."""

    num_outputs: int | None = None  # None for `config.num_labels`
    reads_pooled = True  # or every hidden state
    output_class = SequenceClassifierOutput

    def __init__(self, config: EduBertConfig):
        super().__init__(config)
        self.model = EduBertModel(config, add_pooling_layer=self.reads_pooled)
        self.dropout = Dropout(config.dropout if config.classifier_dropout is None else config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, self.num_outputs or config.num_labels)
        self.post_init()

    def predict(self, *inputs, **kwargs) -> tuple[Tensor, BaseModelOutputWithPooling]:
        """The logits and the outputs of the model."""
        outputs = self.model(*inputs, **kwargs, return_dict=True)
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
        num_items_in_batch: Tensor | int | None = None,
        **kwargs,
    ) -> ModelOutput:
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        logits, outputs = self.predict(*inputs, **kwargs)
        loss = None
        if labels is not None:
            loss = self.loss(logits, labels, num_items_in_batch)
            loss = self.penalise(loss, outputs, attention_mask, labels, num_items_in_batch)
        return head_output(self.output_class, outputs, loss=loss, logits=logits)


class EduBertForNextSentencePrediction(BertWithLinearHead):
    """Whether the second text follows the first: class 0 for yes, 1 for no."""

    num_outputs = 2
    output_class = NextSentencePredictorOutput


class EduBertForSequenceClassification(BertWithLinearHead):
    """One label, several labels or a number for a text or a pair of texts.

    A text that is longer than the positions may be given as windows, inputs of shape (B, W, T); the pooled states of
    its windows are pooled once more (`window_pooling`).
    """

    def predict(self, *inputs, **kwargs) -> tuple[Tensor, BaseModelOutputWithPooling]:
        if not has_windows(inputs[0], inputs[-1]):
            return super().predict(*inputs, **kwargs)
        if self.training and self.config.head_diversity_weight:
            raise ValueError("head_diversity_weight is for texts of one window; set it to 0")
        windows, is_window = flatten_windows(inputs)
        outputs = self.model(*windows, **kwargs, return_dict=True)  # one row for each window
        states = pool_windows(outputs.pooler_output, is_window, self.config.window_pooling)  # (B, D)
        return self.classifier(self.dropout(states)), outputs

    def loss(self, logits: Tensor, labels: Tensor, num_items_in_batch=None) -> Tensor:
        return classification_loss(logits, labels, self.config, num_items_in_batch)


class EduBertForTokenClassification(BertWithLinearHead):
    """One label for each token."""

    reads_pooled = False
    output_class = TokenClassifierOutput

    def loss(self, logits: Tensor, labels: Tensor, num_items_in_batch=None) -> Tensor:
        return logits_loss(logits, labels, num_items_in_batch)


class EduBertForMultipleChoice(BertWithLinearHead):
    """Which of several choices fits: one score for each, and a softmax over them (Section 4.4).

    Every input has the choices as its second dimension: (B, C, T).
    """

    num_outputs = 1
    output_class = MultipleChoiceModelOutput

    def predict(self, *inputs, **kwargs) -> tuple[Tensor, BaseModelOutputWithPooling]:
        check_one_of(inputs[0], inputs[-1])
        choices = check_choices(*inputs)
        flat = (None if tensor is None else tensor.flatten(0, 1) for tensor in inputs)
        scores, outputs = super().predict(*flat, **kwargs)
        logits = scores.view(-1, choices)  # (B, C)
        return logits, outputs


class EduBertForQuestionAnswering(BertWithLinearHead):
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
        **kwargs,
    ) -> QuestionAnsweringModelOutput:
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        logits, outputs = self.predict(*inputs, **kwargs)
        start_logits, end_logits = logits.unbind(dim=-1)  # each (B, T)
        loss = None
        if start_positions is not None and end_positions is not None:
            start_loss = position_loss("start_positions", start_logits, start_positions, attention_mask)
            loss = (start_loss + position_loss("end_positions", end_logits, end_positions, attention_mask)) / 2
            loss = self.penalise(loss, outputs, attention_mask, start_positions)
        fields = {"loss": loss, "start_logits": start_logits, "end_logits": end_logits}
        return head_output(QuestionAnsweringModelOutput, outputs, **fields)


class EduBertForMultiTask(EduBertPreTrainedModel):
    """One model with a linear head for each of `config.tasks`; a batch is of one task t.

    L = sum_t lambda_t L_t, lambda_t the `weight` of the task (Caruana 1997; Liu et al. 2019, arXiv:1901.11504).
    Transformers has no Auto class for it; what `single_task` returns is saved for the one of its task.
    """

    accepts_loss_kwargs = False  # means of different tasks: Trainer itself must divide them over accumulated batches
    head_classes = {
        "classification": EduBertForSequenceClassification,
        "token_classification": EduBertForTokenClassification,
    }

    def __init__(self, config: EduBertConfig):
        super().__init__(config)
        if not config.tasks:
            raise ValueError(
                "EduBertForMultiTask needs tasks in its configuration, such as "
                "tasks={'sst2': {'task': 'classification', 'labels': ['negative', 'positive']}}"
            )
        self.model = EduBertModel(config)
        self.dropout = Dropout(config.dropout if config.classifier_dropout is None else config.classifier_dropout)
        self.task_configs = {name: config.for_task(name) for name in config.tasks}
        self.classifiers = nn.ModuleDict(
            {name: nn.Linear(config.hidden_size, task.num_labels) for name, task in self.task_configs.items()}
        )
        self.post_init()

    def head_class(self, task: str) -> type[BertWithLinearHead]:
        """The class of a model with the head of one task alone."""
        return self.head_classes[self.config.tasks[task]["task"]]

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        task: str | None = None,
        **kwargs,
    ) -> ModelOutput:
        """
        Args:
            task: a name of `config.tasks`; it may be left out if there is one.
        """
        if task is None and len(self.classifiers) == 1:
            (task,) = self.classifiers
        if task is None or task not in self.classifiers:
            raise ValueError(f"task must be one of {', '.join(self.classifiers)}; got {task!r}")
        outputs = self.model(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, **kwargs, return_dict=True
        )
        head, loss = self.head_class(task), None
        states = outputs.pooler_output if head.reads_pooled else outputs.last_hidden_state
        logits = self.classifiers[task](self.dropout(states))
        if labels is not None:
            if head.reads_pooled:
                loss = classification_loss(logits, labels, self.task_configs[task])
            else:
                loss = logits_loss(logits, labels)
            weight = self.config.tasks[task].get("weight", 1.0)  # lambda_t
            loss = weight * self.penalise(loss, outputs, attention_mask, labels)
        return head_output(head.output_class, outputs, loss=loss, logits=logits)

    @torch.no_grad()
    def single_task(self, task: str) -> BertWithLinearHead:
        """A model with the head of one task alone and a copy of the weights."""
        single = self.head_class(task)(self.config.for_task(task)).to(self.device, self.dtype)
        weights = self.state_dict()
        names = {name: name.replace("classifier.", f"classifiers.{task}.") for name in single.state_dict()}
        single.load_state_dict({name: weights[own] for name, own in names.items()})
        return single.train(self.training)
