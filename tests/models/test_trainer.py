"""Every rung learns with transformers' Trainer, and the same with gradient accumulation."""

from dataclasses import replace

import pytest
import torch
from tiny import ALL, CASES, EVERY, Case, by_name, inputs_for, targets_for
from torch.testing import assert_close
from transformers import (
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainingArguments,
    default_data_collator,
)

WIDE = {"hidden_size": 64, "embedding_size": 32, "initializer_range": 0.1}
LOSS_TERMS = ("head_diversity_weight", "lm_loss_weight", "redundancy_weight")  # besides the loss of the labels
ATTENTIVE = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}


def enlarge(name: str, **settings) -> Case:
    """A case that is large enough to memorise 32 pairs."""
    return replace(CASES[name], settings=CASES[name].settings | settings)


LEARNERS = [
    enlarge("feedforward", hidden_size=96, window_size=6),
    *(
        enlarge(name, **WIDE, num_hidden_layers=1)
        for name in ("recurrent-rnn", "recurrent-gru", "recurrent", "seq2seq")
    ),
    enlarge("seq2seq-cho", **WIDE, maxout_size=32, reverse_source=True),
    enlarge("bahdanau", **WIDE, maxout_size=32),
    enlarge("bahdanau-general-gru", **WIDE),
    *(enlarge(name, **ATTENTIVE) for name in ("transformer", "gpt")),
]


class Collator:
    """Pads ids with 0 and labels with -100, and makes the mask."""

    def __init__(self, task):
        self.side = "left" if task == "language_modeling" else "right"

    def __call__(self, rows):
        batch = {}
        for key, filler in (("input_ids", 0), ("attention_mask", 0), ("labels", -100)):
            values = [torch.tensor(row.get(key, [1] * len(row["input_ids"]))) for row in rows]
            batch[key] = torch.nn.utils.rnn.pad_sequence(values, True, filler, padding_side=self.side)
        return batch


