"""Attention maps equal the model's own attentions, for given and generated text, and in every file format."""

import json
import re
import warnings

import numpy as np
import pytest
import torch
from attenders import ATTENDERS, ENCODERS, LANGUAGE_MODELS, TEXTS, TRANSLATORS, by_name
from typer.testing import CliRunner

import hf_edu_models
from hf_edu_models.cli import app
from hf_edu_models.data import train_tokenizer
from hf_edu_models.explain import attention_maps, readable_tokens, save_attention, to_bertviz

TEXT, TARGET = "le chat noir", "the cat"
CLOSE = {"rtol": 0, "atol": 1e-6}


def own_attentions(model, **inputs):
    """The attentions that the model returns, by our names, (L, H, Q, S)."""
    with torch.no_grad():
        if model.config.model_type in ("marian", "bert", "gpt2"):
            model.set_attn_implementation("eager")
        outputs = model(**inputs, output_attentions=True)
    names = {"encoder": "encoder_attentions", "decoder": "decoder_attentions", "cross": "cross_attentions"}
    found = {ours: outputs.get(theirs) for ours, theirs in names.items()} | {"self": outputs.get("attentions")}
    return {name: torch.cat(tuple(layers)).numpy() for name, layers in found.items() if layers}


def expand_window_by_hand(window):
    """Column j of a window of size W is the token W - j positions back."""
    layers, heads, length, size = window.shape
    wide = np.zeros((layers, heads, length, length), dtype=np.float32)
    for row in range(length):
        for column in range(size):
            if row - size + column >= 0:
                wide[:, :, row, row - size + column] = window[:, :, row, column]
    return wide


def assert_same(maps, expected):
    if "window" in maps:
        expected = {"window": expand_window_by_hand(expected["self"])}
    assert set(maps) == set(expected)
    for name, each in maps.items():
        assert each.weights.dtype == np.float32
        assert each.weights.shape[2:] == (len(each.query_tokens), len(each.key_tokens))
        np.testing.assert_allclose(each.weights, expected[name], **CLOSE)


@pytest.mark.parametrize("attender", **by_name(TRANSLATORS))
def test_a_forced_target_has_the_models_own_weights(built, attender):
    model, tokenizer = built(attender)
    maps = attention_maps(model, tokenizer, TEXT, target=TARGET)
    labels = tokenizer(text_target=TARGET, return_tensors="pt")["input_ids"]
    read = torch.cat([torch.full((1, 1), model.config.decoder_start_token_id), labels[:, :-1]], dim=1)
    source = tokenizer(TEXT, return_tensors="pt")["input_ids"]
    assert_same(maps, own_attentions(model, input_ids=source, decoder_input_ids=read))
    assert tuple(maps) == attender.maps and maps.origin == "forced" and maps.target == TARGET
    assert maps["cross"].query_tokens == [*"the␣cat", "</s>"], "rows are the predicted tokens"
    assert maps["cross"].key_tokens == [*"le␣chat␣noir", "</s>"]
    assert list(maps.read.labels) == ["<s>", *"the␣cat"]


@pytest.mark.parametrize("attender", **by_name(TRANSLATORS))
@pytest.mark.parametrize("beams", [1, 3])
def test_generated_text_has_the_weights_of_the_best_beam(built, attender, beams):
    """Against what `generate()` returns step by step, with the best sequence traced back through the beams."""
    model, tokenizer = built(attender)
    # No repeated tokens: with equal rows an off-by-one error would not show.
    options = {"num_beams": beams, "max_new_tokens": 9, "no_repeat_ngram_size": 1}
    maps = attention_maps(model, tokenizer, TEXT, **options)
    source = tokenizer(TEXT, return_tensors="pt")["input_ids"]
    if attender.head == "MarianMTModel":
        model.set_attn_implementation("eager")
    outputs = {"output_attentions": True, "output_scores": True, "return_dict_in_generate": True}
    result = model.generate(source, **options, **outputs)
    written = result.sequences[0, 1:]
    assert len(set(written.tolist())) == len(written) > 2
    assert maps["cross"].query_tokens == list(readable_tokens(tokenizer, written.tolist()).labels)
    beam_of = result.beam_indices[0] if beams > 1 else torch.zeros(len(written), dtype=torch.long)
    for step in range(len(written)):
        rows = torch.cat([layer[beam_of[step], :, -1] for layer in result.cross_attentions[step]])
        np.testing.assert_allclose(maps["cross"].weights[:, :, step].reshape(rows.shape), rows.numpy(), **CLOSE)
        if "decoder" in maps:
            rows = torch.stack([layer[beam_of[step], :, -1] for layer in result.decoder_attentions[step]])
            np.testing.assert_allclose(maps["decoder"].weights[:, :, step, : step + 1], rows.numpy(), **CLOSE)
    if "encoder" in maps:
        np.testing.assert_allclose(maps["encoder"].weights, torch.cat(result.encoder_attentions).numpy(), **CLOSE)


