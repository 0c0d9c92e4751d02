"""The doctor finds the bug of each broken model, and none in valid models."""

import importlib
import importlib.util
import json
import sys
from pathlib import Path

import broken_models
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

import hf_edu_models
from hf_edu_models.cli import app
from hf_edu_models.doctor.compare import is_close
from hf_edu_models.doctor.diagnosis import CHECKS, diagnose, sort_by_needs
from hf_edu_models.doctor.portability import foreign_code, import_problems
from hf_edu_models.doctor.subject import nan_filled_memory, small_config


def tiny_cases():
    """The tiny models of `tests/models`."""
    file = Path(__file__).parents[1] / "models/tiny.py"
    spec = importlib.util.spec_from_file_location("tiny_for_the_doctor", file)
    tiny = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiny)
    return tiny.ALL


CASES = tiny_cases()
ONE_PER_HEAD = list({case.head: case for case in CASES}.values())
BASE_MODELS = [head for rung in hf_edu_models.LADDER for name, head in rung.heads.items() if name == "AutoModel"]


def by_status(report, status):
    return [finding.name for finding in report.findings if finding.status == status]


def check_case(case):
    report = diagnose(getattr(hf_edu_models, case.head), settings=case.settings, quick=True)
    # Skip-gram predicts several words at a position, GloVe a count, ELMo's loss is a mean of two: they are no
    # cross-entropy of the logits.
    known = ["loss"] if case.task in ("skip_gram", "glove", "bidirectional_lm") else []
    assert by_status(report, "fail") == [] and set(by_status(report, "warning")) <= {*known}, report


@pytest.mark.parametrize("case", ONE_PER_HEAD, ids=lambda case: case.name)
def test_no_failure_for_any_head_of_ours(case):
    check_case(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case not in ONE_PER_HEAD], ids=lambda case: case.name)
def test_no_failure_for_other_configurations_of_ours(case):
    check_case(case)


@pytest.mark.parametrize("model_class", BASE_MODELS, ids=lambda each: each.__name__)
def test_no_failure_for_any_base_model_of_ours(model_class):
    report = diagnose(model_class, quick=True)
    assert by_status(report, "fail") == by_status(report, "warning") == [], report


# Known issues of transformers' own classes: evaluation gathers encoder states, and num_items_in_batch is ignored.
KNOWN_WARNINGS = {"accumulation", "evaluation"}


TRANSFORMERS_CLASSES = """
    BertForMaskedLM BertForSequenceClassification BertForMultipleChoice BertForQuestionAnswering GPT2LMHeadModel
    GPT2ForSequenceClassification LlamaForCausalLM MarianMTModel T5ForConditionalGeneration
"""


@pytest.mark.parametrize("name", TRANSFORMERS_CLASSES.split())
def test_no_failure_for_transformers_own(name):
    report = diagnose(getattr(transformers, name), quick=True)
    assert report.is_healthy, report
    assert set(by_status(report, "warning")) <= KNOWN_WARNINGS
    assert report["forward"].status == report["save = load"].status == report["gradients"].status == "ok"


def test_text_checks_are_skipped_for_an_image_model():
    report = diagnose(transformers.ViTForImageClassification, quick=True)
    assert report.is_healthy and report["init"].status == report["save = load"].status == "ok"
    assert "text" in report["padding"].what and report["padding"].status == "skipped"


VALID = [
    broken_models.ValidCausalLM,
    broken_models.ValidLayersCausalLM,
    broken_models.ValidMaskedLM,
    broken_models.ValidClassifier,
    broken_models.ValidSeq2SeqLM,
]


@pytest.mark.parametrize("model_class", VALID, ids=lambda each: each.__name__)
def test_no_failure_for_the_valid_models(model_class):
    report = diagnose(model_class, quick=True)
    assert by_status(report, "fail") == by_status(report, "warning") == [], report


