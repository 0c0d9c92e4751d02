"""The glossary: a term, one sentence, its lesson, and the line of the code that it is computed in.

Lines are looked up in the source of the installed package, so that they cannot go stale.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .questions import LESSONS

_PACKAGE = Path(__file__).resolve().parents[1]
_FILES = "https://github.com/hf-edu/hf_edu_models/blob/main/"


class Term(NamedTuple):
    """`code` is a file of the package and the class or function in it, as `models/blocks_attention.py:attend`."""

    name: str
    sentence: str
    lesson: str
    code: str

    @property
    def number(self) -> int:
        """Of the lesson."""
        return LESSONS.index(self.lesson) + 1

    @property
    def place(self) -> str:
        """File and line of the code."""
        file, line = locate(self.code)
        return f"{file}:{line}"


def locate(code: str) -> tuple[str, int]:
    """The file, as the repository names it, and the line of a class, function or method."""
    file, _, name = code.partition(":")
    lines = _definitions(file)
    if name not in lines:
        raise ValueError(f"{file} has no {name}; it has {', '.join(lines)}")
    return f"hf_edu_models/{file}", lines[name]


@cache
def _definitions(file: str) -> dict[str, int]:
    """By dotted name, the line of every class, function and method of a file."""
    found: dict[str, int] = {}

    def collect(node: ast.AST, prefix: str) -> None:
        for each in ast.iter_child_nodes(node):
            if isinstance(each, ast.ClassDef | ast.FunctionDef):
                found[prefix + each.name] = each.lineno
                collect(each, f"{prefix}{each.name}.")

    collect(ast.parse((_PACKAGE / file).read_text("utf-8")), "")
    return found


def find_terms(text: str = "") -> list[Term]:
    """The terms whose name has this text in it, in alphabetical order; all of them without one."""
    found = [term for term in GLOSSARY if text.lower() in term.name.lower()]
    if not found:
        import difflib

        near = difflib.get_close_matches(text.lower(), [term.name.lower() for term in GLOSSARY], n=3)
        advice = f"there is {', '.join(near)}" if near else "without a term the whole glossary is printed"
        raise ValueError(f"the glossary has no {text!r}; {advice}")
    return sorted(found, key=lambda term: term.name.lower())


def glossary_page(notebooks: dict[str, str]) -> str:
    """The glossary as Markdown; `notebooks` has the link of each lesson that has one."""
    lines = ["# Glossary", "", "In the terminal: `hf-edu glossary` and `hf-edu glossary TERM`.", ""]
    for term in find_terms():
        file, line = locate(term.code)
        lesson = f"Lesson {term.number}"
        if term.lesson in notebooks:
            lesson = f"[{lesson}]({notebooks[term.lesson]})"
        code = f"[{Path(file).name}:{line}]({_FILES}{file}#L{line})"
        lines += [f"**{term.name}**: {term.sentence} {lesson}, {code}.", ""]
    return "\n".join(lines)


GLOSSARY = tuple(
    Term(*each)
    for each in (
        (
            "additive attention",
            "A small network compares the decoder's state with each annotation.",
            "bahdanau",
            "models/blocks_attention.py:AdditiveScore",
        ),
        (
            "alignment",
            "Which source word a target word belongs to; attention weights are at best a soft form of it.",
            "bahdanau",
            "explain/alignment/word_alignment.py:align",
        ),
        (
            "annotation",
            "The encoder's state at one source position, which has read both sides.",
            "bahdanau",
            "models/modeling_bahdanau.py:EduBahdanauEncoder.read",
        ),
        (
            "attention",
            "A mean of values, weighted by how well each key fits a query.",
            "bahdanau",
            "models/blocks_attention.py:attend",
        ),
        (
            "beam search",
            "Decoding that keeps the best few unfinished outputs instead of one.",
            "seq2seq",
            "models/blocks_search.py:BeamSearch",
        ),
        (
            "BLEU",
            "The overlap of a translation's word sequences with those of a reference, for a whole corpus.",
            "seq2seq",
            "metrics/translation.py:Bleu",
        ),
        (
            "cache",
            "Keys and values, or states, that are kept so that a written token need not be read again.",
            "gpt",
            "models/blocks_cache.py:RecurrentCache",
        ),
        (
            "causal mask",
            "It hides later positions, so that no token sees the one it should predict.",
            "gpt",
            "models/blocks_packing.py:packed_causal_mask",
        ),
        (
            "CBOW",
            "Continuous bag of words: predict a word from the mean of the vectors around it.",
            "word_vectors",
            "models/modeling_word_vectors.py:EduWordVectorsForCBOW",
        ),
        (
            "cell state",
            "The part of an LSTM's state that is only multiplied by gates and added to.",
            "lstm",
            "models/blocks_recurrent.py:LSTMCell.forward",
        ),
        (
            "character embedding",
            "A word's vector made of its characters, so that every word has one.",
            "elmo",
            "models/blocks_characters.py:CharacterEmbedding",
        ),
        (
            "context vector",
            "What the decoder reads of the source at one step: with attention a new one each time.",
            "bahdanau",
            "models/modeling_bahdanau.py:AttentiveDecoder.forward",
        ),
        (
            "contextual vector",
            "A vector of a word that depends on its sentence.",
            "elmo",
            "models/modeling_elmo.py:EduElmoModel",
        ),
        (
            "cross-attention",
            "Attention whose queries come from the target and whose keys and values come from the source.",
            "transformer",
            "models/blocks_transformer.py:MultiHeadAttention.cross_attend",
        ),
        (
            "cross-entropy",
            "The mean of minus the logarithm of the probability that a model gave to what came.",
            "feedforward",
            "models/blocks_losses.py:token_loss",
        ),
        (
            "decoder",
            "The part of a model that writes the target, token by token.",
            "seq2seq",
            "models/modeling_seq2seq.py:SutskeverDecoder",
        ),
        (
            "dropout",
            "Setting random activations to zero in training, so that a model does not rely on any of them.",
            "feedforward",
            "models/blocks_dropout.py:Dropout",
        ),
        (
            "encoder",
            "The part of a model that reads the source and turns it into states.",
            "seq2seq",
            "models/modeling_seq2seq.py:EduSeq2SeqEncoder",
        ),
        (
            "feed-forward network",
            "Two linear layers with an activation between them, applied to each position alone.",
            "transformer",
            "models/blocks_transformer.py:FeedForward",
        ),
        (
            "fine-tuning",
            "Further training of a pre-trained model on a task, with a small new layer on top.",
            "bert",
            "models/modeling_bert.py:BertWithLinearHead",
        ),
        (
            "forget gate",
            "It decides how much of each number of the cell state stays.",
            "lstm",
            "models/blocks_recurrent.py:LSTMCell.forward",
        ),
        (
            "GloVe",
            "Word vectors whose products fit the logarithms of co-occurrence counts.",
            "word_vectors",
            "models/modeling_word_vectors.py:EduWordVectorsForGloVe",
        ),
        (
            "greedy decoding",
            "Writing the most probable token at each step.",
            "gpt",
            "models/blocks_search.py:greedy_search",
        ),
        (
            "GRU",
            "A recurrent cell with two gates and no cell state of its own.",
            "lstm",
            "models/blocks_recurrent.py:GRUCell.forward",
        ),
        (
            "head (of attention)",
            "One of several attentions that run beside each other on parts of the vectors.",
            "transformer",
            "models/blocks_transformer.py:MultiHeadAttention",
        ),
        (
            "hidden state",
            "The vector in which a recurrent network carries what it has read.",
            "recurrent",
            "models/blocks_recurrent.py:RNNCell.forward",
        ),
        (
            "hierarchical softmax",
            "A softmax over the vocabulary as a walk through a binary tree.",
            "word_vectors",
            "models/blocks_huffman.py:HuffmanTree",
        ),
        (
            "highway layer",
            "A gate that chooses, unit by unit, between a layer's output and its input.",
            "elmo",
            "models/blocks_characters.py:Highway.forward",
        ),
        (
            "kernel",
            "A function that says how much a measured point counts, by its distance.",
            "kernel",
            "models/modeling_kernel.py:GaussianKernel",
        ),
        (
            "label smoothing",
            "Giving a little of the target probability to every other token.",
            "transformer",
            "models/blocks_losses.py:LinearCrossEntropy",
        ),
        (
            "layer mix",
            "A learnt weighted sum of the layers of a frozen model.",
            "elmo",
            "models/blocks_layer_mix.py:ScalarMix.forward",
        ),
        (
            "masked language modelling (MLM)",
            "Predicting tokens that were hidden, from both sides.",
            "bert",
            "models/modeling_bert.py:BertMLMHead.forward",
        ),
        (
            "negative sampling",
            "Telling true neighbours of a word from random words, instead of a softmax over all.",
            "word_vectors",
            "models/modeling_word_vectors.py:NegativeSamplingLosses",
        ),
        (
            "next sentence prediction (NSP)",
            "Predicting whether the second of two texts follows the first.",
            "bert",
            "data/pretraining.py:build_nsp_pairs",
        ),
        (
            "perplexity",
            "The exponential of the cross-entropy: among how many tokens a model in effect chooses.",
            "feedforward",
            "metrics/language_modeling.py:Perplexity",
        ),
        (
            "pooling",
            "Making one vector of the vectors of all tokens.",
            "hierarchical",
            "models/blocks_pooling.py:AttentionPooling.forward",
        ),
        (
            "positional encoding",
            "A vector that tells attention where a token stands.",
            "transformer",
            "models/blocks_positions.py:SinusoidalPositions",
        ),
        (
            "pre-training",
            "Training on plain text, before there is a task.",
            "gpt",
            "models/modeling_bert.py:EduBertForPreTraining.forward",
        ),
        (
            "probe",
            "A small classifier that tests what a model's hidden states tell.",
            "bert",
            "explain/probes/linear.py:probe",
        ),
        (
            "query, key, value",
            "What attention compares, with what, and what it takes the mean of.",
            "kernel",
            "models/modeling_kernel.py:KernelAttention.forward",
        ),
        (
            "recurrent network",
            "A network that applies one cell to each token and its own last state.",
            "recurrent",
            "models/blocks_recurrent.py:unroll",
        ),
        (
            "residual connection",
            "Adding a layer's input to its output.",
            "transformer",
            "models/blocks_transformer.py:PostNorm.after",
        ),
        (
            "scaled dot product",
            "The score of the Transformer: query times key, divided by the root of their size.",
            "transformer",
            "models/blocks_transformer.py:eager_attention",
        ),
        (
            "self-attention",
            "Attention within one sequence: each position asks all others.",
            "transformer",
            "models/blocks_transformer.py:MultiHeadAttention.forward",
        ),
        (
            "skip-gram",
            "Predicting the words around a word from its vector.",
            "word_vectors",
            "models/modeling_word_vectors.py:EduWordVectorsForSkipGram",
        ),
        (
            "static vector",
            "A vector of a word that is the same in every sentence.",
            "word_vectors",
            "models/modeling_word_vectors.py:EduWordVectorsModel",
        ),
        (
            "subword",
            "A part of a word that a tokenizer learnt from counts, so that no word is unknown.",
            "bert",
            "data/tokenization.py:train_tokenizer",
        ),
        (
            "teacher forcing",
            "Training a decoder on the reference's tokens instead of its own predictions.",
            "seq2seq",
            "models/blocks_losses.py:shift_labels",
        ),
        (
            "tied weights",
            "One table for the token embeddings and the softmax layer.",
            "gpt",
            "models/modeling_gpt.py:EduGPTForCausalLM",
        ),
        (
            "truncated backpropagation through time",
            "Carrying the state on from batch to batch, but not the gradient.",
            "recurrent",
            "training/tbptt.py:TruncatedBPTTTrainer",
        ),
        (
            "vanishing gradient",
            "A gradient that shrinks at each step back in time, until nothing is left to learn from.",
            "recurrent",
            "explain/gradients/vanishing.py:vanishing_gradient_lesson",
        ),
        (
            "window",
            "The fixed number of tokens that a feed-forward language model reads.",
            "feedforward",
            "models/modeling_feedforward.py:WindowLayer.forward",
        ),
    )
)
