"""Dynamic masking for BERT: a new mask in every epoch; masked language modelling and next sentence prediction together.

Paper: Devlin et al. 2019, arXiv:1810.04805, Section 3.1 (Task #1) and Appendix A.1.
Spans: Joshi et al. 2020 (SpanBERT), arXiv:1907.10529, Section 3.1; without its span boundary objective.
Phrases and names: Sun et al. 2019 (ERNIE), arXiv:1904.09223, Section 3.2; a list of them instead of a parser.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import DataCollatorForLanguageModeling

from .labels import IGNORE_INDEX
from .normalization import continuation_table
from .phrases import PhraseTable

MASKINGS = ("tokens", "words", "phrases", "spans")
_SPAN_PROBABILITY, _LONGEST_SPAN = 0.2, 10  # SpanBERT's p and l_max, in words: 3.8 on average


@dataclass
class DataCollatorForPreTraining(DataCollatorForLanguageModeling):
    """Pad and mask: 15% of the tokens are predicted; of these 80% become [MASK], 10% a random token, 10% stay.

    Takes the arguments of transformers' `DataCollatorForLanguageModeling`. Unlike it, whole-word masking keeps 80/10/10
    too, and random tokens are never special tokens. `next_sentence_label` passes through.

    Args:
        masking: What is masked together: `tokens` one by one, `words` (as `whole_word_mask=True`), `phrases`: words,
            and words that are one of `phrases`; or `spans` of words.
        phrases: The phrases as text, such as those of `find_phrases`.
    """

    masking: str = "tokens"
    phrases: Sequence[str] = ()

    def __post_init__(self):
        if self.masking not in MASKINGS:
            raise ValueError(f"masking must be one of {', '.join(MASKINGS)}; got {self.masking!r}")
        if self.whole_word_mask and self.masking == "tokens":
            self.masking = "words"
        if (self.masking == "phrases") != bool(self.phrases):
            raise ValueError('masking="phrases" needs phrases=[...], the phrases as text, and other maskings take none')
        whole_word_mask = self.whole_word_mask
        self.whole_word_mask = False  # or the parent would overwrite the three probabilities
        super().__post_init__()
        self.whole_word_mask = whole_word_mask
        if not self.mlm:
            raise ValueError("DataCollatorForPreTraining masks; for mlm=False use DataCollatorForLanguageModeling")
        self._is_special, self._continues_word, self._regular_ids, self._table = None, None, None, None

    def get_generator(self, seed: int):
        import torch

        return torch.Generator().manual_seed(seed)

    def numpy_call(self, examples: list) -> dict[str, Any]:
        return {name: value.numpy() for name, value in self.torch_call(examples).items()}

    def torch_mask_tokens(self, inputs, special_tokens_mask=None, offset_mapping=None):
        """Masked `input_ids`, and `labels` that are -100 wherever nothing is predicted."""
        import torch

        chosen, first = self._choose(inputs, special_tokens_mask)  # (B, T)
        labels = inputs.masked_fill(~chosen, IGNORE_INDEX)  # (B, T)
        draw = torch.rand(inputs.shape, generator=self.generator).gather(1, first)  # (B, T)
        masked = chosen & (draw < self.mask_replace_prob)
        replaced = chosen & ~masked & (draw < self.mask_replace_prob + self.random_replace_prob)
        indices = torch.randint(len(self._regular_ids), inputs.shape, generator=self.generator)  # (B, T)
        masked_ids = inputs.masked_fill(masked, self.tokenizer.mask_token_id)
        return torch.where(replaced, self._regular_ids[indices], masked_ids), labels

    def _choose(self, inputs, special_tokens_mask):
        """Which tokens to predict, and for each the token whose replacement it shares: its own, or that of its span."""
        import torch

        self._make_tables()
        special = self._is_special[inputs]  # (B, T)
        if special_tokens_mask is not None:
            special = special | special_tokens_mask.bool()
        positions = torch.arange(inputs.shape[1]).expand_as(inputs)  # (B, T)
        if self.masking == "spans":
            return self._choose_spans(special, self._continues_word[inputs], positions)
        draw = torch.rand(inputs.shape, generator=self.generator)  # (B, T)
        if self.masking in ("words", "phrases"):
            # Every subword uses the random number of the first subword of its word, or of its phrase.
            starts = ~self._continues_word[inputs] | special
            starts[:, 0] = True
            if self.masking == "phrases":
                starts = self._phrase_starts(inputs, special, starts)
            draw = draw.gather(1, positions.masked_fill(~starts, 0).cummax(dim=1).values)  # (B, T)
        return (draw < self.mlm_probability) & ~special, positions

    def _choose_spans(self, special, continues, positions):
        """Spans of whole words. All tokens of a span become [MASK], or random tokens, or stay."""
        import torch

        chosen, first = torch.zeros_like(special), positions.clone()
        for row, flags in enumerate(zip(special.tolist(), continues.tolist(), strict=True)):
            words = _find_words(*flags)
            budget = self.mlm_probability * sum(end - start for start, end in words)
            for start, end in draw_spans(words, budget, self.generator):
                chosen[row, start:end] = True
                first[row, start:end] = start
        return chosen, first

    def _phrase_starts(self, inputs, special, starts):
        """The starts of words that do not continue a phrase."""
        starts = starts.clone()
        for row, (ids, *flags) in enumerate(
            zip(inputs.tolist(), special.tolist(), self._continues_word[inputs].tolist(), strict=True)
        ):
            for run in _neighbours(_find_words(*flags)):
                sizes = self._table.group([tuple(ids[start:end]) for start, end in run])
                first = 0
                for size in sizes:
                    for start, _ in run[first + 1 : first + size]:
                        starts[row, start] = False
                    first += size
        return starts

    def _make_tables(self) -> None:
        import torch

        if self._is_special is not None:
            return
        size = len(self.tokenizer)
        special = torch.zeros(size, dtype=torch.bool)
        special[torch.tensor(self.tokenizer.all_special_ids)] = True
        if self.masking != "tokens":
            continues = continuation_table(self.tokenizer)
            self._continues_word = torch.tensor(continues)
            if self.masking == "phrases":
                self._table = PhraseTable(self.phrases, self.tokenizer, continues)
        self._regular_ids = torch.arange(size)[~special]
        self._is_special = special


def draw_spans(words: list[tuple[int, int]], budget: float, generator: Any = None) -> Iterator[tuple[int, int]]:
    """Spans of neighbouring words, the first token and the one after the last, that have `budget` tokens on average.

    A span starts at a random word, and its number of words is geometric, of at most ten. It ends early at a special
    token, at a masked word, and where the budget is spent.

    Args:
        words: First token and token after the last of each word, in order.
        generator: Of torch's random numbers.
    """
    import torch

    weights = (1 - _SPAN_PROBABILITY) ** torch.arange(_LONGEST_SPAN)
    lengths = torch.multinomial(weights, max(len(words), 1), replacement=True, generator=generator) + 1
    order = torch.randperm(len(words), generator=generator)
    draw = torch.rand((), generator=generator).item()
    masked = [False] * len(words)
    for first, length in zip(order.tolist(), lengths.tolist(), strict=False):
        start = end = words[first][0]
        for number in range(first, min(first + length, len(words))):
            word_start, word_end = words[number]
            if masked[number] or word_start != end:
                break
            # A word that is longer than the rest of the budget is masked so often that the rate is right on average.
            if (word_end - word_start) * draw >= budget:
                budget = 0
                break
            masked[number], end, budget = True, word_end, budget - (word_end - word_start)
        if end > start:
            yield start, end
        if budget <= 0:
            return


def _neighbours(words: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Runs of words without a special token between them."""
    run: list[tuple[int, int]] = []
    for word in words:
        if run and run[-1][1] != word[0]:
            yield run
            run = []
        run.append(word)
    if run:
        yield run


def _find_words(special: list[bool], continues: list[bool]) -> list[tuple[int, int]]:
    """First token and token after the last of each word; special tokens are no words."""
    words: list[tuple[int, int]] = []
    for position, is_special in enumerate(special):
        if is_special:
            continue
        if continues[position] and words and words[-1][1] == position:
            words[-1] = words[-1][0], position + 1
        else:
            words.append((position, position + 1))
    return words
