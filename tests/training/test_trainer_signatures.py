"""The private methods of transformers' Trainer that our trainers override still have the parameters we rely on."""

import inspect

import pytest
from transformers import Seq2SeqTrainer, Trainer

from hf_edu_models.training.tbptt import TruncatedBPTTTrainer
from hf_edu_models.training.trainers import EduSeq2SeqTrainer, EduTrainer

OUR_TRAINERS = (EduTrainer, EduSeq2SeqTrainer, TruncatedBPTTTrainer)

# Private methods can change in any release of transformers. When this table no longer matches, read the new method,
# change ours and then the table.
EXPECTED = {
    "_determine_best_metric": "metrics, trial",
    "_finalize_training": "trial, num_train_samples, start_time",
    "_get_dataloader": "dataset, description, batch_size, sampler_fn, is_training, dataloader_key",
    "_get_eval_sampler": "eval_dataset",
    "_get_output_dir": "trial",
    "_get_train_sampler": "train_dataset",
    "_issue_warnings_after_load": "load_result",
    "_load_best_model": "",
    "_load_callback_state": "",
    "_load_from_checkpoint": "resume_from_checkpoint, model",
    "_load_optimizer_and_scheduler": "checkpoint",
    "_load_rng_state": "checkpoint",
    "_maybe_log_save_evaluate": (
        "tr_loss, grad_norm, model, trial, epoch, ignore_keys_for_eval, start_time, learning_rate"
    ),
    "_push_from_checkpoint": "checkpoint_folder",
    "_run_epoch": (
        "model, epoch, train_dataloader, steps_in_epoch, num_update_steps_per_epoch, trial, ignore_keys_for_eval, "
        "start_time, resume_from_checkpoint, epochs_trained, steps_trained_in_current_epoch"
    ),
    "_save_checkpoint": "model, trial",
    "_save_rng_state": "output_dir",
    "_set_signature_columns_if_needed": "",
}


def private_methods(trainer: type) -> dict[str, type]:
    """Each private method that our classes define, with the first class that defines it."""
    methods: dict[str, type] = {}
    for cls in trainer.__mro__:
        for name, value in vars(cls).items() if cls.__module__.startswith("hf_edu_models.") else ():
            if name.startswith("_") and not name.startswith("__") and inspect.isfunction(value):
                methods.setdefault(name, cls)
    return methods


def signature_problems(ours: type, theirs: type) -> list[str]:
    """A sentence for each private method of `ours` that `theirs` no longer has as EXPECTED says."""
    problems = []
    for name, cls in private_methods(ours).items():
        look_at = f"look at {cls.__module__}.{cls.__name__}.{name}"
        if not hasattr(theirs, name):
            if name in EXPECTED:
                problems.append(f"{theirs.__name__} has no method {name} any more, so nothing calls ours; {look_at}")
            continue
        found = ", ".join(list(inspect.signature(getattr(theirs, name)).parameters)[1:])  # without self
        if name not in EXPECTED:
            problems.append(
                f"{theirs.__name__}.{name}({found}) is overridden, but EXPECTED does not list it; {look_at}, then add "
                "it, or rename ours if it is not meant as an override"
            )
        elif found != EXPECTED[name]:
            problems.append(
                f"{theirs.__name__}.{name} has the parameters ({found}), but we expect ({EXPECTED[name]}); {look_at}, "
                "then change EXPECTED"
            )
    return problems


@pytest.mark.parametrize("ours", OUR_TRAINERS)
def test_overridden_private_methods_have_the_expected_parameters(ours):
    theirs = Seq2SeqTrainer if issubclass(ours, Seq2SeqTrainer) else Trainer
    problems = signature_problems(ours, theirs)
    assert not problems, "\n".join(problems)


def test_the_table_lists_only_methods_that_we_override():
    overridden = {name for ours in OUR_TRAINERS for name in private_methods(ours)}
    assert set(EXPECTED) <= overridden, f"remove {sorted(set(EXPECTED) - overridden)} from EXPECTED"


def test_a_changed_signature_is_found():
    class ChangedTrainer(Trainer):
        def _save_checkpoint(self, model, trial, metrics=None):
            pass

    (problem,) = signature_problems(EduTrainer, ChangedTrainer)
    assert "ChangedTrainer._save_checkpoint has the parameters (model, trial, metrics)" in problem
    assert "we expect (model, trial)" in problem and "hf_edu_models.training.trainers." in problem


def test_a_removed_method_is_found(monkeypatch):
    monkeypatch.delattr(Trainer, "_run_epoch")
    (problem,) = signature_problems(EduTrainer, Trainer)
    assert "Trainer has no method _run_epoch any more" in problem


def test_an_override_that_is_not_in_the_table_is_found():
    class OverridingTrainer(EduTrainer):
        __module__ = EduTrainer.__module__

        def _wrap_model(self, model, training=True, dataloader=None):
            return model

    (problem,) = signature_problems(OverridingTrainer, Trainer)
    assert "_wrap_model(model, training, dataloader) is overridden" in problem
