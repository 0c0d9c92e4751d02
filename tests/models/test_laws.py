"""Laws that hold on every rung."""

import pytest
import torch
import torch.nn.functional as F
from tiny import (
    ALL,
    BERTS,
    GENERATORS,
    LANGUAGE_MODELS,
    LENGTH,
    READERS,
    RECURRENT_GENERATORS,
    SIZES,
    SOURCE,
    TRANSLATORS,
    TWO_FORMS,
    by_name,
    inputs_for,
    logits_of,
    pad,
    targets_for,
    words,
)
from torch.testing import assert_close
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

FORMS = pytest.mark.parametrize("form", ["eager", "fused"])


@FORMS
@pytest.mark.parametrize("case", **by_name(GENERATORS))
def test_the_future_never_leaks(case, form):
    model = case.build(form=form)
    inputs = inputs_for(case)
    key = "decoder_input_ids" if case.task == "seq2seq" else "input_ids"
    changed = dict(inputs)
    changed[key] = inputs[key].clone()
    changed[key][:, 4:] = words(2, LENGTH - 4, seed=9)
    before, after = model(**inputs).logits, model(**changed).logits
    assert_close(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4:], after[:, 4:])


@FORMS
@pytest.mark.parametrize("where", ["left", "right", "middle"])
@pytest.mark.parametrize("case", **by_name(LANGUAGE_MODELS + READERS))
def test_padding_changes_no_real_token(case, where, form):
    model = case.build(form=form)
    inputs = inputs_for(case)
    padded, mask, places = pad(inputs["input_ids"], where)
    expected = model(**inputs, output_hidden_states=True)
    found = model(input_ids=padded, attention_mask=mask, output_hidden_states=True)
    take = slice(None) if case.task in ("classify", "next", "choose") else (slice(None), places)
    assert_close(logits_of(found)[take], logits_of(expected))
    for mine, theirs in zip(found.hidden_states, expected.hidden_states, strict=True):
        assert_close(mine[:, places], theirs)


@FORMS
@pytest.mark.parametrize("case", **by_name([case for case in ALL if case.attends]))
def test_padding_changes_no_gradient(case, form):
    """Much padding, little, and none: packed or not, training is the same."""
    inputs, targets = inputs_for(case), targets_for(case)
    gradients = []
    for count in (0, 1, 4):
        model = case.build(form=form).train()
        given = dict(inputs)
        if count:
            given["input_ids"], given["attention_mask"], _ = pad(inputs["input_ids"], "right", count)
        told = targets
        if count and case.task != "seq2seq" and targets.get("labels", torch.zeros(1)).ndim == 2:
            told = targets | {"labels": pad(targets["labels"], "right", count, -100)[0]}
        model(**given, **told).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    for none, little, much in zip(*gradients, strict=True):
        assert_close([little, much], [none, none], rtol=1e-4, atol=1e-5)


@FORMS
@pytest.mark.parametrize("where", ["left", "right", "middle"])
@pytest.mark.parametrize("case", **by_name(TRANSLATORS))
def test_source_padding_changes_no_target_word(case, where, form):
    model = case.build(form=form)
    inputs = inputs_for(case)
    padded, mask, places = pad(inputs["input_ids"], where)
    expected = model(**inputs)
    found = model(**(inputs | {"input_ids": padded}), attention_mask=mask)
    assert_close(found.logits, expected.logits)
    assert_close(found.encoder_last_hidden_state[:, places], expected.encoder_last_hidden_state)


@FORMS
@pytest.mark.parametrize("where", ["left", "right"])
@pytest.mark.parametrize("case", **by_name(TRANSLATORS))
def test_target_padding_changes_no_target_word(case, where, form):
    model = case.build(form=form)
    inputs = inputs_for(case)
    padded, mask, places = pad(inputs["decoder_input_ids"], where)
    found = model(**(inputs | {"decoder_input_ids": padded}), decoder_attention_mask=mask)
    assert_close(found.logits[:, places], model(**inputs).logits)


@pytest.mark.parametrize("case", **by_name(RECURRENT_GENERATORS))
def test_the_state_after_padding_is_the_state_without(case):
    model = case.build()
    inputs = inputs_for(case)
    key, mask_key = "input_ids", "attention_mask"
    if case.task == "seq2seq":
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
    if padded and case.task not in ("seq2seq", "classify", "next", "choose"):
        logits, fused_logits = logits[inputs["attention_mask"] == 1], fused_logits[inputs["attention_mask"] == 1]
    assert_close(logits, fused_logits, rtol=0, atol=1e-5)
    for name, gradient in gradients.items():
        assert (gradient is None) == (fused_gradients[name] is None), name
        if gradient is not None:
            assert_close(
                gradient, fused_gradients[name], rtol=0, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
            )


