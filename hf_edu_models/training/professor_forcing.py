"""Professor forcing: the states of a model that reads its own predictions are to look like those under teacher forcing.

Goyal et al. 2016, arXiv:1610.09038, Section 2.2. A discriminator D learns to tell the two kinds of sequences of hidden
states b apart, with the loss C_d; the model learns its own loss NLL and to pass for teacher-forced, C_f:

    C_d = E[-log D(b_forced)] + E[-log(1 - D(b_free))]        NLL + weight * C_f,  C_f = E[-log D(b_free)]

Differs from the paper: b has the hidden states of the top layer, not the outputs of the softmax.

Shapes: B batch, T length, D hidden size.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from .trainers import EduSeq2SeqTrainer

# The model learns from a discriminator of more than the first accuracy, which itself learns up to the second.
_USEFUL, _GOOD_ENOUGH = 0.75, 0.99
_FILE = "discriminator.pt"


class Discriminator(nn.Module):
    """D(b): a GRU reads the states in both directions, and a small network its two last states."""

    def __init__(self, state_size: int, hidden_size: int):
        super().__init__()
        self.reader = nn.GRU(state_size, hidden_size, batch_first=True, bidirectional=True)
        self.output = nn.Sequential(nn.Linear(2 * hidden_size, hidden_size), nn.ReLU(), nn.Linear(hidden_size, 1))

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """The logit of "teacher-forced" for each row, (B,); `mask` (B, T) has its padding on the right."""
        lengths = mask.sum(dim=1).clamp(min=1).cpu()
        packed = pack_padded_sequence(states, lengths, batch_first=True, enforce_sorted=False)
        _, last = self.reader(packed)
        return self.output(torch.cat([last[0], last[1]], dim=-1)).squeeze(-1)


class ProfessorForcingTrainer(EduSeq2SeqTrainer):
    """Trains a recurrent language model or encoder-decoder; the weight of C_f is `args.professor_forcing`.

    The discriminator takes one step for each batch; it is in the checkpoints and not in the final model.
    """

    is_professor = True

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if self.args.world_size > 1:
            raise ValueError(
                f"professor forcing trains in one process, but there are {self.args.world_size}; start one"
            )
        if getattr(self.args, "teacher_forcing", None):
            raise ValueError("--professor_forcing reads the reference or the model alone; leave out --teacher_forcing")
        size = self.model.config.hidden_size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.args.seed)
            self.discriminator = Discriminator(size, size).to(self.args.device)
        self.discriminator_optimizer = torch.optim.Adam(self.discriminator.parameters(), lr=self.args.learning_rate)
        self.accuracy = 0.5  # of the discriminator on the last batch

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        forced_inputs = {**inputs, "output_hidden_states": True}
        loss, outputs = super().compute_loss(model, forced_inputs, True, num_items_in_batch)
        mask = inputs["labels"] != -100
        free = states_of(free_running(self.model, inputs))
        self.accuracy = self.train_discriminator(states_of(outputs), free, mask)
        if self.accuracy > _USEFUL:
            loss = loss + self.args.professor_forcing * self.fooling_loss(free, mask) / self._batches_in_step()
        return (loss, outputs) if return_outputs else loss

    def _batches_in_step(self) -> int:
        """Trainer divides the loss over accumulated batches only if the model does not."""
        return self.current_gradient_accumulation_steps if self.model_accepts_loss_kwargs else 1

    def train_discriminator(self, forced: Tensor, free: Tensor, mask: Tensor) -> float:
        """One step on C_d, which does not reach the model; the accuracy before it."""
        forced, free = forced.detach(), free.detach()
        logits = self.discriminator(torch.cat([forced, free]), torch.cat([mask, mask]))
        is_forced = torch.cat([torch.ones(len(forced)), torch.zeros(len(free))]).to(logits)
        accuracy = ((logits > 0) == (is_forced > 0)).float().mean().item()
        if accuracy < _GOOD_ENOUGH:
            self.discriminator_optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(logits, is_forced).backward()
            self.discriminator_optimizer.step()
        return accuracy

    def fooling_loss(self, free: Tensor, mask: Tensor) -> Tensor:
        """C_f; its gradient reaches the model and not the discriminator."""
        self.discriminator.requires_grad_(False)
        try:
            logits = self.discriminator(free, mask)
        finally:
            self.discriminator.requires_grad_(True)
        return F.binary_cross_entropy_with_logits(logits, torch.ones_like(logits))

    def log(self, logs: dict[str, Any], start_time: float | None = None) -> None:
        super().log(logs | {"discriminator_accuracy": self.accuracy} if "loss" in logs else logs, start_time)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        states = {"model": self.discriminator.state_dict(), "optimizer": self.discriminator_optimizer.state_dict()}
        torch.save(states, Path(output_dir) / _FILE)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        if not (Path(checkpoint) / _FILE).is_file():
            raise ValueError(f"{checkpoint} has no {_FILE}: it is not of professor forcing; start with another folder")
        states = torch.load(Path(checkpoint) / _FILE, map_location=self.args.device, weights_only=True)
        self.discriminator.load_state_dict(states["model"])
        self.discriminator_optimizer.load_state_dict(states["optimizer"])


def states_of(outputs: Any) -> Tensor:
    """The hidden states of the top layer, (B, T, D): of a decoder, if there are two sides."""
    hidden_states = getattr(outputs, "decoder_hidden_states", None) or outputs.hidden_states
    return hidden_states[-1]


def free_running(model: Any, inputs: dict[str, Any]) -> Any:
    """The outputs of a model that reads its own samples, as many as the reference has tokens, from the same first one.

    The samples are drawn without gradients and then read, so that the states have gradients but not the choice.
    """
    if not model.config.is_encoder_decoder:
        sampled = _sample(model, inputs["input_ids"], "input_ids", {})
        return model.model(input_ids=sampled, output_hidden_states=True, return_dict=True)
    source = {name: inputs[name] for name in ("input_ids", "attention_mask") if name in inputs}
    with torch.no_grad():
        encoded = {"encoder_outputs": model.get_encoder()(**source, return_dict=True)}
    encoded |= {"attention_mask": inputs["attention_mask"]} if "attention_mask" in inputs else {}
    sampled = _sample(
        model, model.prepare_decoder_input_ids_from_labels(inputs["labels"]), "decoder_input_ids", encoded
    )
    return model.model(**source, decoder_input_ids=sampled, output_hidden_states=True, return_dict=True)


@torch.no_grad()
def _sample(model: Any, reference: Tensor, name: str, others: dict[str, Any]) -> Tensor:
    read, cache = [reference[:, :1]], None
    for _ in range(1, reference.shape[1]):
        outputs = model(**{name: read[-1]}, **others, past_key_values=cache, use_cache=True)
        cache = outputs.past_key_values
        read.append(torch.multinomial(outputs.logits[:, -1].float().softmax(dim=-1), 1))
    return torch.cat(read, dim=1)
