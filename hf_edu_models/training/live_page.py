"""`--live`: a page with the curves of a run, written again as it trains."""

from __future__ import annotations

import base64
import html
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from ..run_folder import write_atomically

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width">{refresh}
<title>{title}</title>
<style>body {{ font-family: sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }}
img {{ height: auto; max-width: 100% }}</style>
</head>
<body>
<h1>{title}</h1>
<p>{state}</p>
{curves}
</body>
</html>
"""
LIVE_PAGE = "live.html"
_SECONDS = 2.0  # between two pages, at least
_SHARE = 0.02  # of the time of a run that may be spent on pages


class LivePageCallback(TrainerCallback):
    """Writes `live.html` into the folder of a run: the losses, and the score on the validation split."""

    def __init__(self, file: Path, title: str, score: str | None = None):
        self.file, self.title, self.score = file, title, (score or "").removeprefix("eval_")
        self.next_page = 0.0

    def on_train_begin(self, args, state, control, **kwargs):
        self._write(state, is_running=True)

    def on_log(self, args, state, control, **kwargs):
        if time.monotonic() >= self.next_page:
            self._write(state, is_running=True)

    def on_train_end(self, args, state, control, **kwargs):
        self._write(state, is_running=False)

    def _write(self, state: Any, is_running: bool) -> None:
        if not state.is_world_process_zero:
            return
        begin = time.monotonic()
        write_atomically(self.file, live_page(self.title, state, self.score, is_running))
        end = time.monotonic()
        self.next_page = end + max(_SECONDS, (end - begin) / _SHARE)


def live_page(title: str, state: Any, score: str, is_running: bool) -> str:
    """The page of a run whose `state` has the log; while it runs, the browser loads it again every few seconds."""
    from ..hub.cards.loss_curve import has_curve, loss_curve_png

    parts = [f"step {state.global_step:,} of {state.max_steps:,}"]
    for name, label in {f"eval_{score}": score, "loss": "loss", "eval_loss": "validation loss"}.items():
        values = [row[name] for row in state.log_history if name in row]
        parts += [f"{label} {values[-1]:.4g}"] if values else []
    curves = "<p>The curves come with the first logged loss.</p>"
    if has_curve(state.log_history):
        picture = base64.b64encode(loss_curve_png(state.log_history, score)).decode()
        curves = f'<img alt="curves of loss and score" src="data:image/png;base64,{picture}">'
    return _PAGE.format(
        refresh='<meta http-equiv="refresh" content="3">' if is_running else "",
        title=html.escape(title),
        state=html.escape(", ".join([*parts, "training" if is_running else "finished"])),
        curves=curves,
    )
