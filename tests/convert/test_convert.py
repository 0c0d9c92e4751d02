"""Weights converted between our models and transformers' own: equal outputs, equal generation, no weight lost."""

import json

import pytest
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch.testing import assert_close
from transformers import AutoConfig, AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast

import hf_edu_models
from hf_edu_models.convert.families import FAMILIES
from hf_edu_models.hub import convert_checkpoint, from_transformers, to_transformers

VOCAB_SIZE, BATCH, LENGTH, SOURCE, CHOICES = 29, 3, 9, 6, 2
BERT = {"vocab_size": VOCAB_SIZE, "max_position_embeddings": 40, "hidden_act": "gelu", "num_labels": 2}
GPT = {
    "vocab_size": VOCAB_SIZE,
    "n_positions": 40,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "num_labels": 3,
}
MARIAN = {
    "vocab_size": VOCAB_SIZE,
    "max_position_embeddings": 40,
    "pad_token_id": 28,
    "decoder_start_token_id": 28,
    "forced_eos_token_id": 0,
}
SHAPES = {
    "bert": {
        "small": {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20},
        "minilm": {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 6, "intermediate_size": 96}
        | {"type_vocab_size": 3, "layer_norm_eps": 1e-5, "hidden_act": "relu", "tie_word_embeddings": False},
    },
    "gpt2": {
        "small": {"n_embd": 12, "n_layer": 2, "n_head": 3},
        "untied": {"n_embd": 20, "n_layer": 3, "n_head": 4, "n_inner": 28, "activation_function": "relu"}
        | {"tie_word_embeddings": False, "layer_norm_epsilon": 1e-3},
    },
    "openai-gpt": {
        "small": {"n_embd": 12, "n_layer": 2, "n_head": 3},
        "untied": {"n_embd": 20, "n_layer": 3, "n_head": 4, "afn": "silu", "tie_word_embeddings": False},
    },
    "marian": {
        "opus": {"scale_embedding": True, "activation_function": "swish"},
        "uneven": {"encoder_layers": 1, "decoder_layers": 3, "activation_function": "relu"}
        | {"share_encoder_decoder_embeddings": False},
        "untied": {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
        "untied-though-shared": {"tie_word_embeddings": False},
    },
}
MARIAN_SIZES = {"d_model": 12, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20}
MARIAN_SIZES |= {"encoder_attention_heads": 3, "decoder_attention_heads": 3}
COMMON = {"bert": BERT, "gpt2": GPT, "openai-gpt": GPT, "marian": MARIAN | MARIAN_SIZES}
CASES = [
    (family.hf_type, name, shape) for family in FAMILIES for name in family.classes for shape in SHAPES[family.hf_type]
]
every_class = pytest.mark.parametrize(
    "model_type, name, shape", CASES, ids=[f"{name}-{shape}" for _, name, shape in CASES]
)
EDU_CLASS = {hf: edu for family in FAMILIES for hf, edu in family.classes.items()}
MODEL_TYPE = {name: family.hf_type for family in FAMILIES for name in family.classes}
GENERATORS = ("GPT2LMHeadModel", "OpenAIGPTLMHeadModel", "MarianMTModel")


def build(model_type, name, shape=None, **changes):
    """One of transformers' models with random weights: initialised to zero or one, they would hide a mistake."""
    head = getattr(transformers, name)
    shape = shape or next(iter(SHAPES[model_type]))
    config = head.config_class(**(COMMON[model_type] | SHAPES[model_type][shape] | changes))
    return randomise(head(config).eval())


def randomise(model, spread=0.4):
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:  # Marian's sinusoids do not
                parameter.normal_(std=spread)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_()
    return model


def padding(padded, length):
    """An attention mask with padding on the right: `much` is unpadded by our models, `little` is not."""
    mask = torch.ones(BATCH, length, dtype=torch.long)
    for row, count in enumerate({"much": (0, 4, 2), "little": (0, 1, 0)}[padded]):
        mask[row, length - count :] = 0
    return mask


def inputs_for(model, padded="much"):
    """A padded batch, and the mask of real tokens in the output."""
    input_ids = torch.randint(3, VOCAB_SIZE - 1, (BATCH, LENGTH), generator=torch.manual_seed(2))
    if model.config.is_encoder_decoder:
        mask = padding(padded, SOURCE)
        inputs = {"input_ids": input_ids[:, :SOURCE], "attention_mask": mask, "decoder_input_ids": input_ids}
        return inputs, torch.ones(BATCH, LENGTH, dtype=torch.bool)
    mask = padding(padded, LENGTH)
    pad = model.config.pad_token_id
    inputs = {"input_ids": input_ids.masked_fill(mask == 0, pad), "attention_mask": mask}
    if model.config.model_type == "bert":
        inputs["token_type_ids"] = (torch.arange(LENGTH) > 3).long().expand(BATCH, -1)
    if "MultipleChoice" in type(model).__name__:
        inputs = {key: torch.stack([value, value.flip(0)], dim=1) for key, value in inputs.items()}
    return inputs, mask.bool()


OUTPUTS = ("logits", "prediction_logits", "seq_relationship_logits", "start_logits", "end_logits")
OUTPUTS += ("last_hidden_state", "pooler_output", "encoder_last_hidden_state")


def assert_same_outputs(model, other, padded="much", **kwargs):
    inputs, mask = inputs_for(model, padded)
    with torch.no_grad():
        expected, found = model(**inputs, **kwargs), other(**inputs, **kwargs)
    names = [name for name in OUTPUTS if expected.get(name) is not None]
    assert names and names == [name for name in OUTPUTS if found.get(name) is not None]
    for name in names:
        real = inputs["attention_mask"].bool() if name.startswith("encoder") else mask
        at = real if expected[name].shape[:2] == real.shape else slice(None)
        assert_close(found[name][at], expected[name][at], rtol=0, atol=1e-4)
    return expected, found


@every_class
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("padded", ["much", "little"])
def test_outputs_are_equal(model_type, name, shape, implementation, padded):
    model = build(model_type, name, shape)
    edu = from_transformers(model)
    edu.set_attn_implementation(implementation)
    if model._supports_sdpa:
        model.set_attn_implementation(implementation)
    assert type(edu).__name__ == EDU_CLASS[name]
    assert_same_outputs(model, edu, padded)
    assert_same_outputs(model, to_transformers(edu), padded)


@every_class
def test_round_trip_from_transformers_is_exact(model_type, name, shape):
    model = build(model_type, name, shape)
    edu = from_transformers(model)
    back = to_transformers(edu)
    again = from_transformers(back)
    assert type(back) is type(model)
    # Untied, these two weights exist in transformers' models, but their forward does not use them.
    unused = () if model.config.tie_word_embeddings else ("cls.predictions.bias", "shared.weight")
    for before, after in ((model, back), (edu, again)):
        other = after.state_dict()
        for key, weight in before.state_dict().items():
            assert key.endswith(unused) or torch.equal(weight, other.pop(key)), key
        assert not [key for key in other if not key.endswith(unused)]
    assert edu.config.to_dict() == again.config.to_dict()


@every_class
def test_round_trip_from_our_model_is_exact(model_type, name, shape):
    """Weights and config fields, also those that only matter in training, such as dropout and label names."""
    edu = from_transformers(build(model_type, name, shape))
    changes = {"dropout": 0.25, "attention_dropout": 0.35}
    changes |= {"bert": {"classifier_dropout": 0.15}, "marian": {"activation_dropout": 0.45}}.get(model_type, {})
    if model_type != "openai-gpt":  # it has no cache
        changes["use_cache"] = False
    if "SequenceClassification" in name:
        changes |= {"id2label": {0: "bad", 1: "good", 2: "ugly"}, "problem_type": "multi_label_classification"}
        changes |= {"label2id": {"bad": 0, "good": 1, "ugly": 2}}
    config = type(edu.config)(**(edu.config.to_dict() | changes))
    edu = randomise(type(edu)(config), spread=0.2)
    back = to_transformers(edu)
    again = from_transformers(back)
    assert again.config.to_dict() == edu.config.to_dict() | {"architectures": again.config.architectures}
    assert all(torch.equal(weight, again.state_dict()[key]) for key, weight in edu.state_dict().items())
    if "SequenceClassification" in name:
        assert back.config.id2label[2] == "ugly" and back.config.problem_type == "multi_label_classification"


@pytest.mark.parametrize("name", ["BertForMaskedLM", "GPT2LMHeadModel", "OpenAIGPTLMHeadModel", "MarianMTModel"])
def test_hidden_states_and_attentions_are_equal(name):
    model_type = MODEL_TYPE[name]
    model = build(model_type, name)
    if model._supports_sdpa:
        model.set_attn_implementation("eager")
    expected, found = assert_same_outputs(
        model, from_transformers(model), output_hidden_states=True, output_attentions=True
    )
    inputs, mask = inputs_for(model)
    keys = [key for key in expected if key.endswith(("hidden_states", "attentions")) and expected[key]]
    assert len(keys) == (5 if model_type == "marian" else 2)
    for key in keys:
        queries = inputs["attention_mask"].bool() if key.startswith("encoder") else mask
        assert len(expected[key]) == len(found[key]) > 1
        for hf, edu in zip(expected[key], found[key], strict=True):
            if key.endswith("attentions"):
                hf, edu = hf.transpose(1, 2), edu.transpose(1, 2)
            assert_close(edu[queries], hf[queries], rtol=0, atol=1e-4)


def with_varied_generation(model):
    """Scale the weights so that the next token depends on the input, not on the biases: else one token repeats."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed" in name or "wte" in name or "wpe" in name or "shared" in name:
                parameter.mul_(2.5 if parameter.requires_grad else 1)  # sinusoids are not trainable
            elif name.endswith("bias"):
                parameter.mul_(0.2)
            elif parameter.ndim == 1:
                parameter.add_(2)
    return model


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("settings", [{}, {"num_beams": 3, "num_return_sequences": 2}], ids=["greedy", "beam"])
@pytest.mark.parametrize("use_cache", [True, False])
def test_generated_tokens_are_equal(name, settings, use_cache):
    model_type = MODEL_TYPE[name]
    model = with_varied_generation(
        build(model_type, name, "opus" if model_type == "marian" else "untied", eos_token_id=2)
    )
    edu = from_transformers(model)
    inputs, _ = inputs_for(model)
    inputs.pop("decoder_input_ids", None)
    if model_type != "marian":  # decoder-only models are padded on the left
        inputs = {key: value.flip(1) for key, value in inputs.items()}
    kwargs = settings | {"max_new_tokens": 12, "do_sample": False}
    expected = model.generate(**inputs, **kwargs, use_cache=use_cache and model_type != "openai-gpt")
    found = edu.generate(**inputs, **kwargs, use_cache=use_cache)
    assert len(set(expected[:, -12:].flatten().tolist())) > 6  # not one token repeated
    assert not torch.equal(expected[0, -12:], expected[-1, -12:])
    assert torch.equal(found, expected)


def test_generation_config_is_converted():
    model = build("marian", "MarianMTModel")
    model.generation_config = GenerationConfig(
        bad_words_ids=[[28]],
        num_beams=4,
        max_length=17,
        forced_eos_token_id=3,
        eos_token_id=0,
        pad_token_id=28,
        decoder_start_token_id=28,
    )
    edu = from_transformers(model)
    assert edu.generation_config.to_diff_dict() == model.generation_config.to_diff_dict()
    inputs, _ = inputs_for(model)
    del inputs["decoder_input_ids"]
    expected = model.generate(**inputs)
    assert expected.shape[1] == 17 and torch.equal(edu.generate(**inputs), expected)
    back = to_transformers(edu)
    assert back.config.forced_eos_token_id == 3
    assert torch.equal(back.generate(**inputs), expected)


def test_config_fields_of_marian():
    edu = from_transformers(build("marian", "MarianMTModel", "opus")).config
    assert (edu.sinusoid_layout, edu.hidden_act, edu.decoder_start_token_id) == ("halves", "swish", 28)
    assert edu.attention_bias and edu.logits_bias and edu.share_embeddings and edu.tie_word_embeddings
    assert edu.label_smoothing == 0 and edu.scale_embeddings and not edu.norm_first
    without_bias = build("marian", "MarianMTModel")
    without_bias.final_logits_bias.zero_()
    assert not from_transformers(without_bias).config.logits_bias


def test_base_model_without_pooler(tmp_path):
    model = build("bert", "BertModel")
    model = randomise(transformers.BertModel(model.config, add_pooling_layer=False).eval())
    model.save_pretrained(tmp_path)
    for number, edu in enumerate((from_transformers(model), from_transformers(tmp_path))):
        assert edu.pooler is None
        assert_same_outputs(model, edu)
        edu.save_pretrained(tmp_path / str(number))
        for back in (to_transformers(edu), to_transformers(tmp_path / str(number))):
            assert back.pooler is None
            assert_same_outputs(model, back)


def test_converted_weights_are_copies():
    model = build("bert", "BertForMaskedLM")
    edu = from_transformers(model)
    before = {key: weight.clone() for key, weight in edu.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert all(torch.equal(weight, before[key]) for key, weight in edu.state_dict().items())


def test_dtype_and_random_state_are_kept():
    model = build("gpt2", "GPT2LMHeadModel").to(torch.bfloat16)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    edu = from_transformers(model)
    assert torch.equal(torch.rand(1), expected)
    assert edu.dtype == torch.bfloat16 and not edu.training
    assert torch.equal(to_transformers(edu).lm_head.weight, model.lm_head.weight)


HF_ONLY = [
    ("bert", "BertModel", {"is_decoder": True}, "is_decoder True"),
    ("bert", "BertModel", {"is_decoder": True, "add_cross_attention": True}, "is_decoder True"),
    ("bert", "BertModel", {"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key'"),
    ("bert", "BertForQuestionAnswering", {"num_labels": 3}, "num_labels 3"),
    ("gpt2", "GPT2Model", {"add_cross_attention": True}, "add_cross_attention True"),
    ("gpt2", "GPT2Model", {"scale_attn_weights": False}, "scale_attn_weights False"),
    ("gpt2", "GPT2Model", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx True"),
    ("gpt2", "GPT2Model", {"reorder_and_upcast_attn": True}, "reorder_and_upcast_attn True"),
    (
        "marian",
        "MarianModel",
        {"decoder_attention_heads": 4},
        "encoder_attention_heads 3 and decoder_attention_heads 4",
    ),
    ("marian", "MarianModel", {"decoder_ffn_dim": 21}, "encoder_ffn_dim 20 and decoder_ffn_dim 21"),
    ("marian", "MarianMTModel", {"decoder_vocab_size": 31}, "vocab_size 29 and decoder_vocab_size 31"),
]


@pytest.mark.parametrize("model_type, name, changes, message", HF_ONLY, ids=[case[3] for case in HF_ONLY])
def test_unsupported_hf_field_values_raise(model_type, name, changes, message):
    if "decoder_vocab_size" in changes:
        changes |= {"share_encoder_decoder_embeddings": False}
    with pytest.raises(ValueError, match=f"^{name} has {message}, but"):
        from_transformers(build(model_type, name, **changes))


EDU_ONLY = [
    ("bert", "BertModel", {"norm_first": True}, "norm_first True"),
    ("bert", "BertForQuestionAnswering", {"num_labels": 3}, "num_labels 3"),
    ("openai-gpt", "OpenAIGPTModel", {"intermediate_size": 20}, "intermediate_size 20, but in openai-gpt .* 48"),
    ("openai-gpt", "OpenAIGPTModel", {"hidden_act": "gelu"}, "hidden_act 'gelu'"),
    ("marian", "MarianModel", {"sinusoid_layout": "interleaved"}, "sinusoid_layout 'interleaved'"),
    ("marian", "MarianModel", {"position_embedding_type": "learned"}, "position_embedding_type 'learned'"),
    ("marian", "MarianModel", {"attention_bias": False}, "attention_bias False"),
    ("marian", "MarianModel", {"norm_first": True}, "norm_first True"),
    *(
        (model_type, name, {"head_aggregation": "mean"}, "head_aggregation 'mean'")
        for model_type, name in (("bert", "BertModel"), ("gpt2", "GPT2Model"), ("marian", "MarianModel"))
    ),
    ("marian", "MarianModel", {"layer_norm_eps": 1e-6}, "layer_norm_eps 1e-06"),
    ("marian", "MarianModel", {"tie_word_embeddings": False}, "tie_word_embeddings False"),
]


@pytest.mark.parametrize("model_type, name, changes, message", EDU_ONLY, ids=[case[3] for case in EDU_ONLY])
def test_unsupported_edu_field_values_raise(model_type, name, changes, message):
    edu = from_transformers(build(model_type, name))
    edu = type(edu)(type(edu.config)(**(edu.config.to_dict() | changes)))
    with pytest.raises(ValueError, match=f"^{type(edu).__name__} has {message}"):
        to_transformers(edu)


def test_differences_in_training_only_fields_warn(caplog):
    dropped = build("gpt2", "GPT2Model", embd_pdrop=0.3)
    assert from_transformers(dropped).config.dropout == dropped.config.resid_pdrop
    from_transformers(build("marian", "MarianModel", encoder_layerdrop=0.2))
    edu = from_transformers(build("marian", "MarianModel"))
    edu.config.label_smoothing = 0.1
    to_transformers(edu)
    for message in ("embd_pdrop 0.3", "encoder_layerdrop 0.2", "label_smoothing 0.1"):
        assert message in caplog.text


def test_unknown_models_raise():
    with pytest.raises(ValueError, match="model_type 'edu_bert' cannot be converted; these can: bert, gpt2"):
        from_transformers(from_transformers(build("bert", "BertModel")))
    with pytest.raises(ValueError, match="model_type 'bert' cannot be converted; these can: edu_bert, edu_gpt"):
        to_transformers(build("bert", "BertModel"))
    with pytest.raises(ValueError, match=r"GPT2DoubleHeadsModel has no counterpart; .* GPT2LMHeadModel"):
        from_transformers(build("gpt2", "GPT2DoubleHeadsModel"))
    with pytest.raises(ValueError, match="dtype is for loading, but a model was given"):
        from_transformers(build("bert", "BertModel"), dtype=torch.float16)
    with pytest.raises(FileNotFoundError, match=r"no/such/folder does not exist"):
        from_transformers("./no/such/folder")


def test_weight_without_counterpart_raises_with_its_name():
    model = build("bert", "BertModel")
    model.encoder.layer[1].adapter = torch.nn.Linear(3, 3)
    message = "BertModel cannot become EduBertModel: it would drop encoder.layer.1.adapter.bias, encoder.layer.1.ada"
    with pytest.raises(ValueError, match=message):
        from_transformers(model)
    edu = from_transformers(build("gpt2", "GPT2Model"))
    edu.extra = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(ValueError, match=r"EduGPTModel cannot become GPT2Model: it would drop extra$"):
        to_transformers(edu)


def test_missing_weight_raises_with_its_name():
    model = build("bert", "BertForSequenceClassification")
    model.bert.pooler = None
    with pytest.raises(ValueError, match=r"it would randomly initialise model.pooler.bias, model.pooler.weight$"):
        from_transformers(model)
    edu = from_transformers(build("gpt2", "GPT2Model"))
    edu.layers[0].self_attention.qkv_proj.bias = None
    with pytest.raises(ValueError, match=r"it would randomly initialise h.0.attn.c_attn.bias$"):
        to_transformers(edu)
    edu = from_transformers(build("gpt2", "GPT2Model"))
    edu.embed_positions = torch.nn.Embedding(41, 12)
    with pytest.raises(ValueError, match=r"it would randomly initialise wpe.weight$"):
        to_transformers(edu)


def test_learned_position_embeddings_are_not_dropped():
    model = build("marian", "MarianModel")
    with torch.no_grad():
        model.decoder.embed_positions.weight[3, 5] += 0.01
    with pytest.raises(ValueError, match=r"it would drop decoder.embed_positions.weight$"):
        from_transformers(model)


def test_tied_weights_that_differ_raise():
    model = build("gpt2", "GPT2LMHeadModel")
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight + 1)
    with pytest.raises(ValueError, match=r"lm_head.weight differs from transformer.wte.weight"):
        from_transformers(model)


def save_with_tokenizer(model, folder):
    vocab = {token: index for index, token in enumerate(["[PAD]", "[UNK]", *"abcdefghijklmnopqrstuvwxyz"])}
    backend = Tokenizer(WordLevel(vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", pad_token="[PAD]")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer


@pytest.mark.parametrize("name", ["BertForPreTraining", "BertForMultipleChoice", *GENERATORS])
def test_checkpoint_round_trip(name, tmp_path):
    model_type = MODEL_TYPE[name]
    model = build(model_type, name)
    if name in GENERATORS:
        model.generation_config.max_length = 13
        model.generation_config.bad_words_ids = [[5]]
    tokenizer = save_with_tokenizer(model, tmp_path / "hf")
    to_edu = convert_checkpoint(str(tmp_path / "hf"), tmp_path / "deep" / "edu")
    assert (to_edu.source_class, to_edu.destination_class) == (name, EDU_CLASS[name])
    assert to_edu.parameters > 1000 and to_edu.has_tokenizer
    back = convert_checkpoint(tmp_path / "deep" / "edu", tmp_path / "back")
    assert (back.source_class, back.destination_class) == (EDU_CLASS[name], name)
    for folder, head in ((tmp_path / "deep/edu", hf_edu_models), (tmp_path / "back", transformers)):
        loaded = getattr(head, back.source_class if head is hf_edu_models else name).from_pretrained(folder)
        assert_same_outputs(model, loaded)
        assert AutoTokenizer.from_pretrained(folder)("a z b")["input_ids"] == tokenizer("a z b")["input_ids"]
        assert AutoConfig.from_pretrained(folder).architectures == [type(loaded).__name__]
        if name in GENERATORS:
            assert (loaded.generation_config.max_length, loaded.generation_config.bad_words_ids) == (13, [[5]])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "deep", "hf"]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["edu"]


def test_tokenizer_class_is_added_to_the_tokenizer_config(tmp_path):
    """Old checkpoints leave it to the `model_type`, which the conversion changes."""
    build("bert", "BertModel").save_pretrained(tmp_path / "hf")
    (tmp_path / "hf/vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b"]))
    (tmp_path / "hf/tokenizer_config.json").write_text('{"do_lower_case": true}')
    expected = AutoTokenizer.from_pretrained(tmp_path / "hf")("AB a")
    assert convert_checkpoint(str(tmp_path / "hf"), tmp_path / "edu").has_tokenizer
    assert (
        AutoTokenizer.from_pretrained(tmp_path / "edu")("AB a")["input_ids"] == expected["input_ids"] == [2, 5, 6, 5, 3]
    )
    assert json.loads((tmp_path / "edu/tokenizer_config.json").read_text())["do_lower_case"]


def test_existing_folder_is_not_overwritten(tmp_path):
    build("gpt2", "GPT2Model").save_pretrained(tmp_path / "hf")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").write_text("mine")
    for path in (tmp_path / "full", tmp_path / "full/notes.txt"):
        with pytest.raises(ValueError, match="exists and is not empty; choose another folder"):
            convert_checkpoint(str(tmp_path / "hf"), path)
    assert (tmp_path / "full/notes.txt").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    assert not convert_checkpoint(str(tmp_path / "hf"), tmp_path / "empty").has_tokenizer
    assert (tmp_path / "empty/model.safetensors").exists()


def test_failed_conversion_leaves_no_files(tmp_path, monkeypatch):
    build("gpt2", "GPT2Model").save_pretrained(tmp_path / "hf")
    monkeypatch.setattr(hf_edu_models.EduGPTModel, "save_pretrained", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        convert_checkpoint(str(tmp_path / "hf"), tmp_path / "edu")
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


def rename_architecture(folder, name):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": name and [name]}))


def test_class_is_chosen_by_the_weights_in_the_checkpoint(tmp_path):
    """The published BERT names the class for MLM in `architectures`, and has the weights of the NSP head as well."""
    model = build("bert", "BertForPreTraining")
    model.save_pretrained(tmp_path)
    for name in ("BertForMaskedLM", "BertModel", None):
        rename_architecture(tmp_path, name)
        edu = from_transformers(tmp_path)
        assert type(edu) is hf_edu_models.EduBertForPreTraining
        assert_same_outputs(model, edu)
    model = build("marian", "MarianMTModel")
    model.save_pretrained(tmp_path / "marian")
    rename_architecture(tmp_path / "marian", "MarianModel")  # which has no final_logits_bias
    assert_same_outputs(model, from_transformers(tmp_path / "marian"))


def test_old_checkpoint_formats_load(tmp_path):
    """As published: without a prefix, with causal masks among the weights, with `gamma` and `beta` in layer norms."""
    gpt, bert = build("gpt2", "GPT2LMHeadModel"), build("bert", "BertForPreTraining")
    weights = {key.removeprefix("transformer."): weight for key, weight in gpt.state_dict().items() if "lm_" not in key}
    weights |= {f"h.{n}.attn.{name}": torch.ones(1, 1, 40, 40) for n in range(2) for name in ("bias", "masked_bias")}
    old = {"embeddings.position_ids": torch.arange(40)[None], "cls.predictions.bias": bert.cls.predictions.bias}
    old |= {key: weight for key, weight in bert.state_dict().items() if "cls.predictions.decoder" not in key}
    for before, after in (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")):
        old = {key.replace(before, after): weight.detach().clone() for key, weight in old.items()}
    for model, state in ((gpt, weights), (bert, old)):
        folder = tmp_path / type(model).__name__
        model.save_pretrained(folder)
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        assert_same_outputs(model, from_transformers(folder))


def test_generation_fields_of_an_old_config_are_converted(tmp_path):
    """The first translation models have them in `config.json`."""
    build("marian", "MarianMTModel").save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    config = json.loads((tmp_path / "config.json").read_text())
    old = {"num_beams": 4, "max_length": 21, "bad_words_ids": [[28]], "forced_eos_token_id": 0}
    (tmp_path / "config.json").write_text(json.dumps(config | old))
    found = from_transformers(tmp_path).generation_config
    assert {name: getattr(found, name) for name in old} == old


def test_checkpoint_with_missing_weights_raises(tmp_path):
    build("bert", "BertModel").save_pretrained(tmp_path)
    rename_architecture(tmp_path, "BertForTokenClassification")
    message = r"drop pooler.dense.bias, pooler.dense.weight and randomly initialise classifier.bias, classifier.weight$"
    with pytest.raises(ValueError, match=message):
        from_transformers(tmp_path)
    rename_architecture(tmp_path, "BertLMHeadModel")
    with pytest.raises(ValueError, match="BertLMHeadModel has no counterpart"):
        from_transformers(tmp_path)


def test_loading_arguments_are_passed_on(tmp_path):
    build("marian", "MarianMTModel").save_pretrained(tmp_path)
    edu = from_transformers(tmp_path, dtype=torch.bfloat16, attn_implementation="eager")
    assert edu.dtype == torch.bfloat16 and edu.config._attn_implementation == "eager"
    assert from_transformers(str(tmp_path)).config._attn_implementation == "sdpa"
