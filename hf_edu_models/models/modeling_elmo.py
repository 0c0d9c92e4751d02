"""ELMo: embeddings from language models.

New since `modeling_transformer.py`: the hidden states of two language models, one that reads forwards and one that
reads backwards, are the word vectors. A word has another vector in each sentence, and every layer counts.
Paper: Peters et al. 2018, arXiv:1802.05365; LSTMs with projection are Sak et al. 2014, arXiv:1402.1128.
Differs from the paper: the softmax covers the whole vocabulary; states are not clipped; the loss is the mean of both
directions, not their sum; a task reads the mixed layers by one linear layer (for a tagger on top of them:
`EduRecurrentForTokenClassification`); characters are bytes and the spelling of the vocabulary is part of the model.

Shapes: B batch, T tokens, D hidden size of one or of both directions, V vocabulary or classes.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput, SequenceClassifierOutput, TokenClassifierOutput
from transformers.utils.generic import ModelOutput, can_return_tuple, merge_with_config_defaults

from .blocks_base import EduPreTrainedModel
from .blocks_characters import CharacterEmbedding, HighwayGate, init_characters
from .blocks_checks import check_and_embed, check_shape
from .blocks_classifier import ClassificationHead
from .blocks_dropout import Dropout
from .blocks_layer_mix import init_layer_mix, make_layer_mix, mixed_size
from .blocks_losses import head_output, lm_loss_and_logits, logits_loss, shift_labels
from .blocks_masks import boolean_mask
from .blocks_packing import reject_packing
from .blocks_pooling import POOLINGS
from .blocks_recurrent import ProjectedLSTMLayer, init_uniformly
from .configuration_elmo import EduElmoConfig


class DirectedStack(nn.Module):
    """The layers of one language model; from the second on with a residual connection (Section 3.4)."""

    def __init__(self, config: EduElmoConfig):
        super().__init__()
        size = config.hidden_size
        self.layers = nn.ModuleList(
            ProjectedLSTMLayer(size, config.cell_size, size) for _ in range(config.num_hidden_layers)
        )
        self.dropout = Dropout(config.dropout)

    def forward(self, hidden_states: Tensor, mask: Tensor | None, implementation: str) -> list[Tensor]:
        """The hidden states of every layer, lowest first."""
        outputs: list[Tensor] = []
        for layer in self.layers:
            update = layer(self.dropout(hidden_states), mask, implementation)[0]  # (B, T, D)
            hidden_states = hidden_states + update if outputs else update
            outputs.append(hidden_states)
        return outputs


class EduElmoPreTrainedModel(EduPreTrainedModel):
    config_class = EduElmoConfig
    _no_split_modules = ["ProjectedLSTMLayer"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        bound = self.config.initializer_range
        if isinstance(module, CharacterEmbedding | HighwayGate | nn.Conv1d):
            init_characters(module, bound)
        else:
            init_uniformly(module, bound, self.config.forget_gate_bias)
        init_layer_mix(module)

    def resize_token_embeddings(self, new_num_tokens=None, pad_to_multiple_of=None, mean_resizing=True):
        """As in transformers; new tokens of a model that spells have a vector as soon as they have a spelling."""
        embeddings = self.get_input_embeddings()
        if not isinstance(embeddings, CharacterEmbedding):
            return super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        if new_num_tokens is not None:
            multiple = pad_to_multiple_of or 1
            size = -(-new_num_tokens // multiple) * multiple
            embeddings.resize(size)
            if self.get_output_embeddings() is not None:
                head = self._get_resized_lm_head(self.get_output_embeddings(), size, mean_resizing=mean_resizing)
                self.set_output_embeddings(head)
            self.config.vocab_size = size
        return embeddings


def _make_token_vectors(config: EduElmoConfig) -> nn.Module:
    if config.token_encoder == "embedding":
        return nn.Embedding(config.vocab_size, config.hidden_size)
    return CharacterEmbedding(
        config.vocab_size,
        config.hidden_size,
        config.char_embedding_size,
        config.char_filters or [],
        config.num_highway_layers,
        config.max_characters,
        config.recurrent_implementation,
    )


class EduElmoModel(EduElmoPreTrainedModel):
    """Token vectors x_k, and above them the hidden states of both language models: h_kj = [forward; backward].

    `hidden_states` has x_k twice as layer 0, so that all layers have one size and can be mixed. With
    `token_encoder="characters"`, words outside of the vocabulary enter as
    `inputs_embeds=embed_tokens.encode(embed_tokens.spell(words)[None])`.
    """

    def __init__(self, config: EduElmoConfig):
        super().__init__(config)
        self.embed_tokens = _make_token_vectors(config)
        self.forward_lm = DirectedStack(config)
        self.backward_lm = DirectedStack(config)
        self.post_init()

    @merge_with_config_defaults
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **kwargs,
    ) -> BaseModelOutput:
        embeddings = check_and_embed(self.embed_tokens, self.config, input_ids, attention_mask, inputs_embeds)
        reject_packing(self.config.model_type, attention_mask, **kwargs)
        mask = boolean_mask(attention_mask, embeddings.shape[1])
        implementation = self.config.recurrent_implementation
        forwards = self.forward_lm(embeddings, mask, implementation)
        # The same text from its end: what comes later has been read before.
        flipped_mask = None if mask is None else mask.flip(1)
        backwards = self.backward_lm(embeddings.flip(1), flipped_mask, implementation)
        layers = [torch.cat([embeddings, embeddings], dim=-1)]  # h_k0 = [x_k; x_k]
        for forward_states, backward_states in zip(forwards, backwards, strict=True):
            layer = torch.cat([forward_states, backward_states.flip(1)], dim=-1)  # (B, T, D)  h_kj
            layers.append(layer)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        return BaseModelOutput(
            last_hidden_state=layers[-1], hidden_states=tuple(layers) if output_hidden_states else None
        )


def _shift_both_ways(labels: Tensor | None, attention_mask: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """What each position predicts: the next token, and the previous one; padding predicts nothing."""
    following = shift_labels(labels)
    if labels is None or following is None:
        return None, None
    previous = F.pad(labels.long()[:, :-1], (1, 0), value=-100)  # (B, T)
    if attention_mask is None:
        return following, previous
    check_shape("labels", labels, attention_mask.shape, why=", one for each token")
    is_padding = attention_mask == 0
    return following.masked_fill(is_padding, -100), previous.masked_fill(is_padding, -100)


@dataclass
class EduElmoForPreTrainingOutput(ModelOutput):
    """`loss` is the mean of `forward_loss` and `backward_loss`; `logits` are of the next token,
    `backward_logits` of the previous one."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    backward_logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    forward_loss: Tensor | None = None
    backward_loss: Tensor | None = None


