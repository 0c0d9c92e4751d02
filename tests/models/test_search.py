"""The searches of `blocks_search.py` return what transformers' `GenerationMixin` returns, on every generating rung."""

import gc
import itertools

import pytest
import torch
from tiny import CASES, GENERATORS, VOCABULARY, by_name, pad, random_ids
from torch import nn
from transformers import StoppingCriteriaList

from hf_edu_models.models import blocks_packed_linear
from hf_edu_models.models.blocks_fast_layers import FoldedSourceAttention, SourceAttention, read_source
from hf_edu_models.models.blocks_generation import RowLengthCriteria
from hf_edu_models.models.blocks_packed_linear import can_pack, read_linear
from hf_edu_models.models.blocks_recurrent_step import PlainSteps

ENDS = [5, 11, 17, 23]  # several, so that sequences end early
OPTIONS = {
    "greedy": {},
    "greedy-forced": {"forced_bos_token_id": 7, "forced_eos_token_id": 5},
    "greedy-min-length": {"min_new_tokens": 4, "suppress_tokens": [9, 10]},
    "beams": {"num_beams": 3},
    "beams-all": {"num_beams": 4, "num_return_sequences": 4, "length_penalty": 0.3},
    "beams-early": {"num_beams": 3, "early_stopping": True, "num_return_sequences": 2},
    "beams-never": {"num_beams": 2, "early_stopping": "never", "length_penalty": 1.7},
    "beams-forced": {"num_beams": 3, "forced_bos_token_id": 7, "min_new_tokens": 3},
}


def spread(model, factor: float = 4.0):
    """Random models are undecided; larger logits make beams of different lengths."""
    with torch.no_grad():
        model.lm_head.weight.mul_(factor)
    return model


def padded_ids(case, batch: int):
    """Prompts padded on the left, where a language model may be; sources on the right."""
    ids, mask, _ = pad(random_ids(batch, 5), "left" if case.task == "language_modeling" else "right")
    ids[1:, :2] = random_ids(batch - 1, 2) if case.task == "language_modeling" else ids[1:, :2]
    if case.task == "language_modeling":
        mask[1:] = 1
    return {"input_ids": ids, "attention_mask": mask}


def generate_both_ways(model, inputs, **options):
    """With our search, which must have run, and with `GenerationMixin`'s."""
    options = {"max_new_tokens": 9, "eos_token_id": ENDS, "pad_token_id": 1} | options
    steppers, make = [], model.make_stepper

    def record(*args):
        steppers.append(make(*args))
        return steppers[-1]

    model.make_stepper = record
    ours = model.generate(**inputs, **options)
    assert len(steppers) == 1 and steppers[0] is not None, "no search of ours ran"
    model.make_stepper = lambda *args: None
    theirs = model.generate(**inputs, **options)
    del model.make_stepper
    return ours, theirs


@pytest.mark.parametrize("case", **by_name(GENERATORS))
@pytest.mark.parametrize("form", ["eager", "fused"])
def test_tokens_are_those_of_generation_mixin(case, form):
    model = spread(case.build(form=form))
    names = OPTIONS if form == "fused" else ("greedy", "beams-all")
    for name, batch in zip(names, itertools.cycle([6, 6, 1]), strict=False):
        ours, theirs = generate_both_ways(model, padded_ids(case, batch), **OPTIONS[name])
        assert torch.equal(ours, theirs), name


@pytest.mark.parametrize("case", **by_name(GENERATORS))
@pytest.mark.parametrize("num_beams", [1, 3])
def test_scores_and_cache_are_those_of_generation_mixin(case, num_beams):
    model, inputs = spread(case.build()), padded_ids(case, 4)
    options = {"num_beams": num_beams, "num_return_sequences": num_beams}
    options |= {"return_dict_in_generate": True, "output_scores": True, "output_logits": True}
    ours, theirs = generate_both_ways(model, inputs, **options)
    assert type(ours) is type(theirs) and ours.keys() == theirs.keys()
    for name in ours:
        if name != "past_key_values":
            torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-4)
    if num_beams > 1:
        scores = [model.compute_transition_scores(o.sequences, o.scores, o.beam_indices) for o in (ours, theirs)]
        torch.testing.assert_close(*scores, rtol=1e-4, atol=1e-4)
    assert_equal_caches(ours.past_key_values, theirs.past_key_values)


