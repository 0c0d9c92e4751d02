"""Right and wrong calls of every head, and what becomes of them.

A call is a valid batch with one or two changes. A change says what must follow: the result of the valid batch
(`EQUAL`), or an error of one sentence (`REJECT`); so an answer that is wrong in silence is found.

    python tests/models/fuzz.py 5000      # the table of outcomes by rung, each rung in a process of its own
"""

import linecache
import math
import random
import subprocess
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from tiny import ALL, Case, inputs_for, targets_for
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

import hf_edu_models
from hf_edu_models.models.blocks_cache import RecurrentCache

REJECT, EQUAL = "reject", "equal"
RIGHT, SENTENCE, TRACEBACK, SILENT, REFUSED, CRASH = OUTCOMES = (
    "accepted, right",
    "rejected, sentence",
    "traceback",
    "silent wrong",
    "rejected, but valid",
    "crash",
)
PACKAGE = str(Path(hf_edu_models.__file__).parent / "models")


@dataclass(frozen=True)
class Change:
    """A change of one keyword argument.

    Args:
        make: from a valid call to the changed one; None where it does not apply.
        can_crash: whether it has ended the process before; such changes are first tried in another process.
    """

    argument: str
    name: str
    expected: str
    make: Callable[[dict, Case], dict | None]
    can_crash: bool = False

    def __str__(self) -> str:
        return f"{self.argument}: {self.name}"


@cache
def model_of(case: Case, form: str):
    return case.build(form=form)


def _model_part(case: Case):
    return model_of(case, "fused").model


@torch.no_grad()
def embed(case: Case, ids):
    return model_of(case, "fused").get_input_embeddings()(ids)


@torch.no_grad()
def embed_target(case: Case, ids):
    table = _model_part(case).get_decoder().embed_tokens
    return embed(case, ids) if table is None else table(ids)


def _ignore_padding(targets: dict, mask) -> dict:
    """Labels of -100 at padding, and at the last token, as collators make them."""
    for labels in targets.values():
        if labels.ndim == 2:
            labels[0, -1] = -100
            if mask is not None:
                labels[mask == 0] = -100
    return targets


def valid_call(case: Case, rng: random.Random) -> dict:
    """Inputs, and by chance masks, labels, position ids and token types."""
    call = inputs_for(case)
    for name in list(call):
        if rng.random() < 0.5:
            mask = torch.ones_like(call[name])
            if rng.random() < 0.6 and (name == "input_ids" or rng.random() < 0.5):
                mask[1, ..., -2:] = 0
            call[name.replace("input_ids", "attention_mask")] = mask
    if rng.random() < 0.6:
        call |= _ignore_padding(targets_for(case), call.get(case.key.replace("input_ids", "attention_mask")))
        if case.task == "translation" and rng.random() < 0.3:
            del call["decoder_input_ids"]
            call.pop("decoder_attention_mask", None)
    ids = call["input_ids"]
    if case.rung.name in ("bert", "gpt") and "attention_mask" not in call and rng.random() < 0.4:
        call["position_ids"] = torch.arange(ids.shape[-1]).expand_as(ids).clone()
    if case.rung.name == "bert" and rng.random() < 0.4:
        call["token_type_ids"] = (torch.arange(ids.shape[-1]) > 3).long().expand_as(ids).clone()
    return call


# Changes of shape. Each takes a tensor; the batch is 2, so "a batch of one" lacks one row.
SHAPES: dict[str, Callable] = {
    "an axis more at the end": lambda tensor: tensor[..., None],
    "an axis more in front": lambda tensor: tensor[None],
    "flat": lambda tensor: tensor.flatten() if tensor.ndim > 1 else None,
    "transposed": lambda tensor: tensor.transpose(0, 1) if tensor.ndim > 1 else None,
    "shorter": lambda tensor: tensor[..., :-2] if tensor.ndim > 1 else None,
    "longer": lambda tensor: torch.cat([tensor, tensor[..., :2]], dim=-1) if tensor.ndim > 1 else None,
    "a batch of one": lambda tensor: tensor[:1],
    "a row more": lambda tensor: torch.cat([tensor, tensor[:1]]),
    "twice the rows": lambda tensor: torch.cat([tensor, tensor]),
    "a number": lambda tensor: tensor.flatten()[0],
    "no row": lambda tensor: tensor[:0],
    "no column": lambda tensor: tensor[..., :0] if tensor.ndim > 1 else None,
}
TYPES: dict[str, Callable] = {
    "a list": lambda tensor: tensor.tolist(),
    "a text": lambda tensor: "the text itself",
    "an array": lambda tensor: tensor.numpy(),
}


