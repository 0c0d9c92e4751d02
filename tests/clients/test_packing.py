"""Packed documents (`DataCollatorWithFlattening`, TRL's `packing=True`) give the numbers of separate rows."""

import pytest
import torch
from tiny import ALL, CASES, VOCABULARY, by_name, inputs_for, logits_of, random_ids
from torch.testing import assert_close
from transformers import DataCollatorWithFlattening, GPT2Config, GPT2LMHeadModel

LENGTHS = (5, 3, 1, 6)
ROWS = [random_ids(length, seed=length).tolist() for length in LENGTHS]
FORMS = pytest.mark.parametrize("form", ["eager", "fused"])


def flattened(**options):
    return DataCollatorWithFlattening(**options)([{"input_ids": row} for row in ROWS])


def gpt2():
    torch.manual_seed(0)
    sizes = {
        "vocab_size": VOCABULARY,
        "n_positions": 40,
        "n_embd": 12,
        "n_layer": 2,
        "n_head": 3,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    model = GPT2LMHeadModel(GPT2Config(**sizes)).eval()
    for parameter in model.parameters():
        torch.nn.init.uniform_(parameter, -0.5, 0.5)
    return model


MODELS = {
    "edu_gpt-eager": lambda: CASES["gpt"].build(form="eager", max_position_embeddings=9),  # the row has 15 tokens
    "edu_gpt-fused": lambda: CASES["gpt"].build(max_position_embeddings=9),
    "gpt2": gpt2,
}


def loss_and_gradients(model, batches):
    """The mean loss over all labels of the batches, and its gradient."""
    model.zero_grad()
    items = sum(len(row) - 1 for row in ROWS)
    loss = sum(model(**batch, use_cache=False, num_items_in_batch=items).loss for batch in batches)
    loss.backward()
    return loss.detach(), {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("name", MODELS)
def test_flattened_rows_equal_separate_rows(name):
    model = MODELS[name]()
    packed = flattened(return_flash_attn_kwargs=name != "gpt2")
    separate = [{"input_ids": torch.tensor([row]), "labels": torch.tensor([row])} for row in ROWS]
    expected = torch.cat([model(row["input_ids"]).logits for row in separate], dim=1)
    assert_close(model(**packed, use_cache=False).logits, expected, rtol=0, atol=1e-5)
    found, wanted = loss_and_gradients(model, [packed]), loss_and_gradients(model, separate)
    assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@FORMS
@pytest.mark.parametrize("padding", [0, 1, 9])
def test_neither_a_mask_nor_a_cache_hides_the_documents(form, padding):
    """Padding of 9 is enough for unpadding; positions of padding are zeros, as `generate` and collators set them."""
    model, packed = CASES["gpt"].build(form=form), flattened()
    expected = torch.cat([model(torch.tensor([row])).logits for row in ROWS], dim=1)
    row = slice(padding, padding + sum(LENGTHS))
    inputs = {name: torch.zeros(1, sum(LENGTHS) + 2 * padding, dtype=torch.long) for name in ("input_ids", "mask")}
    inputs["positions"] = torch.zeros_like(inputs["mask"])
    inputs["input_ids"][:, row], inputs["mask"][:, row] = packed["input_ids"], 1
    inputs["positions"][:, row] = packed["position_ids"]
    outputs = model(inputs["input_ids"], inputs["mask"], inputs["positions"])
    assert_close(outputs.logits[:, row], expected, rtol=0, atol=1e-5)
    assert outputs.past_key_values is None  # it would continue all documents at once


def test_positions_of_one_document_are_no_packing():
    model, ids = CASES["gpt"].build(), random_ids(2, 7)
    expected = model(ids)
    found = model(ids, position_ids=torch.arange(7)[None])
    assert_close(found.logits, expected.logits)
    assert found.past_key_values.get_seq_length() == 7
    padded = torch.cat([torch.zeros_like(ids[:, :2]), ids], dim=1)
    mask = (padded != 0).long()
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    assert_close(model(padded, mask, positions).logits[:, 2:], expected.logits)


def test_compiled_packing_is_the_same():
    model, packed = CASES["gpt"].build(), flattened()
    compiled = torch.compile(model, backend="aot_eager")
    assert_close(compiled(**packed, use_cache=False).logits, model(**packed).logits)


def test_boundaries_without_positions_raise_an_error():
    packed = flattened(return_flash_attn_kwargs=True)
    del packed["position_ids"]
    with pytest.raises(ValueError, match="edu_gpt without position_ids cannot keep documents in one row apart"):
        CASES["gpt"].build()(**packed)


@pytest.mark.parametrize("case", **by_name([case for case in ALL if not case.head.startswith("EduGPT")]))
def test_other_models_raise_an_error(case):
    model, inputs = case.build(), inputs_for(case)
    expected = logits_of(model(**inputs))
    positions = torch.arange(inputs["input_ids"].shape[-1]).expand_as(inputs["input_ids"]).clone()
    assert_close(logits_of(model(**inputs, position_ids=positions)), expected)
    message = f"{model.config.model_type} cannot keep documents in one row apart; give each its own row"
    with pytest.raises(ValueError, match=message):
        model(**inputs, cu_seq_lens_q=torch.tensor([0, 3, 5]))
    positions[..., 3:] -= 3
    with pytest.raises(ValueError, match=message):
        model(**inputs, position_ids=positions)


def test_trl_packing_trains_as_separate_rows(tmp_path):
    """TRL's own collator; the step's loss and gradient norm of packed rows are those of padded ones."""
    trl = pytest.importorskip("trl", minversion="1.16")
    from datasets import Dataset
    from transformers import PreTrainedTokenizerFast

    from hf_edu_models.data import train_tokenizer

    tokenizer = train_tokenizer(["a b c d e f g"] * 9, kind="word", vocab_size=VOCABULARY)
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    logs = {}
    for packing in (False, True):
        arguments = trl.SFTConfig(
            str(tmp_path / str(packing)),
            packing=packing,
            max_length=16,
            max_steps=1,
            per_device_train_batch_size=1 if packing else len(ROWS),
            logging_steps=1,
            report_to=[],
            use_cpu=True,
            save_strategy="no",
            gradient_checkpointing=False,
            disable_tqdm=True,
            bf16=False,
        )
        trainer = trl.SFTTrainer(
            CASES["gpt"].build(),
            arguments,
            train_dataset=Dataset.from_dict({"input_ids": ROWS}),
            processing_class=tokenizer,
        )
        trainer.train()
        logs[packing] = trainer.state.log_history[0]
    for name in ("loss", "grad_norm"):
        assert logs[True][name] == pytest.approx(logs[False][name], rel=1e-4), name
