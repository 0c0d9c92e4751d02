"""Checks of a model's inputs; each error names the value, what is allowed and what to do.

The checks read shapes, dtypes and a few values, so they are skipped while `torch.compile` or `torch.export` traces.
Values on a device are read only where token ids and masks always were: each read waits for the device.
"""

import torch
from torch import Tensor, nn

_LARGEST_EMBEDDING = 1e15  # its square is finite in float32, also as a sum over any hidden size
LABEL_DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_Shape = tuple[int, ...]


def check_shape(name: str, tensor: Tensor, *shapes: _Shape, why: str = "") -> None:
    """Reject what is no tensor of one of the shapes."""
    check_is_tensor(name, tensor)
    if torch.compiler.is_compiling() or tuple(tensor.shape) in [tuple(shape) for shape in shapes]:
        return
    needed = " or ".join(str(tuple(shape)) for shape in shapes)
    raise ValueError(f"{name} has shape {tuple(tensor.shape)}, but {needed} is needed{why}; check the data collator")


def check_is_tensor(name: str, value) -> None:
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} is of type {type(value).__name__}, but a tensor is needed; call torch.tensor first")


def check_integers(name: str, tensor: Tensor, axes: str, dtypes: tuple = (torch.int64, torch.int32)) -> None:
    """Reject what is no tensor of integers with as many axes as `axes` names, as "batch, length"."""
    check_is_tensor(name, tensor)
    if tensor.ndim != len(axes.split(", ")):
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, but ({axes}) is needed; check the data collator")
    if tensor.dtype not in dtypes:
        raise ValueError(f"{name} has dtype {tensor.dtype}, but integers are needed; call .long() on it")


def _check_ids(name: str, ids: Tensor, vocab_size: int) -> None:
    """Reject token ids of another shape or dtype, none at all, and one outside the vocabulary."""
    check_integers(name, ids, "batch, length")
    if ids.numel() == 0:
        raise ValueError(f"{name} has shape {tuple(ids.shape)}; give at least one sequence of one token")
    low, high = (bound.item() for bound in ids.aminmax())
    if low < 0 or high >= vocab_size:
        raise ValueError(
            f"{name} has the token id {low if low < 0 else high}, but the vocabulary has ids 0 to "
            f"{vocab_size - 1}; check the tokenizer or call resize_token_embeddings"
        )


def _check_embeddings(name: str, embeddings: Tensor, embed_tokens: nn.Module) -> None:
    """Reject embeddings of another shape or dtype than those of `embed_tokens`; on the CPU also NaN and huge values."""
    check_is_tensor(name, embeddings)
    width = getattr(embed_tokens, "embedding_dim", None) or embeddings.shape[-1]
    if embeddings.ndim != 3 or embeddings.shape[-1] != width:
        raise ValueError(
            f"{name} has shape {tuple(embeddings.shape)}, but (batch, length, {width}) is needed; give what "
            "get_input_embeddings() returns for token ids"
        )
    if embeddings.numel() == 0:
        raise ValueError(f"{name} has shape {tuple(embeddings.shape)}; give at least one sequence of one token")
    weight = getattr(embed_tokens, "weight", None)
    if isinstance(weight, Tensor) and weight.is_floating_point():
        check_dtype(name, embeddings, weight.dtype)
    _check_finite(name, embeddings)


def _check_finite(name: str, values: Tensor) -> None:
    """Reject NaN and huge values; on the CPU only, because they must be read."""
    if values.device.type == "cpu":
        low, high = (bound.item() for bound in values.detach().aminmax())
        if not -_LARGEST_EMBEDDING <= low <= high <= _LARGEST_EMBEDDING:
            raise ValueError(
                f"{name} has values from {low:.2g} to {high:.2g}, which a model turns into NaN; give finite ones of at "
                f"most {_LARGEST_EMBEDDING:.0e}"
            )


