"""Which of transformers' models is which of ours, as tables that `convert.py` reads in both directions.

In a weight's name `{n}` stands for a layer's number and `*` for `weight` and for `bias`. Of the rows about one weight,
the first applies whose names are all there; which are there depends on what is tied.

Shapes: D hidden size, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ..models.modeling_transformer import SinusoidalPositions


@dataclass(frozen=True)
class Transform:
    """Makes our tensor from theirs, and theirs, as many as they are, from ours."""

    to_ours: Callable[[list[Tensor]], Tensor]
    to_theirs: Callable[[Tensor, int], list[Tensor]]


RENAME = Transform(lambda theirs: theirs[0], lambda ours, count: [ours])
STACK = Transform(torch.cat, lambda ours, count: list(ours.chunk(count)))  # one product for queries, keys and values
TRANSPOSE = Transform(lambda theirs: theirs[0].t(), lambda ours, count: [ours.t()])  # Conv1D; a bias stays as it is
FLATTEN = Transform(lambda theirs: theirs[0].flatten(), lambda ours, count: [ours[None]])  # (1, V) and (V,)
READ_FIRST = Transform(lambda theirs: theirs[0], lambda ours, count: [ours] * count)  # the others are never read


@dataclass(frozen=True)
class Weights:
    """One of our tensors, and what it is made of."""

    theirs: str | tuple[str, ...]
    ours: str
    transform: Transform = RENAME


def keep(value):
    return value


@dataclass(frozen=True)
class Setting:
    """One of our settings and its name in their configuration; two of theirs for one of ours must agree.

    Args:
        only_trains: has no effect on what a trained model says, so a difference is worth a warning and no more.
    """

    theirs: str
    ours: str
    to_ours: Callable = keep
    to_theirs: Callable = keep
    only_trains: bool = False


@dataclass(frozen=True)
class Limit:
    """A setting for which the other side has only these values.

    Args:
        allowed: the values, or a function that finds them in the configuration.
        only_for: the class that it holds for; all of them if empty.
    """

    setting: str
    allowed: tuple | Callable
    only_for: str = ""
    only_trains: bool = False


@dataclass(frozen=True)
class Family:
    """One of transformers' kinds of model beside one of ours.

    Args:
        theirs, ours: the two `model_type`s.
        classes: their classes and ours for the same task; the body comes first.
        tokenizer: their tokenizer's class, which their checkpoints need not name.
        settings: what is a setting on both sides.
        fixed: settings of ours that they do not have: the value that all their models have, or a function that finds
            it in either configuration.
        found: settings of ours that are found by looking at their model.
        theirs_limits, ours_limits: what only one side can do.
        generation: settings of theirs that we have in the generation configuration alone.
        body, heads: the weights; a body's names stand behind a prefix where there is a head.
        spare: names of theirs that hold nothing to keep, if the test says so for their tensor.
    """

    theirs: str
    ours: str
    classes: dict[str, str]
    tokenizer: str
    settings: tuple[Setting, ...]
    fixed: dict
    body: tuple[Weights, ...]
    heads: tuple[Weights, ...]
    found: dict[str, Callable[[PreTrainedModel], object]] = field(default_factory=dict)
    theirs_limits: tuple[Limit, ...] = ()
    ours_limits: tuple[Limit, ...] = ()
    generation: tuple[str, ...] = ()
    spare: dict[str, Callable[[Tensor], bool]] = field(default_factory=dict)


def same(*names: str) -> tuple[Setting, ...]:
    """Settings with one name on both sides."""
    return tuple(Setting(name, name) for name in names)


EVERYWHERE = same(
    "vocab_size",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "tie_word_embeddings",
    "id2label",
    "label2id",
    "problem_type",
)


def always(tensor: Tensor) -> bool:
    return True


def are_zeros(tensor: Tensor) -> bool:
    return not tensor.any()


def are_sinusoids(table: Tensor) -> bool:
    """Whether a table of positions holds what we compute."""
    waves = SinusoidalPositions(table.shape[1], "halves")(torch.arange(len(table), device=table.device))
    return torch.allclose(table.float(), waves.float(), rtol=0, atol=max(1e-5, torch.finfo(table.dtype).eps))


BERT = Family(
    theirs="bert",
    ours="edu_bert",
    classes={
        "BertModel": "EduBertModel",
        "BertForPreTraining": "EduBertForPreTraining",
        "BertForMaskedLM": "EduBertForMaskedLM",
        "BertForNextSentencePrediction": "EduBertForNextSentencePrediction",
        "BertForSequenceClassification": "EduBertForSequenceClassification",
        "BertForTokenClassification": "EduBertForTokenClassification",
        "BertForQuestionAnswering": "EduBertForQuestionAnswering",
        "BertForMultipleChoice": "EduBertForMultipleChoice",
    },
    tokenizer="BertTokenizer",
    settings=(
        *EVERYWHERE,
        *same("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"),
        *same("max_position_embeddings", "type_vocab_size", "initializer_range", "layer_norm_eps"),
        *same("classifier_dropout", "use_cache"),
        Setting("hidden_dropout_prob", "dropout"),
        Setting("attention_probs_dropout_prob", "attention_dropout"),
    ),
    fixed={"norm_first": False},
    theirs_limits=(
        Limit("is_decoder", (False,)),
        Limit("add_cross_attention", (False,)),
        Limit("position_embedding_type", ("absolute",)),
        Limit("num_labels", (2,), only_for="BertForQuestionAnswering"),
    ),
    ours_limits=(Limit("num_labels", (2,), only_for="EduBertForQuestionAnswering"),),
    body=(
        Weights("embeddings.word_embeddings.weight", "embeddings.word_embeddings.weight"),
        Weights("embeddings.position_embeddings.weight", "embeddings.position_embeddings.weight"),
        Weights("embeddings.token_type_embeddings.weight", "embeddings.token_type_embeddings.weight"),
        Weights("embeddings.LayerNorm.*", "embeddings.norm.*"),
        Weights(
            tuple(f"encoder.layer.{{n}}.attention.self.{part}.*" for part in ("query", "key", "value")),
            "layers.{n}.self_attention.qkv_proj.*",
            STACK,
        ),
        Weights("encoder.layer.{n}.attention.output.dense.*", "layers.{n}.self_attention.output.*"),
        Weights("encoder.layer.{n}.attention.output.LayerNorm.*", "layers.{n}.self_residual.norm.*"),
        Weights("encoder.layer.{n}.intermediate.dense.*", "layers.{n}.feed_forward.inner_proj.*"),
        Weights("encoder.layer.{n}.output.dense.*", "layers.{n}.feed_forward.outer_proj.*"),
        Weights("encoder.layer.{n}.output.LayerNorm.*", "layers.{n}.feed_residual.norm.*"),
        Weights("pooler.dense.*", "pooler.*"),
    ),
    heads=(
        Weights("cls.predictions.transform.dense.*", "lm_head.transform.*"),
        Weights("cls.predictions.transform.LayerNorm.*", "lm_head.norm.*"),
        Weights("cls.predictions.decoder.weight", "lm_head.decoder.weight"),
        # Their bias is there twice and one of the two is read; tied, they are one.
        Weights(("cls.predictions.decoder.bias", "cls.predictions.bias"), "lm_head.decoder.bias", READ_FIRST),
        Weights("cls.predictions.bias", "lm_head.decoder.bias"),
        Weights("cls.seq_relationship.*", "seq_relationship.*"),
        Weights("cls.seq_relationship.*", "classifier.*"),
        Weights("qa_outputs.*", "classifier.*"),
        Weights("classifier.*", "classifier.*"),
    ),
    spare={r"(bert\.)?embeddings\.(position|token_type)_ids": always},
)


GPT_CLASSES = {
    "Model": "EduGPTModel",
    "LMHeadModel": "EduGPTForCausalLM",
    "ForSequenceClassification": "EduGPTForSequenceClassification",
}
GPT_SETTINGS = (
    *EVERYWHERE,
    *same("initializer_range"),
    Setting("n_positions", "max_position_embeddings"),
    Setting("n_embd", "hidden_size"),
    Setting("n_layer", "num_hidden_layers"),
    Setting("n_head", "num_attention_heads"),
    Setting("layer_norm_epsilon", "layer_norm_eps"),
    Setting("resid_pdrop", "dropout"),
    Setting("embd_pdrop", "dropout", only_trains=True),
    Setting("attn_pdrop", "attention_dropout"),
)
GPT_LAYERS = (
    Weights("h.{n}.ln_1.*", "layers.{n}.self_residual.norm.*"),
    Weights("h.{n}.attn.c_attn.*", "layers.{n}.self_attention.qkv_proj.*", TRANSPOSE),
    Weights("h.{n}.attn.c_proj.*", "layers.{n}.self_attention.output.*", TRANSPOSE),
    Weights("h.{n}.ln_2.*", "layers.{n}.feed_residual.norm.*"),
    Weights("h.{n}.mlp.c_fc.*", "layers.{n}.feed_forward.inner_proj.*", TRANSPOSE),
    Weights("h.{n}.mlp.c_proj.*", "layers.{n}.feed_forward.outer_proj.*", TRANSPOSE),
)
GPT_HEADS = (Weights("lm_head.weight", "lm_head.weight"), Weights("score.weight", "score.weight"))
CAUSAL_MASKS = {r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias": always, r"(transformer\.)?position_ids": always}


def four_times_as_wide(config) -> int:
    return 4 * config.hidden_size


GPT2 = Family(
    theirs="gpt2",
    ours="edu_gpt",
    classes={f"GPT2{name}": ours for name, ours in GPT_CLASSES.items()},
    tokenizer="GPT2Tokenizer",
    settings=(
        *GPT_SETTINGS,
        *same("use_cache"),
        Setting("n_inner", "intermediate_size"),
        Setting("activation_function", "hidden_act"),
    ),
    fixed={"norm_first": True},
    # Not given, the inner layer is four times as wide.
    found={"intermediate_size": lambda model: model.config.n_inner or four_times_as_wide(model.config)},
    theirs_limits=(
        Limit("scale_attn_weights", (True,)),
        Limit("scale_attn_by_inverse_layer_idx", (False,)),
        Limit("reorder_and_upcast_attn", (False,)),
        Limit("add_cross_attention", (False,)),
    ),
    body=(
        Weights("wte.weight", "embed_tokens.weight"),
        Weights("wpe.weight", "embed_positions.weight"),
        *GPT_LAYERS,
        Weights("ln_f.*", "final_norm.*"),
    ),
    heads=GPT_HEADS,
    spare=CAUSAL_MASKS,
)

# What their first GPT calls `gelu` is the approximation that everything later calls `gelu_new`.
GPT_ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu", "silu": "silu", "swish": "silu"}

OPENAI_GPT = Family(
    theirs="openai-gpt",
    ours="edu_gpt",
    classes={f"OpenAIGPT{name}": ours for name, ours in GPT_CLASSES.items()},
    tokenizer="OpenAIGPTTokenizer",
    settings=(
        *GPT_SETTINGS,
        Setting("afn", "hidden_act", GPT_ACTIVATIONS.get, {"gelu_new": "gelu", "relu": "relu", "silu": "silu"}.get),
    ),
    fixed={"norm_first": False, "intermediate_size": four_times_as_wide},
    theirs_limits=(Limit("afn", tuple(GPT_ACTIVATIONS)),),
    ours_limits=(Limit("hidden_act", ("gelu_new", "relu", "silu")),),
    body=(
        Weights("tokens_embed.weight", "embed_tokens.weight"),
        Weights("positions_embed.weight", "embed_positions.weight"),
        *GPT_LAYERS,
    ),
    heads=GPT_HEADS,
    spare=CAUSAL_MASKS,
)


def marian_attention(side: str, theirs: str, ours: str, stacked: str, parts: str) -> tuple[Weights, ...]:
    """One attention and the normalisation after it."""
    attention, norm = f"{side}.layers.{{n}}.{theirs}", f"{side}.layers.{{n}}.{ours}"
    return (
        Weights(tuple(f"{attention}.{part}_proj.*" for part in parts), f"{norm}_attention.{stacked}.*", STACK),
        Weights(f"{attention}.out_proj.*", f"{norm}_attention.output.*"),
        Weights(f"{attention}_layer_norm.*", f"{norm}_residual.norm.*"),
    )


def marian_layer(side: str) -> tuple[Weights, ...]:
    """What both sides' layers have."""
    layer = f"{side}.layers.{{n}}"
    return (
        *marian_attention(side, "self_attn", "self", "qkv_proj", "qkv"),
        Weights(f"{layer}.fc1.*", f"{layer}.feed_forward.inner_proj.*"),
        Weights(f"{layer}.fc2.*", f"{layer}.feed_forward.outer_proj.*"),
        Weights(f"{layer}.final_layer_norm.*", f"{layer}.feed_residual.norm.*"),
    )


