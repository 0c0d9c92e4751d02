"""Tiny models with attention, ours and transformers' own. Sizes all differ."""

from dataclasses import dataclass, field

import torch
import transformers

import hf_edu_models

TEXTS = [
    "the cat sat on the mat",
    "le chat noir dort",
    'a <script>alert("x")</script> & an "odd" one',
    "שלום עולם",
    "naïve 日本語",
]
SIZES = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
RECURRENT = {"hidden_size": 12, "embedding_size": 10, "initializer_range": 0.4}
MARIAN = {
    "d_model": 12,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 20,
    "max_position_embeddings": 90,
    "init_std": 0.3,
    "forced_eos_token_id": None,
}
GPT2 = {"n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 90, "initializer_range": 0.3}
LIMIT = {"max_position_embeddings": 90}


@dataclass(frozen=True)
class Attender:
    """One tiny model with attention: its class, its settings, and its attention maps."""

    name: str
    head: str
    task: str
    maps: tuple[str, ...]
    settings: dict = field(hash=False)

    def build(self, tokenizer):
        source = hf_edu_models if self.head.startswith("Edu") else transformers
        head = getattr(source, self.head)
        names = ("pad", "bos", "eos")
        ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in names}
        if self.task == "seq2seq":
            ids["decoder_start_token_id"] = tokenizer.bos_token_id
        if self.task == "bert":
            ids = {"pad_token_id": tokenizer.pad_token_id}
        torch.manual_seed(0)
        model = head(head.config_class(vocab_size=len(tokenizer), **ids, **self.settings)).eval()
        for parameter in model.parameters():  # weights near zero would give the same map everywhere
            if parameter.abs().max() < 0.2:
                torch.nn.init.uniform_(parameter, -0.5, 0.5)
        return model


TRANSLATORS = [
    Attender("bahdanau", "EduBahdanauForConditionalGeneration", "seq2seq", ("cross",), RECURRENT),
    Attender(
        "transformer",
        "EduTransformerForConditionalGeneration",
        "seq2seq",
        ("encoder", "decoder", "cross"),
        SIZES | {"decoder_layers": 3},
    ),
    Attender("marian", "MarianMTModel", "seq2seq", ("encoder", "decoder", "cross"), MARIAN),
]
LANGUAGE_MODELS = [
    Attender(
        "window", "EduRecurrentForCausalLM", "language_modeling", ("window",), RECURRENT | {"attention_window": 4}
    ),
    Attender("gpt", "EduGPTForCausalLM", "language_modeling", ("self",), SIZES | LIMIT),
    Attender("gpt2", "GPT2LMHeadModel", "language_modeling", ("self",), GPT2),
]
ENCODERS = [
    Attender("bert", "EduBertForMaskedLM", "bert", ("self",), SIZES | LIMIT | {"initializer_range": 0.3}),
    Attender("hf-bert", "BertForMaskedLM", "bert", ("self",), SIZES | LIMIT | {"initializer_range": 0.3}),
]
ATTENDERS = TRANSLATORS + LANGUAGE_MODELS + ENCODERS


def by_name(attenders):
    """Arguments of `parametrize`."""
    return {"argvalues": attenders, "ids": [attender.name for attender in attenders]}
