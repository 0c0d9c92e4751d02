"""Sinusoidal position encodings: the Transformer's, and an initialisation of BERT's."""

import torch
from torch import Tensor, nn


class SinusoidalPositions(nn.Module):
    """Vaswani et al. 2017, Section 3.5: sines and cosines of wavelengths from 2 pi to 10000 x 2 pi.

    PE(pos, 2i) = sin(pos / 10000^(2i / d)),  PE(pos, 2i + 1) = cos(pos / 10000^(2i / d))

    Every position has an encoding, and PE(pos + k) is the same rotation of PE(pos) for every pos.
    """

    def __init__(self, size: int, layout: str = "interleaved"):
        super().__init__()
        self.size, self.layout = size, layout

    def forward(self, positions: Tensor) -> Tensor:
        return sinusoids(positions, self.size, self.layout)


def sinusoids(positions: Tensor, size: int, layout: str = "interleaved") -> Tensor:
    """One vector of `size` numbers for each position. Computed each time: a buffer would have to be rebuilt."""
    exponents = torch.arange(0, size, 2, device=positions.device, dtype=torch.float64) / size
    angles = positions[..., None] * 10_000.0**-exponents
    waves = torch.stack([angles.sin(), angles.cos()], dim=-2 if layout == "halves" else -1)
    return waves.flatten(-2).to(torch.get_default_dtype())