BROKEN = [
    # Class, check that fails, text in the finding, text in the remedy.
    (broken_models.XLNetLikeCausalLM, "names", "xlnet", "rename the class"),
    (broken_models.ReservedConfigNameCausalLM, "names", "BertConfig", "rename your configuration"),
    (broken_models.ReservedModelTypeCausalLM, "names", "'gpt2'", "model_type"),
    (broken_models.TiedKeysListCausalLM, "tied names", "list", "_tied_weights_keys = {"),
    (broken_models.FailingInitCausalLM, "build", "RuntimeError: no layers", "--set"),
    (broken_models.ChangingConfigCausalLM, "config", "window", "unchanged"),
    (broken_models.NoPostInitCausalLM, "post_init", "__init__", "self.post_init()"),
    (broken_models.UninitialisedParameterCausalLM, "init", "scale", "_init_weights"),
    (broken_models.UnseededCausalLM, "seed", "mix.weight", "torch"),
    (broken_models.OverwrittenBaseCausalLM, "new head", "model.wpe.weight", "transformers.initialization"),
    (broken_models.LostBufferCausalLM, "buffers", "slopes", "_init_weights"),
    (broken_models.PlainTensorCausalLM, "buffers", "slopes", "register_buffer"),
    (broken_models.UntiedCausalLM, "ties", "tie_word_embeddings", "_tied_weights_keys"),
    (broken_models.ManuallyTiedCausalLM, "ties", "lm_head.weight", "tie_word_embeddings=True"),
    (broken_models.UndeclaredTieCausalLM, "save", "lm_head.weight", "_tied_weights_keys"),
    (broken_models.OverwrittenOnLoadCausalLM, "save = load", "gate.weight", "transformers.initialization"),
    (broken_models.DropoutInEvalCausalLM, "forward", "evaluation mode", "training=self.training"),
    (broken_models.LookAheadCausalLM, "look-ahead", "looks ahead", "create_causal_mask"),
    (broken_models.IgnoredMaskMaskedLM, "padding", "attention_mask is ignored", "attention_mask"),
    (broken_models.PaddingInMeanClassifier, "padding", "is not applied everywhere", "pooling"),
    (broken_models.WrongPositionCausalLM, "cache", "token by token", "position"),
    (broken_models.NonReorderingCausalLM, "beams", "not reordered", "reorder_cache"),
    (broken_models.DroppedMaskCausalLM, "batch", "padded batch", "attention_mask"),
    (broken_models.LabelsInKwargsCausalLM, "labels", "**kwargs", "`labels`"),
    (broken_models.GatheredCacheCausalLM, "evaluation", "past_key_values", "keys_to_ignore_at_inference"),
    (broken_models.UnshiftedCausalLM, "loss", "predict itself", "labels[:, 1:]"),
    (broken_models.ShiftedTwiceCausalLM, "loss", "once too often", "fixed_cross_entropy"),
    (broken_models.ShiftedTwiceSeq2SeqLM, "loss", "once too often", "self.loss_function is the causal loss"),
    (broken_models.CountedPaddingCausalLM, "loss", "-100", "ignore_index=-100"),
    (broken_models.UnshiftedDecoderInputSeq2SeqLM, "decoder start", "start token", "decoder_start_token_id"),
    (broken_models.MeanLossCausalLM, "accumulation", "num_items_in_batch", "accepts_loss_kwargs = False"),
    (broken_models.UnusedLayerCausalLM, "gradients", "spare.weight", "requires_grad_(False)"),
    (broken_models.DetachedCausalLM, "gradients", "model.wpe.weight", "forward"),
    (broken_models.StrictSignatureCausalLM, "keywords", "unknown keyword", "**kwargs"),
    (broken_models.UnlistedCausalLM, "label smoothing", "does not shift", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"),
    (broken_models.LeakingPackedCausalLM, "packing", "see each other", "create_causal_mask"),
    (broken_models.FlatMaskCausalLM, "static cache", "raised", "4-D"),
    (broken_models.KeywordLayerCausalLM, "checkpointing", "use_reentrant=True", "positional"),
    (broken_models.BypassedHeadCausalLM, "LoRA", "bypasses the adapter of lm_head", "behind its back"),
    (broken_models.HeadsLinearCausalLM, "LoRA", "raised", "shapes of nn.Linear"),
    (broken_models.OutsideWeightCausalLM, "sharding", "_no_split_modules", "that owns it"),
    (broken_models.ForeignKernelCausalLM, "foreign code", "somebody/fast-mlp:FastMLP", "attn_implementation"),
]


@pytest.mark.parametrize("model_class, check, what, remedy", BROKEN, ids=[each[0].__name__ for each in BROKEN])
def test_exactly_one_check_fails(model_class, check, what, remedy):
    report = diagnose(model_class, quick=True)
    assert report.failed == [check], report
    assert not report.is_healthy
    assert what in report[check].what and remedy in report[check].remedy
    skipped = [finding.what for finding in report.findings if finding.what.startswith("fix first")]
    assert set(skipped) <= {f"fix first: {check}"}


def test_a_size_that_is_frozen_cannot_be_exported():
    report = diagnose(broken_models.FrozenBatchCausalLM, only=["export"])
    assert report.failed == ["export"] and "tensor.shape" in report["export"].remedy
    assert diagnose(broken_models.ValidCausalLM, only=["export"])["export"].status == "ok"


@pytest.mark.slow
@pytest.mark.parametrize("case", ONE_PER_HEAD, ids=lambda case: case.name)
def test_every_head_of_ours_can_be_exported(case):
    report = diagnose(getattr(hf_edu_models, case.head), settings=case.settings, only=["export"])
    assert report["export"].status == "ok", report["export"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["BertForMaskedLM", "GPT2LMHeadModel", "MarianMTModel"])
def test_transformers_own_can_be_exported(name):
    assert diagnose(getattr(transformers, name), only=["export"])["export"].status == "ok"


WITH_WARNING = [
    (broken_models.LabelSmoothingArgumentCausalLM, "labels", "label_smoothing"),
    (broken_models.GatheredEncoderSeq2SeqLM, "evaluation", "encoder_last_hidden_state"),
]


@pytest.mark.parametrize("model_class, check, what", WITH_WARNING, ids=[each[0].__name__ for each in WITH_WARNING])
def test_warning_is_not_a_failure(model_class, check, what):
    report = diagnose(model_class, quick=True)
    assert report.is_healthy and by_status(report, "warning") == [check]
    assert what in report[check].what and report[check].remedy


def test_every_check_has_a_broken_model():
    broken = {check for _, check, *_ in BROKEN}
    tested_below = {"checkpoint", "code", "new process", "export"}
    assert broken | tested_below == {check.name for check in CHECKS}


def test_checks_run_after_those_they_need():
    order = [check.name for check in sort_by_needs(CHECKS)]
    assert sorted(order) == sorted(check.name for check in CHECKS)
    for check in CHECKS:
        assert all(order.index(name) < order.index(check.name) for name in check.needs)


def small(model_class, **settings):
    return model_class(small_config(model_class.config_class, settings))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    small(hf_edu_models.EduGPTForCausalLM).save_pretrained(folder)
    return folder


def test_checkpoint_with_missing_weight_and_code(checkpoint, tmp_path):
    report = diagnose(checkpoint, quick=True)
    assert report.is_healthy and report["checkpoint"].status == "ok" and report.model_class == "EduGPTForCausalLM"
    (tmp_path / "config.json").write_text((checkpoint / "config.json").read_text())
    weights = load_file(checkpoint / "model.safetensors")
    del weights["model.embed_positions.weight"]
    save_file(weights | {"stray": torch.ones(1)}, tmp_path / "model.safetensors", {"format": "pt"})
    report = diagnose(str(tmp_path), quick=True)
    assert "model.embed_positions.weight" in report["checkpoint"].what
    # auto_map in config.json names code that is not in the folder.
    assert report.failed == ["checkpoint", "code"] and "configuration_gpt.py" in report["code"].what


def test_no_failure_for_a_half_precision_checkpoint(tmp_path):
    small(transformers.MarianMTModel).to(torch.bfloat16).save_pretrained(tmp_path)
    assert diagnose(tmp_path, quick=True).is_healthy


def test_model_in_memory_is_not_changed():
    model = small(hf_edu_models.EduRecurrentForSequenceClassification, dropout=0.5).train()
    model.model.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    config, rng_state = dict(vars(model.config)), torch.get_rng_state()
    assert diagnose(model, quick=True).is_healthy
    assert model.training and not model.model.training and all(each.grad is None for each in model.parameters())
    assert vars(model.config) == config and torch.equal(torch.get_rng_state(), rng_state)
    assert not torch.are_deterministic_algorithms_enabled()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


BAD_LINES = {
    "from ..layers import unroll": "parent folder",
    "from .blocks.recurrent import unroll": "sub-folder",
    "from . import sibling": "names no file",
    "from mypackage.sibling import unroll": "not installed",
    "import mypackage": "not installed",
    "from .absent import unroll": "does not exist",
    '"""\nfrom .absent import unroll\n"""': "read as code",
}


@pytest.mark.parametrize("line", BAD_LINES)
def test_imports_that_cannot_be_copied_are_found(line, tmp_path):
    file = tmp_path / "modeling_bad.py"
    (tmp_path / "sibling.py").write_text("unroll = None\n")
    file.write_text("import math\nimport torch\nfrom transformers import X\nfrom .sibling import unroll\n")
    assert import_problems(file, {"mypackage"}) == []
    file.write_text(file.read_text() + line + "\n")
    (problem,) = import_problems(file, {"mypackage"})
    assert BAD_LINES[line] in problem


def test_import_from_a_parent_folder_fails(tmp_path, monkeypatch):
    package = tmp_path / "doctor_parent" / "inner"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    source = Path(broken_models.__file__).read_text()
    (package.parent / "layers.py").write_text("SIZE = 1\n")
    (package / "modeling_x.py").write_text(source + "\nfrom ..layers import SIZE\n")
    monkeypatch.chdir(tmp_path)  # a class is also imported from the current folder
    monkeypatch.setattr(sys, "path", list(sys.path))
    report = diagnose("doctor_parent.inner.modeling_x:ValidCausalLM")
    assert report.failed == ["code"] and "parent folder" in report["code"].what
    assert "from .sibling import name" in report["code"].remedy and "code" in report["new process"].what


@pytest.fixture
def unregistered():
    """Undo `register_for_auto_class`."""
    yield
    for each in (broken_models.CausalLMConfig, broken_models.ValidCausalLM):
        each._auto_class = None


def test_checkpoint_with_its_own_code_loads_in_a_new_process(tmp_path, unregistered):
    broken_models.CausalLMConfig.register_for_auto_class()
    broken_models.ValidCausalLM.register_for_auto_class("AutoModelForCausalLM")
    small(broken_models.ValidCausalLM).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"cannot be loaded as a checkpoint.*--trust-remote-code"):
        diagnose(tmp_path)
    report = diagnose(tmp_path, trust_remote_code=True)
    assert by_status(report, "fail") == by_status(report, "warning") == [], report
    assert AutoModelForCausalLM.__name__ in report["new process"].what


