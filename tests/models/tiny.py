"""Tiny models of every head, from the rows of LADDER and TASKS. All sizes differ, so that a swapped axis shows."""

from dataclasses import dataclass, field

import torch

import hf_edu_models
from hf_edu_models.auto import AXES, LADDER, Rung
from hf_edu_models.tasks import TASKS, task_of_class

BATCH, SOURCE, LENGTH, CHOICES = AXES["batch"], AXES["source"], AXES["tokens"], AXES["choices"]
TINY = {rung.name: dict(rung.tiny) for rung in LADDER}
VOCABULARY, NUM_LABELS = 29, 3


@dataclass(frozen=True)
class Case:
    """One tiny model.

    Args:
        settings: fields of its configuration.
        task: a row of TASKS.
    """

    name: str
    head: str
    settings: dict = field(hash=False)
    task: str

    def build(self, seed: int = 0, form: str = "fused", **changes):
        """The model with its readable implementation (`eager`) or its fast one (`fused`: torch's kernels, or sdpa)."""
        head = getattr(hf_edu_models, self.head)
        changes = {self.implementation_field: "sdpa" if self.has_sdpa and form == "fused" else form} | changes
        changes.pop(None, None)
        torch.manual_seed(seed)
        model = head(head.config_class(**(self.settings | changes))).eval()
        # Some papers initialise weights at zero or nearly so, where a bug may hide.
        for parameter in model.parameters():
            if parameter.abs().max() < 0.2:
                torch.nn.init.uniform_(parameter, -0.5, 0.5)
        for buffer in model.buffers():
            if buffer.isnan().any():  # a memory without anything in it
                torch.nn.init.uniform_(buffer, -1.0, 1.0)
        return model

    @property
    def rung(self) -> Rung:
        return next(rung for rung in LADDER if self.head in rung.config.heads.values())

    @property
    def inputs(self) -> dict:
        """Each input of `forward` and its axes: token ids, or real numbers."""
        return dict(TASKS[self.task].values or self.rung.inputs)

    @property
    def reads_tokens(self) -> bool:
        return not TASKS[self.task].values

    @property
    def is_checkpointable(self) -> bool:
        return getattr(hf_edu_models, self.head).supports_gradient_checkpointing

    @property
    def has_sdpa(self) -> bool:
        return "num_attention_heads" in self.settings

    @property
    def attends(self) -> bool:
        """Whether its past is an attention cache, and not a state or a memory of hidden states."""
        return self.has_sdpa and not getattr(hf_edu_models, self.head)._is_stateful

    @property
    def implementation_field(self) -> str | None:
        """The field of the configuration that chooses between two implementations, if there are two."""
        if self.has_sdpa:
            return "attn_implementation"
        fields = ("recurrent_implementation", "window_implementation")
        return next((name for name in fields if hasattr(self.rung.config, name)), None)

    @property
    def key(self) -> str:
        """The input whose tokens the outputs follow."""
        return list(self.inputs)[-1]

    @property
    def has_batch_norm(self) -> bool:
        """Whether the rows of a batch change each other in training."""
        return self.settings.get("classifier_hidden_size") is not None

    @property
    def per_row(self) -> bool:
        """Whether there is one prediction for a row, not for a token."""
        return TASKS[self.task].targets["labels"][0] == "row" if "labels" in TASKS[self.task].targets else False


def cases_of(rung: Rung) -> list[Case]:
    """Every head with the rung's tiny sizes, and its variants on the heads that they name."""
    heads = [name for name in rung.config.heads.values() if name != f"{rung.prefix}Model"]
    made = []
    for head in heads:
        suffix, labels = head.removeprefix(rung.prefix), {}
        task = task_of_class(head)
        if any(limit == "num_labels" for _, limit in TASKS[task].targets.values()):
            labels = {"num_labels": NUM_LABELS}
        name = rung.name if head == heads[0] else f"{rung.name}-{suffix}"
        made.append(Case(name, head, dict(rung.tiny) | labels, task))
        for variant, change in rung.variants.items():
            if suffix in (change.heads or (heads[0].removeprefix(rung.prefix),)):
                made.append(Case(f"{name}-{variant}", head, dict(rung.tiny) | labels | dict(change.settings), task))
    return made


EVERY = [case for rung in LADDER for case in cases_of(rung)]
CASES = {case.name: case for case in EVERY}
ALL = [case for case in EVERY if case.reads_tokens]
NUMERIC = [case for case in EVERY if not case.reads_tokens]
LANGUAGE_MODELS = [case for case in ALL if case.task == "language_modeling"]
TRANSLATORS = [case for case in ALL if case.task == "translation"]
GENERATORS = LANGUAGE_MODELS + TRANSLATORS
READERS = [case for case in ALL if case not in GENERATORS]
TWO_FORMS = [case for case in ALL if case.implementation_field]
RECURRENT_GENERATORS = [case for case in GENERATORS if not case.attends]