def check_values(name: str, values: Tensor, sizes: tuple[int | None, ...]) -> None:
    """Reject real values of another shape, integers, none at all, NaN and huge ones.

    Args:
        sizes: of each axis; None is any size.
    """
    if torch.compiler.is_compiling():
        return
    check_is_tensor(name, values)
    wanted = tuple(given if size is None else size for size, given in zip(sizes, values.shape, strict=False))
    if values.ndim != len(sizes) or tuple(values.shape) != wanted:
        needed = ", ".join("any" if size is None else str(size) for size in sizes)
        raise ValueError(f"{name} has shape {tuple(values.shape)}, but ({needed}) is needed; check the data collator")
    if values.numel() == 0:
        raise ValueError(f"{name} has shape {tuple(values.shape)}; give at least one row")
    if not values.is_floating_point():
        raise ValueError(f"{name} has dtype {values.dtype}, but real numbers are needed; call .float() on it")
    _check_finite(name, values)


def check_dtype(name: str, tensor: Tensor, dtype: torch.dtype) -> None:
    """Reject a dtype that does not fit into the model's; autocast converts by itself."""
    if tensor.dtype == dtype:
        return
    fits = torch.is_autocast_enabled(tensor.device.type) or torch.promote_types(tensor.dtype, dtype) == dtype
    if not (fits and tensor.is_floating_point()):
        raise ValueError(f"{name} has dtype {tensor.dtype}, but the model has {dtype}; call .to({dtype}) on it")


def check_one_of(input_ids: Tensor | None, inputs_embeds: Tensor | None, prefix: str = "") -> None:
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError(f"give either {prefix}input_ids or {prefix}inputs_embeds, and not both")


def check_mask(name: str, mask: Tensor, batch: int, lengths: tuple, waits: bool = False) -> None:
    """Reject a mask of another shape, one with values besides 0 and 1, and a row that is all padding.

    Args:
        lengths: those that are right: with a cache a mask also covers the past. None stands for any length.
        waits: read the values on any device, not only on the CPU.
    """
    check_is_tensor(name, mask)
    has_length = None in lengths or mask.shape[-1:] in [(length,) for length in lengths]
    if mask.ndim != 2 or mask.shape[0] != batch or not has_length:
        raise ValueError(
            f"{name} has shape {tuple(mask.shape)}, but ({batch}, {lengths[-1]}) is needed, 1 for a token and 0 for "
            "padding; check the data collator"
        )
    if not waits and mask.device.type != "cpu":
        return
    is_real = mask.bool()
    is_binary, has_tokens = torch.stack([(mask == is_real).all(), is_real.any(dim=1).all()]).tolist()
    if not is_binary:
        wrong = mask[mask != is_real][0].item()
        raise ValueError(f"{name} has the value {wrong}, but only 1 for a token and 0 for padding are allowed")
    if not has_tokens and not name.startswith("decoder"):
        row = int(is_real.any(dim=1).int().argmin())
        raise ValueError(f"{name} is all zeros in row {row}; leave empty sequences out of the batch")


def _check_pair_mask(mask: Tensor, batch: int, length: int, heads: int, is_cached: bool) -> None:
    """Reject a mask of queries and keys that attention would not broadcast to (batch, heads, length, keys)."""
    fits = mask.ndim == 4 and mask.shape[0] in (1, batch) and mask.shape[1] in (1, heads)
    if not (fits and mask.shape[2] in (1, length) and (is_cached or mask.shape[3] in (1, length))):
        raise ValueError(
            f"attention_mask has shape {tuple(mask.shape)}, but ({batch}, {length}), 1 for a token and 0 for padding, "
            f"or ({batch}, 1, {length}, {length}) for queries and keys is needed; check the data collator"
        )
    if not (mask.dtype == torch.bool or mask.is_floating_point()):
        raise ValueError(
            f"attention_mask for queries and keys has dtype {mask.dtype}, but bool is needed, or floats that are added "
            "to the scores; call .bool() on it"
        )


def check_and_embed(
    embed_tokens: nn.Module,
    config,
    input_ids: Tensor | None,
    attention_mask: Tensor | None,
    inputs_embeds: Tensor | None,
    past: int | None = 0,
    prefix: str = "",
) -> Tensor:
    """Embeddings (B, T, E) of checked inputs.

    Args:
        past: the number of tokens in the cache, None if it is not known.
        prefix: of the names of the arguments, such as "decoder_".
    """
    check_one_of(input_ids, inputs_embeds, prefix)
    if torch.compiler.is_compiling():
        return embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
    if input_ids is not None:
        _check_ids(f"{prefix}input_ids", input_ids, config.vocab_size)
        embeddings = embed_tokens(input_ids)
    elif inputs_embeds is not None:
        _check_embeddings(f"{prefix}inputs_embeds", inputs_embeds, embed_tokens)
        embeddings = _to_dtype_of(embed_tokens, inputs_embeds)
    if attention_mask is not None:
        check_is_tensor(f"{prefix}attention_mask", attention_mask)
        _check_any_mask(config, attention_mask, embeddings, past, f"{prefix}attention_mask")
    return embeddings