def test_class_that_needs_its_package_does_not_load_in_a_new_process():
    report = diagnose(broken_models.HiddenImportCausalLM)
    assert report.failed == ["new process"]
    assert "broken_models" in report["new process"].what and "register_for" in report["new process"].remedy
    assert vars(broken_models.HiddenImportCausalLM).get("_auto_class") is None


FOREIGN = {
    "config.json": {"auto_map": {"AutoConfig": "other/code--configuration_x.XConfig"}},
    "tokenizer_config.json": {"auto_map": {"AutoTokenizer": [None, "other/code--tokenization_x.X"]}},
    "generation_config.json": {"kernels": {"rms_norm": "other/code@main"}},
    "config.json of a part": {"text_config": {"_attn_implementation_internal": "paged|other/code:attend"}},
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_checkpoint_that_names_foreign_code_is_not_loaded(name, tmp_path, monkeypatch):
    small(transformers.GPT2LMHeadModel).save_pretrained(tmp_path)
    file = tmp_path / name.split()[0]
    values = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(values | FOREIGN[name]))
    monkeypatch.setattr("hf_edu_models.doctor.diagnosis.load_subject", lambda *args: pytest.fail("it was loaded"))
    report = diagnose(tmp_path, trust_remote_code=True)
    assert report.failed == ["foreign code"] and "other/code" in report["foreign code"].what
    assert "remove the entry" in report["foreign code"].remedy and "foreign code" in report["forward"].what


