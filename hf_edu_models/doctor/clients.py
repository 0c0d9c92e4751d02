"""Checks of what other libraries do with a model: Trainer, PEFT, TRL, exporters, FSDP2."""

from __future__ import annotations

import copy
import importlib.util
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, Trainer, TrainingArguments
from transformers.pytorch_utils import Conv1D

from .compare import (
    LENGTH,
    is_close,
    join_names,
    make_inputs,
    make_labelled_batch,
    output_fields,
    predictions,
    random_ids,
)
from .outputs import NEEDS_FORWARD, NO_GENERATE, PADDING, PROMPT, generate, is_same, pad_ids
from .report import Finding, check, fail, ok, skipped, warning
from .subject import ModelUnderTest, summarise
from .training import NO_LABELS

_NOT_CAUSAL = "not a causal language model"
_TINY_EPSILON = 1e-9  # label smoothing that changes nothing but the code path
_Gradients = dict[str, Tensor]


@check("keywords", "end the parameters of forward with **kwargs, and leave those that are unknown alone", NEEDS_FORWARD)
def check_unknown_keyword(subject: ModelUnderTest) -> Finding:
    """Clients pass what newer models take: `logits_to_keep`, `cu_seq_lens_q`, `use_cache`."""
    inputs = make_inputs(subject)
    try:
        actual = predictions(subject.model(**inputs, keyword_of_a_client=None))
    except TypeError as error:
        return fail(f"forward rejects an unknown keyword: {summarise(error)}")
    expected = predictions(subject.model(**inputs))
    wrong = [name for name in expected if not is_close(actual[name], expected[name])]
    return fail(f"an unknown keyword changes {join_names(wrong)}") if wrong else ok("an unknown keyword is ignored")


@check(
    "label smoothing",
    "add the class to transformers' table in its modeling file (transformers.models.auto.modeling_auto): "
    '`MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["your_model_type"] = "YourForCausalLM"`',
    (*NEEDS_FORWARD, "labels", "loss"),
)
def check_label_smoothing(subject: ModelUnderTest) -> Finding:
    """Trainer computes the smoothed loss itself, and shifts the labels for the class names that it knows."""
    if not subject.is_decoder_only:
        return skipped(_NOT_CAUSAL)
    inputs, labels = make_labelled_batch(subject)
    batch = inputs | labels
    own = output_fields(subject.model(**batch)).get("loss") if labels else None
    if own is None:
        return skipped(NO_LABELS)
    settings: dict[str, Any] = {"use_cpu": subject.model.device.type == "cpu", "report_to": "none"}
    arguments = TrainingArguments(str(subject.folder / "trainer"), label_smoothing_factor=_TINY_EPSILON, **settings)
    with _without_cache(subject.model):  # Trainer would set it in the configuration, and leave it so
        smoothed = Trainer(subject.model, arguments).compute_loss(subject.model, dict(batch))
    if not is_close(smoothed.reshape(1), own.reshape(1)):
        return fail(
            f"Trainer does not shift the labels of {subject.model_class.__name__} when it smooths them: the loss is "
            f"{smoothed:.4g} and not {own:.4g}"
        )
    return ok("Trainer shifts the labels when it smooths them")


@check(
    "packing",
    "pass position_ids to transformers.masking_utils.create_causal_mask, and no mask of ones where none was given; or "
    "raise an error if positions start again in a row",
    (*NEEDS_FORWARD, "look-ahead", "padding"),
)
def check_packing(subject: ModelUnderTest) -> Finding:
    """Two documents in one row, whose position ids start again, as `DataCollatorWithFlattening` makes it."""
    if not subject.is_decoder_only:
        return skipped(_NOT_CAUSAL)
    if not subject.accepts("position_ids") and not subject.accepts_kwargs:
        return skipped("forward has no position_ids, so a packed row raises an error")
    first, second = random_ids(subject, 1, PROMPT, seed=21), random_ids(subject, 1, LENGTH, seed=22)
    positions = torch.cat([torch.arange(ids.shape[1], device=ids.device) for ids in (first, second)])[None]
    # As in training; with a cache, positions may start anywhere.
    options = {"use_cache": False} if subject.accepts("use_cache") else {}
    try:
        packed = subject.model(input_ids=torch.cat([first, second], dim=1), position_ids=positions, **options).logits
    except (ValueError, NotImplementedError) as error:
        return ok(f"rejects packed documents: {summarise(error)}")
    alone = [subject.model(input_ids=ids).logits for ids in (first, second)]
    if not is_close(packed[:, PROMPT:], alone[1]) or not is_close(packed[:, :PROMPT], alone[0]):
        is_used = subject.accepts("position_ids")
        why = "two documents packed into one row see each other"
        return fail(why) if is_used else warning(f"{why}, because forward ignores position_ids")
    return ok("packed documents are the same as separate rows")


