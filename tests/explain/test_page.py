"""The page in a real browser, opened from disk with the network off; skipped, with the reason, where there is none."""

import base64
import hashlib
import re
import time
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from attenders import ENCODERS, TRANSLATORS
from browser import Browser, why_not
from hatchling.builders.wheel import WheelBuilder

import hf_edu_models
from hf_edu_models.data import train_tokenizer
from hf_edu_models.explain import attention_maps, save_attention

ROOT = Path(__file__).parents[2]
SOURCE = "<script>alert(1)</script> \"quoted\" 'single' </style> & שלום مرحبا chat"
TARGET = "a <b>cat</b> sat"


@pytest.fixture(scope="session")
def maps(tmp_path_factory):
    """A Transformer whose tokens are words, among them markup, quotes and words written from right to left."""
    folder = tmp_path_factory.mktemp("cache")
    tokenizer = train_tokenizer([SOURCE, TARGET], kind="word", task="seq2seq", vocab_size=99, cache_dir=folder)
    tokenizer.add_tokens(["<script>", "</script>"])  # so that markup is one token
    config = hf_edu_models.EduTransformerConfig(
        vocab_size=len(tokenizer), hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20
    )
    torch.manual_seed(0)
    model = hf_edu_models.EduTransformerForConditionalGeneration(config).eval()
    for parameter in model.parameters():
        if parameter.ndim == 2:  # with similar rows a wrong row would pass
            torch.nn.init.normal_(parameter)
    maps = attention_maps(model, tokenizer, SOURCE, target=TARGET)
    assert all(np.ptp(each.weights, axis=2).max(axis=-1).min() > 0.01 for each in maps.values())
    return maps


@pytest.fixture(scope="session")
def page(maps, tmp_path_factory):
    return save_attention(maps, tmp_path_factory.mktemp("page") / "map.html")


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    if why_not():
        pytest.skip(f"no browser to open the page in: {why_not()}")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def browser(window, page):
    window.open(page)
    return window


def texts(browser, selector):
    return browser.run("return [...document.querySelectorAll(arguments[0])].map((node) => node.textContent)", selector)


def weights_of(browser, selector):
    """The numbers that elements hold; three digits of each are shown."""
    script = "return [...document.querySelectorAll(arguments[0])].map((node) => [node.dataset.value, node.textContent])"
    pairs = browser.run(script, selector)
    assert all(abs(float(text) - float(value)) < 6e-4 and len(text.partition(".")[2]) == 3 for value, text in pairs)
    return [float(value) for value, _ in pairs]


def announced(browser):
    """The text for screen readers, which the page sets after a short delay."""
    time.sleep(0.2)
    return browser.run("return document.getElementById('live').textContent")


class Blocks(HTMLParser):
    """The scripts and styles of a page, as any reader of HTML finds them."""

    def __init__(self, text):
        super().__init__()
        self.found, self.links, self.inside = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.links += [value for name, value in attributes.items() if name in ("src", "href", "action", "srcset")]
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        if tag in ("script", "style"):
            self.inside = [tag, attributes.get("type"), ""]

    def handle_data(self, data):
        if self.inside:
            self.inside[2] += data

    def handle_endtag(self, tag):
        if self.inside and tag == self.inside[0]:
            self.found.append(tuple(self.inside))
            self.inside = None


def test_the_file_asks_for_nothing_and_allows_nothing_but_itself(page):
    text = page.read_text()
    blocks = Blocks(text)
    assert blocks.links == ["#views"] and "http://" not in text and "https://" not in text
    policy = re.search('Content-Security-Policy" content="([^"]*)"', text)[1]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    active = [content for tag, kind, content in blocks.found if tag == "style" or kind is None]
    assert len(active) == 2
    for content in active:
        assert f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'" in policy


def test_user_text_cannot_leave_its_block(page):
    data = page.read_text().split('id="data">')[1].split("</script>")[0]
    assert "\\u003cscript\\u003e" in data and not set("<>&\u2028\u2029") & set(data)


def test_the_wheel_carries_the_parts_of_the_page(tmp_path):
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    names = zipfile.ZipFile(wheel).namelist()
    assert {f"hf_edu_models/explain/attention/assets/page.{kind}" for kind in ("html", "css", "js")} <= set(names)
    assert {f"hf_edu_models/pages/assets/{name}" for name in ("base.css", "dom.js", "colours.js")} <= set(names)