def test_own_code_and_plain_names_are_not_foreign():
    config = {"auto_map": {"AutoModel": "modeling_x.X", "AutoConfig": "me/mine--configuration_x.XConfig"}}
    config |= {"_attn_implementation": "sdpa", "_name_or_path": "me/mine", "kernel_size": 3}
    assert foreign_code(config, "me/mine") == [] and len(foreign_code(config, "somebody/copy")) == 1


@pytest.mark.parametrize("library", ["peft", "onnxruntime"])
def test_a_missing_library_is_a_reason(library, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name == library else find(name, *rest))
    check = {"peft": "LoRA", "onnxruntime": "export"}[library]
    finding = diagnose(transformers.GPT2LMHeadModel, only=[check])[check]
    assert library in finding.what and finding.status == {"peft": "skipped", "onnxruntime": "ok"}[library]


def test_only_some_checks_run():
    report = diagnose(broken_models.ValidCausalLM, only=["keywords"])
    assert [finding.name for finding in report.findings] == ["tied names", "build", "forward", "keywords"]
    with pytest.raises(ValueError, match="no check 'nothing'; the checks are names, "):
        diagnose(broken_models.ValidCausalLM, only=["nothing"])


BAD_ARGUMENTS = [
    (["./no/such/folder"], "./no/such/folder does not exist"),
    (["nomodule.Nope"], "cannot be imported"),
    (["transformers:Nope"], "has no class Nope"),
    (["transformers:GPT2Config"], "is not a PreTrainedModel"),
    (["transformers:GPT2LMHeadModel", "--set", "n_embd"], "--set takes name=value"),
    (["transformers:GPT2LMHeadModel", "--set", "no_such_field=1"], "no field no_such_field"),
    (["nobody/nothing"], "nobody/nothing does not exist, and no Hub"),
    (["."], "has no config.json"),
]


