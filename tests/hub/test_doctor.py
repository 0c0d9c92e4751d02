"""The doctor finds each fault in the model that has it, and nothing in a healthy one."""

import importlib
import importlib.util
import json
import sys
from pathlib import Path

import doctor_patients as patients
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

import hf_edu_models
from hf_edu_models.cli import app
from hf_edu_models.hub.doctor import CHECKS, diagnose, in_order
from hf_edu_models.hub.doctor_compare import same
from hf_edu_models.hub.doctor_patient import marked_memory, small_config
from hf_edu_models.hub.doctor_travel import import_problems


def tiny_cases():
    """The small models of the laws, one for each head."""
    file = Path(__file__).parents[1] / "models/tiny.py"
    spec = importlib.util.spec_from_file_location("tiny_for_the_doctor", file)
    tiny = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiny)
    return tiny.ALL


CASES = tiny_cases()
ONE_A_HEAD = list({case.head: case for case in CASES}.values())
BODIES = [head for rung in hf_edu_models.LADDER for name, head in rung.heads.items() if name == "AutoModel"]


def by_status(report, status):
    return [finding.name for finding in report.findings if finding.status == status]


def check_case(case):
    report = diagnose(getattr(hf_edu_models, case.head), settings=case.settings, quick=True)
    assert by_status(report, "fail") == by_status(report, "warning") == [], report


@pytest.mark.parametrize("case", ONE_A_HEAD, ids=lambda case: case.name)
def test_every_head_of_ours_is_healthy(case):
    check_case(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case not in ONE_A_HEAD], ids=lambda case: case.name)
def test_every_other_form_of_ours_is_healthy(case):
    check_case(case)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_every_body_of_ours_is_healthy(body):
    report = diagnose(body, quick=True)
    assert by_status(report, "fail") == by_status(report, "warning") == [], report


# What transformers' own classes really do: evaluation keeps encoder states, and a mean loss takes any keyword.
KNOWN_OF_THEIRS = {"accumulation", "evaluation"}


THEIRS = """
    BertForMaskedLM BertForSequenceClassification BertForMultipleChoice BertForQuestionAnswering GPT2LMHeadModel
    GPT2ForSequenceClassification LlamaForCausalLM MarianMTModel T5ForConditionalGeneration
"""


@pytest.mark.parametrize("name", THEIRS.split())
def test_no_false_alarm_about_transformers_own(name):
    report = diagnose(getattr(transformers, name), quick=True)
    assert report.is_healthy, report
    assert set(by_status(report, "warning")) <= KNOWN_OF_THEIRS
    assert report["forward"].status == report["save = load"].status == report["gradients"].status == "ok"


def test_an_image_model_is_checked_as_far_as_it_goes():
    report = diagnose(transformers.ViTForImageClassification, quick=True)
    assert report.is_healthy and report["init"].status == report["save = load"].status == "ok"
    assert "text" in report["padding"].what and report["padding"].status == "skipped"


HEALTHY = [patients.HealthySpeaker, patients.HealthyReader, patients.HealthyJudge, patients.HealthyTranslator]


@pytest.mark.parametrize("model_class", HEALTHY, ids=lambda each: each.__name__)
def test_the_sick_are_made_from_the_healthy(model_class):
    report = diagnose(model_class, quick=True)
    assert by_status(report, "fail") == by_status(report, "warning") == [], report


SICK = [
    # The class, the check that fails, what the finding names, what the remedy names.
    (patients.XLNetLikeSpeaker, "names", "xlnet", "rename the class"),
    (patients.NamesakeSpeaker, "names", "BertConfig", "rename your configuration"),
    (patients.BorrowedTypeSpeaker, "names", "'gpt2'", "model_type"),
    (patients.OldTieSpeaker, "tied names", "list", "_tied_weights_keys = {"),
    (patients.UnbuildableSpeaker, "build", "RuntimeError: no layers today", "--set"),
    (patients.GrowingConfigSpeaker, "config", "window", "unchanged"),
    (patients.NoPostInitSpeaker, "post_init", "__init__", "self.post_init()"),
    (patients.RawParameterSpeaker, "init", "scale", "_init_weights"),
    (patients.UnseededSpeaker, "seed", "mix.weight", "torch"),
    (patients.OverwritingHeadSpeaker, "new head", "model.wpe.weight", "transformers.initialization"),
    (patients.LostBufferSpeaker, "buffers", "slopes", "_init_weights"),
    (patients.PlainTensorSpeaker, "buffers", "slopes", "register_buffer"),
    (patients.UntiedSpeaker, "ties", "tie_word_embeddings", "_tied_weights_keys"),
    (patients.HandTiedSpeaker, "ties", "lm_head.weight", "tie_word_embeddings=True"),
    (patients.UndeclaredTieSpeaker, "save", "lm_head.weight", "_tied_weights_keys"),
    (patients.ForgetfulSpeaker, "save = load", "gate.weight", "transformers.initialization"),
    (patients.RestlessSpeaker, "forward", "evaluation mode", "training=self.training"),
    (patients.ProphetSpeaker, "look-ahead", "looks ahead", "create_causal_mask"),
    (patients.MasklessReader, "padding", "attention_mask is ignored", "attention_mask"),
    (patients.PaddingJudge, "padding", "does not reach", "pooling"),
    (patients.LostPlaceSpeaker, "cache", "word by word", "position"),
    (patients.StuckBeamSpeaker, "beams", "not reordered", "reorder_cache"),
    (patients.MaskDroppingSpeaker, "batch", "padded batch", "attention_mask"),
    (patients.HiddenLabelsSpeaker, "labels", "**kwargs", "`labels`"),
    (patients.GatheringSpeaker, "evaluation", "past_key_values", "keys_to_ignore_at_inference"),
    (patients.SelfPredictingSpeaker, "loss", "predict itself", "labels[:, 1:]"),
    (patients.TwiceShiftedSpeaker, "loss", "once too often", "fixed_cross_entropy"),
    (patients.TwiceShiftedTranslator, "loss", "once too often", "self.loss_function is the causal loss"),
    (patients.CountingPaddingSpeaker, "loss", "-100", "ignore_index=-100"),
    (patients.CheatingTranslator, "decoder start", "start token", "decoder_start_token_id"),
    (patients.PlainMeanSpeaker, "accumulation", "num_items_in_batch", "accepts_loss_kwargs = False"),
    (patients.UnusedLayerSpeaker, "gradients", "spare.weight", "requires_grad_(False)"),
    (patients.DetachedSpeaker, "gradients", "model.wpe.weight", "forward"),
]


