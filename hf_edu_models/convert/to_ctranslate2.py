"""Our Transformer, GPT and BERT as models of CTranslate2, an inference engine for CPUs and GPUs.

Every weight is copied as it is: CTranslate2 has layers with the norm before or after, with biases or without, and takes
position encodings as a table, so that our interleaved sinusoids need no other form.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

_SINUSOIDS = 1024  # positions in the table of a model without a limit of its own
_ACTIVATIONS = {  # our names of activations, and CTranslate2's
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_new": "GELUTanh",
    "gelu_pytorch_tanh": "GELUTanh",
    "silu": "SWISH",
    "swish": "SWISH",
}


def require_ctranslate2() -> Any:
    try:
        import ctranslate2
    except ImportError:
        raise ValueError("CTranslate2 is not installed; pip install ctranslate2") from None
    return ctranslate2


def save_ctranslate2(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, destination: Path) -> str:
    """Save a model, its tokenizer and its generation config for CTranslate2; returns the class that loads it."""
    require_ctranslate2()
    kind = _SPECS.get(model.config.model_type)
    if kind is None:
        raise ValueError(
            f"{type(model).__name__} has no counterpart in CTranslate2; convert an edu_transformer, edu_gpt or edu_bert"
        )
    if model.config.hidden_act not in _ACTIVATIONS:
        raise ValueError(
            f"CTranslate2 has no activation {model.config.hidden_act!r}; it has {', '.join(sorted(_ACTIVATIONS))}"
        )
    make_spec, engine_class = kind
    spec = make_spec(model.eval().float())
    _set_tokens(spec, model, tokenizer)
    spec.validate()
    spec.optimize()
    destination.mkdir(parents=True, exist_ok=True)
    spec.save(str(destination))
    tokenizer.save_pretrained(destination)
    if model.can_generate():
        GenerationConfig.from_dict(model.generation_config.to_dict()).save_pretrained(destination)
    return engine_class


class EngineTranslator:
    """Translates with CTranslate2, from ids to ids, as `generate()` does with our model.

    Beam search is CTranslate2's own: it may close a sentence at another step than transformers' rule.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, compute_type: str = "float32"):
        engine = require_ctranslate2()
        if model.config.model_type != "edu_transformer":
            raise ValueError(
                f"{type(model).__name__} does not run in CTranslate2 here; use an edu_transformer, or no --engine"
            )
        with tempfile.TemporaryDirectory() as folder:
            save_ctranslate2(model, tokenizer, Path(folder))
            threads = torch.get_num_threads()
            self.translator = engine.Translator(folder, compute_type=compute_type, intra_threads=threads)
        self.names = _token_names(tokenizer, model.config.vocab_size)
        self.numbers = {name: number for number, name in enumerate(self.names)}

    def __call__(
        self, sources: list[list[int]], num_beams: int, max_new_tokens: list[int], num_return_sequences: int = 1
    ) -> list[list[list[int]]]:
        """The best translations of each source, without the end token.

        Args:
            max_new_tokens: of each source.
        """
        results = self.translator.translate_batch(
            [[self.names[number] for number in source] for source in sources],
            beam_size=num_beams,
            num_hypotheses=num_return_sequences,
            max_decoding_length=max(max_new_tokens),
            max_input_length=0,
            max_batch_size=0,
        )
        return [
            [[self.numbers[name] for name in names[:limit]] for names in result.hypotheses]
            for result, limit in zip(results, max_new_tokens, strict=True)
        ]


def _activation(model: PreTrainedModel) -> Any:
    from ctranslate2.specs.common_spec import Activation

    return Activation[_ACTIVATIONS[model.config.hidden_act]]


def _transformer(model: Any) -> Any:
    from ctranslate2.specs import TransformerSpec

    config, body = model.config, getattr(model, "model", None)
    if body is None:
        raise ValueError(f"{type(model).__name__} does not translate; convert a ForConditionalGeneration model")
    layers = config.num_hidden_layers, config.decoder_layers
    heads = config.num_attention_heads
    spec = TransformerSpec.from_config(layers, heads, pre_norm=config.norm_first, activation=_activation(model))
    for side, ours in ((spec.encoder, body.encoder), (spec.decoder, body.decoder)):
        embed_tokens = ours.embed_tokens or body.encoder.embed_tokens
        embeddings = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        embeddings.weight = embed_tokens.weight.detach().numpy()
        side.scale_embeddings = ours.embed.scale
        side.position_encodings.encodings = _positions(ours.embed.positions, config)
        _set_layers(side, ours)
    _set_linear(spec.decoder.projection, model.lm_head)
    spec.config.layer_norm_epsilon = config.layer_norm_eps
    return spec


def _positions(module: nn.Module, config: Any) -> Any:
    """The table of learned positions, or of sinusoids for at least as many positions."""
    if isinstance(module, nn.Embedding):
        return module.weight.detach().numpy()
    return module(torch.arange(max(_SINUSOIDS, config.max_position_embeddings))).numpy()


