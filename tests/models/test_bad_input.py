"""Wrong input gets one sentence: what was given, what is allowed, what to do."""

import pytest
import torch
from tiny import (
    ALL,
    BAHDANAU,
    FEEDFORWARD,
    GENERATORS,
    RECURRENT,
    SEQ2SEQ,
    TRANSLATORS,
    by_name,
    inputs_for,
    labels_for,
)

import hf_edu_models


@pytest.mark.parametrize("case", **by_name(ALL))
def test_an_id_outside_the_vocabulary(case):
    model = case.build()
    for key in inputs_for(case):
        for wrong in (29, -1):
            inputs = inputs_for(case)
            inputs[key][1, 2] = wrong
            with pytest.raises(ValueError, match=rf"{key} has the token id {wrong}, .* ids 0 to 28; check the token"):
                model(**inputs)


@pytest.mark.parametrize("case", **by_name(ALL))
@pytest.mark.parametrize("shape", [(0, 4), (2, 0)])
def test_an_empty_batch(case, shape):
    inputs = inputs_for(case) | {"input_ids": torch.zeros(shape, dtype=torch.long)}
    with pytest.raises(ValueError, match=r"input_ids has shape \(\d, \d\); give at least one sequence of one token"):
        case.build()(**inputs)


@pytest.mark.parametrize("case", **by_name(ALL))
def test_a_row_without_a_token(case):
    inputs = inputs_for(case)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    inputs["attention_mask"][1] = 0
    with pytest.raises(ValueError, match="attention_mask is all zeros in row 1; leave empty sequences out"):
        case.build()(**inputs)


@pytest.mark.parametrize("case", **by_name(ALL))
def test_ids_and_vectors_at_once_or_neither(case):
    model, inputs = case.build(), inputs_for(case)
    vectors = model.get_input_embeddings()(inputs["input_ids"])
    for wrong in ({"input_ids": None}, {"inputs_embeds": vectors}):
        with pytest.raises(ValueError, match="give either input_ids or inputs_embeds, and not both"):
            model(**(inputs | wrong))


@pytest.mark.parametrize("case", **by_name(ALL))
@pytest.mark.parametrize("training", [True, False])
def test_a_label_that_is_no_class(case, training):
    labels, last = labels_for(case), 28 if case in GENERATORS else 2
    for wrong in (last + 1, -5):
        labels[1, ...] = wrong
        with pytest.raises(ValueError, match=rf"labels has {wrong}, but only 0 to {last} and -100 \(ignored\)"):
            case.build().train(training)(**inputs_for(case), labels=labels)


@pytest.mark.parametrize("case", **by_name(TRANSLATORS))
def test_a_decoder_without_a_start(case):
    model = case.build(decoder_start_token_id=None)
    with pytest.raises(ValueError, match=r"decoder has no start token: config\.decoder_start_token_id is None; set it"):
        model(input_ids=inputs_for(case)["input_ids"], labels=labels_for(case))
    with pytest.raises(ValueError, match="nothing to read; give decoder_input_ids, decoder_inputs_embeds or labels"):
        model(input_ids=inputs_for(case)["input_ids"])


def test_another_encoders_output():
    model = TRANSLATORS[0].build()
    with pytest.raises(ValueError, match=r"encoder_outputs is a tuple without final_state; give what get_encoder\(\)"):
        model(encoder_outputs=(torch.zeros(2, 5, 12),), decoder_input_ids=torch.ones(2, 1, dtype=torch.long))


def test_a_language_model_that_reads_both_ways():
    config = hf_edu_models.EduRecurrentConfig(**RECURRENT, bidirectional=True)
    with pytest.raises(ValueError, match="bidirectional is True, but a language model may not read the words that it"):
        hf_edu_models.EduRecurrentForCausalLM(config)


SENTENCES = [
    ("EduRecurrentConfig", {"cell_type": "ltsm"}, "cell_type 'ltsm' is not known; choose one of rnn, gru, lstm"),
    ("EduSeq2SeqConfig", {"cell_type": "ltsm"}, "cell_type 'ltsm' is not known; choose one of rnn, gru, lstm"),
    (
        "EduBahdanauConfig",
        {"attention_score": "add"},
        "attention_score 'add' is not known; choose one of additive, dot, scaled_dot, general, cosine",
    ),
    ("EduBahdanauConfig", {"readout": "deep"}, "readout 'deep' is not known; choose one of maxout, linear"),
    (
        "EduRecurrentConfig",
        {"recurrent_implementation": "fast"},
        "recurrent_implementation 'fast' is not known; choose one of eager, fused",
    ),
    ("EduRecurrentConfig", {"attention_window": -1}, "attention_window must be 0 (none) or more, got -1"),
    (
        "EduRecurrentConfig",
        {"attention_window": 2, "bidirectional": True},
        "attention_window looks back at past states only; set it to 0 or bidirectional to False",
    ),
    (
        "EduRecurrentConfig",
        {"tie_word_embeddings": True},
        "tied embeddings need embedding_size 10 equal to hidden_size 12; set them equal or",
    ),
    ("EduFeedForwardConfig", {"tie_word_embeddings": True}, "tie_word_embeddings cannot be True on this rung"),
    ("EduSeq2SeqConfig", {"teacher_forcing_ratio": 1.5}, "teacher_forcing_ratio must be from 0 to 1, got 1.5"),
    (
        "EduBahdanauConfig",
        {"attention_score": "dot", "hidden_size": 13},
        "attention_score 'dot' compares states of hidden_size 13 with annotations of 2 x encoder_hidden_size = 12; "
        "choose an even hidden_size and encoder_hidden_size half of it, or attention_score 'general' or 'additive'",
    ),
] + [
    (config, {name: value}, sentence)
    for config in ("EduFeedForwardConfig", "EduRecurrentConfig", "EduSeq2SeqConfig", "EduBahdanauConfig")
    for name, value, sentence in (
        ("dropout", -0.1, "dropout must be at least 0 and below 1, got -0.1"),
        ("dropout", 1.0, "dropout must be at least 0 and below 1, got 1.0"),
        ("hidden_size", 0, "hidden_size must be at least 1, got 0"),
        ("vocab_size", -3, "vocab_size must be at least 1, got -3"),
        ("pad_token_id", 29, "pad_token_id 29 is outside the vocabulary; choose 0 to 28"),
    )
]
DEFAULTS = {
    "EduFeedForwardConfig": FEEDFORWARD,
    "EduRecurrentConfig": RECURRENT,
    "EduSeq2SeqConfig": SEQ2SEQ,
    "EduBahdanauConfig": BAHDANAU,
}


@pytest.mark.parametrize("name, changes, sentence", SENTENCES)
def test_a_configuration_that_cannot_be(name, changes, sentence):
    # transformers puts the sentence into an error of its own, whose type is not a ValueError.
    with pytest.raises(Exception, match="ValueError") as error:
        getattr(hf_edu_models, name)(**(DEFAULTS[name] | changes))
    assert sentence in str(error.value)


def test_a_field_of_the_wrong_type():
    with pytest.raises(Exception, match=r"(?s)hidden_size.*expected int, got str"):
        hf_edu_models.EduRecurrentConfig(hidden_size="12")