@pytest.mark.parametrize("case", **by_name([case for case in ALL if case.attends or "bahdanau" in case.name]))
def test_attentions_are_shown_by_either_form(case):
    """The fast form has none to show, so it is left for that call, and no error comes of it."""
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
    key = "decoder_input_ids" if case.task == "seq2seq" else "input_ids"
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


@pytest.mark.parametrize("mode", ["greedy", "beam"])
@pytest.mark.parametrize("case", **by_name(GENERATORS))
def test_a_batch_generates_what_its_rows_do(case, mode):
    model = case.build()
    side = "right" if case.task == "seq2seq" else "left"
    long, short = words(1, 6, seed=1), words(1, 4, seed=2)
    padded, mask, _ = pad(short, side)
    both = {"input_ids": torch.cat([long, padded]), "attention_mask": torch.cat([torch.ones_like(mask), mask])}
    batch = generate(model, **both, **MODES[mode])[0]
    rows = [generate(model, input_ids=ids, **MODES[mode])[0] for ids in (long, short)]
    each = len(batch) // 2
    for number, row in enumerate(rows):
        found = batch[each * number : each * (number + 1)]
        if case.task == "lm":  # the prompt's padding is not part of what was said
            found, row = found[:, 6:], row[:, (6, 4)[number] :]
        length = min(found.shape[1], row.shape[1])
        assert torch.equal(found[:, :length], row[:, :length])
        # What follows the end is filler: padding or, in beam search with pad_token_id 0, the end again.
        assert torch.isin(torch.cat([found[:, length:], row[:, length:]], dim=1), torch.tensor([0, 2])).all()


@pytest.mark.parametrize("case", **by_name(GENERATORS))
def test_generate_goes_on_from_a_given_cache(case):
    model = case.build()
    source, prompt = inputs_for(case)["input_ids"], words(2, 4, seed=8)
    prompt[:, 0] = 1  # where a decoder starts; `generate` would put it there
    if case.task == "lm":
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
    key = "decoder_input_ids" if case.task == "seq2seq" else "input_ids"
    inputs = inputs_for(case)
    inputs[key][:, 0] = 1
    assert torch.equal(generate(model, **inputs)[0][:, :LENGTH], inputs[key])


COUNTED = GENERATORS + [case for case in READERS if case.task in ("tag", "mask")]


@pytest.mark.parametrize("case", **by_name(COUNTED))
def test_labels_of_minus_100_never_count(case):
    model = case.build()
    inputs, labels = inputs_for(case), targets_for(case)["labels"]
    labels[0, 2:5] = -100
    outputs = model(**inputs, labels=labels)
    logits, targets = outputs.logits, labels
    if case.task == "lm":
        logits, targets = logits[:, :-1], labels[:, 1:]
    counted = targets != -100
    assert_close(outputs.loss, F.cross_entropy(logits[counted], targets[counted]))
    labels[:] = -100
    assert model(**inputs, labels=labels).loss == 0


@pytest.mark.parametrize("case", **by_name(GENERATORS + [case for case in BERTS if case.task in ("mask", "pretrain")]))
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


@pytest.mark.parametrize("case", **by_name([case for case in ALL if case.task not in ("pretrain", "answer")]))
def test_four_small_batches_equal_one_large(case):
    model = case.build().train()
    inputs, labels = inputs_for(case, batch=8), targets_for(case, batch=8)["labels"]
    if labels.ndim == 2:
        labels[1:4, 2:] = -100
    model(**inputs, labels=labels).loss.backward()
    expected = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    targets = labels[:, 1:] if case.task == "lm" else labels
    items = (targets != -100).sum()
    for start in range(0, 8, 2):
        rows = slice(start, start + 2)
        piece = {key: value[rows] for key, value in inputs.items()}
        model(**piece, labels=labels[rows], num_items_in_batch=items).loss.backward()
    found = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert_close(found, expected)


@pytest.mark.parametrize("case", **by_name(ALL))
def test_save_equals_load(case, tmp_path):
    model = case.build()
    model.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").exists()
    loaded = type(model).from_pretrained(tmp_path)
    assert loaded.config.to_dict() == model.config.to_dict() | {"_name_or_path": loaded.config._name_or_path}
    for name, parameter in model.state_dict().items():
        assert torch.equal(parameter, loaded.state_dict()[name]), name
    inputs = inputs_for(case)
    assert torch.equal(logits_of(model(**inputs)), logits_of(loaded(**inputs)))


@pytest.mark.parametrize("case", **by_name(ALL))
def test_a_tuple_holds_what_the_output_does(case):
    model = case.build()
    given = inputs_for(case) | targets_for(case) | {"output_hidden_states": True, "output_attentions": True}
    outputs, as_tuple = model(**given), model(**given, return_dict=False)
    assert isinstance(as_tuple, tuple) and len(as_tuple) == len(outputs.to_tuple())
    assert_close(as_tuple[0], outputs.loss)
    assert_close(as_tuple[1], outputs.to_tuple()[1])