def _set_one(value):
    """One element of the tensor with another value."""

    def change(tensor):
        tensor = tensor.clone().to(torch.float32) if isinstance(value, float) else tensor.clone()
        tensor.view(-1)[tensor.numel() // 3] = value
        return tensor

    return change


def _on(argument: str, function: Callable) -> Callable:
    """A change of `argument` if the call has it."""

    def make(call: dict, case: Case):
        value = call.get(argument)
        if value is None:
            return None
        changed = function(value)
        return None if changed is None else call | {argument: changed}

    return make


def _shape_changes(argument: str, can_crash: bool = False) -> list[Change]:
    return [Change(argument, name, REJECT, _on(argument, f), can_crash) for name, f in SHAPES.items()]


def _type_changes(argument: str) -> list[Change]:
    return [Change(argument, name, REJECT, _on(argument, f)) for name, f in TYPES.items()]


def _dtype_changes(argument: str, right: tuple, wrong: tuple) -> list[Change]:
    pairs = [(dtype, EQUAL) for dtype in right] + [(dtype, REJECT) for dtype in wrong]
    return [
        Change(argument, str(dtype), expected, _on(argument, lambda tensor, dtype=dtype: tensor.to(dtype)))
        for dtype, expected in pairs
    ]


def _value_changes(argument: str, *values) -> list[Change]:
    return [Change(argument, f"has {value}", REJECT, _on(argument, _set_one(value))) for value in values]


def id_changes(argument: str) -> list[Change]:
    return [
        *_shape_changes(argument),
        *_type_changes(argument),
        *_dtype_changes(argument, (torch.int32,), (torch.float32, torch.bool, torch.int16, torch.complex64)),
        *_value_changes(argument, -1, -100, 29, 10**9),
    ]


def mask_changes(argument: str) -> list[Change]:
    rows = [Change(argument, "a row of zeros", REJECT, _on(argument, _hide_row))]
    numbers = (torch.bool, torch.int32, torch.uint8, torch.float32, torch.float64, torch.bfloat16, torch.float16)
    return [
        *_shape_changes(argument),
        *_type_changes(argument),
        *_dtype_changes(argument, numbers, ()),
        *_value_changes(argument, -1, 2, 0.5, math.nan, math.inf, -math.inf),
        Change(argument, "ones", EQUAL, _ones_mask(argument)),
        *(rows if argument == "attention_mask" else []),
    ]


def _hide_row(mask):
    return torch.cat([mask[:1], torch.zeros_like(mask[1:])])


def _ones_mask(argument: str) -> Callable:
    ids = argument.replace("attention_mask", "input_ids")
    return lambda call, case: (
        call | {argument: torch.ones_like(call[ids])} if ids in call and argument not in call else None
    )


def label_changes(argument: str) -> list[Change]:
    return [
        *_shape_changes(argument),
        *_type_changes(argument),
        *_dtype_changes(argument, (torch.int32, torch.int16, torch.int8), (torch.float32, torch.complex64)),
        *_value_changes(argument, -1, -7, *((10**6,) if argument in ("labels", "next_sentence_label") else ())),
    ]


def embedding_changes(argument: str, ids: str, lookup: Callable) -> list[Change]:
    """Embeddings in place of ids: right ones, and wrong ones."""

    def swapped(function: Callable) -> Callable:
        def make(call, case):
            # The loss of GloVe has a bias for each word, which the vectors do not tell.
            if call.get(ids) is None or case.task == "glove":
                return None
            vectors = function(lookup(case, call[ids]))
            return None if vectors is None else {k: v for k, v in call.items() if k != ids} | {argument: vectors}

        return make

    wrong = {name: change for name, change in SHAPES.items() if name not in ("shorter", "longer", "no column")}
    wrong |= {
        "too narrow": lambda vectors: vectors[..., :-3],
        "too wide": lambda vectors: torch.cat([vectors, vectors[..., :5]], dim=-1),
        "no token": lambda vectors: vectors[..., :0, :],
        "no width": lambda vectors: vectors[..., :0],
        "integers": lambda vectors: vectors.long(),
        "float64": lambda vectors: vectors.double(),
        "NaN": lambda vectors: vectors * math.nan,
        "infinite": lambda vectors: vectors * math.inf,
        "huge": lambda vectors: vectors * 1e30,
        "largest": lambda vectors: torch.full_like(vectors, 3e38),
        "a list": lambda vectors: vectors.tolist(),
    }
    can_crash = {"too narrow", "too wide", "a row more", "a batch of one", "twice the rows", "float64"}
    return [
        *(Change(argument, name, REJECT, swapped(f), name in can_crash) for name, f in wrong.items()),
        Change(argument, "those of the ids", EQUAL, swapped(lambda vectors: vectors)),
        Change(argument, "and ids", REJECT, lambda call, case: _with_both(call, case, argument, ids, lookup)),
    ]


def _with_both(call, case, argument, ids, lookup):
    return call | {argument: lookup(case, call[ids])} if call.get(ids) is not None else None


def add(argument: str, value, **more) -> Callable:
    return lambda call, case: call | {argument: value} | more


def _count_of(call: dict) -> int | None:
    if "labels" not in call:
        return None
    return int((call["labels"] != -100).sum())


def _items(change: Callable) -> Callable:
    def make(call, case):
        if "labels" not in call or case.task in ("question_answering", "pretraining", "bidirectional_lm"):
            return None
        count = _count_of(call)
        if case.task == "language_modeling":
            count -= len(call["labels"])  # the first token of a row is no label
        return call | {"num_items_in_batch": change(count)}

    return make


SCALARS = [
    Change("num_items_in_batch", "0", REJECT, _items(lambda count: 0)),
    Change("num_items_in_batch", "negative", REJECT, _items(lambda count: -count)),
    Change("num_items_in_batch", "a tensor of 0", REJECT, _items(lambda count: torch.tensor(0))),
    Change("num_items_in_batch", "a tensor below 0", REJECT, _items(lambda count: torch.tensor(-3))),
    Change("num_items_in_batch", "NaN", REJECT, _items(lambda count: math.nan)),
    Change("num_items_in_batch", "a text", REJECT, _items(lambda count: "many")),
    Change("num_items_in_batch", "the number of labels", EQUAL, _items(lambda count: count)),
    Change("num_items_in_batch", "a tensor", EQUAL, _items(lambda count: torch.tensor(count))),
    Change("unknown", "a keyword", EQUAL, add("an_unknown_keyword", 3)),
]


def _for_causal(argument, value) -> Callable:
    return lambda call, case: call | {argument: value} if "labels" not in call else None


def _shifted(change: Callable) -> Callable:
    def make(call, case):
        if "labels" not in call:
            return None
        shifted = torch.nn.functional.pad(call["labels"].long()[:, 1:], (0, 1), value=-100)
        return {name: value for name, value in call.items() if name != "labels"} | {"shift_labels": change(shifted)}

    return make


CAUSAL = [
    Change("logits_to_keep", "-1", REJECT, _for_causal("logits_to_keep", -1)),
    Change("logits_to_keep", "-7", REJECT, _for_causal("logits_to_keep", -7)),
    Change("logits_to_keep", "2.0", REJECT, _for_causal("logits_to_keep", 2.0)),
    Change("logits_to_keep", "a text", REJECT, _for_causal("logits_to_keep", "all")),
    Change("logits_to_keep", "a position too far", REJECT, _for_causal("logits_to_keep", torch.tensor([1, 7]))),
    Change("logits_to_keep", "all", EQUAL, _for_causal("logits_to_keep", 7)),
    Change("logits_to_keep", "positions", EQUAL, _for_causal("logits_to_keep", torch.arange(7))),
    Change("shift_labels", "the labels", EQUAL, _shifted(lambda labels: labels)),
    Change("shift_labels", "int32", EQUAL, _shifted(lambda labels: labels.int())),
    *(Change("shift_labels", name, REJECT, _shifted(change)) for name, change in SHAPES.items()),
]


def _pairs_mask(change: Callable) -> Callable:
    """A mask of queries and keys."""

    def make(call, case):
        # Without a mask of tokens, answers may be at padding, so that the loss of question answering differs.
        if "input_ids" not in call or call["input_ids"].ndim != 2 or case.task == "question_answering":
            return None
        rows, length = call["input_ids"].shape
        keys = call.get("attention_mask", torch.ones(rows, length)).bool()[:, None, None, :]
        mask = keys.expand(rows, 1, length, length)
        if case.rung.name == "gpt":
            mask = mask & torch.ones(length, length).tril().bool()
        return call | {"attention_mask": change(mask)}

    return make


def _additive(mask):
    return torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)


