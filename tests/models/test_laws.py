"""Laws that hold on every rung."""

import inspect
import typing

import pytest
import torch
import torch.nn.functional as F
from tiny import (
    ALL,
    CASES,
    EVERY,
    GENERATORS,
    LANGUAGE_MODELS,
    LENGTH,
    READERS,
    RECURRENT_GENERATORS,
    SOURCE,
    TRANSLATORS,
    TWO_FORMS,
    VOCABULARY,
    by_name,
    inputs_for,
    logits_of,
    pad,
    padded_inputs_for,
    random_ids,
    real_logits,
    targets_for,
)
from torch.testing import assert_close
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, CompileConfig
from transformers.cache_utils import StaticLayer

from hf_edu_models import cpu_kernels
from hf_edu_models.tasks import TASKS

FORMS = pytest.mark.parametrize("form", ["eager", "fused"])


def with_mask(case):
    """Inputs; of token ids with padding on the right of the second row."""
    inputs = inputs_for(case)
    if case.reads_tokens:
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        inputs["attention_mask"][1, ..., 3:] = 0
    return inputs


def bodies_of(case, model):
    """The model with its head, and the base model."""
    return (model,) if case.task == "multiple_choice" or model.base_model is model else (model, model.base_model)


@FORMS
@pytest.mark.parametrize("case", **by_name(GENERATORS))
def test_the_future_never_leaks(case, form):
    model = case.build(form=form)
    inputs = inputs_for(case)
    key = case.key
    changed = dict(inputs)
    changed[key] = inputs[key].clone()
    changed[key][:, 4:] = random_ids(2, LENGTH - 4, seed=9)
    before, after = model(**inputs).logits, model(**changed).logits
    assert_close(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4:], after[:, 4:])


@FORMS
@pytest.mark.parametrize("where", ["left", "right", "middle"])
@pytest.mark.parametrize("case", **by_name(LANGUAGE_MODELS + READERS))
def test_padding_changes_no_real_token(case, where, form):
    model = case.build(form=form)
    inputs = inputs_for(case)
    padded, mask, positions = pad(inputs["input_ids"], where)
    expected = model(**inputs, output_hidden_states=True)
    found = model(input_ids=padded, attention_mask=mask, output_hidden_states=True)
    take = slice(None) if case.per_row else (slice(None), positions)
    assert_close(logits_of(found)[take], logits_of(expected))
    for mine, theirs in zip(found.hidden_states, expected.hidden_states, strict=True):
        assert_close(mine[..., positions, :], theirs)


@FORMS
@pytest.mark.parametrize("case", **by_name([case for case in ALL if case.attends]))
def test_padding_changes_no_gradient(case, form):
    """Much padding, little, and none: unpadded or not, gradients are the same."""
    inputs, targets = inputs_for(case), targets_for(case)
    gradients = []
    for count in (0, 1, 4):
        model = case.build(form=form).train()
        padded_inputs = dict(inputs)
        if count:
            padded_inputs["input_ids"], padded_inputs["attention_mask"], _ = pad(inputs["input_ids"], "right", count)
        padded_targets = targets
        if count and case.task != "translation" and targets.get("labels", torch.zeros(1)).ndim == 2:
            padded_targets = targets | {"labels": pad(targets["labels"], "right", count, -100)[0]}
        model(**padded_inputs, **padded_targets).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    for none, little, much in zip(*gradients, strict=True):
        assert_close([little, much], [none, none], rtol=1e-4, atol=1e-5)


ATTENDING_READERS = [case for case in ALL if case.attends and case.task != "translation"]


@FORMS
@pytest.mark.parametrize("case", **by_name(ATTENDING_READERS))
def test_masks_of_every_kind_mean_the_same(case, form):
    """As in transformers' models: (B, T) of any type, and (B, 1, T, T) as booleans or as numbers to add."""
    model, inputs = case.build(form=form), inputs_for(case)
    mask = torch.ones_like(inputs["input_ids"])
    mask[1, ..., 5:] = 0
    is_visible = mask.bool()[..., None, None, :].expand(*mask.shape[:-1], 1, LENGTH, LENGTH)
    if "gpt" in case.name:
        is_visible = is_visible & torch.ones(LENGTH, LENGTH).tril().bool()
    added = torch.zeros(is_visible.shape).masked_fill(~is_visible, torch.finfo(torch.float32).min)
    take = slice(None) if case.per_row else mask.bool()
    expected = logits_of(model(**inputs, attention_mask=mask))[take]
    for kind in (mask.float(), mask.bool(), is_visible, added):
        assert_close(logits_of(model(**inputs, attention_mask=kind))[take], expected)


