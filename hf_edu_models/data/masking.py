"""Dynamic masking for BERT: a new mask in every epoch; masked language modelling and next sentence prediction together.

Paper: Devlin et al. 2019, arXiv:1810.04805, Section 3.1 (Task #1) and Appendix A.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import DataCollatorForLanguageModeling

from .labels import IGNORE_INDEX
from .normalization import continuation_table


@dataclass
class DataCollatorForPreTraining(DataCollatorForLanguageModeling):
    """Pad and mask: 15% of the tokens are predicted; of these 80% become [MASK], 10% a random token, 10% stay.

    Takes the arguments of transformers' `DataCollatorForLanguageModeling`. Unlike it, whole-word masking keeps 80/10/10
    too, and random tokens are never special tokens. `next_sentence_label` passes through.
    """

    def __post_init__(self):
        whole_word_mask = self.whole_word_mask
        self.whole_word_mask = False  # or the parent would overwrite the three probabilities
        super().__post_init__()
        self.whole_word_mask = whole_word_mask
        if not self.mlm:
            raise ValueError("DataCollatorForPreTraining masks; for mlm=False use DataCollatorForLanguageModeling")
        self._is_special, self._continues_word, self._regular_ids = None, None, None

    def get_generator(self, seed: int):
        import torch

        return torch.Generator().manual_seed(seed)

    def numpy_call(self, examples: list) -> dict[str, Any]:
        return {name: value.numpy() for name, value in self.torch_call(examples).items()}

    def torch_mask_tokens(self, inputs, special_tokens_mask=None, offset_mapping=None):
        """Masked `input_ids`, and `labels` that are -100 wherever nothing is predicted."""
        import torch

        chosen = self._choose(inputs, special_tokens_mask)  # (B, T)
        labels = inputs.masked_fill(~chosen, IGNORE_INDEX)  # (B, T)
        draw = torch.rand(inputs.shape, generator=self.generator)  # (B, T)
        masked = chosen & (draw < self.mask_replace_prob)
        replaced = chosen & ~masked & (draw < self.mask_replace_prob + self.random_replace_prob)
        indices = torch.randint(len(self._regular_ids), inputs.shape, generator=self.generator)  # (B, T)
        masked_ids = inputs.masked_fill(masked, self.tokenizer.mask_token_id)
        return torch.where(replaced, self._regular_ids[indices], masked_ids), labels

    def _choose(self, inputs, special_tokens_mask):
        """Which tokens to predict: each independently, or all of a word together."""
        import torch

        self._make_tables()
        special = self._is_special[inputs]  # (B, T)
        if special_tokens_mask is not None:
            special = special | special_tokens_mask.bool()
        draw = torch.rand(inputs.shape, generator=self.generator)  # (B, T)
        if self.whole_word_mask:
            # Every subword uses the random number of the first subword of its word.
            starts = ~self._continues_word[inputs] | special
            starts[:, 0] = True
            positions = torch.arange(inputs.shape[1]).expand_as(inputs)
            draw = draw.gather(1, positions.masked_fill(~starts, 0).cummax(dim=1).values)  # (B, T)
        return (draw < self.mlm_probability) & ~special

    def _make_tables(self) -> None:
        import torch

        if self._is_special is not None:
            return
        size = len(self.tokenizer)
        special = torch.zeros(size, dtype=torch.bool)
        special[torch.tensor(self.tokenizer.all_special_ids)] = True
        if self.whole_word_mask:
            self._continues_word = torch.tensor(continuation_table(self.tokenizer))
        self._regular_ids = torch.arange(size)[~special]
        self._is_special = special