def test_beams_really_switch(built):
    """Otherwise the test above would pass with any beam."""
    model, tokenizer = built(TRANSLATORS[1])
    source = tokenizer(TEXT, return_tensors="pt")["input_ids"]
    result = model.generate(source, num_beams=3, max_new_tokens=9, output_scores=True, return_dict_in_generate=True)
    assert len(set(result.beam_indices[0].tolist())) > 1


@pytest.mark.parametrize("attender", **by_name(LANGUAGE_MODELS + ENCODERS))
def test_text_that_is_read_has_the_models_own_weights(built, attender):
    model, tokenizer = built(attender)
    maps = attention_maps(model, tokenizer, TEXT)
    assert_same(maps, own_attentions(model, **tokenizer(TEXT, return_tensors="pt")))
    assert maps.origin == "read" and maps.target is None and len(maps.written) == 0
    assert "le␣chat␣noir" in "".join(maps.main.key_tokens)


@pytest.mark.parametrize("attender", **by_name(LANGUAGE_MODELS))
@pytest.mark.parametrize("beams", [1, 3])
def test_a_language_model_shows_generated_and_given_targets(built, attender, beams):
    model, tokenizer = built(attender)
    maps = attention_maps(model, tokenizer, TEXT, num_beams=beams, max_new_tokens=5)
    ids = model.generate(**tokenizer(TEXT, return_tensors="pt"), num_beams=beams, max_new_tokens=5)
    assert_same(maps, own_attentions(model, input_ids=ids))
    assert maps.origin == "generated"
    forced = attention_maps(model, tokenizer, TEXT, target=TARGET)
    ids = tokenizer(TEXT)["input_ids"] + tokenizer(TARGET, add_special_tokens=False)["input_ids"]
    assert_same(forced, own_attentions(model, input_ids=torch.tensor([ids])))


@pytest.mark.parametrize("attender", **by_name(ENCODERS))
def test_a_pair_is_read_with_its_segments(built, attender):
    model, tokenizer = built(attender)
    maps = attention_maps(model, tokenizer, TEXT, text_pair=TARGET)
    assert_same(maps, own_attentions(model, **tokenizer(TEXT, TARGET, return_tensors="pt")))
    assert "".join(maps["self"].key_tokens[maps.second_start :]) == "the␣cat[SEP]"
    assert maps["self"].key_tokens[maps.second_start - 1] == "[SEP]"


