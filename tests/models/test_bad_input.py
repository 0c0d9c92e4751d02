"""Wrong input raises an error that names the value, what is allowed and what to do."""

import copy
import math
import warnings
from dataclasses import fields

import pytest
import torch
from tiny import ALL, CASES, TINY, TRANSLATORS, by_name, inputs_for, last_class, targets_for
from transformers import AutoConfig

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
@pytest.mark.parametrize("axis", [0, -1])
def test_an_empty_batch(case, axis):
    inputs = inputs_for(case)
    shape = list(inputs["input_ids"].shape)
    shape[axis] = 0
    inputs["input_ids"] = torch.zeros(shape, dtype=torch.long)
    with pytest.raises(
        ValueError, match=r"input_ids has shape \(\d+(, \d+)+\); give at least one sequence of one token"
    ):
        case.build()(**inputs)


@pytest.mark.parametrize("case", **by_name(ALL))
def test_a_row_without_a_token(case):
    inputs = inputs_for(case)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    inputs["attention_mask"][1] = 0
    with pytest.raises(ValueError, match=r"attention_mask is all zeros in row [14]; leave empty sequences out"):
        case.build()(**inputs)


@pytest.mark.parametrize("case", **by_name(ALL))
def test_input_ids_and_inputs_embeds_at_once_or_neither(case):
    model, inputs = case.build(), inputs_for(case)
    vectors = model.get_input_embeddings()(inputs["input_ids"])
    for wrong in ({"input_ids": None}, {"inputs_embeds": vectors}):
        with pytest.raises(ValueError, match="give either input_ids or inputs_embeds, and not both"):
            model(**(inputs | wrong))


@pytest.mark.parametrize("case", **by_name([case for case in ALL if case.task != "question_answering"]))
@pytest.mark.parametrize("training", [True, False])
def test_a_label_outside_the_classes(case, training):
    targets, last = targets_for(case), last_class(case)
    for wrong in (last + 1, -5):
        targets["labels"][1, ...] = wrong
        with pytest.raises(ValueError, match=rf"labels has {wrong}, but only 0 to {last} and -100 \(ignored\)"):
            case.build().train(training)(**inputs_for(case), **targets)


SHAPED = [case for case in ALL if case.task in ("token_classification", "masked_lm", "pretraining")]


@pytest.mark.parametrize("case", **by_name([case for case in SHAPED if "bert" in case.name]))
def test_labels_of_another_length(case):
    targets = targets_for(case)
    targets["labels"] = targets["labels"][:, :4]
    with pytest.raises(ValueError, match=r"labels has shape \(2, 4\), but \(2, 7\) is needed, one for each prediction"):
        case.build().train()(**inputs_for(case), **targets)


COUNTED = [case for case in ALL if "labels" in targets_for(case)]


@pytest.mark.parametrize("case", **by_name(COUNTED))
def test_a_batch_without_a_label_has_no_loss(case):
    """Trainer counts 0 labels in it."""
    targets = {name: torch.full_like(labels, -100) for name, labels in targets_for(case).items()}
    count = {"num_items_in_batch": torch.tensor(0)} if case.task != "pretraining" else {}
    assert case.build().train()(**inputs_for(case), **targets, **count).loss == 0


POSITIONED = [case for case in ALL if "max_position_embeddings" in case.settings]


@pytest.mark.parametrize("case", **by_name(POSITIONED))
def test_a_sequence_longer_than_the_position_embeddings(case):
    inputs = inputs_for(case)
    key = case.key
    inputs[key] = inputs[key].repeat_interleave(6, dim=-1)
    with pytest.raises(ValueError, match=r"the sequence has 42 tokens, but max_position_embeddings is 40; cut it"):
        case.build()(**inputs)


@pytest.mark.parametrize("wrong", [2, -1])
def test_a_token_type_outside_its_vocabulary(wrong):
    case = CASES["bert-ForMaskedLM"]
    types = torch.full((2, 7), 0)
    types[0, 3] = wrong
    with pytest.raises(ValueError, match=rf"token_type_ids has {wrong}, but type_vocab_size is 2; use 0 for the first"):
        case.build()(**inputs_for(case), token_type_ids=types)


def test_an_unknown_pooling_and_layer():
    model = CASES["bert-ForMaskedLM"].build().model
    with pytest.raises(ValueError, match="pooling 'sum' is not known; choose one of mean, max, first, last, cls"):
        model.encode(["a"], None, pooling="sum")
    with pytest.raises(ValueError, match="layer 3 is not there; choose -3 to 2"):
        model.encode(["a"], None, layer=3)


@pytest.mark.parametrize("case", **by_name(TRANSLATORS))
def test_a_decoder_without_a_start_token(case):
    model = case.build(decoder_start_token_id=None)
    with pytest.raises(ValueError, match=r"decoder has no start token: config\.decoder_start_token_id is None; set it"):
        model(input_ids=inputs_for(case)["input_ids"], **targets_for(case))
    with pytest.raises(ValueError, match="nothing to read; give decoder_input_ids, decoder_inputs_embeds or labels"):
        model(input_ids=inputs_for(case)["input_ids"])


