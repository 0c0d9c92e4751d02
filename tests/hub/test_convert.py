"""Our models and transformers' own, with one another's weights: the same numbers, the same words, nothing lost."""

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
from hf_edu_models.hub import convert_checkpoint, from_transformers, to_transformers
from hf_edu_models.hub.families import FAMILIES

WORDS, BATCH, LENGTH, SOURCE, CHOICES = 29, 3, 9, 6, 2
BERT = {"vocab_size": WORDS, "max_position_embeddings": 40, "hidden_act": "gelu", "num_labels": 2}
GPT = {"vocab_size": WORDS, "n_positions": 40, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "num_labels": 3}
MARIAN = {
    "vocab_size": WORDS,
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
        "untied-said-shared": {"tie_word_embeddings": False},
    },
}
MARIAN_SIZES = {"d_model": 12, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20}
MARIAN_SIZES |= {"encoder_attention_heads": 3, "decoder_attention_heads": 3}
COMMON = {"bert": BERT, "gpt2": GPT, "openai-gpt": GPT, "marian": MARIAN | MARIAN_SIZES}
CASES = [
    (family.theirs, name, shape) for family in FAMILIES for name in family.classes for shape in SHAPES[family.theirs]
]
everyone = pytest.mark.parametrize("kind, name, shape", CASES, ids=[f"{name}-{shape}" for _, name, shape in CASES])
OURS = {theirs: ours for family in FAMILIES for theirs, ours in family.classes.items()}
KINDS = {name: family.theirs for family in FAMILIES for name in family.classes}
GENERATORS = ("GPT2LMHeadModel", "OpenAIGPTLMHeadModel", "MarianMTModel")


def build(kind, name, shape=None, **changes):
    """One of transformers' models, with no weight at zero or one, where a mistake could hide."""
    head = getattr(transformers, name)
    shape = shape or next(iter(SHAPES[kind]))
    config = head.config_class(**(COMMON[kind] | SHAPES[kind][shape] | changes))
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
    """A mask with much padding on the right, which is packed away, or so little that it is not."""
    mask = torch.ones(BATCH, length, dtype=torch.long)
    for row, count in enumerate({"much": (0, 4, 2), "little": (0, 1, 0)}[padded]):
        mask[row, length - count :] = 0
    return mask


def inputs_for(model, padded="much"):
    """A padded batch, and where in the output the real tokens are."""
    words = torch.randint(3, WORDS - 1, (BATCH, LENGTH), generator=torch.manual_seed(2))
    if model.config.is_encoder_decoder:
        mask = padding(padded, SOURCE)
        inputs = {"input_ids": words[:, :SOURCE], "attention_mask": mask, "decoder_input_ids": words}
        return inputs, torch.ones(BATCH, LENGTH, dtype=torch.bool)
    mask = padding(padded, LENGTH)
    pad = model.config.pad_token_id
    inputs = {"input_ids": words.masked_fill(mask == 0, pad), "attention_mask": mask}
    if model.config.model_type == "bert":
        inputs["token_type_ids"] = (torch.arange(LENGTH) > 3).long().expand(BATCH, -1)
    if "MultipleChoice" in type(model).__name__:
        inputs = {key: torch.stack([value, value.flip(0)], dim=1) for key, value in inputs.items()}
    return inputs, mask.bool()


SHOWN = ("logits", "prediction_logits", "seq_relationship_logits", "start_logits", "end_logits")
SHOWN += ("last_hidden_state", "pooler_output", "encoder_last_hidden_state")


def assert_same_outputs(model, other, padded="much", **asked):
    inputs, keep = inputs_for(model, padded)
    with torch.no_grad():
        expected, found = model(**inputs, **asked), other(**inputs, **asked)
    names = [name for name in SHOWN if expected.get(name) is not None]
    assert names and names == [name for name in SHOWN if found.get(name) is not None]
    for name in names:
        real = inputs["attention_mask"].bool() if name.startswith("encoder") else keep
        at = real if expected[name].shape[:2] == real.shape else slice(None)
        assert_close(found[name][at], expected[name][at], rtol=0, atol=1e-4)
    return expected, found