PAIRS = {
    "of queries and keys": (EQUAL, lambda mask: mask),
    "additive": (EQUAL, _additive),
    "one query too few": (REJECT, lambda mask: mask[:, :, 1:]),
    "one key too few": (REJECT, lambda mask: mask[..., 1:]),
    "other rows": (REJECT, lambda mask: mask.repeat(2, 1, 1, 1)),
    "five heads": (REJECT, lambda mask: mask.repeat(1, 5, 1, 1)),
    "without the axis of heads": (REJECT, lambda mask: mask[:, 0]),
    "of integers": (REJECT, lambda mask: mask.long()),
    "of five axes": (REJECT, lambda mask: mask[None]),
}


@torch.no_grad()
def cache_of(case: Case, rows: int):
    """The cache after four tokens."""
    inputs = inputs_for(case, batch=rows, seed=9)
    inputs[case.key] = inputs[case.key][:, :4]
    return model_of(case, "fused")(**inputs, use_cache=True).past_key_values


def _recurrent_cache(layers: list) -> RecurrentCache:
    made = RecurrentCache()
    for number, state in enumerate(layers):
        made.write(number, state, 4)
    return made


def _cache_layers(made) -> list[tuple]:
    if isinstance(made, EncoderDecoderCache):
        made = made.self_attention_cache
    return [tuple(part for part in (layer.keys, layer.values) if part is not None) for layer in made.layers]


