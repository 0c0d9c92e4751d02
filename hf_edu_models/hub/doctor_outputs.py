"""Checks of what a model says: look-ahead, padding, caches, beams and batches."""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from transformers import GenerationConfig

from .doctor_compare import LENGTH, main_prediction, predictions, same, several, words, write_inputs
from .doctor_patient import Patient
from .doctor_report import Verdict, fail, ok, skipped, warning

NEW_TOKENS, BEAMS, PROMPT, PADDING = 6, 4, 5, 2
NOT_TEXT = "its main input is no input_ids, and the doctor writes only text"


def no_gradients(check):
    """The check only looks; nothing is kept for a backward pass."""
    return torch.no_grad()(check)


@no_gradients
def check_forward(patient: Patient) -> Verdict:
    if not patient.reads_text:
        return skipped(NOT_TEXT)
    inputs = write_inputs(patient)
    first, second = (predictions(patient.model(**inputs)) for _ in range(2))
    main = main_prediction(first)
    broken = [name for name, tensor in first.items() if not tensor.isfinite().all()]
    if broken:
        return fail(f"{several(broken)} has NaN or infinity for ordinary input", "look for the first layer that has it")
    if not all(same(second[name], first[name]) for name in first):
        return fail("two calls in evaluation mode differ")
    if same(main_prediction(patient.model(**write_inputs(patient, seed=50))), main):
        return warning("the output does not depend on the input, so the checks below say little")
    return ok(f"{next(iter(first))} of shape {tuple(main.shape)}, the same on a second call")


@no_gradients
def check_look_ahead(patient: Patient) -> Verdict:
    if not patient.is_decoder_only and not patient.takes("decoder_input_ids"):
        return skipped("no language model and no decoder, so it may look at the whole text")
    inputs = write_inputs(patient)
    key = "decoder_input_ids" if patient.is_encoder_decoder else "input_ids"
    if key not in inputs:
        return skipped("the decoder's input follows from the encoder's")
    changed = dict(inputs) | {key: inputs[key].clone()}
    half = LENGTH // 2
    changed[key][:, half:] = words(patient, len(inputs[key]), LENGTH - half, seed=9)
    before, after = (main_prediction(patient.model(**given)) for given in (inputs, changed))
    if before.shape[1] != LENGTH:
        return skipped("the output is not one for each token")
    if not same(after[:, :half], before[:, :half]):
        return fail("later words change earlier predictions: the model looks ahead")
    return ok("later words change no earlier prediction")


