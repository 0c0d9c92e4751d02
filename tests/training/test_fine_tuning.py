"""Discriminative learning rates and gradual unfreezing on every rung that classifies; checkpoint averaging."""

from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from tiny_runs import ATTENTION, RECURRENT, arguments, translating
from transformers import TrainerCallback, default_data_collator

import hf_edu_models
from hf_edu_models.run_folder import list_checkpoints
from hf_edu_models.training import EduTrainer, GradualUnfreezing, average_weights, layer_groups
from hf_edu_models.training.fine_tuning import halving, layer_depths, slanted_triangular
from hf_edu_models.training.run import Run, average_last_checkpoints

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
def test_each_layer_has_its_learning_rate_and_each_parameter_one_group(rung):
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


def test_embeddings_that_the_output_layer_shares_have_its_learning_rate():
    tied = {"hidden_size": 12, "embedding_size": 12, "tie_word_embeddings": True}
    recurrent = hf_edu_models.EduRecurrentForCausalLM(hf_edu_models.EduRecurrentConfig(**RECURRENT | tied))
    model = hf_edu_models.EduTransformerForConditionalGeneration(hf_edu_models.EduTransformerConfig(**ATTENTION))
    for each in (model, recurrent):
        groups = layer_groups(each, 0.8, 0.5, 0.0, [])
        shared = each.get_output_embeddings().weight
        rate = next(group["lr"] for group in groups if any(weight is shared for weight in group["params"]))
        assert rate == max(group["lr"] for group in groups) == 0.8
        assert sum(len(group["params"]) for group in groups) == len(list(each.parameters()))


@pytest.mark.parametrize(
    ("num_steps", "cut_frac", "ratio"), [(100, 0.1, 32), (40, 0.25, 8), (1000, 0.5, 100), (10, 0.1, 4)]
)
def test_the_schedule_is_equation_3(num_steps, cut_frac, ratio):
    """As printed, where T cut_frac is an integer."""
    cut = round(num_steps * cut_frac)
    for step in range(num_steps + 1):
        p = step / cut if step < cut else 1 - (step - cut) / (cut * (1 / cut_frac - 1))
        expected = 0.01 * (1 + p * (ratio - 1)) / ratio
        assert 0.01 * slanted_triangular(step, num_steps, cut_frac, ratio) == pytest.approx(expected)


@pytest.mark.parametrize("num_steps", [1, 2, 3, 7, 19, 29, 101])
def test_the_rate_rises_to_the_cut_and_falls_to_the_lowest(num_steps):
    rates = [slanted_triangular(step, num_steps, 0.1, 32) for step in range(num_steps + 1)]
    cut = max(int(num_steps * 0.1), 1)
    assert rates[0] == pytest.approx(1 / 32) and rates[cut] == 1 and all(1 / 32 <= rate <= 1 for rate in rates)
    assert rates[: cut + 1] == sorted(rates[: cut + 1]) and rates[cut:] == sorted(rates[cut:], reverse=True)
    assert num_steps == 1 or rates[-1] == pytest.approx(1 / 32)


def test_the_rate_is_halved_after_each_epoch():
    """Zaremba et al. 2014, Section 4.1: four epochs at the full rate, then half of it after each epoch, of 13."""
    rates = [halving(step, 10, 4) for step in range(130)]
    assert rates[:40] == [1.0] * 40 and rates[40:50] == [0.5] * 10 and rates[-1] == 0.5**9


def test_a_trainer_halves_the_rate(tmp_path):
    model, _ = classifier("recurrent")
    settings = {"halve_lr_after": 1, "learning_rate": 0.04, "num_train_epochs": 3, "logging_steps": 1}
    trainer = EduTrainer(model, arguments(tmp_path, **settings), train_dataset=labelled())
    trainer.train()
    logged = [entry["learning_rate"] for entry in trainer.state.log_history if "learning_rate" in entry]
    assert sorted(set(logged), reverse=True) == pytest.approx([0.04, 0.02, 0.01]) and logged[0] == 0.04


def test_a_trainer_uses_the_schedule(tmp_path):
    """On top of the rate of each layer, at every step."""
    model, _ = classifier("recurrent")
    settings = {"slanted_triangular": 0.25, "layer_lr_decay": 0.5, "learning_rate": 0.04, "max_steps": 8}
    trainer = EduTrainer(model, arguments(tmp_path, **settings, slanted_ratio=10), train_dataset=labelled())
    seen = []

    class Watch(TrainerCallback):
        def on_step_begin(self, args, state, control, optimizer=None, **kwargs):
            seen.append(sorted({group["lr"] for group in optimizer.param_groups}, reverse=True))

    trainer.add_callback(Watch())
    trainer.train()
    for step, rates in enumerate(seen):
        expected = [0.04 * slanted_triangular(step, 8, 0.25, 10) * 0.5**depth for depth in range(5)]
        assert rates == pytest.approx(expected)
    assert len(seen) == 8


@RUNGS
def test_a_trainer_uses_the_learning_rates(rung, tmp_path):
    model, layers = classifier(rung)
    settings = {"layer_lr_decay": 0.5, "learning_rate": 0.04, "lr_scheduler_type": "constant", "max_steps": 1}
    trainer = EduTrainer(model, arguments(tmp_path, **settings), train_dataset=labelled())
    trainer.train()
    rates = sorted({group["lr"] for group in trainer.optimizer.param_groups}, reverse=True)
    assert rates == pytest.approx([0.04 * 0.5**depth for depth in range(layers + 2)])