def assert_equal_caches(ours, theirs):
    assert type(ours) is type(theirs) and ours.get_seq_length() == theirs.get_seq_length()
    for name in ("self_attention_cache", "cross_attention_cache"):
        if hasattr(ours, name):
            assert_equal_caches(getattr(ours, name), getattr(theirs, name))
            return
    for one, other in zip(ours.layers, theirs.layers, strict=True):
        for part in ("keys", "values"):
            states = getattr(one, part), getattr(other, part)
            torch.testing.assert_close(*states, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", **by_name(GENERATORS))
def test_ties_are_broken_alike(case):
    """A head without weights: its logits have the few values of its bias, at every step."""
    model = case.build()
    for values in ([0.0], [0.0, 1.0], [-1.0, 0.0, 1.0]):
        model.lm_head = nn.Linear(model.lm_head.in_features, VOCABULARY).eval()
        nn.init.zeros_(model.lm_head.weight)
        model.lm_head.bias.data = torch.tensor(values).repeat(VOCABULARY)[:VOCABULARY]
        for options in ({}, {"num_beams": 3, "num_return_sequences": 3}, {"num_beams": 5, "early_stopping": True}):
            for ends in ([5], [3, 5, 7], None):
                ours, theirs = generate_both_ways(model, padded_ids(case, 3), **options, eos_token_id=ends)
                assert torch.equal(ours, theirs), (values, options, ends)


def test_a_fuzz_of_options():
    """Random options on random models of every kind."""
    generator = torch.Generator().manual_seed(3)

    def draw(choices):
        return choices[int(torch.randint(len(choices), (), generator=generator))]

    for seed in range(60):
        case = draw(GENERATORS)
        model = spread(case.build(seed=seed), draw([1.0, 3.0, 8.0])).to(draw([torch.float32, torch.float64]))
        options = {
            "num_beams": draw([1, 2, 5]),
            "max_new_tokens": draw([1, 2, 6, 20]),
            "eos_token_id": draw([None, 5, ENDS, list(range(4, 20))]),
            "pad_token_id": draw([0, 1]),
            "length_penalty": draw([0.0, 1.0, -0.5, 2.0]),
            "early_stopping": draw([False, True, "never"]),
            "forced_bos_token_id": draw([None, None, 9]),
            "forced_eos_token_id": draw([None, None, 5]),
        }
        options["num_return_sequences"] = draw([1, options["num_beams"]])
        if options["num_beams"] == 1:
            options = {key: value for key, value in options.items() if key not in ("length_penalty", "early_stopping")}
        ours, theirs = generate_both_ways(model, padded_ids(case, draw([1, 3, 9])), **options)
        assert torch.equal(ours, theirs), (seed, case.name, options)


@pytest.mark.parametrize("case", **by_name([case for case in GENERATORS if case.task == "translation"]))
@pytest.mark.parametrize("num_beams", [1, 3])
def test_each_row_stops_at_its_own_limit(case, num_beams):
    limits = torch.tensor([3, 8, 1, 5, 5])
    criteria = StoppingCriteriaList([RowLengthCriteria(limits)])
    options = {"num_beams": num_beams, "stopping_criteria": criteria, "eos_token_id": [5]}
    ours, theirs = generate_both_ways(spread(case.build()), padded_ids(case, 5), **options)
    assert torch.equal(ours, theirs)
    if num_beams == 1:
        assert ((ours[:, 1:] != 1).sum(dim=1) <= limits).all()


def test_packed_weights_are_the_same_layer():
    """Also on one row, and on rows that are no whole block of memory."""
    states = torch.randn(7, 24)
    for bias in (True, False):
        linear = nn.Linear(12, 29, bias=bias)
        with torch.no_grad():
            for rows in (0, 5, 64):
                assert not rows or can_pack([linear], rows) == torch.backends.mkldnn.is_available()
                function = read_linear(linear, rows if can_pack([linear], rows) else 0)
                for inputs in (states[:, :12], states[:1, 12:], states.t()[:7, :4].reshape(-1, 4).repeat(1, 3)):
                    torch.testing.assert_close(function(inputs), linear(inputs))
            torch.testing.assert_close(read_linear(linear, 1)(states[:1, :12]), linear(states[:1, :12]))
    assert can_pack([linear], 1) and not can_pack([linear], 2) and not can_pack([linear.double()], 64)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("size", [11, 12])
def test_a_kept_copy_follows_its_weights(rows, size):
    """Also changes that torch does not count; and a copy that is still right is not made again."""
    linear, states = nn.Linear(size, 29), torch.randn(rows, size)
    changes = [
        lambda layer: None,
        lambda layer: layer.weight.data[3, 4].add_(1e-3),
        lambda layer: layer.weight.data.copy_(layer.weight.data.flip(0)),
        lambda layer: layer.weight.data.copy_(layer.weight.data.roll(2, dims=1)),
        lambda layer: setattr(layer, "weight", nn.Parameter(torch.randn(29, size))),
        lambda layer: layer.load_state_dict(nn.Linear(size, 29).state_dict()),
        lambda layer: layer.weight.data.mul_(0.5),
    ]
    for change in changes:
        change(linear)
        with torch.no_grad():
            torch.testing.assert_close(read_linear(linear, rows, is_kept=True)(states), linear(states))
            kept = blocks_packed_linear._copies[linear]["weight"].weight
            read_linear(linear, rows, is_kept=True)
            assert blocks_packed_linear._copies[linear]["weight"].weight is kept
    before = len(blocks_packed_linear._copies)
    del linear
    gc.collect()
    assert len(blocks_packed_linear._copies) < before


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
def test_one_row_by_either_kernel(threads, bias):
    linear, state = nn.Linear(12, 29, bias=bias), torch.randn(1, 12)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            torch.testing.assert_close(read_linear(linear, 1)(state), linear(state))
    finally:
        torch.set_num_threads(before)


ATTENTIVE = ["transformer", "transformer-concat", "transformer-mean", "transformer-pre-norm", "transformer-marian"]


@pytest.mark.parametrize("name", [*ATTENTIVE, "gpt", "gpt-post-norm", "gpt-mean", "recurrent", "seq2seq", "bahdanau"])
@pytest.mark.parametrize("num_beams", [1, 3, 5])
def test_one_sentence(name, num_beams):
    """A source shorter than a head is folded into the weights. The model is trained between two calls."""
    case = CASES[name]
    model = spread(case.build())
    for length in (2, 5):
        for options in ({"eos_token_id": None}, {"min_new_tokens": 4}):
            ours, theirs = generate_both_ways(
                model, {"input_ids": random_ids(1, length)}, num_beams=num_beams, **options
            )
            assert torch.equal(ours, theirs)
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn_like(weight), alpha=0.3)


