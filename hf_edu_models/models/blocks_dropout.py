"""Dropout that is faster on a CPU, and dropout of whole tokens.

`nn.Dropout` draws one random number per element; 16 random bits are enough, and one draw of 64 bits gives four.
"""

import torch
from torch import Tensor, nn

STEPS = 2**16  # of probability


class Dropout(nn.Dropout):
    """`nn.Dropout` with its probability rounded to 1/65536: y = x * m / (1 - p), m ~ Bernoulli(1 - p)."""

    def forward(self, states: Tensor) -> Tensor:
        dropped = round(self.p * STEPS)
        uses_torch = states.device.type != "cpu" or torch.compiler.is_compiling()
        if not self.training or dropped in (0, STEPS) or uses_torch:
            return super().forward(states)
        count = states.numel()
        draws = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        numbers = draws.view(torch.int16)[:count].view(states.shape)  # uniform over 65536 values
        mask = (numbers >= dropped - STEPS // 2).to(states.dtype)
        return states * mask.mul_(STEPS / (STEPS - dropped))


class TokenDropout(nn.Dropout):
    """Leaves each token out with probability p: the mask (B, T) of the tokens that stay (Iyyer et al. 2015)."""

    def forward(self, embeddings: Tensor, mask: Tensor | None) -> Tensor | None:  # type: ignore[override]
        if not self.training or self.p == 0:
            return mask
        stays = torch.rand(embeddings.shape[:2], device=embeddings.device) >= self.p
        return stays if mask is None else stays & mask
