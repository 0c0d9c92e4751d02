"""TINY["bert"]: its heads, sentence embeddings, and transformers' pipelines."""

import pytest
import torch
import torch.nn.functional as F
import transformers
from tiny import CASES, LENGTH, TINY, inputs_for, random_ids, targets_for
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.testing import assert_close
from transformers import PreTrainedTokenizerFast, Trainer, TrainingArguments, pipeline

import hf_edu_models
from hf_edu_models import EduBertConfig, EduBertForMaskedLM, EduBertForPreTraining, EduBertModel
from hf_edu_models.hub import to_transformers
from hf_edu_models.models.blocks_positions import SinusoidalPositions

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = SPECIAL + "the a cat dog sat ran on mat fast is this about pets .".split()  # noqa: SIM905


@pytest.fixture
def tokenizer():
    """A small vocabulary and TINY["bert"]'s special tokens."""
    backend = Tokenizer(models.WordLevel({word: number for number, word in enumerate(VOCABULARY)}, "[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    pair = "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1"
    backend.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair=pair, special_tokens=ends)
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_input_names=inputs, **names)


def test_mlm_and_nsp_losses_are_reported_apart():
    model = CASES["bert"].build()
    ids, labels, follows = random_ids(2, LENGTH), random_ids(2, LENGTH, seed=3), torch.tensor([0, 1])
    labels[:, 2:] = -100
    outputs = model(ids, labels=labels, next_sentence_label=follows)
    counted = labels != -100
    assert_close(outputs.mlm_loss, F.cross_entropy(outputs.prediction_logits[counted], labels[counted]))
    assert_close(outputs.nsp_loss, F.cross_entropy(outputs.seq_relationship_logits, follows))
    assert_close(outputs.loss, outputs.mlm_loss + outputs.nsp_loss)
    assert model(ids, labels=labels).nsp_loss is None and model(ids).loss is None


def test_only_masked_tokens_reach_the_mlm_head():
    model, seen = CASES["bert"].build().train(), []
    model.lm_head.transform.register_forward_pre_hook(lambda module, inputs: seen.append(tuple(inputs[0].shape)))
    labels = torch.full((2, LENGTH), -100)
    labels[0, 3], labels[1, 5] = 7, 8
    outputs = model(random_ids(2, LENGTH), labels=labels)
    assert outputs.prediction_logits is None and seen == [(2, 12)]


def test_token_type_and_position_embeddings_are_added():
    model = CASES["bert-ForMaskedLM"].build().model
    ids, types = random_ids(1, 4), torch.tensor([[0, 0, 1, 1]])
    parts = model.embeddings
    total = parts.word_embeddings(ids) + parts.position_embeddings(torch.arange(4)) + parts.token_type_embeddings(types)
    assert_close(model(ids, token_type_ids=types, output_hidden_states=True).hidden_states[0], parts.norm(total))
    assert not torch.allclose(model(ids)[0], model(ids, token_type_ids=types)[0])


def test_a_truncated_answer_is_ignored():
    model = CASES["bert-ForQuestionAnswering"].build()
    start, end = torch.tensor([2, LENGTH]), torch.tensor([4, LENGTH + 3])
    outputs = model(random_ids(2, LENGTH), start_positions=start, end_positions=end)
    expected = F.cross_entropy(outputs.start_logits[:1], start[:1]) + F.cross_entropy(outputs.end_logits[:1], end[:1])
    assert_close(outputs.loss, expected / 2)


def test_choices_do_not_affect_each_other():
    model = CASES["bert-ForMultipleChoice"].build()
    ids = random_ids(2, 4, LENGTH)
    logits = model(ids).logits
    assert logits.shape == (2, 4)
    for choice in range(4):
        assert_close(model(ids[:, choice : choice + 1]).logits[:, 0], logits[:, choice])