@pytest.mark.parametrize("rows", [1, 5])
def test_a_folded_source_is_the_same_attention(rows):
    model = CASES["transformer-marian"].build()
    attention, source = model.model.decoder.layers[0].cross_attention, torch.randn(1, 3, model.config.hidden_size)
    for layer in (attention.q_proj, attention.output):
        nn.init.normal_(layer.bias)
    with torch.no_grad():
        pair, hidden = attention.keys_and_values(source), torch.randn(rows, model.config.hidden_size)
        plain = SourceAttention(attention, read_linear, *pair, mask=torch.zeros(1, 1, 1))
        folded = FoldedSourceAttention(attention, *pair, rows=rows)
        torch.testing.assert_close(folded(hidden), plain(hidden))
        assert type(read_source(attention, read_linear, pair, torch.zeros(1, 1, 1), rows)) is FoldedSourceAttention


def test_a_longer_sequence_outgrows_its_first_memory():
    for name in ("transformer", "gpt"):
        model = spread(CASES[name].build(max_position_embeddings=200))
        for beams in (1, 3):
            ours, theirs = generate_both_ways(
                model, {"input_ids": random_ids(2, 5)}, max_new_tokens=90, num_beams=beams, eos_token_id=None
            )
            assert torch.equal(ours, theirs) and ours.shape[1] > 90


