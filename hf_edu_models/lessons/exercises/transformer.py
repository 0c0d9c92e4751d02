"""Exercises of lesson 9, the Transformer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from ..answers import same
from ..questions import Question


@torch.no_grad()
def _attention(attention: Callable) -> bool:
    from ...models.blocks_transformer import eager_attention

    queries, keys, values = torch.randn(3, 6), torch.randn(5, 6), torch.randn(5, 4)
    query, key, value = (each[None, None] for each in (queries, keys, values))
    expected, _ = eager_attention(nn.Identity(), query, key, value, attention_mask=None, scaling=6**-0.5)
    return same(attention(queries, keys, values), expected[0, :, 0])


@torch.no_grad()
def _causal_mask(mask: Callable) -> bool:
    """Compare with the positions that the decoder of a tiny Transformer gives weight to."""
    from ...models.modeling_transformer import EduTransformerConfig, EduTransformerForConditionalGeneration

    sizes = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = EduTransformerForConditionalGeneration(EduTransformerConfig(**sizes, intermediate_size=8)).eval()
    inputs = {"input_ids": torch.randint(4, 20, (1, 3)), "decoder_input_ids": torch.randint(4, 20, (1, 6))}
    weights = model(**inputs, output_attentions=True).decoder_attentions[0][0, 0]
    return same(mask(6), weights > 0)


def _encoding(encoding: Callable) -> bool:
    from ...models.blocks_positions import SinusoidalPositions

    return all(
        same(encoding(position, size), SinusoidalPositions(size)(torch.tensor(position)))
        for size in (6, 16)
        for position in (0, 1, 7, 30)
    )


EXERCISES = {
    "transformer 1": (_attention, "Scores are Q @ K.T, divided by the root of the size of a key; softmax; times V."),
    "transformer 2": (_causal_mask, "Row t is True from column 0 to column t: a token also sees itself."),
    "transformer 3": (
        _encoding,
        "The angles are position / 10000 ** (2i / size); a sine and a cosine of each stand side by side.",
    ),
}

QUIZ = (
    Question(
        "The words of a sentence are shuffled, and there are no position encodings. What does self-attention compute?",
        ("the same vectors, shuffled", "other vectors", "the mean of all words"),
        "the same vectors, shuffled",
        "Attention sees a set; only the encodings of positions give it an order.",
    ),
    Question(
        "Why are the scores divided by the root of the size of a key?",
        ("to save memory", "to mask the future", "to keep the softmax where it has a gradient"),
        "to keep the softmax where it has a gradient",
        "Products of long vectors are large, and a softmax of large scores is nearly constant.",
    ),
    Question(
        "A model of size 64 has 8 heads instead of 4. How many parameters are added?",
        ("none", "twice those of attention", "4 times 64"),
        "none",
        "The heads share out the same 64 dimensions; each of the 8 has 8 instead of 16.",
    ),
)
