"""CTranslate2 computes what our models compute."""

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from typer.testing import CliRunner

import hf_edu_models
from hf_edu_models.cli import app

ctranslate2 = pytest.importorskip("ctranslate2")

WORDS = [f"w{number}" for number in range(25)]
SIZES = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20, "dropout": 0.0}
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
FORMS = {
    "paper": {},
    "pre-norm": {"norm_first": True},
    "marian": {"sinusoid_layout": "halves", "attention_bias": True, "logits_bias": True},
    "learned": {"position_embedding_type": "learned", "share_embeddings": False, "scale_embeddings": False},
    "mean": {"head_aggregation": "mean", "hidden_act": "gelu", "decoder_layers": 1},
    "concat": {"head_aggregation": "concat", "layer_norm_eps": 0.1},
}


def tokenizer():
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    names = {name: number for number, name in enumerate([*special.values(), *WORDS])}
    words = Tokenizer(models.WordLevel(names, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, **special)


def saved(model, folder):
    """A checkpoint with weights that are far from their initialisation, and biases that are not zero."""
    torch.manual_seed(1)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    model.eval().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return model


def converted(source, folder):
    result = CliRunner().invoke(app, ["convert", str(source), str(folder), "--to", "ctranslate2"])
    assert result.exception is None, result.exception
    return folder


def texts(count=5, length=6):
    generator = torch.Generator().manual_seed(4)
    rows = torch.randint(len(WORDS), (count, length), generator=generator).tolist()
    return [[WORDS[number] for number in row[: length - place]] for place, row in enumerate(rows)]


@pytest.mark.parametrize("form", FORMS)
def test_a_transformer_gives_targets_the_same_probabilities(form, tmp_path):
    config = hf_edu_models.EduTransformerConfig(vocab_size=32, **SIZES, **IDS, decoder_start_token_id=1, **FORMS[form])
    model = saved(hf_edu_models.EduTransformerForConditionalGeneration(config), tmp_path / "ours")
    engine = ctranslate2.Translator(str(converted(tmp_path / "ours", tmp_path / "theirs")), compute_type="float32")
    sources, targets, names = texts(), texts()[::-1], tokenizer()
    scores = engine.score_batch(sources, targets)
    for source, target, score in zip(sources, targets, scores, strict=True):
        ids, labels = (torch.tensor([names.convert_tokens_to_ids(words)]) for words in (source, [*target, "</s>"]))
        with torch.no_grad():
            log_probs = model(input_ids=ids, labels=labels).logits.log_softmax(dim=-1)
        ours = log_probs.gather(2, labels[:, :, None]).flatten()
        torch.testing.assert_close(torch.tensor(score.log_probs), ours, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("norm_first", [True, False])
def test_gpt_gives_texts_the_same_probabilities(norm_first, tmp_path):
    config = hf_edu_models.EduGPTConfig(vocab_size=32, norm_first=norm_first, **SIZES, **IDS)
    model = saved(hf_edu_models.EduGPTForCausalLM(config), tmp_path / "ours")
    engine = ctranslate2.Generator(str(converted(tmp_path / "ours", tmp_path / "theirs")), compute_type="float32")
    for words, score in zip(texts(), engine.score_batch(texts()), strict=True):
        ids = torch.tensor([tokenizer().convert_tokens_to_ids(words)])
        with torch.no_grad():
            log_probs = model(ids).logits[:, :-1].log_softmax(dim=-1)
        ours = log_probs.gather(2, ids[:, 1:, None]).flatten()
        torch.testing.assert_close(torch.tensor(score.log_probs[-len(ours) :]), ours, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("norm_first", [True, False])
def test_bert_has_the_same_hidden_states(norm_first, tmp_path):
    config = hf_edu_models.EduBertConfig(vocab_size=32, norm_first=norm_first, max_position_embeddings=40, **SIZES)
    model = saved(hf_edu_models.EduBertModel(config), tmp_path / "ours")
    engine = ctranslate2.Encoder(str(converted(tmp_path / "ours", tmp_path / "theirs")), compute_type="float32")
    ids = torch.randint(4, 29, (3, 7))
    theirs = engine.forward_batch(ids.tolist(), token_type_ids=torch.zeros_like(ids).tolist())
    with torch.no_grad():
        ours = model(ids)
    torch.testing.assert_close(torch.tensor(np.array(theirs.last_hidden_state)), ours[0], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(torch.tensor(np.array(theirs.pooler_output)), ours[1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("beams", [1, 3])
def test_translate_writes_the_same_lines_with_the_engine(beams, tmp_path):
    config = hf_edu_models.EduTransformerConfig(
        vocab_size=29, **SIZES, **IDS, decoder_start_token_id=1, norm_first=True
    )
    saved(hf_edu_models.EduTransformerForConditionalGeneration(config), tmp_path / "run")
    lines = [" ".join(words) for words in texts(6)]
    command = ["translate", str(tmp_path / "run"), *lines, "--num-beams", str(beams), "--max-new-tokens", "8"]
    outputs = [CliRunner().invoke(app, [*command, *engine]) for engine in ([], ["--engine", "ctranslate2"])]
    assert outputs[0].exception is None and outputs[1].exception is None, outputs[1].exception
    assert outputs[0].stdout == outputs[1].stdout and outputs[0].stdout.strip()


def test_what_cannot_be_converted_raises_an_error(tmp_path):
    config = hf_edu_models.EduRecurrentConfig(vocab_size=29, hidden_size=12, num_hidden_layers=1)
    saved(hf_edu_models.EduRecurrentForCausalLM(config), tmp_path / "run")
    result = CliRunner().invoke(app, ["convert", str(tmp_path / "run"), str(tmp_path / "out"), "--to", "ctranslate2"])
    assert "edu_transformer" in str(result.exception) and not (tmp_path / "out").exists()
    result = CliRunner().invoke(app, ["convert", str(tmp_path / "run"), str(tmp_path / "out"), "--to", "tflite"])
    assert "ctranslate2" in str(result.exception)
    result = CliRunner().invoke(app, ["generate", str(tmp_path / "run"), "w1", "--engine", "ctranslate2"])
    assert "edu_transformer" in str(result.exception)
