"""Exercises and quiz of lesson 6, the encoder-decoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..answers import same
from ..questions import Question


def _model_of(**settings: Any) -> Any:
    from ...models.modeling_seq2seq import EduSeq2SeqConfig, EduSeq2SeqForConditionalGeneration

    return EduSeq2SeqForConditionalGeneration(EduSeq2SeqConfig(**settings)).eval()


@torch.no_grad()
def _context_size(count: Callable) -> bool:
    for layers, size in ((2, 6), (3, 5)):
        model = _model_of(vocab_size=9, hidden_size=size, num_hidden_layers=layers)
        source = model.get_encoder()(torch.randint(3, 9, (1, 4)))
        if count(layers, size) != source.final_state.numel() + source.final_cell_state.numel():
            return False
    return True


def _time_lag(lag: Callable) -> bool:
    """Position i is read at step `steps[i]` and written i steps after the source has been read."""
    length = 7
    for is_reversed in (False, True):
        model = _model_of(vocab_size=9, hidden_size=4, num_hidden_layers=1, reverse_source=is_reversed)
        order = model.get_encoder().maybe_reverse(torch.arange(length)[None])[0]
        steps = order.argsort()
        expected = torch.arange(length) + length - steps
        if not same(torch.tensor([lag(i, length, is_reversed) for i in range(length)]), expected):
            return False
    return True


@torch.no_grad()
def _greedy(greedy: Callable) -> bool:
    model = _model_of(vocab_size=8, hidden_size=6, num_hidden_layers=1, initializer_range=1.5)
    start, end = model.config.decoder_start_token_id, model.config.eos_token_id

    for source in torch.randint(4, 8, (20, 5)).unbind():
        encoder_outputs = model.get_encoder()(source[None], return_dict=True)

        def step(token: int, state: Any) -> tuple[torch.Tensor, Any]:
            inputs = {"encoder_outputs": encoder_outputs, "past_key_values": state}  # noqa: B023
            outputs = model(decoder_input_ids=torch.tensor([[int(token)]]), use_cache=True, **inputs)
            return outputs.logits[0, -1], outputs.past_key_values

        found = model.generate(source[None], num_beams=1, do_sample=False, max_new_tokens=10)[0, 1:].tolist()
        expected = found[: found.index(end)] if end in found else found
        if [int(token) for token in greedy(step, None, start, end, 10)] != expected:
            return False
    return True


EXERCISES = {
    "seq2seq 1": (_context_size, "An LSTM has a hidden state and a cell state, and each layer has its own."),
    "seq2seq 2": (
        _time_lag,
        "Position i is read at step i, or at step length - 1 - i if the source is reversed; it is written at step "
        "length + i.",
    ),
    "seq2seq 3": (
        _greedy,
        "Give the step the last token and the last state, take the argmax; stop before the end token or at max_tokens.",
    ),
}

QUIZ = (
    Question(
        "What does the decoder get of the source?",
        ("every state of the encoder", "the last state of the encoder", "the source tokens"),
        "the last state of the encoder",
        "One vector (and the cell state) has to hold it all: the bottleneck that attention opens.",
    ),
    Question(
        "Sutskever et al. read the source backwards. What does that shorten?",
        (
            "the source",
            "the mean distance between words and their translations",
            "the way from the first source words to the first target words",
        ),
        "the way from the first source words to the first target words",
        "The mean distance stays the same; the start becomes easy.",
    ),
    Question(
        "What does the decoder read in training with teacher forcing?",
        ("the reference, shifted by one", "its own predictions", "the source again"),
        "the reference, shifted by one",
        "In use it reads its own predictions, which is the gap called exposure bias.",
    ),
)