@everyone
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("padded", ["much", "little"])
def test_outputs_are_equal(kind, name, shape, implementation, padded):
    model = build(kind, name, shape)
    ours = from_transformers(model)
    ours.set_attn_implementation(implementation)
    if model._supports_sdpa:
        model.set_attn_implementation(implementation)
    assert type(ours).__name__ == OURS[name]
    assert_same_outputs(model, ours, padded)
    assert_same_outputs(model, to_transformers(ours), padded)


@everyone
def test_there_and_back_nothing_changes(kind, name, shape):
    model = build(kind, name, shape)
    ours = from_transformers(model)
    back = to_transformers(ours)
    again = from_transformers(back)
    assert type(back) is type(model)
    # Without ties, these two are in transformers' models and nothing reads them.
    never_read = () if model.config.tie_word_embeddings else ("cls.predictions.bias", "shared.weight")
    for before, after in ((model, back), (ours, again)):
        other = after.state_dict()
        for key, weight in before.state_dict().items():
            assert key.endswith(never_read) or torch.equal(weight, other.pop(key)), key
        assert not [key for key in other if not key.endswith(never_read)]
    assert ours.config.to_dict() == again.config.to_dict()


@everyone
def test_our_own_weights_come_back(kind, name, shape):
    """Starting from a model of ours, trained as we would, dropout and labels set."""
    ours = from_transformers(build(kind, name, shape))
    changes = {"dropout": 0.25, "attention_dropout": 0.35}
    changes |= {"bert": {"classifier_dropout": 0.15}, "marian": {"activation_dropout": 0.45}}.get(kind, {})
    if kind != "openai-gpt":  # theirs has no cache
        changes["use_cache"] = False
    if "SequenceClassification" in name:
        changes |= {"id2label": {0: "bad", 1: "good", 2: "ugly"}, "problem_type": "multi_label_classification"}
        changes |= {"label2id": {"bad": 0, "good": 1, "ugly": 2}}
    config = type(ours.config)(**(ours.config.to_dict() | changes))
    ours = randomise(type(ours)(config), spread=0.2)
    back = to_transformers(ours)
    again = from_transformers(back)
    assert again.config.to_dict() == ours.config.to_dict() | {"architectures": again.config.architectures}
    assert all(torch.equal(weight, again.state_dict()[key]) for key, weight in ours.state_dict().items())
    if "SequenceClassification" in name:
        assert back.config.id2label[2] == "ugly" and back.config.problem_type == "multi_label_classification"


@pytest.mark.parametrize("name", ["BertForMaskedLM", "GPT2LMHeadModel", "OpenAIGPTLMHeadModel", "MarianMTModel"])
def test_hidden_states_and_attentions_are_equal(name):
    kind = KINDS[name]
    model = build(kind, name)
    if model._supports_sdpa:
        model.set_attn_implementation("eager")
    expected, found = assert_same_outputs(
        model, from_transformers(model), output_hidden_states=True, output_attentions=True
    )
    inputs, keep = inputs_for(model)
    kinds = [key for key in expected if key.endswith(("hidden_states", "attentions")) and expected[key]]
    assert len(kinds) == (5 if kind == "marian" else 2)
    for key in kinds:
        queries = inputs["attention_mask"].bool() if key.startswith("encoder") else keep
        assert len(expected[key]) == len(found[key]) > 1
        for theirs, ours in zip(expected[key], found[key], strict=True):
            if key.endswith("attentions"):
                theirs, ours = theirs.transpose(1, 2), ours.transpose(1, 2)
            assert_close(ours[queries], theirs[queries], rtol=0, atol=1e-4)