@pytest.mark.parametrize("model_class, check, what, remedy", SICK, ids=[each[0].__name__ for each in SICK])
def test_exactly_the_right_check_fails(model_class, check, what, remedy):
    report = diagnose(model_class, quick=True)
    assert report.failed == [check], report
    assert not report.is_healthy
    assert what in report[check].what and remedy in report[check].remedy
    held_up = [finding.what for finding in report.findings if finding.what.startswith("mend first")]
    assert set(held_up) <= {f"mend first: {check}"}


WORRYING = [
    (patients.SmoothedSpeaker, "labels", "label_smoothing"),
    (patients.HoardingTranslator, "evaluation", "encoder_last_hidden_state"),
]


@pytest.mark.parametrize("model_class, check, what", WORRYING, ids=[each[0].__name__ for each in WORRYING])
def test_a_warning_leaves_a_model_healthy(model_class, check, what):
    report = diagnose(model_class, quick=True)
    assert report.is_healthy and by_status(report, "warning") == [check]
    assert what in report[check].what and report[check].remedy


def test_every_check_has_a_patient():
    sick = {check for _, check, *_ in SICK}
    elsewhere = {"checkpoint", "code", "new process"}  # the tests below
    assert sick | elsewhere == {check.name for check in CHECKS}


def test_what_others_need_comes_first():
    order = [check.name for check in in_order(CHECKS)]
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


def test_a_checkpoint_and_one_with_a_weight_missing(checkpoint, tmp_path):
    report = diagnose(checkpoint, quick=True)
    assert report.is_healthy and report["checkpoint"].status == "ok" and report.model_class == "EduGPTForCausalLM"
    (tmp_path / "config.json").write_text((checkpoint / "config.json").read_text())
    weights = load_file(checkpoint / "model.safetensors")
    del weights["model.embed_positions.weight"]
    save_file(weights | {"stray": torch.ones(1)}, tmp_path / "model.safetensors", {"format": "pt"})
    report = diagnose(str(tmp_path), quick=True)
    assert "model.embed_positions.weight" in report["checkpoint"].what
    # config.json promises code that was not copied along.
    assert report.failed == ["checkpoint", "code"] and "configuration_gpt.py" in report["code"].what


def test_half_precision_of_a_checkpoint_is_no_fault(tmp_path):
    small(transformers.MarianMTModel).to(torch.bfloat16).save_pretrained(tmp_path)
    assert diagnose(tmp_path, quick=True).is_healthy


def test_a_model_in_hand_is_left_as_it_was():
    model = small(hf_edu_models.EduRecurrentForSequenceClassification, dropout=0.5).train()
    model.model.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    settings, dice = dict(vars(model.config)), torch.get_rng_state()
    assert diagnose(model, quick=True).is_healthy
    assert model.training and not model.model.training and all(each.grad is None for each in model.parameters())
    assert vars(model.config) == settings and torch.equal(torch.get_rng_state(), dice)
    assert not torch.are_deterministic_algorithms_enabled()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


BAD_LINES = {
    "from ..layers import unroll": "parent folder",
    "from .blocks.recurrent import unroll": "sub-folder",
    "from . import sibling": "names no file",
    "from mypackage.sibling import unroll": "not installed",
    "import mypackage": "not installed",
    "from .absent import unroll": "not there",
    '"""\nfrom .absent import unroll\n"""': "read as code",
}


