# Copyright 2026 The hf_edu_models authors. Licensed under the Apache License, Version 2.0.
"""Configuration of static word vectors."""

from typing import ClassVar

from .configuration_base import EduConfig, check_choice, strict


@strict
class EduWordVectorsConfig(EduConfig):
    """Defaults are a window of 5 words and 5 negatives, as in word2vec, and vectors of size 100.

    Args:
        hidden_size: size of a vector.
        window_size: largest distance of a context word, the c of Eq. (1).
        num_negatives: negatives of a pair of words, the k of Eq. (4).
        hierarchical_softmax: whether skip-gram and CBOW predict a word by the path to it in a Huffman tree, Eq. (3).
        max_code_length: longest path of that tree.
        num_buckets: number of vectors that the character n-grams share; 0 for none (word2vec, GloVe).
        num_ngrams: number of n-grams of all words together, `len(ids)` of `subword_table`.
        min_ngram: shortest n-gram, in characters.
        max_ngram: longest n-gram, in characters.
        count_limit: co-occurrences from which on GloVe weights a pair fully, its x_max.
        count_power: exponent of GloVe's weights below that limit, its alpha.
        window_implementation: `eager` reads the window word by word, `fused` computes it as one banded matrix product.
    """

    model_type = "edu_word_vectors"
    # transformers has no Auto class for word vectors. Skip-gram only serves to train vectors for other models
    # (pre-training); CBOW predicts a word from those on both sides (masked LM); GloVe is all about the encoding.
    heads: ClassVar[dict[str, str]] = {
        "AutoModel": "EduWordVectorsModel",
        "AutoModelForPreTraining": "EduWordVectorsForSkipGram",
        "AutoModelForMaskedLM": "EduWordVectorsForCBOW",
        "AutoModelForTextEncoding": "EduWordVectorsForGloVe",
    }

    hidden_size: int = 100
    window_size: int = 5
    num_negatives: int = 5
    hierarchical_softmax: bool = False
    max_code_length: int = 40
    num_buckets: int = 0
    num_ngrams: int = 0
    min_ngram: int = 3
    max_ngram: int = 6
    count_limit: float | int = 100
    count_power: float | int = 0.75
    window_implementation: str = "fused"

    def validate_architecture(self):
        super().validate_architecture()
        check_choice("window_implementation", self.window_implementation, ("eager", "fused"))
        for name in ("num_negatives", "max_code_length", "min_ngram", "count_limit"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.max_ngram < self.min_ngram:
            raise ValueError(f"max_ngram {self.max_ngram} is below min_ngram {self.min_ngram}; swap them")
        if self.num_buckets < 0 or self.num_ngrams < 0 or (self.num_ngrams and not self.num_buckets):
            raise ValueError(
                f"num_buckets {self.num_buckets} cannot hold {self.num_ngrams} n-grams; give both, or 0 for both"
            )
        if self.tie_word_embeddings:
            raise ValueError(
                "tie_word_embeddings cannot be True on this rung: a word has one vector as input and another as output"
            )

    @property
    def num_hidden_layers(self) -> int:
        return 0