@pytest.mark.parametrize("case", **by_name(RECURRENT_GENERATORS))
def test_a_recurrent_model_rejects_a_mask_of_pairs(case):
    inputs = inputs_for(case)
    with pytest.raises(ValueError, match="give one of shape"):
        case.build()(**inputs, attention_mask=torch.ones(2, 1, LENGTH, LENGTH))


@FORMS
@pytest.mark.parametrize("where", ["left", "right", "middle"])
@pytest.mark.parametrize("case", **by_name(TRANSLATORS))
def test_source_padding_changes_no_logits(case, where, form):
    model = case.build(form=form)
    inputs = inputs_for(case)
    padded, mask, positions = pad(inputs["input_ids"], where)
    expected = model(**inputs)
    found = model(**(inputs | {"input_ids": padded}), attention_mask=mask)
    assert_close(found.logits, expected.logits)
    assert_close(found.encoder_last_hidden_state[:, positions], expected.encoder_last_hidden_state)


@FORMS
@pytest.mark.parametrize("where", ["left", "right"])
@pytest.mark.parametrize("case", **by_name(TRANSLATORS))
def test_target_padding_changes_no_logits(case, where, form):
    model = case.build(form=form)
    inputs = inputs_for(case)
    padded, mask, positions = pad(inputs["decoder_input_ids"], where)
    found = model(**(inputs | {"decoder_input_ids": padded}), decoder_attention_mask=mask)
    assert_close(found.logits[:, positions], model(**inputs).logits)


@pytest.mark.parametrize("case", **by_name(RECURRENT_GENERATORS))
def test_the_state_after_padding_is_the_state_without(case):
    model = case.build()
    inputs = inputs_for(case)
    key, mask_key = "input_ids", "attention_mask"
    if case.task == "translation":
        key, mask_key = "decoder_input_ids", "decoder_attention_mask"
    expected = model(**inputs, use_cache=True).past_key_values
    for where in ("left", "right"):
        padded, mask, _ = pad(inputs[key], where)
        found = model(**(inputs | {key: padded, mask_key: mask}), use_cache=True).past_key_values
        assert len(found) == len(expected) > 0
        for level in range(len(expected)):
            for mine, theirs in zip(found.state(level), expected.state(level), strict=True):
                assert_close(mine, theirs)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("case", **by_name(TWO_FORMS))
def test_eager_equals_fused_in_outputs_and_gradients(case, padded):
    inputs, targets = inputs_for(case), targets_for(case)
    if padded:
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        inputs["attention_mask"][1, ..., 3:] = 0
    results = []
    for form in ("eager", "fused"):
        model = case.build(form=form)
        outputs = model(**inputs, **targets)
        outputs.loss.backward()
        results.append((logits_of(outputs), {name: parameter.grad for name, parameter in model.named_parameters()}))
    (logits, gradients), (fused_logits, fused_gradients) = results
    if padded and case.task != "translation" and not case.per_row:
        logits, fused_logits = logits[inputs["attention_mask"] == 1], fused_logits[inputs["attention_mask"] == 1]
    assert_close(logits, fused_logits, rtol=0, atol=1e-5)
    for name, gradient in gradients.items():
        assert (gradient is None) == (fused_gradients[name] is None), name
        if gradient is not None:
            assert_close(
                gradient, fused_gradients[name], rtol=0, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
            )


@pytest.mark.parametrize("case", **by_name([case for case in ALL if case.attends or "bahdanau" in case.name]))
def test_attentions_are_returned_by_either_implementation(case):
    """sdpa computes none, so that call runs eager."""
    kinds = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
    eager, fused = (case.build(form=form)(**inputs_for(case), output_attentions=True) for form in ("eager", "fused"))
    shown = [kind for kind in kinds if eager.get(kind)]
    assert shown and shown == [kind for kind in kinds if fused.get(kind)]
    for kind in shown:
        for weights, others in zip(eager[kind], fused[kind], strict=True):
            assert_close(weights, others)
            assert weights.ndim == 4
            assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))
    assert_close(logits_of(fused), logits_of(eager))
    assert not any(case.build()(**inputs_for(case)).get(kind) for kind in kinds)