@pytest.mark.parametrize("line", BAD_LINES)
def test_imports_that_do_not_travel_are_found(line, tmp_path):
    file = tmp_path / "modeling_bad.py"
    (tmp_path / "sibling.py").write_text("unroll = None\n")
    file.write_text("import math\nimport torch\nfrom transformers import X\nfrom .sibling import unroll\n")
    assert import_problems(file, {"mypackage"}) == []
    file.write_text(file.read_text() + line + "\n")
    (problem,) = import_problems(file, {"mypackage"})
    assert BAD_LINES[line] in problem


def test_code_that_reaches_into_a_parent_folder(tmp_path, monkeypatch):
    package = tmp_path / "doctor_parent" / "inner"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    source = Path(patients.__file__).read_text()
    (package.parent / "layers.py").write_text("SIZE = 1\n")
    (package / "modeling_x.py").write_text(source + "\nfrom ..layers import SIZE\n")
    monkeypatch.chdir(tmp_path)  # a class is also found in the folder where the user stands
    monkeypatch.setattr(sys, "path", list(sys.path))
    report = diagnose("doctor_parent.inner.modeling_x:HealthySpeaker")
    assert report.failed == ["code"] and "parent folder" in report["code"].what
    assert "from .sibling import name" in report["code"].remedy and "code" in report["new process"].what


@pytest.fixture
def unregistered():
    """Registering for an Auto class stays with a class."""
    yield
    for each in (patients.SpeakerConfig, patients.HealthySpeaker):
        each._auto_class = None


def test_a_checkpoint_with_its_own_code_loads_in_a_new_process(tmp_path, unregistered):
    patients.SpeakerConfig.register_for_auto_class()
    patients.HealthySpeaker.register_for_auto_class("AutoModelForCausalLM")
    small(patients.HealthySpeaker).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="--trust-remote-code"):
        diagnose(tmp_path)
    report = diagnose(tmp_path, trust_remote_code=True)
    assert by_status(report, "fail") == by_status(report, "warning") == [], report
    assert AutoModelForCausalLM.__name__ in report["new process"].what


def test_a_class_that_needs_its_package_does_not_load_in_a_new_process():
    report = diagnose(patients.SecretiveSpeaker)
    assert report.failed == ["new process"]
    assert "doctor_patients" in report["new process"].what and "register_for" in report["new process"].remedy
    assert vars(patients.SecretiveSpeaker).get("_auto_class") is None


WRONG = [
    (["./no/such/folder"], "is no folder"),
    (["nomodule.Nope"], "cannot be imported"),
    (["transformers:Nope"], "has no class Nope"),
    (["transformers:GPT2Config"], "is no PreTrainedModel"),
    (["transformers:GPT2LMHeadModel", "--set", "n_embd"], "--set takes name=value"),
    (["transformers:GPT2LMHeadModel", "--set", "no_such_field=1"], "no field no_such_field"),
    (["nobody/nothing"], "cannot be read as a checkpoint"),
    (["."], "cannot be read as a checkpoint"),
]


@pytest.mark.parametrize("arguments, sentence", WRONG, ids=[" ".join(each[0]) for each in WRONG])
def test_a_wrong_argument_is_told_in_a_sentence(arguments, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    run = CliRunner().invoke(app, ["doctor", *arguments, "--quick"])
    assert isinstance(run.exception, ValueError | FileNotFoundError)  # `main` makes exit code 2 of these
    assert sentence in str(run.exception)


def test_settings_are_for_classes_only(checkpoint):
    with pytest.raises(ValueError, match="hidden_size"):
        diagnose(checkpoint, settings={"hidden_size": 8})


def test_the_command_prints_a_table_that_fits_and_the_remedies():
    run = CliRunner().invoke(app, ["doctor", "doctor_patients.PlainMeanSpeaker", "--quick"], env={"COLUMNS": "80"})
    assert run.exit_code == 1
    assert max(len(line) for line in run.stdout.splitlines()) <= 80
    table, remedies = run.stdout.split("How to mend it")
    assert all(check.name in table for check in CHECKS)
    assert "accepts_loss_kwargs" in remedies and remedies.rstrip().splitlines()[-1].startswith("not healthy")


def test_the_command_prints_json_for_machines():
    arguments = ["doctor", "hf_edu_models:EduGPTForCausalLM", "--quick", "--json", "--set", "hidden_size=8"]
    run = CliRunner().invoke(app, [*arguments, "--set", "num_attention_heads=2"])
    assert run.exit_code == 0, run.output
    report = json.loads(run.stdout)
    assert report["is_healthy"] and [finding["name"] for finding in report["findings"]] == [c.name for c in CHECKS]
    assert {"name", "status", "what", "remedy"} == report["findings"][0].keys()


def test_new_memory_is_marked_and_closeness_is_measured_by_spread():
    with marked_memory():
        assert torch.empty(3).isnan().all()
    values = torch.linspace(-1, 1, 9)
    assert same(values + 1e-6, values) and not same(values + 1e-2, values)
    assert same(values * 1e-4 + 1e-10, values * 1e-4) and not same(values * 1e-4 + 1e-6, values * 1e-4)
    assert not same(values.where(values > 0, torch.nan), values) and not same(values[1:], values)
