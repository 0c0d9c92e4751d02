"""Exercises and quiz of lesson 11, GPT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..answers import same
from ..questions import Question


def _tiny_gpt() -> Any:
    from ...models.modeling_gpt import EduGPTConfig, EduGPTForCausalLM

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    return EduGPTForCausalLM(EduGPTConfig(vocab_size=20, max_position_embeddings=16, **sizes)).eval()


@torch.no_grad()
def _causal_mask(mask: Callable) -> bool:
    """Whether the mask hides what the model's own attention weights are 0 for, and nothing else."""
    for length in (1, 6):
        weights = _tiny_gpt()(torch.randint(3, 20, (1, length)), output_attentions=True).attentions[0][0, 0]
        expected = torch.zeros(length, length).masked_fill(weights == 0, float("-inf"))
        if not same(mask(length), expected):
            return False
    return True


def _probabilities(probabilities: Callable) -> bool:
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper

    logits = torch.randn(12)
    for temperature, k in ((0.5, 3), (1.3, 8)):
        warped = TemperatureLogitsWarper(temperature)(None, logits[None])
        expected = TopKLogitsWarper(k)(None, warped)[0].softmax(-1)
        if not same(probabilities(logits, temperature, k), expected):
            return False
    return True


@torch.no_grad()
def _tokens_read(tokens_read: Callable) -> bool:
    model, counts = _tiny_gpt(), []
    model.model.layers[0].register_forward_pre_hook(lambda _, inputs: counts.append(inputs[0].shape[1]))
    for prompt, new in ((5, 4), (3, 1)):
        expected = []
        for use_cache in (False, True):
            counts.clear()
            token_ids, past = torch.randint(3, 20, (1, prompt)), None
            for _ in range(new):
                outputs = model(
                    token_ids if past is None else token_ids[:, -1:], past_key_values=past, use_cache=use_cache
                )
                token_ids = torch.cat([token_ids, outputs.logits[:, -1:].argmax(-1)], dim=1)
                past = outputs.past_key_values
            expected.append(sum(counts))
        if tuple(tokens_read(prompt, new)) != tuple(expected):
            return False
    return True


EXERCISES = {
    "gpt 1": (_causal_mask, "Row i is the query: 0 up to column i, -inf above the diagonal."),
    "gpt 2": (_probabilities, "Divide by the temperature, set all but the k largest logits to -inf, then softmax."),
    "gpt 3": (_tokens_read, "Without a cache step s reads prompt + s tokens; with one each token is read once."),
}

QUIZ = (
    Question(
        "How many predictions does one text of T tokens train in one pass, without special tokens?",
        ("1", "T - 1", "15% of T"),
        "T - 1",
        "Every token but the first is predicted from those before it.",
    ),
    Question(
        "A language model's training loss falls below the entropy of the text. What do you suspect?",
        ("it sees its answers", "it is very good", "the learning rate is too low"),
        "it sees its answers",
        "On text that it does not see again, no model can be better than the text is predictable.",
    ),
    Question(
        "The temperature of sampling goes to 0. What does sampling become?",
        ("uniform", "the model's own distribution", "greedy decoding"),
        "greedy decoding",
        "The best token gets all of the probability.",
    ),
)