def test_it_opens_with_no_console_message_and_no_request(browser, page):
    assert browser.run("return document.title") == SOURCE
    for view in ("links", "heat", "heads", "product", "table"):
        browser.click(f"#tab-{view}")
    assert browser.console_messages() == []
    assert browser.requests() == [page.resolve().as_uri()]


def test_the_policy_holds(browser):
    """A request that somebody puts into the page is stopped."""
    browser.run("const image = new Image(); image.src = 'http://127.0.0.1:9/x.png'; document.body.append(image)")
    assert any("Content Security Policy" in message for message in browser.console_messages())


def test_tokens_stay_text(browser, maps):
    assert "<script>" in maps["cross"].key_tokens and '"' in maps["cross"].key_tokens
    for view in ("links", "heat", "heads", "product", "table"):
        browser.click(f"#tab-{view}")
    assert texts(browser, "#columns .label") == maps["cross"].key_tokens
    assert texts(browser, "#rows .label") == maps["cross"].query_tokens
    assert texts(browser, "#texts dd") == [SOURCE, TARGET]
    assert browser.run("return document.querySelectorAll('body script').length") == 2 + 3 * len(maps)
    assert browser.run("return document.querySelectorAll('dd b, .label b, td b, th b').length") == 0


def test_hovering_a_token_shows_its_links(browser, maps):
    rest = browser.pixels("#active-lines")
    browser.hover("#rows li:nth-child(2)")
    over_row = browser.pixels("#active-lines")
    shown = browser.run("return [...document.querySelectorAll('#columns li')].map((item) => item.dataset.weight)")
    np.testing.assert_allclose([float(text) for text in shown], maps["cross"].weights[0, 0, 1], rtol=0, atol=1e-6)
    browser.hover("#columns li:nth-child(3)")
    over_column = browser.pixels("#active-lines")
    shown = browser.run("return [...document.querySelectorAll('#rows li')].map((item) => item.dataset.weight)")
    np.testing.assert_allclose([float(text) for text in shown], maps["cross"].weights[0, 0, :, 2], rtol=0, atol=1e-6)
    assert len({rest, over_row, over_column}) == 3
    browser.hover("h1")
    assert browser.pixels("#active-lines") == rest
    assert browser.run("return document.querySelectorAll('.tokens .active').length") == 0


def test_a_click_pins_a_token(browser):
    browser.click("#rows li:nth-child(2)")
    browser.hover("#rows li:nth-child(4)")
    assert browser.run("return document.querySelector('.tokens .active').dataset.index") == "1"


def test_selecting_map_layer_and_head_changes_the_lines(browser, maps):
    drawn = [browser.pixels("#all-lines")]
    for choice in ("#head-choice input[value='2']", "#layer-choice input[value='1']", "#map-choice input[value='0']"):
        browser.click(choice)
        drawn.append(browser.pixels("#all-lines"))
    assert len(set(drawn)) == len(drawn)
    assert texts(browser, "#rows .label") == maps["encoder"].query_tokens


@pytest.mark.parametrize("name", ["encoder", "decoder", "cross"])
def test_the_table_has_the_models_numbers(browser, maps, name):
    browser.click(f"#map-choice input[value='{list(maps).index(name)}']")
    browser.click("#tab-table")
    for layer, head in ((0, 0), (1, 2)):
        browser.click(f"#layer-choice input[value='{layer}']")
        browser.click(f"#head-choice input[value='{head}']")
        shown = np.array(weights_of(browser, ".weights tbody td")).reshape(maps[name].weights.shape[2:])
        np.testing.assert_allclose(shown, maps[name].weights[layer, head], rtol=0, atol=1e-6)
    assert texts(browser, ".weights thead th") == maps[name].key_tokens
    assert texts(browser, ".weights tbody th") == maps[name].query_tokens
    browser.click("#head-choice input[value='mean']")
    shown = np.array(weights_of(browser, ".weights tbody td")).reshape(maps[name].weights.shape[2:])
    np.testing.assert_allclose(shown, maps[name].head(1), rtol=0, atol=1e-6)


def test_the_strongest_links_are_listed(browser, maps):
    weights = maps["cross"].weights[0, 0]
    row, column = np.unravel_index(weights.argmax(), weights.shape)
    first = browser.run(
        "const item = document.querySelector('#summary li'); return [item.dataset.row, item.dataset.column]"
    )
    assert first == [str(row), str(column)]
    assert weights_of(browser, "#summary .number")[0] == pytest.approx(weights.max(), abs=1e-6)
    browser.hover("#rows li:nth-child(1)")
    best = maps["cross"].key_tokens[weights[0].argmax()]
    assert f"“{best}”" in announced(browser).split("attends most to ")[1].split(",")[0]