@check(
    "static cache",
    "accept 4-D attention masks and caches of a fixed length: do not derive lengths from the shape of the mask or "
    "cache, and build masks with transformers.masking_utils",
    (*NEEDS_FORWARD, "cache"),
)
def check_static_cache(subject: ModelUnderTest) -> Finding:
    if not subject.can_generate:
        return skipped(NO_GENERATE)
    if not subject.model_class._supports_default_dynamic_cache() or _carries_state(subject):
        return skipped("its cache is not one of keys and values")
    short = random_ids(subject, 2, PROMPT, seed=23)
    inputs = pad_ids(subject, short, "right" if subject.is_encoder_decoder else "left")
    inputs.pop("position_ids", None)
    dynamic = generate(subject, inputs)
    static = generate(subject, inputs, cache_implementation="static", disable_compile=True)
    if not is_same(static, dynamic):
        return fail('generate(cache_implementation="static") differs from generate() with the default cache')
    return ok("the same tokens and scores with a static cache")


def _carries_state(subject: ModelUnderTest) -> bool:
    """Whether the cache has layers without keys: the state of a recurrent model."""
    inputs = make_inputs(subject)
    cache = output_fields(subject.model(**inputs, use_cache=True)).get("past_key_values")
    cache = getattr(cache, "self_attention_cache", cache)
    layers = getattr(cache, "layers", None)
    return layers is None or not all(isinstance(getattr(layer, "keys", None), Tensor) for layer in layers)


@check(
    "checkpointing",
    "call each layer (a GradientCheckpointingLayer) with the tensors that need a gradient as positional arguments, and "
    "return tensors from it",
    (*NEEDS_FORWARD, "gradients"),
)
def check_reentrant_checkpointing(subject: ModelUnderTest) -> Finding:
    if not subject.model_class.supports_gradient_checkpointing:
        return skipped("the class does not support gradient checkpointing")
    expected = _gradients(subject, subject.model)
    if expected is None:
        return skipped(NO_LABELS)
    for use_reentrant in (False, True):
        subject.model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
        try:
            actual = _gradients(subject, subject.model) or {}
        except Exception as error:
            return fail(f"with use_reentrant={use_reentrant} it raised {summarise(error)}")
        finally:
            subject.model.gradient_checkpointing_disable()
        if wrong := _different(actual, expected):
            return fail(f"with use_reentrant={use_reentrant} the gradient of {join_names(wrong)} differs or is missing")
    return ok("both kinds of checkpointing leave the gradients unchanged")


@torch.enable_grad()
def _gradients(subject: ModelUnderTest, model: PreTrainedModel) -> _Gradients | None:
    """_Gradients of the loss in training mode, always with the same dropout; None for a class without a loss."""
    with torch.no_grad():
        inputs, labels = make_labelled_batch(subject)
    modes = {module: module.training for module in model.modules()}
    before = {each: each.grad for each in model.parameters()}
    model.zero_grad(set_to_none=True)
    model.train()
    try:
        torch.manual_seed(0)
        loss = output_fields(model(**inputs, **labels)).get("loss")
        if loss is None or not loss.requires_grad:
            return None if loss is None else {}
        loss.backward()  # reentrant checkpointing and FSDP need it; torch.autograd.grad does not run their hooks
        return {name: each.grad.detach() for name, each in model.named_parameters() if each.grad is not None}
    finally:
        for parameter, gradient in before.items():
            parameter.grad = gradient
        for module, mode in modes.items():
            module.training = mode


