"""One step of each cell and each score in fused form, with its derivative written out.

`blocks_fused_attention.py` runs them in a loop. The equations are in `blocks_recurrent.py` and `blocks_attention.py`.

Shapes: B batch, S source length, D hidden size, A alignment size.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# e^2x within this range is a normal float32, so 1 / (1 + e^2q e^2k) is right even where the product is 0 or infinite.
_LARGEST_EXPONENT = 43.0
_CPU_CACHE_NUMBERS = 2**18  # a megabyte of float32


class StepRecord(NamedTuple):
    """One step of the loop: its results, and what its derivative needs."""

    new_hidden: Tensor
    new_cell_state: Tensor | None
    alphas: Tensor
    hidden: Tensor
    cell_state: Tensor | None
    projected: Tensor
    saved: tuple[Tensor, ...]


class StepWeights(NamedTuple):
    """The weights of one step: `matrix` is [W_a; U], [W_q; U] or U alone, `bias` its bias, `vector` the score's v_a."""

    matrix: Tensor
    bias: Tensor
    vector: Tensor | None


class ScoreGradients(NamedTuple):
    """Sums over all steps of the backward pass."""

    keys: Tensor
    fractions: Tensor
    slope_factor: Tensor | None
    scratch: Tensor  # of the size of the keys, so that no step allocates

    @classmethod
    def start(cls, keys: Tensor, vector: Tensor | None) -> "ScoreGradients":
        slope_factor = None if vector is None else 4 * vector
        return cls(torch.zeros_like(keys), torch.zeros_like(keys[:, :1]), slope_factor, torch.empty_like(keys))


class FusedRNNStep:
    """One step of `RNNCell` and its derivative, from what inputs and state add to its units before the activation."""

    @staticmethod
    def step(from_input: Tensor, from_state: Tensor, hidden: Tensor, cell_state: Tensor | None):
        new_hidden = torch.tanh(from_input + from_state)  # (B, D)
        return new_hidden, None, ()

    @staticmethod
    def backward(hidden_grad: Tensor, cell_grad: Tensor | None, step: StepRecord):
        sum_grad = hidden_grad * (1 - step.new_hidden * step.new_hidden)  # (B, D)
        return sum_grad, sum_grad, torch.zeros_like(sum_grad), None


class FusedGRUStep:
    """One step of `GRUCell` and its derivative."""

    @staticmethod
    def step(from_input: Tensor, from_state: Tensor, hidden: Tensor, cell_state: Tensor | None):
        size = hidden.shape[-1]
        gates = torch.sigmoid(from_input[:, : 2 * size] + from_state[:, : 2 * size])
        reset_gate, update_gate = gates.chunk(2, dim=-1)
        past = from_state[:, 2 * size :]
        candidate = torch.tanh(torch.addcmul(from_input[:, 2 * size :], reset_gate, past))  # (B, D)
        new_hidden = torch.lerp(candidate, hidden, update_gate)  # (B, D)
        return new_hidden, None, (gates, past, candidate)

    @staticmethod
    def backward(hidden_grad: Tensor, cell_grad: Tensor | None, step: StepRecord):
        gates, past, candidate = step.saved
        reset_gate, update_gate = gates.chunk(2, dim=-1)
        kept_grad = hidden_grad * update_gate  # (B, D)
        candidate_grad = (hidden_grad - kept_grad) * (1 - candidate * candidate)  # (B, D)
        gates_grad = torch.cat([candidate_grad * past, hidden_grad * (step.hidden - candidate)], dim=-1)
        gates_grad = gates_grad * gates * (1 - gates)
        input_grad = torch.cat([gates_grad, candidate_grad], dim=-1)
        state_grad = torch.cat([gates_grad, candidate_grad * reset_gate], dim=-1)
        return input_grad, state_grad, kept_grad, None


