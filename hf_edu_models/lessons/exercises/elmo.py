"""Exercises and quiz of lesson 10, ELMo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..answers import same
from ..questions import Question


def _model(head: str) -> Any:
    from ...models import modeling_elmo

    # Large weights: an answer that is nearly right must not look right.
    config = modeling_elmo.EduElmoConfig(vocab_size=20, hidden_size=4, cell_size=6, initializer_range=1.0)
    return getattr(modeling_elmo, head)(config).eval()


@torch.no_grad()
def _mix(mix: Callable) -> bool:
    from ...models.blocks_layer_mix import ScalarMix

    layer, layers = ScalarMix(3), torch.randn(3, 5, 4)
    layer.scores.copy_(torch.randn(3))
    layer.scale.fill_(1.7)
    return same(mix(layers, layer.scores, layer.scale), layer(layers[:, None])[0])


@torch.no_grad()
def _labels(labels_of: Callable) -> bool:
    """Whether these labels give both losses of the model."""
    token_ids = torch.randint(5, 20, (7,))
    outputs = _model("EduElmoForPreTraining")(token_ids[None], labels=token_ids[None], skip_logits=False)
    losses = [
        nn.functional.cross_entropy(logits[0], labels, ignore_index=-100)
        for logits, labels in zip((outputs.logits, outputs.backward_logits), labels_of(token_ids), strict=True)
    ]
    return same(losses, (outputs.forward_loss, outputs.backward_loss))


@torch.no_grad()
def _replaced_word(answer: str) -> bool:
    token_ids = torch.tensor([[5, 6, 7], [5, 6, 8]])
    one, other = (state.chunk(2) for state in _model("EduElmoModel")(token_ids).last_hidden_state[:, 0])
    changed = [name for name, *pair in zip(("forward", "backward"), one, other, strict=True) if not same(*pair)]
    return answer == {0: "neither", 1: "".join(changed), 2: "both"}[len(changed)]


EXERCISES = {
    "elmo 1": (_mix, "The softmax of w weights the layers; gamma multiplies their sum."),
    "elmo 2": (_labels, "The forward model predicts the next token, the backward one the token before."),
    "elmo 3": (_replaced_word, "Which of the two models has read the last word when it comes to the first?"),
}

QUIZ = (
    Question(
        "Why two language models, and not one recurrent network that reads both sides and predicts the token?",
        (
            "two are faster",
            "a state that has read both sides has read the token it should predict",
            "the softmax has to be shared",
        ),
        "a state that has read both sides has read the token it should predict",
        "The first layer may join both sides only if the answer is hidden, as BERT does.",
    ),
    Question(
        "Layer 0 of ELMo: how do the vectors of one word differ between two sentences?",
        ("not at all", "a little", "as much as in the top layer"),
        "not at all",
        "Layer 0 has the token vectors, which nothing but the word decides.",
    ),
    Question(
        "What does a task train, as the paper uses ELMo?",
        (
            "all weights",
            "the top layer of both language models",
            "the weights of the layers, gamma, and its own network",
        ),
        "the weights of the layers, gamma, and its own network",
        "The language models stay frozen.",
    ),
)