@pytest.mark.parametrize("case", **by_name(GENERATORS))
def test_cached_steps_equal_one_pass(case):
    model = case.build()
    inputs = inputs_for(case)
    key = case.key
    expected = model(**inputs, use_cache=False)
    assert expected.past_key_values is None
    cache, logits = None, []
    for piece in inputs[key].split([1, 3, 1, 2], dim=1):
        outputs = model(**(inputs | {key: piece}), past_key_values=cache, use_cache=True)
        cache = outputs.past_key_values
        logits.append(outputs.logits)
    assert cache.get_seq_length() == LENGTH
    assert_close(torch.cat(logits, dim=1), expected.logits)


MODES = {
    "greedy": {},
    "sample": {"do_sample": True, "num_return_sequences": 3},
    "beam": {"num_beams": 4, "num_return_sequences": 2},
    "beam-sample": {"num_beams": 3, "do_sample": True},
}


def generate(model, seed=5, **kwargs):
    torch.manual_seed(seed)
    outputs = model.generate(
        max_new_tokens=9, return_dict_in_generate=True, output_scores=True, pad_token_id=0, **kwargs
    )
    return outputs.sequences, torch.stack(outputs.scores)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", **by_name(GENERATORS))
def test_generate_with_and_without_cache_agree(case, mode):
    model = case.build()
    inputs = {"input_ids": inputs_for(case)["input_ids"], **MODES[mode]}
    inputs["input_ids"], inputs["attention_mask"], _ = pad(inputs["input_ids"], "left", count=1)
    cached, uncached = (generate(model, use_cache=use_cache, **inputs) for use_cache in (True, False))
    assert torch.equal(cached[0], uncached[0])
    assert_close(cached[1], uncached[1])
    assert len(cached[0]) == 2 * MODES[mode].get("num_return_sequences", 1)


ATTENDING_GENERATORS = [case for case in GENERATORS if case.attends]


@FORMS
@pytest.mark.parametrize("mode", ["greedy", "beam"])
@pytest.mark.parametrize("case", **by_name(ATTENDING_GENERATORS))
def test_a_static_cache_generates_the_same(case, mode, form):
    model, options = case.build(form=form), {"max_new_tokens": 9, "pad_token_id": 0, **MODES[mode]}
    ids, mask, _ = pad(inputs_for(case)["input_ids"], "left")
    expected = model.generate(ids, attention_mask=mask, **options)
    options |= {"cache_implementation": "static", "return_dict_in_generate": True}
    found = model.generate(ids, attention_mask=mask, **options)
    assert torch.equal(found.sequences, expected)
    cache = found.past_key_values
    assert {type(layer) for layer in getattr(cache, "self_attention_cache", cache).layers} == {StaticLayer}


@pytest.mark.parametrize("case", **by_name([case for case in GENERATORS if case.name in ("gpt", "transformer")]))
def test_a_static_cache_is_for_compiled_steps(case):
    model, options = case.build(), {"max_new_tokens": 9, "pad_token_id": 0}
    ids, mask, _ = pad(inputs_for(case)["input_ids"], "left")
    expected = model.generate(ids, attention_mask=mask, **options)
    compiled = CompileConfig(backend="aot_eager", fullgraph=True, mode=None)
    compiled._compile_all_devices = True
    options |= {"cache_implementation": "static", "compile_config": compiled}
    assert torch.equal(model.generate(ids, attention_mask=mask, **options), expected)


ASSISTANTS = {
    "assistant": lambda model: {"assistant_model": model},
    "prompt-lookup": lambda _: {"prompt_lookup_num_tokens": 3},
    "early-exit": lambda _: {"assistant_early_exit": 1},
}


@pytest.mark.parametrize("kind", ASSISTANTS)
@pytest.mark.parametrize("case", **by_name(GENERATORS))
def test_assisted_tokens_are_the_greedy_ones(case, kind):
    model, assistant = case.build(), case.build()
    for parameter in assistant.parameters():  # close enough that some of its tokens are right
        parameter.data += 0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3))
    options = {"max_new_tokens": 20, "pad_token_id": 0, "eos_token_id": None}
    ids, calls = random_ids(1, 6), []
    expected = model.generate(ids, **options)
    if not case.attends:
        with pytest.raises(ValueError, match="assisted generation is not supported with stateful models"):
            model.generate(ids, **options, **ASSISTANTS[kind](assistant))
        return
    model.register_forward_hook(lambda *_: calls.append(1))
    assert torch.equal(model.generate(ids, **options, **ASSISTANTS[kind](assistant)), expected)
    assert kind != "assistant" or len(calls) < 20  # it saved some steps