def pad(patient: Patient, ids: Tensor, side: str) -> dict[str, Tensor]:
    """Ids with padding at one side, their mask, and the positions that `generate` would give them."""
    fill = getattr(patient.config, "pad_token_id", None)
    padding = ids.new_full((*ids.shape[:-1], PADDING), 0 if fill is None else fill)
    parts, ones = ([padding, ids], [0, 1]) if side == "left" else ([ids, padding], [1, 0])
    mask = torch.cat([torch.full_like(part, one) for part, one in zip(parts, ones, strict=True)], dim=-1)
    padded = {"input_ids": torch.cat(parts, dim=-1), "attention_mask": mask}
    if side == "left" and patient.takes("position_ids"):
        padded["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
    return padded


@no_gradients
def check_padding(patient: Patient) -> Verdict:
    if not patient.takes("attention_mask"):
        return fail("forward has no attention_mask, so padding is read as text")
    inputs = write_inputs(patient)
    expected = predictions(patient.model(**inputs))
    for side in ["left", "right"] if patient.is_decoder_only else ["right"]:
        padded = dict(inputs) | pad(patient, inputs["input_ids"], side)
        found = predictions(patient.model(**padded))
        real = slice(PADDING, None) if side == "left" else slice(0, inputs["input_ids"].shape[-1])
        wrong = [name for name in expected if not same(unpadded(found[name], expected[name], real), expected[name])]
        if wrong:
            del padded["attention_mask"]
            without = predictions(patient.model(**padded))
            ignored = all(same(without[name], found[name]) for name in found)
            why = "attention_mask is ignored" if ignored else "attention_mask does not reach everything"
            return fail(f"padding on the {side} changes {several(wrong)}: {why}")
    return ok("padding changes no real token")


def unpadded(found: Tensor, expected: Tensor, real: slice) -> Tensor:
    """The real places, where there is one prediction for each place."""
    if found.shape == expected.shape or found.ndim < 2:
        return found
    return found[:, real]


@no_gradients
def check_cache(patient: Patient) -> Verdict:
    if not patient.generates:
        return skipped("the class does not generate")
    if patient.takes("past_key_values") and patient.takes("use_cache"):
        whole, stepwise = whole_and_stepwise(patient)
        if stepwise is None:
            return warning("use_cache=True returns no past_key_values, so every new word reads the whole text again")
        if not same(stepwise, whole):
            return fail("word by word with the cache gives other logits than all at once")
    cached, uncached = (generate(patient, prompt(patient), use_cache=use) for use in (True, False))
    if not agree(cached, uncached):
        return fail("generate() with the cache says something else than without it")
    return ok("with and without the cache the same words and scores")


def whole_and_stepwise(patient: Patient) -> tuple[Tensor, Tensor | None]:
    """Logits of all words at once without a cache, and of two words and then one by one with it."""
    inputs = write_inputs(patient)
    key = "decoder_input_ids" if patient.is_encoder_decoder else "input_ids"
    whole = patient.model(**inputs, use_cache=False).logits
    cache, steps = {}, []
    for piece in inputs[key].split([2] + [1] * (LENGTH - 2), dim=1):
        outputs = patient.model(**(inputs | {key: piece}), **cache, use_cache=True)
        if outputs.get("past_key_values") is None:
            return whole, None
        cache = {"past_key_values": outputs.past_key_values}
        steps.append(outputs.logits)
    return whole, torch.cat(steps, dim=1)


def prompt(patient: Patient) -> dict[str, Tensor]:
    ids = words(patient, 2, PROMPT, seed=11)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def generate(patient: Patient, inputs: dict[str, Tensor], **settings) -> tuple[Tensor, Tensor]:
    """The new words and their scores, always as many, whatever the checkpoint's generation settings are."""
    config = copy.deepcopy(patient.model.generation_config)
    if config.pad_token_id is None:
        config.pad_token_id = 0
    wanted = {"do_sample": False, "num_beams": 1, "max_length": None, "min_length": 0, "repetition_penalty": 1.0}
    wanted |= {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS, "use_cache": True}
    wanted |= {"return_dict_in_generate": True, "output_scores": True} | settings
    for name, value in wanted.items():
        setattr(config, name, value)
    said = patient.model.generate(**inputs, generation_config=GenerationConfig.from_dict(config.to_dict()))
    return said.sequences[:, -NEW_TOKENS:], torch.stack(said.scores, dim=1)


def agree(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> bool:
    return torch.equal(first[0], second[0]) and same(first[1], second[1])


@no_gradients
def check_beams(patient: Patient) -> Verdict:
    if not patient.generates:
        return skipped("the class does not generate")
    cached, uncached = (generate(patient, prompt(patient), num_beams=BEAMS, use_cache=use) for use in (True, False))
    if not agree(cached, uncached):
        return fail("beam search with the cache says something else than without it: the cache is not reordered")
    return ok(f"{BEAMS} beams say the same with and without the cache")


@no_gradients
def check_batch(patient: Patient) -> Verdict:
    """A short prompt beside a long one says what it says alone."""
    if not patient.generates:
        return skipped("the class does not generate")
    short = words(patient, 1, PROMPT, seed=12)
    long = words(patient, 1, PROMPT + PADDING, seed=13)
    padded = pad(patient, short, "right" if patient.is_encoder_decoder else "left")
    both = {
        "input_ids": torch.cat([long, padded["input_ids"]]),
        "attention_mask": torch.cat([torch.ones_like(long), padded["attention_mask"]]),
    }
    sequences, scores = generate(patient, both)
    for number, ids in enumerate((long, short)):
        alone = generate(patient, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})
        if not agree((sequences[[number]], scores[[number]]), alone):
            return fail("in a padded batch generate() says something else than row by row")
    return ok("a padded batch says what its rows say alone")