def _cache_from(made, layers: list[tuple]):
    if isinstance(made, RecurrentCache):
        return _recurrent_cache(layers)
    changed = DynamicCache()
    for number, (keys, values) in enumerate(layers):
        changed.update(keys, values, number)
    return (
        EncoderDecoderCache(changed, made.cross_attention_cache) if isinstance(made, EncoderDecoderCache) else changed
    )


def _cached(change: Callable) -> Callable:
    """The call without masks and labels, continued from a changed cache."""

    def make(call, case):
        changed = change(cache_of(case, 2), case)
        return None if changed is None else inputs_for(case) | {"past_key_values": changed}

    return make


def _layers(change: Callable) -> Callable:
    return lambda made, case: _cache_from(made, change(_cache_layers(made)))


def _each(change: Callable) -> Callable:
    return _layers(lambda layers: [tuple(change(part) for part in layer) for layer in layers])


def _foreign_cache(made, case):
    if not isinstance(made, RecurrentCache):
        return _recurrent_cache([(torch.zeros(2, 12), torch.zeros(2, 12))] * 2)
    foreign = DynamicCache()
    foreign.update(torch.zeros(2, 3, 4, 4), torch.zeros(2, 3, 4, 4), 0)
    return foreign


CACHES = {
    "of another batch": lambda made, case: cache_of(case, 3),
    "of a batch of one": lambda made, case: cache_of(case, 1),
    "of twice the batch": lambda made, case: cache_of(case, 4),
    "of more layers": _layers(lambda layers: [*layers, layers[-1]]),
    "of fewer layers": lambda made, case: (
        _cache_from(made, _cache_layers(made)[:-1]) if len(_cache_layers(made)) > 1 else None
    ),
    "of another width": _each(lambda part: torch.cat([part, part[..., :3]], dim=-1)),
    "narrower": _each(lambda part: part[..., :-2]),
    "of float64": _each(lambda part: part.double()),
    "of integers": _each(lambda part: part.long()),
    "with an axis more": _each(lambda part: part[None]),
    "of another number of state tensors": lambda made, case: (
        _recurrent_cache([layer[:1] if len(layer) == 2 else layer * 2 for layer in _cache_layers(made)])
        if isinstance(made, RecurrentCache)
        else None
    ),
    "of another kind": _foreign_cache,
    "a tuple": lambda made, case: tuple(_cache_layers(made)),
    "a text": lambda made, case: "cache",
}