@pytest.mark.parametrize("case", **by_name([CASES[name] for name in ("transformer", "gpt", "bahdanau", "recurrent")]))
def test_what_the_search_does_not_know_goes_to_generation_mixin(case):
    model, ids = case.build(), random_ids(2, 5)
    make, made = model.make_stepper, []
    model.make_stepper = lambda *args: made.append(make(*args)) or made[-1]
    for options in (
        {"do_sample": True},
        {"repetition_penalty": 1.3},
        {"no_repeat_ngram_size": 2},
        {"use_cache": False},
        {"max_time": 60.0},
        {"output_hidden_states": True, "return_dict_in_generate": True},
        {"num_beams": 2, "do_sample": True},
        {"renormalize_logits": True},
        {"bad_words_ids": [[4]]},
    ):
        model.generate(ids, max_new_tokens=3, **options)
        assert not made, options
    model.train().generate(ids, max_new_tokens=3)
    assert not made, "dropout is on"
    model.eval().generate(ids, max_new_tokens=3)
    assert len(made) == 1


@pytest.mark.parametrize("name", ["transformer", "gpt"])
def test_hooks_and_replaced_layers_are_not_passed_by(name):
    """A hook must be called, and a layer that was replaced must be what is computed."""
    model, calls = CASES[name].build(), []
    linear = next(module for module in model.modules() if isinstance(module, nn.Linear) and module is not model.lm_head)
    hook = linear.register_forward_hook(lambda *args: calls.append(args))
    model.generate(random_ids(2, 5), max_new_tokens=4, eos_token_id=None)
    steps = len(calls)
    hook.remove()
    assert steps >= 4 if name == "gpt" else steps >= 1

    class Loud(nn.Linear):
        def forward(self, states):
            calls.append(states)
            return super().forward(states)

    calls.clear()
    layers = model.model.layers if name == "gpt" else model.model.decoder.layers
    old = layers[0].feed_forward.inner_proj
    layers[0].feed_forward.inner_proj = Loud(old.in_features, old.out_features)
    model.generate(random_ids(2, 5), max_new_tokens=4, eos_token_id=None)
    assert len(calls) == 4


RECURRENT = [case for case in GENERATORS if hasattr(case.build().config, "recurrent_implementation")]


@pytest.mark.parametrize("case", **by_name(RECURRENT))
@pytest.mark.parametrize("rows", [1, 5])
def test_fast_steps_of_recurrent_models_are_their_layers(case, rows):
    """The logits of one token after another; a wrapped cell and the eager form are called."""
    model, tokens = spread(case.build()), random_ids(rows, 4)
    inputs = {"input_ids": random_ids(rows, 5), "max_new_tokens": 1, "use_cache": True}
    steppers, make = [], model.make_stepper
    model.make_stepper = lambda *args: steppers.append(make(*args)) or steppers[-1]

    def logits_of(form):
        model.config.recurrent_implementation = form
        model.generate(**inputs, eos_token_id=None)
        with torch.inference_mode():
            return torch.stack([steppers[-1].step(column) for column in tokens.unbind(dim=1)])

    torch.testing.assert_close(logits_of("fused"), logits_of("eager"), rtol=1e-4, atol=1e-4)
    is_fast = [type(stepper.steps) is not PlainSteps for stepper in steppers]
    has_form = not getattr(model.config, "attention_window", None) and "sparsemax" not in case.name
    assert is_fast == [has_form, False]
    cell = next(child for child in model.modules() if type(child).__name__.endswith("Cell"))
    cell.register_forward_hook(lambda *args: None)
    logits_of("fused")
    assert case.task == "translation" or type(steppers[-1].steps) is PlainSteps


@pytest.mark.parametrize("name", ["recurrent", "bahdanau"])
def test_a_hook_on_the_softmax_layer_of_a_recurrent_model_is_called(name):
    model, calls = CASES[name].build(), []
    model.lm_head.register_forward_hook(lambda *args: calls.append(args))
    model.generate(random_ids(1, 5), max_new_tokens=4, eos_token_id=None)
    assert len(calls) == 4


def test_a_subclass_with_its_own_forward_is_called():
    model = CASES["gpt"].build()
    calls = []

    class Own(type(model)):
        def forward(self, *args, **kwargs):
            calls.append(1)
            return super().forward(*args, **kwargs)

    model.__class__ = Own
    model.generate(random_ids(1, 5), max_new_tokens=4, eos_token_id=None)
    assert len(calls) == 4
