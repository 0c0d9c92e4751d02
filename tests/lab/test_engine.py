"""The engine of the lab computes what torch computes: outputs, hidden states, attention, gates, tokens and changes."""

import copy
import json
import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from browser import Browser, why_not
from engine import ENGINE, NO_NODE, arrays_of, predictions_of, run_engine
from safetensors.torch import load_file, save_file
from tiny import ALL, CASES, GENERATORS, NUMERIC, TINY, TRANSLATORS, by_name, inputs_for, padded_inputs_for
from transformers.activations import ACT2FN

from hf_edu_models import LADDER, EduBertConfig, EduBertForMultiTask, EduWordVectorsConfig, EduWordVectorsForCBOW
from hf_edu_models.lab import weights as lab_weights
from hf_edu_models.lab.support import check_config
from hf_edu_models.models.blocks_subwords import subword_table
from hf_edu_models.pages.document import data_block, json_block, write_document
from hf_edu_models.pages.modules import join_modules

pytestmark = pytest.mark.skipif(NO_NODE is not None, reason=str(NO_NODE))
SUPPORTED = json.loads((ENGINE / "supported.js").read_text().partition("SUPPORTED = ")[2].rstrip(";\n"))
RUN = [case for case in ALL if case.head in SUPPORTED.get(case.rung.model_type, {"heads": ()})["heads"]]
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
        calls |= {f"padded {row}": ["logits", row_of(each.padded, row)] for row in range(3)}
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
    found, config = {"logits": predictions_of(outputs)}, outputs.config
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
    elif name == "elmo":
        found |= {f"layers.{layer}.output": states for layer, states in enumerate(outputs.hidden_states)}
        found |= pooling_weights(outputs, config)
    elif name == "word_vectors" or (name == "feedforward" and "hidden_states" in outputs and outputs.hidden_states):
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
            found |= pooling_weights(outputs, config)
    return found


def pooling_weights(outputs, config) -> dict:
    """The last of the attentions, if there are any; max pooling has shares instead of weights."""
    name = "pooling.shares" if config.pooling == "max" else "pooling.weights"
    return {name: outputs.attentions[-1]} if getattr(outputs, "attentions", None) else {}


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
    options = {} if case.rung.name in ("feedforward", "word_vectors") else {"output_attentions": True}
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


@pytest.mark.parametrize("case", **by_name(RUN))
def test_padding_is_left_out(case, saved):
    """Padding on the left, on the right and none: torch's values at the real tokens."""
    each = saved[case.name]
    with torch.no_grad():
        logits = predictions_of(each.model(**each.padded)).numpy()
    mask = each.padded[case.key.replace("input_ids", "attention_mask")].bool().numpy()
    for row in range(3):
        found = each.results[f"padded {row}"]["data"]
        expected_row = logits[row] if case.per_row or case.task == "multiple_choice" else logits[row][mask[row]]
        np.testing.assert_allclose(found, expected_row, **CLOSE)


def cells_of(model) -> dict:
    kinds = ("RNNCell", "GRUCell", "LSTMCell")
    return {name: module for name, module in model.named_modules() if type(module).__name__ in kinds}


def gates_of(cell, step, state, new_state) -> dict[str, torch.Tensor]:
    """What a cell computes in one step, by the names of the record."""
    kind, inputs, past = type(cell).__name__, cell.from_input(step), cell.from_state(state[0])
    found = {"hidden_state": new_state[0]}
    if kind == "LSTMCell":
        gates = zip(
            ("input_gate", "forget_gate", "candidate", "output_gate"), (inputs + past).chunk(4, -1), strict=True
        )
        found |= {name: gate.tanh() if name == "candidate" else gate.sigmoid() for name, gate in gates}
        found["cell_state"] = new_state[1]
    if kind == "GRUCell":
        reset, update = ((a + b).sigmoid() for a, b in zip(inputs.chunk(3, -1)[:2], past.chunk(3, -1)[:2], strict=True))
        candidate = (inputs.chunk(3, -1)[2] + reset * past.chunk(3, -1)[2]).tanh()
        found |= {"reset_gate": reset, "update_gate": update, "candidate": candidate}
    return found


