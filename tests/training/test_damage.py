"""A damaged checkpoint is never resumed from in silence: the one before it is used, or an error says what is wrong."""

import json
import os
import pickle
import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from test_stopping import run

from hf_edu_models import EduRecurrentConfig, EduRecurrentForCausalLM
from hf_edu_models.data import notes
from hf_edu_models.manifest import MANIFEST, find_damage, write_manifest
from hf_edu_models.run_folder import list_checkpoints
from hf_edu_models.training import EduTrainer, last_checkpoint

STEPS = ("--max_steps", "12", "--save_total_limit", "4")
WEIGHTS, OPTIMIZER, SCHEDULER, RNG = "model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"
STATE, CONFIG, ARGS, TOKENIZER = "trainer_state.json", "config.json", "training_args.bin", "tokenizer.json"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of 12 steps with a checkpoint every 3."""
    folder = tmp_path_factory.mktemp("damage") / "run"
    assert run(folder, *STEPS) == 0
    assert [each.name for each in list_checkpoints(folder)] == [f"checkpoint-{step}" for step in (3, 6, 9, 12)]
    return folder


@pytest.fixture
def killed(finished, tmp_path, monkeypatch):
    """The same run as a kill after step 9 leaves it."""
    monkeypatch.setattr(notes, "_printed", set())
    folder = tmp_path / "run"
    shutil.copytree(finished, folder, ignore=shutil.ignore_patterns("checkpoint-12", WEIGHTS, CONFIG, MANIFEST))
    for step in (3, 6, 9):
        shutil.copytree(finished / f"checkpoint-{step}", folder / f"checkpoint-{step}", dirs_exist_ok=True)
    return folder


def flip(name):
    def damage(checkpoint):
        content = bytearray((checkpoint / name).read_bytes())
        content[len(content) // 2] ^= 1
        (checkpoint / name).write_bytes(content)

    return damage


def truncate(name, share=0.5):
    return lambda checkpoint: os.truncate(checkpoint / name, int((checkpoint / name).stat().st_size * share))


def delete(name):
    return lambda checkpoint: (checkpoint / name).unlink()


def swap(name):
    return lambda checkpoint: shutil.copy(checkpoint.with_name("checkpoint-6") / name, checkpoint / name)


def append(name):
    def damage(checkpoint):
        with open(checkpoint / name, "ab") as stream:
            stream.write(b"\n")

    return damage


def change_state(**values):
    def damage(checkpoint):
        state = json.loads((checkpoint / STATE).read_text())
        (checkpoint / STATE).write_text(json.dumps(state | values))

    return damage


def change_weights(change):
    def damage(checkpoint):
        weights = load_file(checkpoint / WEIGHTS)
        change(weights, sorted(weights)[0])
        save_file(weights, checkpoint / WEIGHTS, metadata={"format": "pt"})

    return damage


def set_nan(weights, name):
    weights[name].view(-1)[0] = float("nan")


def reshape(weights, name):
    weights[name] = torch.zeros(2, 3)


def replace_by_folder(name):
    def damage(checkpoint):
        (checkpoint / name).unlink()
        (checkpoint / name).mkdir()

    return damage


def link_to_nothing(checkpoint):
    (checkpoint / WEIGHTS).unlink()
    (checkpoint / WEIGHTS).symlink_to(checkpoint / "nowhere")


def link_outside(checkpoint):
    shutil.move(checkpoint / WEIGHTS, checkpoint.parent.parent / "elsewhere.safetensors")
    (checkpoint / WEIGHTS).symlink_to(checkpoint.parent.parent / "elsewhere.safetensors")


def rename(checkpoint):
    checkpoint.rename(checkpoint.with_name("checkpoint-99"))


def clear(checkpoint):
    shutil.rmtree(checkpoint)
    checkpoint.mkdir()


def change_digest(checkpoint):
    content = json.loads((checkpoint / MANIFEST).read_text())
    content["files"][WEIGHTS]["sha256"] = "0" * 64
    (checkpoint / MANIFEST).write_text(json.dumps(content))


class Hostile:
    def __reduce__(self):
        return os.mkdir, ("code-has-run",)


def put_pickle(name):
    return lambda checkpoint: torch.save(Hostile(), checkpoint / name)


def with_manifest(damage):
    """Damage that its author has given new digests."""

    def both(checkpoint):
        damage(checkpoint)
        write_manifest(checkpoint)

    return both


# The previous checkpoint is used, and the run ends as if nothing had happened.
FALL_BACK = {
    **{f"bit of {name}": flip(name) for name in (WEIGHTS, OPTIMIZER, SCHEDULER, RNG, STATE, CONFIG, ARGS, TOKENIZER)},
    **{f"half of {name}": truncate(name) for name in (WEIGHTS, OPTIMIZER, SCHEDULER, RNG, STATE, CONFIG, MANIFEST)},
    **{f"empty {name}": truncate(name, 0) for name in (WEIGHTS, OPTIMIZER, SCHEDULER, RNG, STATE, MANIFEST)},
    **{f"no {name}": delete(name) for name in (WEIGHTS, OPTIMIZER, SCHEDULER, RNG, STATE, CONFIG, TOKENIZER)},
    **{f"older {name}": swap(name) for name in (WEIGHTS, OPTIMIZER, SCHEDULER, RNG, STATE)},
    "longer weights": append(WEIGHTS),
    "another step": change_state(global_step=8),
    "another learning rate in the log": change_state(log_history=[]),
    "a weight less": change_weights(lambda weights, name: weights.pop(name)),
    "a NaN weight": change_weights(set_nan),
    "a NaN weight with new digests": with_manifest(change_weights(set_nan)),
    "another shape": change_weights(reshape),
    "a folder for a file": replace_by_folder(OPTIMIZER),
    "a link to nothing": link_to_nothing,
    "another name": rename,
    "nothing left": clear,
    "another digest": change_digest,
    "a hostile optimizer": put_pickle(OPTIMIZER),
    "no optimizer, with new digests": with_manifest(delete(OPTIMIZER)),
    "no random state, with new digests": with_manifest(delete(RNG)),
    "older state, with new digests": with_manifest(swap(STATE)),
}
# One sentence: somebody has written digests for a file that is well-formed and wrong.
ERRORS = {
    "a weight less, with new digests": (with_manifest(FALL_BACK["a weight less"]), "lacks 1 weights"),
    "another shape, with new digests": (with_manifest(FALL_BACK["another shape"]), "does not fit this run"),
    "a hostile optimizer, with new digests": (with_manifest(put_pickle(OPTIMIZER)), "could run code"),
    "a hostile schedule, with new digests": (with_manifest(put_pickle(SCHEDULER)), "could run code"),
    "a hostile random state, with new digests": (with_manifest(put_pickle(RNG)), "could run code"),
    "the schedule as optimizer, with new digests": (
        with_manifest(lambda checkpoint: shutil.copy(checkpoint / SCHEDULER, checkpoint / OPTIMIZER)),
        "does not fit this run",
    ),
}
# Nothing is lost: the checkpoint itself is used.
HARMLESS = {
    "no manifest": delete(MANIFEST),
    "a link to the same file elsewhere": link_outside,
    "a file more": lambda checkpoint: (checkpoint / "notes.txt").write_text("mine"),
    "an empty checkpoint-99": lambda checkpoint: checkpoint.with_name("checkpoint-99").mkdir(),
    "an unfinished checkpoint-12": lambda checkpoint: (checkpoint.parent / ".unfinished/checkpoint-12").mkdir(
        parents=True
    ),
}
# From before there were manifests: what is not well-formed is found.
FOUND_WITHOUT_MANIFEST = (
    *(f"bit of {name}" for name in (OPTIMIZER, RNG)),  # the middle of the small schedule is padding
    *(f"half of {name}" for name in (WEIGHTS, OPTIMIZER, SCHEDULER, RNG, STATE, CONFIG)),
    *(f"empty {name}" for name in (WEIGHTS, OPTIMIZER, SCHEDULER, RNG, STATE)),
    *(f"no {name}" for name in (WEIGHTS, OPTIMIZER, SCHEDULER, RNG, STATE)),
    *("another step", "a NaN weight", "a link to nothing", "another name", "nothing left", f"older {STATE}"),
)


def assert_same_end(folder, finished):
    weights, expected = load_file(folder / WEIGHTS), load_file(finished / WEIGHTS)
    assert weights.keys() == expected.keys() and all(torch.equal(weights[name], expected[name]) for name in weights)


def assert_fell_back(folder, error):
    assert "Traceback" not in error
    aside = [each for each in folder.iterdir() if each.name.startswith("damaged-checkpoint")]
    if "was empty" not in error:
        assert len(aside) == 1 and f"is damaged: {find_damage_of(aside[0])}" in error
        assert f"kept as {aside[0].name}, and checkpoint-6 is used instead" in error


def find_damage_of(aside):
    """What `find_damage` says under the folder's former name."""
    former = aside.rename(aside.with_name(aside.name.removeprefix("damaged-")))
    try:
        return find_damage(former, for_resuming=True)
    finally:
        former.rename(aside)