def test_a_recurrent_assistant_raises_an_error():
    model, assistant = CASES["gpt"].build(), CASES["recurrent"].build()
    with pytest.raises(ValueError, match="a recurrent state cannot forget its last tokens"):
        model.generate(random_ids(1, 6), assistant_model=assistant, max_new_tokens=20, eos_token_id=None)


@pytest.mark.parametrize("mode", ["greedy", "beam"])
@pytest.mark.parametrize("case", **by_name(GENERATORS))
def test_a_batch_generates_what_its_rows_do(case, mode):
    model = case.build()
    side = "right" if case.task == "translation" else "left"
    long, short = random_ids(1, 6, seed=1), random_ids(1, 4, seed=2)
    padded, mask, _ = pad(short, side)
    both = {"input_ids": torch.cat([long, padded]), "attention_mask": torch.cat([torch.ones_like(mask), mask])}
    batch = generate(model, **both, **MODES[mode])[0]
    rows = [generate(model, input_ids=ids, **MODES[mode])[0] for ids in (long, short)]
    each = len(batch) // 2
    for number, row in enumerate(rows):
        found = batch[each * number : each * (number + 1)]
        if case.task == "language_modeling":  # the prompt's padding is not part of the generated text
            found, row = found[:, 6:], row[:, (6, 4)[number] :]
        length = min(found.shape[1], row.shape[1])
        assert torch.equal(found[:, :length], row[:, :length])
        # What follows the end is filler: padding or, in beam search with pad_token_id 0, the end again.
        assert torch.isin(torch.cat([found[:, length:], row[:, length:]], dim=1), torch.tensor([0, 3])).all()


@pytest.mark.parametrize("case", **by_name(GENERATORS))
def test_generate_continues_from_a_cache(case):
    model = case.build()
    source, prompt = inputs_for(case)["input_ids"], random_ids(2, 4, seed=8)
    prompt[:, 0] = 2  # where a decoder starts; `generate` would put it there
    if case.task == "language_modeling":
        inputs, first = {"input_ids": prompt}, {"input_ids": prompt[:, :3]}
    else:
        inputs = {"input_ids": source, "decoder_input_ids": prompt}
        first = {"input_ids": source, "decoder_input_ids": prompt[:, :3]}
    cache = model(**first, use_cache=True).past_key_values
    expected = generate(model, **inputs)[0]
    assert torch.equal(generate(model, **inputs, past_key_values=cache)[0], expected)
    assert torch.equal(expected[:, :4], prompt)


@pytest.mark.parametrize("case", **by_name(GENERATORS))
def test_a_prefix_is_kept(case):
    model = case.build()
    key = case.key
    inputs = inputs_for(case)
    inputs[key][:, 0] = 2  # where a decoder starts
    assert torch.equal(generate(model, **inputs)[0][:, :LENGTH], inputs[key])


COUNTED = GENERATORS + [case for case in READERS if case.task in ("token_classification", "masked_lm")]


@pytest.mark.parametrize("case", **by_name(COUNTED))
def test_labels_of_minus_100_never_count(case):
    model = case.build()
    inputs, labels = inputs_for(case), targets_for(case)["labels"]
    labels[0, 2:5] = -100
    outputs = model(**inputs, labels=labels)
    logits, targets = outputs.logits, labels
    if case.task == "language_modeling":
        logits, targets = logits[:, :-1], labels[:, 1:]
    counted = targets != -100
    assert_close(outputs.loss, F.cross_entropy(logits[counted], targets[counted]))
    labels[:] = -100
    assert model(**inputs, labels=labels).loss == 0


WITH_LM_HEAD = [case for case in ALL if TASKS[case.task].targets.get("labels") == ("token", "vocab_size")]


