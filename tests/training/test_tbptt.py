"""Truncated backpropagation through time: the state is carried, the gradient stops at the border of a block."""

import math

import numpy as np
import pytest
import tiny_runs
import torch
import torch.nn.functional as F
from tiny_runs import STREAMS, WINDOW, WINDOWS, arguments, language_model, streaming, streams
from torch import nn
from torch.testing import assert_close
from transformers import TrainerCallback

from hf_edu_models.data import contiguous_streams
from hf_edu_models.training.evaluation import evaluate_split

LEARNING_RATE = 0.5
PLAIN = {
    "optim": "sgd",
    "learning_rate": LEARNING_RATE,
    "lr_scheduler_type": "constant",
    "max_grad_norm": 0.0,
    "num_train_epochs": 2,
}
PLAIN |= {"save_strategy": "no", "logging_steps": 1}


class Reference(nn.Module):
    """`nn.LSTM` with a model's weights."""

    def __init__(self, model):
        super().__init__()
        config = model.config
        self.embed = nn.Embedding.from_pretrained(model.model.embed_tokens.weight.detach().clone(), freeze=False)
        self.lstm = nn.LSTM(config.embedding_size, config.hidden_size, config.num_hidden_layers, batch_first=True)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.head.load_state_dict(model.lm_head.state_dict())
        theirs = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        ours = ("input_weight", "state_weight", "input_bias", "state_bias")
        for level, layer in enumerate(model.model.stack.layers):
            for name, mine in zip(theirs, ours, strict=True):
                getattr(self.lstm, f"{name}_l{level}").data.copy_(getattr(layer.forward_cell, mine))

    def forward(self, ids, labels, state):
        hidden, state = self.lstm(self.embed(ids), state)
        loss = F.cross_entropy(self.head(hidden).flatten(0, 1), labels.flatten())
        return loss, state


class Gradients(TrainerCallback):
    def __init__(self):
        self.seen = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.seen.append({name: weight.grad.clone() for name, weight in model.named_parameters()})


def windows(data):
    for start in range(0, len(data), STREAMS):
        rows = data[start : start + STREAMS]
        yield torch.tensor(rows["input_ids"]), torch.tensor(rows["shift_labels"])


def names_of(reference) -> dict[str, torch.Tensor]:
    """Gradients of the reference by our parameter names."""
    grads = {"model.embed_tokens.weight": reference.embed.weight.grad, "lm_head.weight": reference.head.weight.grad}
    for level in range(reference.lstm.num_layers):
        cell = f"model.stack.layers.{level}.forward_cell"
        pairs = {
            "input_weight": "weight_ih",
            "state_weight": "weight_hh",
            "input_bias": "bias_ih",
            "state_bias": "bias_hh",
        }
        for ours, theirs in pairs.items():
            grads[f"{cell}.{ours}"] = getattr(reference.lstm, f"{theirs}_l{level}").grad
    return grads


def train(tmp_path, model, **settings):
    gradients = Gradients()
    trainer = streaming(arguments(tmp_path, **(PLAIN | settings)), model, callbacks=[gradients])
    trainer.train()
    return trainer, gradients.seen


def test_gradients_are_exact_within_a_window(tmp_path):
    """Two epochs, so that the second must start without a state."""
    model = language_model(dropout=0.0, initializer_range=1.0)
    reference = Reference(model)
    trainer, seen = train(tmp_path, model)
    assert len(seen) == 2 * WINDOWS
    logged = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    number = 0
    for _ in range(2):
        state = None
        for ids, labels in windows(streams()):
            reference.zero_grad()
            loss, state = reference(ids, labels, state)
            loss.backward()
            state = tuple(part.detach() for part in state)
            assert_close(seen[number], names_of(reference), atol=1e-6, rtol=1e-4)
            assert logged[number] == pytest.approx(loss.item(), abs=1e-5)
            with torch.no_grad():
                for weight in reference.parameters():
                    weight -= LEARNING_RATE * weight.grad
            number += 1


def test_without_the_carried_state_the_loss_differs():
    """Otherwise the test above could not fail."""
    reference = Reference(language_model(dropout=0.0, initializer_range=1.0))
    (first, labels), (second, following), *_ = windows(streams())
    _, state = reference(first, labels, None)
    assert abs(reference(second, following, state)[0] - reference(second, following, None)[0]) > 1e-3


