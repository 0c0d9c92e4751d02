"""`hf-edu generate` equals `model.generate`, line by line, at any batch size and from any input."""

import io
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from test_pipelines import CONTEXT, RECURRENT, SIZES, TEXTS, marian, randomize
from typer.testing import CliRunner

import hf_edu_models
from hf_edu_models import batching, generation, precision
from hf_edu_models.cli import app, text_lines
from hf_edu_models.data import train_tokenizer
from hf_edu_models.generation import GenerationOptions, generate_lines
from hf_edu_models.models.blocks_int8 import has_exact_int8

LINES = ["", *TEXTS, "  ", "two dogs", ""]
MASKED = ["a [MASK] runs in the park", "two [MASK] sleep in the [MASK]", "[MASK] sing"]
LANGUAGE_MODELS = ["EduFeedForward", "EduRecurrent", "EduGPT"]


def save(model, tokenizer, folder):
    if model.can_generate():
        model.generation_config.suppress_tokens = [tokenizer.pad_token_id]  # no trained model generates it
    randomize(model).double().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """In double precision: a batch rounds differently from a single row, enough to change a random model's output."""
    folder = tmp_path_factory.mktemp("checkpoints")
    tokenizer = train_tokenizer([*TEXTS, CONTEXT], kind="word", vocab_size=60, task="seq2seq")
    prompts = train_tokenizer([*TEXTS, CONTEXT], kind="word", vocab_size=60, rung="gpt")
    ids = {"vocab_size": len(tokenizer), "bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    bahdanau = hf_edu_models.EduBahdanauConfig(**RECURRENT, **ids, decoder_start_token_id=tokenizer.bos_token_id)
    save(hf_edu_models.EduBahdanauForConditionalGeneration(bahdanau), tokenizer, folder / "bahdanau")
    save(marian(len(tokenizer)), tokenizer, folder / "marian")
    sizes = {name: RECURRENT[name] for name in ("hidden_size", "embedding_size", "dropout")}
    ids = {"vocab_size": len(prompts), "pad_token_id": prompts.pad_token_id}
    ids |= {"bos_token_id": prompts.bos_token_id, "eos_token_id": prompts.eos_token_id}
    for name in LANGUAGE_MODELS:
        more = SIZES | {"max_position_embeddings": 40} if name == "EduGPT" else sizes
        config = getattr(hf_edu_models, f"{name}Config")(**more, **ids)
        save(getattr(hf_edu_models, f"{name}ForCausalLM")(config), prompts, folder / name)
    return folder


@pytest.fixture(scope="session")
def berts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("berts")
    subwords = train_tokenizer([*TEXTS, CONTEXT], kind="wordpiece", vocab_size=90, task="bert")
    sizes = {key: value for key, value in SIZES.items() if key != "dropout"} | {"max_position_embeddings": 40}
    for head in ("EduBertForMaskedLM", "EduBertForPreTraining", "EduBertForSequenceClassification"):
        config = hf_edu_models.EduBertConfig(vocab_size=len(subwords), **sizes)
        save(getattr(hf_edu_models, head)(config), subwords, folder / head)
    config = transformers.BertConfig(vocab_size=len(subwords), **sizes)
    save(transformers.BertForMaskedLM(config), subwords, folder / "BertForMaskedLM")
    return folder


def run(*arguments, verb="generate", stdin=None):
    result = CliRunner().invoke(app, [verb, *map(str, arguments)], input=stdin)
    assert result.exception is None, result.exception
    return result.stdout.splitlines()


def error_of(*arguments, verb="generate"):
    """The message that `main` prints before it exits with 2."""
    result = CliRunner().invoke(app, [verb, *map(str, arguments)])
    assert isinstance(result.exception, ValueError | FileNotFoundError), result.output
    return str(result.exception)


def translated(folder, text, **options):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    ids = model.generate(**tokenizer(text, return_tensors="pt"), **options)
    return tokenizer.batch_decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("name", ["bahdanau", "marian"])
@pytest.mark.parametrize("beams", [1, 3])
def test_each_line_is_translated(folder, tmp_path, name, beams):
    options = {"num_beams": beams, "max_new_tokens": 6}
    expected = [translated(folder / name, text, **options)[0].strip() if text.strip() else "" for text in LINES]
    assert len(set(expected)) > 2
    arguments = [folder / name, "--num-beams", beams, "--max-new-tokens", 6]
    text = "\n".join(LINES) + "\n"
    (tmp_path / "in").write_text(text)
    (tmp_path / "windows").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    for size in (1, 2, 100):
        assert run(*arguments, "--batch-size", size, stdin=text) == expected
    assert run(*arguments, "--file", tmp_path / "in", verb="translate") == expected
    assert run(*arguments, "--file", tmp_path / "windows") == expected
    assert run(*arguments, *LINES) == expected
    assert run(*arguments, "--file", tmp_path / "in", "--out", tmp_path / "out") == []
    assert (tmp_path / "out").read_text() == "".join(f"{line}\n" for line in expected)


def test_input_without_a_last_newline_or_any_text(folder):
    arguments = [folder / "bahdanau", "--max-new-tokens", 3]
    assert run(*arguments, stdin="two cats\nbirds sing") == run(*arguments, "two cats", "birds sing")
    assert run(*arguments, stdin="") == []
    assert run(*arguments, stdin="\n\n") == ["", ""]


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
@pytest.mark.parametrize("beams", [1, 3])
def test_a_language_model_continues_the_prompt(folder, name, beams):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / name)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / name).eval()
    lines = run(
        folder / name, "--max-new-tokens", 5, "--num-beams", beams, "--batch-size", 3, stdin="\n".join(LINES) + "\n"
    )
    for text, line in zip(LINES, lines, strict=True):
        if not text.strip():
            assert line == ""
            continue
        prompt = tokenizer(text, return_tensors="pt")
        ids = model.generate(**prompt, max_new_tokens=5, num_beams=beams)[0]
        new = tokenizer.decode(ids[prompt["input_ids"].shape[1] :], skip_special_tokens=True)
        assert line.startswith(text) and line.split() == [*text.split(), *new.split()]
    assert any(line != text for text, line in zip(LINES, lines, strict=True))


