"""How far back models see, and the loss around their weights: compared with what the architecture and calculus say."""

import csv

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import hf_edu_models as edu
from hf_edu_models.cli.commands import app
from hf_edu_models.data import load_corpus, train_tokenizer
from hf_edu_models.data.language_modeling import token_stream
from hf_edu_models.experiments.landscape import draw_landscape, filter_normalised, landscape
from hf_edu_models.experiments.reach import (
    draw_contexts,
    draw_reach,
    effective_context,
    losses_by_context,
    reach,
    token_texts,
    token_windows,
)

SIZES = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 10}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    corpus = load_corpus("stories", train_size=30, validation_size=3, test_size=3)
    return train_tokenizer(corpus, "word", 200, rung="gpt", cache_dir=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def models(tokenizer):
    torch.manual_seed(0)
    window = edu.EduFeedForwardConfig.for_tokenizer(tokenizer, embedding_size=8, hidden_size=12, window_size=4)
    state = edu.EduRecurrentConfig.for_tokenizer(tokenizer, hidden_size=12, num_hidden_layers=1, initializer_range=0.3)
    return {
        "window": edu.EduFeedForwardForCausalLM(window),
        "state": edu.EduRecurrentForCausalLM(state),
        "attention": edu.EduGPTForCausalLM(edu.EduGPTConfig.for_tokenizer(tokenizer, **SIZES)),
    }


def test_a_window_ends_a_state_decays_and_attention_reaches_everything(models, tokenizer):
    texts = load_corpus("stories", train_size=30, validation_size=3, test_size=3)["test"]["text"]
    input_ids = token_texts(tokenizer, list(texts), length=20, count=8)
    changes = {name: reach(model, input_ids) for name, model in models.items()}
    assert (changes["window"][:4] > 0).all() and (changes["window"][4:] == 0).all()
    assert changes["state"][-1] < 0.2 * changes["state"][0] and (changes["state"] > 0).all()
    assert (changes["attention"] > 0).all()
    assert len(draw_reach(changes, "about").axes[0].lines) == 3


def test_the_change_is_the_total_variation_of_each_prediction(models):
    input_ids = torch.tensor([[5, 6, 7], [8, 9, 10], [5, 11, 12]])
    model = models["state"].eval()
    expected = torch.zeros(3)
    with torch.no_grad():
        for row, first in ((0, 5), (1, 5), (2, 8)):  # the first token of the text before; the first one stays the same
            changed = input_ids[row : row + 1].clone()
            changed[0, 0] = first
            if changed.equal(input_ids[row : row + 1]):
                continue
            one, other = (model(input_ids=each).logits[0].softmax(-1) for each in (input_ids[row : row + 1], changed))
            expected += (one - other).clamp(min=0).sum(-1)
    np.testing.assert_allclose(reach(models["state"], input_ids), expected / 2, rtol=1e-5)


def test_a_context_beyond_the_window_changes_nothing(models, tokenizer):
    corpus = load_corpus("stories", train_size=30, validation_size=3, test_size=3)["train"]
    windows, contexts = token_windows(tokenizer, corpus, 17, 40), [1, 2, 4, 8, 16]
    stream = token_stream(corpus, tokenizer)
    assert windows.shape == (40, 17) and windows[-1].tolist() == stream[-17:].tolist()
    losses = {name: losses_by_context(model, windows, contexts, batch_size=7) for name, model in models.items()}
    assert np.ptp(losses["window"][2:]) < 1e-6 < np.ptp(losses["window"][:3])
    with torch.no_grad():  # the loss of the last token, as the model computes it
        logits = models["attention"].eval()(input_ids=windows[:, :-1]).logits[:, -1]
    expected = torch.nn.functional.cross_entropy(logits, windows[:, -1])
    assert losses["attention"][-1] == pytest.approx(float(expected), rel=1e-5)
    assert len(draw_contexts(contexts, losses, "about").axes[0].lines) == 6
    assert effective_context([1, 2, 4, 8], np.array([4.0, 3.5, 3.495, 3.6])) == 2


def test_segments_carry_the_state_and_the_memory(models, tokenizer):
    """A recurrent state loses nothing between two segments; of Transformer-XL the memory ends what it sees."""
    ids = torch.randint(5, 40, (6, 13), generator=torch.Generator().manual_seed(0))
    whole, parts = (losses_by_context(models["state"], ids, [12], segment)[0] for segment in (None, 5))
    assert parts == pytest.approx(whole, rel=1e-5)
    config = edu.EduTransformerXLConfig.for_tokenizer(tokenizer, **SIZES, memory_length=0)
    model = edu.EduTransformerXLForCausalLM(config)
    short, long = losses_by_context(model, ids, [4, 12], segment=4)
    assert long == pytest.approx(short, rel=1e-5)
    model.config.memory_length = model.model.config.memory_length = 4
    assert losses_by_context(model, ids, [12], segment=4)[0] != pytest.approx(short, rel=1e-5)


def test_texts_and_models_that_do_not_fit_are_rejected(models, tokenizer):
    with pytest.raises(ValueError, match="fewer than two pieces of 64"):
        token_texts(tokenizer, ["a short one"], length=64, count=3)
    with pytest.raises(ValueError, match="begin with the same token"):
        reach(models["state"], torch.tensor([[5, 6], [5, 7]]))
    config = edu.EduRecurrentConfig.for_tokenizer(tokenizer, hidden_size=12, num_hidden_layers=1)
    with pytest.raises(ValueError, match="predicts no tokens of the text"):
        reach(edu.EduRecurrentForSequenceClassification(config), torch.tensor([[5, 6], [8, 7]]))
    with pytest.raises(ValueError, match="does not predict the next token"):
        losses_by_context(edu.EduBertForMaskedLM(edu.EduBertConfig(vocab_size=20, **SIZES)), torch.ones(2, 3), [1])
    with pytest.raises(ValueError, match="too few for a context of 5000"):
        token_windows(tokenizer, load_corpus("stories", train_size=3, validation_size=3, test_size=3)["test"], 5001, 3)


def test_a_direction_has_the_norm_of_the_weights_row_by_row(models):
    model = models["attention"]
    direction = filter_normalised(model, torch.Generator().manual_seed(0))
    for name, weights in model.named_parameters():
        if weights.ndim > 1:
            torch.testing.assert_close(direction[name].flatten(1).norm(dim=1), weights.detach().flatten(1).norm(dim=1))
        else:
            assert not direction[name].any()


def test_the_loss_is_that_of_the_moved_weights_and_they_are_put_back(models):
    model, batch = models["attention"].train(), {"input_ids": torch.randint(5, 100, (3, 9))}
    batch["labels"] = batch["input_ids"]
    before = {name: weights.detach().clone() for name, weights in model.named_parameters()}
    found = landscape(model, batch, points=3, distance=0.5, seed=7)
    assert model.training and all(torch.equal(before[name], weights) for name, weights in model.named_parameters())
    generator = torch.Generator().manual_seed(7)
    first, second = (filter_normalised(model, generator) for _ in range(2))
    model.eval()
    for row, a in enumerate((-0.5, 0.0, 0.5)):
        for column, b in enumerate((-0.5, 0.0, 0.5)):
            moved = {name: before[name] + a * first[name] + b * second[name] for name in before}
            with torch.no_grad():
                loss = torch.func.functional_call(model, moved, kwargs=batch).loss
            assert found.losses[row, column] == pytest.approx(loss.item(), rel=1e-5)
    assert found.center == found.losses[1, 1] and len(found.rows()) == 9
    assert draw_landscape(found, "title", "about").axes[0].get_title() == "title"
    with pytest.raises(ValueError, match="points must be odd and at least 3"):
        landscape(model, batch, points=4)


def test_the_commands_read_runs(models, tokenizer, tmp_path):
    for name in ("window", "attention"):
        for part in (models[name], tokenizer):
            part.save_pretrained(tmp_path / name)
    runs, out = [str(tmp_path / name) for name in ("window", "attention")], tmp_path / "reach.png"
    arguments = ["figure", "reach", *runs, "--length", "10", "--texts", "5", "--out", str(out)]
    run = CliRunner().invoke(app, arguments)
    assert run.exit_code == 0, run.output + str(run.exception)
    with open(out.with_suffix(".csv")) as file:
        rows = list(csv.DictReader(file))
    assert [row["model"] for row in rows] == ["window"] * 10 + ["attention"] * 10 and float(rows[9]["change"]) == 0
    out = tmp_path / "landscape.png"
    arguments = ["figure", "landscape", runs[1], "--dataset", "stories", "--points", "3", "--rows", "4"]
    run = CliRunner().invoke(app, [*arguments, "--out", str(out)])
    assert run.exit_code == 0, run.output + str(run.exception)
    assert out.read_bytes().startswith(b"\x89PNG") and out.with_suffix(".csv").read_text().count("\n") == 10
    out = out.with_name("context.png")
    done = CliRunner().invoke(app, ["figure", "context", *runs, "--longest", "9", "--texts", "5", "--out", str(out)])
    assert done.exit_code == 0 and "effective context" in done.output, done.output
    with open(out.with_suffix(".csv"), encoding="utf-8") as file:
        assert [row["context"] for row in csv.DictReader(file)] == ["1", "2", "4", "8"] * len(runs)
    problem = CliRunner().invoke(app, ["figure", "reach", runs[0], runs[0]]).exception
    assert "listed twice" in str(problem)
