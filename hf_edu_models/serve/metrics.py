"""Prometheus metrics; several workers add theirs up in a folder (`PROMETHEUS_MULTIPROC_DIR`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sized
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        options: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter("hf_edu_requests", "Requests by route and status.", ["route", "status"], **options)
        self.seconds = Histogram("hf_edu_request_seconds", "Seconds from request to answer.", ["route"], **options)
        self._found: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self.tokens = Counter("hf_edu_tokens", "Tokens that requests gave to a model.", ["model"], **options)
        buckets = (1, 2, 4, 8, 16, 32, 64, 128)
        self._batches = Histogram("hf_edu_batch_size", "Inputs in a batch.", ["model"], buckets=buckets, **options)
        self._waiting = Gauge(
            "hf_edu_waiting", "Inputs that wait for a model.", ["model"], multiprocess_mode="livesum", **options
        )

    def batch_sizes(self, model: str) -> Callable[[int], None]:
        return self._batches.labels(model).observe

    def watch_queue(self, model: str, queue: Sized) -> None:
        """The gauge is read when it is asked for, which only the one worker of a server can do."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            self._waiting.labels(model).set_function(lambda: len(queue))

    def observe(self, route: str, status: int, seconds: float) -> None:
        count, clock = self._of(route, status)
        count.inc()
        clock.observe(seconds)

    def _of(self, route: str, status: int) -> tuple[Counter, Histogram]:
        """Looked up once: for a short request the labels cost more than the counting."""
        if (route, status) not in self._found:
            self._found[route, status] = self.requests.labels(route, str(status)), self.seconds.labels(route)
        return self._found[route, status]

    def render(self) -> bytes:
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)
        return generate_latest(registry)