@pytest.mark.skipif(not has_exact_int8(), reason="8-bit products overflow on this CPU")
@pytest.mark.parametrize(("name", "auto"), [("EduGPT", "CausalLM"), ("marian", "Seq2SeqLM")])
def test_int8(folder, name, auto, tmp_path):
    """The outputs are those of the rounded model, and the checkpoint stays as it is."""
    saved = (folder / name / "model.safetensors").read_bytes()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / name)
    model = getattr(transformers, f"AutoModelFor{auto}").from_pretrained(folder / name)
    model = precision.set_precision(model, int8=True)
    ids = tokenizer("two dogs", return_tensors="pt")["input_ids"]
    sequence = model.generate(ids, max_new_tokens=4, do_sample=False, num_beams=1)[0]
    (line,) = run(folder / name, "two dogs", "--int8", "--max-new-tokens", 4)
    assert line.split()[-4:] == tokenizer.decode(sequence[-4:], skip_special_tokens=True).split()
    assert (folder / name / "model.safetensors").read_bytes() == saved


def test_default_length_of_a_continuation(folder, monkeypatch):
    monkeypatch.setattr(generation, "DEFAULT_NEW_TOKENS", 4)
    assert run(folder / "EduRecurrent", "two cats") == run(folder / "EduRecurrent", "two cats", "--max-new-tokens", 4)


