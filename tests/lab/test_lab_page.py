"""The lab in a real browser, opened from disk with the network off: its numbers are torch's, every control works."""

import base64
import hashlib
import re
import shutil
import time

import numpy as np
import pytest
import torch
from browser import Browser, why_not
from engine import predictions_of
from pages import HOSTILE, PAIR, TEXT, record, save_tiny, texts, tiny_lab, torch_inputs, type_text, values, wait_for
from safetensors.torch import load
from test_engine import RUN
from tiny import CASES, logits_of

from hf_edu_models.data.tokenization import KINDS
from hf_edu_models.lab import build_lab
from hf_edu_models.lab.weights import pack
from hf_edu_models.training.pictures import save_architecture

if why_not():
    pytest.skip(f"no browser to open the page in: {why_not()}", allow_module_level=True)

HEADS = list({case.head: case for case in reversed(RUN)}.values())[::-1]  # one configuration of each
KIND_OF = {case.name: KINDS[number % len(KINDS)] for number, case in enumerate(HEADS)}
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}


@pytest.fixture(scope="module")
def labs(tmp_path_factory):
    """A page for a head, built once."""
    folder, made = tmp_path_factory.mktemp("labs"), {}

    def get(name, **options):
        key = f"{name}{options}"
        if key not in made:
            made[key] = tiny_lab(CASES[name], KIND_OF[name], folder / str(len(made)), **options)
        return made[key]

    return get


@pytest.fixture(scope="module", params=SIZES)
def window(request, tmp_path_factory):
    width, height = SIZES[request.param]
    browser = Browser(tmp_path_factory.mktemp("profile"), (max(width, 500), height))
    if request.param == "phone":  # a window cannot be this narrow
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": True}
        browser.ask("/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": screen})
    browser.is_phone = request.param == "phone"
    yield browser
    browser.close()


def choose_tab(browser, name):
    browser.click(f"#tab-{name}")
    assert browser.run("return lab.view.id") == name


def torch_logits(model, found):
    with torch.no_grad():
        return model(**torch_inputs(found["inputs"]), output_attentions=True)


def check_record(model, found):
    """Logits and attention weights of the page against torch's."""
    outputs = torch_logits(model, found)
    expected = predictions_of(outputs)[0].numpy()
    np.testing.assert_allclose(found["arrays"]["logits"].reshape(expected.shape), expected, **CLOSE)
    weights = {name: array for name, array in found["arrays"].items() if name.endswith("attention.weights")}
    for name, array in weights.items():
        layer = int(re.search(r"layers\.(\d+)", name)[1])
        field = "cross_attentions" if "cross" in name else f"{name.split('.')[0]}_attentions"
        theirs = outputs.get(field) or outputs.attentions
        if "choices" not in name:
            np.testing.assert_allclose(array, theirs[layer][0].numpy(), **CLOSE)
    return outputs


@pytest.mark.parametrize(
    ("window", "case"),
    [("desktop", case) for case in HEADS] + [("phone", case) for case in HEADS if case.name == case.rung.name],
    ids=lambda each: each if isinstance(each, str) else each.name,
    indirect=["window"],
)
def test_the_numbers_are_torchs(window, labs, case):
    """For every head of every rung, on a typed text: ids, logits and attention weights, as the page shows them."""
    lab = labs(case.name)
    window.open(lab.page)
    text = "Dogs bark! the cat sat; là."
    type_text(window, "#text", text)
    if not window.run("return document.getElementById('pair-field').hidden"):
        type_text(window, "#pair", PAIR)
    found = record(window)
    outputs = check_record(lab.model, found)
    for view in window.run("return lab.names"):
        choose_tab(window, view)
        assert window.run("return document.querySelector('.column-body').children.length") > 0
        check_view(window, view, found, outputs)
    assert window.run("return document.documentElement.scrollWidth <= window.innerWidth")
    assert window.console_messages() == []
    assert window.requests() == [lab.page.resolve().as_uri()]


