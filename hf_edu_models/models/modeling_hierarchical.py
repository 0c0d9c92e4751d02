"""Hierarchical attention network: documents of sentences of words.

New since `modeling_bahdanau.py`: attention without a decoder. A learnt query asks which words matter to a sentence, and
another which sentences matter to a document; the weights colour the document.
Paper: Yang et al. 2016, "Hierarchical Attention Networks for Document Classification" (NAACL).
Differs from the paper: embeddings are learnt with the classifier, not trained with word2vec first; the reset gate acts
as in torch (see `GRUCell`).

Shapes: B batch, N sentences, T tokens, E embedding size, D hidden size of both
directions, V classes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils.generic import ModelOutput, can_return_tuple, merge_with_config_defaults

from .blocks_base import EduPreTrainedModel
from .blocks_checks import embed_documents
from .blocks_classifier import ClassificationHead
from .blocks_dropout import Dropout
from .blocks_packing import reject_packing
from .blocks_pooling import POOLINGS
from .blocks_recurrent import RecurrentLayer, init_orthogonally
from .configuration_hierarchical import EduHierarchicalConfig


@dataclass
class EduHierarchicalModelOutput(ModelOutput):
    """
    Args:
        last_hidden_state: (B, N, D), the sentences as they are read in their document, h_i.
        pooler_output: (B, D), the document, v.
        hidden_states: the embeddings (B, N, T, E) and the states of the words h_it (B, N, T, D).
        attentions: the weights of the words alpha_it (B, N, T) and of the sentences alpha_i (B, N).
    """

    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


class AttentiveReader(nn.Module):
    """Reads a sequence in both directions, h_t = [forward h_t; backward h_t], and pools it: s = sum_t alpha_t h_t

    The same for the words of a sentence, Eq. (1)-(7), and for the sentences of a document, Eq. (8)-(10).
    """

    def __init__(self, config: EduHierarchicalConfig, input_size: int):
        super().__init__()
        self.layer = RecurrentLayer(config.cell_type, input_size, config.hidden_size, bidirectional=True)
        self.pooling = POOLINGS[config.pooling](2 * config.hidden_size, config.attention_size)

    def forward(self, inputs: Tensor, mask: Tensor | None, implementation: str) -> tuple[Tensor, Tensor, Tensor]:
        """States (B, T, D), their pooled vector (B, D) and the weights (B, T)."""
        states = self.layer(inputs, mask, implementation)[0]  # (B, T, D)
        pooled, weights = self.pooling(states, mask)
        return states, pooled.squeeze(1), weights.squeeze(1)


class EduHierarchicalPreTrainedModel(EduPreTrainedModel):
    config_class = EduHierarchicalConfig
    _no_split_modules = ["RecurrentLayer"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        init_orthogonally(module, self.config.initializer_range, self.config.forget_gate_bias)


class EduHierarchicalModel(EduHierarchicalPreTrainedModel):
    """From words to sentences, from sentences to a document."""

    def __init__(self, config: EduHierarchicalConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size)
        self.dropout = Dropout(config.dropout)
        self.word_reader = AttentiveReader(config, config.embedding_size)
        self.sentence_reader = AttentiveReader(config, 2 * config.hidden_size)
        self.post_init()

    @merge_with_config_defaults
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs,
    ) -> EduHierarchicalModelOutput:
        """
        Args:
            input_ids: (B, N, T), documents of sentences of tokens.
            attention_mask: (B, N, T), 1 for a token and 0 for padding; a sentence of zeros is padding, too.
        """
        positions = kwargs.pop("position_ids", None)
        rows = None if positions is None else positions.reshape(-1, positions.shape[-1])
        reject_packing(self.config.model_type, None, rows, **kwargs)
        embeddings = embed_documents(
            self.embed_tokens, self.config, input_ids, attention_mask, inputs_embeds
        )  # (B, N, T, E)
        mask = None if attention_mask is None else attention_mask.bool()
        sentence_mask = None if mask is None else mask.any(dim=-1)  # (B, N)

        states, sentences, word_weights = self.read_words(self.dropout(embeddings), mask, sentence_mask)
        sentence_states, document, sentence_weights = self.sentence_reader(
            self.dropout(sentences), sentence_mask, self.config.recurrent_implementation
        )
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        output_attentions = self.config.output_attentions if output_attentions is None else output_attentions
        return EduHierarchicalModelOutput(
            last_hidden_state=sentence_states,
            pooler_output=document,
            hidden_states=(embeddings, states) if output_hidden_states else None,
            attentions=(word_weights, sentence_weights) if output_attentions else None,
        )

    def read_words(self, embeddings: Tensor, mask: Tensor | None, sentence_mask: Tensor | None):
        """All sentences of the batch at once: states (B, N, T, D), vectors (B, N, D), weights (B, N, T)."""
        shape = embeddings.shape[:2]
        rows, row_mask = embeddings.flatten(0, 1), None
        # Documents differ in length: sentences that are padding are not read. A traced program reads them, too, because
        # their number is not known then.
        real = None
        if mask is not None and sentence_mask is not None:
            row_mask = mask.flatten(0, 1)
            if not torch.compiler.is_compiling() and not bool(sentence_mask.all()):
                real = sentence_mask.flatten().nonzero().squeeze(1)
                rows, row_mask = rows[real], row_mask[real]
        results = self.word_reader(rows, row_mask, self.config.recurrent_implementation)
        if real is not None:
            results = [part.new_zeros(shape.numel(), *part.shape[1:]).index_copy(0, real, part) for part in results]
        return [part.unflatten(0, shape) for part in results]


class EduHierarchicalForSequenceClassification(ClassificationHead, EduHierarchicalPreTrainedModel):
    """One label, several labels or a number for a document: p = softmax(W v + b), Eq. (11)."""

    output_class = SequenceClassifierOutput

    def __init__(self, config: EduHierarchicalConfig):
        super().__init__(config)
        self.model = EduHierarchicalModel(config)
        self.dropout = Dropout(config.dropout)
        self.classifier = nn.Linear(2 * config.hidden_size, config.num_labels)
        self.post_init()

    def predict(self, outputs: ModelOutput, attention_mask: Tensor | None) -> tuple[Tensor, None]:
        return self.classifier(self.dropout(outputs.pooler_output)), None
