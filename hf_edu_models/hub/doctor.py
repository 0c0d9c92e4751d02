"""The doctor: checks any transformers model, not only ours, for the known traps, and says how to mend each.

The checks live in `doctor_weights.py`, `doctor_outputs.py`, `doctor_training.py` and `doctor_travel.py`; each is a
function that takes the patient and returns a verdict. Here they are listed with their remedies, and run.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from transformers import PreTrainedModel

from . import doctor_outputs as outputs
from . import doctor_training as training
from . import doctor_travel as travel
from . import doctor_weights as weights
from .doctor_patient import Patient, admit, one_line, undisturbed
from .doctor_report import Finding, Report, Verdict, fail, print_report, skipped

MEND_FIRST = "mend first: "
TEXT, LOADS = ("build", "forward"), ("build", "post_init", "save")


@dataclass(frozen=True)
class Check:
    """One thing to look at.

    Args:
        remedy: how to mend it, if the verdict has no better advice.
        needs: checks without which this one would only repeat their failure.
        is_slow: starts another Python; left out in a hurry.
    """

    name: str
    function: Callable[[Patient], Verdict]
    remedy: str
    needs: tuple[str, ...] = ()
    is_slow: bool = False


CHECKS = (
    Check("names", weights.check_names, "rename the class, its configuration or its model_type"),
    Check(
        "tied names",
        weights.check_tied_names,
        'write `_tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}`: what is tied, and to what',
    ),
    Check(
        "build",
        weights.check_build,
        "make the class build from its configuration alone; for a class, --set changes the configuration's fields",
        ("tied names",),
    ),
    Check(
        "checkpoint",
        weights.check_checkpoint,
        "load it with the class that saved it, or rename the weights; what is drawn at random has to be trained",
        ("build",),
    ),
    Check(
        "config",
        weights.check_config,
        "store every argument under its own name, unchanged, and pass the rest on to PreTrainedConfig",
    ),
    Check("post_init", weights.check_post_init, "call self.post_init() as the last line of __init__", ("build",)),
    Check(
        "init",
        weights.check_init,
        "set it in _init_weights(module) with the functions of transformers.initialization, also raw nn.Parameters",
        ("build", "post_init"),
    ),
    Check("seed", weights.check_seed, "draw first weights with torch alone, in _init_weights", ("build",)),
    Check(
        "save",
        weights.check_save,
        "hold weights as parameters and buffers only, and write no save_pretrained of your own",
        ("build", "post_init"),
    ),
    Check(
        "new head",
        weights.check_new_head,
        "write weights in _init_weights only with transformers.initialization: its functions skip what was loaded",
        (*LOADS, "init"),
    ),
    Check(
        "buffers",
        weights.check_buffers,
        "compute it again in _init_weights (init.copy_(module.name, values)), or save it with persistent=True",
        LOADS,
    ),
    Check(
        "ties",
        weights.check_ties,
        "declare it in _tied_weights_keys, a dict of tied to source, and set tie_word_embeddings=True in the config",
        LOADS,
    ),
    Check(
        "save = load",
        weights.check_save_and_load,
        "let every weight be a parameter or a persistent buffer, and write none in _init_weights but by "
        "transformers.initialization",
        (*LOADS, "forward", "buffers", "ties"),
    ),
    Check(
        "forward",
        outputs.check_forward,
        "make forward(input_ids=...) run and, in evaluation mode, drop and draw nothing: use nn.Dropout or "
        "F.dropout(..., training=self.training)",
        ("build",),
    ),
    Check(
        "look-ahead",
        outputs.check_look_ahead,
        "mask the attention with transformers.masking_utils.create_causal_mask, or run over the words in order",
        TEXT,
    ),
    Check(
        "padding",
        outputs.check_padding,
        "use attention_mask wherever tokens meet: attention, pooling, normalising over time, a recurrent state",
        TEXT,
    ),
    Check(
        "cache",
        outputs.check_cache,
        "put all that the next word needs into past_key_values and count its position from get_seq_length()",
        (*TEXT, "look-ahead"),
    ),
    Check(
        "beams",
        outputs.check_beams,
        "keep the cache's tensors batch first in layers of a transformers Cache, whose reorder_cache picks the beams",
        (*TEXT, "cache"),
    ),
    Check(
        "batch",
        outputs.check_batch,
        "derive positions from attention_mask, take position_ids, and let the mask reach every step of generate()",
        (*TEXT, "padding", "cache"),
    ),
    Check("labels", training.check_labels, "name `labels` as a parameter of forward of its own", TEXT),
    Check(
        "evaluation",
        training.check_evaluation,
        'write `keys_to_ignore_at_inference = ["past_key_values", "encoder_last_hidden_state"]` in the configuration, '
        "with every other output that is no prediction",
        TEXT,
    ),
    Check(
        "loss",
        training.check_shift,
        "use fixed_cross_entropy on logits and labels as they are; self.loss_function is the causal loss, which shifts "
        "them itself",
        TEXT,
    ),
    Check(
        "decoder start",
        training.check_decoder_start,
        "put decoder_start_token_id before the labels and drop the last one, once, in forward",
        TEXT,
    ),
    Check(
        "accumulation",
        training.check_accumulation,
        "divide the summed loss by num_items_in_batch (fixed_cross_entropy does), or set accepts_loss_kwargs = False",
        TEXT,
    ),
    Check(
        "gradients",
        training.check_gradients,
        "use the parameter in forward, or delete it, or freeze it with requires_grad_(False)",
        TEXT,
    ),
    Check(
        "code",
        travel.check_code,
        "put all files in one folder and import with `from .sibling import name`; nothing else is copied",
    ),
    Check(
        "new process",
        travel.check_new_process,
        "save after register_for_auto_class for the configuration and the class, from files that import only siblings",
        (*LOADS, "forward", "code"),
        is_slow=True,
    ),
)
NEEDS_TEXT = {check.name for check in CHECKS if "forward" in check.needs} - {"save = load", "new process"}


def diagnose(
    model_or_path_or_class: PreTrainedModel | type[PreTrainedModel] | str | os.PathLike,
    *,
    trust_remote_code: bool = False,
    settings: dict[str, Any] | None = None,
    quick: bool = False,
) -> Report:
    """Check a model for the known traps of transformers 5.

    The model itself is in memory once, in float32, with one further copy at a time and one on disk: BERT base, 440 MB,
    took 1.1 GB at the most. A model in hand is left as it was.

    Args:
        model_or_path_or_class: a model; a checkpoint folder or Hub id; a class or its name, `package.module:Class`,
            which is then built with a small configuration.
        trust_remote_code: run code that the checkpoint brings.
        settings: fields of a class's small configuration.
        quick: leave out what starts another Python.
    """
    given = model_or_path_or_class if isinstance(model_or_path_or_class, PreTrainedModel) else None
    with tempfile.TemporaryDirectory(prefix="doctor-") as workplace, undisturbed(given):
        patient = admit(model_or_path_or_class, Path(workplace), trust_remote_code, settings)
        findings: dict[str, Finding] = {}
        for check in in_order(CHECKS):
            findings[check.name] = examine(check, patient, findings, quick)
        ordered = tuple(findings[check.name] for check in CHECKS)
        return Report(patient.name, patient.model_class.__name__, ordered)


def in_order(checks: Iterable[Check]) -> list[Check]:
    """What others need comes first; otherwise as listed."""
    by_name, done = {check.name: check for check in checks}, {}

    def visit(check: Check) -> None:
        for name in check.needs:
            visit(by_name[name])
        done.setdefault(check.name, check)

    for check in by_name.values():
        visit(check)
    return list(done.values())


def examine(check: Check, patient: Patient, findings: dict[str, Finding], quick: bool) -> Finding:
    """One check, whatever happens in it; a crash of the model is a finding, too."""
    causes = sorted({cause for name in check.needs for cause in causes_of(findings[name])})
    if causes:
        verdict = skipped(f"{MEND_FIRST}{', '.join(causes)}")
    elif quick and check.is_slow:
        verdict = skipped("left out in a quick look")
    elif check.name in NEEDS_TEXT and not patient.reads_text:
        verdict = skipped(outputs.NOT_TEXT)
    else:
        try:
            verdict = check.function(patient)
        except Exception as error:
            verdict = fail(f"it stopped with {one_line(error)}")
    is_well = verdict.status in ("ok", "skipped")
    return Finding(check.name, verdict.status, verdict.what, "" if is_well else verdict.remedy or check.remedy)


def causes_of(finding: Finding) -> list[str]:
    """The failed checks that stand in the way: this one, or those that held it up itself."""
    if finding.status == "fail":
        return [finding.name]
    if finding.status == "skipped" and finding.what.startswith(MEND_FIRST):
        return finding.what.removeprefix(MEND_FIRST).split(", ")
    return []


def parse_settings(given: list[str]) -> dict[str, Any]:
    """`name=value` pairs, the value as JSON or as a word."""
    settings = {}
    for each in given:
        name, sign, value = each.partition("=")
        if not (name and sign and value):
            raise ValueError(f"--set takes name=value, got {each!r}")
        try:
            settings[name] = json.loads(value)
        except json.JSONDecodeError:
            settings[name] = {"True": True, "False": False, "None": None}.get(value, value)
    return settings


def visit(checkpoint_or_class: str, trust_remote_code: bool, settings: list[str], quick: bool, as_json: bool) -> int:
    """What the verb does: print the report; the exit code is 0 for a healthy model and 1 for a sick one."""
    console = Console()
    with Console(stderr=True).status(f"examining {checkpoint_or_class}"):
        report = diagnose(
            checkpoint_or_class,
            trust_remote_code=trust_remote_code,
            settings=parse_settings(settings),
            quick=quick,
        )
    if as_json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        print_report(report, console)
    return 0 if report.is_healthy else 1