def test_the_table_has_more_than_40_rows():
    assert len(FALL_BACK) + len(ERRORS) + len(HARMLESS) > 50


@pytest.mark.parametrize("name", FALL_BACK)
def test_a_damaged_checkpoint_is_set_aside(name, killed, capsys):
    FALL_BACK[name](killed / "checkpoint-9")
    assert last_checkpoint(killed) == killed / "checkpoint-6"
    assert_fell_back(killed, capsys.readouterr().err)
    assert last_checkpoint(killed) == killed / "checkpoint-6" and "damaged" not in capsys.readouterr().err


@pytest.mark.parametrize("name", FOUND_WITHOUT_MANIFEST)
def test_damage_is_found_without_a_manifest(name, killed, capsys):
    for step in (3, 6, 9):
        (killed / f"checkpoint-{step}" / MANIFEST).unlink()
    FALL_BACK[name](killed / "checkpoint-9")
    assert last_checkpoint(killed) == killed / "checkpoint-6"
    error = capsys.readouterr().err
    assert_fell_back(killed, error)
    assert f"checkpoint-6 has no {MANIFEST}: only its form was checked" in error


@pytest.mark.parametrize("name", HARMLESS)
def test_what_harms_nothing_changes_nothing(name, killed, capsys):
    HARMLESS[name](killed / "checkpoint-9")
    assert last_checkpoint(killed) == killed / "checkpoint-9"
    assert "damaged" not in capsys.readouterr().err
    assert not (killed / "checkpoint-99").exists() and not (killed / ".unfinished").exists()


