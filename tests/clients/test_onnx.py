"""ONNX Runtime and OpenVINO compute what the model does, at any batch size and length, with padding and a cache."""

import warnings

import pytest
import torch
from tiny import ALL, GENERATORS, padded_inputs_for, random_ids, real_logits
from torch.testing import assert_close

from hf_edu_models.convert.export import export_model

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

SHAPES = ((3, 4, 5), (1, 9, 3), (5, 7, 11))  # batch, length of the source or text, length of the target
QUICK = ("feedforward", "recurrent", "seq2seq-cho", "bahdanau", "transformer", "gpt", "bert-ForMaskedLM")


def quick_or_slow(cases, quick):
    return [pytest.param(case, id=case.name, marks=() if case.name in quick else pytest.mark.slow) for case in cases]


@pytest.mark.parametrize("case", quick_or_slow(ALL, QUICK))
def test_onnx_runtime_computes_the_same(case, tmp_path):
    model = case.build(use_cache=False)
    example = padded_inputs_for(case, 2, 6, 8)
    dynamic = torch.export.Dim.DYNAMIC
    axes = {name: {0: dynamic, ids.ndim - 1: dynamic} for name, ids in example.items()}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(model, (), kwargs=example, dynamic_shapes=axes, dynamo=True, verbose=False)
    program.save(str(tmp_path / "model.onnx"))
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    for batch, *lengths in SHAPES:
        inputs = padded_inputs_for(case, batch, *lengths, seed=batch)
        arrays = session.run(None, {field.name: inputs[field.name].numpy() for field in session.get_inputs()})
        with torch.no_grad():
            expected = model(**inputs)
        outputs = type(expected)(**dict(zip(expected, map(torch.from_numpy, arrays), strict=False)))
        assert_close(real_logits(case, outputs, inputs), real_logits(case, expected, inputs), rtol=0, atol=1e-4)


@pytest.mark.parametrize("case", quick_or_slow(ALL, ()))
def test_openvino_computes_the_same(case, tmp_path):
    """`export_model` compares it with the model at other shapes, and raises an error where they differ."""
    pytest.importorskip("openvino")
    assert export_model(case.build(), tmp_path, "openvino").difference < 1e-4


FIRST_OF_RUNG = list({case.rung.name: case for case in reversed(GENERATORS)}.values())


@pytest.mark.parametrize("case", quick_or_slow(FIRST_OF_RUNG, ("recurrent", "gpt")))
def test_a_decoding_step_with_its_cache(case):
    """transformers' own exporter splits `generate()` into prefill and decoding step."""
    exporters = pytest.importorskip("transformers.exporters")
    from transformers.exporters.utils import decompose_for_generation

    model = case.build()

    def prompt(batch, length, seed):
        ids = random_ids(batch, length, seed=seed)
        mask = torch.ones_like(ids)
        mask[0, :2] = 0
        return {"input_ids": ids, "attention_mask": mask}

    exported = exporters.OnnxExporter().export_for_generation(
        model, prompt(2, 6, seed=1), exporters.OnnxConfig(dynamic=True)
    )
    if not hasattr(exported, "runners"):
        pytest.skip("the exporters of this transformers run nothing")
    for batch, length in ((3, 5), (2, 9)):
        for name, (stage, inputs) in decompose_for_generation(model, prompt(batch, length, seed=batch)).items():
            found = exported.runners[name](**inputs)
            with torch.no_grad():
                expected = stage(**inputs)
            # The last token alone: what is computed at padding differs.
            assert_close(found.logits[:, -1], expected.logits[:, -1], rtol=0, atol=1e-4)