def talkative(model):
    """Let what a model says depend more on what it has read than on its biases, or it repeats one word for ever."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed" in name or "wte" in name or "wpe" in name or "shared" in name:
                parameter.mul_(2.5 if parameter.requires_grad else 1)  # sinusoids stay
            elif name.endswith("bias"):
                parameter.mul_(0.2)
            elif parameter.ndim == 1:
                parameter.add_(2)
    return model


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("settings", [{}, {"num_beams": 3, "num_return_sequences": 2}], ids=["greedy", "beam"])
@pytest.mark.parametrize("use_cache", [True, False])
def test_generate_says_the_same_words(name, settings, use_cache):
    kind = KINDS[name]
    model = talkative(build(kind, name, "opus" if kind == "marian" else "untied", eos_token_id=2))
    ours = from_transformers(model)
    inputs, _ = inputs_for(model)
    inputs.pop("decoder_input_ids", None)
    if kind != "marian":  # padded on the left, as one does before going on
        inputs = {key: value.flip(1) for key, value in inputs.items()}
    asked = settings | {"max_new_tokens": 12, "do_sample": False}
    expected = model.generate(**inputs, **asked, use_cache=use_cache and kind != "openai-gpt")
    found = ours.generate(**inputs, **asked, use_cache=use_cache)
    assert len(set(expected[:, -12:].flatten().tolist())) > 6  # more than one word over and over
    assert not torch.equal(expected[0, -12:], expected[-1, -12:])
    assert torch.equal(found, expected)


def test_how_to_generate_comes_along():
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
    ours = from_transformers(model)
    assert ours.generation_config.to_diff_dict() == model.generation_config.to_diff_dict()
    inputs, _ = inputs_for(model)
    del inputs["decoder_input_ids"]
    expected = model.generate(**inputs)
    assert expected.shape[1] == 17 and torch.equal(ours.generate(**inputs), expected)
    back = to_transformers(ours)
    assert back.config.forced_eos_token_id == 3
    assert torch.equal(back.generate(**inputs), expected)


def test_settings_of_marian():
    ours = from_transformers(build("marian", "MarianMTModel", "opus")).config
    assert (ours.sinusoid_layout, ours.hidden_act, ours.decoder_start_token_id) == ("halves", "swish", 28)
    assert ours.attention_bias and ours.logits_bias and ours.share_embeddings and ours.tie_word_embeddings
    assert ours.label_smoothing == 0 and ours.scale_embeddings and not ours.norm_first
    without_bias = build("marian", "MarianMTModel")
    without_bias.final_logits_bias.zero_()
    assert not from_transformers(without_bias).config.logits_bias


def test_a_body_without_its_pooler_stays_without(tmp_path):
    model = build("bert", "BertModel")
    model = randomise(transformers.BertModel(model.config, add_pooling_layer=False).eval())
    model.save_pretrained(tmp_path)
    for number, ours in enumerate((from_transformers(model), from_transformers(tmp_path))):
        assert ours.pooler is None
        assert_same_outputs(model, ours)
        ours.save_pretrained(tmp_path / str(number))
        for back in (to_transformers(ours), to_transformers(tmp_path / str(number))):
            assert back.pooler is None
            assert_same_outputs(model, back)


def test_the_two_models_share_no_memory():
    model = build("bert", "BertForMaskedLM")
    ours = from_transformers(model)
    before = {key: weight.clone() for key, weight in ours.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert all(torch.equal(weight, before[key]) for key, weight in ours.state_dict().items())


def test_kind_of_numbers_and_seed_are_kept():
    model = build("gpt2", "GPT2LMHeadModel").to(torch.bfloat16)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    ours = from_transformers(model)
    assert torch.equal(torch.rand(1), expected)
    assert ours.dtype == torch.bfloat16 and not ours.training
    assert torch.equal(to_transformers(ours).lm_head.weight, model.lm_head.weight)


THEIRS_ONLY = [
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


@pytest.mark.parametrize("kind, name, changes, words", THEIRS_ONLY, ids=[case[3] for case in THEIRS_ONLY])
def test_what_we_do_not_have_is_refused(kind, name, changes, words):
    if "decoder_vocab_size" in changes:
        changes |= {"share_encoder_decoder_embeddings": False}
    with pytest.raises(ValueError, match=f"^{name} has {words}, but"):
        from_transformers(build(kind, name, **changes))


OURS_ONLY = [
    ("bert", "BertModel", {"norm_first": True}, "norm_first True"),
    ("bert", "BertForQuestionAnswering", {"num_labels": 3}, "num_labels 3"),
    ("openai-gpt", "OpenAIGPTModel", {"intermediate_size": 20}, "intermediate_size 20, but in openai-gpt .* 48"),
    ("openai-gpt", "OpenAIGPTModel", {"hidden_act": "gelu"}, "hidden_act 'gelu'"),
    ("marian", "MarianModel", {"sinusoid_layout": "interleaved"}, "sinusoid_layout 'interleaved'"),
    ("marian", "MarianModel", {"position_embedding_type": "learned"}, "position_embedding_type 'learned'"),
    ("marian", "MarianModel", {"attention_bias": False}, "attention_bias False"),
    ("marian", "MarianModel", {"norm_first": True}, "norm_first True"),
    ("marian", "MarianModel", {"head_aggregation": "mean"}, "head_aggregation 'mean'"),
    ("marian", "MarianModel", {"layer_norm_eps": 1e-6}, "layer_norm_eps 1e-06"),
    ("marian", "MarianModel", {"tie_word_embeddings": False}, "tie_word_embeddings False"),
]


@pytest.mark.parametrize("kind, name, changes, words", OURS_ONLY, ids=[case[3] for case in OURS_ONLY])
def test_what_they_do_not_have_is_refused(kind, name, changes, words):
    ours = from_transformers(build(kind, name))
    ours = type(ours)(type(ours.config)(**(ours.config.to_dict() | changes)))
    with pytest.raises(ValueError, match=f"^{type(ours).__name__} has {words}"):
        to_transformers(ours)


def test_what_only_training_notices_is_a_warning(caplog):
    dropped = build("gpt2", "GPT2Model", embd_pdrop=0.3)
    assert from_transformers(dropped).config.dropout == dropped.config.resid_pdrop
    from_transformers(build("marian", "MarianModel", encoder_layerdrop=0.2))
    ours = from_transformers(build("marian", "MarianModel"))
    ours.config.label_smoothing = 0.1
    to_transformers(ours)
    for words in ("embd_pdrop 0.3", "encoder_layerdrop 0.2", "label_smoothing 0.1"):
        assert words in caplog.text


def test_unknown_models_are_refused():
    with pytest.raises(ValueError, match="model_type 'edu_bert' cannot be converted; these can: bert, gpt2"):
        from_transformers(from_transformers(build("bert", "BertModel")))
    with pytest.raises(ValueError, match="model_type 'bert' cannot be converted; these can: edu_bert, edu_gpt"):
        to_transformers(build("bert", "BertModel"))
    with pytest.raises(ValueError, match=r"GPT2DoubleHeadsModel has no counterpart; .* GPT2LMHeadModel"):
        from_transformers(build("gpt2", "GPT2DoubleHeadsModel"))
    with pytest.raises(ValueError, match="dtype is for loading, but a model was given"):
        from_transformers(build("bert", "BertModel"), dtype=torch.float16)


def test_a_weight_without_a_place_stops_with_its_name():
    model = build("bert", "BertModel")
    model.encoder.layer[1].adapter = torch.nn.Linear(3, 3)
    sentence = "BertModel cannot become EduBertModel: it would lose encoder.layer.1.adapter.bias, encoder.layer.1.ada"
    with pytest.raises(ValueError, match=sentence):
        from_transformers(model)
    ours = from_transformers(build("gpt2", "GPT2Model"))
    ours.extra = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(ValueError, match=r"EduGPTModel cannot become GPT2Model: it would lose extra$"):
        to_transformers(ours)


def test_a_place_without_a_weight_stops_with_its_name():
    model = build("bert", "BertForSequenceClassification")
    model.bert.pooler = None
    with pytest.raises(ValueError, match=r"it would make up model.pooler.bias, model.pooler.weight$"):
        from_transformers(model)
    ours = from_transformers(build("gpt2", "GPT2Model"))
    ours.layers[0].self_attention.qkv_proj.bias = None
    with pytest.raises(ValueError, match=r"it would make up h.0.attn.c_attn.bias$"):
        to_transformers(ours)
    ours = from_transformers(build("gpt2", "GPT2Model"))
    ours.embed_positions = torch.nn.Embedding(41, 12)
    with pytest.raises(ValueError, match=r"it would make up wpe.weight$"):
        to_transformers(ours)


def test_positions_that_were_learned_are_not_dropped():
    model = build("marian", "MarianModel")
    with torch.no_grad():
        model.decoder.embed_positions.weight[3, 5] += 0.01
    with pytest.raises(ValueError, match=r"it would lose decoder.embed_positions.weight$"):
        from_transformers(model)


def test_a_tie_that_was_cut_is_seen():
    model = build("gpt2", "GPT2LMHeadModel")
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight + 1)
    with pytest.raises(ValueError, match=r"lm_head.weight differs from transformer.wte.weight"):
        from_transformers(model)


def save_with_tokenizer(model, folder):
    words = {word: number for number, word in enumerate(["[PAD]", "[UNK]", *"abcdefghijklmnopqrstuvwxyz"])}
    backend = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    backend.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", pad_token="[PAD]")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer


@pytest.mark.parametrize("name", ["BertForPreTraining", "BertForMultipleChoice", *GENERATORS])
def test_folders_there_and_back(name, tmp_path):
    kind = KINDS[name]
    model = build(kind, name)
    if name in GENERATORS:
        model.generation_config.max_length = 13
        model.generation_config.bad_words_ids = [[5]]
    tokenizer = save_with_tokenizer(model, tmp_path / "theirs")
    done = convert_checkpoint(str(tmp_path / "theirs"), tmp_path / "deep" / "ours")
    assert (done.source_class, done.destination_class) == (name, OURS[name])
    assert done.parameters > 1000 and done.has_tokenizer
    back = convert_checkpoint(tmp_path / "deep" / "ours", tmp_path / "back")
    assert (back.source_class, back.destination_class) == (OURS[name], name)
    for folder, head in ((tmp_path / "deep/ours", hf_edu_models), (tmp_path / "back", transformers)):
        loaded = getattr(head, back.source_class if head is hf_edu_models else name).from_pretrained(folder)
        assert_same_outputs(model, loaded)
        assert AutoTokenizer.from_pretrained(folder)("a z b")["input_ids"] == tokenizer("a z b")["input_ids"]
        assert AutoConfig.from_pretrained(folder).architectures == [type(loaded).__name__]
        if name in GENERATORS:
            assert (loaded.generation_config.max_length, loaded.generation_config.bad_words_ids) == (13, [[5]])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "deep", "theirs"]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["ours"]


def test_a_tokenizer_that_does_not_name_its_class_is_named(tmp_path):
    """Old checkpoints leave it to the `model_type`, and ours is another."""
    build("bert", "BertModel").save_pretrained(tmp_path / "theirs")
    (tmp_path / "theirs/vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b"]))
    (tmp_path / "theirs/tokenizer_config.json").write_text('{"do_lower_case": true}')
    expected = AutoTokenizer.from_pretrained(tmp_path / "theirs")("AB a")
    assert convert_checkpoint(str(tmp_path / "theirs"), tmp_path / "ours").has_tokenizer
    assert (
        AutoTokenizer.from_pretrained(tmp_path / "ours")("AB a")["input_ids"]
        == expected["input_ids"]
        == [2, 5, 6, 5, 3]
    )
    assert json.loads((tmp_path / "ours/tokenizer_config.json").read_text())["do_lower_case"]


def test_a_full_folder_is_not_overwritten(tmp_path):
    build("gpt2", "GPT2Model").save_pretrained(tmp_path / "theirs")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").write_text("mine")
    for taken in (tmp_path / "full", tmp_path / "full/notes.txt"):
        with pytest.raises(ValueError, match="is there already and not empty; choose another folder"):
            convert_checkpoint(str(tmp_path / "theirs"), taken)
    assert (tmp_path / "full/notes.txt").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    assert not convert_checkpoint(str(tmp_path / "theirs"), tmp_path / "empty").has_tokenizer
    assert (tmp_path / "empty/model.safetensors").exists()


def test_a_failure_leaves_nothing_behind(tmp_path, monkeypatch):
    build("gpt2", "GPT2Model").save_pretrained(tmp_path / "theirs")
    monkeypatch.setattr(hf_edu_models.EduGPTModel, "save_pretrained", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        convert_checkpoint(str(tmp_path / "theirs"), tmp_path / "ours")
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


def rename_architecture(folder, name):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": name and [name]}))


def test_a_checkpoint_is_read_as_what_is_in_it(tmp_path):
    """The published BERT names the masked words' class and holds the next sentence's weights as well."""
    model = build("bert", "BertForPreTraining")
    model.save_pretrained(tmp_path)
    for name in ("BertForMaskedLM", "BertModel", None):
        rename_architecture(tmp_path, name)
        ours = from_transformers(tmp_path)
        assert type(ours) is hf_edu_models.EduBertForPreTraining
        assert_same_outputs(model, ours)
    model = build("marian", "MarianMTModel")
    model.save_pretrained(tmp_path / "marian")
    rename_architecture(tmp_path / "marian", "MarianModel")  # whose body has no place for the bias of the logits
    assert_same_outputs(model, from_transformers(tmp_path / "marian"))


def test_checkpoints_in_their_old_form_are_read(tmp_path):
    """As they were published: without a prefix, with masks among the weights, with the authors' names for norms."""
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


