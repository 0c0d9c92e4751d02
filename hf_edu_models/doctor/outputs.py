"""Checks of a model's outputs: causal masking, padding, caches, beam search and batched generation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig

from .compare import LENGTH, is_close, join_names, main_prediction, make_inputs, predictions, random_ids
from .report import Finding, check, fail, ok, skipped, warning
from .subject import ModelUnderTest

NEW_TOKENS, BEAMS, PROMPT, PADDING = 6, 4, 5, 2
NOT_TEXT = "its main input is not input_ids, and the doctor only makes text inputs"
NO_GENERATE = "the class does not generate"
NEEDS_FORWARD = ("build", "forward")


@check(
    "forward",
    "make forward(input_ids=...) run, and deterministic in evaluation mode: use nn.Dropout or "
    "F.dropout(..., training=self.training)",
    ("build",),
)
def check_forward(subject: ModelUnderTest) -> Finding:
    if not subject.is_text_model:
        return skipped(NOT_TEXT)
    inputs = make_inputs(subject)
    first, second = (predictions(subject.model(**inputs)) for _ in range(2))
    main = main_prediction(first)
    broken = [name for name, tensor in first.items() if not tensor.isfinite().all()]
    if broken:
        return fail(f"{join_names(broken)} has NaN or infinity", "look for the first layer whose output has it")
    if not all(is_close(second[name], first[name]) for name in first):
        return fail("two calls in evaluation mode differ")
    if is_close(main_prediction(subject.model(**make_inputs(subject, seed=50))), main):
        return warning("the output does not depend on the input, so the checks below prove little")
    return ok(f"{next(iter(first))} of shape {tuple(main.shape)}, the same on a second call")


@check(
    "look-ahead",
    "mask the attention with transformers.masking_utils.create_causal_mask, or process the tokens from left to right",
    NEEDS_FORWARD,
)
def check_look_ahead(subject: ModelUnderTest) -> Finding:
    if not subject.is_decoder_only and not subject.accepts("decoder_input_ids"):
        return skipped("not a causal language model and no decoder")
    inputs, key = make_inputs(subject), _decoder_key(subject)
    if key not in inputs:
        return skipped("the decoder input is made from the encoder input")
    half = LENGTH // 2
    changed = inputs | {key: inputs[key].clone()}
    changed[key][:, half:] = random_ids(subject, len(inputs[key]), LENGTH - half, seed=9)
    before, after = (main_prediction(subject.model(**batch)) for batch in (inputs, changed))
    if before.shape[1] != LENGTH:
        return skipped("the model does not return one output for each token")
    if not is_close(after[:, :half], before[:, :half]):
        return fail("later tokens change earlier predictions: the model looks ahead")
    return ok("later tokens do not change earlier predictions")


def _decoder_key(subject: ModelUnderTest) -> str:
    return "decoder_input_ids" if subject.is_encoder_decoder else "input_ids"


def pad_ids(subject: ModelUnderTest, ids: Tensor, side: str) -> dict[str, Tensor]:
    """Ids with padding on one side, their attention mask, and the position ids that `generate` makes of it."""
    pad_token_id = getattr(subject.config, "pad_token_id", None) or 0
    padding = ids.new_full((*ids.shape[:-1], PADDING), pad_token_id)
    order = slice(None, None, -1 if side == "left" else 1)
    mask = torch.cat([torch.ones_like(ids), torch.zeros_like(padding)][order], dim=-1)
    padded = {"input_ids": torch.cat([ids, padding][order], dim=-1), "attention_mask": mask}
    if side == "left" and subject.accepts("position_ids"):
        padded["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
    return padded


@check(
    "padding",
    "apply attention_mask wherever tokens are combined: attention, pooling, normalisation over time, recurrent states",
    NEEDS_FORWARD,
)
def check_padding(subject: ModelUnderTest) -> Finding:
    if not subject.accepts("attention_mask"):
        return fail("forward has no attention_mask, so padding is processed like text")
    inputs = make_inputs(subject)
    expected = predictions(subject.model(**inputs))
    for side in ["left", "right"] if subject.is_decoder_only else ["right"]:
        padded = inputs | pad_ids(subject, inputs["input_ids"], side)
        actual = predictions(subject.model(**padded))
        real = slice(PADDING, None) if side == "left" else slice(0, inputs["input_ids"].shape[-1])
        wrong = [name for name in expected if not is_close(_unpad(actual[name], expected[name], real), expected[name])]
        if wrong:
            del padded["attention_mask"]
            without = predictions(subject.model(**padded))
            is_ignored = all(is_close(without[name], actual[name]) for name in actual)
            why = "attention_mask is ignored" if is_ignored else "attention_mask is not applied everywhere"
            return fail(f"padding on the {side} changes {join_names(wrong)}: {why}")
    return ok("padding changes no real token")


def _unpad(actual: Tensor, expected: Tensor, real: slice) -> Tensor:
    """The outputs of the real tokens, where there is one for each token."""
    return actual if actual.shape == expected.shape or actual.ndim < 2 else actual[:, real]


@check(
    "cache",
    "store all that the next token needs in past_key_values, and count positions from get_seq_length()",
    (*NEEDS_FORWARD, "look-ahead"),
)
def check_cache(subject: ModelUnderTest) -> Finding:
    if not subject.can_generate:
        return skipped(NO_GENERATE)
    if subject.accepts("past_key_values") and subject.accepts("use_cache"):
        uncached, cached = _uncached_and_cached_logits(subject)
        if cached is None:
            return warning("use_cache=True returns no past_key_values, so that every step computes all tokens again")
        if not is_close(cached, uncached):
            return fail("token by token with the cache, the logits differ from those of one forward pass")
    if not _is_same_with_cache(subject):
        return fail("generate() with the cache differs from generate() without it")
    return ok("the same tokens and scores with and without the cache")


def _uncached_and_cached_logits(subject: ModelUnderTest) -> tuple[Tensor, Tensor | None]:
    """Logits of one forward pass without a cache; and of two tokens, then one by one, with it."""
    inputs, key = make_inputs(subject), _decoder_key(subject)
    uncached = subject.model(**inputs, use_cache=False).logits
    cache: dict[str, Any] = {}
    cached = []
    for step in inputs[key].split([2] + [1] * (LENGTH - 2), dim=1):
        outputs = subject.model(**(inputs | {key: step}), **cache, use_cache=True)
        if outputs.get("past_key_values") is None:
            return uncached, None
        cache = {"past_key_values": outputs.past_key_values}
        cached.append(outputs.logits)
    return uncached, torch.cat(cached, dim=1)


def _is_same_with_cache(subject: ModelUnderTest, **settings) -> bool:
    ids = random_ids(subject, 2, PROMPT, seed=11)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return is_same(*(generate(subject, inputs, use_cache=use_cache, **settings) for use_cache in (True, False)))


def is_same(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> bool:
    return torch.equal(first[0], second[0]) and is_close(first[1], second[1])


def generate(subject: ModelUnderTest, inputs: dict[str, Tensor], **settings) -> tuple[Tensor, Tensor]:
    """`NEW_TOKENS` new tokens and their scores, whatever the generation config of the checkpoint is."""
    config = subject.model.generation_config.to_dict()
    config["pad_token_id"] = config.get("pad_token_id") or 0
    config |= {"do_sample": False, "num_beams": 1, "max_length": None, "min_length": 0, "repetition_penalty": 1.0}
    config |= {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS, "use_cache": True}
    config |= {"return_dict_in_generate": True, "output_scores": True} | settings
    outputs = subject.model.generate(**inputs, generation_config=GenerationConfig.from_dict(config))
    return outputs.sequences[:, -NEW_TOKENS:], torch.stack(outputs.scores, dim=1)


@check(
    "beams",
    "keep the tensors of the cache batch first, in layers of a transformers Cache, whose reorder_cache selects beams",
    (*NEEDS_FORWARD, "cache"),
)
def check_beam_search(subject: ModelUnderTest) -> Finding:
    if not subject.can_generate:
        return skipped(NO_GENERATE)
    if not _is_same_with_cache(subject, num_beams=BEAMS):
        return fail("beam search with the cache differs from beam search without it: the cache is not reordered")
    return ok(f"{BEAMS} beams are the same with and without the cache")


@check(
    "batch",
    "compute positions from attention_mask, accept position_ids, and pass the mask on in every step of generate()",
    (*NEEDS_FORWARD, "padding", "cache"),
)
def check_batched_generation(subject: ModelUnderTest) -> Finding:
    """A short prompt in a batch with a long one continues as it does alone."""
    if not subject.can_generate:
        return skipped(NO_GENERATE)
    short, long = (random_ids(subject, 1, length, seed=seed) for length, seed in ((PROMPT, 12), (PROMPT + PADDING, 13)))
    padded = pad_ids(subject, short, "right" if subject.is_encoder_decoder else "left")
    batch = {
        "input_ids": torch.cat([long, padded["input_ids"]]),
        "attention_mask": torch.cat([torch.ones_like(long), padded["attention_mask"]]),
    }
    sequences, scores = generate(subject, batch)
    for row, ids in enumerate((long, short)):
        alone = generate(subject, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})
        if not is_same((sequences[[row]], scores[[row]]), alone):
            return fail("generate() on a padded batch differs from generate() on each row alone")
    return ok("a padded batch generates the same as its rows alone")
