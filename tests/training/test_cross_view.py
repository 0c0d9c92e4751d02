"""Cross-view training: what each view sees, what learns from which loss, and that a resumed run is the same."""

import pytest
import torch
import torch.nn.functional as F
from datasets import Dataset
from tiny_runs import RECURRENT, VOCAB_SIZE, arguments, tokenizer
from transformers import DataCollatorForTokenClassification

from hf_edu_models import EduRecurrentConfig, EduRecurrentForTokenClassification
from hf_edu_models.training.arguments import CrossViewArguments
from hf_edu_models.training.cross_view import (
    AuxiliaryModules,
    CrossViewTrainer,
    cross_view_loss,
    unlabelled_rows,
)

TAGS = 5


def rows(count, seed=0):
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 9, (count,), generator=draw).tolist()
    ids = [torch.randint(5, VOCAB_SIZE, (length,), generator=draw).tolist() for length in lengths]
    labels = [[token % TAGS if token % 4 else -100 for token in row] for row in ids]
    return Dataset.from_dict({"input_ids": ids, "attention_mask": [[1] * len(row) for row in ids], "labels": labels})


def trainer_for(folder, weight=1.0, bidirectional=True, **options):
    torch.manual_seed(0)
    settings = RECURRENT | {"bidirectional": bidirectional, "num_hidden_layers": 2, "num_labels": TAGS}
    return CrossViewTrainer(
        model=EduRecurrentForTokenClassification(EduRecurrentConfig(**settings, pad_token_id=0)),
        args=arguments(folder, **options),
        train_dataset=rows(12),
        eval_dataset=rows(5, seed=1),
        data_collator=DataCollatorForTokenClassification(tokenizer()),
        processing_class=tokenizer(),
        unlabelled=rows(30, seed=2),
        weight=weight,
    )


def ready(folder, **options):
    trainer = trainer_for(folder, **options)
    trainer.current_gradient_accumulation_steps = 1
    return trainer, dict(trainer.data_collator([trainer.unlabelled[number] for number in range(4)]))


def has_gradient(module):
    return any(parameter.grad is not None and parameter.grad.any() for parameter in module.parameters())


# Which positions each view may not see, when it predicts the tag of position t.
HIDDEN = {
    "forwards": lambda t, other: other > t,
    "backwards": lambda t, other: other < t,
    "future": lambda t, other: other >= t,
    "past": lambda t, other: other <= t,
}


@pytest.mark.parametrize("view", HIDDEN)
def test_a_view_sees_its_side_and_nothing_else(view, tmp_path):
    trainer = trainer_for(tmp_path)
    model, auxiliary = trainer.model.eval(), trainer.auxiliary
    ids = torch.randint(5, VOCAB_SIZE, (1, 7), generator=torch.Generator().manual_seed(0))

    def logits(ids):
        states = model.model(ids, output_hidden_states=True, return_dict=True).hidden_states[1]
        return auxiliary(states, torch.ones_like(ids, dtype=torch.bool))[view][0]

    before = logits(ids)
    for other in range(7):
        changed = ids.clone()
        changed[0, other] = 5 + (ids[0, other] - 4) % (VOCAB_SIZE - 5)
        for position, is_same in enumerate(torch.isclose(before, logits(changed), atol=1e-7).all(dim=-1).tolist()):
            assert is_same == HIDDEN[view](position, other), (view, position, other)


def test_what_is_behind_a_word_begins_with_the_next_word(tmp_path):
    """Not with its own last tokens."""
    trainer = trainer_for(tmp_path)
    is_word = torch.tensor([[True, False, True, True, False, False]])
    states = torch.randn(1, 6, 2 * trainer.model.config.hidden_size)
    before = trainer.auxiliary(states, is_word)["past"][0]
    for position, seen in ((0, 2), (2, 3), (3, None)):
        changed = states.clone()
        changed[:, [other for other in range(6) if other != seen]] += 1.0
        torch.testing.assert_close(trainer.auxiliary(changed, is_word)["past"][0, position], before[position])


def test_padding_changes_no_view(tmp_path):
    trainer = trainer_for(tmp_path)
    model, ids = trainer.model.eval(), torch.randint(5, VOCAB_SIZE, (1, 4))
    padded, mask = F.pad(ids, (0, 3)), torch.tensor([[1, 1, 1, 1, 0, 0, 0]])
    short, long = (
        trainer.auxiliary(
            model.model(*each, output_hidden_states=True, return_dict=True).hidden_states[1], each[-1] > 0
        )
        for each in ((ids,), (padded, mask))
    )
    for view in short:
        torch.testing.assert_close(long[view][:, :4], short[view])


