"""Encoder-decoder with attention: scores, weights, the decoder, and its fused form."""

import math

import pytest
import torch
import torch.nn.functional as F
from test_recurrent import copy_weights
from tiny import CASES, LENGTH, SOURCE, TINY, TRANSLATORS, random_ids
from torch import nn
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from hf_edu_models import EduBahdanauConfig, EduBahdanauForConditionalGeneration
from hf_edu_models.models import blocks_fused_attention, modeling_bahdanau
from hf_edu_models.models.blocks_attention import NORMALIZERS, SCORES, AttentionScore, attend
from hf_edu_models.models.blocks_fused_attention import FusedAttentionLoop
from hf_edu_models.models.blocks_fused_steps import FUSED_CELLS
from hf_edu_models.models.blocks_recurrent import CELLS

BAHDANAUS = {case.name: case for case in TRANSLATORS if case.name.startswith("bahdanau")}
PAPER, SPARSEMAX = CASES["bahdanau"], CASES["bahdanau-sparsemax"]


def test_weights_and_context_by_hand():
    """Scores log 1, log 2, log 5 give the weights 1/8, 2/8, 5/8."""
    annotations = torch.tensor([[[8.0, 0.0], [0.0, 8.0], [8.0, 8.0]]])
    scores = torch.tensor([[1.0, 2.0, 5.0]]).log()
    context, weights = attend(scores, annotations, None)
    assert_close(weights, torch.tensor([[1 / 8, 2 / 8, 5 / 8]]))
    assert_close(context, torch.tensor([[1.0 + 5.0, 2.0 + 5.0]]))
    # Without the last word the first two share what is left, one to two.
    _, weights = attend(scores, annotations, torch.tensor([[True, True, False]]))
    assert_close(weights, torch.tensor([[1 / 3, 2 / 3, 0.0]]))


def test_a_decoder_step_by_hand():
    """A dot score, three annotations of one unit each way, and a state of (1, 0): attention picks by the first unit."""
    score = SCORES["dot"](2, 2, 2)
    annotations = torch.tensor([[[math.log(2), 7.0], [0.0, 3.0], [math.log(3), -1.0]]])
    weights = score(torch.tensor([[1.0, 0.0]]), score.prepare(annotations)).softmax(-1)
    assert_close(weights, torch.tensor([[2 / 6, 1 / 6, 3 / 6]]))


@pytest.mark.parametrize("name", SCORES)
def test_every_score_is_its_formula(name):
    score = SCORES[name](4, 4, 3)
    query, annotations = torch.randn(2, 4), torch.randn(2, 5, 4)
    scores = score(query, score.prepare(annotations))
    for row in range(2):
        for position in range(5):
            s, h = query[row], annotations[row, position]
            formula = {
                "additive": lambda s, h: score.score_vector @ torch.tanh(score.query_weight @ s + score.key_weight @ h),
                "dot": lambda s, h: s @ h,
                "scaled_dot": lambda s, h: s @ h / math.sqrt(4),
                "general": lambda s, h: s @ score.key_proj.weight @ h,
                "cosine": lambda s, h: F.cosine_similarity(s, h, dim=0),
                "projected": lambda s, h: (score.query_weight @ s) @ (score.key_weight @ h),
            }[name]
            assert_close(scores[row, position], formula(s, h))


def project_onto_simplex(scores):
    """The nearest weights >= 0 with sum 1: max(0, e - tau), tau by bisection."""
    low, high = scores.max() - 1, scores.max()
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if (scores - middle).clamp(min=0).sum() > 1 else (low, middle)
    return (scores - high).clamp(min=0)


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_sparsemax_is_the_projection_onto_the_simplex(scale):
    scores = scale * torch.randn(6, 5, dtype=torch.double)
    mask = torch.rand(6, 5) < 0.7
    mask[:, 2] = True
    annotations = torch.randn(6, 5, 3, dtype=torch.double)
    for visible in (None, mask):
        context, weights = attend(scores, annotations, visible, NORMALIZERS["sparsemax"]())
        for row in range(6):
            real = torch.ones(5, dtype=torch.bool) if visible is None else visible[row]
            assert_close(weights[row, real], project_onto_simplex(scores[row, real]))
            assert not weights[row, ~real].any()
        assert_close(weights.sum(dim=-1), torch.ones(6, dtype=torch.double))
        assert_close(context, (weights[:, :, None] * annotations).sum(dim=1))
    assert scale < 1 or (weights[mask] == 0).any(), "it is sparse"


