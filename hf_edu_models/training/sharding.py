"""Weights that FSDP2 has sharded, gathered for what runs outside of the model's own forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


def gather_weights(model: nn.Module) -> list[Any]:
    """Keep the weights of a sharded model whole from now on; returns its sharded modules. Call it on all ranks."""
    units: list[Any] = [module for module in model.modules() if hasattr(module, "set_reshard_after_forward")]
    for unit in units:
        unit.set_reshard_after_forward(False, recurse=False)
        unit.unshard()
    vars(model).pop("generate", None)  # Accelerate's, which gathers some weights and shards them again
    return units


@contextmanager
def gathered_weights(model: nn.Module, reshard_after_forward: bool = True) -> Iterator[None]:
    """Gather the weights for `generate()`, and shard them again.

    FSDP2 gathers the weights of a module in its forward pass. `generate()` uses some outside of it, and ranks whose
    texts end earlier would not take part in the others' forward passes.
    """
    generate = vars(model).get("generate")
    units = gather_weights(model)
    try:
        yield
    finally:
        for unit in units:
            unit.set_reshard_after_forward(reshard_after_forward, recurse=False)
            unit.reshard()
        if generate is not None:
            model.generate = generate
