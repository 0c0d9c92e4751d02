"""Learning rates by layer and layers that wait, on every rung that classifies; averages of checkpoints."""

from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from tiny_runs import ATTENTION, RECURRENT, arguments, translating
from transformers import default_data_collator

import hf_edu_models
from hf_edu_models.training import EduTrainer, GradualUnfreezing, average_weights, layer_groups
from hf_edu_models.training.checkpoints import checkpoints_of
from hf_edu_models.training.fine_tuning import depths
from hf_edu_models.training.run import Run, choose_weights

LABELS = {"num_labels": 3}
POSITIONS = {"max_position_embeddings": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def classifier(rung: str):
    if rung == "recurrent":
        config = hf_edu_models.EduRecurrentConfig(**RECURRENT, **LABELS, num_hidden_layers=3)
        return hf_edu_models.EduRecurrentForSequenceClassification(config), 3
    if rung == "gpt":
        config = hf_edu_models.EduGPTConfig(**ATTENTION, **LABELS, **POSITIONS)
        return hf_edu_models.EduGPTForSequenceClassification(config), 2
    config = hf_edu_models.EduBertConfig(**ATTENTION, **LABELS, max_position_embeddings=16)
    return hf_edu_models.EduBertForSequenceClassification(config), 2


def labelled(count: int = 8):
    rows = [{"input_ids": [4 + number, 5, 6], "labels": number % 3} for number in range(count)]
    return rows


RUNGS = pytest.mark.parametrize("rung", ["recurrent", "gpt", "bert"])


@RUNGS
def test_each_layer_has_its_rate_and_each_parameter_its_place(rung):
    model, layers = classifier(rung)
    decayed = [name for name, _ in model.named_parameters() if name.endswith("weight") and "norm" not in name]
    groups = layer_groups(model, 0.8, 0.5, 0.01, decayed)
    names = {id(weight): name for name, weight in model.named_parameters()}
    placed = {names[id(weight)]: group for group in groups for weight in group["params"]}
    assert sum(len(group["params"]) for group in groups) == len(placed) == len(names)
    for name, group in placed.items():
        if "embed" in name:
            expected = 0.8 * 0.5 ** (layers + 1)
        elif ".layers." in name:
            expected = 0.8 * 0.5 ** (layers - int(name.partition(".layers.")[2].partition(".")[0]))
        else:  # the head, the pooler, the last norm
            expected = 0.8
        assert group["lr"] == pytest.approx(expected), name
        assert group["weight_decay"] == (0.01 if name in decayed else 0.0), name


def test_a_tied_head_is_no_layer_of_its_own():
    model = hf_edu_models.EduTransformerForConditionalGeneration(hf_edu_models.EduTransformerConfig(**ATTENTION))
    groups = layer_groups(model, 0.8, 0.5, 0.0, [])
    assert max(group["lr"] for group in groups) == 0.8
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))


@RUNGS
def test_a_trainer_uses_the_rates(rung, tmp_path):
    model, layers = classifier(rung)
    settings = {"layer_lr_decay": 0.5, "learning_rate": 0.04, "lr_scheduler_type": "constant", "max_steps": 1}
    trainer = EduTrainer(model, arguments(tmp_path, **settings), train_dataset=labelled())
    trainer.train()
    rates = sorted({group["lr"] for group in trainer.optimizer.param_groups}, reverse=True)
    assert rates == pytest.approx([0.04 * 0.5**depth for depth in range(layers + 2)])


@RUNGS
def test_layers_join_from_the_top(rung):
    model, layers = classifier(rung)
    unfreezing = GradualUnfreezing(0.5)
    unfreezing.on_train_begin(SimpleNamespace(world_size=1), SimpleNamespace(epoch=None), None, model=model)
    heights = depths(model)
    for half in range(layers + 4):
        unfreezing.on_step_begin(None, SimpleNamespace(epoch=half / 2), None, model=model)
        learning = {name for name, weight in model.named_parameters() if weight.requires_grad}
        assert learning == {name for name, height in heights.items() if height >= layers + 1 - half}
        assert learning
    unfreezing.on_train_end(None, None, None, model=model)
    assert all(weight.requires_grad for weight in model.parameters())