@pytest.mark.parametrize("arguments, message", BAD_ARGUMENTS, ids=[" ".join(each[0]) for each in BAD_ARGUMENTS])
def test_bad_argument_raises_with_a_message(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    run = CliRunner().invoke(app, ["doctor", *arguments, "--quick"])
    assert isinstance(run.exception, ValueError | FileNotFoundError)  # for which `main` exits with code 2
    assert message in str(run.exception)


def test_settings_are_for_classes_only(checkpoint):
    with pytest.raises(ValueError, match="hidden_size"):
        diagnose(checkpoint, settings={"hidden_size": 8})


def test_command_prints_findings_and_remedies_within_the_width():
    run = CliRunner().invoke(app, ["doctor", "broken_models.MeanLossCausalLM", "--quick"], env={"COLUMNS": "80"})
    assert run.exit_code == 1
    assert max(len(line) for line in run.stdout.splitlines()) <= 80
    table, remedies = run.stdout.split("How to fix it")
    assert all(check.name in table for check in CHECKS)
    assert "accepts_loss_kwargs" in remedies and remedies.rstrip().splitlines()[-1].startswith("not healthy")


def test_command_prints_json():
    arguments = ["doctor", "hf_edu_models:EduGPTForCausalLM", "--quick", "--json", "--set", "hidden_size=8"]
    run = CliRunner().invoke(app, [*arguments, "--set", "num_attention_heads=2"])
    assert run.exit_code == 0, run.output
    report = json.loads(run.stdout)
    assert report["is_healthy"] and [finding["name"] for finding in report["findings"]] == [c.name for c in CHECKS]
    assert {"name", "status", "what", "remedy"} == report["findings"][0].keys()


def test_memory_is_filled_with_nan_and_tolerance_is_relative_to_spread():
    with nan_filled_memory():
        assert torch.empty(3).isnan().all()
    values = torch.linspace(-1, 1, 9)
    assert is_close(values + 1e-6, values) and not is_close(values + 1e-2, values)
    assert is_close(values * 1e-4 + 1e-10, values * 1e-4) and not is_close(values * 1e-4 + 1e-6, values * 1e-4)
    assert not is_close(values.where(values > 0, torch.nan), values) and not is_close(values[1:], values)
