"""What surrounds the layers of the Transformer, GPT and BERT: positions, the choice of attention, and the loop.

Shapes: B batch, T length of the queries, S length of the keys, H heads.
"""

import copy

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .blocks_base import EduPreTrainedModel
from .blocks_losses import mean_over_rows
from .blocks_unpadding import Unpadding, find_unpadding


class AttentionPreTrainedModel(EduPreTrainedModel):
    """What the models made of `TransformerLayer`s declare to transformers."""

    _no_split_modules = ["TransformerLayer"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Biases start at zero, layer norms as the identity, and matrices as `init_matrix` says."""
        if isinstance(module, nn.Linear | nn.Embedding):
            self.init_matrix(module)
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
        if getattr(module, "bias", None) is not None and isinstance(module, nn.Linear | nn.LayerNorm):
            init.zeros_(module.bias)

    def penalise(self, loss, outputs, attention_mask, labels, num_items_in_batch=None, dropped=None):
        """In training, the loss plus `head_diversity_weight` times the mean penalty of the rows."""
        weight = getattr(self.config, "head_diversity_weight", 0.0) if self.training else 0.0
        if not weight:
            return loss
        penalties = self.attention_penalties(outputs, attention_mask, labels)
        return loss + weight * mean_over_rows(penalties, labels, num_items_in_batch)

    def attention_penalties(self, outputs, attention_mask: Tensor | None, labels: Tensor) -> Tensor:
        """The penalty of each row."""
        return head_diversity(outputs.attentions, attention_mask)


def head_diversity(weights: tuple[Tensor, ...], mask: Tensor | None) -> Tensor:
    """A penalty for heads that attend to the same positions: ||A A^T - I||^2, A the heads' weights at one position.

    After Lin et al. 2017, arXiv:1703.03130. For each row, the mean over layers and real positions.
    """
    penalties = []
    for layer in weights:
        rows = layer.transpose(1, 2)  # (B, T, H, S)
        overlap = rows @ rows.transpose(-2, -1)  # (B, T, H, H)
        overlap = overlap - torch.eye(overlap.shape[-1], device=overlap.device, dtype=overlap.dtype)
        penalties.append(overlap.square().sum(dim=(-2, -1)))
    penalty = torch.stack(penalties).mean(dim=0)  # (B, T)
    if mask is None or mask.ndim == 4:
        return penalty.mean(dim=1)
    is_real = mask.reshape(penalty.shape).to(penalty.dtype)
    return (penalty * is_real).sum(dim=1) / is_real.sum(dim=1).clamp(min=1)


def final_norm(config) -> nn.Module:
    """With `norm_first` nothing else normalises the sum of all layers."""
    return nn.LayerNorm(config.hidden_size, config.layer_norm_eps) if config.norm_first else nn.Identity()


def positions_of(attention_mask: Tensor | None, length: int, past: int, device) -> Tensor:
    """The position of each token among the real ones, so that padding on the left shifts none."""
    if attention_mask is None or attention_mask.ndim != 2:
        return (torch.arange(length, device=device) + past)[None]
    counted = attention_mask.long().cumsum(dim=1) - 1
    return counted.clamp(min=0)[:, -length:]


def choose_attention(config, output_attentions: bool | None, is_training: bool = False) -> tuple:
    """The config to attend with, and whether to return weights: only `eager` has them, so that call runs eager.

    In training a penalty for heads that attend alike needs them, too.
    """
    output_attentions = config.output_attentions if output_attentions is None else output_attentions
    output_attentions = output_attentions or (is_training and config.head_diversity_weight > 0)
    if output_attentions and config._attn_implementation != "eager":
        config = copy.copy(config)
        config._attn_implementation = "eager"
    return config, output_attentions


def run_layers(
    model: nn.Module, hidden_states: Tensor, unpadding: Unpadding, arguments: list[tuple], output_hidden_states
) -> tuple[Tensor, tuple[Tensor, ...] | None, list[list[Tensor | None]]]:
    """Run `model.layers`, as many as there are arguments, and `model.final_norm`.

    Returns the last hidden states; with `output_hidden_states` the input and output of every layer, else None; and the
    attention weights of every layer.
    """
    all_states, all_weights = [hidden_states], []
    states = unpadding.unpad(hidden_states)
    for layer, layer_arguments in zip(model.layers[: len(arguments)], arguments, strict=True):
        states, *weights = layer(states, *layer_arguments)
        all_states.append(states)
        all_weights.append(weights)
    all_states[-1] = states = model.final_norm(states)
    if output_hidden_states is None:
        output_hidden_states = model.config.output_hidden_states
    padded = (hidden_states, *map(unpadding.pad, all_states[1:])) if output_hidden_states else None
    return unpadding.pad(states), padded, all_weights


def run_self_attention(
    model: nn.Module,
    config,
    hidden_states: Tensor,
    attention_mask: Tensor | None,
    mask: Tensor | None,
    output_attentions: bool,
    output_hidden_states: bool | None,
    cache=None,
    attention_kwargs: dict | None = None,
) -> dict:
    """Run layers of self-attention; returns the fields of a transformers model output.

    Args:
        config: from `choose_attention`.
        attention_mask, mask: the caller's, and what `masking_utils` made of it.
        attention_kwargs: keyword arguments of `forward` for the attention function, as in transformers' models.
    """
    unpadding = find_unpadding(attention_mask, hidden_states.shape[1], by_row=True)
    shared = (mask, config._attn_implementation, unpadding, cache, attention_kwargs)
    arguments = [shared] * config.num_hidden_layers  # early exit runs fewer
    states, all_states, weights = run_layers(model, hidden_states, unpadding, arguments, output_hidden_states)
    attentions = tuple(layer for (layer,) in weights) if output_attentions else None
    return {"last_hidden_state": states, "hidden_states": all_states, "attentions": attentions}