@torch.no_grad()
def source_of(case: Case, rows: int):
    return _model_part(case).encoder(inputs_for(case, batch=rows)["input_ids"], return_dict=True)


def _encoded(change: Callable, mask: Callable | None = None, drop: tuple = ("input_ids",)) -> Callable:
    """The call with encoder outputs in place of the source."""

    def make(call, case):
        source = change(source_of(case, 2), case)
        call = {name: value for name, value in call.items() if name not in (*drop, "attention_mask")}
        more = {} if mask is None else {"attention_mask": mask(torch.ones(2, 5, dtype=torch.long))}
        return None if source is None else call | {"encoder_outputs": source} | more

    return make


def _each_field(change: Callable) -> Callable:
    return lambda source, case: type(source)(
        **{name: change(value) if isinstance(value, torch.Tensor) else value for name, value in source.items()}
    )


def _without_final_state(source, case):
    return None if hasattr(source, "final_state") else source.last_hidden_state


SOURCES: dict[str, tuple] = {
    "of another batch": (lambda source, case: source_of(case, 3),),
    "of a batch of one": (lambda source, case: source_of(case, 1),),
    "of twice the batch": (lambda source, case: source_of(case, 4),),
    "too wide": (_each_field(lambda part: torch.cat([part, part[..., :4]], dim=-1)),),
    "too narrow": (_each_field(lambda part: part[..., :-2]),),
    "of float64": (_each_field(lambda part: part.double()),),
    "of integers": (_each_field(lambda part: part.long()),),
    "with an axis more": (_each_field(lambda part: part[..., None]),),
    "without a position": (_each_field(lambda part: part[:, :0]),),
    "with a short mask": (lambda source, case: source, lambda mask: mask[:, :3]),
    "with a long mask": (lambda source, case: source, lambda mask: torch.cat([mask, mask[:, :2]], dim=1)),
    "with a mask of another batch": (lambda source, case: source, lambda mask: mask[:1]),
    "a tensor": (lambda source, case: source.last_hidden_state,),
    "a text": (lambda source, case: "source",),
    "an empty tuple": (lambda source, case: (),),
}
RIGHT_SOURCES: dict[str, tuple] = {
    "the encoder's": (lambda source, case: source,),
    "the encoder's, with a mask": (lambda source, case: source, lambda mask: mask),
    "a tuple": (lambda source, case: None if hasattr(source, "final_state") else (source.last_hidden_state,),),
    "another class": (
        lambda source, case: None if hasattr(source, "final_state") else BaseModelOutput(source.last_hidden_state),
    ),
}


LENGTHS, ROWS = ("shorter", "longer"), ("a batch of one", "a row more", "twice the rows")
SOURCE_SIDE, TARGET_SIDE = ("input_ids", "inputs_embeds"), ("decoder_input_ids", "decoder_inputs_embeds")


def _is_meaningful(change: Change, case: Case, call: dict) -> bool:
    """Whether the call is wrong after the change: other rows or lengths are right if no other argument has them."""
    argument, name = change.argument, change.name
    if name not in (*LENGTHS, *ROWS, "transposed"):
        return True
    if argument == "labels" and case.task == "translation" and not set(TARGET_SIDE) & set(call):
        return name not in LENGTHS
    if argument not in (*SOURCE_SIDE, *TARGET_SIDE):
        return True
    others = {other for other, value in call.items() if isinstance(value, torch.Tensor)} - set(
        SOURCE_SIDE + TARGET_SIDE
    )
    of_length = others - {"decoder_attention_mask", "start_positions", "end_positions", "next_sentence_label"}
    if argument in TARGET_SIDE:
        of_length = others & {"decoder_attention_mask", "labels"}
    elif case.task == "translation" or case.per_row:
        of_length -= {"labels"}
    is_pair = case.task == "translation"  # source and target have the same rows
    return bool(of_length) if name in LENGTHS else bool(others) or is_pair