@pytest.mark.parametrize("case", **by_name(WITH_LM_HEAD))
def test_the_loss_without_logits_is_the_loss_with_them(case):
    model = case.build().train()
    inputs, targets = inputs_for(case), targets_for(case)
    targets["labels"][1, 3:] = -100
    targets["labels"][0, 1:4] = -100  # a hole, too: what follows it still counts
    gradients = []
    for skip_logits in (None, False):
        model.zero_grad()
        outputs = model(**inputs, **targets, skip_logits=skip_logits)
        assert (logits_of(outputs) is None) == (skip_logits is None)
        outputs.loss.backward()
        gradients.append(
            [outputs.loss.detach()]
            + [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
        )
    for without, with_logits in zip(*gradients, strict=True):
        assert_close(without, with_logits, rtol=1e-4, atol=1e-6)


def halve(module, inputs, outputs):
    return outputs / 2


def wrap_call(module):
    """As Accelerate does."""
    plain = module.forward
    module.forward = lambda inputs: plain(inputs) / 2


class Halved(torch.nn.Linear):
    """As PEFT and quantizers do."""

    def forward(self, inputs):
        return super().forward(inputs) / 2


CHANGES = {
    "hook": lambda module: module.register_forward_hook(halve),
    "input hook": lambda module: module.register_forward_pre_hook(lambda module, inputs: (inputs[0] / 2,)),
    "wrapped call": wrap_call,
    "subclass": lambda module: setattr(module, "__class__", Halved),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("case", **by_name([case for case in WITH_LM_HEAD if case.name == case.rung.name]))
def test_a_changed_softmax_layer_is_called_in_training(case, change):
    """Adapters, hooks and quantizers change what a layer computes: the loss without logits must not bypass them."""
    model, batch = case.build().train(), inputs_for(case) | targets_for(case)
    plain = model(**batch).loss
    CHANGES[change](model.get_output_embeddings())
    changed, with_logits = model(**batch), model(**batch, skip_logits=False)
    assert logits_of(changed) is None
    assert_close(changed.loss, with_logits.loss)
    assert not torch.isclose(changed.loss, plain)


SEVERAL_LOSSES = ("pretraining", "bidirectional_lm", "question_answering")


@pytest.mark.parametrize(
    "case",
    **by_name(
        [
            case
            for case in EVERY
            if "labels" in targets_for(case) and case.task not in SEVERAL_LOSSES and not case.has_batch_norm
        ]
    ),
)
def test_four_small_batches_equal_one_large(case):
    model = case.build().train()
    inputs, labels = inputs_for(case, batch=8), targets_for(case, batch=8)["labels"]
    if labels.ndim == 2:
        labels[1:4, 2:] = -100
    model(**inputs, labels=labels).loss.backward()
    expected = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    targets = labels[:, 1:] if case.task == "language_modeling" else labels
    items = (targets != -100).sum()
    for start in range(0, 8, 2):
        rows = slice(start, start + 2)
        piece = {key: value[rows] for key, value in inputs.items()}
        model(**piece, labels=labels[rows], num_items_in_batch=items).loss.backward()
    found = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert_close(found, expected)


@FORMS
@pytest.mark.parametrize("case", **by_name(EVERY))
def test_dropout_can_be_switched_off(case, form):
    """TRL's `disable_dropout` and others set `p` of every nn.Dropout to zero: no dropout may be anything else."""
    fields = [name for name in case.rung.config.__dataclass_fields__ if name.endswith("dropout")]
    fields = [name for name in fields if case.reads_tokens or name != "embedding_dropout"]  # a series has no words
    model, batch = case.build(form=form, **dict.fromkeys(fields, 0.5)).train(), inputs_for(case) | targets_for(case)
    layers = [module for module in model.modules() if isinstance(module, torch.nn.Dropout)]
    assert torch.equal(model(**batch).loss, model(**batch).loss) != bool(layers)
    for layer in layers:
        layer.p = 0
    assert torch.equal(model(**batch).loss, model(**batch).loss)
    assert_close(model(**batch).loss, case.build().train()(**batch).loss)


@pytest.mark.parametrize("case", **by_name(EVERY))
def test_save_equals_load(case, tmp_path):
    model = case.build()
    model.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").exists()
    loaded = type(model).from_pretrained(tmp_path)
    assert loaded.config.to_dict() == model.config.to_dict() | {"_name_or_path": loaded.config._name_or_path}
    for name, parameter in model.state_dict().items():
        assert torch.equal(parameter, loaded.state_dict()[name]), name
    inputs = inputs_for(case)
    # Not to the bit: a product rounds by where its numbers begin in memory, and a file may have them anywhere.
    assert_close(logits_of(model(**inputs)), logits_of(loaded(**inputs)), rtol=0, atol=1e-7)


@pytest.mark.parametrize("case", **by_name(EVERY))
def test_a_tuple_holds_what_the_output_does(case):
    model = case.build()
    batch = inputs_for(case) | targets_for(case) | {"output_hidden_states": True, "output_attentions": True}
    outputs, as_tuple = model(**batch), model(**batch, return_dict=False)
    assert isinstance(as_tuple, tuple) and len(as_tuple) == len(outputs.to_tuple())
    assert_close(as_tuple[0], outputs.loss)
    assert_close(as_tuple[1], outputs.to_tuple()[1])


@FORMS
@pytest.mark.parametrize("use_reentrant", [False, True], ids=["not-reentrant", "reentrant"])
@pytest.mark.parametrize("case", **by_name([case for case in EVERY if case.is_checkpointable]))
def test_checkpointed_gradients_are_the_same(case, use_reentrant, form):
    inputs = with_mask(case)
    gradients = []
    for checkpointing in (False, True):
        model = case.build(form=form).train()
        if checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": use_reentrant})
            assert model.is_gradient_checkpointing
        model(**inputs, **targets_for(case)).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for plain, checkpointed in zip(*gradients, strict=True):
        assert (plain is None) == (checkpointed is None)
        if plain is not None:
            assert_close(plain, checkpointed)


@pytest.mark.skipif(not cpu_kernels.is_available(), reason="this torch has no oneDNN")
@pytest.mark.parametrize("case", **by_name(EVERY))
def test_cpu_kernels_change_no_output_and_no_gradient(case):
    results = []
    for choice in ("off", "onednn:0,0,0"):
        model = case.build()
        with cpu_kernels.enabled(choice):
            outputs = model(**inputs_for(case), **targets_for(case))
            outputs.loss.backward()
        grads = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
        results.append((outputs.loss, logits_of(outputs), grads))
    assert_close(results[1], results[0])


@FORMS
@pytest.mark.parametrize("case", **by_name(EVERY))
def test_bfloat16_is_close(case, form):
    model = case.build(form=form)
    inputs = with_mask(case)
    expected = model(**inputs, **targets_for(case))
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(**inputs, **targets_for(case))
    mixed.loss.backward()
    whole = model.to(torch.bfloat16)(**inputs, **targets_for(case))
    whole.loss.backward()
    for outputs in (mixed, whole):
        assert_close(outputs.loss.float(), expected.loss, rtol=0.1, atol=0.1)
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("case", **by_name(GENERATORS))
def test_generate_where_only_forward_is_under_autocast(case):
    """As in evaluations of Trainer: Accelerate wraps `forward`, and `generate()` runs an encoder in float32."""
    model, inputs = case.build(), inputs_for(case)
    inputs.pop("decoder_input_ids", None)
    options = {"max_new_tokens": 1, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    expected = model.generate(**inputs, **options).logits[0]
    model.forward = torch.autocast("cpu", torch.bfloat16)(model.forward)
    found = model.generate(**inputs, **options).logits[0]
    assert_close(found.float(), expected, rtol=0.1, atol=0.1)


@FORMS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("case", **by_name(EVERY))
def test_half_precision_checkpoints_are_close(case, dtype, form, tmp_path):
    """`from_pretrained(dtype=...)`: logits within some roundings of the largest, finite gradients, and `generate()`."""
    model, inputs, targets = case.build(form=form), with_mask(case), targets_for(case)
    mask = inputs.get("attention_mask")
    take = slice(None) if case.per_row or case.task == "translation" or mask is None else mask.bool()
    model.save_pretrained(tmp_path)
    half = type(model).from_pretrained(tmp_path, dtype=dtype)
    if case.attends and form == "eager":  # not saved
        half.set_attn_implementation("eager")
    assert {parameter.dtype for parameter in half.parameters()} == {dtype}
    expected, found = logits_of(model(**inputs))[take], logits_of(half(**inputs))[take]
    assert found.dtype == dtype
    tolerance = 6 * torch.finfo(dtype).eps * float(expected.abs().max())
    assert_close(found.float(), expected, rtol=0, atol=tolerance)
    half.train()(**inputs, **targets).loss.backward()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in half.parameters())
    if case in GENERATORS:
        ids = half.eval().generate(inputs["input_ids"], attention_mask=mask, num_beams=2, max_new_tokens=4)
        assert ids.shape[0] == 2


@pytest.mark.parametrize("case", **by_name(ALL))
def test_resized_vocabulary(case):
    model = case.build()
    inputs = inputs_for(case)
    before = logits_of(model(**inputs))
    model.resize_token_embeddings(VOCABULARY + 4)
    assert model.config.vocab_size == VOCABULARY + 4
    after = logits_of(model(**inputs))
    assert_close(after[..., : before.shape[-1]], before)
    key = case.key
    inputs[key][..., 0] = VOCABULARY + 3
    assert logits_of(model(**inputs)).isfinite().all()


TIED = [case for case in GENERATORS if case.implementation_field and "transformer" not in case.name]


@pytest.mark.parametrize("case", **by_name(TIED))
def test_tied_embeddings_stay_tied(case, tmp_path):
    sizes = {name: 12 for name in ("embedding_size", "maxout_size") if name in case.settings}
    model = case.build(tie_word_embeddings=True, **sizes)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    body = loaded.model.decoder if case.task == "translation" else loaded.model
    assert loaded.lm_head.weight is body.embed_tokens.weight
    assert_close(loaded(**inputs_for(case)).logits, model(**inputs_for(case)).logits)
    loose = case.build(tie_word_embeddings=False)
    body = loose.model.decoder if case.task == "translation" else loose.model
    assert loose.lm_head.weight is not body.embed_tokens.weight


@pytest.mark.parametrize("case", **by_name(EVERY))
def test_a_checkpoint_names_every_head(case, tmp_path):
    case.build().save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path)
    stem = config.model_type.removeprefix("edu_")
    expected = {auto: f"modeling_{stem}.{name}" for auto, name in type(config).heads.items()}
    assert config.auto_map == {"AutoConfig": f"configuration_{stem}.{type(config).__name__}"} | expected
    assert (tmp_path / f"modeling_{stem}.py").exists()


@pytest.mark.parametrize("case", **by_name(GENERATORS))
def test_auto_classes_find_it(case, tmp_path):
    model = case.build()
    model.save_pretrained(tmp_path)
    auto = AutoModelForSeq2SeqLM if case.task == "translation" else AutoModelForCausalLM
    assert type(auto.from_pretrained(tmp_path)) is type(model)
    assert type(auto.from_config(model.config)) is type(model)


FIRST_OF_HEAD = list({case.head: case for case in reversed(EVERY)}.values())
# One of each kind in the suite; compiling every head takes minutes.
COMPILED = (
    "kernel",
    "feedforward",
    "recurrent-gru",
    "seq2seq-cho",
    "bahdanau",
    "transformer",
    "gpt",
    "bert-ForMaskedLM",
)
COMPILED_CASES = [case for case in EVERY if case.name in COMPILED or case in FIRST_OF_HEAD]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=() if case.name in COMPILED else pytest.mark.slow)
        for case in COMPILED_CASES
    ],
)
def test_compiled_is_the_same(case):
    """In one graph, with padding: logits, loss and gradients."""
    torch.compiler.reset()  # the number of graphs is limited for code that all models share
    model = case.build()
    inputs = padded_inputs_for(case, 3, LENGTH, LENGTH)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert_close(real_logits(case, compiled(**inputs), inputs), real_logits(case, model(**inputs), inputs))
    model.train()
    targets = targets_for(case, batch=3, seed=4)
    if targets.get("labels", torch.zeros(1)).ndim == 2:
        targets["labels"][0, :3] = targets["labels"][2, 5:] = -100
    losses, gradients = [], []
    for form in (model, compiled):
        model.zero_grad()
        losses.append(form(**inputs, **targets).loss)
        losses[-1].backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
    assert_close(losses[0], losses[1])
    assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-5)