def test_all_heads_are_tiles_and_a_tile_selects_its_head(browser, maps):
    browser.click("#tab-heads")
    tiles = browser.run("return [...document.querySelectorAll('#tiles canvas')].map((canvas) => canvas.toDataURL())")
    assert len(tiles) == len(set(tiles)) == 2 * 3
    browser.click("#tiles [data-layer='1'][data-head='2']")
    assert browser.run("return document.querySelector('#head-choice input:checked').value") == "2"
    assert browser.run("return document.querySelector('#layer-choice input:checked').value") == "1"
    assert not browser.run("return document.getElementById('panel-heat').hidden")
    shown = float(texts(browser, "#heat-readout .number")[0])
    assert shown == pytest.approx(maps["cross"].weights[1, 2, 0, 0], abs=1e-6)


def test_the_heat_map_reads_the_cell_below_the_mouse(browser, maps):
    browser.click("#tab-heat")
    rows, columns = maps["cross"].weights.shape[2:]
    width, height = browser.run(
        "const c = document.getElementById('heat-canvas'); return [c.clientWidth, c.clientHeight]"
    )
    x, y = round(width / columns * (4.5 - columns / 2)), round(height / rows * (2.5 - rows / 2))
    browser.hover("#heat-canvas", x, y)
    assert float(texts(browser, "#heat-readout .number")[0]) == pytest.approx(
        maps["cross"].weights[0, 0, 2, 4], abs=1e-6
    )


def test_the_product_is_shown_element_by_element(browser, maps):
    browser.click("#tab-product")
    each = maps["cross"]
    query, keys = each.vectors.queries[0, 0, 0], each.vectors.keys[0, 0]
    scores = np.array(texts(browser, "#product-rows .score"), dtype=float)
    np.testing.assert_allclose(scores, each.vectors.scores()[0, 0, 0], rtol=0, atol=1e-4)
    weights = np.array(weights_of(browser, "#product-rows .weight"))
    np.testing.assert_allclose(weights, each.weights[0, 0, 0], rtol=0, atol=1e-6)
    lines = np.array(texts(browser, "#elements td"), dtype=float).reshape(4, -1)
    expected = [query, keys[0], query * keys[0], np.cumsum(query * keys[0])]
    np.testing.assert_allclose(lines, expected, rtol=0, atol=1e-3)
    browser.run("document.getElementById('product-table').focus()")
    browser.press("Down", "Right")
    lines = np.array(texts(browser, "#elements td"), dtype=float).reshape(4, -1)
    np.testing.assert_allclose(lines[1], keys[1], rtol=0, atol=1e-3)
    assert announced(browser).startswith(f"“{each.key_tokens[1]}”") and "element 1:" in announced(browser)


def test_scores_behind_a_causal_mask_are_called_masked(browser, maps):
    browser.click("#map-choice input[value='1']")
    browser.click("#tab-product")
    scores = texts(browser, "#product-rows .score")
    assert scores[0] != "masked" and set(scores[1:]) == {"masked"}
    browser.click("#map-choice input[value='0']")
    assert "masked" not in texts(browser, "#product-rows .score")


def test_everything_is_reached_by_keyboard(browser, maps):
    def focus():
        return browser.run("const node = document.activeElement; return node.id || node.name || node.parentNode.id")

    stops = []
    for _ in range(12):
        browser.press("Tab")
        stops.append(focus())
    order = ["theme", "map-choice", "layer-choice", "head-choice", "tab-links", "rows", "columns"]
    positions = [stops.index(stop) for stop in order]
    assert positions == sorted(positions)

    browser.run("document.querySelector('#head-choice input:checked').focus()")
    browser.press("Right")
    assert browser.run("return document.querySelector('#head-choice input:checked').value") == "1"
    browser.run("document.querySelector('#rows li').focus()")
    browser.press("Down", "Down")
    assert browser.run("return document.querySelector('.tokens .active').dataset.index") == "2"
    assert "Layer 0, head 1." in announced(browser) and "attends most to" in announced(browser)
    browser.press("Right")
    assert browser.run("return document.activeElement.parentNode.id") == "columns"
    assert "receives most attention from" in announced(browser)
    browser.run("document.getElementById('tab-links').focus()")
    browser.press("Right", "Right")
    assert focus() == "tab-heads" and not browser.run("return document.getElementById('panel-heads').hidden")
    browser.press("Tab", "Tab", "Down", "Enter")
    assert browser.run("return document.querySelector('#layer-choice input:checked').value") == "1"
    assert focus() == "heat-field"
    browser.press("Down", "Right")
    assert float(texts(browser, "#heat-readout .number")[0]) == pytest.approx(
        maps["cross"].weights[1, 1, 3, 1], abs=1e-6
    )


