"""What surrounds the layers of the Transformer, GPT and BERT: positions, the choice of attention, and the loop."""

import copy

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .blocks_base import EduPreTrainedModel
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


def final_norm(config) -> nn.Module:
    """With `norm_first` nothing else normalises the sum of all layers."""
    return nn.LayerNorm(config.hidden_size, config.layer_norm_eps) if config.norm_first else nn.Identity()


def positions_of(attention_mask: Tensor | None, length: int, past: int, device) -> Tensor:
    """The position of each token among the real ones, so that padding on the left shifts none."""
    if attention_mask is None or attention_mask.ndim != 2:
        return (torch.arange(length, device=device) + past)[None]
    counted = attention_mask.long().cumsum(dim=1) - 1
    return counted.clamp(min=0)[:, -length:]


def choose_attention(config, output_attentions: bool | None) -> tuple:
    """The config to attend with, and whether to return weights: only `eager` has them, so that call runs eager."""
    output_attentions = config.output_attentions if output_attentions is None else output_attentions
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
    unpadding = find_unpadding(attention_mask, hidden_states.shape[1])
    shared = (mask, config._attn_implementation, unpadding, cache, attention_kwargs)
    arguments = [shared] * config.num_hidden_layers  # early exit runs fewer
    states, all_states, weights = run_layers(model, hidden_states, unpadding, arguments, output_hidden_states)
    attentions = tuple(layer for (layer,) in weights) if output_attentions else None
    return {"last_hidden_state": states, "hidden_states": all_states, "attentions": attentions}