def test_too_long_a_text_is_truncated_with_a_warning(folder):
    long = " ".join(["dog"] * 70)
    result = CliRunner().invoke(app, ["generate", str(folder / "marian"), "--max-new-tokens", "2", long, "two cats"])
    assert result.exit_code == 0 and len(result.stdout.splitlines()) == 2
    assert "1 texts exceeded the maximum length of the model" in result.stderr
    result = CliRunner().invoke(app, ["generate", str(folder / "EduGPT"), "--max-new-tokens", "3", long, "two cats"])
    assert result.exit_code == 0 and result.stdout.startswith(long) and "1 texts" in result.stderr
    last = " ".join(["dog"] * 36)  # 40 positions, 3 new tokens, <s>
    end = run(folder / "EduGPT", "--max-new-tokens", 3, last)[0].removeprefix(last)
    assert result.stdout.splitlines()[0].removeprefix(long) == end


@pytest.mark.parametrize("head", ["EduBertForMaskedLM", "EduBertForPreTraining", "BertForMaskedLM"])
def test_masks_are_filled_in(berts, head):
    tokenizer = transformers.AutoTokenizer.from_pretrained(berts / head)
    auto = transformers.AutoModelForPreTraining if "PreTraining" in head else transformers.AutoModelForMaskedLM
    model = auto.from_pretrained(berts / head).eval()
    expected = []
    for text in MASKED:
        encoded = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            logits = model(**encoded)[0][0][encoded["input_ids"][0] == tokenizer.mask_token_id]
        for rank in (0, 1):
            tokens = iter(tokenizer.convert_ids_to_tokens(logits.argsort(descending=True)[:, rank]))
            expected.append(" ".join(next(tokens) if word == "[MASK]" else word for word in text.split()))
    lines = run(berts / head, "--num-return-sequences", 2, "--batch-size", 2, stdin="\n".join(MASKED) + "\n\n")
    assert lines == [line.replace("##", "") for line in expected] + ["", ""]
    assert run(berts / head, *MASKED) == lines[:6:2]


def test_num_return_sequences(folder):
    arguments = [folder / "bahdanau", "--num-beams", 3, "--num-return-sequences", 2, "--max-new-tokens", 4]
    lines = run(*arguments, "two cats", "", "birds sing")
    options = {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 4}
    expected = [translated(folder / "bahdanau", text, **options) for text in ("two cats", "birds sing")]
    assert [line.split() for line in lines] == [text.split() for text in [*expected[0], "", "", *expected[1]]]


@pytest.mark.parametrize("name", ["bahdanau", "EduRecurrent"])
def test_a_seed_repeats_the_samples(folder, name):
    arguments = [folder / name, "--sample", "--temperature", 1.5, "--top-k", 30, "--top-p", 0.99, "--max-new-tokens", 8]
    arguments += ["--num-return-sequences", 2, *TEXTS]
    first, again, other = (run(*arguments, "--seed", seed) for seed in (1, 1, 2))
    assert first == again != other
    assert run(*arguments, "--top-k", 1, "--seed", 3) == run(
        *arguments, "--top-k", 1, "--seed", 4
    )  # one token to sample from


def test_options_as_keyword_arguments_of_generate():
    options = GenerationOptions(sample=True, temperature=0.7, top_k=5, top_p=0.9, num_beams=2, max_new_tokens=3)
    expected = {"do_sample": True, "temperature": 0.7, "top_k": 5, "top_p": 0.9, "num_beams": 2, "max_new_tokens": 3}
    assert options.generate_kwargs() == expected | {"num_return_sequences": 1}
    assert GenerationOptions().generate_kwargs() == {"do_sample": False, "num_beams": 1, "num_return_sequences": 1}