class FusedLSTMStep:
    """One step of `LSTMCell` and its derivative."""

    @staticmethod
    def step(from_input: Tensor, from_state: Tensor, hidden: Tensor, cell_state: Tensor):
        sums = from_input + from_state
        input_gate, forget_gate, candidate, output_gate = sums.chunk(4, dim=-1)
        input_gate, forget_gate, output_gate = input_gate.sigmoid(), forget_gate.sigmoid(), output_gate.sigmoid()
        candidate = candidate.tanh()
        new_cell_state = torch.addcmul(forget_gate * cell_state, input_gate, candidate)  # (B, D)
        shown = new_cell_state.tanh()
        return output_gate * shown, new_cell_state, (input_gate, forget_gate, candidate, output_gate, shown)

    @staticmethod
    def backward(hidden_grad: Tensor, cell_grad: Tensor, step: StepRecord):
        input_gate, forget_gate, candidate, output_gate, shown = step.saved
        cell_grad = cell_grad + hidden_grad * output_gate * (1 - shown * shown)  # (B, D)
        sum_grad = torch.cat(
            [
                cell_grad * candidate * input_gate * (1 - input_gate),
                cell_grad * step.cell_state * forget_gate * (1 - forget_gate),
                cell_grad * input_gate * (1 - candidate * candidate),
                hidden_grad * shown * output_gate * (1 - output_gate),
            ],
            dim=-1,
        )
        return sum_grad, sum_grad, torch.zeros_like(hidden_grad), cell_grad * forget_gate


# By class name, so that a subclass with other equations has no fused form, and a configuration that reads the registry
# of scores imports nothing but torch.
FUSED_CELLS = {"RNNCell": FusedRNNStep, "GRUCell": FusedGRUStep, "LSTMCell": FusedLSTMStep}


class FusedDot:
    """Scores that are a dot product of state and key; the keys carry a factor, if there is one."""

    @staticmethod
    def is_exact(score, keys: Tensor) -> bool:
        return True

    @staticmethod
    def step_weights(score, cell) -> StepWeights:
        return StepWeights(cell.state_weight, cell.state_bias, None)

    @staticmethod
    def transform_keys(keys: Tensor) -> Tensor:
        return keys

    @staticmethod
    def new_scratch(keys: Tensor) -> Tensor | None:
        """Memory that every step writes to."""
        return None

    @classmethod
    def step(
        cls, hidden: Tensor, projected: Tensor, keys: Tensor, vector: Tensor | None, scratch: Tensor | None
    ) -> Tensor:
        return torch.bmm(hidden[:, None, :], keys.transpose(1, 2)).squeeze(1)

    @classmethod
    def backward(cls, scores_grad: Tensor, step: StepRecord, keys: Tensor, sums: ScoreGradients):
        """The gradients of the state and of its projection; those of the keys are added to `sums`."""
        return cls.product_backward(scores_grad, step.hidden, keys, sums), step.projected

    @staticmethod
    def product_backward(scores_grad: Tensor, query: Tensor, keys: Tensor, sums: ScoreGradients) -> Tensor:
        sums.keys.baddbmm_(scores_grad[:, :, None], query[:, None, :])
        return torch.bmm(scores_grad[:, None, :], keys).squeeze(1)

    @staticmethod
    def total_gradients(sums: ScoreGradients) -> tuple[Tensor, Tensor | None]:
        return sums.keys, None


class FusedCosine(FusedDot):
    """The dot product with the state normalised to length one."""

    @classmethod
    def step(
        cls, hidden: Tensor, projected: Tensor, keys: Tensor, vector: Tensor | None, scratch: Tensor | None
    ) -> Tensor:
        return super().step(F.normalize(hidden, dim=-1), projected, keys, vector, scratch)

    @classmethod
    def backward(cls, scores_grad: Tensor, step: StepRecord, keys: Tensor, sums: ScoreGradients):
        length = step.hidden.norm(dim=-1, keepdim=True).clamp_min(1e-12)
        unit = step.hidden / length
        unit_grad = cls.product_backward(scores_grad, unit, keys, sums)
        along = (unit_grad * unit).sum(dim=-1, keepdim=True)
        return (unit_grad - along * unit) / length, step.projected


