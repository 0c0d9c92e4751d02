"""What all metrics share: they keep their rows in memory, and say so when there is nothing to score."""

from __future__ import annotations

from typing import Any

import evaluate


class OfflineMetric(evaluate.Metric):
    """An `evaluate.Metric` that needs neither the Hub nor, in one process, a file."""

    configs: tuple[str, ...] = ()

    def __init__(self, config_name: str | None = None, **options: Any):
        if options.get("num_process", 1) == 1:
            options.setdefault("keep_in_memory", True)
        super().__init__(config_name=config_name, **options)

    def add_batch(self, *, predictions=None, references=None, **kwargs):
        """Add a batch of predictions and references; an empty one adds nothing."""
        if predictions is None or references is None:
            raise ValueError(f"{self.name} needs predictions and references, one of each a row")
        if len(predictions) != len(references):
            raise ValueError(
                f"{self.name} got {len(predictions)} predictions and {len(references)} references; give as many of each"
            )
        if len(predictions):
            evaluate.Metric.add_batch(self, predictions=predictions, references=references, **kwargs)

    def _finalize(self):
        if self.writer is None:
            raise ValueError(f"{self.name} has nothing to score: give predictions and references, or add some first")
        super()._finalize()

    def _describe(self, description: str, citation: str, features: Any) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=description,
            citation=citation,
            inputs_description="Args:\n    predictions: one a row.\n    references: one a row.\n",
            features=features,
        )
