"""Where a word stands: vectors that are computed, and vectors that are learnt.

Shapes: B batch, T length, D hidden size.
"""

import torch
from torch import Tensor, nn
from transformers import initialization as init


class SinusoidalPositions(nn.Module):
    """Vaswani et al. 2017, Section 3.5: sines and cosines of wavelengths from 2 pi to 10000 x 2 pi.

    Any position has a vector, and the one some places on is the same rotation of it wherever it stands.
    """

    def __init__(self, size: int, layout: str = "interleaved"):
        super().__init__()
        self.size, self.layout = size, layout

    def forward(self, positions: Tensor) -> Tensor:
        # Computed each time: a table would be one more thing to lose between saving and loading.
        exponents = torch.arange(0, self.size, 2, device=positions.device, dtype=torch.float64) / self.size
        angles = positions[..., None] * 10_000.0**-exponents
        waves = torch.stack([angles.sin(), angles.cos()], dim=-2 if self.layout == "halves" else -1)
        return waves.flatten(-2).to(torch.get_default_dtype())


class LearnedPositions(nn.Embedding):
    """A vector for each position, learnt like a word's."""

    def start_as_waves(self, amplitude: float) -> None:
        """Random vectors do not say who is whose neighbour, and each place has to find that out for itself; in
        sinusoids one rotation says it for all places, and learning goes on from there."""
        places = torch.arange(self.num_embeddings, device=self.weight.device)
        waves = SinusoidalPositions(self.embedding_dim)(places)
        init.copy_(self.weight, amplitude * waves[:, : self.embedding_dim])
