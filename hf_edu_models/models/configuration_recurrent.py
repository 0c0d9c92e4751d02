# Copyright 2026 The hf_edu_models authors. Licensed under the Apache License, Version 2.0.
"""Configuration of the recurrent models."""

import math
from typing import ClassVar

from .configuration_base import EduConfig, check_choice, check_recurrent, check_tied_sizes, strict


@strict
class EduRecurrentConfig(EduConfig):
    """Defaults are the medium model of Zaremba et al. 2014.

    Args:
        embedding_size: size of the token embeddings. Default: `hidden_size`.
        bidirectional: read in both directions; for the classification heads only.
        pooling: how the text classifier makes one vector of all hidden states: `last`, `mean`, `max`, `concat` (these
            three), `attention`, or `label_attention`, with a query for each label.
        classifier_hidden_size: of a hidden layer of the text classifier, with batch norm (Howard & Ruder 2018).
        attention_size: size of the queries of `attention` and `label_attention`.
        num_hops: number of queries of `attention`; their vectors are concatenated (Lin et al. 2017).
        redundancy_weight: of the penalty on hops that attend to the same tokens, || A A^T - I ||^2 (Lin et al. 2017).
        attention_window: the number of past hidden states that each position attends over; 0 for no attention.
        attention_lag_bias: whether the score of a state of the window also has a learnt number for its distance.
        num_input_channels: number of values at each step of a time series.
        context_length: number of past steps that a forecast is made from.
        prediction_length: number of future steps that are forecast at once.
        input_mean, input_std: of each channel in the train split, in the series' own units; 0 and 1 if not given.
        dropout: before the output layer; also of embeddings and between layers, if these have none of their own.
        input_dropout, layer_dropout: of the embeddings, and between the layers. Default: `dropout`.
        lock_dropout_masks: one mask for all time steps (Gal & Ghahramani 2016).
        embedding_dropout: of whole words: all their occurrences in a batch (Merity et al. 2017).
        weight_dropout: of the hidden-to-hidden weights (Merity et al. 2017).
        activation_regularization: AR, the weight of a penalty on large outputs of the last layer (Merity et al. 2017).
        temporal_activation_regularization: TAR, the weight of a penalty on their changes.
        features: the frozen models whose hidden states join the token embeddings; `--features` fills them in. For the
            classification heads only.
        feature_mix: how the layers of each are mixed: `scalar` learns a weight for each; `last`, or `sumN` or `concatN`
            of the last N.
        forget_gate_bias: initial bias of the LSTM's forget gate; 1 keeps the cell state (Jozefowicz et al. 2015).
        initializer_range: weights are initialised uniformly in plus and minus this.
        recurrent_implementation: `eager` computes the paper's equations, `fused` runs torch's kernels.
    """

    model_type = "edu_recurrent"
    heads: ClassVar[dict[str, str]] = {
        "AutoModel": "EduRecurrentModel",
        "AutoModelForCausalLM": "EduRecurrentForCausalLM",
        "AutoModelForSequenceClassification": "EduRecurrentForSequenceClassification",
        "AutoModelForTokenClassification": "EduRecurrentForTokenClassification",
        "AutoModelForTimeSeriesPrediction": "EduRecurrentForTimeSeriesPrediction",
    }

    cell_type: str = "lstm"
    embedding_size: int | None = None
    hidden_size: int = 650
    num_hidden_layers: int = 2
    bidirectional: bool = False
    pooling: str = "last"
    classifier_hidden_size: int | None = None
    attention_size: int = 64
    num_hops: int = 1
    redundancy_weight: float | int = 0.0
    attention_window: int = 0
    attention_lag_bias: bool = False
    num_input_channels: int = 1
    context_length: int = 48
    prediction_length: int = 1
    input_mean: list[float] | None = None
    input_std: list[float] | None = None
    dropout: float | int = 0.5
    input_dropout: float | int | None = None
    layer_dropout: float | int | None = None
    lock_dropout_masks: bool = False
    embedding_dropout: float | int = 0.0
    weight_dropout: float | int = 0.0
    activation_regularization: float | int = 0.0
    temporal_activation_regularization: float | int = 0.0
    features: list[dict] | None = None
    feature_mix: str = "scalar"
    forget_gate_bias: float | int = 1.0
    initializer_range: float = 0.05
    recurrent_implementation: str = "fused"

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        if self.embedding_size is None:
            self.embedding_size = self.hidden_size
        if self.input_mean is None:
            self.input_mean = [0.0] * self.num_input_channels
        if self.input_std is None:
            self.input_std = [1.0] * self.num_input_channels

    @property
    def output_size(self) -> int:
        return 2 * self.hidden_size if self.bidirectional else self.hidden_size

    @property
    def num_queries(self) -> int:
        return self.num_labels if self.pooling == "label_attention" else self.num_hops

    def validate_architecture(self):
        from .blocks_pooling import POOLINGS

        super().validate_architecture()
        check_recurrent(self)
        check_choice("pooling", self.pooling, POOLINGS)
        if self.num_hops < 1 or self.redundancy_weight < 0:
            raise ValueError(
                f"num_hops must be 1 or more and redundancy_weight 0 or more, got {self.num_hops} and "
                f"{self.redundancy_weight}"
            )
        if self.pooling != "attention" and (self.num_hops > 1 or self.redundancy_weight):
            raise ValueError(
                f"num_hops and redundancy_weight are for pooling 'attention', not '{self.pooling}'; set pooling to "
                "'attention' or leave them out"
            )
        if self.pooling == "label_attention" and self.classifier_hidden_size is not None:
            raise ValueError(
                "classifier_hidden_size is for one vector of a text, but pooling 'label_attention' has one for each "
                "label; leave it out or choose another pooling"
            )
        if min(self.activation_regularization, self.temporal_activation_regularization) < 0:
            raise ValueError(
                "activation_regularization and temporal_activation_regularization must be 0 or more, got "
                f"{self.activation_regularization} and {self.temporal_activation_regularization}"
            )
        if self.attention_window < 0:
            raise ValueError(f"attention_window must be 0 (none) or more, got {self.attention_window}")
        for name in ("num_input_channels", "context_length", "prediction_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")
        for name in ("input_mean", "input_std"):
            numbers = getattr(self, name)
            is_right = numbers is None or (
                len(numbers) == self.num_input_channels
                and all(math.isfinite(number) and (number > 0 or name == "input_mean") for number in numbers)
            )
            if not is_right:
                raise ValueError(
                    f"{name} must have a finite number{' above 0' if name == 'input_std' else ''} for each of "
                    f"{self.num_input_channels} channels, got {numbers}"
                )
        if self.attention_lag_bias and not self.attention_window:
            raise ValueError("attention_lag_bias is for a window of attention; set attention_window too")
        if self.attention_window and self.bidirectional:
            raise ValueError("attention_window covers past states only; set it to 0 or bidirectional to False")
        check_tied_sizes(self, "hidden_size", self.hidden_size)
