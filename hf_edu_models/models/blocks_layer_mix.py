"""Mixing layers: one vector per token of the hidden states of all layers.

Every layer of a pre-trained model knows something else: lower ones more of syntax, higher ones more of meaning. A mix
takes the hidden states of all layers, the embeddings first, and returns one tensor. `make_layer_mix` knows their names:
`scalar` (Peters et al. 2018), `last`, `sumN` and `concatN` of the last N layers (Devlin et al. 2019, Table 7).

Shapes: B batch, T tokens, D hidden size.
"""

import re
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import initialization as init


class ScalarMix(nn.Module):
    """Peters et al. 2018, Eq. (1): ELMo_k = gamma sum_j s_j h_kj, with s = softmax(w); w and gamma are learnt.

    At first every layer counts the same; weight decay on w keeps it near there.
    """

    def __init__(self, num_layers: int):
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(num_layers))  # w
        self.scale = nn.Parameter(torch.ones(1))  # gamma

    def weights(self) -> Tensor:
        """The share of each layer, s."""
        return self.scores.softmax(dim=0)

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        weighted = [weight * states for weight, states in zip(self.weights(), layers, strict=True)]
        mixed = self.scale * torch.stack(weighted).sum(dim=0)  # (B, T, D)  ELMo_k, Eq. (1)
        return mixed


class SumMix(nn.Module):
    """The sum of the last layers; of one layer, the layer itself."""

    def __init__(self, count: int):
        super().__init__()
        self.count = count

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        return sum(layers[-self.count + 1 :], layers[-self.count]) if self.count > 1 else layers[-1]


class ConcatMix(SumMix):
    """The last layers, one behind the other."""

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(layers[-self.count :]), dim=-1)


def _parse_layer_mix(name: str, num_layers: int) -> tuple[str, int]:
    """The kind of a mix, `scalar`, `sum` or `concat`, and how many of the `num_layers` states it reads."""
    if name == "scalar":
        return name, num_layers
    match = re.fullmatch(r"(sum|concat)([1-9]\d*)", "sum1" if name == "last" else name)
    if match is None or int(match[2]) > num_layers:
        raise ValueError(
            f"layer_mix '{name}' is not known; choose scalar, last, sumN or concatN, with N up to {num_layers}: the "
            "layers of the model and its embeddings"
        )
    return match[1], int(match[2])


def make_layer_mix(name: str, num_layers: int) -> nn.Module:
    """The mix of that name for a model that gives `num_layers` hidden states, the embeddings among them."""
    kind, count = _parse_layer_mix(name, num_layers)
    return {"scalar": ScalarMix, "sum": SumMix, "concat": ConcatMix}[kind](count)


def mixed_size(name: str, num_layers: int, size: int) -> int:
    """The size of the vectors that a mix makes of layers of this size."""
    kind, count = _parse_layer_mix(name, num_layers)
    return count * size if kind == "concat" else size


def init_layer_mix(module: nn.Module) -> None:
    """All layers count the same."""
    if isinstance(module, ScalarMix):
        init.zeros_(module.scores)
        init.ones_(module.scale)