def test_sparsemax_has_an_exact_gradient():
    """Finite differences, with a mask, and the smallest and the largest support."""
    mask = torch.tensor([[True, True, False, True], [True, True, True, True], [True, True, True, True]])
    scores = torch.tensor([[0.3, 0.9, 7.0, -0.2], [0.1, 0.2, 0.15, 0.12], [5.0, 1.0, 2.0, -3.0]], dtype=torch.double)
    annotations = torch.randn(3, 4, 2, dtype=torch.double)
    sparsemax = NORMALIZERS["sparsemax"]()
    assert torch.autograd.gradcheck(
        lambda scores: attend(scores, annotations, mask, sparsemax), scores.requires_grad_()
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_sparsemax_of_extreme_scores(dtype):
    """A source without a real token gets equal weights, as from the softmax; large scores do not overflow."""
    largest = torch.finfo(dtype).max
    scores = torch.tensor([[1.0, 2.0, 3.0, 4.0], [largest, -largest, 0.0, -largest]], dtype=dtype)
    mask = torch.tensor([[False] * 4, [True] * 4])
    _, weights = attend(scores, torch.ones(2, 4, 1, dtype=dtype), mask, NORMALIZERS["sparsemax"]())
    assert weights.tolist() == [[0.25] * 4, [1.0, 0.0, 0.0, 0.0]]
    assert weights.dtype == dtype


@pytest.mark.parametrize("form", ["eager", "fused"])
def test_the_whole_model_against_torchs_cells(form):
    model = PAPER.build(recurrent_implementation=form)
    encoder, cell = nn.GRU(10, 12, batch_first=True, bidirectional=True), nn.GRUCell(10 + 24, 12)
    parts = model.model.decoder
    copy_weights(model.model.encoder.stack, encoder)
    names = {"weight_ih": "input_weight", "weight_hh": "state_weight", "bias_ih": "input_bias", "bias_hh": "state_bias"}
    cell.load_state_dict({theirs: getattr(parts.cell, ours) for theirs, ours in names.items()})
    source, target = random_ids(2, SOURCE), random_ids(2, LENGTH, seed=2)
    annotations, ends = encoder(model.model.encoder.embed_tokens(source))
    state = torch.tanh(parts.start_proj(ends[1]))
    logits, weights = [], []
    for word in parts.embed_tokens(target).unbind(1):
        energies = torch.tanh((state @ parts.score.query_weight.T)[:, None] + annotations @ parts.score.key_weight.T)
        alphas = (energies @ parts.score.score_vector).softmax(-1)
        context = (alphas[:, :, None] * annotations).sum(1)
        state = cell(torch.cat([word, context], -1), state)
        units = parts.readout.state_proj(state) + parts.readout.word_proj(word) + parts.readout.context_proj(context)
        logits.append(model.lm_head(torch.maximum(units[:, 0::2], units[:, 1::2])))
        weights.append(alphas)
    outputs = model(input_ids=source, decoder_input_ids=target, output_attentions=True)
    assert_close(outputs.logits, torch.stack(logits, 1))
    assert_close(outputs.cross_attentions[0][:, 0], torch.stack(weights, 1))


@pytest.mark.parametrize("form", ["eager", "fused"])
@pytest.mark.parametrize("case", BAHDANAUS.values(), ids=BAHDANAUS)
def test_weights_sum_to_one_over_real_tokens(case, form):
    model = case.build(recurrent_implementation=form)
    mask = torch.tensor([[1] * SOURCE, [0, 1, 1, 0, 0]])
    inputs = {
        "input_ids": random_ids(2, SOURCE),
        "attention_mask": mask,
        "decoder_input_ids": random_ids(2, LENGTH, seed=2),
    }
    (weights,) = model(**inputs, output_attentions=True).cross_attentions
    assert weights.shape == (2, 1, LENGTH, SOURCE)
    assert_close(weights.sum(-1), torch.ones(2, 1, LENGTH))
    assert not weights[1, 0, :, mask[1] == 0].any()
    assert model(**inputs).cross_attentions is None


@pytest.mark.parametrize("beams", [1, 3])
def test_generate_returns_the_weights_of_its_tokens(beams):
    model = PAPER.build()
    source = random_ids(2, SOURCE)
    outputs = model.generate(
        source,
        num_beams=beams,
        max_new_tokens=5,
        eos_token_id=None,
        output_attentions=True,
        return_dict_in_generate=True,
    )
    (expected,) = model(
        input_ids=source, decoder_input_ids=outputs.sequences[:, :-1], output_attentions=True
    ).cross_attentions
    weights = torch.cat([step[0] for step in outputs.cross_attentions], dim=2)
    if beams > 1:  # the winning beam may have moved from row to row
        rows = outputs.beam_indices[:, :5]
        weights = torch.stack([weights[rows[:, step], :, step] for step in range(5)], dim=2)
    assert_close(weights, expected)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("masked", [False, True])
def test_the_fused_backward_pass_is_the_derivative(cell, score, masked):
    """Finite differences, in float64, with respect to every input."""
    batch, source, length, size, align = 2, 3, 3, 2, 2
    gates = CELLS[cell].gates * size
    align_rows = align if score in ("additive", "projected") else 0
    mask = torch.tensor([[True, True, True], [True, False, True]]) if masked else None

    def draw(*shape):
        return torch.randn(*shape, dtype=torch.double, requires_grad=True)

    keys = draw(batch, source, align_rows or size)
    state = draw(batch, size), draw(batch, size) if cell == "lstm" else None
    weights = draw(align_rows + gates, size), draw(align_rows + gates), draw(align) if score == "additive" else None
    gate_inputs, values = draw(batch, length, gates), draw(batch, source, gates)

    def run(gate_inputs, keys, values, *rest):
        forms = FUSED_CELLS[CELLS[cell].__name__], SCORES[score].fused
        outputs = FusedAttentionLoop.apply(*forms, gate_inputs, keys, values, mask, *rest)
        return tuple(part for part in outputs if part is not None)

    assert torch.autograd.gradcheck(run, (gate_inputs, keys, values, *state, *weights))


def test_the_fused_implementation_runs(monkeypatch):
    """Otherwise its equality with the eager one would show nothing."""
    calls = []
    unroll = blocks_fused_attention.unroll_fused
    monkeypatch.setattr(blocks_fused_attention, "unroll_fused", lambda *inputs: calls.append(1) or unroll(*inputs))
    monkeypatch.setattr(modeling_bahdanau.AttentiveDecoder, "unroll", None)
    model = PAPER.build().train()
    model(input_ids=random_ids(2, SOURCE), labels=random_ids(2, LENGTH)).loss.backward()
    model.eval().generate(random_ids(2, SOURCE), do_sample=True, max_new_tokens=4, eos_token_id=None)
    assert len(calls) == 1 + 4


class TensorsLike(TorchDispatchMode):
    """Counts the tensors of a shape, after the batch, that are allocated without a value."""

    def __init__(self, *shape: int):
        super().__init__()
        self.shape, self.count = shape, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.count += "empty" in function.name() and result.shape[1:] == self.shape
        return result


@pytest.mark.parametrize("name", [name for name, case in BAHDANAUS.items() if case != SPARSEMAX])
def test_no_step_allocates_as_much_as_the_keys(name):
    """The heap would grow with source times target times hidden size, while torch's own count does not show it."""
    model = BAHDANAUS[name].build().train()
    counts = []
    for length in (4, 9):
        with TensorsLike(SOURCE, model.config.hidden_size) as keys:
            model(input_ids=random_ids(2, SOURCE), labels=random_ids(2, length)).loss.backward()
        counts.append(keys.count)
    assert counts[0] == counts[1] > 0


def test_scores_out_of_range_run_eager():
    """e^2k of a key beyond 43 overflows float32; the eager loop runs instead, with the same results."""
    results = []
    for form in ("eager", "fused"):
        model = PAPER.build(recurrent_implementation=form)
        model.model.decoder.score.key_weight.data *= 300
        model.model.decoder.score.query_weight.data *= 300
        source = model.model.encoder(random_ids(2, SOURCE))
        assert model.model.decoder.score.prepare(source.last_hidden_state).abs().max() > 60
        assert model.model.decoder.project(source) is None
        results.append(model(input_ids=random_ids(2, SOURCE), decoder_input_ids=random_ids(2, LENGTH, seed=2)).logits)
    assert_close(*results)
    assert results[0].isfinite().all()


def test_scores_near_the_limit_of_the_fused_form_are_right():
    results = []
    for form in ("eager", "fused"):
        model = PAPER.build(recurrent_implementation=form).eval()
        score = model.model.decoder.score
        score.key_weight.data *= 42 / score.prepare(model.model.encoder(random_ids(2, SOURCE))[0]).abs().max()
        score.query_weight.data *= 42 / score.query_weight.abs().sum(1).max()
        if form == "fused":
            assert model.model.decoder.project(model.model.encoder(random_ids(2, SOURCE))) is not None
        outputs = model(input_ids=random_ids(2, SOURCE), labels=random_ids(2, LENGTH, seed=2))
        outputs.loss.backward()
        results.append((outputs.logits, [parameter.grad for parameter in model.parameters()]))
    assert_close(results[0], results[1], rtol=1e-4, atol=2e-5)


class EuclideanScore(AttentionScore):
    """e_j = -|s - W h_j|^2, with a parameter, and without a fused form."""

    def __init__(self, query_size: int, key_size: int, align_size: int):
        super().__init__(query_size, key_size, align_size)
        self.key_proj = nn.Linear(key_size, query_size, bias=False)

    def prepare(self, annotations):
        return self.key_proj(annotations)

    def forward(self, query, keys):
        return -(query[:, None] - keys).square().sum(dim=-1)


def test_a_new_score_takes_one_entry_and_runs_eager(monkeypatch):
    """Forward, backward and generate with `recurrent_implementation="fused"`."""
    monkeypatch.setitem(SCORES, "euclidean", EuclideanScore)
    results = []
    for implementation in ("eager", "fused"):
        model = PAPER.build(recurrent_implementation=implementation, attention_score="euclidean")
        outputs = model(input_ids=random_ids(2, SOURCE), labels=random_ids(2, LENGTH, seed=2), output_attentions=True)
        outputs.loss.backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        assert gradients["model.decoder.score.key_proj.weight"].any()
        generated = model.generate(random_ids(2, SOURCE), num_beams=3, max_new_tokens=6, eos_token_id=None)
        results.append((outputs.logits, outputs.cross_attentions, gradients, generated))
    assert_close(*results)


def test_another_normaliser_than_softmax_runs_eager():
    """The backward pass of the fused form is that of the softmax."""
    source = random_ids(2, SOURCE)
    for case in (PAPER, SPARSEMAX):
        decoder, encoder = case.build().model.decoder, case.build().model.encoder
        assert (decoder.project(encoder(source)) is None) == (case == SPARSEMAX)


def test_a_fused_form_is_not_inherited():
    """A subclass may compute something else, so it has to name its own."""
    assert type("Changed", (SCORES["dot"],), {}).fused is None


def test_generate_projects_the_source_once(monkeypatch):
    counts = []
    prepare = modeling_bahdanau.AdditiveScore.prepare
    counted = lambda self, annotations: counts.append(len(annotations)) or prepare(self, annotations)  # noqa: E731
    monkeypatch.setattr(modeling_bahdanau.AdditiveScore, "prepare", counted)
    PAPER.build().generate(random_ids(2, SOURCE), num_beams=4, max_new_tokens=6, eos_token_id=None)
    assert counts == [2], "once, and before the rows are repeated for the beams"


def test_initialisation_is_the_papers():
    model = EduBahdanauForConditionalGeneration(
        EduBahdanauConfig(**TINY["bahdanau"] | {"initializer_range": 0.01, "hidden_size": 60, "embedding_size": 50})
    )
    decoder = model.model.decoder
    for block in decoder.cell.state_weight.chunk(3):
        assert_close(block @ block.T, torch.eye(60), atol=1e-5, rtol=0)
    assert not decoder.score.score_vector.any() and not decoder.cell.input_bias.any()
    for weight, spread in (
        (decoder.score.query_weight, 0.001),
        (decoder.score.key_weight, 0.001),
        (decoder.cell.input_weight, 0.01),
        (decoder.embed_tokens.weight, 0.01),
        (model.lm_head.weight, 0.01),
    ):
        assert_close(weight.std().item(), spread, rtol=0.15, atol=0)