def test_evaluation_has_its_own_state(tmp_path):
    """Evaluating after every step changes nothing in training, and every evaluation starts without a state."""
    torch.manual_seed(1)
    model = language_model()
    start = {name: weight.clone() for name, weight in model.state_dict().items()}
    trainer, plain = train(tmp_path / "plain", model, seed=3)
    model.load_state_dict(start)
    _, watched = train(tmp_path / "watched", model, seed=3, eval_strategy="steps", eval_steps=1)
    for one, other in zip(plain, watched, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert trainer.evaluate()["eval_loss"] == trainer.evaluate()["eval_loss"]


def test_perplexity_of_streams_is_that_of_one_pass(tmp_path, monkeypatch):
    model = language_model()
    trainer = streaming(arguments(tmp_path), model)
    data = streams(seed=1)
    ids, labels = (torch.cat(parts, dim=1) for parts in zip(*windows(data), strict=True))  # (streams, all windows)
    assert ids.shape == (STREAMS, WINDOW * WINDOWS)
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=ids).logits
    losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").reshape(ids.shape)
    output = trainer.predict(data)
    sums, counts = output.predictions.T
    assert (counts == WINDOW).all()
    by_row = losses.reshape(STREAMS, WINDOWS, WINDOW).sum(-1).T.flatten()
    np.testing.assert_allclose(sums, by_row, rtol=1e-5)
    assert output.metrics["test_loss"] == pytest.approx(losses.mean().item(), rel=1e-5)
    monkeypatch.setattr("hf_edu_models.metrics.scorers.by_word", lambda *args: {})
    scores = evaluate_split(trainer, "language_modeling", data, None, None).scores
    assert scores["perplexity"] == pytest.approx(math.exp(losses.mean().item()), rel=1e-5)
    low, high = scores["perplexity_interval"]
    assert low < scores["perplexity"] < high


@pytest.mark.parametrize("count", [3, 2, 10])
def test_batches_that_do_not_match_the_streams_raise_an_error(count, tmp_path):
    """20 rows also make batches of 2 or 10, but the next batch would continue another text."""
    trainer = streaming(arguments(tmp_path, per_device_train_batch_size=count))
    with pytest.raises(ValueError, match=rf"20 rows are not {count} contiguous streams.*batch_size={count}\)"):
        trainer.train()
    trainer = streaming(arguments(tmp_path, per_device_eval_batch_size=count))
    with pytest.raises(ValueError, match=rf"20 rows are not {count} contiguous streams"):
        trainer.evaluate()
    with pytest.raises(ValueError, match=rf"20 rows are not {count} contiguous streams"):
        trainer.predict(streams())


def test_what_contiguous_streams_makes_is_accepted(tmp_path):
    from datasets import Dataset

    words = " ".join(f"w{number % 19 + 4}" for number in range(0, 400, 7))
    data = contiguous_streams(
        Dataset.from_dict({"text": [words]}), tiny_runs.tokenizer(), STREAMS, 5, cache_dir=tmp_path / "cache"
    )
    trainer = streaming(arguments(tmp_path / "run", max_steps=2))
    trainer.train_dataset = data
    trainer.train()
    assert trainer.evaluate(data)["eval_loss"] > 0


def test_one_process_with_several_devices_raises_an_error(tmp_path):
    settings = arguments(tmp_path)
    settings._n_gpu = 2
    with pytest.raises(ValueError, match="torchrun --nproc_per_node 2"):
        streaming(settings)


def test_a_missing_carried_state_raises_an_error(tmp_path):
    trainer, _ = train(tmp_path, language_model(), save_strategy="steps", save_steps=3, max_steps=4)
    for file in (tmp_path / "checkpoint-3").glob("carried_state_*"):
        file.unlink()
    with pytest.raises(ValueError, match=r"is damaged: carried_state_0\.pt is missing"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    (tmp_path / "checkpoint-3" / "manifest.json").unlink()  # as in a checkpoint of an earlier version
    with pytest.raises(ValueError, match="no carried state for process 0; resume with the world size"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
