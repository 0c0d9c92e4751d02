"""Word vectors against the papers' formulas, the fast form against autograd, and both against gensim."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tiny import CASES, random_ids
from torch.testing import assert_close

from hf_edu_models.models.blocks_huffman import huffman_paths
from hf_edu_models.models.blocks_subwords import hash_ngram, ngrams_of, subword_table
from hf_edu_models.models.blocks_word_vectors import (
    BandTable,
    InputVectors,
    SparseAdagrad,
    cbow_step,
    glove_step,
    skip_gram_step,
)

SKIP_GRAM, CBOW, GLOVE = (CASES[name] for name in ("word_vectors", "word_vectors-ForCBOW", "word_vectors-ForGloVe"))
WORDS = [None, "where", "her", None, *(f"word{number}" for number in range(25))]


def build(case, **changes):
    model = case.build(**changes)
    if model.config.num_buckets:
        table = subword_table(WORDS, model.config)
        model = case.build(**changes, num_ngrams=len(table[0]))
        model.model.embed_tokens.set_words(*table)
    return model


def sigmoid(number):
    return 1 / (1 + np.exp(-number))


@pytest.mark.parametrize("form", ["eager", "fused"])
def test_skip_gram_is_equation_1_with_the_softmax_of_equation_2(form):
    model, ids = build(SKIP_GRAM, form=form), random_ids(1, 6)
    vectors, outputs = model.model.embed_tokens.weight, model.lm_head.weight
    total = 0.0
    for t, word in enumerate(ids[0]):
        probabilities = (outputs @ vectors[word]).softmax(-1)
        total -= sum(probabilities[ids[0, t + j]].log() for j in (-3, -2, -1, 1, 2, 3) if 0 <= t + j < 6)
    assert_close(model(ids, labels=ids).loss, total / 6)


@pytest.mark.parametrize("form", ["eager", "fused"])
def test_negative_sampling_is_equation_4(form):
    """With the windows that the batch brings; two negatives weigh as much as the five of the configuration."""
    model, ids = build(SKIP_GRAM, form=form), random_ids(1, 6)
    sizes, negatives = torch.tensor([[1, 3, 2, 1, 0, 2]]), torch.tensor([[25, 26]])
    vectors = model.model.embed_tokens.weight.detach().numpy()
    outputs = model.lm_head.weight.detach().numpy()
    total = 0.0
    for t, (word, size) in enumerate(zip(ids[0].tolist(), sizes[0].tolist(), strict=True)):
        for place in range(max(t - size, 0), min(t + size, 5) + 1):
            if place != t:
                total -= np.log(sigmoid(outputs[ids[0, place]] @ vectors[word]))
                total -= sum(5 / 2 * np.log(sigmoid(-outputs[n] @ vectors[word])) for n in (25, 26))
    found = model(ids, labels=ids, window_sizes=sizes, negative_ids=negatives)
    assert_close(found.loss.item(), total / 6, rtol=1e-5, atol=1e-5)
    assert found.logits is None  # over all words, which the negatives are there to avoid


@pytest.mark.parametrize("form", ["eager", "fused"])
def test_cbow_predicts_a_word_from_the_mean_of_its_window(form):
    model, ids = build(CBOW, form=form), random_ids(1, 5)
    vectors = model.model.embed_tokens.weight
    expected = torch.stack(
        [vectors[torch.cat([ids[0, max(t - 3, 0) : t], ids[0, t + 1 : t + 4]])].mean(0) for t in range(5)]
    )
    assert_close(model(ids).logits[0], expected @ model.lm_head.weight.T)
    assert_close(model(ids, labels=ids).loss, F.cross_entropy(model(ids).logits[0], ids[0]))


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("kind", [SKIP_GRAM, CBOW])
def test_a_text_may_be_shorter_than_the_window(kind, length):
    ids = random_ids(3, length)
    losses = [build(kind, form=form)(ids, labels=ids).loss for form in ("eager", "fused")]
    assert_close(*losses)


def test_a_huffman_tree_gives_frequent_words_short_paths_and_probabilities_that_add_up_to_one():
    model, ids = build(CBOW, hierarchical_softmax=True), random_ids(2, 7)
    counts = [2**number for number in range(12)] + [5000] * 17
    model.tree.set_counts(counts)
    lengths = (model.tree.codes != 0).sum(1)
    assert lengths[0] > lengths[11] > lengths[28]
    weighted = sum(count * length for count, length in zip(counts, lengths.tolist(), strict=True)) / sum(counts)
    entropy = -sum(count / sum(counts) * np.log2(count / sum(counts)) for count in counts)
    assert entropy <= weighted < entropy + 1  # the law of Huffman codes
    outputs = model(ids, labels=ids, skip_logits=False)
    assert_close(outputs.logits.exp().sum(-1), torch.ones(2, 7))
    assert_close(outputs.loss, F.nll_loss(outputs.logits.flatten(0, 1), ids.flatten()))
    with pytest.raises(ValueError, match="a path of the Huffman tree has 11 nodes, but max_code_length is 6; raise it"):
        huffman_paths([2**number for number in range(12)], 6)
    with pytest.raises(
        ValueError, match="a Huffman tree of 29 words cannot grow to 33; build the model for the larger"
    ):
        model.resize_token_embeddings(33)


NEGATIVES = random_ids(1, 4, seed=7)
STEPS = {"skip-gram": SKIP_GRAM, "CBOW": CBOW}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("num_buckets", [0, 31])
@pytest.mark.parametrize("form", ["eager", "fused"])
@pytest.mark.parametrize("name", STEPS)
def test_a_step_of_the_fast_form_is_one_of_gradient_descent(name, form, num_buckets, padded):
    """On fixed negatives: every weight after `index_add_` is what autograd and SGD make of it."""
    ids, rate = random_ids(3, 7), 0.1
    sizes = torch.randint(1, 4, (3, 7), generator=torch.Generator().manual_seed(1))
    mask = torch.ones(3, 7, dtype=torch.bool)
    if padded:
        mask[1, 4:] = mask[2, 1:] = False  # also a word alone
    expected, found = (build(STEPS[name], form=form, num_buckets=num_buckets) for _ in range(2))
    batch = {"input_ids": ids, "attention_mask": mask.long(), "window_sizes": sizes}
    loss = expected(**batch, labels=ids, negative_ids=NEGATIVES.expand(3, -1)).loss * mask.sum()
    loss.backward()
    torch.optim.SGD(expected.parameters(), lr=rate).step()
    inputs = InputVectors(found.model.embed_tokens)
    inputs.open(ids)
    is_real = mask if padded else None
    band = BandTable(7, 3)(sizes, is_real)
    arguments = (inputs, found.lm_head.weight, ids, band, NEGATIVES[0], rate, 5 / 4)
    if name == "CBOW":
        cbow_step(*arguments, is_real)
    else:
        skip_gram_step(*arguments)
    inputs.close()
    for key, weight in expected.state_dict().items():
        assert_close(found.state_dict()[key], weight, rtol=1e-4, atol=1e-5, msg=lambda text, key=key: f"{key}: {text}")


def test_steps_share_sums_of_parts_exactly_where_words_share_no_part():
    """Summed once for both steps, or for each: the same, if no n-gram belongs to two words."""
    apart, together = (build(STEPS["skip-gram"], form="fused", num_buckets=200) for _ in range(2))
    ids, sizes = random_ids(4, 7), torch.full((4, 7), 2)
    for model, size in ((apart, 2), (together, 4)):
        table = model.model.embed_tokens
        starts = torch.arange(len(table.ngram_starts)) * 2
        table.register_buffer("ngram_ids", torch.arange(int(starts[-1])))
        table.ngram_starts.copy_(starts)
        inputs, band = InputVectors(table), BandTable(7, 3)
        for start in (0, 2):
            if start % size == 0:
                inputs.open(ids[start : start + size])
            rows = slice(start, start + 2)
            step = (inputs, model.lm_head.weight, ids[rows], band(sizes[rows], None), NEGATIVES[0], 0.1, 5 / 4)
            skip_gram_step(*step)
            if (start + 2) % size == 0:
                inputs.close()
    for key, weight in apart.state_dict().items():
        assert_close(together.state_dict()[key], weight, msg=lambda text, key=key: f"{key}: {text}")


def test_glove_weighs_squared_errors_of_logarithms():
    model, ids, labels = build(GLOVE), random_ids(1, 5), random_ids(1, 5, seed=2)
    counts = torch.tensor([[0.5, 1.0, 20.0, 100.0, 3000.0]])
    w, c = model.model.embed_tokens.weight[ids[0]], model.lm_head.weight[labels[0]]
    errors = (w * c).sum(-1) + model.bias.weight[ids[0], 0] + model.lm_head.bias[labels[0]] - counts[0].log()
    weights = torch.tensor([(0.5 / 100) ** 0.75, (1 / 100) ** 0.75, (20 / 100) ** 0.75, 1, 1])
    assert_close(model(ids, labels=labels, counts=counts).loss, (weights * errors**2).mean())
    for wrong in (0.0, -1.0):
        counts[0, 2] = wrong
        with pytest.raises(ValueError, match=f"counts has {wrong:g}, but the logarithm needs numbers above 0"):
            model(ids, labels=labels, counts=counts)
    vectors = model.get_input_embeddings()(ids)
    with pytest.raises(ValueError, match="the loss of GloVe needs input_ids"):
        model(inputs_embeds=vectors, labels=labels)


def test_a_step_of_glove_is_adagrad_on_its_loss():
    """Twice, so that the sums of squares are used; each word once, as updates of one word in a step are added."""
    model, ids, labels = build(GLOVE), torch.arange(4, 10), torch.arange(20, 26)
    counts = torch.tensor([0.5, 1.0, 20.0, 100.0, 3000.0, 7.0])
    names = ("model.embed_tokens.weight", "lm_head.weight", "bias.weight", "lm_head.bias")
    weights = dict(model.named_parameters())
    expected = {name: weights[name].detach().clone() for name in names}
    sums = {name: torch.ones_like(weight) for name, weight in expected.items()}
    tables = [
        SparseAdagrad(weights[name].data.view(29, -1), torch.ones(29, weights[name].numel() // 29)) for name in names
    ]
    for _ in range(2):
        model.zero_grad()
        (model(ids[None], labels=labels[None], counts=counts[None]).loss * 6).backward()
        for name in names:
            expected[name] -= 0.05 * weights[name].grad / sums[name].sqrt()
            sums[name] += weights[name].grad ** 2
        glove_step(tuple(tables), ids, labels, counts, 0.05, 100.0, 0.75)
        for name in names:
            assert_close(weights[name].data, expected[name])


def test_ngrams_of_the_papers_example():
    assert ngrams_of("where", 3, 3) == ["<wh", "whe", "her", "ere", "re>"]
    assert "her" in ngrams_of("where") and "her" not in ngrams_of("her", 5, 6) and "<her>" in ngrams_of("her")


def test_a_word_with_ngrams_is_the_mean_of_its_parts_seen_or_not():
    model = build(SKIP_GRAM, num_buckets=31)
    embeddings = model.model.embed_tokens
    parts = embeddings.ngrams.weight[[hash_ngram(each, 31) for each in ngrams_of("where")]]
    expected = torch.cat([embeddings.weight[1:2], parts]).mean(0)
    assert_close(embeddings(torch.tensor([[1]]))[0, 0], expected)
    assert_close(embeddings.vector_of("where", model.config), parts.mean(0))
    assert_close(embeddings(torch.tensor([0])), embeddings.weight[:1])  # a special token has no n-grams
    with pytest.raises(ValueError, match="'' has no n-gram of 3 to 6 characters"):
        embeddings.vector_of("", model.config)


def test_negatives_and_windows_are_checked():
    model, ids = build(SKIP_GRAM), random_ids(2, 7)
    with pytest.raises(ValueError, match="negative_ids has 29, but only 0 to 28"):
        model(ids, labels=ids, negative_ids=torch.tensor([[29], [3]]))
    with pytest.raises(ValueError, match="window_sizes has 4, but window_size is 3; draw them from 1 to window_size"):
        model(ids, labels=ids, window_sizes=torch.full((2, 7), 4))
    with pytest.raises(ValueError, match="negative_ids is given, but the softmax is hierarchical; use one of them"):
        build(SKIP_GRAM, hierarchical_softmax=True)(ids, labels=ids, negative_ids=ids)


# gensim ----------------------------------------------------------------------------------------------------------

SENTENCE = [1, 2, 3, 4, 2, 5, 6, 1]
RATE = 1e-4  # so small that gensim's updates, one pair after another, are those of one step


def gensim_model(kind, **options):
    """A model of gensim whose only possible negative is word 0, with random weights."""
    models = pytest.importorskip("gensim.models")
    common = {"vector_size": 12, "window": 3, "shrink_windows": False, "sample": 0, "min_count": 1, "workers": 1}
    model = getattr(models, kind)(**common | {"negative": 5, "cbow_mean": 1} | options)
    texts = [
        [str(word) * (1 if kind == "Word2Vec" else 4) for word in SENTENCE],
        ["0" * (1 if kind == "Word2Vec" else 4)],
    ]
    model.build_vocab(texts)
    generator = np.random.default_rng(0)
    for table in ("vectors", "vectors_vocab", "vectors_ngrams"):
        if hasattr(model.wv, table):
            getattr(model.wv, table)[:] = generator.normal(0, 0.4, getattr(model.wv, table).shape)
    name = "syn1neg" if model.negative else "syn1"
    getattr(model, name)[:] = generator.normal(0, 0.4, getattr(model, name).shape)
    if model.negative:
        only = model.wv.key_to_index[texts[1][0]]
        model.cum_table[:only], model.cum_table[only:] = 0, 2**31 - 1
    if kind == "FastText":
        model.wv.adjust_vectors()
    return model, texts


def changes_of(model, texts, tables):
    before = [table.copy() for table in tables()]
    model.train(texts[:1], total_examples=1, epochs=1, start_alpha=RATE, end_alpha=RATE)
    return [torch.from_numpy(after - each) / RATE for each, after in zip(before, tables(), strict=True)]


def assert_same_step(mine, theirs):
    """gensim looks sigmoids up in a table of a thousand values."""
    assert mine.norm() > 1
    assert (mine - theirs).norm() < 0.08 * mine.norm()


def own_gradients(case, gensim, texts, tables, **settings):
    """The gradients of our model with gensim's weights."""
    size = len(gensim.wv)
    model = case.build(vocab_size=size, **settings)
    ids = torch.tensor([[gensim.wv.key_to_index[word] for word in texts[0]]])
    weights = tables(model)
    for weight, values in weights:
        weight.data.copy_(torch.from_numpy(values))
    negatives = {"negative_ids": torch.tensor([[gensim.wv.key_to_index[texts[1][0]]]])} if gensim.negative else {}
    if not gensim.negative:
        for word, row in gensim.wv.key_to_index.items():
            code, point = (gensim.wv.get_vecattr(word, name) for name in ("code", "point"))
            model.tree.codes[row] = 0
            model.tree.codes[row, : len(code)] = torch.tensor([1 - 2 * int(bit) for bit in code])
            model.tree.nodes[row, : len(code)] = torch.tensor([int(node) for node in point])
    (model(ids, labels=ids, **negatives).loss * ids.shape[1]).backward()
    return [-weight.grad for weight, _ in weights]


