"""Features: hidden states of other, frozen models, as further token vectors of a tagger or classifier.

CoVe (McCann et al. 2017) takes the states of a translation encoder, Flair (Akbik et al. 2018) those of character
language models, ELMo (Peters et al. 2018) and feature-based BERT (Devlin et al. 2019, Section 5.3) those of every
layer: one block does for all. The other model has its own tokenizer, so the block keeps a table: how each token of our
vocabulary is spelled in tokens of the other. From token ids it writes the text in the other vocabulary, runs the model,
and reads its states where each of our tokens ends or begins.

The frozen weights, their configuration and the table are part of the checkpoint, which needs nothing else.

Shapes: B batch, T tokens, M tokens of the other vocabulary in one of ours, P tokens of the other in a row, D features.
"""

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from .blocks_layer_mix import make_layer_mix, mixed_size
from .blocks_masks import padding_last


def open_body(config: dict) -> PreTrainedModel:
    """The model, without a head, that a configuration describes; of an encoder-decoder the encoder.

    The imports are written out: they tell transformers which files a checkpoint needs.
    """
    model_type = config.get("model_type")
    if model_type == "edu_recurrent":
        from .configuration_recurrent import EduRecurrentConfig
        from .modeling_recurrent import EduRecurrentModel

        return EduRecurrentModel(EduRecurrentConfig.from_dict(config))
    if model_type == "edu_word_vectors":
        from .configuration_word_vectors import EduWordVectorsConfig
        from .modeling_word_vectors import EduWordVectorsModel

        return EduWordVectorsModel(EduWordVectorsConfig.from_dict(config))
    if model_type == "edu_bahdanau":
        from .configuration_bahdanau import EduBahdanauConfig
        from .modeling_bahdanau import EduBahdanauModel

        return EduBahdanauModel(EduBahdanauConfig.from_dict(config)).get_encoder()
    if model_type == "edu_elmo":
        from .configuration_elmo import EduElmoConfig
        from .modeling_elmo import EduElmoModel

        return EduElmoModel(EduElmoConfig.from_dict(config))
    if model_type == "edu_gpt":
        from .configuration_gpt import EduGPTConfig
        from .modeling_gpt import EduGPTModel

        return EduGPTModel(EduGPTConfig.from_dict(config))
    if model_type == "edu_bert":
        from .configuration_bert import EduBertConfig
        from .modeling_bert import EduBertModel

        return EduBertModel(EduBertConfig.from_dict(config), add_pooling_layer=False)
    raise ValueError(
        f"the features of a {model_type} are not known; choose a run of edu_recurrent, edu_word_vectors, "
        "edu_bahdanau, edu_elmo, edu_gpt or edu_bert"
    )


def _layers_and_size(config: PreTrainedConfig) -> tuple[int, int]:
    """How many hidden states of equal size a model gives, and that size."""
    if config.model_type == "edu_bahdanau":
        return 1, config.annotation_size
    size = getattr(config, "output_size", config.hidden_size)
    has_other_embeddings = config.model_type == "edu_recurrent" and config.embedding_size != size
    return config.num_hidden_layers + (not has_other_embeddings), size


def _forward_share(config: PreTrainedConfig) -> float:
    """The share of a state that has been read forwards: it knows a word at its end, the rest at its start.

    BERT's states know the word everywhere; as in its paper, the first subword counts.
    """
    if config.model_type == "edu_bert":
        return 0.0
    is_two_way = config.model_type in ("edu_bahdanau", "edu_elmo") or getattr(config, "bidirectional", False)
    return 0.5 if is_two_way else 1.0