ERRORS = [
    ("bahdanau", ["x", "--temperature", "0.5"], "--temperature only applies to sampling; add --sample"),
    ("bahdanau", ["x", "--top-k", "5"], "--top-k only applies to sampling"),
    ("bahdanau", ["x", "--sample", "--temperature", "0"], "must be above 0, got 0.0"),
    ("bahdanau", ["x", "--sample", "--top-p", "1.5"], "--top-p must be above 0 and at most 1, got 1.5"),
    ("bahdanau", ["x", "--num-return-sequences", "3"], "needs at least as many beams, or --sample; --num-beams is 1"),
    ("bahdanau", ["x", "--device", "nonsense"], "--device nonsense is not available"),
    (
        "bahdanau",
        ["x", "--int8"],
        "is for models of linear layers and attention, and EduBahdanauForConditionalGeneration",
    ),
    ("EduGPT", ["x", "--int8", "--dtype", "bfloat16"], "--int8 computes what is not in 8 bits in float32"),
    ("bahdanau", ["x", "--file", "y"], "give either texts or --file y"),
    ("bahdanau", ["--file", "not_there.txt"], "not_there.txt is not a file"),
    ("bahdanau", ["x", "--out", "not_there/y"], "create not_there first"),
    ("not_there", ["x"], "does not exist; give a run, a checkpoint or a Hub id"),
    ("EduGPT", ["x", "--max-new-tokens", "39"], "39 new tokens leave no positions for the prompt: the model has 40"),
]


@pytest.mark.parametrize(("name", "arguments", "message"), ERRORS)
def test_mistakes_raise_a_one_line_error(folder, name, arguments, message):
    error = error_of(folder / name, *arguments)
    assert message in error and "\n" not in error


def test_a_model_that_cannot_generate_raises_an_error(folder, berts):
    assert "EduBertForSequenceClassification, which generates no text" in error_of(
        berts / "EduBertForSequenceClassification", "x"
    )
    assert "put [MASK] where a word is missing" in error_of(berts / "EduBertForMaskedLM", "two cats")
    for option in (["--num-beams", "2"], ["--sample"], ["--max-new-tokens", "3"]):
        assert f"does not use {option[0]}" in error_of(berts / "EduBertForMaskedLM", "[MASK] sing", *option)
    assert "EduGPTForCausalLM, which does not translate" in error_of(folder / "EduGPT", "x", verb="translate")
    assert "has 62 tokens, but the model's maximum is 40" in error_of(berts / "EduBertForMaskedLM", "[MASK] " * 60)