@pytest.mark.parametrize("hierarchical", [False, True], ids=["negatives", "tree"])
@pytest.mark.parametrize("is_skip_gram", [True, False], ids=["skip-gram", "CBOW"])
def test_gensim_makes_the_same_step(is_skip_gram, hierarchical):
    options = {"negative": 0, "hs": 1} if hierarchical else {}
    gensim, texts = gensim_model("Word2Vec", sg=int(is_skip_gram), **options)

    def ours(model):
        output = model.tree.node_proj if hierarchical else model.lm_head
        values = gensim.syn1[: len(output.weight)] if hierarchical else gensim.syn1neg
        return [(model.model.embed_tokens.weight, gensim.wv.vectors), (output.weight, values)]

    case = SKIP_GRAM if is_skip_gram else CBOW
    expected = own_gradients(case, gensim, texts, ours, hierarchical_softmax=hierarchical)
    found = changes_of(gensim, texts, lambda: (gensim.wv.vectors, gensim.syn1 if hierarchical else gensim.syn1neg))
    for mine, theirs in zip(expected, found, strict=True):
        assert_same_step(mine, theirs[: len(mine)])


def test_gensims_fasttext_makes_the_same_step_and_the_same_unseen_word():
    gensim, texts = gensim_model("FastText", sg=1, bucket=50, min_n=3, max_n=4)
    words = gensim.wv.index_to_key
    settings = {"num_buckets": 50, "min_ngram": 3, "max_ngram": 4}
    config = SKIP_GRAM.build(vocab_size=len(words), **settings).config
    ids, starts = subword_table(words, config)
    settings["num_ngrams"] = len(ids)

    def ours(model):
        embeddings = model.model.embed_tokens
        embeddings.set_words(ids, starts)
        unseen = torch.from_numpy(gensim.wv["1122"])
        embeddings.ngrams.weight.data.copy_(torch.from_numpy(gensim.wv.vectors_ngrams))
        assert_close(embeddings.vector_of("1122", model.config), unseen)
        return [
            (embeddings.weight, gensim.wv.vectors_vocab),
            (embeddings.ngrams.weight, gensim.wv.vectors_ngrams),
            (model.lm_head.weight, gensim.syn1neg),
        ]

    expected = own_gradients(SKIP_GRAM, gensim, texts, ours, **settings)
    found = changes_of(gensim, texts, lambda: (gensim.wv.vectors_vocab, gensim.wv.vectors_ngrams, gensim.syn1neg))
    found[2] *= 7 / 8  # in training, gensim divides a word of 7 n-grams by 7, though they and its own vector are 8
    for mine, theirs in zip(expected, found, strict=True):
        assert_same_step(mine, theirs)