def _different(actual: _Gradients, expected: _Gradients) -> list[str]:
    """Relative to the largest gradient: that of a key's bias is zero but for rounding errors."""
    allowed = 1e-4 * max(float(value.abs().max()) for value in expected.values())
    missing = [name for name in expected if name not in actual]
    return missing or [name for name in expected if float((actual[name] - expected[name]).abs().max()) > allowed]


@check(
    "LoRA",
    "call every linear layer as a module on its input, with the shapes of nn.Linear, and read no .weight behind its "
    "back: PEFT replaces the module",
    (*NEEDS_FORWARD, "gradients"),
)
def check_lora(subject: ModelUnderTest) -> Finding:
    """Adapters on all linear layers, and on the output layer, which PEFT's "all-linear" leaves out."""
    if importlib.util.find_spec("peft") is None:
        return skipped("peft is not installed: pip install peft")
    head = subject.model.get_output_embeddings()
    linear = [name for name, each in subject.model.named_modules() if isinstance(each, nn.Linear | Conv1D) and name]
    output = [name for name in linear if subject.model.get_submodule(name) is head]
    for names, can_merge in (([name for name in linear if name not in output], True), (output, False)):
        problem = _problem_with_adapters(subject, names, can_merge) if names else None
        if problem is not None:
            return fail(problem)
    if not linear:
        return skipped("the model has no linear layer")
    return ok(f"adapters on {len(linear)} linear layers are trained, and can be merged")


