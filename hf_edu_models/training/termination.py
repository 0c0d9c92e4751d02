"""SIGTERM, with which Slurm and rented machines announce their end: the run saves a checkpoint and exits with 143."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from ..data.notes import note

SIGTERM_CODE = 143  # 128 + 15, as a shell reports it
_STEPS_BETWEEN = 10  # steps after which processes with GPUs ask each other, since asking waits for the GPU


class RunTerminated(SystemExit):
    """The end of a run after SIGTERM. Its sentence is printed; a script that does not catch it exits with 143."""

    def __init__(self, sentence: str):
        super().__init__(SIGTERM_CODE)
        note(sentence)


class Termination:
    """Whether this process has received SIGTERM."""

    is_requested = False

    def is_agreed(self, step: int, device: torch.device) -> bool:
        """Whether any process has received it; all processes get the same answer."""
        if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
            return self.is_requested
        if device.type != "cpu" and step % _STEPS_BETWEEN:
            return False
        flag = torch.tensor(int(self.is_requested), device=device)
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        return bool(flag)


@contextmanager
def defer_sigterm() -> Iterator[Termination]:
    """Record SIGTERM instead of ending at once; the loop inside looks at it after each step.

    Only the main thread can do so; in another one nothing changes.
    """
    termination = Termination()

    def record() -> None:
        termination.is_requested = True

    with _on_sigterm(record):
        yield termination


@contextmanager
def explain_sigterm() -> Iterator[None]:
    """Raise RunTerminated at SIGTERM, wherever the process is: there is nothing to save."""

    def stop() -> None:
        raise RunTerminated("stopped by SIGTERM; the same command with --resume continues")

    with _on_sigterm(stop):
        yield


@contextmanager
def _on_sigterm(react: Any) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner:
            react()
        else:  # a worker process, which has inherited this handler
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)