def test_every_part_has_a_name_for_a_screen_reader(browser):
    """By the browser's own computation of names."""
    selectors = ["#theme", "#tabs", "#tab-heat", "#rows", "#columns", "#rows li", "#map-choice input", "#controls"]
    for selector in selectors:
        element = next(iter(browser.find(selector).values()))
        assert browser.ask(f"/element/{element}/computedlabel", method="GET"), selector
    for selector, role in {"#tabs": "tablist", "#rows": "listbox", "#rows li": "option", "#live": "status"}.items():
        element = next(iter(browser.find(selector).values()))
        assert browser.ask(f"/element/{element}/computedrole", method="GET") == role


def test_right_to_left_tokens_run_from_right_to_left(browser):
    direction = """
        const labels = [...document.querySelectorAll('#columns .label')];
        return getComputedStyle(labels.find((node) => node.textContent === arguments[0])).direction"""
    assert browser.run(direction, "שלום") == browser.run(direction, "مرحبا") == "rtl"
    assert browser.run(direction, "chat") == "ltr"


def test_the_theme_follows_the_browser_or_the_button(browser, page, tmp_path):
    colour = "return getComputedStyle(document.body).backgroundColor"

    def brightness(text):
        return sum(int(number) for number in re.findall(r"\d+", text)[:3])

    light, drawn = browser.run(colour), browser.pixels("#all-lines")
    browser.click("#theme")
    dark = browser.run(colour)
    assert brightness(dark) < 150 < 600 < brightness(light) and browser.pixels("#all-lines") != drawn
    browser.click("#theme")
    assert browser.run(colour) == light
    media = {
        "cmd": "Emulation.setEmulatedMedia",
        "params": {"features": [{"name": "prefers-color-scheme", "value": "dark"}]},
    }
    browser.ask("/goog/cdp/execute", media)
    browser.open(page)
    assert browser.run(colour) == dark
    media["params"]["features"][0]["value"] = "light"
    browser.ask("/goog/cdp/execute", media)


def test_one_head_and_scores_that_are_not_dot_products(window, built, tmp_path):
    """Bahdanau: no controls, and no tabs for the dot product and for other heads."""
    maps = attention_maps(*built(TRANSLATORS[0]), "le chat", target="cat")
    window.open(save_attention(maps, tmp_path / "map.html"))
    shown = "return [...document.querySelectorAll('fieldset')].map((node) => node.hidden)"
    assert window.run(shown) == [True, True, True]
    tabs = "return [...document.querySelectorAll('[role=tab]')].filter((node) => !node.hidden).map((node) => node.id)"
    assert window.run(tabs) == ["tab-links", "tab-heat", "tab-table"]
    window.click("#tab-heat")
    window.find("#tab-heat")
    window.run("document.getElementById('tab-heat').focus()")
    window.press("Right")
    assert window.run("return document.activeElement.id") == "tab-table"
    assert window.console_messages() == []


def test_the_mean_shows_every_head_in_its_colour(browser, maps):
    browser.click("#head-choice input[value='mean']")
    heads = maps["cross"].weights.shape[1]
    assert texts(browser, "#head-colours span") == [f"head {head}" for head in range(heads)]
    script = "return [...document.querySelectorAll('#head-colours span')].map((node) => node.style.cssText)"
    assert len(set(browser.run(script))) == heads


def test_a_page_opens_with_the_given_head(window, built, tmp_path):
    maps = attention_maps(*built(ENCODERS[0]), "le chat", text_pair="the cat")
    window.open(save_attention(maps, tmp_path / "map.html", layer=1, head=2))
    checked = "return [...document.querySelectorAll('fieldset input:checked')].map((node) => node.name + node.value)"
    assert window.run(checked) == ["map-choice0", "layer-choice1", "head-choice2"]
    assert texts(window, "#texts dd") == ["le chat", "the cat"]