def test_a_pretrained_model_loads_into_every_head(tmp_path):
    pretrained = CASES["bert"].build()
    pretrained.save_pretrained(tmp_path)
    for auto, name in EduBertConfig.heads.items():
        model = getattr(transformers, auto).from_pretrained(tmp_path)
        assert type(model) is getattr(hf_edu_models, name)
        body = model if auto == "AutoModel" else model.model
        expected = pretrained.model.state_dict()
        if body.pooler is None:  # heads that read every state have no use for it
            expected = {key: value for key, value in expected.items() if "pooler" not in key}
        assert body.state_dict().keys() == expected.keys()
        for key, value in expected.items():
            assert torch.equal(body.state_dict()[key], value), f"{name}: {key}"
        if hasattr(model, "lm_head"):
            assert torch.equal(model.lm_head.transform.weight, pretrained.lm_head.transform.weight)
            assert model.lm_head.decoder.weight is model.model.embeddings.word_embeddings.weight


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("layer", [-1, 0, 1])
def test_sentence_embeddings(tokenizer, pooling, layer):
    model = EduBertModel(EduBertConfig(**TINY["bert"])).train()
    texts = ["the cat sat", "a dog ran fast on the mat .", "cat", "this is about pets"]
    vectors = model.encode(texts, tokenizer, pooling=pooling, layer=layer, batch_size=3, show_progress=False)
    assert vectors.shape == (4, 12) and model.training
    model.eval()
    for text, vector in zip(texts, vectors, strict=True):
        states = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states[layer][0]
        assert_close(vector, {"mean": states.mean(0), "cls": states[0], "max": states.amax(0)}[pooling])
    unit = model.encode(texts, tokenizer, pooling=pooling, layer=layer, normalize=True)
    assert_close(unit, F.normalize(vectors, dim=-1))
    assert_close(model.encode("cat", tokenizer, pooling=pooling, layer=layer)[0], vectors[2])


TASKS = {
    "fill-mask": ("EduBertForMaskedLM", "the [MASK] sat", {}),
    "text-classification": ("EduBertForSequenceClassification", "the cat sat", {}),
    "token-classification": ("EduBertForTokenClassification", "the cat sat", {}),
    "feature-extraction": ("EduBertModel", "the cat sat", {}),
    "zero-shot-classification": (
        "EduBertForSequenceClassification",
        "the cat sat",
        {"candidate_labels": ["pets", "mat"]},
    ),
    "text-generation": ("EduGPTForCausalLM", "the cat", {"max_new_tokens": 3}),
}


