"""The lines of code that a card shows: how to load the model, and one use of it, by head. Tests run them all."""

from __future__ import annotations

from typing import Any

from .checkpoint import Checkpoint

PLACEHOLDER = "path/to/this/folder"
LONGEST_EXAMPLE = 300


def load_with_package(checkpoint: Checkpoint, name: str | None) -> str:
    """Loading where hf_edu_models is installed."""
    return _load(checkpoint, name, "import hf_edu_models  # makes the model known to transformers\n", "")


def load_without_package(checkpoint: Checkpoint, name: str | None) -> str:
    """Loading by the code that lies beside the weights."""
    return _load(checkpoint, name, "", ", trust_remote_code=True")


def use(checkpoint: Checkpoint) -> str | None:
    """What to do after loading; nothing can be shown without a tokenizer."""
    if not checkpoint.has_tokenizer:
        return None
    sample = (checkpoint.results.get("samples") or [{}])[0]
    return _USES[checkpoint.auto](checkpoint, sample)


def _load(checkpoint: Checkpoint, name: str | None, first: str, extra: str) -> str:
    classes = [checkpoint.auto, "AutoTokenizer"] if checkpoint.has_tokenizer else [checkpoint.auto]
    lines = [
        f"{first}from transformers import {', '.join(classes)}",
        "",
        f'name = "{name}"' if name else f'name = "{PLACEHOLDER}"  # or what it is called on the Hub',
        f"model = {checkpoint.auto}.from_pretrained(name{extra})",
    ]
    if checkpoint.has_tokenizer:
        # The tokenizer has no code of its own, but transformers reads the model's configuration for it, and would ask.
        lines.append(f"tokenizer = AutoTokenizer.from_pretrained(name{extra})")
    return "\n".join(lines)


def _example(sample: dict[str, Any], key: str, otherwise: Any) -> str:
    """A value of the run's first sample as Python writes it; the rest of a long text is left out."""
    value = sample.get(key) or otherwise
    return repr(value[:LONGEST_EXAMPLE] if isinstance(value, str) else value)


def _positions(checkpoint: Checkpoint) -> int | None:
    """How many tokens the model can read; None where any length will do."""
    if checkpoint.config.get("position_embedding_type") == "sinusoidal":
        return None
    return checkpoint.config.get("max_position_embeddings")


def _cut(checkpoint: Checkpoint, share: int = 1, what: str = "True") -> str:
    """What to tell the tokenizer where a text may be longer than the model can read."""
    positions = _positions(checkpoint)
    return f", truncation={what}, max_length={positions // share}" if positions else ""


def _new_tokens(checkpoint: Checkpoint, wanted: int) -> str:
    """How long to generate: what the checkpoint says, or a number that fits its positions."""
    if checkpoint.generation.get("max_length") or checkpoint.generation.get("max_new_tokens"):
        return ""
    positions = _positions(checkpoint)
    return f", max_new_tokens={min(wanted, positions // 2) if positions else wanted}"


def _translate(checkpoint: Checkpoint, sample: dict[str, Any]) -> str:
    length = _new_tokens(checkpoint, 64)
    beams = "" if (checkpoint.generation.get("num_beams") or 1) > 1 else ", num_beams=4"  # else as it was scored
    return f"""inputs = tokenizer([{_example(sample, "source", "5 March 2021")}]{_cut(checkpoint)}, return_tensors="pt")
outputs = model.generate(**inputs{beams}{length})
print(tokenizer.batch_decode(outputs, skip_special_tokens=True))"""


def _continue(checkpoint: Checkpoint, sample: dict[str, Any]) -> str:
    length = _new_tokens(checkpoint, 40)
    return f"""inputs = tokenizer({_example(sample, "prompt", "The")}{_cut(checkpoint, 2)}, return_tensors="pt")
outputs = model.generate(**inputs, do_sample=True, top_p=0.9{length})
print(tokenizer.decode(outputs[0], skip_special_tokens=True))"""


_FILL = """text = f"The children {tokenizer.mask_token} in the garden."
inputs = tokenizer(text, return_tensors="pt")
with torch.no_grad():
    scores = model(**inputs).LOGITS
masked = inputs.input_ids[0] == tokenizer.mask_token_id
print([tokenizer.decode(word) for word in scores[0, masked][0].topk(5).indices])"""


def _fill(checkpoint: Checkpoint, sample: dict[str, Any]) -> str:
    return "import torch\n\n" + _FILL.replace("LOGITS", "logits")