class FusedProjected(FusedDot):
    """The dot product of key and projected state."""

    @staticmethod
    def step_weights(score, cell) -> StepWeights:
        bias = torch.cat([torch.zeros_like(score.query_weight[:, 0]), cell.state_bias])
        return StepWeights(torch.cat([score.query_weight, cell.state_weight]), bias, None)

    @classmethod
    def step(
        cls, hidden: Tensor, projected: Tensor, keys: Tensor, vector: Tensor | None, scratch: Tensor | None
    ) -> Tensor:
        return super().step(projected, projected, keys, vector, scratch)

    @classmethod
    def backward(cls, scores_grad: Tensor, step: StepRecord, keys: Tensor, sums: ScoreGradients):
        return 0, cls.product_backward(scores_grad, step.projected, keys, sums)


class FusedAdditive:
    """The additive score up to a constant that the softmax drops: -2 v f with f = 1 / (1 + e^2q e^2k)."""

    @staticmethod
    def is_exact(score, keys: Tensor) -> bool:
        """No state is beyond 1, so no query is beyond the sum of its weights."""
        largest_query = score.query_weight.abs().sum(dim=1).max()
        return bool(torch.maximum(keys.abs().max(), largest_query) <= _LARGEST_EXPONENT)

    @staticmethod
    def step_weights(score, cell) -> StepWeights:
        bias = torch.cat([torch.zeros_like(score.score_vector), cell.state_bias])
        return StepWeights(torch.cat([score.query_weight, cell.state_weight]), bias, score.score_vector)

    @staticmethod
    def transform_keys(keys: Tensor) -> Tensor:
        return (2 * keys).exp_()

    @staticmethod
    def fractions(projected: Tensor, keys: Tensor, scratch: Tensor) -> Tensor:
        one = torch.ones((), dtype=keys.dtype, device=keys.device)
        return torch.addcmul(one, keys, (2 * projected).exp_()[:, None, :], out=scratch).reciprocal_()

    @staticmethod
    def new_scratch(keys: Tensor) -> Tensor:
        """A few rows on a CPU, so that what a step writes is still in the cache when it reads it.

        One for all steps: a new one per step would lie behind what the step before keeps, and the heap would grow.
        """
        numbers_per_row = keys.shape[1] * keys.shape[2]
        rows = max(1, _CPU_CACHE_NUMBERS // numbers_per_row) if keys.device.type == "cpu" else len(keys)
        return torch.empty_like(keys[:rows])

    @classmethod
    def step(cls, hidden: Tensor, projected: Tensor, keys: Tensor, vector: Tensor, scratch: Tensor) -> Tensor:
        rows = len(scratch)
        scores = keys.new_empty(keys.shape[:2])
        for start in range(0, len(keys), rows):
            part = slice(start, start + rows)
            fractions = cls.fractions(projected[part], keys[part], scratch[: len(keys[part])])
            torch.matmul(fractions, -2 * vector, out=scores[part])
        return scores

    @classmethod
    def backward(cls, scores_grad: Tensor, step: StepRecord, keys: Tensor, sums: ScoreGradients):
        fractions = cls.fractions(step.projected, keys, sums.scratch)
        rows = scores_grad[:, None, :]
        sums.fractions.baddbmm_(rows, fractions)
        slopes = fractions.addcmul_(fractions, fractions, value=-1)
        sums.keys.addcmul_(slopes, scores_grad[:, :, None])
        return 0, torch.bmm(rows, slopes).squeeze(1) * sums.slope_factor

    @staticmethod
    def total_gradients(sums: ScoreGradients) -> tuple[Tensor, Tensor]:
        return sums.keys * sums.slope_factor, sums.fractions.sum(dim=(0, 1)) * -2
