"""The code on a card: loading the model, and one usage example per task. Tests run all of it."""

from __future__ import annotations

from typing import Any

from ...checkpoints import Checkpoint, position_limit
from ...tasks import task_of_head

PLACEHOLDER = "path/to/this/folder"
_MAX_CHARACTERS = 300


def loading_code(checkpoint: Checkpoint, repo_id: str | None, trust_remote_code: bool) -> str:
    """Load with the code in the checkpoint, or with hf_edu_models installed."""
    registration = "" if trust_remote_code else "import hf_edu_models  # registers the model with transformers\n"
    options = ", trust_remote_code=True" if trust_remote_code else ""
    classes = {"model": checkpoint.auto}
    if checkpoint.has_tokenizer:
        # It has no code of its own, but transformers reads the model's configuration first, which has.
        classes["tokenizer"] = "AutoTokenizer"
    lines = [
        f"{registration}from transformers import {', '.join(classes.values())}",
        "",
        f'name = "{repo_id}"' if repo_id else f'name = "{PLACEHOLDER}"  # or its Hub id',
        *(f"{variable} = {each}.from_pretrained(name{options})" for variable, each in classes.items()),
    ]
    return "\n".join(lines)


def usage_example(checkpoint: Checkpoint) -> str | None:
    """An example of use after loading; None if the tokenizer that it needs is missing."""
    task = task_of_head(checkpoint.architecture)
    if not checkpoint.has_tokenizer and not task.values:
        return None
    sample = (checkpoint.results.get("samples") or [{}])[0]
    return task.code("snippet")(checkpoint, sample)


def _example(sample: dict[str, Any], key: str, default: Any) -> str:
    """A value of the run's first sample as a Python literal, truncated."""
    value = sample.get(key) or default
    return repr(value[:_MAX_CHARACTERS] if isinstance(value, str) else value)


def _truncation(checkpoint: Checkpoint, share: int = 1, strategy: str = "True") -> str:
    """Arguments of the tokenizer that truncate a text to the model's positions, or to a share of them."""
    positions = position_limit(checkpoint.config)
    return f", truncation={strategy}, max_length={positions // share}" if positions else ""


def _max_new_tokens(checkpoint: Checkpoint, count: int) -> str:
    """An argument of `generate()` that fits the model's positions; none if the checkpoint has a length of its own."""
    if checkpoint.generation.get("max_length") or checkpoint.generation.get("max_new_tokens"):
        return ""
    positions = position_limit(checkpoint.config)
    return f", max_new_tokens={min(count, positions // 2) if positions else count}"


def translate(checkpoint: Checkpoint, sample: dict[str, Any]) -> str:
    length = _max_new_tokens(checkpoint, 64)
    # The number of beams that a run was scored with, 1 if greedily, is in its generation config.
    beams = "" if checkpoint.generation.get("num_beams") else ", num_beams=4"
    source = _example(sample, "source", "5 March 2021")
    return f"""inputs = tokenizer([{source}]{_truncation(checkpoint)}, return_tensors="pt")
outputs = model.generate(**inputs{beams}{length})
print(tokenizer.batch_decode(outputs, skip_special_tokens=True))"""


def generate(checkpoint: Checkpoint, sample: dict[str, Any]) -> str:
    length = _max_new_tokens(checkpoint, 40)
    return f"""inputs = tokenizer({_example(sample, "prompt", "The")}{_truncation(checkpoint, 2)}, return_tensors="pt")
outputs = model.generate(**inputs, do_sample=True, top_p=0.9{length})
print(tokenizer.decode(outputs[0], skip_special_tokens=True))"""


def fill_mask(checkpoint: Checkpoint, sample: dict[str, Any], logits: str = "logits") -> str:
    return f"""import torch

text = f"The children {{tokenizer.mask_token}} in the garden."
inputs = tokenizer(text, return_tensors="pt")
with torch.no_grad():
    logits = model(**inputs).{logits}
is_masked = inputs.input_ids[0] == tokenizer.mask_token_id
print([tokenizer.decode(token) for token in logits[0, is_masked][0].topk(5).indices])"""


def fill_mask_pretraining(checkpoint: Checkpoint, sample: dict[str, Any]) -> str:
    return fill_mask(checkpoint, sample, logits="prediction_logits")


def mix_layers(checkpoint: Checkpoint, sample: dict[str, Any]) -> str:
    return """import torch

inputs = tokenizer("They rest on the bank of the river.", return_tensors="pt")
with torch.no_grad():
    layers = model(**inputs, output_hidden_states=True).hidden_states  # token vectors, then the states of each layer
print(torch.stack(layers).mean(0).shape)  # one vector for each token; a task learns how much each layer counts"""


def predict_next_sentence(checkpoint: Checkpoint, sample: dict[str, Any]) -> str:
    return """import torch

inputs = tokenizer("The sun went down.", "It was dark soon.", return_tensors="pt")
with torch.no_grad():
    is_next, is_random = model(**inputs).logits.softmax(-1)[0].tolist()
print(f"probability that the second text follows the first: {is_next:.0%}")"""