@pytest.mark.parametrize("case", **by_name(ALL))
def test_checkpointed_gradients_are_the_same(case):
    gradients = []
    for checkpointing in (False, True):
        model = case.build().train()
        if checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            assert model.is_gradient_checkpointing
        model(**inputs_for(case), **targets_for(case)).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    for plain, checkpointed in zip(*gradients, strict=True):
        assert_close(plain, checkpointed)


@FORMS
@pytest.mark.parametrize("case", **by_name(ALL))
def test_bfloat16_is_close(case, form):
    model = case.build(form=form)
    inputs = inputs_for(case)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    inputs["attention_mask"][1, ..., 3:] = 0
    expected = model(**inputs, **targets_for(case))
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(**inputs, **targets_for(case))
    mixed.loss.backward()
    whole = model.to(torch.bfloat16)(**inputs, **targets_for(case))
    whole.loss.backward()
    for outputs in (mixed, whole):
        assert_close(outputs.loss.float(), expected.loss, rtol=0.1, atol=0.1)
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("case", **by_name(ALL))
def test_resized_vocabulary(case):
    model = case.build()
    inputs = inputs_for(case)
    before = logits_of(model(**inputs))
    model.resize_token_embeddings(SIZES["vocab_size"] + 4)
    assert model.config.vocab_size == SIZES["vocab_size"] + 4
    after = logits_of(model(**inputs))
    assert_close(after[..., : before.shape[-1]], before)
    key = "decoder_input_ids" if case.task == "seq2seq" else "input_ids"
    inputs[key][..., 0] = SIZES["vocab_size"] + 3
    assert logits_of(model(**inputs)).isfinite().all()


TIED = [case for case in GENERATORS if case.how_to_choose_a_form and "transformer" not in case.name]


@pytest.mark.parametrize("case", **by_name(TIED))
def test_tied_words_stay_tied(case, tmp_path):
    sizes = {name: 12 for name in ("embedding_size", "maxout_size") if name in case.settings}
    model = case.build(tie_word_embeddings=True, **sizes)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    body = loaded.model.decoder if case.task == "seq2seq" else loaded.model
    assert loaded.lm_head.weight is body.embed_tokens.weight
    assert_close(loaded(**inputs_for(case)).logits, model(**inputs_for(case)).logits)
    loose = case.build(tie_word_embeddings=False)
    body = loose.model.decoder if case.task == "seq2seq" else loose.model
    assert loose.lm_head.weight is not body.embed_tokens.weight


@pytest.mark.parametrize("case", **by_name(ALL))
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
    auto = AutoModelForSeq2SeqLM if case.task == "seq2seq" else AutoModelForCausalLM
    assert type(auto.from_pretrained(tmp_path)) is type(model)
    assert type(auto.from_config(model.config)) is type(model)


COMPILED = ("feedforward", "gru", "cho", "bahdanau-additive-gru", "transformer-paper", "gpt-2019", "mask-bert")


@pytest.mark.parametrize("case", **by_name([case for case in ALL if case.name in COMPILED]))
def test_compiled_is_the_same(case):
    model = case.build()
    inputs = inputs_for(case)
    compiled = torch.compile(model, backend="aot_eager")
    assert_close(compiled(**inputs).logits, model(**inputs).logits)


@pytest.mark.parametrize("case", **by_name(TRANSLATORS))
def test_labels_make_the_decoder_inputs(case):
    model = case.build()
    source, labels = words(2, SOURCE), words(2, LENGTH, seed=4)
    labels[1, 5:] = -100
    by_hand = torch.cat([torch.ones(2, 1, dtype=torch.long), labels[:, :-1]], dim=1).masked_fill_(
        torch.tensor([[False] * LENGTH, [False] * 6 + [True]]), 0
    )
    assert torch.equal(model.prepare_decoder_input_ids_from_labels(labels), by_hand)
    expected = model(input_ids=source, decoder_input_ids=by_hand, labels=labels)
    assert_close(model(input_ids=source, labels=labels).loss, expected.loss)


@pytest.mark.parametrize("case", **by_name(ALL))
def test_inputs_may_be_vectors(case):
    model = case.build()
    inputs = inputs_for(case)
    expected = logits_of(model(**inputs))
    inputs["inputs_embeds"] = model.get_input_embeddings()(inputs.pop("input_ids"))
    assert_close(logits_of(model(**inputs)), expected)


@pytest.mark.parametrize("case", **by_name(LANGUAGE_MODELS))
def test_shifted_labels_count_the_last_word_too(case):
    """A stream that goes on in the next batch knows what follows its last word."""
    model = case.build()
    ids, following = inputs_for(case)["input_ids"], words(2, LENGTH, seed=6)
    outputs = model(ids, shift_labels=following)
    assert_close(outputs.loss, F.cross_entropy(outputs.logits.flatten(0, 1), following.flatten()))
    with pytest.raises(TypeError, match="unexpected keyword argument 'attention_masks'"):
        model(ids, attention_masks=ids)
