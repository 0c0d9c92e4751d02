"""Files and checkpoints of a run are whole or not there."""

import json
import os

import pytest

from hf_edu_models.manifest import MANIFEST
from hf_edu_models.run_folder import (
    UNFINISHED,
    list_checkpoints,
    log_history,
    read_predictions,
    read_results,
    read_settings,
    step_of,
    write_atomically,
    write_predictions,
    write_results,
    write_settings,
)
from hf_edu_models.training.checkpointing import last_checkpoint, replace_files, replace_folder


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "new" / "a.txt"
    write_atomically(file, "old äöü")

    def fail(*given):
        raise OSError("power cut")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as broken, pytest.raises(OSError, match="power cut"):
            broken.setattr(os, name, fail)
            write_atomically(file, "new")
        assert file.read_text("utf-8") == "old äöü"
        assert [each.name for each in file.parent.iterdir()] == ["a.txt"]
    write_atomically(file, "new")
    assert file.read_text() == "new" and file.stat().st_mode & 0o777 == 0o644


def test_what_is_written_is_read(tmp_path):
    import numpy as np

    results = {"scores": {"test": {"bleu": np.float64(3.5)}}, "text": "Straße", "count": np.int64(3)}
    write_results(tmp_path, results)
    assert read_results(tmp_path) == {"scores": {"test": {"bleu": 3.5}}, "text": "Straße", "count": 3}
    write_settings(tmp_path, {"seed": 3, "model": {"dropout": 0.5}})
    assert read_settings(tmp_path) == {"seed": 3, "model": {"dropout": 0.5}}
    rows = [{"prediction": "a\nb\u2028c\x85d"}, {"prediction": "ü"}]
    write_predictions(tmp_path, rows)
    assert read_predictions(tmp_path) == rows
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": [{"loss": 1.0}]}))
    assert log_history(tmp_path) == [{"loss": 1.0}]


def test_what_is_not_there_is_said_or_empty(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no results\.json; give the folder of a finished run"):
        read_results(tmp_path)
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        read_results(tmp_path / "nowhere")
    assert read_settings(tmp_path) == {} and read_predictions(tmp_path) == [] and log_history(tmp_path) == []


def checkpoint(folder, content: str):
    """A folder with every part of a checkpoint, from before there were manifests."""
    folder.mkdir(parents=True)
    for name in ("adapter_model.json", "optimizer.json", "scheduler.json", "rng_state.json"):
        (folder / name).write_text("{}")
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step_of(folder)}))
    (folder / "content").write_text(content)
    return folder


def test_checkpoints_are_ordered_by_step(tmp_path):
    for name in ("checkpoint-100", "checkpoint-20", "checkpoint-3", "checkpoint-x", "my-checkpoint-5"):
        checkpoint(tmp_path / name, "")
    (tmp_path / "checkpoint-999").write_text("a file")
    assert [folder.name for folder in list_checkpoints(tmp_path)] == ["checkpoint-3", "checkpoint-20", "checkpoint-100"]
    assert last_checkpoint(tmp_path).name == "checkpoint-100"
    assert last_checkpoint(tmp_path / "nowhere") is None


@pytest.mark.parametrize("renames", [0, 1, 2, 3])
def test_a_crash_while_one_checkpoint_replaces_another(renames, tmp_path, monkeypatch):
    """Before and after the renames of manifest, old and new folder: there is always one that is whole."""
    old = checkpoint(tmp_path / "checkpoint-6", "old")
    new = checkpoint(tmp_path / UNFINISHED / "checkpoint-6", "new")
    real, done = os.replace, []

    def replace(*given):
        if len(done) == renames:
            raise KeyboardInterrupt
        done.append(given)
        real(*given)

    with monkeypatch.context() as crash:
        crash.setattr(os, "replace", replace)
        if renames < 3:
            with pytest.raises(KeyboardInterrupt):
                replace_folder(new, old)
        else:
            replace_folder(new, old)
    found = last_checkpoint(tmp_path)
    assert found == old and (found / "content").read_text() == ("new" if renames == 3 else "old")
    assert not (tmp_path / UNFINISHED).exists()


def test_what_a_crash_left_is_thrown_away(tmp_path):
    checkpoint(tmp_path / "checkpoint-3", "whole")
    checkpoint(tmp_path / UNFINISHED / "checkpoint-6", "half")
    checkpoint(tmp_path / UNFINISHED / "dropped-checkpoint-1", "half")
    assert last_checkpoint(tmp_path).name == "checkpoint-3"
    assert [folder.name for folder in tmp_path.iterdir()] == ["checkpoint-3"]


def test_the_configuration_comes_last(tmp_path, monkeypatch):
    """A folder without it is no model; with it, everything else is there."""
    final = tmp_path / UNFINISHED / "final"
    final.mkdir(parents=True)
    for name in ("config.json", "a.py", "model.safetensors", "zzz.json"):
        (final / name).write_text("new")
    moved, real = [], os.replace
    monkeypatch.setattr(os, "replace", lambda old, new: (moved.append(new.name), real(old, new)))
    replace_files(final, tmp_path)
    assert moved[-2:] == ["config.json", MANIFEST] and len(moved) == 6  # the manifest is renamed before, too
