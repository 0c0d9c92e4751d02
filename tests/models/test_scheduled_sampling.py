"""Scheduled sampling: what the decoder of each encoder-decoder reads in training."""

import pytest
import torch
from tiny import LENGTH, SOURCE, TRANSLATORS, by_name, random_ids
from torch.testing import assert_close

RATIO = 0.4


def pairs(batch: int = 3):
    labels = random_ids(batch, LENGTH, seed=2)
    labels[-1, 4:] = -100
    mask = torch.ones(batch, SOURCE, dtype=torch.long)
    mask[-1, -1] = 0
    return {"input_ids": random_ids(batch, SOURCE), "attention_mask": mask, "labels": labels}


def gradients(model, **options):
    model.zero_grad()
    loss = model(**pairs(), **options).loss
    loss.backward()
    return loss, [None if parameter.grad is None else parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize("case", **by_name(TRANSLATORS))
def test_probability_one_is_plain_training(case):
    model = case.build().train()
    plain, forced = gradients(model), gradients(model, teacher_forcing_ratio=1.0)
    assert_close(forced, plain, rtol=0, atol=0)
    torch.manual_seed(1)
    assert not torch.equal(gradients(model, teacher_forcing_ratio=RATIO)[0], plain[0])


@pytest.mark.parametrize("case", **by_name(TRANSLATORS))
def test_it_has_no_effect_in_evaluation(case):
    model = case.build()
    assert_close(model(**pairs(), teacher_forcing_ratio=0.0).loss, model(**pairs()).loss, rtol=0, atol=0)
    assert_close(model(**pairs(), teacher_forcing_ratio=0.0).logits, model(**pairs()).logits, rtol=0, atol=0)


@pytest.mark.parametrize("case", **by_name(TRANSLATORS))
def test_what_is_fed_is_the_reference_or_the_models_own_prediction(case):
    """Each position that differs holds the most likely token after what the model had read: what was fed before by a
    recurrent decoder, the reference in the first pass of the Transformer."""
    model, inputs = case.build().train(), pairs(40)
    reference = model.prepare_decoder_input_ids_from_labels(inputs["labels"])
    source = model.get_encoder()(inputs["input_ids"], inputs["attention_mask"])
    torch.manual_seed(0)
    fed = model.sample_decoder_inputs(reference, source, inputs["attention_mask"], RATIO)
    read = reference if case.attends else fed
    logits = model(
        attention_mask=inputs["attention_mask"], encoder_outputs=source, decoder_input_ids=read, skip_logits=False
    ).logits
    predicted = torch.cat([reference[:, :1], logits[:, :-1].argmax(-1)], dim=1)
    assert torch.equal(fed[:, 0], reference[:, 0])
    assert torch.equal(fed, torch.where(fed == reference, reference, predicted))
    differ = (predicted != reference)[:, 1:]
    share = (fed == reference)[:, 1:][differ].float().mean().item()
    assert abs(share - RATIO) < 0.15, "where they differ, the reference is kept with the probability asked for"


@pytest.mark.parametrize("case", **by_name(TRANSLATORS))
def test_the_loss_is_that_of_the_fed_tokens(case):
    """The choice has no gradient: the gradient is that of a decoder that reads these tokens."""
    model, inputs = case.build().train(), pairs()
    torch.manual_seed(0)
    loss, found = gradients(model, teacher_forcing_ratio=RATIO)
    torch.manual_seed(0)
    reference = model.prepare_decoder_input_ids_from_labels(inputs["labels"])
    with torch.no_grad():
        source = model.get_encoder()(inputs["input_ids"], inputs["attention_mask"])
        fed = model.sample_decoder_inputs(reference, source, inputs["attention_mask"], RATIO)
    expected, wanted = gradients(model, decoder_input_ids=fed)
    assert_close(loss, expected)
    assert_close(found, wanted)


@pytest.mark.parametrize("ratio", [-0.1, 1.5])
def test_a_wrong_probability_is_one_sentence(ratio):
    with pytest.raises(ValueError, match=f"teacher_forcing_ratio must be from 0 to 1, got {ratio}"):
        TRANSLATORS[0].build()(**pairs(), teacher_forcing_ratio=ratio)
