"""What the page cannot run is said by `hf-edu lab` in one sentence; the tables are those of the page's modules."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from pages import save_tiny
from tiny import CASES
from typer.testing import CliRunner

import hf_edu_models
from hf_edu_models.cli import app
from hf_edu_models.lab import build_lab
from hf_edu_models.lab.support import check_tokenizer
from hf_edu_models.lab.weights import choose_precision
from hf_edu_models.run_folder import write_predictions

LAB = Path(hf_edu_models.__file__).parent / "lab"
NAMES = """
import { SUPPORTED } from "./tokenizer/supported.js";
import { MODELS } from "./tokenizer/models.js";
import { NORMALIZERS } from "./tokenizer/normalizers.js";
import { PRE_TOKENIZERS } from "./tokenizer/pre_tokenizers.js";
import { POST_PROCESSORS } from "./tokenizer/post_processors.js";
import { DECODERS } from "./tokenizer/decoders.js";
const tables = { model: MODELS, normalizer: NORMALIZERS, pre_tokenizer: PRE_TOKENIZERS, post_processor: POST_PROCESSORS,
  decoder: DECODERS };
const made = Object.fromEntries(Object.entries(tables).map(([role, table]) => [role, Object.keys(table).sort()]));
console.log(JSON.stringify([SUPPORTED, made]));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="no node is installed")
def test_the_table_names_what_the_modules_have():
    command = ["node", "--input-type=module", "-e", NAMES]
    run = subprocess.run(command, cwd=LAB, capture_output=True, text=True)
    table, made = json.loads(run.stdout)
    assert table == made


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "gpt"
    save_tiny(CASES["gpt"], "bpe", folder)
    return folder


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("config.json", {"model_type": "llama"}, "cannot run {run}, a llama: it runs edu_feedforward"),
        (
            "config.json",
            {"model_type": "edu_transformer_xl", "architectures": ["EduTransformerXLForCausalLM"]},
            "cannot run {run}, a edu_transformer_xl: it runs edu_feedforward",
        ),
        ("config.json", {"architectures": ["EduGPTForDancing"]}, "cannot run EduGPTForDancing of {run}"),
        (
            "config.json",
            {"model_type": "edu_kernel", "architectures": ["EduKernelForRegression"]},
            "cannot run EduKernelForRegression of {run}, which reads numbers; give a model that reads text",
        ),
        (
            "config.json",
            {"model_type": "edu_recurrent", "architectures": ["EduRecurrentForTimeSeriesPrediction"]},
            "cannot run EduRecurrentForTimeSeriesPrediction of {run}, which reads numbers",
        ),
        ("config.json", {"hidden_act": "snake"}, "cannot compute hidden_act 'snake' of {run}; it computes relu"),
        ("config.json", {"quantization_config": {"bits": 4}}, "{run} is quantised; save it in float32"),
        ("tokenizer.json", {"normalizer": {"type": "Precompiled"}}, "it has no normalizer Precompiled; it has Bert"),
        (
            "tokenizer.json",
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "UnicodeScripts"}]}},
            "it has no pre tokenizer UnicodeScripts",
        ),
        (
            "tokenizer.json",
            {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"(?i:'s)|\w++"}, "behavior": "Isolated"}},
            "has '(?i', which JavaScript does not have",
        ),
    ],
)
def test_what_it_cannot_run_is_one_sentence(saved, tmp_path, file, changes, message):
    run = shutil.copytree(saved, tmp_path / "run")
    content = json.loads((run / file).read_text("utf-8"))
    (run / file).write_text(json.dumps(content | changes))
    with pytest.raises(ValueError) as caught:
        build_lab([run], tmp_path / "lab.html")
    assert message.format(run=run) in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "lab.html").exists()


def test_wrong_arguments_are_one_sentence(saved, tmp_path):
    for arguments, message in (
        ([str(saved), "--out", str(tmp_path / "lab.txt")], "is no HTML file"),
        ([str(saved), "--precision", "int4"], "precision must be auto, float32, float16, int8; got 'int4'"),
        ([str(saved), str(saved)], "two runs are called 'gpt'"),
        ([str(saved), "--checkpoints"], "have no checkpoints"),
        ([str(tmp_path / "nothing")], "does not exist"),
    ):
        result = CliRunner().invoke(app, ["lab", *arguments])
        assert result.exit_code != 0 and message in str(result.exception), result.exception
    (tmp_path / "bare").mkdir()
    shutil.copy(saved / "config.json", tmp_path / "bare")
    with pytest.raises(FileNotFoundError, match=r"has no tokenizer\.json"):
        build_lab([tmp_path / "bare"], tmp_path / "lab.html")


def test_the_command_says_what_it_wrote(saved, tmp_path):
    result = CliRunner().invoke(app, ["lab", str(saved), "--out", str(tmp_path / "a" / "lab.html")])
    assert result.exit_code == 0, result.output
    assert "gpt: " in result.output and "parameters in float32" in result.output
    assert (tmp_path / "a" / "lab.html").exists()


def test_a_page_that_is_too_large_is_not_written(saved, tmp_path, monkeypatch):
    monkeypatch.setattr("hf_edu_models.lab.page._MOST_PARAMETERS", 100)
    with pytest.raises(ValueError, match=r"gpt have [\d,]+ parameters, more than the 100 that a page can hold"):
        build_lab([saved], tmp_path / "lab.html")


def test_the_precision_follows_the_size():
    assert [choose_precision(count) for count in (100_000, 700_000, 20_000_000)] == ["float32", "float16", "int8"]
    assert 700_000 * 2 * 4 / 3 < 3e6  # base64 of the demo's three models


def test_every_tokenizer_of_ours_is_known():
    from test_tokenizer import all_tokenizers

    for name, tokenizer in all_tokenizers().items():
        check_tokenizer(name, json.loads(tokenizer.to_str()))


def test_file_and_line_of_what_is_shown(saved, tmp_path):
    """Every source that the engine names for this model is a function at that line."""
    build_lab([saved], tmp_path / "lab.html")
    block = (tmp_path / "lab.html").read_text("utf-8").split('id="data">')[1].split("</script>")[0]
    sources = json.loads(block)["sources"]
    assert "models/blocks_transformer.py:eager_attention" in sources and len(sources) > 20
    for source, line in sources.items():
        file, name = source.split(":")
        text = (LAB.parent / file).read_text("utf-8").splitlines()[line - 1]
        assert name.rpartition(".")[2] in text and text.split()[0] in ("def", "class")


def test_it_opens_with_a_test_example_or_a_mask(saved, tmp_path):
    run = shutil.copytree(saved, tmp_path / "run")
    opens = '"text": "{}"'
    assert opens.format("The cat sat on the mat.") in build_lab([run], tmp_path / "lab.html").path.read_text("utf-8")
    write_predictions(run, [{"source": "le chat", "reference": "cat", "prediction": "cat"}])
    assert opens.format("le chat") in build_lab([run], tmp_path / "lab.html").path.read_text("utf-8")
    save_tiny(CASES["bert"], "wordpiece", tmp_path / "bert")
    assert "sat on the [MASK]." in build_lab([tmp_path / "bert"], tmp_path / "lab.html").path.read_text("utf-8")