def check_view(browser, view, found, outputs):
    """The numbers in the page's elements, not only those of the record."""
    if view == "values":
        name = browser.run("return lab.sessions[0].analysis.record.entries[0].name")
        shown = found["arrays"][name].reshape(-1, found["arrays"][name].shape[-1])[:100, :64]
        np.testing.assert_allclose(values(browser, ".values td[data-value]"), shown.ravel(), **CLOSE)
    if view == "attention":
        entry = browser.run("return document.querySelector('.view .select select').value")
        array = found["arrays"][entry]
        step = (
            int(browser.run("return document.querySelector('.view .steps input').value")) if array.shape[1] > 1 else 0
        )
        np.testing.assert_allclose(values(browser, ".token-row .chip"), array[:, step].mean(0), **CLOSE)
    if view == "predictions" and found["written"] is not None:
        step = int(browser.run("return document.querySelector('.view .steps input').value"))
        probabilities = torch.softmax(logits_of(outputs)[0, step].double(), -1).sort(descending=True).values
        shown = values(browser, ".bars li")[:12]
        np.testing.assert_allclose(shown, probabilities[: len(shown)].numpy(), **CLOSE)
    if view == "predictions" and found["arrays"]["logits"].shape[-1] > 29 and found["written"] is None:
        assert 0 < len(values(browser, ".bars li")) < 60  # the likeliest of the vocabulary
    if view == "score":
        shown = {name: values(browser, f".score-table .{name}") for name in ("sum", "score", "weight")}
        if len(shown["weight"]):
            base = browser.run("return document.querySelector('.view .select select').value")
            step = int(browser.run("return Number(document.querySelector('.view .steps input').value)"))
            weights = found["arrays"][f"{base}.weights"][0]
            np.testing.assert_allclose(shown["weight"], weights[min(step, len(weights) - 1)], **CLOSE)
            np.testing.assert_allclose(np.exp(shown["score"]) / np.exp(shown["score"]).sum(), shown["weight"], **CLOSE)


def test_the_ids_are_the_tokenizers(window, labs):
    """For every kind of tokenizer, on hostile text."""
    seen = set()
    for case in HEADS:
        lab = labs(case.name)
        if KIND_OF[case.name] in seen or case.rung.name == "hierarchical" or case.task in ("multiple_choice",):
            continue
        seen.add(KIND_OF[case.name])
        window.open(lab.page)
        window.run("lab.input.length = 0")
        type_text(window, "#text", HOSTILE + " 😀👩\u200d🚀")
        assert record(window)["inputs"]["inputIds"] == lab.tokenizer(HOSTILE + " 😀👩\u200d🚀").input_ids[:120]
        assert window.run("return document.title").startswith("<script>alert(1)</script>")
        assert window.run("return document.querySelectorAll('body script').length") == 3
        assert window.run("return document.querySelectorAll('main script, main style, main b script').length") == 0
        assert window.console_messages() == []
    assert seen == set(KINDS)


def test_the_policy_allows_the_page_alone(labs, window):
    lab = labs("bahdanau", text=HOSTILE)
    text = lab.page.read_text()
    policy = re.search('Content-Security-Policy" content="([^"]*)"', text)[1]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    for tag in ("style", "script"):
        content = re.findall(rf"<{tag}>(.*?)</{tag}>", text, flags=re.DOTALL)
        assert len(content) == 1
        assert base64.b64encode(hashlib.sha256(content[0].encode()).digest()).decode() in policy
    window.open(lab.page)
    assert window.run("return document.getElementById('title').textContent") == " ".join(HOSTILE.split())
    window.run("const image = new Image(); image.src = 'http://127.0.0.1:9/x.png'; document.body.append(image)")
    assert any("Content Security Policy" in message for message in window.console_messages())


def test_the_architecture_is_the_runs_picture(labs, window, tmp_path):
    folder = shutil.copytree(labs("bahdanau").folder, tmp_path / "run")
    assert '"architecture": null' in labs("bahdanau").page.read_text()
    save_architecture(labs("bahdanau").model, folder)
    window.open(build_lab([folder], folder / "lab.html").path)
    window.run("document.querySelector('.column-head details').open = true")
    wait_for(window, "document.querySelector('img.architecture').naturalWidth > 100")
    assert window.console_messages() == []


