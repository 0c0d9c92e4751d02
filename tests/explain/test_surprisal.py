"""Surprisal against the model's own loss, and divergences against scipy's."""

import numpy as np
import pytest
import torch
from attenders import LANGUAGE_MODELS, TRANSLATORS, by_name
from scipy.stats import entropy
from typer.testing import CliRunner

from hf_edu_models.cli.commands import app
from hf_edu_models.explain.words.surprisal import compare, surprisal

TEXT, SOURCE = "the cat sat", "le chat noir"


@pytest.mark.parametrize("attender", **by_name(LANGUAGE_MODELS))
def test_the_mean_surprisal_of_a_text_is_the_loss(attender, built):
    model, tokenizer = built(attender)
    found = surprisal(model, tokenizer, TEXT)
    ids = torch.tensor([tokenizer(TEXT)["input_ids"]])
    assert found.bits.mean() * np.log(2) == pytest.approx(model(ids, labels=ids).loss.item(), rel=1e-5)
    assert found.perplexity == pytest.approx(np.exp(model(ids, labels=ids).loss.item()), rel=1e-4)
    assert "".join(found.tokens).replace("␣", " ") == TEXT
    # The product of the probabilities is the probability of the text.
    assert np.prod(2.0**-found.bits) == pytest.approx(found.perplexity ** -len(found.tokens))


@pytest.mark.parametrize("attender", **by_name(TRANSLATORS))
def test_the_mean_surprisal_of_a_target_is_the_loss(attender, built):
    model, tokenizer = built(attender)
    found = surprisal(model, tokenizer, TEXT, SOURCE)
    source, target = (
        tokenizer(SOURCE, return_tensors="pt"),
        tokenizer(text_target=TEXT, return_tensors="pt")["input_ids"],
    )
    loss = model(**source, labels=target).loss.item()
    assert found.bits.mean() * np.log(2) == pytest.approx(loss, rel=1e-5)
    with pytest.raises(ValueError, match="needs --source"):
        surprisal(model, tokenizer, TEXT)


def test_the_divergence_is_scipys(built):
    (gpt, tokenizer), (recurrent, _) = built(LANGUAGE_MODELS[1]), built(LANGUAGE_MODELS[0])
    one, other = surprisal(gpt, tokenizer, TEXT), surprisal(recurrent, tokenizer, TEXT)
    found = compare(one, other)
    p, q = np.exp(one.log_probabilities), np.exp(other.log_probabilities)
    assert found.forward == pytest.approx(entropy(p, q, base=2, axis=-1))
    assert found.backward == pytest.approx(entropy(q, p, base=2, axis=-1))
    assert compare(one, one).forward == pytest.approx(np.zeros(len(one.tokens)), abs=1e-12)
    with pytest.raises(ValueError, match="different tokens"):
        compare(one, surprisal(gpt, tokenizer, "le chat"))


def test_the_commands_print_and_draw(built, tmp_path):
    names = []
    for attender in LANGUAGE_MODELS[:2]:
        model, tokenizer = built(attender)
        names.append(str(tmp_path / attender.name))
        model.save_pretrained(names[-1])
        tokenizer.save_pretrained(names[-1])
    for command in (["surprisal", *names, TEXT], ["compare", *names, TEXT]):
        out = tmp_path / f"{command[0]}.png"
        run = CliRunner().invoke(app, ["explain", *command, "--out", str(out)])
        assert run.exit_code == 0, run.output
        assert out.read_bytes().startswith(b"\x89PNG") and out.with_suffix(".csv").exists()
    assert CliRunner().invoke(app, ["explain", "surprisal", names[0]]).exception.args[0].startswith("give one or more")
