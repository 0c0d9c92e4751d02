"""`hf-edu export`: the program in the file computes what the model does."""

import json

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoTokenizer
from typer.testing import CliRunner

import hf_edu_models
from hf_edu_models.cli import app
from hf_edu_models.convert import export
from hf_edu_models.data import train_tokenizer

TEXTS = ["the cat sat on the mat", "a dog ran after the cat", "two birds sang"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with a saved model and tokenizer for each of three kinds."""
    folder = tmp_path_factory.mktemp("runs")
    recurrent = {"hidden_size": 12, "embedding_size": 10, "num_hidden_layers": 1}
    small = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 20}
    kinds = {
        "language_modeling": ("EduRecurrentForCausalLM", recurrent),
        "seq2seq": ("EduSeq2SeqForConditionalGeneration", recurrent),
        "bert": ("EduBertForSequenceClassification", small | {"max_position_embeddings": 30, "num_labels": 3}),
    }
    for task, (name, sizes) in kinds.items():
        tokenizer = train_tokenizer(TEXTS, kind="char", task=task, cache_dir=folder / "cache")
        head = getattr(hf_edu_models, name)
        head(head.config_class(vocab_size=len(tokenizer), **sizes)).save_pretrained(folder / task)
        tokenizer.save_pretrained(folder / task)
    return folder


def run_program(file, inputs):
    """The first output."""
    if file.suffix == ".pt2":
        return torch.export.load(file).module()(**inputs)[0]
    arrays = {name: value.numpy() for name, value in inputs.items()}
    if file.suffix == ".xml":
        openvino = pytest.importorskip("openvino")
        program = openvino.Core().compile_model(file, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        return torch.from_numpy(program(arrays)["logits"])
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(file))
    assert session.get_outputs()[0].name == "logits"
    return torch.from_numpy(session.run(["logits"], arrays)[0])


@pytest.mark.parametrize(
    "to, file",
    [
        ("torch", "model.pt2"),
        ("onnx", "model.onnx"),
        pytest.param("openvino", "model.xml", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("task", ["language_modeling", "seq2seq", "bert"])
def test_the_command_saves_a_program_that_computes_the_same(runs, tmp_path, task, to, file):
    if to != "torch":
        pytest.importorskip("onnxscript")
    if to == "openvino":
        pytest.importorskip("openvino")
    result = CliRunner().invoke(app, ["export", str(runs / task), "--to", to, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output + repr(result.exception)
    assert "logits" in result.output and "largest difference" in result.output
    left = {path.name for path in (tmp_path / "out").iterdir()}
    assert {file, "config.json", "tokenizer.json"} <= left and not any("unfinished" in name for name in left)

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    inputs = dict(tokenizer(TEXTS, padding=True, return_tensors="pt", return_token_type_ids=False))
    if task == "seq2seq":
        inputs["decoder_input_ids"] = torch.randint(4, len(tokenizer), (3, 4))
        inputs["decoder_attention_mask"] = torch.ones_like(inputs["decoder_input_ids"])
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    model = getattr(hf_edu_models, config["architectures"][0]).from_pretrained(runs / task).eval()
    with torch.no_grad():
        expected, found = model(**inputs).logits, run_program(tmp_path / "out" / file, inputs)
    real = inputs["attention_mask"] == 1 if task == "language_modeling" else slice(None)
    assert_close(found[real], expected[real], rtol=0, atol=1e-4)


def test_a_program_that_differs_is_not_saved(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "TOLERANCE", -1.0)
    with pytest.raises(ValueError, match=r"differs from the model by .*; nothing was saved"):
        export.export_checkpoint(str(runs / "bert"), tmp_path / "out", "torch")
    assert not list((tmp_path / "out").iterdir())


def test_other_formats_and_missing_packages_are_rejected(runs, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="cannot export to 'tflite'; choose one of onnx, openvino, torch"):
        export.export_checkpoint(str(runs / "bert"), tmp_path, "tflite")
    monkeypatch.setattr(export, "find_spec", lambda name: None if name == "openvino" else name)
    with pytest.raises(ValueError, match="exporting to openvino needs openvino; pip install openvino"):
        export.export_checkpoint(str(runs / "bert"), tmp_path, "openvino")


def test_a_program_takes_documents_of_any_number_of_sentences(tmp_path):
    sizes = {"vocab_size": 29, "embedding_size": 10, "hidden_size": 6, "attention_size": 8}
    model = hf_edu_models.EduHierarchicalForSequenceClassification(hf_edu_models.EduHierarchicalConfig(**sizes)).eval()
    done = export.export_model(model, tmp_path, "torch")
    program = torch.export.load(done.file).module()
    for sentences in (2, 4):  # one sentence: torch.export takes sizes of two or more for granted; pad the document
        ids = torch.randint(4, 29, (3, sentences, 5), generator=torch.Generator().manual_seed(sentences))
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        assert_close(program(**inputs).logits, model(**inputs).logits, rtol=0, atol=1e-5)
