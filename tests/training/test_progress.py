"""What a run shows while it trains, and the commands that its end names."""

import re
import shlex
from types import SimpleNamespace

import pytest
from tiny_runs import arguments, translating
from transformers import ProgressCallback
from typer.testing import CliRunner

from hf_edu_models.cli.commands import app
from hf_edu_models.training.live_page import LIVE_PAGE, live_page
from hf_edu_models.training.progress import OneLineProgressCallback


def state_with(*rows):
    return SimpleNamespace(log_history=list(rows), global_step=20, max_steps=40)


def test_the_page_shows_the_last_values_and_is_loaded_again_while_it_runs():
    rows = {"step": 10, "loss": 3.0}, {"step": 20, "loss": 2.5}, {"step": 20, "eval_loss": 2.75, "eval_bleu": 12.5}
    page = live_page("a <run>", state_with(*rows), "bleu", is_running=True)
    assert "a &lt;run&gt;" in page and "step 20 of 40" in page and 'http-equiv="refresh"' in page
    assert "loss 2.5" in page and "validation loss 2.75" in page and "bleu 12.5" in page
    assert "data:image/png;base64," in page and "https://" not in page
    last = live_page("run", state_with(*rows), "bleu", is_running=False)
    assert "refresh" not in last and "finished" in last
    assert "<img" not in live_page("run", state_with(), "loss", is_running=True)


def test_a_run_writes_the_page_and_shows_one_line(tmp_path, capsys):
    training_args = arguments(tmp_path, num_train_epochs=1, live=True, quiet=True)
    trainer = translating(training_args)
    trainer.train()
    assert "finished" in (tmp_path / LIVE_PAGE).read_text("utf-8")
    printed = capsys.readouterr().out
    assert "100%" in printed and "{'loss'" not in printed and len(printed.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("settings", "has_line"), [({"disable_tqdm": False}, True), ({"disable_tqdm": True}, False)], ids=str
)
def test_one_line_is_the_default(settings, has_line, tmp_path):
    training_args = arguments(tmp_path, num_train_epochs=1)
    training_args.disable_tqdm = settings["disable_tqdm"]
    found = {type(each) for each in translating(training_args).callback_handler.callbacks}
    assert (OneLineProgressCallback in found) is has_line and ProgressCallback not in found


def test_without_a_terminal_each_log_is_a_line(tmp_path, capsys):
    training_args = arguments(tmp_path, num_train_epochs=1, logging_steps=1)
    training_args.disable_tqdm = False
    trainer = translating(training_args)
    trainer.train()
    losses = [row for row in trainer.state.log_history if "loss" in row]
    lines = re.findall(r"^\w+ (\d+)/\d+ loss \d+\.\d{3}", capsys.readouterr().out, flags=re.MULTILINE)
    assert len(losses) > 1 and {row["step"] for row in losses} <= {int(step) for step in lines}


def test_evaluation_is_a_line_that_goes_away(tmp_path, capsys):
    training_args = arguments(tmp_path, num_train_epochs=1, eval_strategy="epoch")
    training_args.disable_tqdm = False
    trainer = translating(training_args)
    (line,) = [each for each in trainer.callback_handler.callbacks if isinstance(each, OneLineProgressCallback)]
    seen, step = [], line.on_prediction_step

    def record(*options, **named):
        step(*options, **named)
        bar, task = line.evaluation
        seen.append((bar is line.bar, bar.tasks[bar.task_ids.index(task)].completed))

    line.on_prediction_step = record
    trainer.train()
    in_training, batches = len(seen), len(trainer.get_eval_dataloader())
    trainer.predict(trainer.eval_dataset)
    counted = list(range(1, batches + 1))
    assert seen == [(True, count) for count in counted] + [(False, count) for count in counted]
    assert in_training == batches and line.evaluation is None and line.bar is None
    assert "evaluating" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["bahdanau", "recurrent", "gpt", "elmo", "word-vectors", "bert-finetune"])
def test_every_command_that_the_end_names_works(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    run = CliRunner().invoke(app, ["train", name, "--preset", "smoke", "--output_dir", "run", "--max_steps", "2"])
    assert run.exit_code == 0, run.output
    lines = dict(re.findall(r"^(try it|see inside|play with it|upload it): +hf-edu (.*)$", run.stderr, re.MULTILINE))
    assert {"try it", "see inside", "upload it"} <= set(lines)
    lines["upload it"] += " --dry-run"
    sentence = "the day was there"
    for line in lines.values():
        words = [{"WORD": "the", "SENTENCE": sentence, "TEXT": sentence}.get(word, word) for word in shlex.split(line)]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, (line, done.output, done.exception)
