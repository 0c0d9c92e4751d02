"""Masked words, new in every epoch, and the batch that trains masked words and next sentences together.

Paper: Devlin et al. 2019, arXiv:1810.04805, Section 3.1 (Task #1) and Appendix A.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import DataCollatorForLanguageModeling

from .normalising import continuation_table


@dataclass
class DataCollatorForPreTraining(DataCollatorForLanguageModeling):
    """Pads and masks: 15% of the tokens to predict, of these 80% [MASK], 10% another word, 10% as they were.

    Takes the arguments of transformers' `DataCollatorForLanguageModeling`. It keeps 80/10/10 for whole words, where
    transformers masks all of them, and never puts a special token in place of a word. `next_sentence_label` passes
    through.
    """

    def __post_init__(self):
        whole_words = self.whole_word_mask
        self.whole_word_mask = False  # or the parent would overwrite the three rates
        super().__post_init__()
        self.whole_word_mask = whole_words
        if not self.mlm:
            raise ValueError("DataCollatorForPreTraining masks; for mlm=False use DataCollatorForLanguageModeling")
        self._special, self._continues, self._ordinary = None, None, None

    def get_generator(self, seed: int):
        import torch

        return torch.Generator().manual_seed(seed)

    def numpy_call(self, examples: list) -> dict[str, Any]:
        return {name: value.numpy() for name, value in self.torch_call(examples).items()}

    def torch_mask_tokens(self, inputs, special_tokens_mask=None, offset_mapping=None):
        """Masked `input_ids`, and `labels` that are -100 wherever nothing is to be predicted."""
        import torch

        chosen = self._choose(inputs, special_tokens_mask)  # (B, T)
        labels = inputs.masked_fill(~chosen, -100)  # (B, T)
        draw = torch.rand(inputs.shape, generator=self.generator)  # (B, T)
        masked = chosen & (draw < self.mask_replace_prob)
        replaced = chosen & ~masked & (draw < self.mask_replace_prob + self.random_replace_prob)
        words = torch.randint(len(self._ordinary), inputs.shape, generator=self.generator)  # (B, T)
        masked_ids = inputs.masked_fill(masked, self.tokenizer.mask_token_id)
        return torch.where(replaced, self._ordinary[words], masked_ids), labels

    def _choose(self, inputs, special_tokens_mask):
        """Which tokens to predict: each by itself, or all of a word together."""
        import torch

        self._make_tables()
        special = self._special[inputs]  # (B, T)
        if special_tokens_mask is not None:
            special = special | special_tokens_mask.bool()
        draw = torch.rand(inputs.shape, generator=self.generator)  # (B, T)
        if self.whole_word_mask:
            # A piece takes the draw of the word's first piece.
            heads = ~self._continues[inputs] | special
            heads[:, 0] = True
            places = torch.arange(inputs.shape[1]).expand_as(inputs)
            draw = draw.gather(1, places.masked_fill(~heads, 0).cummax(dim=1).values)  # (B, T)
        return (draw < self.mlm_probability) & ~special

    def _make_tables(self) -> None:
        import torch

        if self._special is not None:
            return
        size = len(self.tokenizer)
        special = torch.zeros(size, dtype=torch.bool)
        special[torch.tensor(self.tokenizer.all_special_ids)] = True
        if self.whole_word_mask:
            self._continues = torch.tensor(continuation_table(self.tokenizer))
        self._ordinary = torch.arange(size)[~special]
        self._special = special
