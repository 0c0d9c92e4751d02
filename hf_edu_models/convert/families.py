"""Which of transformers' models corresponds to which of ours: tables that `mapping.py` applies in both directions.

`hf` is transformers' side, `edu` is ours. In the name of a weight `{n}` is the layer index, and `*` stands for `weight`
and for `bias`. Of several rows about one weight, the first applies whose names all exist: that depends on tied weights.

Shapes: V vocabulary.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ..models.modeling_transformer import SinusoidalPositions


@dataclass(frozen=True)
class Operation:
    """Makes one edu tensor from hf tensors, and `count` hf tensors from one edu tensor."""

    to_edu: Callable[[list[Tensor]], Tensor]
    to_hf: Callable[[Tensor, int], list[Tensor]]


_RENAME = Operation(lambda tensors: tensors[0], lambda tensor, count: [tensor])
_CONCATENATE = Operation(torch.cat, lambda tensor, count: list(tensor.chunk(count)))  # query, key, value projections
_TRANSPOSE = Operation(lambda tensors: tensors[0].t(), lambda tensor, count: [tensor.t()])  # Conv1D; no-op for a bias
_FLATTEN = Operation(lambda tensors: tensors[0].flatten(), lambda tensor, count: [tensor[None]])  # (1, V) and (V,)
_FIRST = Operation(lambda tensors: tensors[0], lambda tensor, count: [tensor] * count)  # the others are never read


@dataclass(frozen=True)
class Weights:
    """The hf names whose tensors make up one edu tensor."""

    hf: str | tuple[str, ...]
    edu: str
    operation: Operation = _RENAME


@dataclass(frozen=True)
class Family:
    """One `model_type` of transformers and the rung that it corresponds to.

    Where a value depends on the model, it is a function of the model.

    Args:
        hf_type, edu_type: the two `model_type`s.
        classes: hf class and edu class for the same task; the base model comes first.
        tokenizer_class: the hf tokenizer, which hf checkpoints need not name.
        config_fields: hf and edu names of one field; hf fields with the same edu name must have equal values.
        constants: edu fields that hf does not have, with the value that every hf model has.
        base_weights, head_weights: names inside the base model, without its prefix, and outside of it.
        inferred: edu fields computed from the hf model.
        hf_allowed, edu_allowed: the values of a field that the other side supports.
        value_names: per edu field, the hf and edu names of its values.
        training_only: fields that only affect training, so that a difference is a warning, not an error.
        generation_fields: hf config fields that are in the generation config on our side.
        ignorable: patterns of hf weights that need no counterpart if the test, where there is one, accepts the tensor.
    """

    hf_type: str
    edu_type: str
    classes: dict[str, str]
    tokenizer_class: str
    config_fields: dict[str, str]
    constants: dict[str, Any]
    base_weights: tuple[Weights, ...]
    head_weights: tuple[Weights, ...]
    inferred: dict[str, Callable[[PreTrainedModel], Any]] = field(default_factory=dict)
    hf_allowed: dict[str, tuple | Callable[[PreTrainedModel], tuple]] = field(default_factory=dict)
    edu_allowed: dict[str, tuple | Callable[[PreTrainedModel], tuple]] = field(default_factory=dict)
    value_names: dict[str, dict[str, str]] = field(default_factory=dict)
    training_only: tuple[str, ...] = ()
    generation_fields: tuple[str, ...] = ()
    ignorable: Mapping[str, Callable[[Tensor], bool] | None] = field(default_factory=dict)


def _same_names(names: str) -> dict[str, str]:
    return {name: name for name in names.split()}


_COMMON_FIELDS = _same_names(
    "vocab_size pad_token_id bos_token_id eos_token_id tie_word_embeddings id2label label2id problem_type"
)


def _is_zero(tensor: Tensor) -> bool:
    return not tensor.any()


def _is_sinusoidal(table: Tensor) -> bool:
    """Whether a table of position embeddings holds the sinusoids that our model computes."""
    sinusoids = SinusoidalPositions(table.shape[1], "halves")(torch.arange(len(table), device=table.device))
    return torch.allclose(table.float(), sinusoids.float(), rtol=0, atol=max(1e-5, torch.finfo(table.dtype).eps))


def _allowed_num_labels(model: PreTrainedModel) -> tuple[int, ...]:
    """Question answering has start and end logits; every other head takes any number."""
    return (2,) if type(model).__name__.endswith("ForQuestionAnswering") else (model.config.num_labels,)


_HEADS_OF_THE_PAPER = {"head_aggregation": "project", "head_diversity_weight": 0.0}
_BERT_HEADS = "Model ForPreTraining ForMaskedLM ForNextSentencePrediction ForSequenceClassification"
_BERT_HEADS += " ForTokenClassification ForQuestionAnswering ForMultipleChoice"

BERT = Family(
    hf_type="bert",
    edu_type="edu_bert",
    classes={f"Bert{head}": f"EduBert{head}" for head in _BERT_HEADS.split()},
    tokenizer_class="BertTokenizer",
    config_fields=_COMMON_FIELDS
    | _same_names("hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act use_cache")
    | _same_names("max_position_embeddings type_vocab_size initializer_range layer_norm_eps classifier_dropout")
    | {"hidden_dropout_prob": "dropout", "attention_probs_dropout_prob": "attention_dropout"},
    constants={"norm_first": False, "mlm_weight": 1.0, "nsp_weight": 1.0} | _HEADS_OF_THE_PAPER,
    training_only=("mlm_weight", "nsp_weight", "head_diversity_weight"),
    hf_allowed={
        "is_decoder": (False,),
        "add_cross_attention": (False,),
        "position_embedding_type": ("absolute",),
        "num_labels": _allowed_num_labels,
    },
    edu_allowed={"num_labels": _allowed_num_labels},
    base_weights=(
        Weights("embeddings.word_embeddings.weight", "embeddings.word_embeddings.weight"),
        Weights("embeddings.position_embeddings.weight", "embeddings.position_embeddings.weight"),
        Weights("embeddings.token_type_embeddings.weight", "embeddings.token_type_embeddings.weight"),
        Weights("embeddings.LayerNorm.*", "embeddings.norm.*"),
        Weights(
            tuple(f"encoder.layer.{{n}}.attention.self.{part}.*" for part in ("query", "key", "value")),
            "layers.{n}.self_attention.qkv_proj.*",
            _CONCATENATE,
        ),
        Weights("encoder.layer.{n}.attention.output.dense.*", "layers.{n}.self_attention.output.*"),
        Weights("encoder.layer.{n}.attention.output.LayerNorm.*", "layers.{n}.self_residual.norm.*"),
        Weights("encoder.layer.{n}.intermediate.dense.*", "layers.{n}.feed_forward.inner_proj.*"),
        Weights("encoder.layer.{n}.output.dense.*", "layers.{n}.feed_forward.outer_proj.*"),
        Weights("encoder.layer.{n}.output.LayerNorm.*", "layers.{n}.feed_residual.norm.*"),
        Weights("pooler.dense.*", "pooler.*"),
    ),
    head_weights=(
        Weights("cls.predictions.transform.dense.*", "lm_head.transform.*"),
        Weights("cls.predictions.transform.LayerNorm.*", "lm_head.norm.*"),
        Weights("cls.predictions.decoder.weight", "lm_head.decoder.weight"),
        # hf has this bias twice and reads one of the two; tied, they are one.
        Weights(("cls.predictions.decoder.bias", "cls.predictions.bias"), "lm_head.decoder.bias", _FIRST),
        Weights("cls.predictions.bias", "lm_head.decoder.bias"),
        Weights("cls.seq_relationship.*", "seq_relationship.*"),
        Weights("cls.seq_relationship.*", "classifier.*"),
        Weights("qa_outputs.*", "classifier.*"),
        Weights("classifier.*", "classifier.*"),
    ),
    ignorable={r"(bert\.)?embeddings\.(position|token_type)_ids": None},
)


_GPT_CLASSES = {
    "Model": "EduGPTModel",
    "LMHeadModel": "EduGPTForCausalLM",
    "ForSequenceClassification": "EduGPTForSequenceClassification",
}
_GPT_FIELDS = _COMMON_FIELDS | {
    "initializer_range": "initializer_range",
    "n_positions": "max_position_embeddings",
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "layer_norm_epsilon": "layer_norm_eps",
    "resid_pdrop": "dropout",
    "embd_pdrop": "dropout",
    "attn_pdrop": "attention_dropout",
}
_GPT_LAYERS = (
    Weights("h.{n}.ln_1.*", "layers.{n}.self_residual.norm.*"),
    Weights("h.{n}.attn.c_attn.*", "layers.{n}.self_attention.qkv_proj.*", _TRANSPOSE),
    Weights("h.{n}.attn.c_proj.*", "layers.{n}.self_attention.output.*", _TRANSPOSE),
    Weights("h.{n}.ln_2.*", "layers.{n}.feed_residual.norm.*"),
    Weights("h.{n}.mlp.c_fc.*", "layers.{n}.feed_forward.inner_proj.*", _TRANSPOSE),
    Weights("h.{n}.mlp.c_proj.*", "layers.{n}.feed_forward.outer_proj.*", _TRANSPOSE),
)
_GPT_HEADS = (Weights("lm_head.weight", "lm_head.weight"), Weights("score.weight", "score.weight"))
_GPT_BUFFERS = {r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias": None, r"(transformer\.)?position_ids": None}
# What the first GPT of transformers calls `gelu` is the approximation that every later model calls `gelu_new`.
_OPENAI_ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu", "swish": "silu", "silu": "silu"}


def _four_times_hidden_size(model: PreTrainedModel) -> int:
    return 4 * model.config.hidden_size


GPT2 = Family(
    hf_type="gpt2",
    edu_type="edu_gpt",
    classes={f"GPT2{name}": edu for name, edu in _GPT_CLASSES.items()},
    tokenizer_class="GPT2Tokenizer",
    config_fields=_GPT_FIELDS
    | {"use_cache": "use_cache", "n_inner": "intermediate_size", "activation_function": "hidden_act"},
    constants={"norm_first": True, "lm_loss_weight": 0.0} | _HEADS_OF_THE_PAPER,
    inferred={"intermediate_size": lambda model: model.config.n_inner or _four_times_hidden_size(model)},
    hf_allowed={
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "reorder_and_upcast_attn": (False,),
        "add_cross_attention": (False,),
    },
    training_only=("embd_pdrop", "lm_loss_weight", "head_diversity_weight"),
    base_weights=(
        Weights("wte.weight", "embed_tokens.weight"),
        Weights("wpe.weight", "embed_positions.weight"),
        *_GPT_LAYERS,
        Weights("ln_f.*", "final_norm.*"),
    ),
    head_weights=_GPT_HEADS,
    ignorable=_GPT_BUFFERS,
)

_OPENAI_GPT = Family(
    hf_type="openai-gpt",
    edu_type="edu_gpt",
    classes={f"OpenAIGPT{name}": edu for name, edu in _GPT_CLASSES.items()},
    tokenizer_class="OpenAIGPTTokenizer",
    config_fields=_GPT_FIELDS | {"afn": "hidden_act"},
    constants={"norm_first": False, "intermediate_size": _four_times_hidden_size, "lm_loss_weight": 0.0}
    | _HEADS_OF_THE_PAPER,
    hf_allowed={"afn": tuple(_OPENAI_ACTIVATIONS)},
    edu_allowed={"hidden_act": ("gelu_new", "relu", "silu")},
    value_names={"hidden_act": _OPENAI_ACTIVATIONS},
    training_only=("embd_pdrop", "lm_loss_weight", "head_diversity_weight"),
    base_weights=(
        Weights("tokens_embed.weight", "embed_tokens.weight"),
        Weights("positions_embed.weight", "embed_positions.weight"),
        *_GPT_LAYERS,
    ),
    head_weights=_GPT_HEADS,
    ignorable=_GPT_BUFFERS,
)


def _marian_layer(side: str) -> tuple[Weights, ...]:
    """Self-attention and feed-forward network of the encoder's or the decoder's layers."""
    layer = f"{side}.layers.{{n}}"
    return (
        *_marian_attention(f"{layer}.self_attn", f"{layer}.self", "qkv"),
        Weights(f"{layer}.fc1.*", f"{layer}.feed_forward.inner_proj.*"),
        Weights(f"{layer}.fc2.*", f"{layer}.feed_forward.outer_proj.*"),
        Weights(f"{layer}.final_layer_norm.*", f"{layer}.feed_residual.norm.*"),
    )


def _marian_attention(hf: str, edu: str, parts: str) -> tuple[Weights, ...]:
    """One attention and the layer norm after it; `parts` are the projections that we compute as one."""
    return (
        Weights(tuple(f"{hf}.{part}_proj.*" for part in parts), f"{edu}_attention.{parts}_proj.*", _CONCATENATE),
        Weights(f"{hf}.out_proj.*", f"{edu}_attention.output.*"),
        Weights(f"{hf}_layer_norm.*", f"{edu}_residual.norm.*"),
    )


MARIAN = Family(
    hf_type="marian",
    edu_type="edu_transformer",
    classes={"MarianModel": "EduTransformerModel", "MarianMTModel": "EduTransformerForConditionalGeneration"},
    tokenizer_class="MarianTokenizer",
    config_fields=_COMMON_FIELDS
    | _same_names("decoder_layers max_position_embeddings use_cache decoder_start_token_id")
    | _same_names("dropout attention_dropout activation_dropout")
    | {
        "decoder_vocab_size": "vocab_size",
        "d_model": "hidden_size",
        "encoder_layers": "num_hidden_layers",
        "encoder_attention_heads": "num_attention_heads",
        "decoder_attention_heads": "num_attention_heads",
        "encoder_ffn_dim": "intermediate_size",
        "decoder_ffn_dim": "intermediate_size",
        "activation_function": "hidden_act",
        "scale_embedding": "scale_embeddings",
        "share_encoder_decoder_embeddings": "share_embeddings",
    },
    constants={
        "position_embedding_type": "sinusoidal",
        "sinusoid_layout": "halves",
        "norm_first": False,
        "layer_norm_eps": 1e-5,
        "attention_bias": True,
        "label_smoothing": 0.0,
    }
    | _HEADS_OF_THE_PAPER,
    inferred={
        # With tie_word_embeddings=False hf shares no embeddings, whatever share_encoder_decoder_embeddings is.
        "share_embeddings": lambda model: (
            model.config.share_encoder_decoder_embeddings and model.config.tie_word_embeddings
        ),
        "logits_bias": lambda model: bool(getattr(model, "final_logits_bias", torch.zeros(1)).any()),
    },
    hf_allowed={"encoder_layerdrop": (0,), "decoder_layerdrop": (0,)},
    edu_allowed={"tie_word_embeddings": lambda model: (True,) if model.config.share_embeddings else (True, False)},
    training_only=("encoder_layerdrop", "decoder_layerdrop", "label_smoothing", "head_diversity_weight"),
    generation_fields=("forced_eos_token_id",),
    base_weights=(
        Weights(("encoder.embed_tokens.weight", "shared.weight"), "encoder.embed_tokens.weight", _FIRST),
        Weights("shared.weight", "encoder.embed_tokens.weight"),
        Weights("encoder.embed_tokens.weight", "encoder.embed_tokens.weight"),
        Weights("decoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
        *_marian_layer("encoder"),
        *_marian_layer("decoder"),
        Weights("decoder.layers.{n}.encoder_attn.q_proj.*", "decoder.layers.{n}.cross_attention.q_proj.*"),
        *_marian_attention("decoder.layers.{n}.encoder_attn", "decoder.layers.{n}.cross", "kv"),
    ),
    head_weights=(Weights("lm_head.weight", "lm_head.weight"), Weights("final_logits_bias", "lm_head.bias", _FLATTEN)),
    ignorable={
        r"(model\.)?(encoder|decoder)\.embed_positions\.weight": _is_sinusoidal,
        "final_logits_bias": _is_zero,
    },
)

FAMILIES = (BERT, GPT2, _OPENAI_GPT, MARIAN)