def test_a_pretraining_head_without_mlm_raises_an_error(berts, tmp_path):
    """ELECTRA's discriminator is a ForPreTraining too, but predicts no tokens."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(berts / "BertForMaskedLM")
    sizes = {"embedding_size": 8, "hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3}
    config = transformers.ElectraConfig(vocab_size=len(tokenizer), intermediate_size=20, **sizes)
    transformers.ElectraForPreTraining(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert "ElectraForPreTraining has no masked language modelling head" in error_of(tmp_path, "[MASK] sing")


def test_a_folder_without_a_tokenizer_raises_an_error(folder, tmp_path):
    transformers.AutoModelForSeq2SeqLM.from_pretrained(folder / "bahdanau").save_pretrained(tmp_path)
    error = error_of(tmp_path, "x")
    assert "no tokenizer can be loaded from" in error and "\n" not in error


def test_files_that_are_not_utf8_or_would_be_overwritten(folder, tmp_path):
    file = tmp_path / "in"
    file.write_bytes("two cats\nZürich\n".encode("latin-1"))
    assert f"line 2 of {file} is not UTF-8" in error_of(folder / "bahdanau", "--file", file)
    before = file.read_bytes()
    assert "would be overwritten" in error_of(folder / "bahdanau", "--file", file, "--out", file)
    assert file.read_bytes() == before


class Recorder:
    """Returns each text reversed and records the batches."""

    def __init__(self):
        self.batches = []

    def __call__(self, texts):
        self.batches.append(texts)
        return [[text[::-1]] for text in texts]


def test_batches_are_of_similar_length_and_outputs_in_order():
    texts = ["x" * (7 * number % 50) for number in range(50)]
    texts[10] = ""
    write = Recorder()
    options = GenerationOptions(batch_size=4)
    assert list(generate_lines(write, texts, options)) == [(text, [text[::-1]]) for text in texts]
    write = Recorder()
    outputs = batching._map_window(write, texts, 4, batching.visible_length)
    assert outputs == [[text[::-1]] if text else None for text in texts]
    lengths = [len(text) for batch in write.batches for text in batch]
    assert lengths == sorted(lengths, reverse=True) and 0 not in lengths
    assert max(map(len, write.batches)) == 4


def test_lines_stream():
    """From an endless source few more lines are read than are consumed, and at most one window is in memory."""
    count = itertools.count()
    lines = (f"line {next(count)}" for _ in itertools.count())
    write, options = Recorder(), GenerationOptions(batch_size=4)
    consumed = list(itertools.islice(generate_lines(write, lines, options), 1000))
    assert consumed[999][0] == "line 999" and next(count) < 1000 + batching.MAX_BATCHES * 4
    assert len(list(itertools.islice(generate_lines(write, lines, options), 1))) == 1
    assert next(count) < 1000 + batching.MAX_BATCHES * 4 + 10  # the first window is a single batch
    lines = itertools.count()
    next(generate_lines(write, map(str, lines), options, is_interactive=True))
    assert next(lines) == 1  # a line that is typed is answered before the next is read


def test_an_output_is_a_single_line(monkeypatch):
    class Writer(Recorder):
        num_truncated = 0

        def __call__(self, texts):
            return [[f"{text}\nand\r\nmore"] for text in texts]

    monkeypatch.setattr(generation, "load_text_writer", lambda *arguments, **options: Writer())
    assert run("any", "a", "b") == ["a and more", "b and more"]


def test_progress_is_logged_now_and_then(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr(text_lines.time, "monotonic", lambda: clock[0])
    progress = text_lines.LoggedProgress(size=1000)
    for clock[0] in (10.0, 59.0, 120.0, 121.0):
        for _ in range(5):
            progress(20)
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.splitlines() == ["hf-edu: 11 lines done, 22%, about 7 min left"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_progress_bar_leaves_stdout_alone(monkeypatch, capsys):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with text_lines._progress(40, has_bar=True) as report:
        for number in range(4):
            print(f"result {number}")
            report(10)
    assert "4 lines" in sys.stderr.getvalue() and "100%" in sys.stderr.getvalue()
    assert capsys.readouterr().out == "".join(f"result {number}\n" for number in range(4))
    monkeypatch.setattr(sys, "stderr", Terminal())
    with text_lines._progress(40, has_bar=False) as report:
        report(40)
    assert sys.stderr.getvalue() == ""


def start(*arguments):
    command = [Path(sys.executable).with_name("hf-edu"), *map(str, arguments)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    pipes |= {} if os.name == "nt" else {"preexec_fn": default_interrupts}
    return subprocess.Popen(command, text=True, bufsize=1, env={**os.environ, "OMP_NUM_THREADS": "1"}, **pipes)


def default_interrupts():
    """A shell starts background jobs with SIGINT ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_a_closed_pipe_ends_it_silently(folder):
    """As in `yes two cats | hf-edu translate ... | head -1`."""
    process = start("translate", folder / "bahdanau", "--batch-size", 2, "--max-new-tokens", 2)
    process.stdin.write("two cats\n" * 5000)
    process.stdin.close()
    first = process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait() != 0 and errors == ""
    assert first.split() == translated(folder / "bahdanau", "two cats", max_new_tokens=2)[0].split()


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_an_interrupt_exits_with_130(folder):
    process = start("generate", folder / "bahdanau", "--batch-size", 1, "--max-new-tokens", 2)
    process.stdin.write("two cats\n")
    assert process.stdout.readline() != ""  # it has started, and waits for more
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate()
    assert process.returncode == 130 and output == "" and errors == "hf-edu: interrupted\n"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_control_characters_reach_a_file_but_no_terminal(is_terminal):
    output = io.StringIO()
    output.isatty = lambda: is_terminal
    text_lines.Lines([], False, output, lambda size: None).write("", ["clear\x1b[2J"])
    assert output.getvalue() == ("clear\\x1b[2J\n" if is_terminal else "clear\x1b[2J\n")