EXPORTED_VARIANTS = ("recurrent-lstm-window", "recurrent-ForTokenClassification-gru-bidirectional", "seq2seq-cho")
EXPORTED = FIRST_OF_HEAD + [case for case in ALL if case.name in EXPORTED_VARIANTS]
SHAPES = ((3, 4, 5), (1, 9, 3), (5, 7, 11))  # batch, length of the source or text, length of the target


@pytest.mark.parametrize("case", **by_name(EXPORTED))
def test_an_exported_program_takes_any_shape(case):
    torch.compiler.reset()  # a loop that was recorded with a fixed length would put a guard into the next program
    model = case.build(use_cache=False)
    example = padded_inputs_for(case, 2, 6, 8)
    dynamic = torch.export.Dim.DYNAMIC  # an axis that became a constant is an error
    axes = {name: {0: dynamic, ids.ndim - 1: dynamic} for name, ids in example.items()}
    if not case.reads_tokens:
        names = {
            name: [axis for axis, each in enumerate(each) if each != "features"] for name, each in case.inputs.items()
        }
        axes = {name: dict.fromkeys(found, dynamic) for name, found in names.items()}
    program = torch.export.export(model, (), example, dynamic_shapes=axes).module()
    for batch, *lengths in SHAPES:
        inputs = padded_inputs_for(case, batch, *lengths, seed=batch)
        found, expected = (real_logits(case, form(**inputs), inputs) for form in (program, model))
        assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", **by_name(TRANSLATORS))
