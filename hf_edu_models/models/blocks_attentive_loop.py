"""The fast form of a decoder that attends before each step: the same numbers as the eager loop, by another road.

Three things make it fast. What a step multiplies by weights is one product: the state with [W_a; U]; the words went
through theirs before the loop, and so did the annotations, because (sum_j alpha_j h_j) C = sum_j alpha_j (h_j C).
tanh(q + k) over every source position is 1 - 2 / (1 + e^2q e^2k), with e^2k ready before the loop. And backward is
written out, so that each weight's gradient is one product over all steps instead of one a step.

Shapes: B batch, S source length, T time steps, D hidden size, A alignment size, G gates of the cell times D.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# e^2x of anything within this range is a normal float32, so e^2q e^2k is right even where it rounds to 0 or infinity.
LARGEST_EXPONENT = 43.0
CACHE_NUMBERS = 2**18  # a megabyte of float32


class FusedRNN:
    """One step of `RNNCell`, and its derivative, from the sums that reach its units."""

    @staticmethod
    def step(from_input: Tensor, from_state: Tensor, hidden: Tensor, memory: Tensor | None):
        new_hidden = torch.tanh(from_input + from_state)  # (B, D)
        return new_hidden, None, ()

    @staticmethod
    def back(hidden_grad: Tensor, memory_grad: Tensor | None, step: "Step"):
        sum_grad = hidden_grad * (1 - step.new_hidden * step.new_hidden)  # (B, D)
        return sum_grad, sum_grad, torch.zeros_like(sum_grad), None


class FusedGRU:
    @staticmethod
    def step(from_input: Tensor, from_state: Tensor, hidden: Tensor, memory: Tensor | None):
        size = hidden.shape[-1]
        gates = torch.sigmoid(from_input[:, : 2 * size] + from_state[:, : 2 * size])
        reset_gate, update_gate = gates.chunk(2, dim=-1)
        past = from_state[:, 2 * size :]
        candidate = torch.tanh(torch.addcmul(from_input[:, 2 * size :], reset_gate, past))  # (B, D)
        new_hidden = torch.lerp(candidate, hidden, update_gate)  # (B, D)
        return new_hidden, None, (gates, past, candidate)

    @staticmethod
    def back(hidden_grad: Tensor, memory_grad: Tensor | None, step: "Step"):
        gates, past, candidate = step.saved
        reset_gate, update_gate = gates.chunk(2, dim=-1)
        kept_grad = hidden_grad * update_gate  # (B, D)
        candidate_grad = (hidden_grad - kept_grad) * (1 - candidate * candidate)  # (B, D)
        gates_grad = torch.cat([candidate_grad * past, hidden_grad * (step.hidden - candidate)], dim=-1)
        gates_grad = gates_grad * gates * (1 - gates)
        input_grad = torch.cat([gates_grad, candidate_grad], dim=-1)
        state_grad = torch.cat([gates_grad, candidate_grad * reset_gate], dim=-1)
        return input_grad, state_grad, kept_grad, None


class FusedLSTM:
    @staticmethod
    def step(from_input: Tensor, from_state: Tensor, hidden: Tensor, memory: Tensor):
        sums = from_input + from_state
        input_gate, forget_gate, candidate, output_gate = sums.chunk(4, dim=-1)
        input_gate, forget_gate, output_gate = input_gate.sigmoid(), forget_gate.sigmoid(), output_gate.sigmoid()
        candidate = candidate.tanh()
        new_memory = torch.addcmul(forget_gate * memory, input_gate, candidate)  # (B, D)
        shown = new_memory.tanh()
        return output_gate * shown, new_memory, (input_gate, forget_gate, candidate, output_gate, shown)

    @staticmethod
    def back(hidden_grad: Tensor, memory_grad: Tensor, step: "Step"):
        input_gate, forget_gate, candidate, output_gate, shown = step.saved
        memory_grad = memory_grad + hidden_grad * output_gate * (1 - shown * shown)  # (B, D)
        sum_grad = torch.cat(
            [
                memory_grad * candidate * input_gate * (1 - input_gate),
                memory_grad * step.memory * forget_gate * (1 - forget_gate),
                memory_grad * input_gate * (1 - candidate * candidate),
                hidden_grad * shown * output_gate * (1 - output_gate),
            ],
            dim=-1,
        )
        return sum_grad, sum_grad, torch.zeros_like(hidden_grad), memory_grad * forget_gate


class FusedDot:
    """Scores that are a dot product of state and key; a factor, if there is one, is in the keys already."""

    @staticmethod
    def ready(keys: Tensor) -> Tensor:
        return keys

    @classmethod
    def step(cls, hidden: Tensor, projected: Tensor, keys: Tensor, vector: Tensor | None) -> Tensor:
        return torch.bmm(keys, hidden[:, :, None]).squeeze(-1)

    @classmethod
    def back(cls, scores_grad: Tensor, step: "Step", keys: Tensor, sums: "ScoreSums"):
        """The gradients of the state and of its projection; what belongs to all steps is added to `sums`."""
        return cls.product_back(scores_grad, step.hidden, keys, sums), step.projected

    @staticmethod
    def product_back(scores_grad: Tensor, query: Tensor, keys: Tensor, sums: "ScoreSums") -> Tensor:
        sums.keys.baddbmm_(scores_grad[:, :, None], query[:, None, :])
        return torch.bmm(scores_grad[:, None, :], keys).squeeze(1)

    @staticmethod
    def finish(sums: "ScoreSums") -> tuple[Tensor, Tensor | None]:
        return sums.keys, None


class FusedCosine(FusedDot):
    """The same with the state brought to length one."""

    @classmethod
    def step(cls, hidden: Tensor, projected: Tensor, keys: Tensor, vector: Tensor | None) -> Tensor:
        return super().step(F.normalize(hidden, dim=-1), projected, keys, vector)

    @classmethod
    def back(cls, scores_grad: Tensor, step: "Step", keys: Tensor, sums: "ScoreSums"):
        length = step.hidden.norm(dim=-1, keepdim=True).clamp_min(1e-12)
        unit = step.hidden / length
        unit_grad = cls.product_back(scores_grad, unit, keys, sums)
        along = (unit_grad * unit).sum(dim=-1, keepdim=True)
        return (unit_grad - along * unit) / length, step.projected


class FusedAdditive:
    """The additive score up to a constant that the softmax drops: -2 v f with f = 1 / (1 + e^2q e^2k)."""

    @staticmethod
    def ready(keys: Tensor) -> Tensor:
        return (2 * keys).exp_()

    @staticmethod
    def fractions(projected: Tensor, keys: Tensor, room: Tensor) -> Tensor:
        one = torch.ones((), dtype=keys.dtype, device=keys.device)
        return torch.addcmul(one, keys, (2 * projected).exp_()[:, None, :], out=room).reciprocal_()

    @classmethod
    def step(cls, hidden: Tensor, projected: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
        """A few rows at a time on a CPU, so that what is written is still in the cache when it is read."""
        numbers_a_row = keys.shape[1] * keys.shape[2]
        rows = max(1, CACHE_NUMBERS // numbers_a_row) if keys.device.type == "cpu" else len(keys)
        scores = keys.new_empty(keys.shape[:2])
        room = torch.empty_like(keys[:rows])
        for start in range(0, len(keys), rows):
            part = slice(start, start + rows)
            fractions = cls.fractions(projected[part], keys[part], room[: len(keys[part])])
            torch.matmul(fractions, -2 * vector, out=scores[part])
        return scores

    @classmethod
    def back(cls, scores_grad: Tensor, step: "Step", keys: Tensor, sums: "ScoreSums"):
        fractions = cls.fractions(step.projected, keys, sums.room)
        rows = scores_grad[:, None, :]
        sums.fractions.baddbmm_(rows, fractions)
        slopes = fractions.addcmul_(fractions, fractions, value=-1)
        sums.keys.addcmul_(slopes, scores_grad[:, :, None])
        return 0, torch.bmm(rows, slopes).squeeze(1) * sums.slope_factor

    @staticmethod
    def finish(sums: "ScoreSums") -> tuple[Tensor, Tensor]:
        return sums.keys * sums.slope_factor, sums.fractions.sum(dim=(0, 1)) * -2


FUSED_CELLS = {"rnn": FusedRNN, "gru": FusedGRU, "lstm": FusedLSTM}
FUSED_SCORES = {
    "additive": FusedAdditive,
    "dot": FusedDot,
    "scaled_dot": FusedDot,
    "general": FusedDot,
    "cosine": FusedCosine,
}


class ScoreSums(NamedTuple):
    """What the steps of backward add up to."""

    keys: Tensor
    fractions: Tensor
    slope_factor: Tensor | None
    room: Tensor  # one step's scratch of the size of the keys, so that no step asks for memory

    @classmethod
    def start(cls, keys: Tensor, vector: Tensor | None) -> "ScoreSums":
        slope_factor = None if vector is None else 4 * vector
        return cls(torch.zeros_like(keys), torch.zeros_like(keys[:, :1]), slope_factor, torch.empty_like(keys))


class LoopWeights(NamedTuple):
    """The weights that a step needs: `matrix` is [W_a; U] or U alone, `bias` its bias, `vector` the score's v_a."""

    matrix: Tensor
    bias: Tensor
    vector: Tensor | None