def test_the_loss_is_the_kl_divergence_at_the_words():
    torch.manual_seed(0)
    primary, is_word = torch.randn(2, 3, TAGS), torch.tensor([[True, False, True], [True, False, False]])
    views = {name: torch.randn(2, 3, TAGS) for name in AuxiliaryModules.views}
    expected = 0.0
    for logits in views.values():
        p, q = primary.softmax(-1), logits.softmax(-1)
        expected += (p * (p / q).log()).sum(-1)[is_word].mean()
    torch.testing.assert_close(cross_view_loss(primary, views, is_word), expected)
    agreeing = dict.fromkeys(views, primary + 3.0)  # the same probabilities
    assert float(cross_view_loss(primary, agreeing, is_word)) == pytest.approx(0.0, abs=1e-6)
    changed = {name: torch.where(is_word[..., None], each, 9.0) for name, each in views.items()}
    torch.testing.assert_close(cross_view_loss(primary, changed, is_word), expected)


def test_unlabelled_text_teaches_the_first_layer_and_the_views_but_not_the_primary_module(tmp_path):
    trainer, batch = ready(tmp_path)
    trainer.model.train()
    trainer.loss_on_unlabelled(batch).backward()
    first, second = trainer.model.model.stack.layers
    assert has_gradient(first) and has_gradient(trainer.model.model.embed_tokens) and has_gradient(trainer.auxiliary)
    assert not has_gradient(second) and not has_gradient(trainer.model.classifier)
    assert trainer.model.training


def test_the_tags_of_unlabelled_text_are_not_read(tmp_path):
    trainer, batch = ready(tmp_path)
    other = {name: each.clone() for name, each in batch.items()}
    other["labels"][other["labels"] != -100] = 3
    losses = []
    for each in (batch, other):
        torch.manual_seed(0)
        losses.append(trainer.loss_on_unlabelled(each))
    assert torch.equal(*losses)


def test_evaluation_has_the_loss_of_the_labels_alone(tmp_path):
    trainer, batch = ready(tmp_path)
    model = trainer.model.eval()
    torch.testing.assert_close(trainer.compute_loss(model, dict(batch)), model(**batch).loss)


def test_a_resumed_run_is_the_same_and_its_model_has_no_auxiliary_modules(tmp_path):
    options = {"max_steps": 6, "save_strategy": "steps", "save_steps": 3, "logging_steps": 3}
    whole = trainer_for(tmp_path / "whole", **options)
    whole.train()
    resumed = trainer_for(tmp_path / "whole", **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-3"))
    for one, two in ((whole.model, resumed.model), (whole.auxiliary, resumed.auxiliary)):
        first, second = one.state_dict(), two.state_dict()
        assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    assert not [name for name in whole.model.state_dict() if "networks" in name]
    assert all(entry["unlabelled_loss"] > 0 for entry in whole.state.log_history if "loss" in entry)
    (tmp_path / "whole" / "checkpoint-3" / "cross_view.pt").unlink()
    with pytest.raises(ValueError, match="it is not of cross-view training"):
        resumed._load_optimizer_and_scheduler(str(tmp_path / "whole" / "checkpoint-3"))


def test_words_of_tagged_data_and_of_texts(tmp_path):
    tagged, texts = tmp_path / "tagged.jsonl", tmp_path / "texts.txt"
    tagged.write_text('{"tokens": ["w5", "w6"], "tags": ["A", "B"]}\n{"tokens": ["w7"], "tags": ["A"]}\n')
    texts.write_text("w5 w6\nw7\n")
    expected = tokenizer()(["w5 w6", "w7"])["input_ids"]
    for file in (tagged, texts):
        args = CrossViewArguments(dataset=str(tagged), unlabelled=str(file))
        assert unlabelled_rows(args, tokenizer())["input_ids"] == expected
    args = CrossViewArguments(dataset=str(tagged), unlabelled=str(texts), unlabelled_size=1)
    assert unlabelled_rows(args, tokenizer())["input_ids"] == expected[:1]


def test_wrong_uses_are_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="give --model bidirectional=true"):
        trainer_for(tmp_path, bidirectional=False)
    for wrong, sentence in (
        ({"unlabelled_weight": 0.0}, "unlabelled_weight must be above 0"),
        ({"unlabelled_size": 5}, "--unlabelled_weight need --unlabelled"),
        ({"unlabelled_weight": 2.0}, "--unlabelled_weight need --unlabelled"),
        ({"unlabelled": "x", "unlabelled_size": 0}, "unlabelled_size must be at least 1"),
    ):
        with pytest.raises(ValueError, match=sentence):
            CrossViewArguments(dataset="x", **wrong)