def _gpt(model: Any) -> Any:
    from ctranslate2.specs import TransformerDecoderModelSpec

    config = model.config
    if not hasattr(model, "lm_head"):
        raise ValueError(f"{type(model).__name__} does not generate text; convert a ForCausalLM model")
    spec = TransformerDecoderModelSpec.from_config(
        config.num_hidden_layers, config.num_attention_heads, pre_norm=config.norm_first, activation=_activation(model)
    )
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = model.model.embed_tokens.weight.detach().numpy()
    decoder.position_encodings.encodings = model.model.embed_positions.weight.detach().numpy()
    _set_layers(decoder, model.model)
    _set_linear(decoder.projection, model.lm_head)
    spec.config.layer_norm_epsilon = config.layer_norm_eps
    return spec


def _bert(model: Any) -> Any:
    from ctranslate2.specs import TransformerEncoderModelSpec, TransformerEncoderSpec
    from ctranslate2.specs.common_spec import EmbeddingsMerge

    config, body = model.config, model.base_model
    encoder = TransformerEncoderSpec(
        config.num_hidden_layers,
        config.num_attention_heads,
        pre_norm=config.norm_first,
        activation=_activation(model),
        layernorm_embedding=True,
        num_source_embeddings=2,
        embeddings_merge=EmbeddingsMerge.ADD,
    )
    spec = TransformerEncoderModelSpec(encoder, pooling_layer=body.pooler is not None)
    encoder.scale_embeddings = False
    ours = body.embeddings
    encoder.embeddings[0].weight = ours.word_embeddings.weight.detach().numpy()
    encoder.embeddings[1].weight = ours.token_type_embeddings.weight.detach().numpy()
    encoder.position_encodings.encodings = ours.position_embeddings.weight.detach().numpy()
    _set_norm(encoder.layernorm_embedding, ours.norm)
    _set_layers(encoder, body)
    if body.pooler is not None:
        _set_linear(spec.pooler_dense, body.pooler)
    spec.config.layer_norm_epsilon = config.layer_norm_eps
    return spec


_SPECS: dict[str, tuple[Callable, str]] = {
    "edu_transformer": (_transformer, "Translator"),
    "edu_gpt": (_gpt, "Generator"),
    "edu_bert": (_bert, "Encoder"),
}


def _set_layers(spec: Any, model: Any) -> None:
    """All layers of one side, and the norm after them."""
    for layer_spec, layer in zip(spec.layer, model.layers, strict=True):
        attention = layer.self_attention
        _set_linear(layer_spec.self_attention.linear[0], attention.qkv_proj)
        _set_output(layer_spec.self_attention.linear[1], attention)
        _set_norm(layer_spec.self_attention.layer_norm, layer.self_residual.norm)
        if hasattr(layer, "cross_attention"):
            cross = layer.cross_attention
            _set_linear(layer_spec.attention.linear[0], cross.q_proj)
            _set_linear(layer_spec.attention.linear[1], cross.kv_proj)
            _set_output(layer_spec.attention.linear[2], cross)
            _set_norm(layer_spec.attention.layer_norm, layer.cross_residual.norm)
        _set_linear(layer_spec.ffn.linear_0, layer.feed_forward.inner_proj)
        _set_linear(layer_spec.ffn.linear_1, layer.feed_forward.outer_proj)
        _set_norm(layer_spec.ffn.layer_norm, layer.feed_residual.norm)
    if model.config.norm_first:
        _set_norm(spec.layer_norm, model.final_norm)


def _set_norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = norm.weight.detach().numpy(), norm.bias.detach().numpy()


def _set_linear(spec: Any, linear: nn.Linear) -> None:
    spec.weight = linear.weight.detach().numpy()
    if linear.bias is not None:
        spec.bias = linear.bias.detach().numpy()


def _set_output(spec: Any, attention: Any) -> None:
    """W^O for concatenated heads, which is all that CTranslate2 has; the mean of heads and no W^O become one."""
    aggregation, size = getattr(attention.config, "head_aggregation", "project"), attention.config.hidden_size
    if aggregation == "concat":
        spec.weight = torch.eye(size).numpy()
        return
    _set_linear(spec, attention.output)
    if aggregation == "mean":
        heads = attention.config.num_attention_heads
        spec.weight = _contiguous(attention.output.weight.repeat(1, heads) / heads)


def _contiguous(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()


def _set_tokens(spec: Any, model: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    """The vocabulary, with a name for each id that the tokenizer does not have, and the special tokens."""
    tokens = _token_names(tokenizer, model.config.vocab_size)
    if model.config.model_type == "edu_transformer":
        spec.register_source_vocabulary(tokens)
        spec.register_target_vocabulary(tokens)
        spec.config.decoder_start_token = tokens[model.config.decoder_start_token_id]
    else:
        spec.register_vocabulary(tokens)
    spec.config.unk_token = tokenizer.unk_token or tokens[0]
    for name in ("bos", "eos"):
        token = getattr(model.config, f"{name}_token_id", None)
        if hasattr(spec.config, f"{name}_token"):
            setattr(spec.config, f"{name}_token", tokens[token] if isinstance(token, int) else tokens[0])


def _token_names(tokenizer: PreTrainedTokenizerBase, size: int) -> list[str]:
    ids = {number: token for token, number in tokenizer.get_vocab().items()}
    return [ids.get(number, f"<unused {number}>") for number in range(size)]