def embed_documents(
    embed_tokens: nn.Module,
    config,
    input_ids: Tensor | None,
    attention_mask: Tensor | None,
    inputs_embeds: Tensor | None,
) -> Tensor:
    """Embeddings (B, N, T, E) of checked documents; a sentence of padding is right, a document of padding is not."""
    check_one_of(input_ids, inputs_embeds)
    _check_documents(input_ids, inputs_embeds, attention_mask)
    shape = next(given.shape[:2] for given in (input_ids, inputs_embeds) if given is not None)
    rows = [None if given is None else given.flatten(0, 1) for given in (input_ids, inputs_embeds)]
    embeddings = check_and_embed(embed_tokens, config, rows[0], None, rows[1]).unflatten(0, shape)
    if attention_mask is not None and not torch.compiler.is_compiling():
        check_shape("attention_mask", attention_mask, embeddings.shape[:3])
        tokens = attention_mask.flatten(1)
        check_mask("attention_mask", tokens, len(tokens), (tokens.shape[1],), waits=True)
    return embeddings


def _check_documents(input_ids: Tensor | None, inputs_embeds: Tensor | None, attention_mask: Tensor | None):
    """Reject inputs without an axis of sentences."""
    for name, tensor, axes in (
        ("input_ids", input_ids, "(batch, sentences, tokens)"),
        ("inputs_embeds", inputs_embeds, "(batch, sentences, tokens, embedding_size)"),
        ("attention_mask", attention_mask, "(batch, sentences, tokens)"),
    ):
        if tensor is not None:
            check_is_tensor(name, tensor)
        if tensor is not None and tensor.ndim != axes.count(",") + 1:
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}, but documents are {axes}; split each text into sentences "
                "(task='documents' in load_corpus and encode_corpus)"
            )


def _check_any_mask(config, mask: Tensor, embeddings: Tensor, past: int | None, name: str) -> None:
    """A mask of tokens, or of queries and keys where there is attention."""
    batch, length, _ = embeddings.shape
    heads = getattr(config, "num_attention_heads", None)
    total = None if past is None else past + length
    if mask.ndim > 2 and heads is not None:
        _check_pair_mask(mask, batch, length, heads, is_cached=total != length)
    elif mask.ndim <= 2:  # recurrent models raise their own error for more
        # A recurrent state needs no mask of the past; attention to a cache does.
        lengths = (total,) if heads is not None else (length, total)
        check_mask(name, mask, batch, lengths, waits=not name.startswith("decoder"))


def _to_dtype_of(embed_tokens: nn.Module, embeddings: Tensor) -> Tensor:
    """Embeddings in the dtype of the table, where that loses nothing; autocast converts by itself."""
    weight = getattr(embed_tokens, "weight", embeddings)
    if not weight.is_floating_point() or torch.is_autocast_enabled(embeddings.device.type):
        return embeddings
    return embeddings.to(torch.promote_types(embeddings.dtype, weight.dtype))


def check_labels(labels: Tensor, num_labels: int | None, *shapes: _Shape, name: str = "labels") -> Tensor:
    """Labels as int64, checked: one for each prediction, each a class (if their number is given) or -100."""
    if torch.compiler.is_compiling():
        return labels.long()
    check_is_tensor(name, labels)
    check_shape(name, labels, *(shapes or [labels.shape]), why=", one for each prediction")
    if labels.dtype not in LABEL_DTYPES:
        raise ValueError(f"{name} has dtype {labels.dtype}, but classes are integers; call .long() on it")
    labels = labels.long()
    if num_labels is None or labels.numel() == 0:
        return labels
    low, high = (bound.item() for bound in labels.masked_fill(labels == -100, 0).aminmax())
    if low < 0 or high >= num_labels:
        raise ValueError(
            f"{name} has {low if low < 0 else high}, but only 0 to {num_labels - 1} and -100 (ignored) are allowed"
        )
    return labels