def by_name(cases):
    """Arguments of `parametrize`."""
    return {"argvalues": cases, "ids": [case.name for case in cases]}


def random_ids(*shape, seed: int = 1):
    """Random token ids, none of them special."""
    return torch.randint(4, VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


def random_numbers(*shape, seed: int = 1):
    """Real numbers, normally distributed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def inputs_for(case: Case, batch: int = BATCH, seed: int = 1) -> dict:
    """A batch without padding or labels."""
    inputs = {}
    for number, (name, axes) in enumerate(case.inputs.items()):
        first, *rest = axes
        assert first == "batch"
        if not case.reads_tokens:
            inputs[name] = random_numbers(batch, *(AXES[axis] for axis in rest), seed=seed + number)
            continue
        choices = [CHOICES] if case.task == "multiple_choice" else []
        inputs[name] = random_ids(batch, *choices, *(AXES[axis] for axis in rest), seed=seed + number)
    return inputs


def padded_inputs_for(case: Case, batch: int, *lengths: int, seed: int = 1) -> dict:
    """A batch with a mask for every input: padding left in the first row if there are three, right in the last."""
    inputs: dict = {}
    if not case.reads_tokens:
        sizes = AXES | {"tokens": lengths[0]}
        shapes = [[sizes[axis] for axis in axes[1:]] for axes in case.inputs.values()]
        return {name: random_numbers(batch, *shape, seed=seed) for name, shape in zip(case.inputs, shapes, strict=True)}
    for number, (name, length) in enumerate(zip(case.rung.inputs, lengths, strict=False)):
        choices = [CHOICES] if case.task == "multiple_choice" else []
        middle = [AXES[axis] for axis in case.rung.inputs[name][1:-1]]
        inputs[name] = random_ids(batch, *choices, *middle, length, seed=seed + number)
        mask = torch.ones_like(inputs[name])
        mask[-1, ..., -1] = 0
        if batch > 2:
            mask[0, ..., :2] = 0
        inputs[name.replace("input_ids", "attention_mask")] = mask
    return inputs


def real_logits(case: Case, outputs, inputs: dict):
    """The logits of all rows, or of the real tokens alone."""
    logits = logits_of(outputs)
    if case.per_row or not case.reads_tokens:
        return logits
    return logits[inputs[case.key.replace("input_ids", "attention_mask")] == 1]


def targets_for(case: Case, batch: int = BATCH, seed: int = 3) -> dict:
    """Labels of a batch, by the names of `forward`'s parameters."""
    if not case.reads_tokens:
        return {
            name: random_numbers(batch, *([] if per == "row" else [AXES[per], AXES["features"]]), seed=seed)
            for name, (per, _) in TASKS[case.task].targets.items()
        }
    length = AXES[case.inputs[case.key][-1]]
    sizes = AXES | {"vocab_size": VOCABULARY, "num_labels": NUM_LABELS}
    targets = {}
    for number, (name, (per, limit)) in enumerate(TASKS[case.task].targets.items()):
        shape = (batch, length) if per == "token" else (batch,)
        targets[name] = (random_ids(*shape, seed=seed) + 3 * number) % sizes.get(limit, limit)
    return targets


def last_class(case: Case) -> int:
    """The largest label."""
    limit = TASKS[case.task].targets["labels"][1]
    return (AXES | {"vocab_size": VOCABULARY, "num_labels": NUM_LABELS}).get(limit, limit) - 1


def logits_of(outputs):
    """Predictions of a model, whatever its output calls them."""
    if "start_logits" in outputs:
        return torch.stack([outputs.start_logits, outputs.end_logits], dim=-1)
    if "prediction_outputs" in outputs:
        return outputs.prediction_outputs
    return getattr(outputs, "logits" if hasattr(outputs, "logits") else "prediction_logits")


def pad(ids, side: str, count: int = 2, value: int = 0):
    """Insert `count` padding tokens left, right or in the middle; also the mask, and the positions of real tokens."""
    *front, length = ids.shape
    positions = torch.arange(length) + {"left": count, "right": 0, "middle": 0}[side]
    if side == "middle":
        positions[length // 2 :] += count
    padded = torch.full((*front, length + count), value)
    padded[..., positions] = ids
    mask = torch.zeros_like(padded)
    mask[..., positions] = 1
    return padded, mask, positions
