"""Exercises and quiz of lesson 12, BERT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..answers import count_parameters, same
from ..questions import Question


def _config(vocab: int = 20, hidden: int = 8, layers: int = 1, inner: int = 6, positions: int = 10) -> Any:
    from ...models.configuration_bert import EduBertConfig

    sizes: dict[str, Any] = {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "intermediate_size": inner,
    }
    sizes |= {"num_attention_heads": 2, "initializer_range": 1.0}
    return EduBertConfig(**sizes, max_position_embeddings=positions)


@torch.no_grad()
def _input_vectors(input_vectors: Callable) -> bool:
    from ...models.modeling_bert import EduBertModel

    layer = EduBertModel(_config()).eval().embeddings
    tables = [layer.word_embeddings.weight, layer.token_type_embeddings.weight, layer.position_embeddings.weight]
    for table in tables:
        table.copy_(torch.randn(table.shape))
    token_ids, segments = torch.randint(5, 20, (7,)), torch.tensor([0, 0, 0, 0, 1, 1, 1])
    expected = layer(layer.word_embeddings(token_ids[None]), segments[None], torch.arange(7)[None])[0]
    return same(layer.norm(input_vectors(token_ids, segments, *tables)), expected)


@torch.no_grad()
def _mlm_loss(mlm_loss: Callable) -> bool:
    from ...models.modeling_bert import EduBertForMaskedLM

    token_ids, is_chosen = torch.randint(5, 20, (7,)), torch.tensor([False, True, False, False, True, True, False])
    labels = token_ids.masked_fill(~is_chosen, -100)
    outputs = EduBertForMaskedLM(_config()).eval()(token_ids[None], labels=labels[None], skip_logits=False)
    return same(mlm_loss(outputs.logits[0], token_ids, is_chosen), outputs.loss)


def _parameters(count: Callable) -> bool:
    from ...models.modeling_bert import EduBertModel

    all_sizes = ((20, 8, 1, 6, 10), (31, 6, 3, 10, 7))
    return all(count(*sizes) == count_parameters(EduBertModel(_config(*sizes))) for sizes in all_sizes)


EXERCISES = {
    "bert 1": (_input_vectors, "The row of each table that belongs to the token, its segment and its position, added."),
    "bert 2": (_mlm_loss, "The mean of -log p(token) over the chosen tokens, and over no others."),
    "bert 3": (
        _parameters,
        "Three tables and a layer norm; in each layer 4 D^2 + 4 D for attention, two matrices with biases for the "
        "feed-forward network, two layer norms; the pooler.",
    ),
}

QUIZ = (
    Question(
        "What share of all tokens becomes [MASK]?",
        ("80%", "15%", "12%"),
        "12%",
        "15% are chosen, and 80% of these are replaced by [MASK].",
    ),
    Question(
        "Why do some of the chosen tokens stay, or become a random token?",
        (
            "[MASK] never occurs in fine-tuning, so every token has to have a good vector",
            "to save time",
            "to make the task easier",
        ),
        "[MASK] never occurs in fine-tuning, so every token has to have a good vector",
        "The model cannot tell which tokens it will be asked for (Appendix A.1).",
    ),
    Question(
        "Which vector does a classifier on BERT read?",
        ("the mean of all tokens", "that of [CLS], the first token", "that of the last token"),
        "that of [CLS], the first token",
        "GPT reads the last token, the only one that has seen everything.",
    ),
)