class Step(NamedTuple):
    """One step of the loop: what it gives, and what its derivative needs."""

    new_hidden: Tensor
    new_memory: Tensor | None
    alphas: Tensor
    hidden: Tensor
    memory: Tensor | None
    projected: Tensor
    saved: tuple[Tensor, ...]


def walk(cell, score, from_words, keys, values, keep, hidden, memory, matrix, bias, vector) -> list[Step]:
    """All steps of the decoder. `keys` are as `score.ready` leaves them."""
    align_size = matrix.shape[0] - from_words.shape[-1]
    steps = []
    for from_word in from_words.unbind(dim=1):
        sums = torch.addmm(bias, hidden, matrix.t())
        projected, from_state = sums.split([align_size, from_word.shape[-1]], dim=-1)
        scores = score.step(hidden, projected, keys, vector)
        if keep is not None:
            scores = scores.masked_fill(~keep, torch.finfo(scores.dtype).min)
        alphas = scores.softmax(dim=-1)
        from_input = torch.baddbmm(from_word[:, None, :], alphas[:, None, :], values).squeeze(1)
        new_hidden, new_memory, saved = cell.step(from_input, from_state, hidden, memory)
        steps.append(Step(new_hidden, new_memory, alphas, hidden, memory, projected, saved))
        hidden, memory = new_hidden, new_memory
    return steps