MARIAN = Family(
    theirs="marian",
    ours="edu_transformer",
    classes={"MarianModel": "EduTransformerModel", "MarianMTModel": "EduTransformerForConditionalGeneration"},
    tokenizer="MarianTokenizer",
    settings=(
        *EVERYWHERE,
        *same("decoder_layers", "max_position_embeddings", "use_cache", "decoder_start_token_id"),
        *same("dropout", "attention_dropout", "activation_dropout"),
        Setting("decoder_vocab_size", "vocab_size"),
        Setting("d_model", "hidden_size"),
        Setting("encoder_layers", "num_hidden_layers"),
        Setting("encoder_attention_heads", "num_attention_heads"),
        Setting("decoder_attention_heads", "num_attention_heads"),
        Setting("encoder_ffn_dim", "intermediate_size"),
        Setting("decoder_ffn_dim", "intermediate_size"),
        Setting("activation_function", "hidden_act"),
        Setting("scale_embedding", "scale_embeddings"),
        Setting("share_encoder_decoder_embeddings", "share_embeddings"),
    ),
    fixed={
        "position_embedding_type": "sinusoidal",
        "sinusoid_layout": "halves",
        "norm_first": False,
        "layer_norm_eps": 1e-5,
        "attention_bias": True,
        "head_aggregation": "project",
    },
    found={
        # Their configuration may say that tables are shared; if it also says that nothing is tied, they are not.
        "share_embeddings": lambda model: (
            model.config.share_encoder_decoder_embeddings and model.config.tie_word_embeddings
        ),
        "label_smoothing": lambda model: 0.0,
        "logits_bias": lambda model: bool(getattr(model, "final_logits_bias", torch.zeros(1)).any()),
    },
    theirs_limits=(
        Limit("encoder_layerdrop", (0,), only_trains=True),
        Limit("decoder_layerdrop", (0,), only_trains=True),
    ),
    ours_limits=(
        Limit("tie_word_embeddings", lambda config: (True,) if config.share_embeddings else (True, False)),
        Limit("label_smoothing", (0,), only_trains=True),
        Limit("head_diversity_weight", (0,), only_trains=True),
    ),
    generation=("forced_eos_token_id",),
    body=(
        Weights(("encoder.embed_tokens.weight", "shared.weight"), "encoder.embed_tokens.weight", READ_FIRST),
        Weights("shared.weight", "encoder.embed_tokens.weight"),
        Weights("encoder.embed_tokens.weight", "encoder.embed_tokens.weight"),
        Weights("decoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
        *marian_layer("encoder"),
        *marian_layer("decoder"),
        Weights("decoder.layers.{n}.encoder_attn.q_proj.*", "decoder.layers.{n}.cross_attention.q_proj.*"),
        *marian_attention("decoder", "encoder_attn", "cross", "kv_proj", "kv"),
    ),
    heads=(
        Weights("lm_head.weight", "lm_head.weight"),
        Weights("final_logits_bias", "lm_head.bias", FLATTEN),
    ),
    spare={
        r"(model\.)?(encoder|decoder)\.embed_positions\.weight": are_sinusoids,
        "final_logits_bias": are_zeros,
    },
)

FAMILIES = (BERT, GPT2, OPENAI_GPT, MARIAN)
