"""`hf-edu figure exposure`: errors by position, forced and free-running."""

import pytest
import torch
from typer.testing import CliRunner

from hf_edu_models import EduRecurrentConfig, EduRecurrentForCausalLM, EduSeq2SeqConfig
from hf_edu_models import EduSeq2SeqForConditionalGeneration as Seq2Seq
from hf_edu_models.cli import app
from hf_edu_models.data import load_corpus, train_tokenizer
from hf_edu_models.experiments.exposure import _by_position, _errors_of, draw_exposure, exposure_of, exposure_rows

SOURCE, LENGTH = 5, 7
SIZES = {"embedding_size": 8, "hidden_size": 12, "num_hidden_layers": 1, "initializer_range": 0.5}


def random_ids(*shape, seed: int = 1):
    return torch.randint(4, 28, shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A translator and a language model, untrained, with tokenizers of built-in corpora."""
    folder, torch_seed = tmp_path_factory.mktemp("runs"), 0
    torch.manual_seed(torch_seed)
    for name, rung, corpus, config, model in (
        ("reverse", "seq2seq", "reverse", EduSeq2SeqConfig, Seq2Seq),
        ("stories", "recurrent", "stories", EduRecurrentConfig, EduRecurrentForCausalLM),
    ):
        small = load_corpus(corpus, train_size=60, validation_size=10, test_size=12)
        tokenizer = train_tokenizer(small, kind="word", vocab_size=60, rung=rung)
        model(config.for_tokenizer(tokenizer, **SIZES)).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


def test_forced_errors_follow_the_reference_and_free_ones_the_model():
    """Against a loop that writes token by token; at the first position both are the same."""
    torch.manual_seed(0)
    model = Seq2Seq(EduSeq2SeqConfig(vocab_size=29, **SIZES, eos_token_id=None)).eval()
    source, labels = random_ids(5, SOURCE), random_ids(5, LENGTH, seed=2) % 20
    labels[0, 4:] = -100
    is_token, forced, free = _errors_of(model, {"input_ids": source, "labels": labels.clone()}, 1)
    reference = model.prepare_decoder_input_ids_from_labels(labels)
    logits = model(input_ids=source, decoder_input_ids=reference).logits
    assert torch.equal(forced, logits.argmax(-1) != labels)
    read = reference[:, :1]
    for _ in range(LENGTH):
        read = torch.cat([read, model(input_ids=source, decoder_input_ids=read).logits[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(is_token, labels != -100)
    assert torch.equal(free, read[:, 1:] != labels)
    assert torch.equal(forced[:, 0], free[:, 0])


def test_a_model_that_is_right_has_no_errors_and_no_gap():
    """The labels are what the model writes: then its own tokens are the reference."""
    torch.manual_seed(0)
    model = EduRecurrentForCausalLM(EduRecurrentConfig(vocab_size=29, **SIZES, eos_token_id=None)).eval()
    written = model.generate(random_ids(3, 4), max_new_tokens=9, min_new_tokens=9, do_sample=False)
    is_token, forced, free = _errors_of(model, {"input_ids": written, "labels": written.clone()}, 4)
    assert is_token.shape == (3, 9) and is_token.all() and not forced.any() and not free.any()


def test_counts_by_position():
    is_token = torch.tensor([[1, 1], [1, 0]]).bool()
    wrong = torch.tensor([[0, 1], [1, 1]]).bool()
    found = _by_position("run", [(is_token, wrong, wrong), (is_token[:, :1], ~wrong[:, :1], wrong[:, :1])])
    assert [(each.position, each.rows, each.forced, each.free) for each in found] == [(1, 4, 0.5, 0.5)]


@pytest.mark.parametrize("name", ["reverse", "stories"])
def test_a_run_is_read_from_its_folder(name, runs):
    errors = exposure_of(str(runs / name), limit=12, prompt=4, dataset=name)
    assert [each.position for each in errors] == list(range(1, len(errors) + 1))
    assert errors[0].rows == 12 or name == "stories"
    assert errors[0].forced == errors[0].free
    assert all(0 <= value <= 1 for each in errors for value in (each.forced, each.free))
    figure = draw_exposure([errors])
    lines = figure.axes[0].get_lines()
    assert list(lines[0].get_ydata()) == pytest.approx([100 * each.free for each in errors])
    assert list(lines[1].get_ydata()) == pytest.approx([100 * each.forced for each in errors])
    row = exposure_rows([errors])[0]
    assert row["free_standard_error"] == pytest.approx((row["free"] * (1 - row["free"]) / row["rows"]) ** 0.5)


def test_the_command_writes_picture_and_values(runs, tmp_path):
    out = tmp_path / "exposure.png"
    arguments = ["figure", "exposure", str(runs / "reverse"), "--dataset", "reverse", "--rows", "12", "--out", str(out)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert out.read_bytes()[:4] == b"\x89PNG" and "forced" in out.with_suffix(".csv").read_text()


def test_wrong_uses_are_one_sentence(runs):
    with pytest.raises(ValueError, match="has no split 'dev'; it has train"):
        exposure_of(str(runs / "reverse"), "dev", dataset="reverse")
    with pytest.raises(ValueError, match="blocks have 128 tokens, so a prompt of 500 leaves none; give fewer"):
        exposure_of(str(runs / "stories"), limit=2, prompt=500, dataset="stories")