def _is_valid(change: Change, case: Case) -> bool:
    """Whether a change that is wrong elsewhere is right here, as in transformers' own models."""
    argument, name = change.argument, change.name
    if argument in ("position_ids", "token_type_ids") and name == "a batch of one":
        return case.task != "multiple_choice"  # rows may share them
    if name == "an axis more at the end" and (argument != "labels" or case.per_row):
        return argument in ("labels", "next_sentence_label", "start_positions", "end_positions")
    return False


@cache
def changes_of(case: Case) -> list[Change]:
    made = [*id_changes("input_ids"), *mask_changes("attention_mask"), *SCALARS]
    made += embedding_changes("inputs_embeds", "input_ids", embed)
    for target in targets_for(case):
        made += label_changes(target)
    if case.attends and case.task != "translation":
        made += [Change("attention_mask", name, *rest[:1], _pairs_mask(rest[1])) for name, rest in PAIRS.items()]
    elif not case.attends:
        made += [Change("attention_mask", name, REJECT, _pairs_mask(rest[1])) for name, rest in PAIRS.items()]
    if case.rung.name in ("bert", "gpt"):
        made += [*_shape_changes("position_ids"), *_type_changes("position_ids")]
        made += [*_value_changes("position_ids", -1, 40, 999), *_dtype_changes("position_ids", (), (torch.float32,))]
    if case.rung.name == "bert":
        made += [*_shape_changes("token_type_ids"), *_type_changes("token_type_ids")]
        made += [*_value_changes("token_type_ids", -1, 2), *_dtype_changes("token_type_ids", (), (torch.float32,))]
    if case.task == "language_modeling":
        made += CAUSAL
    if case.task in ("language_modeling", "translation"):
        made += [Change("past_key_values", name, REJECT, _cached(change), True) for name, change in CACHES.items()]
    if case.task == "translation":
        made += [*id_changes("decoder_input_ids"), *mask_changes("decoder_attention_mask")]
        made += embedding_changes("decoder_inputs_embeds", "decoder_input_ids", embed_target)
        made += [Change("encoder_outputs", name, REJECT, _encoded(*how), True) for name, how in SOURCES.items()]
        made += [Change("encoder_outputs", name, EQUAL, _encoded(*how)) for name, how in RIGHT_SOURCES.items()]
    return made


def _without_mask(call: dict) -> dict:
    return {name: value for name, value in call.items() if name != "attention_mask"}


def run(case: Case, call: dict, form: str, training: bool):
    """Loss and logits; in training with the backward pass."""
    model = model_of(case, form).train(training)
    model.config.problem_type = None
    model.zero_grad()
    with torch.set_grad_enabled(training):
        outputs = model(**call)
    if training and outputs.get("loss") is not None:
        outputs.loss.backward()
    logits = outputs.get("logits", outputs.get("start_logits", outputs.get("prediction_logits")))
    return outputs.get("loss"), logits