def _fill_pretrained(checkpoint: Checkpoint, sample: dict[str, Any]) -> str:
    return "import torch\n\n" + _FILL.replace("LOGITS", "prediction_logits")


def _follows(checkpoint: Checkpoint, sample: dict[str, Any]) -> str:
    return """import torch

inputs = tokenizer("The sun went down.", "It was dark soon.", return_tensors="pt")
with torch.no_grad():
    follows, does_not = model(**inputs).logits.softmax(-1)[0].tolist()
print(f"the second text follows the first: {follows:.0%}")"""


def _classify(checkpoint: Checkpoint, sample: dict[str, Any]) -> str:
    texts = _example(sample, "text", "A film to see twice.")
    if sample.get("text_pair"):
        texts += f", {_example(sample, 'text_pair', '')}"
    kind = checkpoint.config.get("problem_type")
    if kind == "regression":
        answer = "print(scores.item())"
    elif kind == "multi_label_classification":
        answer = "print([model.config.id2label[place] for place in (scores > 0).nonzero().flatten().tolist()])"
    else:
        answer = "print(model.config.id2label[scores.argmax().item()])"
    return f"""import torch

inputs = tokenizer({texts}{_cut(checkpoint)}, return_tensors="pt")
with torch.no_grad():
    scores = model(**inputs).logits[0]
{answer}"""


def _tag(checkpoint: Checkpoint, sample: dict[str, Any]) -> str:
    words = _example(sample, "tokens", ["Ada", "Lovelace", "lived", "in", "London"])
    return f"""import torch

words = {words}
inputs = tokenizer(words, is_split_into_words=True{_cut(checkpoint)}, return_tensors="pt")
with torch.no_grad():
    best = model(**inputs).logits[0].argmax(-1).tolist()
places = inputs.word_ids()  # of each piece; the first piece of a word has its tag
read = sorted(set(places) - {{None}})
print([(words[place], model.config.id2label[best[places.index(place)]]) for place in read])"""


def _answer(checkpoint: Checkpoint, sample: dict[str, Any]) -> str:
    question = _example(sample, "question", "Where did Ada live?")
    context = _example(sample, "context", "Ada Lovelace lived in London and wrote about Babbage's machine.")
    options = _cut(checkpoint, what='"only_second"') + ", return_offsets_mapping=True"
    return f"""import torch

question = {question}
context = {context}
inputs = tokenizer(question, context{options}, return_tensors="pt")
offsets = inputs.pop("offset_mapping")[0].tolist()
with torch.no_grad():
    outputs = model(**inputs)
outside = torch.tensor([part != 1 for part in inputs.sequence_ids()])
starts, ends = (scores[0].masked_fill(outside, float("-inf")) for scores in (outputs.start_logits, outputs.end_logits))
spans = starts[:, None] + ends[None, :]
spans[torch.ones_like(spans).tril(-1).bool()] = float("-inf")  # an answer does not end before it starts
first, last = divmod(spans.argmax().item(), len(ends))
print(context[offsets[first][0] : offsets[last][1]])"""


def _choose(checkpoint: Checkpoint, sample: dict[str, Any]) -> str:
    context = _example(sample, "context", "He opened his umbrella because")
    choices = _example(sample, "choices", ["it rained.", "it was noon."])
    return f"""import torch

context = {context}
choices = {choices}
inputs = tokenizer([context] * len(choices), choices, padding=True{_cut(checkpoint)}, return_tensors="pt")
with torch.no_grad():
    scores = model(**{{name: values[None] for name, values in inputs.items()}}).logits
print(choices[scores.argmax().item()])"""


def _embed(checkpoint: Checkpoint, sample: dict[str, Any]) -> str:
    text = _example(sample, "text", "A text to turn into vectors.")
    target = ", decoder_input_ids=inputs.input_ids" if checkpoint.config.get("is_encoder_decoder") else ""
    return f"""import torch

inputs = tokenizer({text}{_cut(checkpoint)}, return_tensors="pt")
with torch.no_grad():
    print(model(**inputs{target}).last_hidden_state.shape)"""


_USES = {
    "AutoModelForSeq2SeqLM": _translate,
    "AutoModelForCausalLM": _continue,
    "AutoModelForMaskedLM": _fill,
    "AutoModelForPreTraining": _fill_pretrained,
    "AutoModelForNextSentencePrediction": _follows,
    "AutoModelForSequenceClassification": _classify,
    "AutoModelForTokenClassification": _tag,
    "AutoModelForQuestionAnswering": _answer,
    "AutoModelForMultipleChoice": _choose,
    "AutoModel": _embed,
}