def test_steps_go_forwards_and_back(window, labs):
    window.open(labs("bahdanau").page)
    choose_tab(window, "attention")
    weights = record(window)["arrays"]["decoder.weights"]
    assert weights.shape[1] > 3
    window.click(".view .steps button:nth-of-type(2)")
    np.testing.assert_allclose(values(window, ".token-row .chip"), weights[0, 1], **CLOSE)
    window.run("document.querySelector('.view .steps input').focus()")
    window.press("Right", "Right")
    np.testing.assert_allclose(values(window, ".token-row .chip"), weights[0, 3], **CLOSE)
    window.click(".view .steps button:nth-of-type(1)")
    np.testing.assert_allclose(values(window, ".token-row .chip"), weights[0, 2], **CLOSE)
    time.sleep(0.2)
    assert "looks most at" in window.run("return document.getElementById('live').textContent")
    # A cell of the heat map, by the mouse and by keys.
    window.hover(".lab-heat-field")
    step = window.run("return lab.place('target', 99)")
    marked = "[...document.querySelectorAll('.lab-heat-names > span')].findIndex((n) => n.classList.contains('on'))"
    assert step == window.run(f"return {marked}")
    window.run("document.querySelector('.lab-heat-field').focus()")
    window.press("Up")
    assert window.run("return lab.place('target', 99)") == step - 1
    np.testing.assert_allclose(values(window, ".token-row .chip"), weights[0, step - 1], **CLOSE)


def test_the_slider_is_dragged(window, labs):
    """From the first step to the last and back to the middle: the attention shown is that of the thumb's step."""
    window.open(labs("transformer").page)
    choose_tab(window, "attention")
    arrays = record(window)["arrays"]
    name = next(name for name in arrays if re.fullmatch(r"decoder\..*self_attention.*weights", name))
    window.run(
        "const s = document.querySelector('.view .select select'); s.value = arguments[0];"
        "s.dispatchEvent(new Event('change'))",
        name,
    )
    weights = arrays[name].mean(0)  # of all heads; a step sees only those before it, so that no two rows are alike
    last = len(weights) - 1
    assert last >= 4
    shown = []
    for start, end in ((0.0, 1.0), (1.0, 0.5)):
        window.drag(".view .steps input", start, end)
        step = int(window.run("return document.querySelector('.view .steps input').value"))
        assert abs(step - end * last) <= 2  # a step is a few pixels
        assert texts(window, ".view .steps .step-name")[0].startswith(f"{step + 1} of {last + 1}")
        np.testing.assert_allclose(values(window, ".token-row .chip"), weights[step], **CLOSE)
        shown.append(step)
    assert shown[0] == last > shown[1] > 0
    assert np.abs(weights[shown[0]] - weights[shown[1]]).max() > 1e-3
    assert window.console_messages() == []


def test_heads_are_overlaid_and_chosen(window, labs):
    window.open(labs("transformer").page)
    choose_tab(window, "attention")
    entry = window.run("return document.querySelector('.view .select select').value")
    weights = record(window)["arrays"][entry]
    first = "document.querySelectorAll('.chip:first-child .columns i')"
    bars = f"return [...{first}].map(({{ style }}) => [style.height, style.background])"
    shown = window.run(bars)
    assert len({colour for _, colour in shown}) == len(weights) == 3
    np.testing.assert_allclose([float(height.rstrip("%")) / 100 for height, _ in shown], weights[:, 0, 0], atol=1e-4)
    window.click("fieldset[id^=heads] input[value='2']")
    np.testing.assert_allclose(values(window, ".token-row .chip"), weights[2, 0], **CLOSE)


def test_a_head_is_switched_off_and_on(window, labs):
    lab = labs("transformer")
    window.open(lab.page)
    before = record(window)["arrays"]["logits"]
    choose_tab(window, "changes")
    window.click("[aria-label='encoder, layer 1, self attention: heads head 2']")
    found = record(window)
    assert not found["arrays"]["encoder.layers.0.self_attention.heads"][1].any()
    assert found["arrays"]["encoder.layers.0.self_attention.heads"][0].any()
    assert "Changed model" in texts(window, ".changed")[0] and "head 2" in texts(window, ".changed")[0]
    assert "before the change" in texts(window, ".output")[0]
    # Torch, with the rows of the head's values at zero.
    attention = lab.model.model.encoder.layers[0].self_attention
    weight = next(each for name, each in attention.named_parameters() if "out" in name and each.ndim == 2)
    size = weight.shape[1] // 3
    saved = weight.detach().clone()
    with torch.no_grad():
        weight[:, size : 2 * size] = 0
        expected = torch_logits(lab.model, found).logits[0].numpy()
        weight.copy_(saved)
    np.testing.assert_allclose(found["arrays"]["logits"], expected, **CLOSE)
    window.click(".reset")
    assert texts(window, ".changed") == [""]
    np.testing.assert_array_equal(record(window)["arrays"]["logits"], before)