class FrozenFeatures(nn.Module):
    """The mixed layers of a frozen model, one vector for each of our tokens.

    Args:
        vocab_size: of our vocabulary.
        entry: `config` of the frozen model, `pieces` (the longest spelling), `prefix` and `suffix` (token ids that its
            tokenizer puts around a text).
    """

    def __init__(self, vocab_size: int, entry: dict, layer_mix: str):
        super().__init__()
        self.body = open_body(entry["config"]).eval().requires_grad_(False)
        config = self.body.config
        self.num_layers, size = _layers_and_size(config)
        self.layer_mix = make_layer_mix(layer_mix, self.num_layers)
        self.size = mixed_size(layer_mix, self.num_layers, size)
        self.num_forward = int(size * _forward_share(config))
        self.limit = getattr(config, "max_position_embeddings", None)
        self.pad_token_id = config.pad_token_id or 0
        self.register_buffer("spellings", torch.full((vocab_size, entry["pieces"]), -1))
        self.register_buffer("prefix", torch.tensor(entry["prefix"], dtype=torch.long))
        self.register_buffer("suffix", torch.tensor(entry["suffix"], dtype=torch.long))

    spellings: Tensor
    prefix: Tensor
    suffix: Tensor

    def train(self, mode: bool = True):
        """The frozen model has no dropout: a text has the same features each time."""
        super().train(mode)
        self.body.eval()
        return self

    def resize(self, vocab_size: int) -> None:
        """New tokens of our vocabulary have no spelling, and so the features of their place."""
        missing = max(vocab_size - len(self.spellings), 0)
        added = self.spellings.new_full((missing, self.spellings.shape[1]), -1)
        self.spellings = torch.cat([self.spellings[:vocab_size], added])

    def write(self, input_ids: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The text in the other vocabulary: ids (B, P), their mask, and where each of our tokens starts and ends."""
        pieces = self.spellings[input_ids]  # (B, T, M)
        is_real = pieces >= 0 if mask is None else (pieces >= 0) & mask[:, :, None]
        counts = is_real.sum(dim=2)  # (B, T)
        totals = counts.sum(dim=1, keepdim=True)  # (B, 1)
        start, end = len(self.prefix), len(self.suffix)
        longest = is_real[0].numel() if torch.compiler.is_compiling() else int(totals.max())
        order = padding_last(is_real.flatten(1))[:, :longest]
        packed = pieces.flatten(1).gather(1, order).clamp(min=0)
        ids = input_ids.new_full((len(input_ids), start + longest + end), self.pad_token_id)  # (B, P)
        positions = torch.arange(ids.shape[1], device=ids.device)
        ids[:, :start] = self.prefix
        ids[:, start : start + longest] = packed
        ids = ids.masked_fill(positions >= start + totals, self.pad_token_id)
        places = start + totals + torch.arange(end, device=ids.device)
        ids = ids.scatter(1, places, self.suffix.expand(len(ids), -1))
        other_mask = positions < (start + totals + end).clamp(min=1)  # (B, P)
        ends = start + counts.cumsum(dim=1) - 1  # (B, T)
        return ids[:, : self.limit], other_mask[:, : self.limit], ends - counts + 1, ends

    def read(self, states: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
        """The forward half of a state where a token ends, the backward half where it starts; zeros past the limit."""
        rows = torch.arange(len(states), device=states.device)[:, None]
        last = states.shape[1] - 1
        at_end = states[rows, ends.clamp(0, last), : self.num_forward]
        at_start = states[rows, starts.clamp(0, last), self.num_forward :]
        features = torch.cat([at_end, at_start], dim=-1)  # (B, T, D)
        return features if self.limit is None else features * (ends < self.limit)[:, :, None]

    def forward(self, input_ids: Tensor, mask: Tensor | None) -> Tensor:
        ids, other_mask, starts, ends = self.write(input_ids, mask)
        with torch.no_grad():
            outputs = self.body(ids, other_mask.long(), output_hidden_states=True, return_dict=True)
        states = (outputs.hidden_states or ())[-self.num_layers :]
        if self.num_layers == 1:
            states = (outputs.last_hidden_state,)
        return self.layer_mix([self.read(layer, starts, ends) for layer in states])