def test_frozen_layers_do_not_move(tmp_path):
    model, _ = classifier("bert")
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    settings = {"unfreeze_every": 1.0, "num_train_epochs": 2, "learning_rate": 0.05, "weight_decay": 0.1}
    trainer = EduTrainer(
        model, arguments(tmp_path, **settings), train_dataset=labelled(), data_collator=default_data_collator
    )
    trainer.train()
    heights = depths(model)  # 3 the head, 2 the upper layer, 1 the lower one, 0 the embeddings
    for name, weight in model.named_parameters():
        assert torch.equal(weight, before[name]) == (heights[name] < 2), name


def test_several_processes_cannot_unfreeze():
    with pytest.raises(ValueError, match="unfreeze_every works in one process"):
        GradualUnfreezing(1.0).on_train_begin(SimpleNamespace(world_size=2), None, None, model=None)


@pytest.fixture(scope="module")
def averaged(tmp_path_factory):
    """A run of four checkpoints, three of which are to be averaged, and its trainer."""
    folder = tmp_path_factory.mktemp("averaged")
    settings = arguments(folder, average_checkpoints=3, max_steps=12, metric_for_best_model="loss", learning_rate=0.05)
    trainer = translating(settings)
    trainer.train()
    return Run(None, settings, folder, None), trainer


def mean_of(folders) -> dict[str, torch.Tensor]:
    weights = [load_file(folder / "model.safetensors") for folder in folders]
    return {name: torch.stack([each[name].double() for each in weights]).mean(0).float() for name in weights[0]}


def test_the_average_is_the_mean_of_the_last_checkpoints(averaged):
    run, _ = averaged
    folders = checkpoints_of(run.folder)
    assert [folder.name for folder in folders] == ["checkpoint-6", "checkpoint-9", "checkpoint-12"]
    found, expected = average_weights(folders), mean_of(folders)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("greater", [False, True])
@pytest.mark.parametrize("better", [False, True])
def test_the_average_is_kept_only_where_validation_likes_it(better, greater, averaged, monkeypatch):
    run, trainer = averaged
    start = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    scores = iter([1.0, 2.0] if better == greater else [2.0, 1.0])
    monkeypatch.setattr(trainer, "evaluate", lambda: {"eval_loss": next(scores)})
    monkeypatch.setattr(run.training_args, "greater_is_better", greater)
    choose_weights(run, trainer)
    expected = mean_of(checkpoints_of(run.folder)) if better else start
    now = trainer.model.state_dict()
    assert all(torch.equal(now[name], weight) for name, weight in expected.items())
    assert trainer.model.lm_head.weight is trainer.model.get_input_embeddings().weight  # still tied
    trainer.model.load_state_dict(start)


def test_equal_scores_keep_the_weights_that_were_trained(averaged, monkeypatch):
    run, trainer = averaged
    start = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    monkeypatch.setattr(trainer, "evaluate", lambda: {"eval_loss": 1.0})
    monkeypatch.setattr(run.training_args, "greater_is_better", False)
    choose_weights(run, trainer)
    assert all(torch.equal(start[name], weight) for name, weight in trainer.model.state_dict().items())


def test_the_last_checkpoints_are_averaged_also_where_an_older_one_is_the_best(tmp_path):
    """The best one is kept beside them, not in place of one of them."""
    from hf_edu_models.training.checkpoints import drop_old

    for step in (2, 4, 6, 8, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "config.json").write_text("{}")
    drop_old(tmp_path, 3, str(tmp_path / "checkpoint-2"))
    assert [folder.name for folder in checkpoints_of(tmp_path)] == [f"checkpoint-{step}" for step in (2, 6, 8, 10)]
    drop_old(tmp_path, None, None)
    assert len(checkpoints_of(tmp_path)) == 4