def test_encoder_outputs_without_a_final_state():
    model = CASES["seq2seq"].build()
    with pytest.raises(ValueError, match=r"encoder_outputs is a tuple without final_state; give what get_encoder\(\)"):
        model(encoder_outputs=(torch.zeros(2, 5, 12),), decoder_input_ids=torch.ones(2, 1, dtype=torch.long))


def test_a_bidirectional_language_model():
    config = hf_edu_models.EduRecurrentConfig(**TINY["recurrent"], bidirectional=True)
    with pytest.raises(
        ValueError, match="bidirectional is True, but a language model must not read the tokens that it"
    ):
        hf_edu_models.EduRecurrentForCausalLM(config)


SENTENCES = (
    [
        ("EduRecurrentConfig", {"cell_type": "ltsm"}, "cell_type 'ltsm' is not known; choose one of rnn, gru, lstm"),
        ("EduSeq2SeqConfig", {"cell_type": "ltsm"}, "cell_type 'ltsm' is not known; choose one of rnn, gru, lstm"),
        (
            "EduBahdanauConfig",
            {"attention_score": "add"},
            "attention_score 'add' is not known; choose one of additive, dot, scaled_dot, general, cosine, projected",
        ),
        (
            "EduBahdanauConfig",
            {"attention_normalizer": "hardmax"},
            "attention_normalizer 'hardmax' is not known; choose one of softmax, sparsemax",
        ),
        ("EduBahdanauConfig", {"readout": "deep"}, "readout 'deep' is not known; choose one of maxout, linear"),
        (
            "EduRecurrentConfig",
            {"recurrent_implementation": "fast"},
            "recurrent_implementation 'fast' is not known; choose one of eager, fused",
        ),
        ("EduRecurrentConfig", {"hidden_size": 2**20}, "a matrix of 1048576 by 1048576 is above 100000000000 weights"),
        ("EduRecurrentConfig", {"attention_window": -1}, "attention_window must be 0 (none) or more, got -1"),
        (
            "EduRecurrentConfig",
            {"attention_window": 2, "bidirectional": True},
            "attention_window covers past states only; set it to 0 or bidirectional to False",
        ),
        (
            "EduRecurrentConfig",
            {"tie_word_embeddings": True},
            "tied embeddings need embedding_size 10 equal to hidden_size 12; set them equal or",
        ),
        (
            "EduTransformerConfig",
            {"head_aggregation": "sum"},
            "head_aggregation 'sum' is not known; choose one of project",
        ),
        (
            "EduTransformerConfig",
            {"position_embedding_type": "rotary"},
            "position_embedding_type 'rotary' is not known; choose one of sinusoidal, learned",
        ),
        ("EduBertConfig", {"position_init": "x"}, "position_init 'x' is not known; choose one of normal, sinusoidal"),
        ("EduTransformerConfig", {"label_smoothing": 1.0}, "label_smoothing must be at least 0 and below 1, got 1.0"),
        (
            "EduTransformerConfig",
            {"sinusoid_layout": "x"},
            "sinusoid_layout 'x' is not known; choose one of interleaved",
        ),
        (
            "EduTransformerConfig",
            {"hidden_size": 15},
            "hidden_size 15 is odd, but every sine has a cosine; choose an even one or position_embedding",
        ),
        ("EduFeedForwardConfig", {"tie_word_embeddings": True}, "tie_word_embeddings cannot be True on this rung"),
        ("EduSeq2SeqConfig", {"teacher_forcing_ratio": 1.5}, "teacher_forcing_ratio must be from 0 to 1, got 1.5"),
        (
            "EduBahdanauConfig",
            {"attention_score": "dot", "hidden_size": 13},
            "attention_score 'dot' compares states of hidden_size 13 with annotations of 2 x encoder_hidden_size = 12; "
            "choose an even hidden_size and encoder_hidden_size half of it, or attention_score 'general', "
            "'additive' or 'projected'",
        ),
    ]
    + [
        (config, {name: value}, sentence)
        for config in (rung.config.__name__ for rung in hf_edu_models.LADDER)
        for name, value, sentence in (
            ("dropout", -0.1, "dropout must be at least 0 and below 1, got -0.1"),
            ("dropout", 1.0, "dropout must be at least 0 and below 1, got 1.0"),
            ("hidden_size", 0, "hidden_size must be at least 1, got 0"),
            ("vocab_size", -3, "vocab_size must be at least 1, got -3"),
            ("problem_type", "regresion", "problem_type 'regresion' is not known; choose one of regression, single_"),
            ("num_labels", 0, "num_labels must be at least 1, got 0"),
            ("hidden_size", 10**9, "hidden_size must be at most 268435456, got 1000000000"),
        )
    ]
    + [
        (rung.config.__name__, {name: value}, sentence)
        for rung in hf_edu_models.LADDER
        if rung.tokenizer is not None
        for name, value, sentence in (
            ("pad_token_id", 29, "pad_token_id 29 is outside the vocabulary; choose 0 to 28"),
            ("bos_token_id", -1, "bos_token_id -1 is outside the vocabulary; choose 0 to 28, or None"),
            ("eos_token_id", [3, 99], "eos_token_id 99 is outside the vocabulary; choose 0 to 28, or None"),
        )
    ]
    + [
        (
            config,
            {"num_attention_heads": 5},
            "hidden_size 12 cannot be split into 5 equal heads; choose a multiple",
        )
        for config in ("EduTransformerConfig", "EduGPTConfig", "EduBertConfig")
    ]
    + [
        (rung.config.__name__, {name: value}, sentence)
        for rung in hf_edu_models.LADDER
        for name, value, sentence in (
            ("layer_norm_eps", -1e-5, "layer_norm_eps must be above 0, got -1e-05"),
            ("layer_norm_eps", math.nan, "layer_norm_eps must be finite, got nan"),
            ("initializer_range", -0.1, "initializer_range must be at least 0, got -0.1"),
            ("initializer_range", math.inf, "initializer_range must be finite, got inf"),
            ("forget_gate_bias", math.nan, "forget_gate_bias must be finite, got nan"),
            ("num_hidden_layers", 10**6, "num_hidden_layers must be at most 4096, got 1000000"),
            ("decoder_layers", 0, "decoder_layers must be at least 1, got 0"),
            ("decoder_start_token_id", 29, "decoder_start_token_id 29 is outside the vocabulary; choose 0 to 28"),
            ("head_diversity_weight", -1.0, "head_diversity_weight must be at least 0, got -1.0"),
            ("lm_loss_weight", -0.5, "lm_loss_weight must be at least 0, got -0.5"),
            ("nsp_weight", -1.0, "nsp_weight must be at least 0, got -1.0"),
            ("hidden_act", "gelo", "hidden_act 'gelo' is not known; choose one of gelu"),
        )
        if name in {field.name for field in fields(rung.config)}
    ]
)
DEFAULTS = {rung.config.__name__: TINY[rung.name] for rung in hf_edu_models.LADDER}