@pytest.mark.parametrize(
    "case", **by_name([case for case in RUN if hasattr(case.rung.config, "recurrent_implementation")])
)
def test_gates_and_states_are_those_of_the_cells(case, saved):
    """Every part of every cell at every step, recorded by hooks; documents have a cell run for each sentence."""
    each = saved[case.name]
    steps = {name: [] for name in cells_of(each.model)}
    hooks = [
        cell.register_forward_hook(
            lambda cell, inputs, state, name=name: steps[name].append(gates_of(cell, *inputs, state))
        )
        for name, cell in cells_of(each.model).items()
    ]
    with torch.no_grad():
        each.model(**each.inputs)
    for hook in hooks:
        hook.remove()
    arrays = arrays_of(each.results["run 0"])
    for name, cell_steps in steps.items():
        path = name.removeprefix("model.")
        is_reversed = path.endswith("backward_cell") or (
            path.startswith("encoder") and getattr(each.model.config, "reverse_source", False)
        )
        for what in cell_steps[0]:
            values = torch.stack([step[what] for step in cell_steps], dim=1).numpy()  # (rows, T, D)
            values = values[:, ::-1] if is_reversed else values
            if path.startswith("word_reader"):
                for number in range(values.shape[0] // 2):
                    np.testing.assert_allclose(arrays[f"sentences.{number}.{path}.{what}"], values[number], **CLOSE)
            else:
                np.testing.assert_allclose(arrays[f"{path}.{what}"], values[0], **CLOSE, err_msg=f"{path}.{what}")


@pytest.mark.parametrize("case", **by_name([case for case in RUN if case.attends or case.rung.name == "bahdanau"]))
def test_scores_are_the_sums_of_their_parts(case, saved):
    """Element by element: what is summed, the score, the softmax."""
    each = saved[case.name]
    arrays, whole = arrays_of(each.results["parts"]), arrays_of(each.results["run 0"])
    assert whole.keys() < arrays.keys()
    for name, scores in arrays.items():
        if not name.endswith(".scores"):
            continue
        module = name.removesuffix(".scores")
        if case.attends:
            total = arrays[f"{module}.product"].sum(-1) * (case.settings["hidden_size"] / 3) ** -0.5
            pairs = arrays[f"{module}.queries"][:, :, None] * arrays[f"{module}.keys"][:, None]
            np.testing.assert_allclose(arrays[f"{module}.product"], pairs, **CLOSE)
            total = np.where(np.isinf(scores), -np.inf, total)
        else:
            part = {key.removeprefix(f"{module}.score."): value for key, value in arrays.items()}
            total = part["product"].sum(-1)[None]
            if case.settings.get("attention_score", "additive") == "additive":
                sums = part["state_part"][:, None] + part["key_part"][None]
                vector = each.model.model.decoder.score.score_vector.detach().numpy()
                np.testing.assert_allclose(part["sum"], sums, **CLOSE)
                np.testing.assert_allclose(part["tanh"], np.tanh(sums), **CLOSE)
                np.testing.assert_allclose(part["product"], np.tanh(sums) * vector, **CLOSE)
            else:
                np.testing.assert_allclose(part["product"], part["state_part"][:, None] * part["key_part"], **CLOSE)
        np.testing.assert_allclose(scores, total, **CLOSE)
        if case.settings.get("attention_normalizer") != "sparsemax":
            powers = np.exp(scores - scores.max(-1, keepdims=True))
            np.testing.assert_allclose(arrays[f"{module}.weights"], powers / powers.sum(-1, keepdims=True), **CLOSE)


@pytest.mark.parametrize("case", **by_name([case for case in RUN if case in GENERATORS]))
@pytest.mark.parametrize("search", SEARCHES)
def test_generated_tokens_are_those_of_transformers(case, search, saved):
    each, options = saved[case.name], SEARCHES[search]
    result = each.results[search]
    assert "error" not in result, result
    prompt = each.inputs["input_ids"][:1]
    options = {"max_new_tokens": 9, "eos_token_id": ENDS, "pad_token_id": 1} | options
    tokens = each.model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)[0]
    start = 1 if case in TRANSLATORS else prompt.shape[1]
    assert result["tokens"] == tokens[start:].tolist()
    steps = result["steps"]
    assert [step["token"] for step in steps] == result["tokens"]
    assert [step["position"] for step in steps] == list(range(start, start + len(steps)))
    log_probabilities = sum(step["logProbability"] for step in steps)
    if search.startswith("greedy"):
        assert result["tree"] is None and result["score"] == pytest.approx(log_probabilities, abs=1e-4)
    else:
        assert_tree(result, log_probabilities / len(steps) ** options.get("length_penalty", 1.0))


def assert_tree(result: dict, score: float):
    """Every node hangs on one of the step before, and the best path is the result."""
    nodes = {node["id"]: node for node in result["tree"]}
    best = [node["token"] for node in nodes.values() if node["isBest"]]
    assert best == result["tokens"] and result["score"] == pytest.approx(score, abs=1e-4)
    for node in nodes.values():
        parent = nodes.get(node["parent"])
        assert node["step"] == (parent["step"] + 1 if parent else 0)
        assert parent is None or (not parent["isFinished"] and node["score"] <= parent["score"] + 1e-6)


def scale_columns(linear, columns, factor: float = 0.0):
    linear.weight.data[:, columns] *= factor


def zero_linear(linear):
    for parameter in linear.parameters():
        parameter.data.zero_()


def set_gate(cell, gate: int, value: float):
    """Keep one gate of a cell open or closed: its bias alone decides."""
    size = cell.hidden_size
    cell.input_bias.data[gate * size : (gate + 1) * size] = value


def skip_layer(layer):
    """The output of a layer is its input."""
    layer.register_forward_hook(lambda layer, inputs, outputs: (inputs[0], *outputs[1:]))


def without_residual(residual):
    """The sum of the residual connection is the update alone."""
    after = type(residual).after
    residual.after = lambda states, update: after(residual, torch.zeros_like(states), update)


def zero_positions(embed):
    embed.positions.register_forward_hook(lambda module, inputs, positions: torch.zeros_like(positions))


def force_weight(attention, head: int, query: int, key: int, value: float):
    """Force one attention weight and scale the others of its row, so that they sum to one."""
    attend = attention.attend_heads

    def force(queries, keys, values, *arguments):
        _, weights = attend(queries, keys, values, *arguments)
        row = weights[:, head, query] * ((1 - value) / (1 - weights[:, head, query, key]))[:, None]
        row[:, key] = value
        weights[:, head, query] = row
        return (weights @ values).transpose(1, 2), weights

    attention.attend_heads = force


