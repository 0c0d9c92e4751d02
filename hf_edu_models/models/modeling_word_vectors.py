"""Static word vectors: skip-gram, continuous bag of words (CBOW) and GloVe.

New on this rung: no language model at all. A word is known by the words around it; the vectors are all that is kept.
Papers: Mikolov, Chen, Corrado & Dean 2013a, arXiv:1301.3781 (CBOW); Mikolov, Sutskever, Chen, Corrado & Dean 2013b,
arXiv:1310.4546 (skip-gram, negative sampling; the equations below); Pennington, Socher & Manning 2014, "GloVe: Global
Vectors for Word Representation" (EMNLP); Bojanowski et al. 2017 (character n-grams, `blocks_subwords.py`).
Differs from the papers: a row of text shares its negatives, and they are weighted to `num_negatives` a pair; a negative
that happens to be the context word counts, too. The collator drops frequent words and draws windows and negatives, so
that a model computes the same every time.

Shapes: B batch, T time steps, D size of a vector, V vocabulary, K negatives.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput, MaskedLMOutput
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults

from .blocks_base import EduPreTrainedModel
from .blocks_checks import check_and_embed, check_integers, check_labels, check_shape
from .blocks_dropout import Dropout
from .blocks_huffman import HuffmanTree
from .blocks_losses import head_output, is_plain_linear, mean_over_labels
from .blocks_masks import boolean_mask, padding_last, reorder, undo_reorder
from .blocks_packing import reject_packing
from .blocks_subwords import SubwordEmbedding
from .configuration_word_vectors import EduWordVectorsConfig


def shift(states: Tensor, offset: int, fill: int = 0) -> Tensor:
    """At position t what was at t + offset; `fill` beyond the ends of the row."""
    length = states.shape[1]
    kept = states[:, max(offset, 0) : max(length + min(offset, 0), 0)]
    shape = (states.shape[0], min(abs(offset), length), *states.shape[2:])
    parts = [kept, states.new_full(shape, fill)]
    return torch.cat(parts if offset > 0 else parts[::-1], dim=1)


def offsets(window_size: int) -> Iterator[int]:
    """-c <= j <= c, j != 0, of Eq. (1)."""
    return (offset for offset in range(-window_size, window_size + 1) if offset)


def _window_band(window_sizes: Tensor, mask: Tensor) -> Tensor:
    """Which positions are in the window of each position: a matrix that is zero but for a band."""
    positions = torch.arange(mask.shape[1], device=mask.device)
    distances = (positions[:, None] - positions).abs()  # (T, T)
    band = (distances > 0) & (distances <= window_sizes[:, :, None]) & mask[:, :, None] & mask[:, None, :]
    return band


class EduWordVectorsPreTrainedModel(EduPreTrainedModel):
    config_class = EduWordVectorsConfig

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Embedding):
            # As in word2vec: input vectors in +-0.5 / D, output vectors zero.
            bound = 0.5 / module.embedding_dim
            init.uniform_(module.weight, -bound, bound)
        elif isinstance(module, nn.Linear):
            init.zeros_(module.weight)
            if module.bias is not None:
                init.zeros_(module.bias)
        if isinstance(module, SubwordEmbedding):
            init.zeros_(module.ngram_ids)
            init.zeros_(module.ngram_starts)
        elif isinstance(module, HuffmanTree):
            nodes, codes = module.balanced()
            init.copy_(module.nodes, nodes)
            init.copy_(module.codes, codes)

    def resize_token_embeddings(self, new_num_tokens: int | None = None, *args, **kwargs) -> nn.Module:
        if self.config.hierarchical_softmax and new_num_tokens not in (None, self.config.vocab_size):
            raise ValueError(
                f"a Huffman tree of {self.config.vocab_size} words cannot grow to {new_num_tokens}; build the model "
                "for the larger vocabulary, or set hierarchical_softmax to False"
            )
        return super().resize_token_embeddings(new_num_tokens, *args, **kwargs)


class EduWordVectorsModel(EduWordVectorsPreTrainedModel):
    """The vectors: the same for a word in every text."""

    def __init__(self, config: EduWordVectorsConfig):
        super().__init__(config)
        sizes = config.vocab_size, config.hidden_size
        self.embed_tokens = SubwordEmbedding(config) if config.num_buckets else nn.Embedding(*sizes)  # v_w
        self.dropout = Dropout(config.dropout)
        self.gradient_checkpointing = False  # a lookup has nothing to compute again
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
        embeddings = check_and_embed(
            self.embed_tokens, self.config, input_ids, attention_mask, inputs_embeds
        )  # (B, T, D)
        reject_packing(self.config.model_type, attention_mask, **kwargs)
        boolean_mask(attention_mask, embeddings.shape[1])  # rejects a mask of pairs of tokens
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        states = self.dropout(embeddings)
        return BaseModelOutput(states, hidden_states=(states,) if output_hidden_states else None)


class WindowHead(EduWordVectorsPreTrainedModel):
    """What skip-gram and CBOW share: the window, and how a vector predicts a word."""

    def __init__(self, config: EduWordVectorsConfig):
        super().__init__(config)
        self.model = EduWordVectorsModel(config)
        sizes = config.vocab_size, config.hidden_size
        if config.hierarchical_softmax:
            self.tree = HuffmanTree(*sizes, config.max_code_length)
        else:
            self.lm_head = nn.Linear(*sizes[::-1], bias=False)  # v'_w
        self.post_init()

    def get_output_embeddings(self) -> nn.Module | None:
        return None if self.config.hierarchical_softmax else self.lm_head

    def predict(self, hidden_states: Tensor) -> Tensor:
        """Logits of every word; log-probabilities if the softmax is hierarchical."""
        return self.tree(hidden_states) if self.config.hierarchical_softmax else self.lm_head(hidden_states)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        window_sizes: Tensor | None = None,
        negative_ids: Tensor | None = None,
        skip_logits: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs,
    ) -> MaskedLMOutput:
        """
        Args:
            labels: the words to predict, usually `input_ids` again; the loss is the mean over them.
            window_sizes: (B, T), the window of each position; `config.window_size` for all if not given.
            negative_ids: (B, K), the negatives of each row; without them the softmax is over all words.
            skip_logits: compute the loss without returning logits; the default in training, and with negatives.
        """
        outputs = self.model(input_ids, attention_mask, inputs_embeds, **kwargs, return_dict=True)
        embeddings = outputs.last_hidden_state
        batch, length, _ = embeddings.shape
        order, mask = None, boolean_mask(attention_mask, length)
        if mask is not None:
            order = padding_last(mask)
            embeddings, sorted_mask = reorder(embeddings, order), mask.gather(1, order)
        else:
            sorted_mask = torch.ones(batch, length, dtype=torch.bool, device=embeddings.device)
        window_sizes = self._check_windows(window_sizes, order, embeddings)
        hidden_states = self.hidden_states(embeddings, window_sizes, sorted_mask)
        if skip_logits is None:
            skip_logits = labels is not None and (self.training or negative_ids is not None)
        loss = logits = None
        if labels is not None:
            targets = check_labels(labels, self.config.vocab_size, (batch, length)).to(embeddings.device)
            targets = targets if order is None else targets.gather(1, order)
            targets = targets.masked_fill(~sorted_mask, -100)
            losses = self._losses_of(hidden_states, self._check_negatives(negative_ids, batch))
            total = self.total_loss(losses, hidden_states, targets, window_sizes, sorted_mask)
            loss = mean_over_labels(total, targets, num_items_in_batch)
        if not skip_logits:
            states = hidden_states if order is None or mask is None else undo_reorder(hidden_states, order, mask)
            logits = self.predict(states)
        return head_output(MaskedLMOutput, outputs, loss=loss, logits=logits)

    def hidden_states(self, embeddings: Tensor, window_sizes: Tensor, mask: Tensor) -> Tensor:
        """What predicts, (B, T, D). Padding is behind the words."""
        raise NotImplementedError

    def total_loss(self, losses, hidden_states: Tensor, labels: Tensor, window_sizes: Tensor, mask: Tensor) -> Tensor:
        """The sum of the losses of all pairs."""
        raise NotImplementedError

    def _check_windows(self, window_sizes: Tensor | None, order: Tensor | None, embeddings: Tensor) -> Tensor:
        shape = embeddings.shape[:2]
        if window_sizes is None:
            return torch.full(shape, self.config.window_size, device=embeddings.device)
        if not torch.compiler.is_compiling():
            check_integers("window_sizes", window_sizes, "batch, length")
            check_shape("window_sizes", window_sizes, shape)
            if int(window_sizes.max()) > self.config.window_size:
                raise ValueError(
                    f"window_sizes has {int(window_sizes.max())}, but window_size is {self.config.window_size}; draw "
                    "them from 1 to window_size"
                )
        return window_sizes if order is None else window_sizes.gather(1, order)

    def _check_negatives(self, negative_ids: Tensor | None, batch: int) -> Tensor | None:
        if negative_ids is None:
            return None
        if self.config.hierarchical_softmax:
            raise ValueError("negative_ids is given, but the softmax is hierarchical; use one of them")
        if not torch.compiler.is_compiling():
            check_integers("negative_ids", negative_ids, "batch, negatives")
            check_shape("negative_ids", negative_ids, (batch, negative_ids.shape[1]))
            check_labels(negative_ids, self.config.vocab_size, name="negative_ids")
        return negative_ids

    def _losses_of(self, hidden_states: Tensor, negative_ids: Tensor | None) -> "PairLosses":
        if self.config.hierarchical_softmax:
            return TreeLosses(self.tree)
        if negative_ids is None:
            return SoftmaxLosses(self.lm_head(hidden_states).log_softmax(dim=-1))
        return NegativeSamplingLosses(self.lm_head, hidden_states, negative_ids, self.config.num_negatives)


class PairLosses:
    """-log p(label | h), for the position of a label or for all pairs of positions of a row."""

    def at(self, hidden_states: Tensor, labels: Tensor) -> Tensor:
        """(B, T) for labels (B, T)."""
        raise NotImplementedError

    def of_pairs(self, hidden_states: Tensor, labels: Tensor) -> Tensor:
        """(B, T, T): the label of each position, predicted from each other one."""
        columns = [self.at(hidden_states, label[:, None].expand_as(labels)) for label in labels.unbind(dim=1)]
        return torch.stack(columns, dim=-1)


class SoftmaxLosses(PairLosses):
    """p(w | h) = exp(v'_w . h) / sum_w' exp(v'_w' . h), Eq. (2)"""

    def __init__(self, log_probabilities: Tensor):
        self.log_probabilities = log_probabilities  # of every word at every position

    def at(self, hidden_states: Tensor, labels: Tensor) -> Tensor:
        return -self.log_probabilities.gather(-1, labels[..., None]).squeeze(-1)

    def of_pairs(self, hidden_states: Tensor, labels: Tensor) -> Tensor:
        return -self.log_probabilities.gather(-1, labels[:, None, :].expand(-1, labels.shape[1], -1))


class NegativeSamplingLosses(PairLosses):
    """-log sigmoid(v'_w . h) - sum over k negatives of log sigmoid(-v'_n . h), Eq. (4)"""

    def __init__(self, lm_head: Any, hidden_states: Tensor, negative_ids: Tensor, num_negatives: int):
        self.lm_head = lm_head
        rows = negative_ids[:, None, :].expand(-1, hidden_states.shape[1], -1)
        scores = self._scores(hidden_states, negative_ids, rows)  # (B, T, K)
        self.negative = -F.logsigmoid(-scores).mean(dim=-1) * num_negatives

    def _scores(self, hidden_states: Tensor, ids: Tensor, expanded: Tensor) -> Tensor:
        """v'_w . h for the words (B, K) of a row at each of its positions."""
        if is_plain_linear(self.lm_head):
            return hidden_states @ F.embedding(ids, self.lm_head.weight).transpose(1, 2)
        return self.lm_head(hidden_states).gather(-1, expanded)

    def at(self, hidden_states: Tensor, labels: Tensor) -> Tensor:
        if is_plain_linear(self.lm_head):
            scores = (hidden_states * F.embedding(labels, self.lm_head.weight)).sum(dim=-1)
        else:
            scores = self.lm_head(hidden_states).gather(-1, labels[..., None]).squeeze(-1)
        return self.negative - F.logsigmoid(scores)

    def of_pairs(self, hidden_states: Tensor, labels: Tensor) -> Tensor:
        scores = self._scores(hidden_states, labels, labels[:, None, :].expand(-1, labels.shape[1], -1))
        return self.negative[:, :, None] - F.logsigmoid(scores)


class TreeLosses(PairLosses):
    """Eq. (3), in `blocks_huffman.py`."""

    def __init__(self, tree: HuffmanTree):
        self.tree = tree

    def at(self, hidden_states: Tensor, labels: Tensor) -> Tensor:
        return self.tree.losses(hidden_states, labels)


class EduWordVectorsForSkipGram(WindowHead):
    """A word predicts the words around it: 1/T sum_t sum_{-c <= j <= c, j != 0} log p(w_{t+j} | w_t), Eq. (1)"""

    output_class = MaskedLMOutput

    def hidden_states(self, embeddings: Tensor, window_sizes: Tensor, mask: Tensor) -> Tensor:
        return embeddings

    def total_loss(self, losses, hidden_states: Tensor, labels: Tensor, window_sizes: Tensor, mask: Tensor) -> Tensor:
        if self.config.window_implementation == "fused":
            band = _window_band(window_sizes, mask) & (labels != -100)[:, None, :]  # (B, T, T)
            return (losses.of_pairs(hidden_states, labels.clamp(min=0)) * band).sum()
        total = hidden_states.new_zeros(())
        for offset in offsets(self.config.window_size):
            context = shift(labels, offset, fill=-100)  # (B, T)  w_{t+j}
            is_pair = mask & (context != -100) & (abs(offset) <= window_sizes)  # (B, T)
            total = total + (losses.at(hidden_states, context.clamp(min=0)) * is_pair).sum()
        return total


class EduWordVectorsForCBOW(WindowHead):
    """The words around a word predict it: p(w_t | h), h the mean of their vectors (Mikolov et al. 2013a, Section 3.1)

    As in word2vec, each of those words gets the whole gradient of h, as if h were their sum.
    """

    output_class = MaskedLMOutput

    def hidden_states(self, embeddings: Tensor, window_sizes: Tensor, mask: Tensor) -> Tensor:
        if self.config.window_implementation == "fused":
            band = _window_band(window_sizes, mask).to(embeddings.dtype)  # (B, T, T)
            total, counts = band @ embeddings, band.sum(dim=-1, keepdim=True)
        else:
            total, counts = torch.zeros_like(embeddings), torch.zeros_like(embeddings[..., :1])
            for offset in offsets(self.config.window_size):
                is_context = mask & shift(mask, offset) & (abs(offset) <= window_sizes)  # (B, T)
                total = total + shift(embeddings, offset) * is_context[:, :, None]
                counts = counts + is_context[:, :, None]
        mean = total / counts.clamp(min=1)  # (B, T, D)
        return total + (mean - total).detach()

    def total_loss(self, losses, hidden_states: Tensor, labels: Tensor, window_sizes: Tensor, mask: Tensor) -> Tensor:
        return (losses.at(hidden_states, labels.clamp(min=0)) * (labels != -100)).sum()


class EduWordVectorsForGloVe(EduWordVectorsPreTrainedModel):
    """f(X_ij) (w_i . w~_j + b_i + b~_j - log X_ij)^2, where X_ij counts how often word j is near word i (Section 3)

    f(x) = (x / x_max)^alpha below x_max, and 1 from there on. A position of a row is one such pair: `input_ids` has i,
    `labels` has j. The logits leave b_i out: they are log P(j | i) up to a constant.
    """

    def __init__(self, config: EduWordVectorsConfig):
        super().__init__(config)
        self.model = EduWordVectorsModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)  # w~_j, b~_j
        self.bias = nn.Embedding(config.vocab_size, 1)  # b_i
        self.post_init()

    def resize_token_embeddings(self, new_num_tokens: int | None = None, *args, **kwargs) -> nn.Module:
        embeddings = super().resize_token_embeddings(new_num_tokens, *args, **kwargs)
        added = self.config.vocab_size - self.bias.num_embeddings
        if added:
            self.bias = nn.Embedding.from_pretrained(F.pad(self.bias.weight.data, (0, 0, 0, added)), freeze=False)
        return embeddings

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        counts: Tensor | None = None,
        skip_logits: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs,
    ) -> MaskedLMOutput:
        """
        Args:
            counts: (B, T), X_ij of each pair; 1 if not given.
        """
        outputs = self.model(input_ids, attention_mask, inputs_embeds, **kwargs, return_dict=True)
        logits = self.lm_head(outputs.last_hidden_state)  # (B, T, V)
        loss = None
        if labels is not None:
            if input_ids is None:
                raise ValueError(
                    "the loss of GloVe needs input_ids, for the bias of each word, but inputs_embeds is given"
                )
            labels = check_labels(labels, self.config.vocab_size, logits.shape[:2]).to(logits.device)
            counts = torch.ones_like(logits[..., 0]) if counts is None else self._check_counts(counts, logits)
            predicted = logits.gather(-1, labels.clamp(min=0)[..., None]) + self.bias(input_ids)
            weights = (counts / self.config.count_limit).clamp(max=1) ** self.config.count_power  # (B, T)  f(X_ij)
            losses = weights * (predicted.squeeze(-1) - counts.log()) ** 2  # (B, T)
            loss = mean_over_labels((losses * (labels != -100)).sum(), labels, num_items_in_batch)
        skip_logits = self.training and labels is not None if skip_logits is None else skip_logits
        return head_output(MaskedLMOutput, outputs, loss=loss, logits=None if skip_logits else logits)

    def _check_counts(self, counts: Tensor, logits: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            check_shape("counts", counts, logits.shape[:2], why=", the co-occurrences of each pair")
            if not bool((counts > 0).all()):
                raise ValueError(f"counts has {counts.min().item():g}, but the logarithm needs numbers above 0")
        return counts.to(logits.dtype)