def test_labels_make_the_decoder_inputs(case):
    model = case.build()
    source, labels = random_ids(2, SOURCE), random_ids(2, LENGTH, seed=4)
    labels[1, 5:] = -100
    by_hand = torch.cat([torch.full((2, 1), model.config.decoder_start_token_id), labels[:, :-1]], dim=1).masked_fill_(
        torch.tensor([[False] * LENGTH, [False] * 6 + [True]]), 0
    )
    assert torch.equal(model.prepare_decoder_input_ids_from_labels(labels), by_hand)
    expected = model(input_ids=source, decoder_input_ids=by_hand, labels=labels)
    assert_close(model(input_ids=source, labels=labels).loss, expected.loss)


@pytest.mark.parametrize("case", **by_name(ALL))
def test_inputs_embeds_equal_input_ids(case):
    model = case.build()
    inputs = inputs_for(case)
    expected = logits_of(model(**inputs))
    inputs["inputs_embeds"] = model.get_input_embeddings()(inputs.pop("input_ids"))
    assert_close(logits_of(model(**inputs)), expected)


@pytest.mark.parametrize("case", **by_name(LANGUAGE_MODELS))
def test_shift_labels_count_the_last_token_too(case):
    """A stream that continues in the next batch has a label for its last token."""
    model = case.build()
    ids, following = inputs_for(case)["input_ids"], random_ids(2, LENGTH, seed=6)
    outputs = model(ids, shift_labels=following)
    assert_close(outputs.loss, F.cross_entropy(outputs.logits.flatten(0, 1), following.flatten()))