def force_step(decoder, step: int, key: int, value: float):
    """The same in a recurrent decoder, at one of its steps."""
    count = iter(range(1000))

    def force(module, inputs, weights):
        if next(count) != step:
            return weights
        forced = weights * ((1 - value) / (1 - weights[:, key : key + 1]))
        forced[:, key] = value
        return forced

    decoder.normalizer.register_forward_hook(force)


def skip_residual(stack, layer: int):
    """The output of a layer of ELMo without its input."""
    stack.layers[layer].register_forward_hook(lambda layer, inputs, outputs: (outputs[0] - inputs[0], *outputs[1:]))


# Case, changes of the engine, and the same change made in torch.
CHANGES = {
    "head": (
        "transformer",
        [{"name": "decoder.layers.1.cross_attention.heads", "op": "off", "index": [2]}],
        lambda model: scale_columns(model.decoder.layers[1].cross_attention.output, slice(8, 12)),
    ),
    "head of gpt": (
        "gpt",
        [{"name": "layers.0.self_attention.heads", "op": "off", "index": [0]}],
        lambda model: scale_columns(model.layers[0].self_attention.output, slice(0, 4)),
    ),
    "layer": (
        "gpt",
        [{"name": "layers.0", "op": "off"}],
        lambda model: skip_layer(model.layers[0]),
    ),
    "decoder layer": (
        "transformer-pre-norm",
        [{"name": "decoder.layers.1", "op": "off"}],
        lambda model: skip_layer(model.decoder.layers[1]),
    ),
    "recurrent layer": (
        "recurrent-gru",
        [{"name": "stack.layers.1", "op": "off"}],
        lambda model: skip_layer(model.stack.layers[1]),
    ),
    "feed-forward network": (
        "bert-ForMaskedLM",
        [{"name": "layers.1.feed_forward", "op": "off"}],
        lambda model: zero_linear(model.layers[1].feed_forward.outer_proj),
    ),
    "residual": (
        "bert-ForMaskedLM",
        [{"name": "layers.0.self_residual", "op": "off"}],
        lambda model: without_residual(model.layers[0].self_residual),
    ),
    "residual, norm first": (
        "gpt",
        [{"name": "layers.1.feed_residual", "op": "off"}],
        lambda model: without_residual(model.layers[1].feed_residual),
    ),
    "positions": (
        "transformer",
        [{"name": "encoder.embed.positions", "op": "off"}],
        lambda model: zero_positions(model.encoder.embed),
    ),
    "learned positions": (
        "gpt",
        [{"name": "embed_positions.output", "op": "off"}],
        lambda model: model.embed_positions.weight.data.zero_(),
    ),
    "positions of bert": (
        "bert",
        [{"name": "embeddings.position_embeddings.output", "op": "off"}],
        lambda model: model.embeddings.position_embeddings.weight.data.zero_(),
    ),
    "closed forget gate": (
        "recurrent",
        [{"name": "stack.layers.0.forward_cell.forget_gate", "op": "off"}],
        lambda model: set_gate(model.stack.layers[0].forward_cell, 1, -1e4),
    ),
    "open output gate": (
        "recurrent-ForTokenClassification-lstm-bidirectional",
        [{"name": "stack.layers.1.backward_cell.output_gate", "op": "set", "value": 1}],
        lambda model: set_gate(model.stack.layers[1].backward_cell, 3, 1e4),
    ),
    "frozen cell state": (
        "seq2seq",
        [{"name": "decoder.stack.layers.1.forward_cell.cell_state", "op": "freeze"}],
        lambda model: [set_gate(model.decoder.stack.layers[1].forward_cell, *gate) for gate in ((0, -1e4), (1, 1e4))],
    ),
    "frozen hidden state": (
        "bahdanau",
        [{"name": "decoder.cell.hidden_state", "op": "freeze"}],
        lambda model: set_gate(model.decoder.cell, 1, 1e4),  # z = 1
    ),
    "no context": (
        "bahdanau-additive-lstm",
        [{"name": "decoder.context", "op": "off"}],
        lambda model: [
            model.decoder.cell.input_weight.data[:, 10:].zero_(),
            zero_linear(model.decoder.readout.context_proj),
        ],
    ),
    "no context vector": (
        "seq2seq-cho",
        [{"name": "decoder.context", "op": "off"}],
        lambda model: [
            model.decoder.stack.layers[0].forward_cell.input_weight.data[:, 10:].zero_(),
            model.decoder.start_proj.weight.data.zero_(),
            zero_linear(model.decoder.readout.context_proj),
        ],
    ),
    "forced weight": (
        "bahdanau-additive-rnn",
        [{"name": "decoder.weights", "op": "set", "index": [0, 3, 1], "value": 0.75}],
        lambda model: force_step(model.decoder, 3, 1, 0.75),
    ),
    "forced weight of a head": (
        "transformer",
        [{"name": "encoder.layers.0.self_attention.weights", "op": "set", "index": [2, 1, 4], "value": 0.9}],
        lambda model: force_weight(model.encoder.layers[0].self_attention, 2, 1, 4, 0.9),
    ),
    "place in the window": (
        "feedforward-indirect",
        [{"name": "layer.windows", "op": "off", "index": [None, 1]}],
        lambda model: scale_columns(model.layer.hidden_proj, slice(10, 20)),
    ),
    "token": (
        "feedforward",
        [{"name": "embed_tokens.output", "op": "off"}],
        lambda model: model.embed_tokens.weight.data.zero_(),
    ),
    "residual of elmo": (
        "elmo",
        [{"name": "backward_lm.layers.1.residual", "op": "off"}],
        lambda model: skip_residual(model.backward_lm, 1),
    ),
    "words of every sentence": (
        "hierarchical",
        [{"name": "word_reader.layer.forward_cell.update_gate", "op": "set", "value": 0}],
        lambda model: set_gate(model.word_reader.layer.forward_cell, 1, -1e4),
    ),
}


