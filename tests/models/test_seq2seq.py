"""Sequence to sequence: the decoders of the two papers, reversal and scheduled sampling."""

import pytest
import torch
import torch.nn.functional as F
from test_recurrent import copy_weights
from tiny import CASES, LENGTH, SOURCE, TINY, random_ids
from torch import nn
from torch.testing import assert_close

from hf_edu_models import EduSeq2SeqConfig, EduSeq2SeqForConditionalGeneration

SUTSKEVER, CHO = CASES["seq2seq"], CASES["seq2seq-cho"]


def test_sutskever_is_two_lstms():
    model = SUTSKEVER.build()
    encoder, decoder = (nn.LSTM(10, 12, 2, batch_first=True) for _ in range(2))
    copy_weights(model.model.encoder.stack, encoder)
    copy_weights(model.model.decoder.stack, decoder)
    source, target = random_ids(2, SOURCE), random_ids(2, LENGTH, seed=2)
    _, state = encoder(model.model.encoder.embed_tokens(source.flip(1)))
    states, _ = decoder(model.model.decoder.embed_tokens(target), state)
    assert_close(model(input_ids=source, decoder_input_ids=target).logits, model.lm_head(states))


def test_cho_gives_the_context_to_every_step_and_to_the_output():
    model = CHO.build()
    encoder, decoder = nn.GRU(10, 12, batch_first=True), nn.GRUCell(10 + 12, 12)
    copy_weights(model.model.encoder.stack, encoder)
    cell, parts = model.model.decoder.stack.layers[0].forward_cell, model.model.decoder
    decoder.load_state_dict(
        {
            "weight_ih": cell.input_weight,
            "weight_hh": cell.state_weight,
            "bias_ih": cell.input_bias,
            "bias_hh": cell.state_bias,
        }
    )
    source, target = random_ids(2, SOURCE), random_ids(2, LENGTH, seed=2)
    context = encoder(model.model.encoder.embed_tokens(source))[0][:, -1]
    hidden = torch.tanh(parts.start_proj(context))
    logits = []
    for word in parts.embed_tokens(target).unbind(1):
        hidden = decoder(torch.cat([word, context], dim=-1), hidden)
        readout = parts.readout
        units = readout.state_proj(hidden) + readout.word_proj(word) + readout.context_proj(context)
        logits.append(model.lm_head(torch.maximum(units[:, 0::2], units[:, 1::2])))
    assert_close(model(input_ids=source, decoder_input_ids=target).logits, torch.stack(logits, dim=1))


@pytest.mark.parametrize("case", [SUTSKEVER, CHO], ids=["sutskever", "cho"])
def test_reversal_is_reading_the_reversed_source(case):
    forward, backward = case.build(reverse_source=False), case.build(reverse_source=True)
    source, target = random_ids(2, SOURCE), random_ids(2, LENGTH, seed=2)
    expected = forward(input_ids=source.flip(1), decoder_input_ids=target)
    found = backward(input_ids=source, decoder_input_ids=target)
    assert_close(found.logits, expected.logits)
    # Position j is about word j in both.
    assert_close(found.encoder_last_hidden_state, expected.encoder_last_hidden_state.flip(1))
    assert not torch.allclose(forward(input_ids=source, decoder_input_ids=target).logits, found.logits)


def test_sutskever_gets_the_source_through_the_state_alone():
    """With another state nothing of the source is left; Cho's decoder still reads its context."""
    for case, forgets in ((SUTSKEVER, True), (CHO, False)):
        model = case.build()
        one, other = ({"input_ids": random_ids(2, SOURCE, seed=seed)} for seed in (1, 2))
        prefix, rest = random_ids(2, 1, seed=3), random_ids(2, 3, seed=4)
        cache = model(**one, decoder_input_ids=prefix, use_cache=True).past_key_values
        logits = [
            model(**source, decoder_input_ids=rest, past_key_values=cache, use_cache=False).logits
            for source in (one, other)
        ]
        assert torch.allclose(*logits) == forgets


def own_words(model, source, length):
    """Greedy decoding without `generate`."""
    fed = torch.full((len(source), 1), model.config.decoder_start_token_id)
    while fed.shape[1] < length:
        logits = model(input_ids=source, decoder_input_ids=fed, skip_logits=False).logits
        fed = torch.cat([fed, logits[:, -1:].argmax(-1)], dim=1)
    return fed


@pytest.mark.parametrize("case", [SUTSKEVER, CHO], ids=["sutskever", "cho"])
def test_without_teacher_forcing_the_decoder_reads_its_predictions(case):
    model = case.build(teacher_forcing_ratio=0.0).train()
    source, labels = random_ids(2, SOURCE), random_ids(2, LENGTH, seed=2)
    labels[1, 4:] = -100
    outputs = model(input_ids=source, labels=labels, skip_logits=False)
    heard = own_words(model, source, LENGTH)
    logits = model.eval()(input_ids=source, decoder_input_ids=heard).logits
    counted = labels != -100
    assert_close(outputs.loss, F.cross_entropy(logits[counted], labels[counted]))
    outputs.loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_scheduled_sampling_in_training_only():
    model = SUTSKEVER.build(teacher_forcing_ratio=0.5)
    inputs = {"input_ids": random_ids(64, SOURCE), "labels": random_ids(64, LENGTH, seed=2)}
    reference = model.prepare_decoder_input_ids_from_labels(inputs["labels"])
    encoder_outputs = model.get_encoder()(inputs["input_ids"])
    model.train()
    fed = model.sample_decoder_inputs(reference, encoder_outputs, None, 0.5)
    assert torch.equal(fed[:, 0], reference[:, 0])
    kept = (fed == reference)[:, 1:].float().mean().item()
    assert 0.4 < kept < 0.62, "half are the reference's, and a few of the model's own agree"
    assert not torch.allclose(model(**inputs).loss, model(**inputs).loss)
    model.eval()
    assert_close(model(**inputs).loss, SUTSKEVER.build()(**inputs).loss)


def test_initialisation_is_the_papers():
    model = EduSeq2SeqForConditionalGeneration(EduSeq2SeqConfig(**TINY["seq2seq"] | {"initializer_range": 0.08}))
    for name, parameter in model.named_parameters():
        if "weight" in name:
            assert 0.07 < parameter.abs().max() <= 0.08, name