def _problem_with_adapters(subject: ModelUnderTest, names: list[str], can_merge: bool) -> str | None:
    """Train and merge adapters in a copy; an output layer that shares its weight with the embeddings is not merged."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=2, lora_alpha=4, target_modules=names, init_lora_weights=False)
    torch.manual_seed(0)
    with torch.enable_grad():
        adapted = get_peft_model(copy.deepcopy(subject.model), config).eval()
    inputs = make_inputs(subject)
    outputs = predictions(adapted(**inputs))
    gradients = _gradients(subject, adapted)
    unused = [name for name in names if gradients is not None and not _has_gradient(gradients, name)]
    if unused:
        return f"training bypasses the adapter of {join_names(unused)}"
    if can_merge:
        merged = predictions(adapted.merge_and_unload()(**inputs))
        wrong = [name for name in outputs if not is_close(merged[name], outputs[name])]
        if wrong:
            return f"{join_names(wrong)} differs after merge_and_unload(): a weight is used beside its adapter"
    return None


def _has_gradient(gradients: _Gradients, module: str) -> bool:
    return any(f".{module}.lora_" in name and bool(value.any()) for name, value in gradients.items())


@check(
    "export",
    "take sizes from tensor.shape, not from len(tensor) or .item(), and do not branch on values of tensors",
    NEEDS_FORWARD,
    is_slow=True,
)
def check_export(subject: ModelUnderTest) -> Finding:
    """`torch.export` with dynamic sizes, run at another batch size and length with padding; also ONNX, if installed."""
    example, other = (_export_inputs(subject, batch, seed) for batch, seed in ((2, 31), (5, 32)))
    axes = {
        name: {0: torch.export.Dim.DYNAMIC, ids.ndim - 1: torch.export.Dim.DYNAMIC} for name, ids in example.items()
    }
    with _without_cache(subject.model):
        expected = predictions(subject.model(**other))
        program = torch.export.export(subject.model, (), example, dynamic_shapes=axes, strict=False)
        actual = predictions(program.module()(**other))
        wrong = [name for name in expected if not is_close(actual[name], expected[name])]
        if wrong:
            return fail(f"{join_names(wrong)} of the exported model differs at another batch size and length")
        return _check_onnx(program, other, expected)


def _check_onnx(program: Any, inputs: dict[str, Tensor], expected: dict[str, Tensor]) -> Finding:
    missing = [name for name in ("onnxscript", "onnxruntime") if importlib.util.find_spec(name) is None]
    if missing:
        return ok(f"torch.export at another batch size and length; ONNX was not tried: no {join_names(missing)}")
    import onnxruntime

    exported: Any = torch.onnx.export(program, (), dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(exported.model_proto.SerializeToString())
    names = [field.name for field in session.get_outputs()]
    arrays = session.run(None, {field.name: inputs[field.name].numpy() for field in session.get_inputs()})
    outputs = [torch.from_numpy(array) for array in arrays if hasattr(array, "shape")]
    for name, value in expected.items():
        if not any(each.shape == value.shape and torch.allclose(each, value, atol=1e-4) for each in outputs):
            return fail(f"{name} in ONNX Runtime differs at another batch size and length (it has {join_names(names)})")
    return ok("torch.export and ONNX Runtime at another batch size and length")


def _export_inputs(subject: ModelUnderTest, batch: int, seed: int) -> dict[str, Tensor]:
    """A padded batch, whose length depends on the batch size."""
    inputs = make_inputs(subject, batch, seed)
    for name in ("input_ids", "decoder_input_ids"):
        if name in inputs:
            inputs[name] = inputs[name].repeat_interleave(batch - 1, dim=-1)
    mask = torch.ones_like(inputs["input_ids"])
    mask[0, ..., -PADDING:] = 0
    return inputs | ({"attention_mask": mask} if subject.accepts("attention_mask") else {})


@contextmanager
def _without_cache(model: PreTrainedModel) -> Iterator[None]:
    before = dict(vars(model.config))
    model.config.use_cache = False
    try:
        yield
    finally:
        vars(model.config).clear()
        vars(model.config).update(before)


@check(
    "sharding",
    "use a parameter only in the forward of the module that owns it, and name whole layers in _no_split_modules",
    (*NEEDS_FORWARD, "gradients"),
)
def check_sharding(subject: ModelUnderTest) -> Finding:
    """FSDP2 in one process: outside the forward of its unit a weight is a DTensor, in one process as in many."""
    if not torch.distributed.is_available() or torch.distributed.is_initialized():
        return skipped("torch.distributed is not available, or this process is already part of a group")
    expected = _gradients(subject, subject.model)
    if expected is None:
        return skipped(NO_LABELS)
    with _single_process_group():
        sharded, units = _shard(copy.deepcopy(subject.model).cpu())
        try:
            shards: dict[str, Any] = _gradients(subject, sharded) or {}
            actual = {name: shard.full_tensor() for name, shard in shards.items()}
        except Exception as error:
            return fail(f"sharded by its _no_split_modules it raised {summarise(error)}")
        if wrong := _different(actual, {name: value.cpu() for name, value in expected.items()}):
            return fail(f"sharded, the gradient of {join_names(wrong)} differs or is missing")
    return ok(f"sharded by FSDP2 in {units} unit{'s' if units > 1 else ''}, the gradients are the same (one process)")


@contextmanager
def _single_process_group() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def _shard(model: PreTrainedModel) -> tuple[PreTrainedModel, int]:
    """Every layer that `_no_split_modules` names is a unit, and the rest of the model another, as in Accelerate."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    parts = [each for each in model.modules() if isinstance(each, PreTrainedModel)]
    layers = {name for each in parts for name in each._no_split_modules or ()}
    tied = _tied_parameters(model)  # a weight of two modules belongs to the unit around both
    units = [each for each in model.modules() if type(each).__name__ in layers and not tied & set(each.parameters())]
    mesh = init_device_mesh("cpu", (1,))
    for unit in [*reversed(units), model]:
        fully_shard(unit, mesh=mesh)
    return model, len(units) + 1


def _tied_parameters(model: PreTrainedModel) -> set[nn.Parameter]:
    counts = Counter(each for _, each in model.named_parameters(remove_duplicate=False))
    return {parameter for parameter, count in counts.items() if count > 1}