def test_generation_settings_in_an_old_configuration_are_found(tmp_path):
    """The first translation models kept them in `config.json`."""
    build("marian", "MarianMTModel").save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    config = json.loads((tmp_path / "config.json").read_text())
    old = {"num_beams": 4, "max_length": 21, "bad_words_ids": [[28]], "forced_eos_token_id": 0}
    (tmp_path / "config.json").write_text(json.dumps(config | old))
    found = from_transformers(tmp_path).generation_config
    assert {name: getattr(found, name) for name in old} == old


def test_a_checkpoint_that_lacks_weights_is_refused(tmp_path):
    build("bert", "BertModel").save_pretrained(tmp_path)
    rename_architecture(tmp_path, "BertForTokenClassification")
    sentence = r"it would lose pooler.dense.bias, pooler.dense.weight and make up classifier.bias, classifier.weight$"
    with pytest.raises(ValueError, match=sentence):
        from_transformers(tmp_path)
    rename_architecture(tmp_path, "BertLMHeadModel")
    with pytest.raises(ValueError, match="BertLMHeadModel has no counterpart"):
        from_transformers(tmp_path)


def test_settings_for_loading_are_passed_on(tmp_path):
    build("marian", "MarianMTModel").save_pretrained(tmp_path)
    ours = from_transformers(tmp_path, dtype=torch.bfloat16, attn_implementation="eager")
    assert ours.dtype == torch.bfloat16 and ours.config._attn_implementation == "eager"
    assert from_transformers(str(tmp_path)).config._attn_implementation == "sdpa"