def pairs(count=32):
    """Random pairs of 3 to 6 tokens each, which can only be memorised."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for number in range(count):
        lengths = torch.randint(3, 7, (2,), generator=generator)
        source, target = (torch.randint(4, 29, (length,), generator=generator).tolist() for length in lengths)
        rows.append(([4 + number % 25, *source], target))
    return rows


def dataset_for(case):
    if case.task == "translation":
        return [{"input_ids": source, "labels": [*target, 3]} for source, target in pairs()]
    rows = []
    for source, target in pairs():
        whole = [*source, 2, *target, 3]
        rows.append({"input_ids": whole, "labels": [-100] * (len(source) + 1) + [*target, 3]})
    return rows


@pytest.mark.parametrize("case", **by_name(LEARNERS))
def test_it_overfits_32_pairs(case, tmp_path):
    model, dataset = case.build(), dataset_for(case)
    steps = 300
    arguments = TrainingArguments(
        tmp_path,
        max_steps=steps,
        per_device_train_batch_size=16,
        learning_rate=3e-3 if case.attends else 1e-2,
        lr_scheduler_type="cosine",
        warmup_steps=10,
        save_strategy="no",
        report_to="none",
        logging_steps=steps,
        use_cpu=True,
        seed=1,
    )
    Trainer(model=model, args=arguments, train_dataset=dataset, data_collator=Collator(case.task)).train()
    model.eval()
    for row, (source, target) in zip(dataset, pairs(), strict=True):
        prompt = torch.tensor([[*source, 2]] if case.task == "language_modeling" else [row["input_ids"]])
        generated = model.generate(prompt, max_new_tokens=8, do_sample=False)[0].tolist()
        start = len(source) + 1 if case.task == "language_modeling" else 1
        assert generated[start : start + len(target) + 1] == [*target, 3]


def final_weights(case, tmp_path, batch, accumulation):
    model = case.build()
    arguments = TrainingArguments(
        tmp_path,
        max_steps=2,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulation,
        optim="sgd",
        learning_rate=0.5,
        max_grad_norm=0,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
    )
    # Labels of -100 make the number of labels differ between batches, as padding does.
    batch = inputs_for(case, batch=32) | targets_for(case, batch=32)
    if "labels" in batch and batch["labels"].ndim == 2:
        batch["labels"][::3, 2:] = -100
    rows = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
    trainer = Trainer(model=model, args=arguments, train_dataset=rows, data_collator=default_data_collator)
    trainer.train()
    return [parameter.detach() for parameter in model.parameters()], trainer.state.log_history[-1]["train_loss"]


# Two losses together and the mean of two positions are divided by Trainer itself, so only equal pieces are equal.
ONE_A_HEAD = [
    case
    for case in {case.head: case for case in reversed(EVERY)}.values()
    if case.task not in ("pretraining", "bidirectional_lm", "question_answering")
]
ONE_A_HEAD += [case for case in ALL if any(case.settings.get(name) for name in LOSS_TERMS)]


@pytest.mark.parametrize("case", **by_name(ONE_A_HEAD))
def test_accumulated_batches_train_as_one(case, tmp_path):
    whole, loss = final_weights(case, tmp_path, batch=32, accumulation=1)
    pieces, pieces_loss = final_weights(case, tmp_path, batch=8, accumulation=4)
    start = [parameter.detach() for parameter in case.build().parameters()]
    assert any(not torch.allclose(before, after, atol=1e-3) for before, after in zip(start, whole, strict=True))
    assert_close(pieces, whole, rtol=1e-4, atol=1e-5)
    assert abs(loss - pieces_loss) < 1e-4


class FakeTokenizer:
    """The part of a tokenizer that DataCollatorForSeq2Seq uses."""

    padding_side, pad_token_id = "right", 0

    def pad(self, rows, padding=True, max_length=None, pad_to_multiple_of=None, return_tensors=None):
        width = max(len(row["input_ids"]) for row in rows)
        ids = torch.tensor([row["input_ids"] + [0] * (width - len(row["input_ids"])) for row in rows])
        return {"input_ids": ids, "attention_mask": (ids != 0).long()}


@pytest.mark.parametrize("case", **by_name([CASES["seq2seq"], CASES["bahdanau"]]))
def test_seq2seq_trainer_generates_and_smooths_labels(case, tmp_path):
    """Trainer's label smoothing removes the labels and needs logits; evaluation generates."""
    model = case.build()
    seen = []

    def metrics(prediction):
        seen.append(prediction.predictions)
        return {"words": float((prediction.predictions > 2).mean())}

    arguments = Seq2SeqTrainingArguments(
        tmp_path,
        max_steps=2,
        label_smoothing_factor=0.1,
        predict_with_generate=True,
        generation_num_beams=2,
        generation_max_length=7,
        report_to="none",
        save_strategy="no",
        use_cpu=True,
    )
    collator = DataCollatorForSeq2Seq(FakeTokenizer(), model=model)
    dataset = [dict(row) for row in dataset_for(case)]
    trainer = Seq2SeqTrainer(
        model=model,
        args=arguments,
        train_dataset=dataset,
        eval_dataset=dataset[:12],
        data_collator=collator,
        compute_metrics=metrics,
    )
    trainer.train()
    result = trainer.evaluate()
    assert len(seen[0]) == 12 and result["eval_loss"] > 0
    # Trainer pads what was generated, 7 tokens here, to the configuration's own maximum.
    assert result["eval_words"] > 0 and not seen[0][:, 7:].any()


@pytest.mark.parametrize("case", **by_name([CASES["feedforward"], CASES["recurrent-lstm-window"]]))
def test_evaluation_gathers_logits_and_no_cache(case, tmp_path):
    model, shapes = case.build(), []

    def metrics(prediction):
        shapes.append(prediction.predictions.shape)
        return {}

    arguments = TrainingArguments(tmp_path, per_device_eval_batch_size=4, report_to="none", use_cpu=True)
    rows = [{"input_ids": list(range(3, 10)), "labels": list(range(3, 10))} for _ in range(6)]
    Trainer(model=model, args=arguments, eval_dataset=rows, compute_metrics=metrics).evaluate()
    assert shapes == [(6, 7, 29)]
