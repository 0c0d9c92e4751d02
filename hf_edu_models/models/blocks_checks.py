"""Checks of a model's inputs; each error names the value, what is allowed and what to do.

The checks read values, so they are skipped while `torch.compile` traces.
"""

import torch
from torch import Tensor


def check_tokens(input_ids: Tensor | None, attention_mask: Tensor | None, vocab_size: int, name: str = "input_ids"):
    """Reject an empty batch, an id outside the vocabulary, and a row that is all padding.

    A mask of other than two dimensions is the caller's own for each query and key, and is taken as it is.
    """
    if torch.compiler.is_compiling():
        return
    if input_ids is not None:
        if input_ids.numel() == 0:
            raise ValueError(f"{name} has shape {tuple(input_ids.shape)}; give at least one sequence of one token")
        low, high = (bound.item() for bound in input_ids.aminmax())
        if low < 0 or high >= vocab_size:
            raise ValueError(
                f"{name} has the token id {low if low < 0 else high}, but the vocabulary has ids 0 to "
                f"{vocab_size - 1}; check the tokenizer or call resize_token_embeddings"
            )
    if attention_mask is not None and attention_mask.ndim == 2:
        hidden_rows = (attention_mask.sum(dim=1) == 0).nonzero()
        if len(hidden_rows) > 0:
            raise ValueError(
                f"attention_mask is all zeros in row {hidden_rows[0].item()}; leave empty sequences out of the batch"
            )


def check_documents(input_ids: Tensor | None, inputs_embeds: Tensor | None, attention_mask: Tensor | None):
    """Reject inputs without an axis of sentences."""
    for name, tensor, axes in (
        ("input_ids", input_ids, "(batch, sentences, tokens)"),
        ("inputs_embeds", inputs_embeds, "(batch, sentences, tokens, embedding_size)"),
        ("attention_mask", attention_mask, "(batch, sentences, tokens)"),
    ):
        if tensor is not None and tensor.ndim != axes.count(",") + 1:
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}, but documents are {axes}; split each text into sentences "
                "(task='documents' in load_corpus and encode_corpus)"
            )


def check_one_of(input_ids: Tensor | None, inputs_embeds: Tensor | None):
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("give either input_ids or inputs_embeds, and not both")


def check_and_embed(embed_tokens, config, input_ids, attention_mask, inputs_embeds) -> Tensor:
    """Embeddings (B, T, E) of checked inputs."""
    check_one_of(input_ids, inputs_embeds)
    check_tokens(input_ids, attention_mask, config.vocab_size)
    return embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds


def check_labels(labels: Tensor, num_labels: int):
    """Reject a label that is neither a class nor -100."""
    if torch.compiler.is_compiling() or labels.numel() == 0:
        return
    real = labels[labels != -100]
    if real.numel() and (real.min() < 0 or real.max() >= num_labels):
        wrong = real.min() if real.min() < 0 else real.max()
        raise ValueError(f"labels has {wrong.item()}, but only 0 to {num_labels - 1} and -100 (ignored) are allowed")


def check_length(length: int, limit: int):
    """Reject a sequence that is longer than the position embeddings."""
    if torch.compiler.is_exporting():  # a comparison would become a limit of the exported program
        return
    if length > limit:
        raise ValueError(
            f"the sequence has {length} tokens, but max_position_embeddings is {limit}; cut it (truncation=True, "
            f"max_length={limit} in the tokenizer) or split it"
        )


def check_positions(position_ids: Tensor, limit: int):
    """Reject a position that has no embedding; packed documents may be longer than the limit together."""
    if not torch.compiler.is_compiling():
        check_length(int(position_ids.max()) + 1, limit)


def check_token_types(token_type_ids: Tensor | None, type_vocab_size: int):
    if token_type_ids is None or torch.compiler.is_compiling() or token_type_ids.numel() == 0:
        return
    low, high = (bound.item() for bound in token_type_ids.aminmax())
    if low < 0 or high >= type_vocab_size:
        raise ValueError(
            f"token_type_ids has {low if low < 0 else high}, but type_vocab_size is {type_vocab_size}; use 0 for the "
            "first text and 1 for the second"
        )


def check_shape(name: str, tensor: Tensor, shape: tuple[int, ...]):
    if tuple(tensor.shape) != tuple(shape):
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}, but {tuple(shape)} is needed, one for each prediction; "
            "check the data collator"
        )
