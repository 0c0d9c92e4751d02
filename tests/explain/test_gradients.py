"""Gradient flow equals autograd on torch's own cells, explicit Jacobians and the models' hidden states."""

import copy
import json

import numpy as np
import pytest
import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments
from typer.testing import CliRunner

import hf_edu_models
from hf_edu_models.cli import app
from hf_edu_models.explain.gradients import callback as gradient_callback
from hf_edu_models.explain.gradients import exploding, truncation, vanishing
from hf_edu_models.explain.gradients import flow as gradients
from hf_edu_models.explain.gradients.pictures import draw_gradient_flow, draw_lesson, draw_training
from hf_edu_models.models.blocks_recurrent import RNNCell
from hf_edu_models.plotting import save_figure

VOCABULARY, HIDDEN, EMBEDDING, ROWS, LENGTH = 19, 6, 5, 3, 8
SIZES = {"vocab_size": VOCABULARY, "hidden_size": HIDDEN, "dropout": 0.0, "initializer_range": 0.6}
CELLS = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}
ATTENTION = {"vocab_size": VOCABULARY, "hidden_size": 6, "num_hidden_layers": 2, "num_attention_heads": 3}
ATTENTION |= {"intermediate_size": 10, "dropout": 0.1, "attention_dropout": 0.0}


def language_model(cell="lstm", layers=1, **changes):
    config = hf_edu_models.EduRecurrentConfig(
        cell_type=cell, num_hidden_layers=layers, embedding_size=EMBEDDING, **SIZES | changes
    )
    return hf_edu_models.EduRecurrentForCausalLM(config).double()


def translator(**changes):
    settings = SIZES | {"embedding_size": EMBEDDING, "num_hidden_layers": 1, "cell_type": "gru"} | changes
    return hf_edu_models.EduSeq2SeqForConditionalGeneration(hf_edu_models.EduSeq2SeqConfig(**settings)).double()


