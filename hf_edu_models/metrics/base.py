"""What all metrics share: rows in memory, and errors that say what is missing."""

from __future__ import annotations

import inspect
from typing import Any

import evaluate


class OfflineMetric(evaluate.Metric):
    """An `evaluate.Metric` that needs neither the Hub nor, in one process, a file.

    Attributes:
        inputs: Features of one row: `predictions` and `references`; a list where several are allowed.
        paper: The citation.
        configs: Named configurations with their own features, such as "multilabel".
    """

    inputs: Any
    paper: str = ""
    configs: dict[str, Any] = {}

    def __init__(self, config_name: str | None = None, **options: Any):
        if options.get("num_process", 1) == 1:
            options.setdefault("keep_in_memory", True)
        super().__init__(config_name=config_name, **options)

    def add_batch(self, *, predictions=None, references=None, **kwargs):
        """Add a batch of predictions and references; an empty one adds nothing."""
        if predictions is None or references is None:
            raise ValueError(f"{self.name} needs predictions and references, one of each per row")
        if len(predictions) != len(references):
            raise ValueError(
                f"{self.name} got {len(predictions)} predictions and {len(references)} references; give equal numbers"
            )
        if len(predictions):
            evaluate.Metric.add_batch(self, predictions=predictions, references=references, **kwargs)

    def _finalize(self):
        if self.writer is None:
            raise ValueError(f"{self.name} has nothing to score: give predictions and references, or add some first")
        super()._finalize()

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=inspect.getdoc(type(self)),
            citation=self.paper,
            inputs_description="Args:\n    predictions: one per row.\n    references: one per row.\n",
            features=self.configs.get(self.config_name, self.inputs),
        )