UNKNOWN = {"cu_seq_lens_q": torch.tensor([0, 3]), "tokenizer": object(), "no_such_keyword": 1}


@pytest.mark.parametrize("case", **by_name(EVERY))
def test_unknown_keywords_change_nothing(case):
    """As in core models: `generate(stop_strings=...)`, packing and TRL hand every model what only some need."""
    model, inputs = case.build(), inputs_for(case)
    for body in bodies_of(case, model) if case.reads_tokens else (model,):
        targets = targets_for(case) if body is model else {}
        expected = body(**inputs, **targets).to_tuple()[0]
        assert_close(body(**inputs, **targets, **UNKNOWN).to_tuple()[0], expected)
        assert_close(body(**inputs, **targets, **UNKNOWN, use_cache=False).to_tuple()[0], expected)
        assert_close(body(**inputs, **targets, **UNKNOWN, use_cache=True).to_tuple()[0], expected)
    if case.task == "translation":
        encoder, source = model.get_encoder(), inputs["input_ids"]
        assert_close(encoder(source, **UNKNOWN)[0], encoder(source)[0])


@pytest.mark.parametrize("case", **by_name(EVERY))
def test_forward_declares_what_it_returns(case):
    """Clients read the fields of the output there."""
    model, inputs = case.build(), inputs_for(case)
    for body in bodies_of(case, model) if case.reads_tokens else (model,):
        returned = type(body(**inputs))
        assert typing.get_type_hints(type(body).forward)["return"] is returned
        assert inspect.signature(type(body).forward).return_annotation is returned