def random_ids(*shape, seed=1):
    return torch.randint(3, VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


def torch_cell(ours):
    """torch's cell with the weights of ours."""
    theirs = CELLS[type(ours).__name__.removesuffix("Cell").lower()](ours.input_weight.shape[1], HIDDEN).double()
    names = {"weight_ih": "input_weight", "weight_hh": "state_weight", "bias_ih": "input_bias", "bias_hh": "state_bias"}
    theirs.load_state_dict({name: getattr(ours, own).detach() for name, own in names.items()})
    return theirs


def by_hand(model, input_ids):
    """Norms of dL/dh_t (and dL/dc_t) through a loop over torch's cell; the loss is at the last token."""
    cell = torch_cell(model.model.stack.layers[0].forward_cell)
    vectors, state, states = model.model.embed_tokens(input_ids).detach(), None, []
    for step in vectors.unbind(1)[:-1]:
        state = cell(step, state)
        states.append(state if isinstance(state, tuple) else (state,))
    logits = states[-1][0] @ model.lm_head.weight.detach().T
    loss = nn.functional.cross_entropy(logits, input_ids[:, -1])
    flat = [part for parts in states for part in parts]
    grads = torch.autograd.grad(loss, flat, allow_unused=True)
    norms = [np.zeros(len(input_ids)) if g is None else g.norm(dim=-1).numpy() for g in grads]
    count = len(states[0])
    return float(loss.detach()), [np.stack(norms[part::count], axis=1) for part in range(count)]


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("implementation", ["eager", "fused"])
def test_norms_along_time_are_those_of_a_loop_of_torchs_cells(cell, implementation):
    model, input_ids = language_model(cell, recurrent_implementation=implementation), random_ids(ROWS, LENGTH)
    flow = gradients.gradient_flow(model, {"input_ids": input_ids})
    loss, norms = by_hand(model, input_ids)
    state = flow.states["layer 1"]
    assert flow.loss == pytest.approx(loss, rel=1e-9)
    np.testing.assert_allclose(state.hidden[:, :-1], norms[0], rtol=1e-9)
    assert (state.hidden[:, -1] == 0).all(), "no token is predicted from the last step"
    if cell == "lstm":
        np.testing.assert_allclose(state.cell_state[:, :-1], norms[1], rtol=1e-9)
    np.testing.assert_allclose(state.by_distance(), norms[0].mean(axis=0)[::-1], rtol=1e-9)


def test_the_gradient_of_a_vanilla_rnn_is_the_product_of_its_jacobians():
    """dh_t/dh_{t-1} = diag(1 - h_t^2) U, so dL/dh_t = dL/dh_T times their product (Bengio et al. 1994)."""
    model, input_ids = language_model("rnn"), random_ids(1, LENGTH)
    flow = gradients.gradient_flow(model, {"input_ids": input_ids}).states["layer 1"]
    cell = model.model.stack.layers[0].forward_cell
    with torch.no_grad():
        hidden = model.model(input_ids=input_ids).last_hidden_state[0]
        weight, answer = model.lm_head.weight, input_ids[0, -1]
        row = (weight @ hidden[-2]).softmax(dim=0) @ weight - weight[answer]
        for step in reversed(range(LENGTH - 1)):
            assert flow.hidden[0, step] == pytest.approx(float(row.norm()), rel=1e-9)
            row = row @ torch.diag(1 - hidden[step] ** 2) @ cell.state_weight


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_gate_products_are_the_derivative_through_the_gates_alone(cell):
    """With fixed gates and candidates, the state changes only through its gates."""
    model, input_ids = language_model(cell), random_ids(ROWS, LENGTH)
    state = gradients.gradient_flow(model, {"input_ids": input_ids}).states["layer 1"]
    ours = model.model.stack.layers[0].forward_cell
    gates, current = [], (torch.zeros(len(input_ids), ours.hidden_size, dtype=torch.float64),) * ours.state_tensors
    with torch.no_grad():
        for step in model.model.embed_tokens(input_ids).unbind(1):
            preactivations = nn.functional.linear(step, ours.input_weight, ours.input_bias)
            preactivations = preactivations + nn.functional.linear(current[0], ours.state_weight, ours.state_bias)
            gates.append(torch.sigmoid(preactivations[:, HIDDEN : 2 * HIDDEN]).numpy())
            current = ours(step, current)
    products = state.gate_products()
    assert products[0] == 1.0
    for distance in range(1, LENGTH - 1):
        through = np.prod(gates[LENGTH - 1 - distance : LENGTH - 1], axis=0)
        assert products[distance] == pytest.approx(through.mean(), rel=1e-6)


def test_a_vanilla_rnn_has_no_gates_and_no_cell_state():
    state = gradients.gradient_flow(language_model("rnn"), {"input_ids": random_ids(ROWS, LENGTH)}).states["layer 1"]
    with pytest.raises(ValueError, match="no gates"):
        state.gate_products()
    with pytest.raises(ValueError, match="no cell_state"):
        state.by_distance("cell_state")


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_no_norm(side):
    model, input_ids = language_model("lstm", layers=2), random_ids(1, LENGTH)
    alone = gradients.gradient_flow(model, {"input_ids": input_ids})
    filler, ones = torch.zeros(1, 3, dtype=torch.long), torch.ones(1, LENGTH, dtype=torch.long)
    parts = [(filler, filler), (input_ids, ones)]
    ids, mask = (torch.cat(each, dim=1) for each in zip(*(parts if side == "left" else parts[::-1]), strict=True))
    padded = gradients.gradient_flow(model, {"input_ids": ids, "attention_mask": mask})
    for name, state in alone.states.items():
        np.testing.assert_allclose(padded.states[name].by_distance(), state.by_distance(), rtol=1e-9)
        np.testing.assert_allclose(padded.states[name].gate_products(), state.gate_products(), rtol=1e-6)
        assert np.isnan(padded.states[name].hidden).sum() == 3
    assert padded.layers == pytest.approx(alone.layers)


@pytest.mark.parametrize("reverse", [True, False])
def test_an_encoder_is_measured_by_the_positions_of_its_text(reverse):
    """The token that is read last is next to the decoder: the first one if the source is reversed."""
    model = translator(reverse_source=reverse)
    batch = {"input_ids": random_ids(ROWS, 5), "labels": random_ids(ROWS, 4, seed=2)}
    flow = gradients.gradient_flow(model, batch, loss_at="all")
    state = flow.states["encoder layer 1"]
    assert state.positions.tolist() == list(range(5))[:: -1 if reverse else 1]
    encoder = model.get_encoder()
    outputs = encoder(batch["input_ids"], return_dict=True)
    loss = model(encoder_outputs=outputs, labels=batch["labels"]).loss
    (grad,) = torch.autograd.grad(loss, outputs.final_state)
    np.testing.assert_allclose(state.hidden[:, -1], grad[:, 0].norm(dim=-1).numpy(), rtol=1e-9)
    by_position = flow.positions["encoder layer 1"]
    np.testing.assert_allclose(by_position[:, 0 if reverse else -1], state.hidden[:, -1])


def test_both_directions_of_a_layer_are_measured():
    config = hf_edu_models.EduRecurrentConfig(bidirectional=True, num_hidden_layers=1, cell_type="gru", **SIZES)
    model = hf_edu_models.EduRecurrentForSequenceClassification(config).double()
    flow = gradients.gradient_flow(model, {"input_ids": random_ids(ROWS, LENGTH), "labels": torch.tensor([0, 1, 0])})
    ahead, back = flow.states["layer 1"], flow.states["layer 1 backwards"]
    assert back.positions[0] == LENGTH - 1 and (back.hidden[:, -1] > 0).all() and (ahead.hidden[:, -1] > 0).all()
    total = np.sqrt((ahead.hidden**2).sum() + (back.hidden**2).sum())
    assert flow.layers["layer 1"] == pytest.approx(total)


def deep_models():
    """A model, a batch, and where its hidden states are in its outputs."""
    small = ATTENTION | {"max_position_embeddings": 20}
    labels = {"input_ids": random_ids(ROWS, LENGTH), "labels": random_ids(ROWS, LENGTH)}
    yield hf_edu_models.EduGPTForCausalLM(hf_edu_models.EduGPTConfig(**small)), labels, {"": "hidden_states"}
    yield hf_edu_models.EduBertForMaskedLM(hf_edu_models.EduBertConfig(**small)), labels, {"": "hidden_states"}
    pair = {"input_ids": random_ids(ROWS, 5), "labels": random_ids(ROWS, LENGTH)}
    both = {"encoder ": "encoder_hidden_states", "decoder ": "decoder_hidden_states"}
    config = hf_edu_models.EduTransformerConfig(**ATTENTION)
    yield hf_edu_models.EduTransformerForConditionalGeneration(config), pair, both


@pytest.mark.parametrize("number", range(3), ids=["gpt", "bert", "transformer"])
@pytest.mark.parametrize("loss_at", ["last", "all"])
def test_norms_through_layers_are_those_of_the_models_hidden_states(number, loss_at):
    model, batch, homes = list(deep_models())[number]
    model = model.double()
    flow = gradients.gradient_flow(model, batch, loss_at)
    expected = dict(batch)
    if loss_at == "last":
        expected["labels"] = torch.cat([torch.full((ROWS, LENGTH - 1), -100), batch["labels"][:, -1:]], dim=1)
    outputs = model.eval()(**expected, output_hidden_states=True)
    assert flow.loss == pytest.approx(float(outputs.loss.detach()))
    names = []
    for side, home in homes.items():
        # A pre-norm model normalises its last hidden state; the output of the layer itself is not returned.
        states = outputs[home][: -1 if number == 0 else None]
        found = torch.autograd.grad(outputs.loss, states, retain_graph=True)
        for layer, grad in enumerate(found):
            name = side + (f"layer {layer}" if layer else "embeddings")
            assert flow.layers[name] == pytest.approx(float(grad.norm()), rel=1e-6)
            np.testing.assert_allclose(flow.positions[name], grad.norm(dim=-1).numpy(), rtol=1e-6, atol=1e-12)
            names.append(name)
    assert set(names) <= set(flow.layers) and len(flow.layers) == 3 * len(homes)


def test_parameter_norms_equal_those_of_backward_and_the_model_is_unchanged():
    model, _, _ = next(deep_models())
    model.train()
    model.model.embed_tokens.weight.requires_grad_(False)
    marked = model.model.layers[0].feed_forward.inner_proj.weight
    marked.grad = torch.full_like(marked, 7.0)
    twin = copy.deepcopy(model)
    flow = gradients.gradient_flow(model, {"input_ids": random_ids(ROWS, LENGTH)}, "all")
    assert (marked.grad == 7.0).all() and model.training and not model.model.embed_tokens.weight.requires_grad
    assert not any(module._forward_hooks for module in model.modules())
    twin.zero_grad()
    twin.eval()(input_ids=random_ids(ROWS, LENGTH), labels=random_ids(ROWS, LENGTH)).loss.backward()
    expected = {name: float(w.grad.norm()) for name, w in twin.named_parameters() if w.requires_grad}
    assert flow.parameters == pytest.approx(expected, rel=1e-4)
    for before, after in zip(twin.parameters(), model.parameters(), strict=True):
        assert torch.equal(before, after)


def test_settings_are_restored_after_an_error():
    model = language_model("lstm").train()
    with pytest.raises(ValueError, match="no loss"):
        gradients.gradient_flow(model.model, {"input_ids": random_ids(ROWS, LENGTH)})
    with pytest.raises(ValueError, match="vocabulary"):
        gradients.gradient_flow(model, {"input_ids": random_ids(ROWS, LENGTH) + 100})
    assert model.config.recurrent_implementation == "fused" and model.training
    with pytest.raises(ValueError, match="choose one of last, all"):
        gradients.gradient_flow(model, {"input_ids": random_ids(ROWS, LENGTH)}, "first")


def test_the_gradient_vanishes_in_the_rnn_and_not_through_the_gates():
    lesson = vanishing.vanishing_gradient_lesson(length=40, hidden_size=24, batch_size=4)
    lost = {cell: norms[-1] / norms[0] for cell, norms in lesson.norms.items()}
    assert all(len(norms) == 40 for norms in lesson.norms.values())
    assert lost["rnn"] < 1e-3 * lost["gru"] and lost["rnn"] < 1e-3 * lost["lstm"]
    for products in lesson.gate_products.values():
        assert (np.diff(products) < 0).all()
        # Untrained gates are near the sigmoid of their bias, so their product is near its powers.
        assert products[10] ** 0.1 == pytest.approx(1 / (1 + np.exp(-lesson.gate_bias)), rel=0.05)
    open_gates = vanishing.vanishing_gradient_lesson(("lstm",), length=40, hidden_size=24, batch_size=4, gate_bias=3)
    assert open_gates.gate_products["lstm"][-1] > 100 * lesson.gate_products["lstm"][-1]
    assert len(lesson.rows()) == 3 * 40
    with pytest.raises(ValueError, match="length must be at least 2"):
        vanishing.vanishing_gradient_lesson(length=1)


def test_the_spectral_radius_decides_between_vanishing_and_exploding():
    lesson = exploding.exploding_gradient_lesson(length=60, hidden_size=32, batch_size=2)
    lost = [norms[-1] / norms[0] for norms in lesson.norms.values()]
    assert lost[0] < 1e-12 and lost[0] < lost[1] < lost[2] < min(lost[3:]), lost
    assert lost[1] < 1e-4 and min(lost[3:]) > 5, "vanishes below 1, explodes above"
    # Far from the loss one more step multiplies the gradient by nearly the radius, while tanh is nearly linear.
    small = lesson.norms[0.5]
    assert (small[-1] / small[-21]) ** (1 / 20) == pytest.approx(0.5, rel=0.05)
    assert len(lesson.rows()) == 5 * 60 + 3
    with pytest.raises(ValueError, match="must all be above 0"):
        exploding.exploding_gradient_lesson(radii=(0.5, -1))


def test_a_clipped_step_is_torchs_and_keeps_a_gradient():
    lesson = exploding.exploding_gradient_lesson(length=3, hidden_size=4, batch_size=1, threshold=0.5)
    start, step, clipped = lesson.steps
    cell = RNNCell(1, 1).double()
    weight, bias = cell.state_weight, cell.state_bias
    with torch.no_grad():
        for parameter, value in zip(cell.parameters(), (0, start.weight, 0, start.bias), strict=True):
            parameter.fill_(value)
    state = (torch.full((1, 1), 0.5, dtype=torch.float64),)
    for _ in range(50):
        state = cell(torch.zeros(1, 1, dtype=torch.float64), state)
    loss = (state[0] - 0.7).square().sum()
    loss.backward()
    assert loss.item() == pytest.approx(start.loss, rel=1e-6)
    norm = torch.nn.utils.clip_grad_norm_([weight, bias], 0.5).item()
    assert norm == pytest.approx(start.next_gradient_norm, rel=1e-6)
    torch.optim.SGD([weight, bias], lr=lesson.learning_rate).step()
    assert (clipped.weight, clipped.bias) == pytest.approx((weight.item(), bias.item()), rel=1e-5)
    assert clipped.loss < start.loss and clipped.next_gradient_norm > 0.01
    assert step.weight > 100 and step.next_gradient_norm < 1e-6, "the unit is saturated and learns nothing more"


@pytest.mark.parametrize("cell", CELLS)
def test_a_truncated_gradient_stops_where_the_state_is_detached(cell):
    """Compared with a loop of torch's cells whose state is detached k steps before the loss."""
    lesson = truncation.truncation_lesson((cell,), length=12, hidden_size=HIDDEN, batch_size=2)
    model, input_ids = vanishing.untrained_model(cell, 12, HIDDEN, 1.0, 2, 0)
    reference, gradients_by_length = torch_cell(model.model.stack.layers[0].forward_cell), []
    vectors = model.model.embed_tokens(input_ids).detach()
    for length in lesson.lengths:
        state = None
        for number, step in enumerate(vectors.unbind(1)[:-1]):
            if state is not None and number == 12 - length:
                state = tuple(each.detach() for each in state) if cell == "lstm" else state.detach()
            state = reference(step, state)
        hidden = state[0] if cell == "lstm" else state
        loss = nn.functional.cross_entropy(hidden @ model.lm_head.weight.detach().T, input_ids[:, -1])
        gradients_by_length.append(torch.autograd.grad(loss, reference.weight_hh)[0])
    whole = gradients_by_length[-1]
    missing = [float((each - whole).norm() / whole.norm()) for each in gradients_by_length]
    cosines = [float((each * whole).sum() / each.norm() / whole.norm()) for each in gradients_by_length]
    assert lesson.missing[cell] == pytest.approx(missing, rel=1e-6, abs=1e-12) and missing[0] > 0.1
    assert lesson.cosines[cell] == pytest.approx(cosines, rel=1e-6)
    assert lesson.lengths[0] == 1 and lesson.lengths[-1] == 12 and len(lesson.rows()) == len(lesson.lengths)


def test_the_lesson_leaves_the_random_state_alone():
    before = torch.get_rng_state()
    vanishing.vanishing_gradient_lesson(("rnn",), length=3, hidden_size=4, batch_size=1)
    assert torch.equal(before, torch.get_rng_state())


def training(folder, callbacks, steps=7, model=None, **changes):
    model = model or language_model("gru", layers=2).float()
    data = [{"input_ids": row, "labels": row} for row in random_ids(24, LENGTH)]
    settings = {"max_steps": steps, "per_device_train_batch_size": 4, "report_to": "none", "use_cpu": True}
    settings |= {"save_strategy": "no", "disable_tqdm": True, "max_grad_norm": 0.5, "learning_rate": 0.01} | changes
    arguments = TrainingArguments(output_dir=str(folder), **settings)
    trainer = Trainer(model=model, args=arguments, train_dataset=data, callbacks=callbacks)
    trainer.train(resume_from_checkpoint=changes.get("resume_from_checkpoint"))
    return trainer


def test_the_callback_writes_the_norms_that_the_optimizer_sees_and_changes_no_training(tmp_path):
    start = language_model("gru", layers=2).float()
    seen = []

    class Spy(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
            self.before = {name: (w.grad.clone(), w.detach().clone()) for name, w in model.named_parameters()}

        def on_optimizer_step(self, args, state, control, model=None, **kwargs):
            seen.append((self.before, {name: w.detach().clone() for name, w in model.named_parameters()}))

    callback = gradient_callback.GradientFlowCallback(every=3)
    trainer = training(tmp_path, [Spy(), callback], model=copy.deepcopy(start))
    without = training(tmp_path / "without", [], model=copy.deepcopy(start))
    for one, other in zip(trainer.model.parameters(), without.model.parameters(), strict=True):
        assert torch.equal(one, other)

    rows = gradient_callback.read_gradients(tmp_path)
    assert [row["step"] for row in rows] == [1, 4, 7]
    assert list(rows[0]["gradient_norm"]) == ["embed_tokens", "layer 1", "layer 2", "lm_head"]
    for row in rows:
        before, after = seen[row["step"] - 1]
        inside = [name for name in before if ".layers.1." in name]
        grads = torch.cat([before[name][0].flatten() for name in inside])
        assert row["gradient_norm"]["layer 2"] == pytest.approx(float(grads.norm()), rel=1e-5)
        old = torch.cat([before[name][1].flatten() for name in inside])
        new = torch.cat([after[name].flatten() for name in inside])
        assert row["update_ratio"]["layer 2"] == pytest.approx(float((new - old).norm() / old.norm()), rel=1e-4)
        total = np.sqrt(sum(norm**2 for norm in row["gradient_norm"].values()))
        assert total <= 0.5 * (1 + 1e-4), "norms are those after clipping"
    assert (tmp_path / "pictures/gradients.png").read_bytes().startswith(b"\x89PNG")


def test_the_callback_appends_to_the_file_of_a_resumed_run(tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 4, "logging_steps": 100}
    model = language_model("gru").float()
    training(tmp_path, [gradient_callback.GradientFlowCallback(every=1)], 6, copy.deepcopy(model), **saving)
    whole = gradient_callback.read_gradients(tmp_path)
    with open(tmp_path / "gradients.jsonl", "a") as file:
        file.write('{"step": 7, "gradi')  # killed in the middle of a line
    again = saving | {"resume_from_checkpoint": str(tmp_path / "checkpoint-4")}
    training(tmp_path, [gradient_callback.GradientFlowCallback(every=1)], 6, copy.deepcopy(model), **again)
    resumed = gradient_callback.read_gradients(tmp_path)
    assert [row["step"] for row in resumed] == list(range(1, 7))
    for one, other in zip(whole, resumed, strict=True):
        assert one["gradient_norm"] == pytest.approx(other["gradient_norm"], rel=1e-4)


def test_wrong_arguments_of_the_callback_raise_an_error(tmp_path):
    with pytest.raises(ValueError, match="at least 1"):
        gradient_callback.GradientFlowCallback(every=0)
    with pytest.raises(FileNotFoundError, match="GradientFlowCallback"):
        gradient_callback.read_gradients(tmp_path)
    with pytest.raises(ValueError, match="every=1"):
        draw_training([])


@pytest.mark.parametrize(
    "name, layer",
    [
        ("model.encoder.layers.0.feed_forward.inner_proj.weight", "encoder layer 1"),
        ("model.decoder.stack.layers.2.forward_cell.state_weight", "decoder layer 3"),
        ("module.model.layers.11.self_attention.qkv_proj.weight", "layer 12"),
        ("model.embed_tokens.weight", "embed_tokens"),
        ("model.decoder.score.query_weight", "decoder score"),
        ("lm_head.decoder.bias", "lm_head decoder"),
    ],
)
def test_weights_are_grouped_by_layer(name, layer):
    assert gradient_callback.layer_of(name) == layer


def test_pictures_have_every_line_and_both_formats(tmp_path):
    lesson = vanishing.vanishing_gradient_lesson(length=10, hidden_size=6, batch_size=2)
    both = draw_lesson(lesson, exploding.exploding_gradient_lesson(length=10, hidden_size=6, batch_size=2))
    assert [len(axis.lines) for axis in both.axes[:4]] == [3, 4, 6, 2], "five radii, and the line of no change"
    three = draw_lesson(lesson, None, truncation.truncation_lesson(length=10, hidden_size=6, batch_size=2))
    assert [axis.get_title() for axis in three.axes][2].startswith("Truncated BPTT")
    left, right = draw_lesson(lesson).axes
    assert left.get_yscale() == "log" and len(left.lines) == 3 and len(right.lines) == 4
    np.testing.assert_allclose(left.lines[0].get_ydata(), lesson.norms["rnn"] / lesson.norms["rnn"][0])
    flow = gradients.gradient_flow(language_model("lstm", layers=2), {"input_ids": random_ids(1, LENGTH)})
    figure = draw_gradient_flow(flow, {"input": ["$a", "<b>", *"cdefgh"]})
    assert len(figure.axes[0].lines) == 4, "hidden state and cell state of two layers"
    for extension in ("png", "svg"):
        assert save_figure(figure, tmp_path / f"new/flow.{extension}").stat().st_size > 1000
    assert [file.name for file in (tmp_path / "new").iterdir() if file.name.startswith(".")] == []
    with pytest.raises(ValueError, match=r"\.png or \.svg"):
        save_figure(figure, tmp_path / "flow.pdf")


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """A tiny model of each kind of head, with its tokenizer."""
    from hf_edu_models.data import train_tokenizer

    folder, texts = tmp_path_factory.mktemp("checkpoints"), ["the cat sat on the mat", "a dog ran to the house"]
    tokenizers = {rung: train_tokenizer(texts, "word", 50, rung=rung) for rung in ("recurrent", "seq2seq")}
    tokenizers["bert"] = train_tokenizer(texts, "wordpiece", 60, rung="bert")
    size = {"vocab_size": 60}
    models = {
        "recurrent": language_model("gru", **size).float(),
        "seq2seq": translator(**size).float(),
        "bert": hf_edu_models.EduBertForMaskedLM(hf_edu_models.EduBertConfig(**ATTENTION | size)),
    }
    for rung, model in models.items():
        model.save_pretrained(folder / rung)
        tokenizers[rung].save_pretrained(folder / rung)
    hf_edu_models.EduBertModel(hf_edu_models.EduBertConfig(**ATTENTION | size)).save_pretrained(folder / "body")
    tokenizers["bert"].save_pretrained(folder / "body")
    return folder


@pytest.mark.parametrize(
    "rung, extra", [("recurrent", []), ("seq2seq", ["--target", "a dog"]), ("seq2seq", []), ("bert", [])]
)
def test_the_command_draws_any_rung_and_writes_its_numbers(checkpoints, tmp_path, rung, extra):
    out = tmp_path / "flow.png"
    arguments = ["explain", "gradients", str(checkpoints / rung), "the cat sat", "--out", str(out), *extra]
    run = CliRunner().invoke(app, arguments)
    assert run.exit_code == 0, run.output + str(run.exception)
    assert out.stat().st_size > 1000
    table = out.with_suffix(".csv").read_text().splitlines()
    assert table[0] == "what,where,row,position,norm" and len(table) > 10


def test_wrong_options_raise_an_error(checkpoints, tmp_path):
    def problem(*arguments):
        return str(CliRunner().invoke(app, ["explain", "gradients", *arguments]).exception)

    assert "either a model and a text, or --lesson" in problem()
    assert "either a model and a text, or --lesson" in problem(str(checkpoints / "bert"))
    assert "no target side" in problem(str(checkpoints / "bert"), "the cat", "--target", "x")
    assert "no loss" in problem(str(checkpoints / "body"), "the cat")
    assert "does not exist" in problem(str(tmp_path / "nothing"), "the cat")
    assert ".png or .svg" in problem("--lesson", "--out", str(tmp_path / "x.gif"))
    assert "is empty" in problem(str(checkpoints / "bert"), " ")


def test_rows_are_json():
    flow = gradients.gradient_flow(language_model("gru"), {"input_ids": random_ids(1, LENGTH)})
    assert json.loads(json.dumps(flow.rows()))[0]["what"] == "layer"