def changed_model(each: Saved, change) -> torch.nn.Module:
    model = copy.deepcopy(each.model)
    change(model.model)
    return model


@pytest.fixture(scope="module")
def changed(saved, tmp_path_factory) -> dict:
    """The records of all changes, from one process."""
    jobs = [
        {"folder": str(saved[case].folder), "calls": [["run", row_of(saved[case].inputs, 0), changes]]}
        for case, changes, _ in CHANGES.values()
    ]
    return dict(zip(CHANGES, run_engine(jobs, tmp_path_factory.mktemp("changes")), strict=True))


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_that_change_in_torch(name, saved, changed):
    case, _, change = CHANGES[name]
    each, (record,) = saved[case], changed[name]
    found, before = arrays_of(record)["logits"], arrays_of(each.results["run 0"])["logits"]
    with torch.no_grad():
        logits = predictions_of(changed_model(each, change)(**each.inputs))[0].numpy()
    np.testing.assert_allclose(found, logits, **CLOSE)
    assert record["changed"] and np.abs(found - before).max() > 1e-3, "the change changed nothing"


def probabilities_of(logits, temperature: float = 1.0) -> np.ndarray:
    return torch.tensor(logits / temperature).softmax(-1).numpy()


def each_change(changeable: dict) -> list[dict]:
    """Every operation of something changeable, at one place and everywhere."""
    indices = [[], [0] * len(changeable["shape"])]
    values = {"set": {"value": 0.6}}
    return [
        {"name": changeable["name"], "op": op, "index": index} | values.get(op, {})
        for op in changeable["ops"]
        for index in (indices[: 1 + bool(changeable["shape"])])
    ]


@pytest.fixture(scope="module")
def continued(saved, tmp_path_factory) -> dict:
    """For every generating model and every change: tokens generated under it, and one pass over prompt and tokens."""
    cases, plans = [case for case in RUN if case in GENERATORS], []
    for case in cases:
        each = saved[case.name]
        changes = [change for found in each.results["changeable"] for change in each_change(found)]
        plans.append((each, prompt_of(case, each.inputs), changes))
    options = {"maxNewTokens": 4, "eosTokenId": []}
    jobs = [
        {
            "folder": str(each.folder),
            "calls": [["generate", prompt, options | {"changes": [change]}] for change in changes],
        }
        for each, prompt, changes in plans
    ]
    generated = run_engine(jobs, tmp_path_factory.mktemp("generated"))
    jobs = []
    for case, (each, prompt, changes), results in zip(cases, plans, generated, strict=True):
        calls = []
        for change, result in zip(changes, results, strict=True):
            assert "error" not in result, (change, result)
            tokens = result["tokens"][:-1]
            if case in TRANSLATORS:
                inputs = prompt | {"decoderInputIds": [each.model.config.decoder_start_token_id, *tokens]}
            else:
                inputs = {"inputIds": prompt["inputIds"] + tokens}
            calls.append(["logits", inputs, [change]])
        jobs.append({"folder": str(each.folder), "calls": calls})
    passes = run_engine(jobs, tmp_path_factory.mktemp("passes"))
    return {
        case.name: list(zip(plan[2], results, records, strict=True))
        for case, plan, results, records in zip(cases, plans, generated, passes, strict=True)
    }


@pytest.mark.parametrize("case", **by_name([case for case in RUN if case in GENERATORS]))
def test_generation_makes_the_changes_that_a_pass_makes(case, continued):
    """Step by step with a state, or all at once: the same probabilities, whatever is changed."""
    assert len(continued[case.name]) >= 4
    for change, result, record in continued[case.name]:
        rows = probabilities_of(record["data"])[-len(result["steps"]) :]
        for row, step in zip(rows, result["steps"], strict=True):
            assert len(step["top"]) == 10
            for shown in step["top"]:
                assert shown["probability"] == pytest.approx(row[shown["token"]], abs=1e-4), change


@pytest.fixture(scope="module")
def predicted(saved, tmp_path_factory) -> dict:
    """For every model and every change: its weights and predictions."""
    jobs = []
    for case in RUN:
        each = saved[case.name]
        changes = [change for found in each.results["changeable"] for change in each_change(found)]
        calls = [["predict", row_of(each.inputs, 0), [change]] for change in changes]
        jobs.append({"folder": str(each.folder), "calls": calls})
    results = run_engine(jobs, tmp_path_factory.mktemp("predicted"))
    return {
        case.name: [(call[2][0], record) for call, record in zip(job["calls"], records, strict=True)]
        for case, job, records in zip(RUN, jobs, results, strict=True)
    }