@pytest.mark.parametrize("attender", **by_name(ATTENDERS))
def test_rows_sum_to_one_as_tokens_and_as_words(built, attender):
    model, tokenizer = built(attender)
    maps = attention_maps(model, tokenizer, TEXT, **({"target": TARGET} if attender.task == "seq2seq" else {}))
    for each in [*maps.values(), *maps.by_words().values()]:
        sums = each.weights.sum(axis=-1)
        expected = np.ones_like(sums)
        if each.name == "window":
            expected[..., 0] = 0.0  # no past
        np.testing.assert_allclose(sums, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("attender", **by_name([each for each in ATTENDERS if each.name not in ("bahdanau", "window")]))
def test_queries_and_keys_give_the_weights_back(built, attender):
    model, tokenizer = built(attender)
    maps = attention_maps(model, tokenizer, TEXT, **({"target": TARGET} if attender.task == "seq2seq" else {}))
    for name, each in maps.items():
        vectors, length = each.vectors, len(each.query_tokens)
        head_size = 12 // each.weights.shape[1]
        assert vectors.queries.shape == (*each.weights.shape[:3], head_size)
        np.testing.assert_allclose(vectors.scaling, head_size**-0.5, rtol=1e-6)
        is_causal = name == "decoder" or attender.task == "language_modeling"
        mask = np.tri(length, dtype=bool) if is_causal else np.ones(each.weights.shape[2:], dtype=bool)
        np.testing.assert_allclose(vectors.weights(mask), each.weights, **CLOSE)


def test_scores_that_are_not_dot_products_have_no_vectors(built):
    for attender in (TRANSLATORS[0], LANGUAGE_MODELS[0]):
        model, tokenizer = built(attender)
        options = {"target": TARGET} if attender.task == "seq2seq" else {}
        assert attention_maps(model, tokenizer, TEXT, **options).main.vectors is None


def test_vectors_that_do_not_explain_the_weights_are_left_out(built):
    """Rotary positions rotate the queries after the projection."""
    from transformers import LlamaConfig, LlamaForCausalLM

    _, tokenizer = built(LANGUAGE_MODELS[1])
    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 20}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), initializer_range=0.5, **sizes)).eval()
    maps = attention_maps(model, tokenizer, TEXT)
    assert maps["self"].weights.shape == (1, 3, 13, 13) and maps["self"].vectors is None


@pytest.mark.parametrize("head", ["EduFeedForwardForCausalLM", "EduRecurrentForCausalLM", "EduSeq2Seq"])
def test_a_model_without_attention_raises_an_error(tokenizers, head):
    head = head if head != "EduSeq2Seq" else "EduSeq2SeqForConditionalGeneration"
    tokenizer = tokenizers["seq2seq" if "Seq2Seq" in head else "language_modeling"]
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 8, "embedding_size": 8}
    model = getattr(hf_edu_models, head)(getattr(hf_edu_models, head).config_class(**sizes))
    with pytest.raises(ValueError, match=f"{head} does not attend"):
        attention_maps(model, tokenizer, TEXT)


def test_wrong_requests_raise_an_error(built):
    bert, gpt, translator = built(ENCODERS[0]), built(LANGUAGE_MODELS[1]), built(TRANSLATORS[0])
    with pytest.raises(ValueError, match="does not generate"):
        attention_maps(*bert, TEXT, target=TARGET)
    with pytest.raises(ValueError, match="cannot generate"):
        attention_maps(*bert, TEXT, max_new_tokens=3)
    with pytest.raises(ValueError, match="leave out the target or num_beams"):
        attention_maps(*gpt, TEXT, target=TARGET, num_beams=2)
    with pytest.raises(ValueError, match="text is empty"):
        attention_maps(*gpt, "")
    with pytest.raises(ValueError, match="cannot generate; give a target"):
        attention_maps(translator[0].model, translator[1], TEXT)
    with pytest.raises(ValueError, match="layer 5 is not in cross-attention; choose 0 to 0"):
        attention_maps(*translator, TEXT, target=TARGET)["cross"].head(5)


def test_a_model_is_left_as_it_was(built):
    model, tokenizer = TRANSLATORS[2].build(built(TRANSLATORS[2])[1]), built(TRANSLATORS[2])[1]
    model.set_attn_implementation("sdpa")
    model.train()
    hooks = []
    for _ in range(2):  # transformers sets hooks of its own at the first call
        attention_maps(model, tokenizer, TEXT, target=TARGET)
        hooks.append(sum(len(module._forward_hooks) for module in model.modules()))
    assert model.training and model.config._attn_implementation == "sdpa" and hooks[0] == hooks[1]


