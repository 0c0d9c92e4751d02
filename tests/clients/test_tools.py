"""Tools that look into a model, evaluate it, quantize it or search its settings. None is in the extra `clients`."""

import copy
import math

import pytest
import torch
from tiny import ALL, CASES, GENERATORS, by_name, inputs_for, logits_of, random_ids
from torch import nn
from torch.testing import assert_close
from transformers import Trainer, TrainingArguments

from hf_edu_models.data import train_tokenizer

pytestmark = pytest.mark.slow


def first_of_rung(cases):
    return by_name([case for case in cases if case.name == case.rung.name])


@pytest.mark.parametrize("case", **first_of_rung(GENERATORS))
def test_lm_eval_computes_log_likelihoods(case):
    """Given no hint, it finds in transformers' tables whether a model continues a text or answers it."""
    huggingface, instance = (
        pytest.importorskip("lm_eval.models.huggingface"),
        pytest.importorskip("lm_eval.api.instance"),
    )
    tokenizer = train_tokenizer(["the cat sat on a mat"], "word", 29, rung=case.rung.name)
    model = case.build(max_position_embeddings=16) if case.attends else case.build()
    harness = huggingface.HFLM(pretrained=model, tokenizer=tokenizer, max_length=16, batch_size=2, device="cpu")
    request = instance.Instance("loglikelihood", {}, ("the cat", " sat on"), 0)
    ((found, _),) = harness.loglikelihood([request], disable_tqdm=True)
    context, whole = tokenizer("the cat")["input_ids"], tokenizer("the cat sat on")["input_ids"]
    if case.task == "translation":
        assert harness.backend == "seq2seq"
        labels = torch.tensor([tokenizer(" sat on", add_special_tokens=False)["input_ids"]])
        logits = model(input_ids=torch.tensor([context]), labels=labels).logits[0]
    else:
        assert harness.backend == "causal"
        labels = torch.tensor([whole[len(context) :]])
        logits = model(torch.tensor([whole])).logits[0, len(context) - 1 : -1]
    expected = logits.log_softmax(-1).gather(-1, labels[0, :, None]).sum().item()
    assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("case", **first_of_rung(ALL))
def test_captum_attributes_the_whole_difference_to_the_tokens(case):
    """Completeness of integrated gradients (Sundararajan et al. 2017, arXiv:1703.01365, Proposition 1)."""
    attr = pytest.importorskip("captum.attr")
    model, others = case.build(form="eager"), inputs_for(case, batch=1)
    ids, embed = others.pop("input_ids"), model.get_input_embeddings()

    def score(embeddings):
        batch = {name: value.expand(len(embeddings), *value.shape[1:]) for name, value in others.items()}
        return logits_of(model(inputs_embeds=embeddings, **batch)).flatten(1)[:, -1]

    tokens, baseline = embed(ids).detach(), embed(torch.full_like(ids, 4)).detach()
    found = attr.IntegratedGradients(score).attribute(tokens, baseline, n_steps=200)
    assert found.shape[:-1] == ids.shape
    assert_close(found.sum(), (score(tokens) - score(baseline)).sum().to(found.dtype), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("case", **first_of_rung([case for case in ALL if case.attends]))
def test_bertviz_draws_attention(case):
    bertviz = pytest.importorskip("bertviz")
    model, inputs = case.build(), inputs_for(case, batch=1)
    outputs = model(**inputs, output_attentions=True)
    tokens = [f"token{number}" for number in range(inputs[case.key].shape[1])]
    if case.task == "translation":
        source = [f"source{number}" for number in range(inputs["input_ids"].shape[1])]
        kinds = ("encoder_attentions", "decoder_attentions", "cross_attentions")
        attention = {kind.removesuffix("s"): outputs[kind] for kind in kinds}
        page = bertviz.model_view(
            **attention, encoder_tokens=source, decoder_tokens=tokens, html_action="return", display_mode="light"
        )
        assert "source0" in page.data
    else:
        page = bertviz.head_view(outputs.attentions, tokens, html_action="return")
    assert "token0" in page.data


@pytest.mark.parametrize("case", **first_of_rung(ALL))
def test_nnsight_reads_and_changes_hidden_states(case):
    nnsight = pytest.importorskip("nnsight")
    model, inputs = case.build(), inputs_for(case)
    ids, others = inputs.pop("input_ids"), inputs
    plain = logits_of(model(input_ids=ids, **others))
    embeddings = model.get_input_embeddings()
    name = next(name for name, module in model.named_modules() if module is embeddings)
    wrapped = nnsight.NNsight(model)
    with wrapped.trace(input_ids=ids, **others):
        inside = wrapped.get(name).output.save()
    assert_close(inside, embeddings(ids))
    with wrapped.trace(input_ids=ids, **others):
        wrapped.get(name).output[:] = 0
        changed = wrapped.output.save()
    assert not torch.allclose(logits_of(changed), plain)


def test_optuna_searches_a_learning_rate(tmp_path):
    optuna, rates = pytest.importorskip("optuna"), [1e-9, 1e-2]
    rows = [{"input_ids": row, "labels": row} for row in random_ids(8, 6)]
    options = {"max_steps": 4, "report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}
    arguments = TrainingArguments(str(tmp_path), **options, eval_strategy="steps", eval_steps=4)
    trainer = Trainer(None, arguments, train_dataset=rows, eval_dataset=rows, model_init=lambda _: CASES["gpt"].build())
    best = trainer.hyperparameter_search(
        lambda trial: {"learning_rate": trial.suggest_categorical("learning_rate", rates)},
        n_trials=2,
        sampler=optuna.samplers.GridSampler({"learning_rate": rates}),
        backend="optuna",
        direction="minimize",
    )
    assert math.isfinite(best.objective) and best.hyperparameters["learning_rate"] == 1e-2


@pytest.mark.parametrize("case", **by_name([CASES[name] for name in ("feedforward", "transformer", "gpt", "bert")]))
def test_torchao_quantizes_every_linear_layer(case):
    quantization = pytest.importorskip("torchao.quantization")
    model, inputs = case.build(tie_word_embeddings=False), inputs_for(case)
    plain, before = logits_of(model(**inputs)), copy.deepcopy(model)
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    layers = [name for name, module in before.named_modules() if type(module) is nn.Linear]
    assert layers and all(type(model.get_submodule(name).weight) is not nn.Parameter for name in layers)
    found = logits_of(model(**inputs))
    assert not torch.equal(found, plain)
    assert (found - plain).abs().max() < 0.05 * plain.abs().max()
