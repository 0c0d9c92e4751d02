"""The engine of the lab computes what torch computes: outputs, hidden states, attention, gates, tokens and changes."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from engine import ENGINE, NO_NODE, arrays_of, run_engine
from tiny import ALL, GENERATORS, by_name, inputs_for, logits_of, padded_inputs_for

pytestmark = pytest.mark.skipif(NO_NODE is not None, reason=str(NO_NODE))
SUPPORTED = json.loads((ENGINE / "supported.js").read_text().partition("SUPPORTED = ")[2].rstrip(";\n"))
RUN = [case for case in ALL if case.rung.model_type in SUPPORTED]
ENDS = [5, 11, 17, 23]  # several, so that sequences end early
SEARCHES = {
    "greedy": {},
    "greedy-min-length": {"min_new_tokens": 4},
    "beams": {"num_beams": 3},
    "beams-short": {"num_beams": 4, "length_penalty": 0.3},
    "beams-early": {"num_beams": 3, "early_stopping": True},
    "beams-never": {"num_beams": 2, "early_stopping": "never", "length_penalty": 1.7},
}
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)


def row_of(inputs: dict, row: int) -> dict:
    """One row of a batch as the engine takes it."""
    return {camel(name): tensor[row].tolist() for name, tensor in inputs.items()}


@dataclass
class Saved:
    """A tiny model in a folder, and what the engine returned for it."""

    model: torch.nn.Module
    folder: Path
    inputs: dict
    padded: dict
    results: dict


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> dict[str, Saved]:
    """All models, run in one process."""
    folder = tmp_path_factory.mktemp("models")
    made, jobs = {}, []
    for case in RUN:
        model = case.build(form="eager")
        if case in GENERATORS:  # random models are undecided; larger logits make beams of different lengths
            model.lm_head.weight.data.mul_(4)
        model.save_pretrained(folder / case.name, max_shard_size="1GB")
        each = Saved(model, folder / case.name, inputs_for(case), padded_inputs_for(case, 3, 6, 7), {})
        made[case.name] = each
        calls = {f"run {row}": ["run", row_of(each.inputs, row)] for row in range(2)}
        calls |= {f"padded {row}": ["run", row_of(each.padded, row)] for row in range(3)}
        calls |= {"parts": ["run", row_of(each.inputs, 0), [], {"parts": True}], "changeable": ["changeable"]}
        if case in GENERATORS:
            for name, options in SEARCHES.items():
                options = {"maxNewTokens": 9, "eosTokenId": ENDS} | {
                    camel(key): value for key, value in options.items()
                }
                calls[name] = ["generate", prompt_of(case, each.inputs), options]
        jobs.append((each, calls))
    answers = run_engine([{"folder": str(each.folder), "calls": list(calls.values())} for each, calls in jobs], folder)
    for (each, calls), answer in zip(jobs, answers, strict=True):
        assert isinstance(answer, list), answer
        each.results.update(zip(calls, answer, strict=True))
    return made


def prompt_of(case, inputs: dict) -> dict:
    return {"inputIds": inputs["input_ids"][0].tolist()}


def outputs_of(model, inputs: dict, **options):
    with torch.no_grad():
        return model(**inputs, output_hidden_states=True, **options)


def expected(case, outputs, row: int) -> dict[str, np.ndarray]:
    """What transformers returns, by the names of the record."""
    found, config = {"logits": logits_of(outputs)}, outputs.config
    if "seq_relationship_logits" in outputs:
        found["next_sentence_logits"] = outputs.seq_relationship_logits
    name = case.rung.name
    if case.task == "multiple_choice":
        return choices_of(outputs, row)
    if name == "hierarchical":
        return document_of(outputs, row)
    if name in ("transformer", "gpt", "bert"):
        found |= attention_states(name, outputs, config)
    elif name in ("seq2seq", "bahdanau", "recurrent"):
        found |= recurrent_states(name, outputs, config)
    elif name == "feedforward" and "hidden_states" in outputs and outputs.hidden_states:
        found["embed_tokens.output"] = outputs.hidden_states[0]
    return {key: tensor[row].numpy() for key, tensor in found.items()}


def attention_states(name: str, outputs, config) -> dict:
    first = {"gpt": "embed.output", "bert": "embeddings.output"}.get(name, "embed.output")
    sides = [("encoder.", outputs.encoder_hidden_states, outputs.encoder_attentions)] if name == "transformer" else []
    sides += [("decoder.", outputs.decoder_hidden_states, outputs.decoder_attentions)] if name == "transformer" else []
    found = {}
    for side, states, weights in sides or [("", outputs.hidden_states, outputs.attentions)]:
        found[f"{side}{first}"] = states[0]
        for layer, (state, weight) in enumerate(zip(states[1:], weights, strict=True)):
            is_last = config.norm_first and layer == len(weights) - 1
            found[f"{side}final_norm.output" if is_last else f"{side}layers.{layer}.output"] = state
            found[f"{side}layers.{layer}.self_attention.weights"] = weight
    for layer, weight in enumerate(outputs.cross_attentions if name == "transformer" else ()):
        found[f"decoder.layers.{layer}.cross_attention.weights"] = weight
    return found


def choices_of(outputs, row: int) -> dict[str, np.ndarray]:
    choices = outputs.logits.shape[1]
    found = {"logits": outputs.logits[row]}
    for choice in range(choices):
        start = f"choices.{choice}."
        found[f"{start}embeddings.output"] = outputs.hidden_states[0][row * choices + choice]
        for layer, weights in enumerate(outputs.attentions):
            found[f"{start}layers.{layer}.output"] = outputs.hidden_states[layer + 1][row * choices + choice]
            found[f"{start}layers.{layer}.self_attention.weights"] = weights[row * choices + choice]
    return {key: tensor.numpy() for key, tensor in found.items()}


def document_of(outputs, row: int) -> dict[str, np.ndarray]:
    (embeddings, states), (words, sentences) = outputs.hidden_states, outputs.attentions
    found = {"logits": outputs.logits[row]}
    for number in range(words.shape[1]):
        start = f"sentences.{number}."
        found[f"{start}embed_tokens.output"] = embeddings[row, number]
        found[f"{start}word_reader.layer.output"] = states[row, number]
        found[f"{start}word_reader.pooling.weights"] = words[row, number][None, None]
    found["sentence_reader.pooling.weights"] = sentences[row][None, None]
    shares = {
        key.replace("pooling.weights", "pooling.shares") if outputs.config.pooling == "max" else key: key
        for key in found
    }
    return {name: found[key].numpy() for name, key in shares.items()}


def recurrent_states(name: str, outputs, config) -> dict:
    if name == "recurrent":
        sides = [("", outputs.hidden_states)]
    else:
        sides = [("encoder.", outputs.encoder_hidden_states), ("decoder.", outputs.decoder_hidden_states)]
    found = {}
    for side, states in sides:
        found[f"{side}embed_tokens.output"] = states[0]
        for layer, state in enumerate(states[1:]):
            is_last = layer == len(states) - 2
            if name == "bahdanau" and side == "decoder.":
                found["decoder.cell.hidden_state"] = state
            elif is_last and getattr(config, "attention_window", 0):
                found["window_attention.output"] = state
            else:
                found[f"{side}stack.layers.{layer}.output"] = state
    if name == "bahdanau":
        found["decoder.weights"] = outputs.cross_attentions[0]
    if name == "recurrent" and outputs.attentions:
        weights = outputs.attentions
        if config.attention_window:
            found["window_attention.weights"] = full_window(weights[0])
        if len(weights) > bool(config.attention_window):
            found["pooling.weights" if config.pooling != "max" else "pooling.shares"] = weights[-1]
    return found


def full_window(weights: torch.Tensor) -> torch.Tensor:
    """Weights (B, 1, T, W) of the states before each position, as weights (B, 1, T, T) of all positions."""
    batch, _, length, window = weights.shape
    full = torch.zeros(batch, 1, length, length)
    for query in range(length):
        for place in range(window):
            if query - window + place >= 0:
                full[:, :, query, query - window + place] = weights[:, :, query, place]
    return full


def torch_values(case, each: Saved, inputs: dict, row: int) -> dict[str, np.ndarray]:
    options = {} if case.rung.name == "feedforward" else {"output_attentions": True}
    outputs = outputs_of(each.model, inputs, **options)
    outputs.config = each.model.config
    return expected(case, outputs, row)


@pytest.mark.parametrize("case", **by_name(RUN))
def test_outputs_states_and_attention_are_those_of_torch(case, saved):
    each = saved[case.name]
    for row in range(2):
        record = each.results[f"run {row}"]
        arrays = arrays_of(record)
        values = torch_values(case, each, each.inputs, row)
        assert len(values) > 1 or case.name == "feedforward-ForSequenceClassification"
        for name, value in values.items():
            np.testing.assert_allclose(arrays[name], value, **CLOSE, err_msg=name)
        assert record["kind"] == SUPPORTED[case.rung.model_type]["heads"][case.head]
        assert record["logits"]["data"].shape == arrays["logits"].shape and not record["changed"]
