"""Dynamic batching: what waits for a model is run in batches of similar length, on one thread for each model.

One request alone never waits; under load more requests wait, and batches grow by themselves. After a batch its clients
have a short time to ask again, so that the next one has them, too.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

_PATIENCE = 0.25  # of the time that a batch took
Run = Callable[[Hashable, list[Any]], Sequence[Any]]


class QueueFull(Exception):
    """Too many texts are waiting for a model."""


@dataclass(eq=False)
class Request:
    """Some inputs that belong together; `future` holds their results, in order, when all are there."""

    size: int
    future: Any
    results: dict[int, Any] = field(default_factory=dict)


@dataclass(eq=False)
class _Item:
    key: Hashable
    value: Any
    length: int
    request: Request
    index: int

    @property
    def is_wanted(self) -> bool:
        """Nobody waits for a request that was cancelled or has failed."""
        return not self.request.future.done()


class Batcher:
    """A queue and a thread that empties it.

    Args:
        run: from a key and a list of inputs to as many results. Inputs of one batch have the same key.
        max_batch_size: inputs in a batch.
        max_batch_tokens: length of the longest input times the number of inputs in a batch.
        max_waiting: inputs in the queue; further requests raise `QueueFull`.
        on_batch: is told the size of each batch.
        loop: futures are this event loop's, and answered in it; without one they are those of threads.
    """

    def __init__(
        self,
        run: Run,
        max_batch_size: int = 32,
        max_batch_tokens: int = 8192,
        max_waiting: int = 4096,
        on_batch: Callable[[int], Any] = lambda size: None,
        loop: asyncio.AbstractEventLoop | None = None,
    ):
        self._run, self._on_batch, self._loop = run, on_batch, loop
        self.max_batch_size, self.max_batch_tokens, self.max_waiting = max_batch_size, max_batch_tokens, max_waiting
        self._waiting: deque[_Item] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._waiting)

    def submit(self, key: Hashable, values: Sequence[Any], lengths: Sequence[int]) -> Any:
        """Queue the inputs of one request.

        Args:
            key: what inputs must share to be in one batch: the operation and its options.
            lengths: tokens of each input.

        Returns:
            A future with the list of results; if it is cancelled, what has not started is not run.
        """
        request = Request(len(values), self._loop.create_future() if self._loop else Future())
        if not values:
            request.future.set_result([])
            return request.future
        items = [_Item(key, *each, request, index) for index, each in enumerate(zip(values, lengths, strict=True))]
        with self._changed:
            if self._is_closed:
                raise QueueFull("the server is shutting down")
            if self._waiting and len(self._waiting) + len(items) > self.max_waiting:
                raise QueueFull(f"{len(self._waiting)} texts are waiting, the limit is {self.max_waiting}; try again")
            self._waiting.extend(items)
            self._changed.notify()
        return request.future

    def close(self) -> None:
        """Run what is queued, and stop."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next_batch():
            self._on_batch(len(batch))
            start = time.monotonic()
            answers = list(zip(batch, self._results(batch), strict=True))
            if self._loop is None:
                _deliver(answers)
            else:  # one call for the whole batch: each one wakes the loop
                self._loop.call_soon_threadsafe(_deliver, answers)
            self._wait_for_more(len(batch), _PATIENCE * (time.monotonic() - start))

    def _wait_for_more(self, answered: int, seconds: float) -> None:
        """Until as many inputs have come as were answered, or as a batch holds, or the time is over."""
        with self._changed:
            wanted = min(len(self._waiting) + answered, self.max_batch_size)
            self._changed.wait_for(lambda: self._is_closed or len(self._waiting) >= wanted, seconds)

    def _next_batch(self) -> list[_Item]:
        """The input that has waited longest, and those with its key that are closest to it in length."""
        with self._changed:
            while True:
                self._waiting = deque(item for item in self._waiting if item.is_wanted)
                if self._waiting or self._is_closed:
                    break
                self._changed.wait()
            if not self._waiting:
                return []
            oldest = self._waiting[0]
            alike = sorted((item for item in self._waiting if item.key == oldest.key), key=lambda item: item.length)
            batch = self._around(alike, alike.index(oldest))
            taken = set(map(id, batch))
            self._waiting = deque(item for item in self._waiting if id(item) not in taken)
            return batch

    def _around(self, items: list[_Item], first: int) -> list[_Item]:
        """Grow a window of sorted inputs from one of them, always towards the nearer length."""
        start, end = first, first + 1
        while end - start < self.max_batch_size:
            below = items[start].length - items[start - 1].length if start else None
            above = items[end].length - items[end - 1].length if end < len(items) else None
            if above is not None and items[end].length * (end + 1 - start) > self.max_batch_tokens:
                above = None
            if below is not None and items[end - 1].length * (end + 1 - start) > self.max_batch_tokens:
                below = None
            if below is None and above is None:
                break
            if above is None or (below is not None and below <= above):
                start -= 1
            else:
                end += 1
        return items[start:end]

    def _results(self, batch: list[_Item]) -> Sequence[Any]:
        """Results, or exceptions in their places: one bad input does not fail the requests beside it."""
        try:
            return self._run(batch[0].key, [item.value for item in batch])
        except Exception as error:
            if len(batch) == 1:
                return [error]
            return [self._results([item])[0] for item in batch]


def _deliver(answers: list[tuple[_Item, Any]]) -> None:
    for item, result in answers:
        request = item.request
        with suppress(InvalidStateError, asyncio.InvalidStateError):  # cancelled by its client, or failed before
            if isinstance(result, Exception):
                request.future.set_exception(result)
                continue
            request.results[item.index] = result
            if len(request.results) == request.size:
                request.future.set_result([request.results[index] for index in range(request.size)])