@RUNGS
def test_layers_are_unfrozen_from_the_top(rung):
    model, layers = classifier(rung)
    unfreezing = GradualUnfreezing(0.5)
    unfreezing.on_train_begin(SimpleNamespace(world_size=1), SimpleNamespace(epoch=None), None, model=model)
    depths = layer_depths(model)
    for half in range(layers + 4):
        unfreezing.on_step_begin(None, SimpleNamespace(epoch=half / 2), None, model=model)
        learning = {name for name, weight in model.named_parameters() if weight.requires_grad}
        assert learning == {name for name, height in depths.items() if height >= layers + 1 - half}
        assert learning
    unfreezing.on_train_end(None, None, None, model=model)
    assert all(weight.requires_grad for weight in model.parameters())


def test_frozen_layers_do_not_change(tmp_path):
    model, _ = classifier("bert")
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    settings = {"unfreeze_every": 1.0, "num_train_epochs": 2, "learning_rate": 0.05, "weight_decay": 0.1}
    trainer = EduTrainer(
        model, arguments(tmp_path, **settings), train_dataset=labelled(), data_collator=default_data_collator
    )
    trainer.train()
    depths = layer_depths(model)  # 3 the head, 2 the upper layer, 1 the lower one, 0 the embeddings
    for name, weight in model.named_parameters():
        assert torch.equal(weight, before[name]) == (depths[name] < 2), name


def test_unfreezing_in_several_processes_raises_an_error():
    with pytest.raises(ValueError, match="unfreeze_every works in one process"):
        GradualUnfreezing(1.0).on_train_begin(SimpleNamespace(world_size=2), None, None, model=None)


@pytest.fixture(scope="module")
def averaged(tmp_path_factory):
    """A run with four checkpoints and `average_checkpoints=3`, and its trainer."""
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
    folders = list_checkpoints(run.folder)
    assert [folder.name for folder in folders] == ["checkpoint-6", "checkpoint-9", "checkpoint-12"]
    found, expected = average_weights(folders), mean_of(folders)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("greater", [False, True])
@pytest.mark.parametrize("better", [False, True])
def test_the_average_is_kept_only_if_the_validation_score_improves(better, greater, averaged, monkeypatch):
    run, trainer = averaged
    start = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    scores = iter([1.0, 2.0] if better == greater else [2.0, 1.0])
    monkeypatch.setattr(trainer, "evaluate", lambda: {"eval_loss": next(scores)})
    monkeypatch.setattr(run.training_args, "greater_is_better", greater)
    average_last_checkpoints(run, trainer)
    expected = mean_of(list_checkpoints(run.folder)) if better else start
    now = trainer.model.state_dict()
    assert all(torch.equal(now[name], weight) for name, weight in expected.items())
    assert trainer.model.lm_head.weight is trainer.model.get_input_embeddings().weight  # still tied
    trainer.model.load_state_dict(start)


def test_equal_scores_keep_the_trained_weights(averaged, monkeypatch):
    run, trainer = averaged
    start = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    monkeypatch.setattr(trainer, "evaluate", lambda: {"eval_loss": 1.0})
    monkeypatch.setattr(run.training_args, "greater_is_better", False)
    average_last_checkpoints(run, trainer)
    assert all(torch.equal(start[name], weight) for name, weight in trainer.model.state_dict().items())


def test_the_last_checkpoints_are_averaged_also_if_an_older_one_is_the_best(tmp_path):
    """The best one is kept besides them, not instead of one of them."""
    from hf_edu_models.training.checkpointing import rotate_checkpoints

    for step in (2, 4, 6, 8, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "config.json").write_text("{}")
    rotate_checkpoints(tmp_path, 3, str(tmp_path / "checkpoint-2"))
    assert [folder.name for folder in list_checkpoints(tmp_path)] == [f"checkpoint-{step}" for step in (2, 6, 8, 10)]
    rotate_checkpoints(tmp_path, None, None)
    assert len(list_checkpoints(tmp_path)) == 4


def test_a_text_longer_than_the_positions_has_a_picture_of_its_start(tmp_path, monkeypatch):
    """A run of 12 positions whose first sample has more tokens."""
    from hf_edu_models.data import train_tokenizer
    from hf_edu_models.explain.attention import files
    from hf_edu_models.training.pictures import choose_text, save_attention_picture

    text = "the weather is nice today and so we all went down to the beach together"
    tokenizer = train_tokenizer([text] * 5, kind="wordpiece", vocab_size=60, rung="bert", cache_dir=tmp_path)
    config = hf_edu_models.EduBertConfig.for_tokenizer(
        tokenizer,
        hidden_size=12,
        num_hidden_layers=1,
        num_attention_heads=3,
        intermediate_size=10,
        max_position_embeddings=12,
    )
    model, drawn = hf_edu_models.EduBertForSequenceClassification(config).eval(), []
    save = files.save_attention
    monkeypatch.setattr(
        files, "save_attention", lambda maps, *rest, **options: drawn.append(maps) or save(maps, *rest, **options)
    )
    assert choose_text(model, [{"text": text}]) == text
    saved = save_attention_picture(model, tokenizer, text, tmp_path)
    assert saved.read_bytes().startswith(b"\x89PNG")
    assert 4 <= len(drawn[0].main.query_tokens) <= 12 and drawn[0].main.query_tokens[1].startswith("t")
