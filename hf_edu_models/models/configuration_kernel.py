# Copyright 2026 The hf_edu_models authors. Licensed under the Apache License, Version 2.0.
"""Configuration of kernel regression."""

from typing import ClassVar

from .configuration_base import EduConfig, check_choice, strict

# What can be learnt by gradient descent: a weight that jumps from 0 to 1 has no gradient.
_SMOOTH = ("gaussian", "epanechnikov")


@strict
class EduKernelConfig(EduConfig):
    """Defaults are a Gaussian kernel of width 1 over a single feature.

    Args:
        input_size: number of features of x.
        output_size: number of values of y.
        kernel: `gaussian`, `epanechnikov`, `boxcar` or `mean`.
        width: the kernel's width h, the distance at which u = 1; `mean` has none.
        learn_width: train the width, starting from `width`.
        projection_size: size of learnt queries W_q x and keys W_k x_i; without it they are x and x_i themselves.
        num_memories: number of pairs (x_i, y_i) in the memory; `remember` sets it.
    """

    model_type = "edu_kernel"
    heads: ClassVar[dict[str, str]] = {"AutoModel": "EduKernelForRegression"}

    input_size: int = 1
    output_size: int = 1
    kernel: str = "gaussian"
    width: float | int = 1.0
    learn_width: bool = False
    projection_size: int | None = None
    num_memories: int = 0

    def validate_architecture(self):
        super().validate_architecture()
        check_choice("kernel", self.kernel, (*_SMOOTH, "boxcar", "mean"))
        if self.width <= 0:
            raise ValueError(f"width must be above 0, got {self.width}; it is a distance in units of the features")
        if self.num_memories < 0:
            raise ValueError(f"num_memories must be 0 or more, got {self.num_memories}")
        if self.kernel not in _SMOOTH and (self.learn_width or self.projection_size is not None):
            raise ValueError(
                f"the kernel '{self.kernel}' has no gradient, so learn_width and projection_size cannot be trained; "
                f"leave them out, or choose one of {', '.join(_SMOOTH)}"
            )