@pytest.mark.parametrize("name", ERRORS)
def test_well_formed_damage_is_one_sentence(name, killed, capsys, monkeypatch):
    monkeypatch.chdir(killed.parent)
    damage, message = ERRORS[name]
    damage(killed / "checkpoint-9")
    assert run(killed, *STEPS, "--resume") == 2
    error = capsys.readouterr().err
    assert message in error and "checkpoint" in error and "Traceback" not in error
    assert not (killed.parent / "code-has-run").exists() and (killed / "checkpoint-9").is_dir()


FEW = ("bit of optimizer.pt", "a NaN weight with new digests", "nothing left")


@pytest.mark.parametrize(
    "name", [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in (*FALL_BACK, *HARMLESS)]
)
def test_the_resumed_run_ends_bit_for_bit_the_same(name, killed, finished, capsys):
    (FALL_BACK | HARMLESS)[name](killed / "checkpoint-9")
    assert run(killed, *STEPS, "--resume") == 0
    assert_same_end(killed, finished)
    error = capsys.readouterr().err
    assert "Traceback" not in error and f"resumed from checkpoint-{9 if name in HARMLESS else 6}" in error


def test_if_every_checkpoint_is_damaged_none_is_touched(killed, capsys):
    for step in (3, 6, 9):
        flip(OPTIMIZER)(killed / f"checkpoint-{step}")
    for _ in range(2):
        assert run(killed, *STEPS, "--resume") == 2
        error = capsys.readouterr().err.replace("\n", " ")
        assert "every checkpoint of" in error and "checkpoint-3: optimizer.pt has changed since it was saved" in error
        assert [each.name for each in list_checkpoints(killed)] == ["checkpoint-3", "checkpoint-6", "checkpoint-9"]