def gather_steps(steps: list[Step]) -> tuple[Tensor, Tensor | None, Tensor]:
    """States (B, T, D), memories (B, T, D) if there are any, and weights (B, T, S)."""
    states = torch.stack([step.new_hidden for step in steps], dim=1)
    alphas = torch.stack([step.alphas for step in steps], dim=1)
    if steps[0].new_memory is None:
        return states, None, alphas
    return states, torch.stack([step.new_memory for step in steps], dim=1), alphas


def run_loop(*inputs) -> tuple[Tensor, Tensor | None, Tensor]:
    """The loop without a gradient."""
    return gather_steps(walk(*inputs))


class AttentiveLoop(torch.autograd.Function):
    """`run_loop` with its backward written out; takes the keys as they are and makes them ready itself."""

    @staticmethod
    def forward(ctx, cell, score, from_words, keys, values, keep, hidden, memory, matrix, bias, vector):
        keys = score.ready(keys)
        steps = walk(cell, score, from_words, keys, values, keep, hidden, memory, matrix, bias, vector)
        ctx.cell, ctx.score, ctx.steps = cell, score, steps
        ctx.save_for_backward(keys, values, matrix, vector)
        return gather_steps(steps)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, states_grad, memories_grad, alphas_grad):
        keys, values, matrix, vector = ctx.saved_tensors
        steps = ctx.steps
        sums = ScoreSums.start(keys, vector)
        # Time first, so that each step writes one piece of memory and one product after the loop reads it in a row.
        from_words_grad = values.new_empty(len(steps), len(keys), values.shape[-1])  # (T, B, G)
        sums_grad = values.new_empty(len(steps), len(keys), matrix.shape[0])  # (T, B, A + G)
        hidden_grad = torch.zeros_like(steps[0].hidden)
        memory_grad = None if memories_grad is None else torch.zeros_like(hidden_grad)
        for position in reversed(range(len(steps))):
            step = steps[position]
            hidden_grad = hidden_grad + states_grad[:, position]
            if memory_grad is not None:
                memory_grad = memory_grad + memories_grad[:, position]
            input_grad, state_grad, kept_grad, memory_grad = ctx.cell.back(hidden_grad, memory_grad, step)
            alpha_grad = alphas_grad[:, position] + torch.bmm(values, input_grad[:, :, None]).squeeze(-1)  # (B, S)
            scores_grad = step.alphas * (alpha_grad - (step.alphas * alpha_grad).sum(dim=-1, keepdim=True))
            query_grad, projected_grad = ctx.score.back(scores_grad, step, keys, sums)
            torch.cat([projected_grad, state_grad], dim=-1, out=sums_grad[position])
            hidden_grad = torch.addmm(kept_grad, sums_grad[position], matrix) + query_grad
            from_words_grad[position] = input_grad

        befores = torch.stack([step.hidden for step in steps])  # (T, B, D)
        alphas = torch.stack([step.alphas for step in steps], dim=2)  # (B, S, T)
        from_words_grad = from_words_grad.transpose(0, 1)  # (B, T, G)
        values_grad = torch.bmm(alphas, from_words_grad)
        matrix_grad = sums_grad.flatten(0, 1).t() @ befores.flatten(0, 1)
        bias_grad = sums_grad.sum(dim=(0, 1))
        keys_grad, vector_grad = ctx.score.finish(sums)
        before_loop = (from_words_grad, keys_grad, values_grad, None, hidden_grad, memory_grad)
        return None, None, *before_loop, matrix_grad, bias_grad, vector_grad