@pytest.mark.parametrize("task", TASKS)
def test_pipelines_run_on_saved_checkpoints(task, tokenizer, tmp_path):
    name, text, options = TASKS[task]
    head = getattr(hf_edu_models, name)
    names = ["contradiction", "entailment"]
    sizes = TINY["bert"] | {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
    head(head.config_class(**sizes | {"bos_token_id": 2, "eos_token_id": 3})).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    # `pipeline` finds the model by the Auto classes, from the folder alone.
    run = pipeline(task, model=str(tmp_path), tokenizer=str(tmp_path), device="cpu")
    assert type(run.model) is head
    answer = run(text, **options)
    batch = run([text, text], **options)
    assert len(batch) == 2
    if task == "fill-mask":
        assert answer[0]["token_str"] in VOCABULARY and 0 < answer[0]["score"] <= 1
    elif task == "text-classification":
        assert answer[0]["label"] in ("contradiction", "entailment")
    elif task == "token-classification":
        assert [token["word"] for token in answer] == ["the", "cat", "sat"]
    elif task == "zero-shot-classification":
        assert_close(sum(answer["scores"]), 1.0)
    elif task == "feature-extraction":
        assert len(answer[0]) == 5 and len(answer[0][0]) == 12
    else:
        assert answer[0]["generated_text"].startswith("the cat")


def rows_for(name):
    """Eight examples of a task with different labels."""
    generator = torch.Generator().manual_seed(4)
    ids = torch.randint(5, 29, (8, LENGTH), generator=generator)
    rows = [{"input_ids": row.tolist()} for row in ids]
    for number, row in enumerate(rows):
        hidden = [word if place in (2, 4) else -100 for place, word in enumerate(row["input_ids"])]
        if name in ("EduBertForMaskedLM", "EduBertForPreTraining"):
            row["labels"] = hidden
            row["input_ids"] = [4 if place in (2, 4) else word for place, word in enumerate(row["input_ids"])]
        if name == "EduBertForPreTraining":
            row["next_sentence_label"] = number % 2
        if name in ("EduBertForNextSentencePrediction", "EduBertForSequenceClassification"):
            row["labels"] = number % 2
        if name == "EduGPTForSequenceClassification":
            row["labels"] = number % 3
        if name == "EduBertForTokenClassification":
            row["labels"] = [(word + number) % 3 for word in row["input_ids"]]
        if name == "EduBertForQuestionAnswering":
            row["start_positions"], row["end_positions"] = number % 4, number % 4 + 2
        if name == "EduBertForMultipleChoice":
            row["input_ids"] = torch.randint(5, 29, (4, LENGTH), generator=generator).tolist()
            row["labels"] = number % 4
    return rows


HEADS = [name for name in EduBertConfig.heads.values() if name != "EduBertModel"] + ["EduGPTForSequenceClassification"]


@pytest.mark.parametrize("name", HEADS)
def test_each_head_overfits_eight_examples(name, tmp_path):
    head = getattr(hf_edu_models, name)
    settings = TINY["bert"] | {"hidden_size": 48, "num_attention_heads": 4, "initializer_range": 0.1, "num_labels": 3}
    model, rows = head(head.config_class(**settings)), rows_for(name)
    arguments = TrainingArguments(
        tmp_path,
        max_steps=80,
        per_device_train_batch_size=8,
        learning_rate=1e-2,
        warmup_steps=10,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=rows)
    trainer.train()
    predictions, labels = trainer.predict(rows)[:2]
    predictions = predictions if isinstance(predictions, tuple) else (predictions,)
    labels = labels if isinstance(labels, tuple) else (labels,)
    for scores, references in zip(predictions[: len(labels)], labels, strict=True):
        counted = references != -100
        assert (scores.argmax(-1)[counted] == references[counted]).all()


def test_initialisation_is_truncated():
    model = EduBertForPreTraining(EduBertConfig(**TINY["bert"] | {"initializer_range": 0.02, "hidden_size": 60}))
    weight = model.model.layers[0].feed_forward.inner_proj.weight
    assert 0.035 < weight.abs().max() <= 0.04
    assert_close(weight.std().item(), 0.88 * 0.02, rtol=0.1, atol=0)


def positions_of(model):
    return model.embeddings.position_embeddings.weight


def test_sinusoidal_initialisation_of_positions():
    table = positions_of(EduBertModel(EduBertConfig(**TINY["bert"], position_init="sinusoidal")))
    assert table.requires_grad
    assert_close(table, 2 * 0.3 * SinusoidalPositions(12)(torch.arange(40)))
    odd = positions_of(EduBertModel(EduBertConfig(**TINY["bert"] | {"hidden_size": 15}, position_init="sinusoidal")))
    assert_close(odd[:, -1], 2 * 0.3 * torch.sin(torch.arange(40) / 10_000 ** (14 / 15)))


def test_only_sinusoidal_positions_start_with_distances():
    """The product of two sinusoidal encodings depends on their distance alone, of random vectors it does not."""

    def spread(table):
        products = table @ table.T
        return max(products.diagonal(distance).std().item() for distance in range(20))

    assert spread(positions_of(EduBertModel(EduBertConfig(**TINY["bert"], position_init="sinusoidal")))) < 1e-5
    assert spread(positions_of(EduBertModel(EduBertConfig(**TINY["bert"])))) > 0.1


def test_trained_positions_load_over_their_initialisation(tmp_path):
    model = EduBertForMaskedLM(EduBertConfig(**TINY["bert"], position_init="sinusoidal")).eval()
    positions_of(model.model).data.normal_()
    model.save_pretrained(tmp_path)
    assert torch.equal(positions_of(EduBertModel.from_pretrained(tmp_path)), positions_of(model.model))
    assert_close(to_transformers(model).eval()(random_ids(2, LENGTH)).logits, model(random_ids(2, LENGTH)).logits)


def test_the_weights_of_the_two_losses_of_pretraining():
    case = CASES["bert"]
    inputs = inputs_for(case) | targets_for(case)
    outputs = case.build(mlm_weight=0.5, nsp_weight=2.0)(**inputs)
    assert_close(outputs.loss, 0.5 * outputs.mlm_loss + 2 * outputs.nsp_loss)
    assert_close(case.build(nsp_weight=0)(**inputs).loss, outputs.mlm_loss)
