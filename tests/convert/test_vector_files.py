"""Files of word vectors: gensim reads what we write, and we what it writes; embeddings of any rung start from them."""

import importlib.util
import re

import numpy as np
import pytest
import torch
import transformers
from tiny import CASES

from hf_edu_models.convert import convert_checkpoint
from hf_edu_models.convert.word_vectors import FORMATS, WordVectors, copy_vectors, read_vectors, vectors_of
from hf_edu_models.data import plain_words, train_tokenizer
from hf_edu_models.training import launch, recipe_files

WORDS = ["of", "king", "queen", "naïve", "don't", "Paris"]
VECTORS = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)


@pytest.fixture
def found():
    return WordVectors(WORDS, VECTORS)


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_written_is_read_by_us_and_by_gensim(kind, found, tmp_path):
    models = pytest.importorskip("gensim.models")
    FORMATS[kind](found, tmp_path / "vectors")
    again = read_vectors(tmp_path / "vectors")
    assert again.words == WORDS and np.array_equal(again.vectors, VECTORS)
    if kind == "gensim":
        theirs = models.KeyedVectors.load(str(tmp_path / "vectors"))
    else:
        theirs = models.KeyedVectors.load_word2vec_format(str(tmp_path / "vectors"), binary="binary" in kind)
    assert theirs.index_to_key == WORDS and np.array_equal(theirs.vectors, VECTORS)


@pytest.mark.parametrize("binary", [False, True])
def test_what_gensim_writes_is_read(binary, tmp_path):
    models = pytest.importorskip("gensim.models")
    keyed = models.KeyedVectors(5)
    keyed.add_vectors(WORDS, VECTORS)
    keyed.save_word2vec_format(str(tmp_path / "vectors"), binary=binary)
    again = read_vectors(tmp_path / "vectors")
    assert again.words == WORDS
    np.testing.assert_allclose(again.vectors, VECTORS, rtol=1e-6)


def test_gloves_files_have_no_header(tmp_path):
    file = tmp_path / "glove.txt"
    file.write_text("the 0.1 -0.2 0.3\nnew york 1 2 3\n")
    again = read_vectors(file)
    assert again.words == ["the", "new york"] and again.vectors.shape == (2, 3)


def test_broken_files_are_named_with_their_line(tmp_path):
    file = tmp_path / "vectors.txt"
    file.write_text("2 3\nthe 0.1 0.2 0.3\nof 0.1 0.2\n")
    with pytest.raises(ValueError, match=r"vectors.txt, line 3: a word and 3 numbers are needed, .* got 'of 0.1 0.2"):
        read_vectors(file)
    file.write_bytes(b"3 4\nthe " + VECTORS[0, :4].tobytes() + b"\nof ")
    with pytest.raises(ValueError, match="ends after 1 of 3 vectors of size 4; copy or download it again"):
        read_vectors(file)


def test_a_file_becomes_a_model_and_the_model_a_file(found, tmp_path):
    FORMATS["word2vec"](found, tmp_path / "vectors.txt")
    done = convert_checkpoint(tmp_path / "vectors.txt", tmp_path / "model")
    assert done.destination_class == "EduWordVectorsModel"
    model = transformers.AutoModel.from_pretrained(tmp_path / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    ids = tokenizer("king of unknown", return_tensors="pt", add_special_tokens=False).input_ids
    assert torch.equal(model(ids).last_hidden_state[0, :2], torch.from_numpy(VECTORS[[1, 0]]))
    assert ids[0, 2] == tokenizer.unk_token_id
    convert_checkpoint(tmp_path / "model", tmp_path / "again.bin", "word2vec-binary")
    assert np.array_equal(read_vectors(tmp_path / "again.bin").vectors, VECTORS)


def test_sentence_transformers_opens_them_as_static_embeddings(found, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    FORMATS["word2vec"](found, tmp_path / "vectors.txt")
    convert_checkpoint(tmp_path / "vectors.txt", tmp_path / "model")
    convert_checkpoint(tmp_path / "model", tmp_path / "static", "sentence-transformers")
    model = sentence_transformers.SentenceTransformer(str(tmp_path / "static"), device="cpu")
    assert type(model[0]).__name__ == "StaticEmbedding"
    np.testing.assert_allclose(model.encode("king queen"), VECTORS[[1, 2]].mean(0), rtol=1e-5)


def test_embeddings_are_copied_by_token_and_the_others_stay(found):
    tokenizer = train_tokenizer(["king queen of Paris King tree"], "word", 29, rung="recurrent")
    model = CASES["recurrent"].build(vocab_size=len(tokenizer), embedding_size=5)
    before = model.get_input_embeddings().weight.clone()
    words = plain_words(tokenizer)
    assert copy_vectors(model, words, found) == 5
    after = dict(zip(words, model.get_input_embeddings().weight.detach(), strict=True))
    for word, row in (("king", 1), ("King", 1), ("Paris", 5), ("of", 0)):  # King is found lowercased
        assert torch.equal(after[word], torch.from_numpy(VECTORS[row]))
    assert torch.equal(after["tree"], before[words.index("tree")])
    assert set(vectors_of(model, tokenizer).words) == {"king", "queen", "of", "Paris", "King", "tree"}
    with pytest.raises(
        ValueError, match="the vectors have size 5, but those of EduRecurrentForCausalLM have 10; set its"
    ):
        copy_vectors(CASES["recurrent"].build(), words, found)


def test_a_recipe_starts_from_a_file_and_reports_what_it_found(tmp_path, capsys):
    file = tmp_path / "vectors.txt"
    file.write_text("".join(f"{word} {' '.join(['7.5'] * 16)}\n" for word in ("the", "and", "zebra")))
    recipe = recipe_files()["feedforward"]
    spec = importlib.util.spec_from_file_location("recipe", recipe)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    options = [
        "--preset",
        "smoke",
        "--quiet",
        "--embeddings",
        file,
        "--output_dir",
        tmp_path / "run",
        "--learning_rate",
        1e-9,
    ]
    launch(module.main, str(recipe), [*map(str, options)])
    assert re.search(r"the embeddings of [23] of \d+ tokens \(1%\) start from", capsys.readouterr().err)
    model = transformers.AutoModel.from_pretrained(tmp_path / "run")
    rows = model.get_input_embeddings().weight.detach()
    assert int(((rows - 7.5).abs().max(1).values < 1e-3).sum()) in (2, 3)  # "The" may be found as "the"