def test_words_sum_over_the_keys_of_their_subwords(built):
    model, tokenizer = built(TRANSLATORS[1])
    maps = attention_maps(model, tokenizer, TEXT, target=TARGET)
    words = maps.by_words()["cross"]
    assert words.key_tokens == ["le", "␣", "chat", "␣", "noir", "</s>"]
    assert words.query_tokens == ["the", "␣", "cat", "</s>"]
    by_hand = maps["cross"].weights[:, :, 4:7, 3:7].sum(axis=-1).mean(axis=-1)  # "cat" to "chat"
    np.testing.assert_allclose(words.weights[:, :, 2, 2], by_hand, **CLOSE)


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizers")
    corpus = [*TEXTS, "walk walking walked talk talking talked"] * 3

    def train(kind):
        sizes = {"bpe": 300, "unigram": 420}
        return train_tokenizer(corpus, kind=kind, task="seq2seq", vocab_size=sizes.get(kind, 120), cache_dir=folder)

    return train


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "word", "char"])
def test_labels_have_no_marks_and_spell_the_text(trained, kind):
    tokenizer, text = trained(kind), "talking cat sat"
    tokens = readable_tokens(tokenizer, tokenizer(text)["input_ids"])
    assert not re.search("[Ġ▁#]", "".join(tokens.labels))
    assert "".join(tokens.labels).replace("␣", "") == "talkingcatsat</s>"
    words = [word for word in tokens.word_labels if word != "␣"]
    assert words == ["talking", "cat", "sat", "</s>"]
    assert len(tokens.labels) == len(tokens.word_ids)
    assert sorted(set(tokens.word_ids)) == list(range(len(tokens.word_labels)))


def test_parts_of_a_character_are_shown_as_bytes_and_join_to_the_character(trained):
    tokenizer = trained("bpe")
    tokens = readable_tokens(tokenizer, tokenizer("€ cat")["input_ids"])
    assert any(re.fullmatch("[0-9A-F]{2}( [0-9A-F]{2})*", label) for label in tokens.labels)
    assert "€" in tokens.word_labels[0]


def test_white_space_and_special_tokens_are_visible(trained):
    tokenizer = trained("bpe")
    tokens = readable_tokens(tokenizer, [tokenizer.pad_token_id, *tokenizer("a\nb")["input_ids"]])
    assert tokens.labels[0] == "<pad>" and "⏎" in "".join(tokens.labels)
    assert all(label.strip() for label in tokens.labels)


@pytest.fixture(scope="session")
def translated(built):
    return attention_maps(*built(TRANSLATORS[1]), TEXT, target=TARGET)


def test_arrays_come_back_from_their_files(translated, tmp_path):
    save_attention(translated, tmp_path / "map.npz")
    save_attention(translated, tmp_path / "map.json")
    arrays, lists = np.load(tmp_path / "map.npz"), json.loads((tmp_path / "map.json").read_text())
    for name, each in translated.items():
        np.testing.assert_array_equal(arrays[f"{name}_weights"], each.weights)
        np.testing.assert_array_equal(arrays[f"{name}_keys"], each.vectors.keys)
        assert arrays[f"{name}_query_tokens"].tolist() == each.query_tokens == lists["maps"][name]["query_tokens"]
        np.testing.assert_allclose(lists["maps"][name]["weights"], each.weights, rtol=0, atol=1e-8)


def test_a_picture_of_a_long_input_keeps_its_size():
    """Smaller cells and fewer labels, not a picture of 86,000 pixels."""
    from hf_edu_models.explain import AttentionMap, Tokens, draw_attention

    labels = tuple(f"token{i}" for i in range(900))
    tokens = Tokens(labels, tuple(range(900)), labels)
    weights = np.full((1, 1, 900, 900), 1 / 900, dtype=np.float32)
    figure = draw_attention(AttentionMap("self", weights, tokens, tokens))
    assert max(figure.get_size_inches()) * 150 < 4_000
    assert 10 < len(figure.axes[0].get_yticklabels()) < 300


@pytest.mark.parametrize("choice", [{}, {"layer": 1}, {"head": 2}, {"layer": 2, "head": 0}], ids=str)
def test_a_picture_has_every_chosen_head(translated, tmp_path, choice):
    from hf_edu_models.explain import draw_attention

    figure = draw_attention(translated, "cross", **choice)
    images = [image.get_array() for axis in figure.axes for image in axis.get_images()]
    layers = [choice["layer"]] if "layer" in choice else range(3)
    heads = [choice["head"]] if "head" in choice else range(3)
    chosen = [translated["cross"].weights[layer, head] for layer in layers for head in heads]
    assert len(images) == len(chosen)
    for image, weights in zip(images, chosen, strict=True):
        np.testing.assert_array_equal(image, weights)
    labels = {label.get_text() for axis in figure.axes for label in axis.get_yticklabels()}
    assert set("the␣ca") | {"</s>"} <= labels


