"""The batcher: every request gets its own results, whatever else is in its batches."""

import threading
import time
from concurrent.futures import CancelledError

import pytest

from hf_edu_models.serve import Batcher
from hf_edu_models.serve.batching import QueueFull


class Held:
    """Doubles numbers, and waits before its first batch until it is released, so that a queue can build up."""

    def __init__(self, **options):
        self.batches, self.entered, self.release = [], threading.Event(), threading.Event()
        self.batcher = Batcher(self.run, **options)
        self.first = self.batcher.submit("first", [0], [1])
        assert self.entered.wait(10)

    def run(self, key, values):
        self.entered.set()
        assert self.release.wait(10)
        self.batches.append((key, values))
        if "bad" in values:
            raise ValueError("a bad input")
        return [2 * value for value in values]

    def finish(self):
        self.release.set()
        self.batcher.close()
        return self.batches[1:]


def test_each_request_gets_its_results_in_order():
    held = Held(max_batch_size=4)
    futures = [held.batcher.submit("double", [n, n + 100, n + 200], [n % 7 + 1, 3, 9]) for n in range(50)]
    held.finish()
    assert [future.result() for future in futures] == [[2 * n, 2 * n + 200, 2 * n + 400] for n in range(50)]


def test_batches_share_a_key_and_have_similar_lengths():
    held = Held(max_batch_size=3)
    lengths = [50, 1, 49, 2, 48, 3]
    held.batcher.submit("a", lengths, lengths)
    held.batcher.submit("b", [7], [50])
    batches = held.finish()
    assert [sorted(values) for key, values in batches if key == "a"] == [[48, 49, 50], [1, 2, 3]]
    assert [values for key, values in batches if key == "b"] == [[7]]


def test_a_batch_keeps_the_limit_of_tokens():
    held = Held(max_batch_size=100, max_batch_tokens=60)
    lengths = [5, 30, 20, 100, 10, 12]
    held.batcher.submit("a", lengths, lengths)
    batches = [values for _, values in held.finish()]
    assert sorted(value for values in batches for value in values) == sorted(lengths)
    assert all(len(values) == 1 or max(values) * len(values) <= 60 for values in batches)
    assert [100] in batches  # longer than the limit: alone


def test_a_bad_input_fails_its_own_request_only():
    held = Held()
    good, bad = held.batcher.submit("a", [1, 2], [1, 1]), held.batcher.submit("a", [3, "bad"], [1, 1])
    other = held.batcher.submit("a", [4], [1])
    held.finish()
    assert good.result() == [2, 4] and other.result() == [8]
    with pytest.raises(ValueError, match="a bad input"):
        bad.result()


def test_cancelled_requests_are_not_run():
    held = Held()
    cancelled, kept = held.batcher.submit("a", [1], [1]), held.batcher.submit("a", [2], [1])
    assert cancelled.cancel()
    assert held.finish() == [("a", [2])]
    assert kept.result() == [4]
    with pytest.raises(CancelledError):
        cancelled.result()


def test_a_full_queue_and_a_closed_one_reject():
    held = Held(max_waiting=3)
    held.batcher.submit("a", [1, 2], [1, 1])
    with pytest.raises(QueueFull, match="2 texts are waiting, the limit is 3"):
        held.batcher.submit("a", [3, 4], [1, 1])
    held.finish()
    with pytest.raises(QueueFull, match="shutting down"):
        held.batcher.submit("a", [5], [1])


def test_clients_that_ask_again_share_a_batch():
    sizes = []
    batcher = Batcher(lambda key, values: time.sleep(0.4) or values, on_batch=sizes.append)

    def ask():
        for number in range(3):
            assert batcher.submit("a", [number], [1]).result(10) == [number]

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
        time.sleep(0.1)  # the second comes while the first one runs
    for thread in threads:
        thread.join(30)
    batcher.close()
    assert sum(sizes) == 6 and 2 in sizes  # without the patience each would run alone: one waits while the other runs


def test_many_threads_lose_and_mix_nothing():
    batcher = Batcher(lambda key, values: [(key, value) for value in values], max_batch_size=8)
    failures = []

    def ask(thread):
        for number in range(200):
            values = [(thread, number, index) for index in range(number % 4)]
            if batcher.submit(thread % 3, values, [number % 11 + 1] * len(values)).result(10) != [
                (thread % 3, value) for value in values
            ]:
                failures.append((thread, number))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    batcher.close()
    assert not failures