@pytest.mark.parametrize("case", **by_name(RUN))
def test_what_is_changeable_can_be_changed(case, saved, predicted):
    """Every operation runs; attention weights stay a distribution; some change of every kind has an effect."""
    each = saved[case.name]
    before = arrays_of(each.results["run 0"])
    kinds = {found["name"]: found["kind"] for found in each.results["changeable"]}
    effective = set()
    for change, record in predicted[case.name]:
        arrays = arrays_of(record)
        for name, array in arrays.items():
            if name.endswith(".weights"):
                sums = array.sum(-1)
                assert np.all((np.abs(sums - 1) < 1e-5) | (sums == 0)) and array.min() >= 0, change
        if "logits" in arrays and np.abs(arrays["logits"] - before["logits"]).max() > 1e-6:
            effective.add(kinds[change["name"]])
    assert effective == set(kinds.values()) or case.rung.name == "bert"  # one text has one segment only


@pytest.mark.parametrize(
    "name", ["recurrent-lstm-window", "recurrent-lags", "bahdanau-sparsemax", "transformer", "gpt"]
)
def test_attention_of_a_step_is_the_last_row_of_a_pass(name, saved, tmp_path):
    case, each = CASES[name], saved[name]
    prompt = prompt_of(case, each.inputs)
    result = each.results["greedy"]
    tokens = result["tokens"][:-1]
    inputs = {"inputIds": prompt["inputIds"] + tokens}
    if case in TRANSLATORS:
        inputs = prompt | {"decoderInputIds": [each.model.config.decoder_start_token_id, *tokens]}
    ((record,),) = run_engine([{"folder": str(each.folder), "calls": [["run", inputs]]}], tmp_path)
    arrays = arrays_of(record)
    for number, step in enumerate(result["steps"]):
        assert step["attention"]
        row = number - len(result["steps"])
        for shown in step["attention"]:
            weights = arrays[shown["name"]][:, row]
            np.testing.assert_allclose(shown["data"], weights[:, : shown["shape"][1]], **CLOSE)
            assert not weights[:, shown["shape"][1] :].any()


def test_sampling(saved, tmp_path):
    """The same seed draws the same tokens; from one token there is no choice; shown probabilities are torch's."""
    each = saved["gpt"]
    prompt = prompt_of(CASES["gpt"], each.inputs)
    options = {"maxNewTokens": 12, "eosTokenId": [], "temperature": 1.5}
    calls = [["generate", prompt, options | {"seed": seed}] for seed in (1, 1, 2)]
    calls += [["generate", prompt, options | {"topK": 1}], ["generate", prompt, options | {"temperature": 0}]]
    logits = torch.randn(29)
    shown = [["nextTokens", logits.tolist(), {"temperature": 0.7, "topK": 5}], ["nextTokens", logits.tolist(), {}]]
    results, (few, all_tokens) = run_engine([{"folder": str(each.folder), "calls": calls}, {"calls": shown}], tmp_path)
    first, again, other, one, greedy = (result["tokens"] for result in results)
    assert first == again != other and one == greedy != first
    top = (logits / 0.7).topk(5)
    assert [found["token"] for found in few] == top.indices.tolist()
    np.testing.assert_allclose([found["probability"] for found in few], top.values.softmax(-1), rtol=1e-5)
    order = logits.argsort(descending=True)
    assert [found["token"] for found in all_tokens] == order.tolist()
    np.testing.assert_allclose([found["probability"] for found in all_tokens], logits.softmax(-1)[order], rtol=1e-5)


def test_sampled_tokens_follow_their_probabilities(saved, tmp_path):
    each = saved["recurrent"]
    prompt = prompt_of(CASES["recurrent"], each.inputs)
    options = {"maxNewTokens": 1, "temperature": 3, "topK": 3}
    calls = [["generate", prompt, options | {"seed": seed}] for seed in range(600)]
    (results,) = run_engine([{"folder": str(each.folder), "calls": calls}], tmp_path)
    drawn = np.array([result["tokens"][0] for result in results])
    for shown in results[0]["steps"][0]["top"]:
        assert (drawn == shown["token"]).mean() == pytest.approx(shown["probability"], abs=0.08)