def test_the_file_extension_chooses_the_format_and_matplotlib_settings_stay(translated, tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    png, svg = (
        save_attention(translated, tmp_path / f"map.{extension}", layer=0, head=0) for extension in ("png", "svg")
    )
    assert png.read_bytes().startswith(b"\x89PNG") and "<svg" in svg.read_text()
    assert dict(matplotlib.rcParams) == before and "matplotlib.pyplot" not in vars(matplotlib)


def test_missing_fonts_give_one_warning(built, tmp_path):
    maps = attention_maps(*built(TRANSLATORS[0]), "日本語", target="cat")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        save_attention(maps, tmp_path / "map.png")
    assert sum("font" in str(each.message) for each in caught) <= 1


def test_the_arguments_of_bertviz(built, translated):
    """Names and shapes of its `head_view`."""
    arguments = to_bertviz(translated)
    assert set(arguments) == {
        *("encoder_attention", "decoder_attention", "cross_attention"),
        *("encoder_tokens", "decoder_tokens"),
    }
    source, target = len(arguments["encoder_tokens"]), len(arguments["decoder_tokens"])
    shapes = {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}
    for name, shape in shapes.items():
        layers = arguments[f"{name}_attention"]
        assert len(layers) == len(translated[name].weights)
        assert all(layer.shape == (1, 3, *shape) for layer in layers)
        np.testing.assert_array_equal(torch.cat(layers).numpy(), translated[name].weights)
    pair = to_bertviz(attention_maps(*built(ENCODERS[0]), TEXT, text_pair=TARGET))
    assert set(pair) == {"attention", "tokens", "sentence_b_start"}
    assert pair["attention"][0].shape == (1, 3, len(pair["tokens"]), len(pair["tokens"]))


@pytest.fixture(scope="session")
def checkpoint(built, tmp_path_factory):
    def save(attender):
        folder = tmp_path_factory.mktemp(attender.name)
        for part in built(attender):
            part.save_pretrained(folder)
        return folder

    return save


def test_the_command_writes_the_arrays_that_the_function_returns(built, checkpoint, tmp_path):
    folder, out = checkpoint(TRANSLATORS[1]), tmp_path / "map.npz"
    arguments = ["explain", "attention", str(folder), TEXT, "--num-beams", "3", "--max-new-tokens", "9"]
    run = CliRunner().invoke(app, [*arguments, "--out", str(out)])
    assert run.exit_code == 0, run.output
    maps = attention_maps(*built(TRANSLATORS[1]), TEXT, num_beams=3, max_new_tokens=9)
    assert maps.target in run.output.replace("\n", "")
    np.testing.assert_allclose(np.load(out)["cross_weights"], maps["cross"].weights, **CLOSE)


def test_the_command_takes_a_pair_and_words(checkpoint, tmp_path):
    out = tmp_path / "map.json"
    arguments = ["explain", "attention", str(checkpoint(ENCODERS[0])), TEXT, "--pair", TARGET, "--words"]
    run = CliRunner().invoke(app, [*arguments, "--out", str(out)])
    assert run.exit_code == 0, run.output
    tokens = json.loads(out.read_text())["maps"]["self"]["key_tokens"]
    assert tokens == ["[CLS]", "le", "␣", "chat", "␣", "noir", "[SEP]", "the", "␣", "cat", "[SEP]"]


def test_the_command_checks_its_arguments_first(tmp_path):
    def problem(*arguments):
        run = CliRunner().invoke(app, ["explain", "attention", *arguments])
        assert isinstance(run.exception, ValueError | FileNotFoundError)
        return str(run.exception)

    assert "choose one of .html, .png" in problem("nowhere", TEXT, "--out", "map.gif")
    assert "nowhere does not exist" in problem("nowhere", TEXT, "--out", str(tmp_path / "map.png"))
    assert not list(tmp_path.iterdir())


def test_an_unknown_map_or_head_raises_an_error(translated, tmp_path):
    with pytest.raises(ValueError, match="head 9 is not in"):
        save_attention(translated, tmp_path / "map.png", layer=0, head=9)
    with pytest.raises(ValueError, match="has no map 'self'; it has encoder, decoder, cross"):
        save_attention(translated, tmp_path / "map.html", name="self")
    assert not list(tmp_path.iterdir())