def check_item_count(num_items_in_batch: Tensor | float, count: int) -> None:
    """Reject a number of labels that cannot be one, unless no label counts at all; on another device it is not read."""
    if torch.compiler.is_compiling() or count == 0:
        return
    if isinstance(num_items_in_batch, Tensor) and num_items_in_batch.device.type != "cpu":
        return
    if isinstance(num_items_in_batch, str) or not bool(num_items_in_batch > 0):
        raise ValueError(
            f"num_items_in_batch is {num_items_in_batch}, but {count} labels count in this batch alone; give the "
            "number of labels in all batches of the update, or None for the mean"
        )


def check_logits_to_keep(logits_to_keep: int | Tensor, length: int) -> None:
    """Reject a negative number of positions, and a position that is not there."""
    if torch.compiler.is_compiling():
        return
    if isinstance(logits_to_keep, Tensor):
        is_wrong = logits_to_keep.is_floating_point() or logits_to_keep.ndim != 1
        if not is_wrong and logits_to_keep.device.type == "cpu" and logits_to_keep.numel() > 0:
            low, high = logits_to_keep.aminmax()
            is_wrong = bool(low < -length or high >= length)
    else:
        is_wrong = not isinstance(logits_to_keep, int) or logits_to_keep < 0
    if is_wrong:
        raise ValueError(
            f"logits_to_keep is {logits_to_keep}, but a number of last positions, 0 for all, or a tensor of positions "
            f"from 0 to {length - 1} is needed"
        )


def check_length(length: int, limit: int):
    """Reject a sequence that is longer than the position embeddings."""
    if torch.compiler.is_exporting():  # a comparison would become a limit of the exported program
        return
    if length > limit:
        raise ValueError(
            f"the sequence has {length} tokens, but max_position_embeddings is {limit}; cut it (truncation=True, "
            f"max_length={limit} in the tokenizer) or split it"
        )


def check_positions(position_ids: Tensor, limit: int, batch: int, length: int, waits: bool = True) -> None:
    """Reject positions of another shape, and one that has no embedding; rows may share them.

    Packed documents may be longer than the limit together.
    """
    if torch.compiler.is_compiling():
        return
    check_shape("position_ids", position_ids, (batch, length), (1, length), (length,))
    if position_ids.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"position_ids has dtype {position_ids.dtype}, but integers are needed; call .long() on it")
    if waits or position_ids.device.type == "cpu":
        low, high = (bound.item() for bound in position_ids.aminmax())
        if low < 0:
            raise ValueError(f"position_ids has {low}, but positions are 0 to {limit - 1}; count from 0")
        check_length(int(high) + 1, limit)


def check_token_types(token_type_ids: Tensor | None, type_vocab_size: int, batch: int, length: int) -> None:
    if token_type_ids is None or torch.compiler.is_compiling():
        return
    check_shape("token_type_ids", token_type_ids, (batch, length), (1, length))
    check_integers("token_type_ids", token_type_ids, "batch, length")
    low, high = (bound.item() for bound in token_type_ids.aminmax())
    if low < 0 or high >= type_vocab_size:
        raise ValueError(
            f"token_type_ids has {low if low < 0 else high}, but type_vocab_size is {type_vocab_size}; use 0 for the "
            "first text and 1 for the second"
        )


def check_choices(*inputs: Tensor | None) -> int:
    """The number of choices, the second axis of all inputs; the last are embeddings, with an axis more."""
    given = [tensor for tensor in inputs if tensor is not None]
    if torch.compiler.is_compiling():
        return given[0].shape[1]
    for tensor in given:
        check_is_tensor("an input of a multiple choice head", tensor)
    has_axes = all(tensor.ndim > 2 for tensor in given) and (inputs[0] is None or inputs[0].ndim == 3)
    if not has_axes or len({tensor.shape[:2] for tensor in given}) > 1:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in given)
        raise ValueError(f"the inputs have shapes {shapes}, but (batch, choices, length) is needed for each")
    return given[0].shape[1]
