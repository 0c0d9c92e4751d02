"""Packed documents: several texts in one row, whose position ids start again with each.

Shapes: B batch, T length.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers.masking_utils import create_causal_mask, packed_sequence_mask_function


def find_documents(
    position_ids: Tensor | None, attention_mask: Tensor | None, use_cache: bool | None = False
) -> Tensor | None:
    """The number of the document that each token is in, or None where every row is one document.

    Positions of padding do not count; a mask of queries and keys (4-D) says by itself what is kept apart.
    `torch.compile` cannot read positions: it treats a call without a cache as packed.
    """
    if position_ids is None or position_ids.ndim != 2 or position_ids.shape[1] < 2:
        return None
    has_own_mask = attention_mask is not None and attention_mask.ndim != 2
    if has_own_mask or (torch.compiler.is_compiling() and use_cache):
        return None
    is_real = torch.ones_like(position_ids, dtype=torch.bool)  # (B, T)
    if attention_mask is not None and position_ids.shape in (attention_mask.shape, (1, attention_mask.shape[1])):
        is_real = attention_mask.bool()  # (B, T)
    indices = torch.arange(is_real.shape[1], device=is_real.device).expand_as(is_real)  # (B, T)
    last_real = indices.masked_fill(~is_real, -1).cummax(dim=1).values  # (B, T)
    previous = pad(last_real[:, :-1], (1, 0), value=-1)  # (B, T)
    position_ids = position_ids.expand_as(is_real)
    starts_again = is_real & (previous >= 0) & (position_ids <= position_ids.gather(1, previous.clamp(min=0)))
    if not torch.compiler.is_compiling() and not bool(starts_again.any()):
        return None
    documents = starts_again.cumsum(dim=1)  # (B, T)
    return documents


def packed_causal_mask(config, hidden_states: Tensor, attention_mask: Tensor | None, cache, documents: Tensor | None):
    """The causal mask of masking_utils; with `documents` a token attends to its own document alone."""
    if documents is None:
        return create_causal_mask(config, hidden_states, attention_mask, cache)
    if "flash" in config._attn_implementation and (attention_mask is not None or hidden_states.shape[0] > 1):
        raise ValueError(
            f"position_ids start again, but attn_implementation '{config._attn_implementation}' keeps packed documents "
            "apart only in a batch of one row without attention_mask; use 'sdpa', or flatten the batch into one row"
        )
    if attention_mask is None:
        # Positions that grow by one inside a document and jump between two: what masking_utils recognises.
        position_ids = torch.arange(documents.shape[1], device=documents.device) + 2 * documents  # (B, T)
        return create_causal_mask(config, hidden_states, None, None, position_ids)
    same_document = packed_sequence_mask_function(documents)
    return create_causal_mask(config, hidden_states, attention_mask, None, and_mask_function=same_document)


def reject_packing(
    model_type: str,
    attention_mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    decoder_position_ids: Tensor | None = None,
    cu_seq_lens_q: Tensor | None = None,
    **kwargs,
) -> None:
    """Raise an error if the inputs are packed documents, for a model that cannot keep them apart.

    Args:
        kwargs: the other keyword arguments of `forward`; they are ignored.
    """
    if torch.compiler.is_compiling():
        return
    is_packed = find_documents(position_ids, attention_mask) is not None
    is_packed = is_packed or find_documents(decoder_position_ids, None) is not None
    if is_packed or (cu_seq_lens_q is not None and cu_seq_lens_q.numel() > 2):
        raise ValueError(
            f"the inputs are packed documents (position_ids start again, or cu_seq_lens_q is given), but {model_type} "
            "cannot keep documents in one row apart; give each its own row (packing=False, padding_free=False, or a "
            "collator that pads)"
        )
