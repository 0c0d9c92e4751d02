# Copyright 2026 The hf_edu_models authors. Licensed under the Apache License, Version 2.0.
"""Configuration of BERT."""

import copy
from typing import ClassVar

from .configuration_base import (
    EduConfig,
    check_choice,
    check_heads,
    check_task,
    layer_sizes,
    pipeline_parallel_plan,
    strict,
    tensor_parallel_plan,
)

_POSITION_INITS = ("normal", "sinusoidal")


@strict
class EduBertConfig(EduConfig):
    """Defaults are BERT base (Devlin et al. 2019, Section 3).

    Args:
        norm_first: layer norm before each sublayer; in the paper, as in the Transformer, it comes after.
        position_init: initialisation of the position embeddings: `normal` as in the paper, or `sinusoidal`, the
            Transformer's encodings, from which neighbouring positions are learnt sooner.
        classifier_dropout: dropout before a classification layer. Default: `dropout`.
        mlm_weight, nsp_weight: of the two losses of pre-training; the paper's is their sum (Appendix A.2).
        head_aggregation: how the outputs of the heads are combined: `project`, as in the paper, `concat` or `mean`.
        head_diversity_weight: weight of a penalty in training for heads that attend to the same positions; 0 for none.
        window_stride: tokens that neighbouring windows of a long text share, in fine-tuning and in `hf-edu predict`;
            None cuts a text at the maximum length.
        window_pooling: how a classifier combines the windows of a text: `mean` or `max`.
        tasks: of `EduBertForMultiTask`, by name. `task` is classification or token_classification; `labels` the names
            of the classes, or None for a number; `problem_type` as in transformers; `weight` that of the loss.
    """

    model_type = "edu_bert"
    base_model_tp_plan = tensor_parallel_plan("layers")
    base_model_pp_plan = pipeline_parallel_plan("embeddings")
    heads: ClassVar[dict[str, str]] = {
        "AutoModel": "EduBertModel",
        "AutoModelForPreTraining": "EduBertForPreTraining",
        "AutoModelForMaskedLM": "EduBertForMaskedLM",
        "AutoModelForNextSentencePrediction": "EduBertForNextSentencePrediction",
        "AutoModelForSequenceClassification": "EduBertForSequenceClassification",
        "AutoModelForTokenClassification": "EduBertForTokenClassification",
        "AutoModelForQuestionAnswering": "EduBertForQuestionAnswering",
        "AutoModelForMultipleChoice": "EduBertForMultipleChoice",
    }
    heads_without_auto_class: ClassVar[tuple[str, ...]] = ("EduBertForMultiTask",)

    # Devlin et al. 2019, Section 3; those below base: google-research/bert, of Turc et al. 2019, arXiv:1908.08962.
    sizes: ClassVar[dict[str, dict]] = {
        "tiny": layer_sizes(2, 128, heads=2),
        "mini": layer_sizes(4, 256, heads=4),
        "small": layer_sizes(4, 512, heads=8),
        "base": layer_sizes(12, 768, heads=12),
        "large": layer_sizes(24, 1024, heads=16),
    }

    vocab_size: int = 30_522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.1
    classifier_dropout: float | int | None = None
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    position_init: str = "normal"
    layer_norm_eps: float = 1e-12
    norm_first: bool = False
    mlm_weight: float | int = 1.0
    nsp_weight: float | int = 1.0
    head_aggregation: str = "project"
    head_diversity_weight: float | int = 0.0
    window_stride: int | None = None
    window_pooling: str = "mean"
    tasks: dict | None = None
    tie_word_embeddings: bool = True
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def validate_architecture(self):
        super().validate_architecture()
        check_heads(self)
        check_choice("position_init", self.position_init, _POSITION_INITS)
        check_choice("window_pooling", self.window_pooling, ("mean", "max"))
        if self.window_stride is not None and not 0 <= self.window_stride < self.max_position_embeddings:
            raise ValueError(
                f"window_stride must be at least 0 and below the {self.max_position_embeddings} positions, got "
                f"{self.window_stride}"
            )
        for name, task in (self.tasks or {}).items():
            check_task(name, task)

    def for_task(self, name: str) -> "EduBertConfig":
        """The configuration of a model that has only the head of one of `tasks`."""
        config = copy.deepcopy(self)
        task = (self.tasks or {})[name]
        labels = task["labels"] or ["LABEL_0"]
        config.tasks, config.problem_type = None, task.get("problem_type")
        config.id2label, config.label2id = dict(enumerate(labels)), {label: n for n, label in enumerate(labels)}
        return config