def test_a_weight_is_forced(window, labs):
    window.open(labs("bahdanau").page)
    choose_tab(window, "attention")
    window.click(".token-row .chip:nth-child(2)")
    window.run("document.querySelector('.setter input').focus()")
    window.press(*["Left"] * 30)
    wait_for(window, "lab.sessions[0].changes.length === 1")
    value = window.run("return lab.sessions[0].changes[0].value")
    assert value == pytest.approx(0.7)
    weights = record(window)["arrays"]["decoder.weights"]
    assert weights[0, 0, 1] == pytest.approx(0.7, abs=1e-6) and weights[0, 0].sum() == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(values(window, ".token-row .chip"), weights[0, 0], **CLOSE)
    window.click(".reset")
    assert record(window)["arrays"]["decoder.weights"][0, 0, 1] != pytest.approx(0.7)


def test_the_cell_state_is_frozen(window, labs):
    window.open(labs("recurrent").page)
    choose_tab(window, "states")
    name = next(name for name in record(window)["arrays"] if name.endswith("layers.0.forward_cell.cell_state"))
    window.run(
        "const s = document.querySelector('.view .select select'); s.value = arguments[0];"
        "s.dispatchEvent(new Event('change'))",
        name,
    )
    window.run("document.querySelector('.lab-heat-field').focus()")
    window.press(*["Up"] * 99)
    window.press("Down", "Down", "Right")
    array = record(window)["arrays"][name]
    shown = window.run("return Number(document.querySelector('.readout').dataset.value)")
    assert shown == pytest.approx(array[2, 1], abs=1e-5)
    lines = window.run("return document.querySelectorAll('.chart polyline').length")
    assert lines >= 5  # three gates, the candidate, two states
    window.click("[data-op=freeze]")
    frozen = record(window)["arrays"][name]
    np.testing.assert_array_equal(frozen[2:], np.repeat(frozen[1:2], len(frozen) - 2, axis=0))
    assert "frozen from step 3" in texts(window, ".changed")[0]


def test_the_beam_is_a_tree(window, labs):
    lab = labs("transformer")
    window.open(lab.page)
    window.run("document.getElementById('writing').open = true")
    window.click("#search input[value='beam']")
    assert window.run("return lab.view.id") == "beam"
    tree = window.run("return lab.sessions[0].analysis.generation.tree")
    assert window.run("return document.querySelectorAll('[role=treeitem]').length") == len(tree) + 1 > 6
    window.run("document.querySelector('[role=treeitem]').focus()")
    window.press("Right", "Right")
    focused = window.run("return Number(document.activeElement.dataset.id)")
    node = next(each for each in tree if each["id"] == focused)
    assert node["step"] == 1
    window.press("Left", "Left")
    assert window.run("return document.activeElement.getAttribute('aria-label')") == "start"
    with torch.no_grad():
        ids = torch_inputs(record(window)["inputs"])["input_ids"]
        best = lab.model.generate(ids, num_beams=3, max_new_tokens=60, do_sample=False)[0, 1:].tolist()
    assert window.run("return lab.sessions[0].analysis.generation.tokens") == best
    scores = window.run("return [...document.querySelectorAll('[role=treeitem]')].map((n) => Number(n.dataset.score))")
    np.testing.assert_allclose(sorted(scores[1:]), sorted(each["score"] for each in tree), **CLOSE)
    assert window.console_messages() == []


def test_temperature_and_top_k(window, labs):
    lab = labs("gpt")
    window.open(lab.page)
    sliders = "const [heat, top] = document.querySelectorAll('.dial input');"
    move = "slider.value = value; slider.dispatchEvent(new Event('input'));"
    window.run(f"{sliders} for (const [slider, value] of [[heat, 0.5], [top, 4]]) {{ {move} }}")
    found = record(window)
    step = window.run("return lab.place('source', lab.sessions[0].analysis.source.length)")
    logits = torch_logits(lab.model, found).logits[0, step].double()
    best = logits.topk(4).values
    np.testing.assert_allclose(values(window, ".bars li")[:4], torch.softmax(best / 0.5, -1).numpy(), **CLOSE)
    before = window.run("return lab.input.text")
    window.click(".bars li:nth-child(2) button")
    assert window.run("return lab.input.text") != before
    window.run("document.getElementById('writing').open = true")
    window.click("#search input[value='sample']")
    once = record(window)["inputs"]
    window.run("const s = document.getElementById('seed'); s.value = 7; s.dispatchEvent(new Event('change'))")
    other = record(window)["inputs"]
    window.run("const s = document.getElementById('seed'); s.value = 0; s.dispatchEvent(new Event('change'))")
    assert record(window)["inputs"] == once != other