def quantise(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """An int8 matrix with a scale for each row."""
    scales = weight.abs().amax(dim=1) / 127
    return (weight / scales[:, None]).round().to(torch.int8), scales


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8"])
@pytest.mark.parametrize("name", ["transformer", "bahdanau"])
def test_every_dtype_is_read(name, dtype, saved, tmp_path):
    """Compared with torch in float32 on the same rounded weights."""
    each = saved[name]
    weights = load_file(each.folder / "model.safetensors")
    if dtype == "int8":
        matrices = {key: quantise(weight) for key, weight in weights.items() if weight.ndim == 2}
        rounded = {key: numbers.float() * scales[:, None] for key, (numbers, scales) in matrices.items()}
        stored = {key: matrices[key][0] if key in matrices else weight for key, weight in weights.items()}
        stored |= {f"{key}.scales": scales for key, (_, scales) in matrices.items()}
    else:
        stored = {key: weight.to(getattr(torch, dtype)) for key, weight in weights.items()}
        rounded = {key: weight.float() for key, weight in stored.items()}
    save_file(stored, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((each.folder / "config.json").read_text())
    calls = [["run", row_of(each.inputs, 0)]]
    ((record,),) = run_engine([{"folder": str(tmp_path), "calls": calls}], tmp_path)
    model = copy.deepcopy(each.model)
    model.load_state_dict(weights | rounded, strict=False)
    model.tie_weights()
    with torch.no_grad():
        logits = predictions_of(model(**each.inputs))[0].numpy()
    np.testing.assert_allclose(arrays_of(record)["logits"], logits, **CLOSE)


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_spellings_and_other_integers_stay_whole(precision, saved, tmp_path, monkeypatch):
    """The weights as a page holds them, in every precision; here even small matrices are rounded."""
    monkeypatch.setattr(lab_weights, "_SMALLEST_INT8", 16)
    each = saved["elmo-characters"]
    (tmp_path / "model.safetensors").write_bytes(lab_weights.pack(each.folder, precision))
    (tmp_path / "config.json").write_text((each.folder / "config.json").read_text())
    ((record,),) = run_engine([{"folder": str(tmp_path), "calls": [["run", row_of(each.inputs, 0)]]}], tmp_path)
    found, exact = (arrays_of(each_record)["logits"] for each_record in (record, each.results["run 0"]))
    bound = {"float32": 1e-6, "float16": 1e-3, "int8": 0.05}[precision]
    assert np.abs(found - exact).max() <= bound * np.abs(exact).max()


def test_activations(tmp_path):
    """All that the engine computes, and the error function below the GELU."""
    values = np.linspace(-6, 6, 241).tolist()
    names = SUPPORTED["shared"]["values"]["hidden_act"]
    calls = [["activate", name, values] for name in names]
    results, (errors,) = run_engine([{"calls": calls}, {"calls": [["erf", values]]}], tmp_path)
    for name, result in zip(names, results, strict=True):
        np.testing.assert_allclose(result, ACT2FN[name](torch.tensor(values)), atol=1e-5, err_msg=name)
    np.testing.assert_allclose(errors, torch.erf(torch.tensor(values)), atol=1e-6)


def test_every_field_of_a_configuration_is_known():
    """A field that is new in Python must be computed here, or be named as one that changes nothing."""
    shared = SUPPORTED["shared"]
    common = {*shared["values"], *shared["computed"], *shared["training"]}
    for rung in LADDER:
        if rung.model_type not in SUPPORTED:
            continue
        classes = [base for base in rung.config.__mro__ if base.__module__.startswith("hf_edu_models")]
        ours = {name for base in classes for name in base.__annotations__}
        row = SUPPORTED[rung.model_type]
        known = {*row["values"], *row["computed"], *row["training"]} | common
        assert ours - {"heads", "heads_without_auto_class", "sizes", "keys_to_ignore_at_inference"} <= known, rung.name
        assert set(row["heads"]) <= set(rung.class_names)


def test_what_cannot_be_computed_is_said(saved, tmp_path):
    config = json.loads((saved["gpt"].folder / "config.json").read_text())
    wrong = {
        "'edu_mamba'": {"model_type": "edu_mamba"},
        "'gelu_10'; it computes relu, gelu": {"hidden_act": "gelu_10"},
        "head_aggregation 'max'": {"head_aggregation": "max"},
        "'EduGPTForMaskedLM'; of edu_gpt it runs EduGPTModel": {"architectures": ["EduGPTForMaskedLM"]},
        "quantised": {"quantization_config": {"quant_method": "torchao"}},
        "cannot compute features; it runs models without": {
            "model_type": "edu_recurrent",
            "architectures": ["EduRecurrentForTokenClassification"],
            "features": [{"pieces": 2}],
        },
    }
    wrong |= {
        f"cannot run '{case.head}', which reads numbers; give a model that reads text": {
            "model_type": case.rung.model_type,
            "architectures": [case.head],
        }
        for case in NUMERIC
    }
    calls = [["unsupported", config | change] for change in [{}, *wrong.values()]]
    for change in wrong.values():
        with pytest.raises(ValueError, match=r"the lab cannot|quantised"):
            check_config("a run", config | change)
    check_config("a run", config)
    (results,) = run_engine([{"calls": calls}], tmp_path)
    assert results[0] is None
    for words, sentence in zip(wrong, results[1:], strict=True):
        assert words in sentence, sentence


WRONG = {
    "token id 29 is outside the vocabulary of 29": ("gpt", ["run", {"inputIds": [4, 29]}]),
    "token id 1.5": ("gpt", ["run", {"inputIds": [1.5]}]),
    "no tokens": ("gpt", ["run", {"inputIds": []}]),
    "41 tokens, but the model reads at most 40": ("bert", ["run", {"inputIds": [5] * 41}]),
    "token type 2": ("bert", ["run", {"inputIds": [5], "tokenTypeIds": [2]}]),
    "attentionMask has 2 numbers for 1 tokens": ("gpt", ["run", {"inputIds": [5], "attentionMask": [1, 1]}]),
    "list of lists": ("hierarchical", ["run", {"inputIds": [5]}]),
    "no list of token ids": ("gpt", ["run", {}]),
    "generates no text": ("bert", ["generate", {"inputIds": [5]}]),
    "called 'layers.7'": ("gpt", ["run", {"inputIds": [5]}, [{"name": "layers.7", "op": "off"}]]),
    "cannot be changed by 'set'": ("gpt", ["run", {"inputIds": [5]}, [{"name": "layers.1", "op": "set", "value": 1}]]),
    "finite number": (
        "gpt",
        ["run", {"inputIds": [5]}, [{"name": "layers.1.self_attention.weights", "op": "set"}]],
    ),
    "index of 'layers.0.self_attention.heads' has 4 numbers": (
        "gpt",
        ["run", {"inputIds": [5]}, [{"name": "layers.0.self_attention.heads", "op": "off", "index": [0, 0, 0, 0]}]],
    ),
    "maxNewTokens is 0": ("gpt", ["generate", {"inputIds": [5]}, {"maxNewTokens": 0}]),
    "no start token for the target": ("seq2seq", ["run", {"inputIds": [5], "decoderInputIds": []}]),
    "decoderInputIds is all padding": (
        "seq2seq",
        ["run", {"inputIds": [5], "decoderInputIds": [5], "decoderAttentionMask": [0]}],
    ),
}


def test_wrong_inputs_are_answered_with_a_sentence(saved, tmp_path):
    jobs = [{"folder": str(saved[name].folder), "calls": [call]} for name, call in WRONG.values()]
    for words, (result,) in zip(WRONG, run_engine(jobs, tmp_path), strict=True):
        assert words in result["error"], result["error"]


def test_a_checkpoint_of_another_model_is_rejected(saved, tmp_path):
    (tmp_path / "config.json").write_text((saved["gpt"].folder / "config.json").read_text())
    (tmp_path / "model.safetensors").write_bytes((saved["bert"].folder / "model.safetensors").read_bytes())
    (result,) = run_engine([{"folder": str(tmp_path), "calls": []}], tmp_path)
    assert "no tensor embed_tokens.weight" in result["error"]


def test_the_record_names_the_place_in_python(saved):
    """Every entry has an equation, and a file and a function that exist."""
    package = ENGINE.parents[1]
    places = set()
    for each in saved.values():
        for entry in each.results["parts"]["entries"]:
            assert entry["equation"] and len(entry["axes"]) == entry["data"].ndim, entry["name"]
            places.add(entry["source"])
    assert len(places) > 20
    for place in places:
        file, _, path = place.partition(":")
        module = import_module("hf_edu_models." + file.removesuffix(".py").replace("/", "."))
        assert (package / file).is_file()
        owner = module
        for part in path.split("."):
            owner = vars(owner)[part] if part in vars(owner) else getattr(owner, part)


def test_every_head_of_a_multi_task_model_predicts(tmp_path):
    tasks = {
        "mood": {"task": "classification", "labels": ["bad", "good", "mixed"]},
        "score": {"task": "classification", "labels": None, "problem_type": "regression"},
        "names": {"task": "token_classification", "labels": ["O", "B-PER"]},
    }
    torch.manual_seed(0)
    model = EduBertForMultiTask(EduBertConfig(**TINY["bert"], tasks=tasks)).eval()
    model.save_pretrained(tmp_path)
    inputs = inputs_for(CASES["bert"])
    ((record,),) = run_engine([{"folder": str(tmp_path), "calls": [["run", row_of(inputs, 0)]]}], tmp_path)
    arrays = arrays_of(record)
    assert record["kind"] == "multi_task"
    for name in tasks:
        with torch.no_grad():
            logits = model(**inputs, task=name).logits[0].numpy()
        np.testing.assert_allclose(arrays[f"{name}.logits"], logits, **CLOSE)


@pytest.mark.parametrize(
    ("name", "path", "is_reversed"),
    [
        ("recurrent", "stack.layers.1.forward_cell", False),
        ("recurrent-ForTokenClassification-lstm-bidirectional", "stack.layers.0.backward_cell", True),
        ("seq2seq", "encoder.stack.layers.0.forward_cell", True),
    ],
)
def test_a_state_can_be_frozen_from_a_step_on(name, path, is_reversed, saved, tmp_path):
    """Up to that step, in the order in which the cell reads, nothing changes; from there on the state stays."""
    each = saved[name]
    change = {"name": f"{path}.cell_state", "op": "freeze", "index": [2]}
    job = {"folder": str(each.folder), "calls": [["run", row_of(each.inputs, 0), [change]]]}
    ((record,),) = run_engine([job], tmp_path)
    states, before = (arrays_of(each_record)[f"{path}.cell_state"] for each_record in (record, each.results["run 0"]))
    if is_reversed:
        states, before = states[::-1], before[::-1]
    start = len(states) - 1 - 2 if is_reversed else 2
    np.testing.assert_array_equal(states[:start], before[:start])
    assert (states[start:] == states[start - 1]).all() and not (before[start:] == before[start - 1]).all()


PAGE = """<!DOCTYPE html><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{{policy}}"><style>{{style}}</style>
<script type="application/json" id="data">{{data}}</script>{{weights}}<script>{{script}}</script>"""
READ = """
const [name, inputs] = arguments;
const bytes = Uint8Array.from(atob(document.getElementById(name).textContent), (letter) => letter.charCodeAt(0));
const config = JSON.parse(document.getElementById("data").textContent)[name];
const { entries } = loadModel(config, readSafetensors(bytes.buffer)).run(inputs);
return Object.fromEntries(entries.filter(({ kind }) => kind === "logits" || kind === "weights").map(
  ({ name, shape, data }) => [name, { shape, data: [...data] }]));
"""


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_a_browser_computes_the_same(saved, tmp_path):
    """Every model in one page that opens from disk, under the content policy of all pages."""
    script = join_modules("lab/views/session.js")
    for function, file in (("loadModel", "engine/model.js"), ("readSafetensors", "engine/safetensors.js")):
        (module,) = re.findall(rf"const (module\d+) = .* // lab/{file}", script)
        script += f"const {{ {function} }} = {module};\n"
    configs = {name: json.loads((each.folder / "config.json").read_text()) for name, each in saved.items()}
    blocks = [data_block(name, (each.folder / "model.safetensors").read_bytes()) for name, each in saved.items()]
    page = write_document(tmp_path / "page.html", PAGE, "", script, data=json_block(configs), weights="".join(blocks))
    browser = Browser(tmp_path / "profile")
    try:
        browser.open(page)
        for name, each in saved.items():
            found, arrays = browser.run(READ, name, row_of(each.inputs, 0)), arrays_of(each.results["run 0"])
            assert found or name.endswith("Model")
            for key, entry in found.items():
                np.testing.assert_allclose(np.array(entry["data"]).reshape(entry["shape"]), arrays[key], **CLOSE)
        assert not browser.console_messages()
    finally:
        browser.close()


# Settings that no variant of the ladder has, and inputs that no example has.
SETTINGS = {
    "transformer-plain": ("transformer", {"scale_embeddings": False, "hidden_act": "gelu_new"}, {}),
    "transformer-untied": ("transformer", {"tie_word_embeddings": False, "share_embeddings": False}, {}),
    "seq2seq-forwards": ("seq2seq-gru", {"reverse_source": False, "num_hidden_layers": 1}, {}),
    "seq2seq-tied": ("seq2seq", {"tie_word_embeddings": True, "embedding_size": 12}, {}),
    "cho-reversed": ("seq2seq-cho", {"reverse_source": True, "cell_type": "rnn"}, {}),
    "bahdanau-deep": ("bahdanau", {"num_hidden_layers": 2, "encoder_hidden_size": 7, "attention_size": 5}, {}),
    "bahdanau-tied": ("bahdanau", {"tie_word_embeddings": True, "maxout_size": 10}, {}),
    "bahdanau-sparse": ("bahdanau", {"attention_normalizer": "sparsemax"}, {}),
    "feedforward-one": ("feedforward", {"window_size": 1}, {}),
    "feedforward-deep": ("feedforward-ForSequenceClassification", {"classifier_layers": 3}, {}),
    "recurrent-tied": ("recurrent-rnn", {"tie_word_embeddings": True, "embedding_size": 12}, {}),
    "recurrent-attention": (
        "recurrent-ForSequenceClassification",
        {"pooling": "attention", "cell_type": "rnn", "bidirectional": True},
        {},
    ),
    "recurrent-short-window": ("recurrent-lstm-window", {"attention_window": 1, "num_hidden_layers": 1}, {}),
    "hierarchical-rnn": ("hierarchical", {"cell_type": "rnn"}, {}),
    "bert-segments": ("bert-ForSequenceClassification", {}, {"token_type_ids": [0, 0, 0, 1, 1, 1, 1]}),
    "bert-segments-masked": ("bert-ForMaskedLM", {"hidden_act": "relu"}, {"token_type_ids": [0, 1, 1, 1, 1, 1, 1]}),
    "gpt-tall": ("gpt", {"num_hidden_layers": 3, "num_attention_heads": 2, "tie_word_embeddings": False}, {}),
    "elmo-shallow": ("elmo", {"num_hidden_layers": 1, "tie_word_embeddings": True}, {}),
    "word-vectors-tree": ("word_vectors", {"hierarchical_softmax": True, "max_code_length": 12}, {}),
    "cbow-tree": ("word_vectors-ForCBOW", {"hierarchical_softmax": True, "window_size": 1}, {}),
}


@pytest.fixture(scope="module")
def with_settings(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("settings")
    built, jobs = {}, []
    for name, (case_name, settings, more) in SETTINGS.items():
        case = CASES[case_name]
        model = case.build(form="eager", **settings)
        model.save_pretrained(folder / name)
        inputs = inputs_for(case) | {key: torch.tensor([values, values]) for key, values in more.items()}
        built[name] = model, inputs
        jobs.append({"folder": str(folder / name), "calls": [["run", row_of(inputs, 0)]]})
    return {name: (*built[name], record) for name, (record,) in zip(SETTINGS, run_engine(jobs, folder), strict=True)}


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_is_computed(name, with_settings):
    model, inputs, record = with_settings[name]
    with torch.no_grad():
        logits = predictions_of(model(**inputs))[0].numpy()
    np.testing.assert_allclose(arrays_of(record)["logits"], logits, **CLOSE)


def test_a_word_is_the_mean_of_its_ngrams(tmp_path):
    """With n-grams of the words, and one token without a word that was added later."""
    words = [None if number < 4 else f"word{number}" for number in range(29)]
    config = EduWordVectorsConfig(**TINY["word_vectors"], num_buckets=31)
    ids, starts = subword_table(words, config)
    torch.manual_seed(0)
    model = EduWordVectorsForCBOW(EduWordVectorsConfig(**config.to_diff_dict() | {"num_ngrams": len(ids)})).eval()
    torch.nn.init.normal_(model.lm_head.weight)
    torch.nn.init.normal_(model.model.embed_tokens.weight)
    torch.nn.init.normal_(model.model.embed_tokens.ngrams.weight)
    model.model.embed_tokens.set_words(ids, starts)
    model.resize_token_embeddings(30)
    model.save_pretrained(tmp_path)
    inputs = {"input_ids": torch.tensor([[29, 5, 2, 17, 28]])}
    ((record,),) = run_engine([{"folder": str(tmp_path), "calls": [["run", row_of(inputs, 0)]]}], tmp_path)
    with torch.no_grad():
        outputs = model(**inputs, output_hidden_states=True)
    arrays = arrays_of(record)
    np.testing.assert_allclose(arrays["embed_tokens.output"], outputs.hidden_states[0][0], **CLOSE)
    np.testing.assert_allclose(arrays["logits"], outputs.logits[0], **CLOSE)
