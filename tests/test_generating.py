"""`hf-edu generate`: what the model gives by hand, line for line, whatever the batch and wherever the text is from."""

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
from test_pipelines import CONTEXT, RECURRENT, SIZES, TEXTS, marian, wake
from typer.testing import CliRunner

import hf_edu_models
from hf_edu_models import generating
from hf_edu_models.cli import app
from hf_edu_models.data import train_tokenizer
from hf_edu_models.generating import Source, Writing, windows, write_lines, write_window

LINES = ["", *TEXTS, "  ", "two dogs", ""]
MASKED = ["a [MASK] runs in the park", "two [MASK] sleep in the [MASK]", "[MASK] sing"]
LANGUAGE_MODELS = ["EduFeedForward", "EduRecurrent", "EduGPT"]


def save(model, tokenizer, folder):
    if model.can_generate():
        model.generation_config.suppress_tokens = [tokenizer.pad_token_id]  # no trained model says it
    wake(model).double().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Double precision throughout: a batch rounds in another order than a row alone, and a random model shows it."""
    folder = tmp_path_factory.mktemp("writers")
    words = train_tokenizer([*TEXTS, CONTEXT], kind="word", vocab_size=60, task="seq2seq")
    prompts = train_tokenizer([*TEXTS, CONTEXT], kind="word", vocab_size=60, rung="gpt")
    ids = {"vocab_size": len(words), "bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id}
    bahdanau = hf_edu_models.EduBahdanauConfig(**RECURRENT, **ids, decoder_start_token_id=words.bos_token_id)
    save(hf_edu_models.EduBahdanauForConditionalGeneration(bahdanau), words, folder / "bahdanau")
    save(marian(len(words)), words, folder / "marian")
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
    pieces = train_tokenizer([*TEXTS, CONTEXT], kind="wordpiece", vocab_size=90, task="bert")
    sizes = {key: value for key, value in SIZES.items() if key != "dropout"} | {"max_position_embeddings": 40}
    for head in ("EduBertForMaskedLM", "EduBertForPreTraining", "EduBertForSequenceClassification"):
        config = hf_edu_models.EduBertConfig(vocab_size=len(pieces), **sizes)
        save(getattr(hf_edu_models, head)(config), pieces, folder / head)
    config = transformers.BertConfig(vocab_size=len(pieces), **sizes)
    save(transformers.BertForMaskedLM(config), pieces, folder / "BertForMaskedLM")
    return folder


def run(*arguments, verb="generate", stdin=None):
    result = CliRunner().invoke(app, [verb, *map(str, arguments)], input=stdin)
    assert result.exception is None, result.exception
    return result.stdout.splitlines()


def refused(*arguments, verb="generate"):
    """The sentence that `main` prints before it exits with 2."""
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
def test_a_line_in_is_its_translation_out(folder, tmp_path, name, beams):
    options = {"num_beams": beams, "max_new_tokens": 6}
    expected = [translated(folder / name, text, **options)[0].strip() if text.strip() else "" for text in LINES]
    assert len(set(expected)) > 2
    given = [folder / name, "--num-beams", beams, "--max-new-tokens", 6]
    text = "\n".join(LINES) + "\n"
    (tmp_path / "in").write_text(text)
    (tmp_path / "windows").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    for size in (1, 2, 100):
        assert run(*given, "--batch-size", size, stdin=text) == expected
    assert run(*given, "--file", tmp_path / "in", verb="translate") == expected
    assert run(*given, "--file", tmp_path / "windows") == expected
    assert run(*given, *LINES) == expected
    assert run(*given, "--file", tmp_path / "in", "--out", tmp_path / "out") == []
    assert (tmp_path / "out").read_text() == "".join(f"{line}\n" for line in expected)


def test_without_a_last_newline_or_any_text(folder):
    given = [folder / "bahdanau", "--max-new-tokens", 3]
    assert run(*given, stdin="two cats\nbirds sing") == run(*given, "two cats", "birds sing")
    assert run(*given, stdin="") == []
    assert run(*given, stdin="\n\n") == ["", ""]


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
@pytest.mark.parametrize("beams", [1, 3])
def test_a_language_model_goes_on(folder, name, beams):
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


def test_the_default_length_of_a_continuation(folder, monkeypatch):
    monkeypatch.setattr(generating, "NEW_TOKENS", 4)
    assert run(folder / "EduRecurrent", "two cats") == run(folder / "EduRecurrent", "two cats", "--max-new-tokens", 4)


def test_too_long_a_text_is_cut_and_said(folder):
    long = " ".join(["dog"] * 70)
    result = CliRunner().invoke(app, ["generate", str(folder / "marian"), "--max-new-tokens", "2", long, "two cats"])
    assert result.exit_code == 0 and len(result.stdout.splitlines()) == 2
    assert "1 texts were longer than the model reads" in result.stderr
    result = CliRunner().invoke(app, ["generate", str(folder / "EduGPT"), "--max-new-tokens", "3", long, "two cats"])
    assert result.exit_code == 0 and result.stdout.startswith(long) and "1 texts" in result.stderr
    last = " ".join(["dog"] * 36)  # 40 positions, 3 new tokens, <s>
    end = run(folder / "EduGPT", "--max-new-tokens", 3, last)[0].removeprefix(last)
    assert result.stdout.splitlines()[0].removeprefix(long) == end


@pytest.mark.parametrize("head", ["EduBertForMaskedLM", "EduBertForPreTraining", "BertForMaskedLM"])
def test_masked_words_are_filled_in(berts, head):
    tokenizer = transformers.AutoTokenizer.from_pretrained(berts / head)
    auto = transformers.AutoModelForPreTraining if "PreTraining" in head else transformers.AutoModelForMaskedLM
    model = auto.from_pretrained(berts / head).eval()
    expected = []
    for text in MASKED:
        encoded = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            logits = model(**encoded)[0][0][encoded["input_ids"][0] == tokenizer.mask_token_id]
        for rank in (0, 1):
            words = iter(tokenizer.convert_ids_to_tokens(logits.argsort(descending=True)[:, rank]))
            expected.append(" ".join(next(words) if word == "[MASK]" else word for word in text.split()))
    lines = run(berts / head, "--num-return-sequences", 2, "--batch-size", 2, stdin="\n".join(MASKED) + "\n\n")
    assert lines == [line.replace("##", "") for line in expected] + ["", ""]
    assert run(berts / head, *MASKED) == lines[:6:2]


def test_several_lines_for_each(folder):
    given = [folder / "bahdanau", "--num-beams", 3, "--num-return-sequences", 2, "--max-new-tokens", 4]
    lines = run(*given, "two cats", "", "birds sing")
    options = {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 4}
    expected = [translated(folder / "bahdanau", text, **options) for text in ("two cats", "birds sing")]
    assert [line.split() for line in lines] == [text.split() for text in [*expected[0], "", "", *expected[1]]]


@pytest.mark.parametrize("name", ["bahdanau", "EduRecurrent"])
def test_a_seed_repeats_what_was_drawn(folder, name):
    given = [folder / name, "--sample", "--temperature", 1.5, "--top-k", 30, "--top-p", 0.99, "--max-new-tokens", 8]
    given += ["--num-return-sequences", 2, *TEXTS]
    first, again, other = (run(*given, "--seed", seed) for seed in (1, 1, 2))
    assert first == again != other
    assert run(*given, "--top-k", 1, "--seed", 3) == run(*given, "--top-k", 1, "--seed", 4)  # one word to draw from


def test_the_options_reach_generate():
    drawn = Writing(sample=True, temperature=0.7, top_k=5, top_p=0.9, num_beams=2, max_new_tokens=3)
    expected = {"do_sample": True, "temperature": 0.7, "top_k": 5, "top_p": 0.9, "num_beams": 2, "max_new_tokens": 3}
    assert drawn.options() == expected | {"num_return_sequences": 1}
    assert Writing().options() == {"do_sample": False, "num_beams": 1, "num_return_sequences": 1}


REFUSALS = [
    ("bahdanau", ["x", "--temperature", "0.5"], "--temperature is for drawing words; add --sample"),
    ("bahdanau", ["x", "--top-k", "5"], "--top-k is for drawing words"),
    ("bahdanau", ["x", "--sample", "--temperature", "0"], "must be above 0, got 0.0"),
    ("bahdanau", ["x", "--sample", "--top-p", "1.5"], "--top-p must be above 0 and at most 1, got 1.5"),
    ("bahdanau", ["x", "--num-return-sequences", "3"], "needs as many beams or --sample; --num-beams is 1"),
    ("bahdanau", ["x", "--device", "nonsense"], "--device nonsense cannot be used"),
    ("bahdanau", ["x", "--file", "y"], "give one of them"),
    ("bahdanau", ["--file", "not_there.txt"], "not_there.txt is not a file"),
    ("bahdanau", ["x", "--out", "not_there/y"], "make not_there first"),
    ("not_there", ["x"], "no model can be loaded from"),
    ("EduGPT", ["x", "--max-new-tokens", "39"], "the model has 40 positions, so that 39 new tokens leave no room"),
]


@pytest.mark.parametrize(("name", "arguments", "sentence"), REFUSALS)
def test_a_mistake_gets_a_sentence(folder, name, arguments, sentence):
    told = refused(folder / name, *arguments)
    assert sentence in told and "\n" not in told


def test_a_model_that_does_not_write_gets_a_sentence(folder, berts):
    assert "EduBertForSequenceClassification, which writes no text" in refused(
        berts / "EduBertForSequenceClassification", "x"
    )
    assert "put [MASK] where a word is missing" in refused(berts / "EduBertForMaskedLM", "two cats")
    for option in (["--num-beams", "2"], ["--sample"], ["--max-new-tokens", "3"]):
        assert f"so {option[0]} has no meaning" in refused(berts / "EduBertForMaskedLM", "[MASK] sing", *option)
    assert "EduGPTForCausalLM, which does not translate" in refused(folder / "EduGPT", "x", verb="translate")
    assert "has 62 tokens, but the model reads 40" in refused(berts / "EduBertForMaskedLM", "[MASK] " * 60)


def test_a_folder_without_a_tokenizer_gets_a_sentence(folder, tmp_path):
    transformers.AutoModelForSeq2SeqLM.from_pretrained(folder / "bahdanau").save_pretrained(tmp_path)
    told = refused(tmp_path, "x")
    assert "no tokenizer can be loaded from" in told and "\n" not in told


def test_files_are_read_and_kept(folder, tmp_path):
    file = tmp_path / "in"
    file.write_bytes("two cats\nZürich\n".encode("latin-1"))
    assert f"line 2 of {file} is not UTF-8" in refused(folder / "bahdanau", "--file", file)
    before = file.read_bytes()
    assert "would be overwritten" in refused(folder / "bahdanau", "--file", file, "--out", file)
    assert file.read_bytes() == before


class Recorder:
    """Writes each text backwards and remembers the batches."""

    def __init__(self):
        self.batches = []

    def __call__(self, texts):
        self.batches.append(texts)
        return [[text[::-1]] for text in texts]


def test_batches_are_of_like_length_and_results_in_order():
    texts = ["x" * (7 * place % 50) for place in range(50)]
    texts[10] = ""
    write = Recorder()
    assert write_window(write, texts, Writing(batch_size=4)) == [[text[::-1]] for text in texts]
    lengths = [len(text) for batch in write.batches for text in batch]
    assert lengths == sorted(lengths, reverse=True) and 0 not in lengths
    assert max(map(len, write.batches)) == 4


class ClosedAfter(io.StringIO):
    """A reader that goes away, as `head` does."""

    def __init__(self, lines):
        super().__init__()
        self.left = lines

    def flush(self):
        self.left -= self.getvalue().count("\n")
        if self.left < 0:
            raise BrokenPipeError


def test_lines_stream():
    """From an endless source no more is read than the reader wants, and one window is all that is in memory."""
    read = itertools.count()
    source = Source((f"line {next(read)}", 7) for _ in itertools.count())
    with pytest.raises(BrokenPipeError):
        write_lines(Recorder(), source, ClosedAfter(1000), Writing(batch_size=4), lambda lines, count: None)
    assert next(read) < 1000 + 2 * generating.MOST_BATCHES * 4
    sizes = [len(window) for window in itertools.islice(windows(source, 4), 9)]
    assert sizes[0] == 4 and max(sizes) == sizes[-1] == generating.MOST_BATCHES * 4
    source.is_typed = True
    assert len(next(windows(source, 4))) == 1  # who types waits for an answer


def test_no_result_has_two_lines():
    target = io.StringIO()
    source = Source(iter([("a", 1), ("b", 1)]))
    write_lines(lambda texts: [[f"{text}\nand\r\nmore"] for text in texts], source, target, Writing(), lambda *_: None)
    assert target.getvalue() == "a and more\nb and more\n"


def test_a_log_is_told_now_and_then(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr(generating.time, "monotonic", lambda: clock[0])
    notes = generating.Notes(size=1000)
    for clock[0] in (10.0, 59.0, 120.0, 121.0):
        notes(5, 100)
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.splitlines() == ["hf-edu: 15 lines done, 30%, about 5 min left"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_on_the_terminal_leaves_stdout_alone(monkeypatch, capsys):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with generating.progress(100, is_shown=True) as note:
        for number in range(4):
            print(f"result {number}")
            note(2500, 25)
    assert "10,000 lines" in sys.stderr.getvalue() and "100%" in sys.stderr.getvalue()
    assert capsys.readouterr().out == "".join(f"result {number}\n" for number in range(4))
    monkeypatch.setattr(sys, "stderr", Terminal())
    with generating.progress(100, is_shown=False) as note:
        note(1, 100)
    assert sys.stderr.getvalue() == ""


def start(*arguments):
    command = [Path(sys.executable).with_name("hf-edu"), *map(str, arguments)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    pipes |= {} if os.name == "nt" else {"preexec_fn": heed_interrupts}
    return subprocess.Popen(command, text=True, bufsize=1, env={**os.environ, "OMP_NUM_THREADS": "1"}, **pipes)


def heed_interrupts():
    """A shell starts what it sends to the background with interrupts ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_a_pipe_that_closes_ends_it_quietly(folder):
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
def test_an_interrupt_ends_it_with_130(folder):
    process = start("generate", folder / "bahdanau", "--batch-size", 1, "--max-new-tokens", 2)
    process.stdin.write("two cats\n")
    assert process.stdout.readline() != ""  # it has begun, and waits for more
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate()
    assert process.returncode == 130 and output == errors == ""