def test_a_typed_target_is_continued(window, labs):
    """The decoder reads what was typed, or a token that was chosen, and goes on as generate() does."""
    lab = labs("transformer")
    window.open(lab.page)
    window.run("document.getElementById('writing').open = true")
    type_text(window, "#target", "the cat")
    found = record(window)
    forced = lab.tokenizer("the cat").input_ids[:-1]
    assert found["inputs"]["decoderInputIds"][1 : 1 + len(forced)] == forced
    start = torch.tensor([[lab.tokenizer.bos_token_id, *forced]])
    with torch.no_grad():
        ids = torch_inputs(found["inputs"])["input_ids"]
        written = lab.model.generate(ids, decoder_input_ids=start, max_new_tokens=60, do_sample=False)[0].tolist()
    shown = window.run("return lab.sessions[0].analysis.target.map(({ id }) => id)")
    assert shown == written[1 : 1 + len(shown)] and len(shown) > len(forced)
    type_text(window, "#target", "")
    choose_tab(window, "predictions")
    names = texts(window, ".bars .name")
    other = next(i for i, name in enumerate(names) if i and name.isalnum())
    window.click(f".bars li:nth-child({other + 1}) button")
    assert texts(window, ".bars .chosen .name") == [names[other]]


def test_a_mask_is_put_anywhere(window, labs):
    lab = labs("bert")
    window.open(lab.page)
    type_text(window, "#text", "the cat sat on the mat")
    places = [i for i, token in enumerate(texts(window, ".token-row .chip .label")) if not token.startswith("[")]
    window.click(f".token-row .chip:nth-child({places[2] + 1})")
    ids = record(window)["inputs"]["inputIds"]
    masks = [place for place, token in enumerate(ids) if token == lab.tokenizer.mask_token_id]
    assert len(masks) == 1 and "[MASK]" in window.run("return lab.input.text")
    logits = logits_of(torch_logits(lab.model, record(window)))[0, masks[0]]
    expected = logits.double().softmax(-1).sort(descending=True).values[:12].numpy()
    np.testing.assert_allclose(values(window, ".bars li"), expected, **CLOSE)
    window.click(".bars li:first-child button")
    assert "[MASK]" not in window.run("return lab.input.text")


def test_rungs_side_by_side(window, tmp_path):
    names = ["seq2seq", "bahdanau", "transformer"]
    models = {name: save_tiny(CASES[name], "char", tmp_path / name)[0] for name in names}
    build_lab([tmp_path / name for name in names], tmp_path / "lab.html", text="the cat")
    window.open(tmp_path / "lab.html")
    shown = ["transformer"] if window.is_phone else names
    assert window.run("return lab.shown") == shown
    if window.is_phone:
        for name in names[:2]:
            window.run("document.querySelector(`#models input[value='${arguments[0]}']`).click()", name)
    assert window.run("return lab.shown") == names
    type_text(window, "#text", "a mat")
    for number, name in enumerate(names):
        check_record(models[name], record(window, number))
    choose_tab(window, "attention")
    assert "seq2seq has no attention" in texts(window, ".column-body")[0]
    for name in names[1:]:
        window.run("document.querySelector(`#models input[value='${arguments[0]}']`).click()", name)
    assert window.run("return lab.names").count("attention") == 0 and window.run("return lab.view.id") == "predictions"


def test_checkpoints_show_it_learn(window, tmp_path):
    case = CASES["bahdanau"]
    final, _ = save_tiny(case, "word", tmp_path / "run")
    steps = {5: save_tiny(case, "word", tmp_path / "run" / "checkpoint-5", seed=1)[0]}
    steps[10] = save_tiny(case, "word", tmp_path / "run" / "checkpoint-10", seed=2)[0]
    made = build_lab([tmp_path / "run"], tmp_path / "lab.html", checkpoints=True, text=TEXT)
    assert made.checkpoints == {"run": [5, 10]} and made.left_out == 0
    window.open(tmp_path / "lab.html")
    check_record(final, record(window))
    window.run("document.querySelector('.column > .steps input').focus()")
    window.press("Left")
    assert "step 10" in texts(window, ".column > .steps .step-name")[0]
    check_record(steps[10], record(window))
    window.press("Left")
    check_record(steps[5], record(window))


