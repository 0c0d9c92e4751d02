"""Professor forcing: who learns from which loss, and what a model reads when it runs free."""

import pytest
import torch
import torch.nn.functional as F
from tiny_runs import arguments, taught, tokenizer, translating
from torch.testing import assert_close
from transformers import DataCollatorForSeq2Seq

from hf_edu_models.training.professor_forcing import Discriminator, free_running, states_of

KINDS = ("seq2seq", "language model")


def ready(folder, kind, **options):
    """A trainer, whose discriminator is sure of nothing yet, and a batch."""
    trainer = taught(arguments(folder, professor_forcing=0.5, **options), kind)
    rows = [trainer.train_dataset[number] for number in range(4)]
    batch = DataCollatorForSeq2Seq(tokenizer())(rows)
    trainer.current_gradient_accumulation_steps = 1
    return trainer, dict(batch)


def has_gradients(module) -> bool:
    return any(parameter.grad is not None and parameter.grad.any() for parameter in module.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_the_discriminators_step_does_not_reach_the_model(kind, tmp_path):
    trainer, batch = ready(tmp_path, kind)
    forced = states_of(trainer.model(**batch, output_hidden_states=True))
    free = states_of(free_running(trainer.model, batch))
    assert forced.shape == free.shape and free.requires_grad
    before = [parameter.detach().clone() for parameter in trainer.discriminator.parameters()]
    trainer.train_discriminator(forced, free, batch["labels"] != -100)
    assert not has_gradients(trainer.model)
    assert any(not torch.equal(one, two) for one, two in zip(before, trainer.discriminator.parameters(), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_the_models_step_does_not_reach_the_discriminator(kind, tmp_path):
    trainer, batch = ready(tmp_path, kind)
    mask = batch["labels"] != -100
    trainer.fooling_loss(states_of(free_running(trainer.model, batch)), mask).backward()
    assert has_gradients(trainer.model) and not has_gradients(trainer.discriminator)
    assert all(parameter.requires_grad for parameter in trainer.discriminator.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_it_reads_what_it_predicts(kind, tmp_path):
    """With a softmax that is nearly certain, a sample is the most likely token after what was read before."""
    trainer, batch = ready(tmp_path, kind)
    model = trainer.model.eval()
    model.lm_head.weight.data *= 1e8
    read = []
    model.model.register_forward_pre_hook(
        lambda module, args, kwargs: read.append(kwargs.get("decoder_input_ids", kwargs.get("input_ids"))),
        with_kwargs=True,
    )
    outputs = free_running(model, batch)
    ids = read[-1]  # the last call reads all samples at once
    name = "decoder_input_ids" if kind == "seq2seq" else "input_ids"
    inputs = {key: value for key, value in batch.items() if key != "labels"} if kind == "seq2seq" else {}
    logits = model(**{**inputs, name: ids}).logits
    assert ids.shape == batch["labels"].shape
    assert torch.equal(ids[:, 1:], logits[:, :-1].argmax(-1))
    again = model.model(**{**inputs, name: ids}, output_hidden_states=True)
    assert_close(states_of(outputs), states_of(again))


def test_the_loss_by_hand(tmp_path, monkeypatch):
    """NLL + weight * C_f if the discriminator is useful, NLL alone if it is not, or in evaluation."""
    trainer, batch = ready(tmp_path, "seq2seq")
    model = trainer.model
    for module in model.modules():
        if hasattr(module, "p"):
            module.p = 0.0
    model.train()
    free, mask = states_of(free_running(model, batch)), batch["labels"] != -100
    monkeypatch.setattr(
        "hf_edu_models.training.professor_forcing.free_running",
        lambda *_: type("O", (), {"decoder_hidden_states": (free,)})(),
    )
    nll = model(**batch).loss
    for accuracy, weight in ((0.9, 0.5), (0.6, 0.0)):
        monkeypatch.setattr(trainer, "train_discriminator", lambda *_, accuracy=accuracy: accuracy)
        expected = nll - weight * F.logsigmoid(trainer.discriminator(free, mask)).mean()
        assert_close(trainer.compute_loss(model, batch), expected)
    monkeypatch.setattr(trainer, "train_discriminator", None)
    assert_close(trainer.compute_loss(model.eval(), batch), model(**batch).loss)


def test_padding_changes_no_judgement():
    discriminator, states = Discriminator(6, 5), torch.randn(2, 7, 6)
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3]).bool()
    changed = torch.where(mask[..., None], states, 100.0)
    assert_close(discriminator(states, mask), discriminator(changed, mask))
    assert_close(discriminator(states, mask)[1:], discriminator(states[1:, :4], mask[1:, :4]))


def test_the_discriminator_learns_to_tell_states_apart(tmp_path):
    """Two kinds of states that differ in one direction; it stops learning when it is good enough."""
    trainer, _ = ready(tmp_path, "seq2seq", learning_rate=0.01)
    mask = torch.ones(16, 5).bool()
    for _ in range(60):
        forced, free = torch.randn(16, 5, 12), torch.randn(16, 5, 12)
        forced[..., 0] += 1.5
        accuracy = trainer.train_discriminator(forced, free, mask)
    assert accuracy > 0.9
    weights = [parameter.detach().clone() for parameter in trainer.discriminator.parameters()]
    forced, free = torch.zeros(16, 5, 12), torch.zeros(16, 5, 12)
    forced[..., 0], free[..., 0] = 5.0, -5.0
    assert trainer.train_discriminator(forced, free, mask) == 1.0
    assert_close(list(trainer.discriminator.parameters()), weights, rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_trains_and_logs(kind, tmp_path):
    trainer = taught(arguments(tmp_path, professor_forcing=0.5, max_steps=4), kind)
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(logs) == 2 and all(0 <= entry["discriminator_accuracy"] <= 1 for entry in logs)
    assert not [name for name in trainer.model.state_dict() if "discriminator" in name]


def test_wrong_uses_are_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="professor_forcing must be 0 or more, got -1"):
        arguments(tmp_path, professor_forcing=-1)
    with pytest.raises(ValueError, match="--professor_forcing is for language models of recurrent, and for seq2seq"):
        translating(arguments(tmp_path, professor_forcing=0.5))
    with pytest.raises(ValueError, match="leave out --teacher_forcing"):
        taught(arguments(tmp_path, professor_forcing=0.5, teacher_forcing="linear"))
    trainer = taught(arguments(tmp_path, professor_forcing=0.5))
    (tmp_path / "discriminator.pt").unlink(missing_ok=True)
    with pytest.raises(ValueError, match="it is not of professor forcing"):
        trainer._load_optimizer_and_scheduler(str(tmp_path))
