"""Every rung learns with transformers' own Trainer, and learns the same however its batch is cut."""

import pytest
import torch
from tiny import (
    ALL,
    ATTENTION,
    BAHDANAU,
    FEEDFORWARD,
    GPT,
    LANGUAGE_MODELS,
    RECURRENT,
    SEQ2SEQ,
    TRANSLATORS,
    Case,
    by_name,
)
from torch.testing import assert_close
from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer, TrainingArguments

WIDE = {"hidden_size": 64, "embedding_size": 32, "initializer_range": 0.1}
ATTENTIVE = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}
LEARNERS = [
    Case("feedforward", "EduFeedForwardForCausalLM", FEEDFORWARD | {"hidden_size": 96, "window_size": 6}, "lm"),
    Case("rnn", "EduRecurrentForCausalLM", RECURRENT | WIDE | {"cell_type": "rnn", "num_hidden_layers": 1}, "lm"),
    Case("gru", "EduRecurrentForCausalLM", RECURRENT | WIDE | {"cell_type": "gru", "num_hidden_layers": 1}, "lm"),
    Case("lstm", "EduRecurrentForCausalLM", RECURRENT | WIDE | {"num_hidden_layers": 1}, "lm"),
    Case("sutskever", "EduSeq2SeqForConditionalGeneration", SEQ2SEQ | WIDE | {"num_hidden_layers": 1}, "seq2seq"),
    Case(
        "cho",
        "EduSeq2SeqForConditionalGeneration",
        SEQ2SEQ | WIDE | {"num_hidden_layers": 1, "cell_type": "gru", "context_every_step": True, "maxout_size": 32},
        "seq2seq",
    ),
    Case("bahdanau", "EduBahdanauForConditionalGeneration", BAHDANAU | WIDE | {"maxout_size": 32}, "seq2seq"),
    Case("luong", "EduBahdanauForConditionalGeneration", BAHDANAU | WIDE | {"attention_score": "general"}, "seq2seq"),
    Case("transformer", "EduTransformerForConditionalGeneration", ATTENTION | ATTENTIVE, "seq2seq"),
    Case("gpt", "EduGPTForCausalLM", GPT | ATTENTIVE, "lm"),
]


class Collator:
    """Pads ids with 0 and labels with -100, and makes the mask."""

    def __init__(self, task):
        self.side = "left" if task == "lm" else "right"

    def __call__(self, rows):
        batch = {}
        for key, filler in (("input_ids", 0), ("attention_mask", 0), ("labels", -100)):
            values = [torch.tensor(row.get(key, [1] * len(row["input_ids"]))) for row in rows]
            batch[key] = torch.nn.utils.rnn.pad_sequence(values, True, filler, padding_side=self.side)
        return batch


def pairs(count=32):
    """Sentences of 3 to 6 words and as many others that follow from nothing: they must be learnt by heart."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for number in range(count):
        lengths = torch.randint(3, 7, (2,), generator=generator)
        source, target = (torch.randint(3, 29, (length,), generator=generator).tolist() for length in lengths)
        rows.append(([3 + number % 26, *source], target))
    return rows


def dataset_for(case):
    if case.task == "seq2seq":
        return [{"input_ids": source, "labels": [*target, 2]} for source, target in pairs()]
    rows = []
    for source, target in pairs():
        whole = [*source, 1, *target, 2]
        rows.append({"input_ids": whole, "labels": [-100] * (len(source) + 1) + [*target, 2]})
    return rows


@pytest.mark.parametrize("case", **by_name(LEARNERS))
def test_it_learns_32_pairs_by_heart(case, tmp_path):
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
        prompt = torch.tensor([[*source, 1]] if case.task == "lm" else [row["input_ids"]])
        said = model.generate(prompt, max_new_tokens=8, do_sample=False)[0].tolist()
        start = len(source) + 1 if case.task == "lm" else 1
        assert said[start : start + len(target) + 1] == [*target, 2]


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
    dataset = dataset_for(case)
    classes = {"classify": 3, "next": 2, "choose": 4}
    if case.task in classes:
        dataset = [row | {"labels": len(row["input_ids"]) % classes[case.task]} for row in dataset]
    if case.task in ("tag", "mask"):
        vocabulary = 3 if case.task == "tag" else 29
        dataset = [row | {"labels": [word % vocabulary for word in row["input_ids"]]} for row in dataset]
    collator = collate_classes if case.task in classes else Collator(case.task)
    if case.task == "choose":
        collator = collate_choices
    trainer = Trainer(model=model, args=arguments, train_dataset=dataset, data_collator=collator)
    trainer.train()
    return [parameter.detach() for parameter in model.parameters()], trainer.state.log_history[-1]["train_loss"]


def collate_classes(rows):
    batch = Collator("classify")([{"input_ids": row["input_ids"], "labels": [0]} for row in rows])
    return batch | {"labels": torch.tensor([row["labels"] for row in rows])}


def collate_choices(rows):
    batch = collate_classes(rows)
    four = {key: batch[key][:, None].repeat(1, 4, 1) for key in ("input_ids", "attention_mask")}
    four["input_ids"] = (four["input_ids"] + torch.arange(4)[:, None]) % 29
    return batch | four


# The sum of two losses and the mean of two positions are divided by Trainer itself, so only equal pieces are equal.
ONE_A_HEAD = [
    case for case in {case.head: case for case in reversed(ALL)}.values() if case.task not in ("pretrain", "answer")
]


@pytest.mark.parametrize("case", **by_name(ONE_A_HEAD))
def test_accumulated_batches_train_as_one(case, tmp_path):
    whole, loss = final_weights(case, tmp_path, batch=16, accumulation=1)
    pieces, pieces_loss = final_weights(case, tmp_path, batch=4, accumulation=4)
    start = [parameter.detach() for parameter in case.build().parameters()]
    assert any(not torch.allclose(before, after, atol=1e-3) for before, after in zip(start, whole, strict=True))
    assert_close(pieces, whole, rtol=1e-4, atol=1e-5)
    assert abs(loss - pieces_loss) < 1e-4


class FakeTokenizer:
    """What DataCollatorForSeq2Seq asks of a tokenizer."""

    padding_side, pad_token_id = "right", 0

    def pad(self, rows, padding=True, max_length=None, pad_to_multiple_of=None, return_tensors=None):
        width = max(len(row["input_ids"]) for row in rows)
        ids = torch.tensor([row["input_ids"] + [0] * (width - len(row["input_ids"])) for row in rows])
        return {"input_ids": ids, "attention_mask": (ids != 0).long()}


@pytest.mark.parametrize("case", **by_name([TRANSLATORS[0], TRANSLATORS[4]]))
def test_seq2seq_trainer_generates_and_smooths_labels(case, tmp_path):
    """Trainer's label smoothing takes the labels away and wants logits; evaluation generates."""
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


@pytest.mark.parametrize("case", **by_name([LANGUAGE_MODELS[1], LANGUAGE_MODELS[5]]))
def test_evaluation_gathers_logits_and_no_cache(case, tmp_path):
    model, shapes = case.build(), []

    def metrics(prediction):
        shapes.append(prediction.predictions.shape)
        return {}

    arguments = TrainingArguments(tmp_path, per_device_eval_batch_size=4, report_to="none", use_cpu=True)
    rows = [{"input_ids": list(range(3, 10)), "labels": list(range(3, 10))} for _ in range(6)]
    Trainer(model=model, args=arguments, eval_dataset=rows, compute_metrics=metrics).evaluate()
    assert shapes == [(6, 7, 29)]