def _is_sentence(error: BaseException) -> bool:
    """Whether the error was raised on purpose, by a `raise` of ours."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    is_raised = linecache.getline(frame.filename, frame.lineno).strip().startswith("raise ")
    return is_raised and frame.filename.startswith(PACKAGE) and isinstance(error, ValueError)


def _same(result, reference, mask) -> bool:
    """Whether loss and logits of the real tokens are the same."""
    for ours, theirs in zip(result, reference, strict=True):
        if (ours is None) != (theirs is None):
            return False
        if ours is None:
            continue
        if ours.shape != theirs.shape:
            return False
        if mask is not None and ours.shape[:2] == mask.shape:
            ours, theirs = ours[mask == 1], theirs[mask == 1]
        if not torch.allclose(ours, theirs, atol=1e-4):
            return False
    return True


@dataclass
class Attempt:
    """One call: `changes` of a valid one, and its outcome."""

    case: str
    form: str
    training: bool
    changes: tuple[str, ...]
    outcome: str = CRASH
    error: str = ""

    def __str__(self) -> str:
        changes = " and ".join(self.changes)
        return f"{self.outcome}: {self.case} ({self.form}, training={self.training}), {changes} {self.error}"


def attempt(case: Case, seed: int, change: Change | None = None, form: str | None = None) -> Attempt | None:
    """Make one call at random, perhaps with a given change; None where the change does not apply."""
    rng = random.Random(f"{case.name} {seed}")
    chosen = form
    call, form, training = valid_call(case, rng), rng.choice(("fused", "fused", "eager")), rng.random() < 0.5
    form = chosen or ("fused" if case.implementation_field is None else form)
    change = change or rng.choice(changes_of(case))
    reference_call, names = call, [str(change)]
    if rng.random() < 0.25:  # another change before, which is right
        right = [c for c in changes_of(case) if c.expected == EQUAL and c.argument != change.argument]
        first = rng.choice(right)
        call, names = first.make(call, case) or call, [str(first), *names]
    changed = change.make(call, case)
    if changed is None or not _is_meaningful(change, case, call):
        return None
    if change.argument == "past_key_values":
        reference_call = inputs_for(case)
    elif "encoder_outputs" in changed:
        reference_call = _without_mask(reference_call)
    expected = EQUAL if change.expected == REJECT and _is_valid(change, case) else change.expected
    made = Attempt(case.name, form, training, tuple(names))
    try:
        result = run(case, changed, form, training)
    except Exception as error:
        sentence = _is_sentence(error)
        made.error = f"{type(error).__name__}: {error}"[:300]
        made.outcome = (SENTENCE if expected == REJECT else REFUSED) if sentence else TRACEBACK
        return made
    if expected == REJECT:
        made.outcome = SILENT
    else:
        mask = reference_call.get(case.key.replace("input_ids", "attention_mask"))
        made.outcome = RIGHT if _same(result, run(case, reference_call, form, training), mask) else SILENT
    return made


def run_risky() -> None:
    """Make every call that has ended the process before, on every model with recurrent kernels."""
    for case in ALL:
        for change in [] if case.attends else changes_of(case):
            made = attempt(case, 0, change, "fused") if change.can_crash else None
            if made is not None:
                print(made.outcome, str(made).replace("\n", " "), sep="\t", flush=True)


def run_child(rung: str, count: int, start: int) -> None:
    """Make the calls of one rung, and print each outcome at once: the next call may end the process."""
    cases = [case for case in ALL if case.rung.name == rung]
    for number in range(start, count):
        case, seed, made = cases[number % len(cases)], number // len(cases) * 1000, None
        while made is None:
            made, seed = attempt(case, seed), seed + 1
        print(number, made.outcome, str(made).replace("\n", " "), sep="\t", flush=True)


def run_rung(rung: str, count: int) -> list[tuple[str, str]]:
    """Outcomes and descriptions of `count` calls, made in a process that is started again where it crashes."""
    found: list[tuple[str, str]] = []
    while len(found) < count:
        arguments = [sys.executable, __file__, str(count), rung, str(len(found))]
        child = subprocess.run(arguments, capture_output=True, text=True)
        found += [tuple(line.split("\t")[1:3]) for line in child.stdout.splitlines()]
        if child.returncode > 0:
            raise RuntimeError(child.stderr[-2000:])
        if child.returncode < 0:
            found.append((CRASH, f"{rung}: call {len(found)} ended with signal {-child.returncode}"))
    return found


def main(count: int) -> None:
    """Print the outcomes of about `count` calls as a table by rung, then what must not happen."""
    rungs = list(dict.fromkeys(case.rung.name for case in ALL))
    found = {rung: run_rung(rung, -(-count // len(rungs))) for rung in rungs}
    print(f"{'rung':<14}" + "".join(f"{outcome:>22}" for outcome in OUTCOMES))
    total = [row for rows in found.values() for row in rows]
    for rung, rows in (found | {"all": total}).items():
        counts = Counter(outcome for outcome, _ in rows)
        print(f"{rung:<14}" + "".join(f"{counts[outcome]:>22}" for outcome in OUTCOMES))
    for outcome, description in total:
        if outcome not in (RIGHT, SENTENCE):
            print(description)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1] == "risky":
        run_risky()
    elif len(sys.argv) > 2:
        run_child(sys.argv[2], int(sys.argv[1]), int(sys.argv[3]))
    else:
        main(int(sys.argv[1]))