@pytest.mark.parametrize("name, changes, sentence", SENTENCES)
def test_an_invalid_configuration(name, changes, sentence):
    # transformers puts the sentence into an error of its own, whose type is not a ValueError.
    with pytest.raises(Exception) as error:
        getattr(hf_edu_models, name)(**(DEFAULTS[name] | changes))
    assert sentence in str(error.value) and "ValueError" in repr(error.value)


def test_a_forget_gate_that_forgets():
    with pytest.warns(UserWarning, match="forget_gate_bias -1.0 is negative: the cell state fades"):
        hf_edu_models.EduRecurrentConfig(**TINY["recurrent"], forget_gate_bias=-1.0)


@pytest.mark.parametrize("rung", hf_edu_models.LADDER, ids=[rung.name for rung in hf_edu_models.LADDER])
def test_a_checkpoint_with_a_token_outside_the_vocabulary_loads(rung, tmp_path):
    """What was saved is not lost: transformers itself warns of it."""
    config = rung.config(**rung.tiny)
    config.eos_token_id = 99
    config.save_pretrained(tmp_path)  # after a vocabulary was resized, say
    assert AutoConfig.from_pretrained(tmp_path).eos_token_id == 99


def test_a_field_of_the_wrong_type():
    with pytest.raises(Exception, match=r"(?s)hidden_size.*expected int, got str"):
        hf_edu_models.EduRecurrentConfig(hidden_size="12")


@pytest.mark.parametrize("rung", hf_edu_models.LADDER, ids=[rung.name for rung in hf_edu_models.LADDER])
def test_an_unknown_setting(rung, tmp_path):
    """It is kept, as transformers keeps it, but not without a word."""
    likely = "hidden_size" if hasattr(rung.config, "hidden_size") else "input_size"
    with pytest.warns(UserWarning, match=f"ignored: .*Config has no setting 'hiden_size'; did you mean {likely}"):
        config = rung.config(hiden_size=8)
    with pytest.warns(UserWarning, match="ignored: .*Config has no setting 'zzz'$"):
        rung.config(zzz=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config.save_pretrained(tmp_path)
        assert AutoConfig.from_pretrained(tmp_path).hiden_size == 8  # another program's, perhaps
        rung.config(**rung.tiny)
        known = {"num_labels": 3, "attn_implementation": "eager", "dtype": "float32", "output_attentions": True}
        rung.config(**known, num_beams=2, name_or_path="x", auto_map={}, torch_dtype="float32")
        rung.config(**config.to_dict())
        copy.deepcopy(config)


def test_a_setting_of_another_rung():
    with pytest.warns(UserWarning, match="EduBahdanauConfig has no setting 'teacher_forcing_ratio'") as record:
        hf_edu_models.EduBahdanauConfig(teacher_forcing_ratio=0.5)
    assert record[0].filename == __file__