class EduElmoForPreTraining(EduElmoPreTrainedModel):
    """Both language models, with one softmax: p(t_k | t_1 .. t_{k-1}) and p(t_k | t_{k+1} .. t_N)."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
    accepts_loss_kwargs = False  # a mean of two means: Trainer itself must divide it over accumulated batches

    def __init__(self, config: EduElmoConfig):
        super().__init__(config)
        self.model = EduElmoModel(config)
        self.dropout = Dropout(config.dropout)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        skip_logits: bool | None = None,
        **kwargs,
    ) -> EduElmoForPreTrainingOutput:
        """
        Args:
            labels: the token ids themselves; they are shifted here, to the left for one model, to the right for the
                other.
            skip_logits: compute the loss without returning logits; the default in training with labels.
        """
        outputs = self.model(input_ids, attention_mask, inputs_embeds, **kwargs, return_dict=True)
        forward_states, backward_states = outputs.last_hidden_state.chunk(2, dim=-1)
        skip_logits = self.training if skip_logits is None else skip_logits
        following, previous = _shift_both_ways(labels, attention_mask)
        forward_loss, logits = lm_loss_and_logits(self.dropout(forward_states), self.lm_head, following, skip_logits)
        backward_loss, backward_logits = lm_loss_and_logits(
            self.dropout(backward_states), self.lm_head, previous, skip_logits
        )
        loss = None
        if forward_loss is not None and backward_loss is not None:
            loss = (forward_loss + backward_loss) / 2
        return head_output(
            EduElmoForPreTrainingOutput,
            outputs,
            loss=loss,
            logits=logits,
            backward_logits=backward_logits,
            forward_loss=forward_loss,
            backward_loss=backward_loss,
        )


class ElmoClassifier(ClassificationHead, EduElmoPreTrainedModel):
    """What both classifiers share: the layers are mixed; a subclass adds a linear layer.

    For the paper's setting freeze the language models (`model.model.requires_grad_(False)`, `--freeze_body`): the
    weights of the layers, gamma and the head are all that is learnt.
    """

    def __init__(self, config: EduElmoConfig):
        super().__init__(config)
        num_layers = config.num_hidden_layers + 1
        self.model = EduElmoModel(config)
        self.layer_mix = make_layer_mix(config.layer_mix, num_layers)
        self.mixed_size = mixed_size(config.layer_mix, num_layers, config.output_size)
        self.dropout = Dropout(config.dropout)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **kwargs,
    ) -> ModelOutput:
        kwargs |= {"output_hidden_states": True, "return_dict": True}
        outputs = super().forward(input_ids, attention_mask, inputs_embeds, labels, **kwargs)
        shows = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        return outputs if shows else self.output_class(**{k: v for k, v in outputs.items() if k != "hidden_states"})


class EduElmoForSequenceClassification(ElmoClassifier):
    """One label, several labels or a number for the whole text: its mixed token vectors are pooled."""

    output_class = SequenceClassifierOutput

    def __init__(self, config: EduElmoConfig):
        super().__init__(config)
        self.pooling = POOLINGS[config.pooling](self.mixed_size, config.attention_size, bidirectional=True)
        self.score = nn.Linear(self.mixed_size, config.num_labels)
        self.post_init()

    def predict(self, outputs: ModelOutput, attention_mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        mask = None if attention_mask is None else attention_mask.bool()
        pooled, weights = self.pooling(self.layer_mix(outputs.hidden_states), mask)
        return self.score(self.dropout(pooled.flatten(1))), weights


class EduElmoForTokenClassification(ElmoClassifier):
    """One label for each token."""

    output_class = TokenClassifierOutput

    def __init__(self, config: EduElmoConfig):
        super().__init__(config)
        self.classifier = nn.Linear(self.mixed_size, config.num_labels)
        self.post_init()

    def predict(self, outputs: ModelOutput, attention_mask: Tensor | None) -> tuple[Tensor, None]:
        return self.classifier(self.dropout(self.layer_mix(outputs.hidden_states))), None

    def loss(self, logits: Tensor, labels: Tensor, num_items_in_batch, weights: Tensor | None) -> Tensor:
        return logits_loss(logits, labels, num_items_in_batch)