def nearest_words(checkpoint: Checkpoint, sample: dict[str, Any]) -> str:
    return f"""import torch

word = {_example(sample, "word", "day")}
with torch.no_grad():
    vectors = torch.nn.functional.normalize(model.get_input_embeddings()(torch.arange(len(tokenizer))), dim=-1)
(word_id,) = tokenizer(" " + word, add_special_tokens=False).input_ids[-1:]
nearest = (vectors @ vectors[word_id]).topk(6).indices.tolist()
print(tokenizer.convert_ids_to_tokens(nearest))"""


def _tokenize(checkpoint: Checkpoint, sample: dict[str, Any], default: str) -> str:
    """The line that makes `inputs` of a text, a pair of texts, or a document that is a list of sentences."""
    if "sentences" in checkpoint.rung.inputs.get("input_ids", ()):
        sentences = _example(sample, "sentences", [default, "It is short."])
        return f"""inputs = tokenizer({sentences}, padding=True{_truncation(checkpoint)}, return_tensors="pt")
inputs = {{name: values[None] for name, values in inputs.items()}}  # a batch of one document"""
    texts = _example(sample, "text", default)
    if sample.get("text_pair"):
        texts += f", {_example(sample, 'text_pair', '')}"
    return f'inputs = tokenizer({texts}{_truncation(checkpoint)}, return_tensors="pt")'


def classify(checkpoint: Checkpoint, sample: dict[str, Any]) -> str:
    problem_type = checkpoint.config.get("problem_type")
    if problem_type == "regression":
        prediction = "print(logits.item())"
    elif problem_type == "multi_label_classification":
        prediction = "print([model.config.id2label[label] for label in (logits > 0).nonzero().flatten().tolist()])"
    else:
        prediction = "print(model.config.id2label[logits.argmax().item()])"
    return f"""import torch

{_tokenize(checkpoint, sample, "A film to see twice.")}
with torch.no_grad():
    logits = model(**inputs).logits[0]
{prediction}"""


def tag(checkpoint: Checkpoint, sample: dict[str, Any]) -> str:
    words = _example(sample, "tokens", ["Ada", "Lovelace", "lived", "in", "London"])
    return f"""import torch

words = {words}
inputs = tokenizer(words, is_split_into_words=True{_truncation(checkpoint)}, return_tensors="pt")
with torch.no_grad():
    labels = model(**inputs).logits[0].argmax(-1).tolist()
word_ids = inputs.word_ids()  # the tag of a word is predicted at its first subword
print([(words[n], model.config.id2label[labels[word_ids.index(n)]]) for n in sorted(set(word_ids) - {{None}})])"""


def answer(checkpoint: Checkpoint, sample: dict[str, Any]) -> str:
    question = _example(sample, "question", "Where did Ada live?")
    context = _example(sample, "context", "Ada Lovelace lived in London and wrote about Babbage's machine.")
    options = _truncation(checkpoint, strategy='"only_second"') + ", return_offsets_mapping=True"
    return f"""import torch

question = {question}
context = {context}
inputs = tokenizer(question, context{options}, return_tensors="pt")
offsets = inputs.pop("offset_mapping")[0].tolist()
with torch.no_grad():
    outputs = model(**inputs)
outside = torch.tensor([sequence != 1 for sequence in inputs.sequence_ids()])
starts, ends = (logits[0].masked_fill(outside, float("-inf")) for logits in (outputs.start_logits, outputs.end_logits))
spans = starts[:, None] + ends[None, :]
spans[torch.ones_like(spans).tril(-1).bool()] = float("-inf")  # an answer does not end before it starts
first, last = divmod(spans.argmax().item(), len(ends))
print(context[offsets[first][0] : offsets[last][1]])"""


def choose(checkpoint: Checkpoint, sample: dict[str, Any]) -> str:
    context = _example(sample, "context", "He opened his umbrella because")
    choices = _example(sample, "choices", ["it rained.", "it was noon."])
    return f"""import torch

context = {context}
choices = {choices}
inputs = tokenizer([context] * len(choices), choices, padding=True{_truncation(checkpoint)}, return_tensors="pt")
with torch.no_grad():
    logits = model(**{{name: values[None] for name, values in inputs.items()}}).logits
print(choices[logits.argmax().item()])"""


def extract_features(checkpoint: Checkpoint, sample: dict[str, Any]) -> str:
    target = ", decoder_input_ids=inputs.input_ids" if checkpoint.config.get("is_encoder_decoder") else ""
    return f"""import torch

{_tokenize(checkpoint, sample, "A text to turn into vectors.")}
with torch.no_grad():
    print(model(**inputs{target}).last_hidden_state.shape)"""


def forecast(checkpoint: Checkpoint, sample: dict[str, Any]) -> str:
    length, channels = (checkpoint.config[name] for name in ("context_length", "num_input_channels"))
    return f"""import torch

past = torch.randn(1, {length}, {channels}).cumsum(1)  # put your own series here, in its own units
values, weights = model.forecast(past)
print(values[0].tolist())"""


def regress(checkpoint: Checkpoint, sample: dict[str, Any]) -> str:
    features = _example(sample, "features", [0.5] * checkpoint.config["input_size"])
    return f"""import torch

with torch.no_grad():
    outputs = model(torch.tensor([{features}]), output_attentions=True)
print(outputs.logits[0].tolist())
heaviest = outputs.attentions[0][0].argmax().item()
print("most weight has the pair", model.memory.keys[heaviest].tolist(), model.memory.values[heaviest].tolist())"""
