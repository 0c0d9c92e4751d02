"""Labs of tiny models with tokenizers, and what a browser reads from them."""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tiny import Case

from hf_edu_models.data import train_tokenizer
from hf_edu_models.lab import build_lab

HOSTILE = "<script>alert(1)</script> \"q\" 'x' </style> {{data}} ${y} \u202eevil\u202c & שלום 日本 e\u0301"
TEXTS = ["the cat sat on the mat", "le chat noir dort là", HOSTILE, "Dogs bark! Cats don't."]
TEXT, PAIR = "the cat sat. the dog, on the mat!", "le chat dort\nthe mat"


@dataclass(frozen=True)
class TinyLab:
    """A tiny model with a tokenizer, and its page."""

    model: torch.nn.Module
    tokenizer: object
    folder: Path
    page: Path


def save_tiny(case: Case, kind: str, folder: Path, seed: int = 0, **changes) -> tuple:
    """A tiny model and a tokenizer of its rung, saved; returns both."""
    rung = case.rung
    size = {"bpe": 300, "unigram": 480}.get(kind, 200)
    tokenizer = train_tokenizer(
        TEXTS, kind=kind, vocab_size=size, task=rung.tokenizer, cache_dir=folder.parent / "cache"
    )
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "bos", "eos")}
    if rung.tokenizer == "seq2seq":
        ids["decoder_start_token_id"] = tokenizer.bos_token_id
    known = {name: value for name, value in ids.items() if value is not None}
    longer = {"max_position_embeddings": 120} if "max_position_embeddings" in case.settings else {}
    model = case.build(seed=seed, form="eager", vocab_size=len(tokenizer), **known, **longer, **changes)
    if hasattr(model, "lm_head") and getattr(model.lm_head, "bias", None) is not None:
        torch.nn.init.normal_(model.lm_head.bias)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def tiny_lab(case: Case, kind: str, folder: Path, text: str = TEXT, **options) -> TinyLab:
    model, tokenizer = save_tiny(case, kind, folder)
    build_lab([folder], folder / "lab.html", text=text, **options)
    return TinyLab(model, tokenizer, folder, folder / "lab.html")


def record(browser, session: int = 0) -> dict:
    """The inputs that the page's model read, and the arrays of its record."""
    script = """
    const { analysis } = lab.sessions[arguments[0]];
    const plain = ({ name, kind, shape, data }) => ({ name, kind, shape, data: [...data] });
    const entries = analysis.record.entries.map(plain);
    return { inputs: analysis.inputs, entries, written: analysis.written ?? null };"""
    found = browser.run(script, session)
    arrays = {
        each["name"]: np.array(each["data"], dtype=np.float64).reshape(each["shape"]) for each in found["entries"]
    }
    kinds = {each["name"]: each["kind"] for each in found["entries"]}
    return {"inputs": found["inputs"], "arrays": arrays, "kinds": kinds, "written": found["written"]}


def torch_inputs(inputs: dict) -> dict:
    """The page's inputs as a batch of one row; rows of different lengths are padded."""
    names = {"inputIds": "input_ids", "decoderInputIds": "decoder_input_ids", "tokenTypeIds": "token_type_ids"}
    batch = {}
    for name, values in inputs.items():
        if values is None:
            continue
        if values and isinstance(values[0], list):
            longest = max(map(len, values))
            batch[names[name]] = torch.tensor([[row + [0] * (longest - len(row)) for row in values]])
            mask = torch.tensor([[[1] * len(row) + [0] * (longest - len(row)) for row in values]])
            batch["attention_mask"] = mask
        else:
            batch[names[name]] = torch.tensor([values])
    return batch


def type_text(browser, selector: str, text: str) -> None:
    """Replace the text of a field, as a user does, and wait until the models have read it."""
    element = browser.find(selector)
    browser.run("arguments[0].focus(); arguments[0].select()", element)
    if text and all(ord(character) < 0x10000 for character in text):
        browser.ask(f"/element/{next(iter(element.values()))}/value", {"text": text})
    else:  # the driver types no other characters
        script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))"
        browser.run(script, element, text)
    wait_for(browser, "lab.input[arguments[0]] === arguments[1] && !lab.isWaiting", selector[1:], text)


def wait_for(browser, condition: str, *arguments) -> None:
    for _ in range(200):
        if browser.run(f"return {condition}", *arguments):
            return
        time.sleep(0.03)
    raise AssertionError(f"never true: {condition}")


def values(browser, selector: str) -> np.ndarray:
    script = "return [...document.querySelectorAll(arguments[0])].map((node) => Number(node.dataset.value))"
    return np.array(browser.run(script, selector))


def texts(browser, selector: str) -> list[str]:
    return browser.run("return [...document.querySelectorAll(arguments[0])].map((node) => node.textContent)", selector)
