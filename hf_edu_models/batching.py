"""A stream of texts through a model: in batches of similar length, results in the order of the stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

MAX_BATCHES = 16  # sorted by length at a time: enough to leave little padding, few enough to stream


def map_by_length(
    function: Callable[[list[Any]], list[Any]],
    items: Iterable[Any],
    batch_size: int,
    length: Callable[[Any], int],
    is_interactive: bool = False,
) -> Iterator[tuple[Any, Any]]:
    """Yield each item with its result, in order; memory does not grow with the number of items.

    Args:
        function: From a batch of items to as many results.
        length: An item of length 0 is not computed; its result is None.
        is_interactive: Compute every item before the next one is read.
    """
    items, batches = iter(items), 1
    while window := list(islice(items, 1 if is_interactive else batches * batch_size)):
        yield from zip(window, _map_window(function, window, batch_size, length), strict=True)
        batches = min(2 * batches, MAX_BATCHES)  # a single batch first, so that the first results appear soon


def _map_window(function: Callable, items: list[Any], batch_size: int, length: Callable[[Any], int]) -> list[Any]:
    lengths, results = [length(item) for item in items], [None] * len(items)
    order = sorted((index for index, size in enumerate(lengths) if size), key=lambda index: -lengths[index])
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        for index, result in zip(batch, function([items[index] for index in batch]), strict=True):
            results[index] = result
    return results


def visible_length(text: str) -> int:
    """The number of characters; 0 for a blank text."""
    return len(text) if text.strip() else 0