def test_after_nan_weights_the_message_names_a_good_checkpoint(killed, capsys):
    """Also if the damaged one was given by hand, as in a script of one's own."""
    change_weights(set_nan)(killed / "checkpoint-9")
    write_manifest(killed / "checkpoint-9")
    from tiny_runs import CASES, arguments, translating

    trainer = translating(arguments(killed, **CASES["random order"][1]))
    with pytest.raises(
        ValueError, match=r"checkpoint-9 is damaged: .*NaN.*; the last good checkpoint is .*/checkpoint-6$"
    ):
        trainer.train(resume_from_checkpoint=str(killed / "checkpoint-9"))
    from hf_edu_models.training import RunStopped

    with pytest.raises(RunStopped, match=r"the last good checkpoint is .*/checkpoint-6\."):
        trainer._stop("the loss is NaN")


def test_a_damaged_best_checkpoint_is_not_loaded_at_the_end(killed):
    from tiny_runs import CASES, arguments, translating

    trainer = translating(arguments(killed, **CASES["random order"][1]))
    trainer.state.best_model_checkpoint = str(killed / "checkpoint-3")
    trainer.model.load_state_dict(load_file(killed / "checkpoint-9" / WEIGHTS), strict=False)
    flip(WEIGHTS)(killed / "checkpoint-3")
    with pytest.raises(ValueError, match=r"checkpoint-3 is damaged: model.safetensors has changed"):
        trainer._load_best_model()


def test_a_tied_weight_is_not_reported_as_missing(tmp_path, monkeypatch):
    from tiny_runs import arguments

    config = EduRecurrentConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, tie_word_embeddings=True)
    trainer = EduTrainer(EduRecurrentForCausalLM(config), arguments(tmp_path / "run"))
    trainer.save_model(str(tmp_path / "best"))
    write_manifest(tmp_path / "best")
    warnings = []
    monkeypatch.setattr(transformers.trainer.logger, "warning", lambda message, *_: warnings.append(message))
    trainer.state.best_model_checkpoint = str(tmp_path / "best")
    trainer._load_best_model()
    assert not warnings


def test_the_files_of_a_checkpoint_have_the_same_permissions(finished):
    for folder in (finished, *list_checkpoints(finished)):
        modes = {oct(file.stat().st_mode & 0o777) for file in folder.iterdir() if file.is_file()}
        assert len(modes) == 1, {file.name: oct(file.stat().st_mode) for file in folder.iterdir()}


def test_pickle_would_run_the_hostile_code(tmp_path, monkeypatch):
    """The test above can fail."""
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Hostile()))
    assert (tmp_path / "code-has-run").is_dir()


def test_a_checkpoint_of_weights_alone_is_good_but_not_resumed_from(killed):
    """As `save_only_model` writes it."""
    for name in (OPTIMIZER, SCHEDULER, RNG):
        (killed / "checkpoint-9" / name).unlink()
    write_manifest(killed / "checkpoint-9")
    assert find_damage(killed / "checkpoint-9") is None
    assert find_damage(killed / "checkpoint-9", for_resuming=True) == "it has no optimizer state"
