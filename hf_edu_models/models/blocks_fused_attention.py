"""The fused form of a decoder that attends before each step: the results of the eager loop, computed faster.

Three things make it fast. Each step has one matrix product with weights: the state with [W_a; U]. Embeddings and
annotations are projected before the loop, because (sum_j alpha_j h_j) C = sum_j alpha_j (h_j C). tanh(q + k) at every
source position is 1 - 2 / (1 + e^2q e^2k), with e^2k computed before the loop. And backward is written out, so that the
gradient of each weight is one product over all steps instead of one per step.

Shapes: B batch, S source length, T time steps, D hidden size, A alignment size, G gates of the cell times D.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .blocks_attention import Softmax
from .blocks_fused_steps import FUSED_CELLS, ScoreGradients, StepRecord, StepWeights
from .blocks_recurrent import State


class SourceProjection(NamedTuple):
    """The source as the loop reads it.

    Args:
        score_keys: (B, S, A), the annotations prepared for scoring.
        cell_inputs: (B, S, G), the annotations times the cell's input weights.
    """

    score_keys: Tensor
    cell_inputs: Tensor


def project_source(decoder: nn.Module, annotations: Tensor) -> SourceProjection | None:
    """What `attend_fused` needs, or None where there is no fused form or it would not be exact."""
    cell, score = decoder.cell, decoder.score
    is_mixed = torch.is_autocast_enabled(annotations.device.type)
    if is_mixed or annotations.dtype not in (torch.float32, torch.float64) or torch.compiler.is_compiling():
        return None
    if getattr(score, "fused", None) is None or type(cell).__name__ not in FUSED_CELLS:
        return None
    if type(decoder.normalizer) is not Softmax:
        return None
    keys = score.prepare(annotations)  # (B, S, A)
    if not score.fused.is_exact(score, keys):
        return None
    if not torch.is_grad_enabled():
        keys = score.fused.transform_keys(keys)
    cell_inputs = F.linear(annotations, cell.input_weight[:, -annotations.shape[-1] :])  # (B, S, G)
    return SourceProjection(keys, cell_inputs)


def attend_fused(
    decoder: nn.Module,
    embeddings: Tensor,
    state: State,
    source: SourceProjection,
    step_weights: StepWeights,
    source_mask: Tensor | None,
) -> tuple[Tensor, Tensor, State]:
    """`decoder` over all target positions: states (B, T, D), weights (B, T, S) and the last state."""
    cell = decoder.cell
    gate_inputs = F.linear(embeddings, cell.input_weight[:, : embeddings.shape[-1]], cell.input_bias)  # (B, T, G)
    hidden, cell_state = state if len(state) > 1 else (*state, None)
    run = FusedAttentionLoop.apply if torch.is_grad_enabled() else _run_without_gradient
    forms, keys, values = (FUSED_CELLS[type(cell).__name__], decoder.score.fused), source.score_keys, source.cell_inputs
    inputs = (gate_inputs, keys, values, source_mask, hidden, cell_state)
    states, cell_states, weights = run(*forms, *inputs, *step_weights)
    last = (states[:, -1],) if cell_states is None else (states[:, -1], cell_states[:, -1])
    return states, weights, last


def unroll_fused(
    cell, score, gate_inputs, keys, values, mask, hidden, cell_state, matrix, bias, vector
) -> list[StepRecord]:
    """All steps of the decoder; `keys` have gone through `score.transform_keys`."""
    align_size = matrix.shape[0] - gate_inputs.shape[-1]
    steps, scratch = [], score.new_scratch(keys)
    for gate_input in gate_inputs.unbind(dim=1):
        sums = torch.addmm(bias, hidden, matrix.t())
        projected, from_state = sums.split([align_size, gate_input.shape[-1]], dim=-1)
        scores = score.step(hidden, projected, keys, vector, scratch)
        if mask is not None:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        alphas = scores.softmax(dim=-1)
        from_input = torch.baddbmm(gate_input[:, None, :], alphas[:, None, :], values).squeeze(1)
        new_hidden, new_cell_state, saved = cell.step(from_input, from_state, hidden, cell_state)
        steps.append(StepRecord(new_hidden, new_cell_state, alphas, hidden, cell_state, projected, saved))
        hidden, cell_state = new_hidden, new_cell_state
    return steps


def _stack_steps(steps: list[StepRecord]) -> tuple[Tensor, Tensor | None, Tensor]:
    """Hidden states (B, T, D), cell states (B, T, D) of an LSTM, and weights (B, T, S)."""
    states = torch.stack([step.new_hidden for step in steps], dim=1)
    alphas = torch.stack([step.alphas for step in steps], dim=1)
    if steps[0].new_cell_state is None:
        return states, None, alphas
    return states, torch.stack([step.new_cell_state for step in steps], dim=1), alphas


def _run_without_gradient(*inputs) -> tuple[Tensor, Tensor | None, Tensor]:
    return _stack_steps(unroll_fused(*inputs))


class FusedAttentionLoop(torch.autograd.Function):
    """The loop with its backward pass; it transforms the keys itself."""

    @staticmethod
    def forward(ctx, cell, score, gate_inputs, keys, values, mask, hidden, cell_state, matrix, bias, vector):
        keys = score.transform_keys(keys)
        steps = unroll_fused(cell, score, gate_inputs, keys, values, mask, hidden, cell_state, matrix, bias, vector)
        ctx.cell, ctx.score, ctx.steps = cell, score, steps
        ctx.save_for_backward(keys, values, matrix, vector)
        return _stack_steps(steps)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, states_grad, cells_grad, alphas_grad):
        keys, values, matrix, vector = ctx.saved_tensors
        steps = ctx.steps
        sums = ScoreGradients.start(keys, vector)
        # Time first, so that each step writes contiguous memory, which one product after the loop reads.
        gate_inputs_grad = values.new_empty(len(steps), len(keys), values.shape[-1])  # (T, B, G)
        sums_grad = values.new_empty(len(steps), len(keys), matrix.shape[0])  # (T, B, A + G)
        hidden_grad = torch.zeros_like(steps[0].hidden)
        cell_grad = None if cells_grad is None else torch.zeros_like(hidden_grad)
        for position in reversed(range(len(steps))):
            step = steps[position]
            hidden_grad = hidden_grad + states_grad[:, position]
            if cell_grad is not None:
                cell_grad = cell_grad + cells_grad[:, position]
            input_grad, state_grad, kept_grad, cell_grad = ctx.cell.backward(hidden_grad, cell_grad, step)
            # A row times a transpose: MKL takes 4 to 12 times as long for the values times a column.
            alpha_grad = torch.bmm(input_grad[:, None, :], values.transpose(1, 2)).squeeze(1)
            alpha_grad = alpha_grad + alphas_grad[:, position]  # (B, S)
            scores_grad = step.alphas * (alpha_grad - (step.alphas * alpha_grad).sum(dim=-1, keepdim=True))
            query_grad, projected_grad = ctx.score.backward(scores_grad, step, keys, sums)
            torch.cat([projected_grad, state_grad], dim=-1, out=sums_grad[position])
            hidden_grad = torch.addmm(kept_grad, sums_grad[position], matrix) + query_grad
            gate_inputs_grad[position] = input_grad

        old_hiddens = torch.stack([step.hidden for step in steps])  # (T, B, D)
        alphas = torch.stack([step.alphas for step in steps], dim=2)  # (B, S, T)
        gate_inputs_grad = gate_inputs_grad.transpose(0, 1)  # (B, T, G)
        values_grad = torch.bmm(alphas, gate_inputs_grad)
        matrix_grad = sums_grad.flatten(0, 1).t() @ old_hiddens.flatten(0, 1)
        bias_grad = sums_grad.sum(dim=(0, 1))
        keys_grad, vector_grad = ctx.score.total_gradients(sums)
        before_loop = (gate_inputs_grad, keys_grad, values_grad, None, hidden_grad, cell_grad)
        return None, None, *before_loop, matrix_grad, bias_grad, vector_grad