def round_weights(model, folder, precision):
    """Give a model the weights that the page has; returns them as they are packed."""
    packed = load(pack(folder, precision))
    for name, tensor in packed.items():
        if not name.endswith(".scales"):
            scales = packed.get(f"{name}.scales")
            rounded = tensor.float() * (1 if scales is None else scales[:, None])
            model.load_state_dict({name: rounded}, strict=False)
    return packed


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_rounded_weights_are_what_the_page_says(window, tmp_path, precision):
    model, _ = save_tiny(CASES["gpt"], "bpe", tmp_path / "run", hidden_size=48, num_attention_heads=4)
    made = build_lab([tmp_path / "run"], tmp_path / "lab.html", precision=precision, text=TEXT)
    assert made.precision == precision
    packed = round_weights(model, tmp_path / "run", precision)
    assert (torch.int8 in {tensor.dtype for tensor in packed.values()}) == (precision == "int8")
    window.open(tmp_path / "lab.html")
    assert f"rounded to {precision}" in texts(window, "#precision")[0]
    check_record(model, record(window))


def test_a_long_text_is_cut_and_an_empty_one_is_a_sentence(window, labs):
    window.open(labs("bert").page)
    type_text(window, "#text", "the cat " * 300)
    assert "reads the first 120" in texts(window, ".warning")[0]
    assert len(record(window)["inputs"]["inputIds"]) == 120
    for view in window.run("return lab.names"):
        choose_tab(window, view)
    window.open(labs("recurrent").page)
    type_text(window, "#text", "the cat " * 300)
    assert "reads the first 400" in texts(window, ".warning")[0]
    type_text(window, "#text", "")
    assert window.run("return lab.sessions[0].analysis !== null")  # a language model starts from nothing
    window.open(labs("hierarchical").page)
    type_text(window, "#text", " ")
    assert "type at least one word" in texts(window, ".warning")[0]
    assert window.console_messages() == []


def test_it_is_used_by_keyboard_and_read_aloud(window, labs):
    window.open(labs("transformer").page)
    window.run("document.getElementById('tab-predictions').focus()")
    window.press("Right")
    assert window.run("return document.activeElement.id") == "tab-attention"
    unnamed = """
    const hasName = (node) => node.textContent.trim() || node.getAttribute('aria-label') || node.labels?.length;
    const nodes = [...document.querySelectorAll('button, input, select, textarea, [tabindex]')];
    return nodes.filter((node) => node.offsetParent && !hasName(node)).map((node) => node.outerHTML.slice(0, 90));"""
    for view in window.run("return lab.names"):
        choose_tab(window, view)
        assert window.run(unnamed) == [], view
    type_text(window, "#text", "the mat")
    time.sleep(0.3)
    assert "writes" in window.run("return document.getElementById('live').textContent")


def test_dark_mode_and_right_to_left(window, labs):
    window.open(labs("bahdanau").page)
    colour = "return getComputedStyle(document.body).backgroundColor"
    light = window.run(colour)
    window.click("#theme")
    assert window.run(colour) != light
    type_text(window, "#text", "שלום שלום")
    choose_tab(window, "tokens")
    assert window.run("return document.querySelector('.token-row').dir") == "rtl"
    assert window.run("return getComputedStyle(document.getElementById('text')).direction") == "rtl"


@pytest.mark.slow
def test_twenty_million_parameters_load(window, tmp_path):
    sizes = {"hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048, "num_hidden_layers": 6}
    model, _ = save_tiny(CASES["gpt"], "char", tmp_path / "run", **sizes)
    assert model.num_parameters() > 18_000_000
    made = build_lab([tmp_path / "run"], tmp_path / "lab.html", text="the cat sat")
    assert made.precision == "int8" and (tmp_path / "lab.html").stat().st_size < 30e6
    round_weights(model, tmp_path / "run", "int8")
    window.open(tmp_path / "lab.html")
    wait_for(window, "Boolean(window.lab?.sessions[0].analysis)")
    outputs = torch_logits(model, record(window))
    np.testing.assert_allclose(record(window)["arrays"]["logits"], outputs.logits[0].numpy(), rtol=1e-3, atol=1e-3)
