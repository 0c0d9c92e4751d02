"""Small models of every rung, for the laws. All sizes differ, so that a swapped axis shows."""

from dataclasses import dataclass, field

import torch

import hf_edu_models
from hf_edu_models import LADDER

BATCH, SOURCE, LENGTH, CHOICES = 2, 5, 7, 4
SIZES = {"vocab_size": 29, "dropout": 0.0}
RECURRENT = SIZES | {"embedding_size": 10, "hidden_size": 12, "num_hidden_layers": 2, "initializer_range": 0.4}
SEQ2SEQ = RECURRENT | {"maxout_size": 9}
BAHDANAU = SIZES | {"embedding_size": 10, "hidden_size": 12, "maxout_size": 9, "initializer_range": 0.4}


@dataclass(frozen=True)
class Case:
    """One tiny model: its class, what its configuration changes, and what kind of task it does."""

    name: str
    head: str
    settings: dict = field(hash=False)
    task: str

    def build(self, seed: int = 0, form: str = "fused", **changes):
        """The model in its readable form (`eager`) or its fast one (`fused`: torch's kernels, or sdpa)."""
        head = getattr(hf_edu_models, self.head)
        changes = {self.how_to_choose_a_form: "sdpa" if self.attends and form == "fused" else form} | changes
        changes.pop(None, None)
        torch.manual_seed(seed)
        model = head(head.config_class(**(self.settings | changes))).eval()
        # Some papers start weights at zero or nearly so, where a bug may hide.
        for parameter in model.parameters():
            if parameter.abs().max() < 0.2:
                torch.nn.init.uniform_(parameter, -0.5, 0.5)
        return model

    @property
    def attends(self) -> bool:
        return "num_attention_heads" in self.settings

    @property
    def how_to_choose_a_form(self) -> str | None:
        """The setting that chooses between the two forms, where there are two."""
        if "window_size" in self.settings:
            return None
        return "attn_implementation" if self.attends else "recurrent_implementation"


ATTENTION = SIZES | {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "attention_dropout": 0.0,
}
GPT = ATTENTION | {"max_position_embeddings": 40, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
BERT = ATTENTION | {"max_position_embeddings": 40, "initializer_range": 0.3}
MARIAN = {"sinusoid_layout": "halves", "attention_bias": True, "logits_bias": True, "hidden_act": "silu"}
NEWER = {"norm_first": True, "position_embedding_type": "learned", "max_position_embeddings": 40}
FEEDFORWARD = SIZES | {"embedding_size": 10, "hidden_size": 12, "window_size": 3}
WINDOW = {"attention_window": 4}
CHO = {"cell_type": "gru", "num_hidden_layers": 1, "context_every_step": True, "reverse_source": False}

LANGUAGE_MODELS = [
    Case("feedforward", "EduFeedForwardForCausalLM", FEEDFORWARD | {"direct_connections": False}, "lm"),
    Case("feedforward-direct", "EduFeedForwardForCausalLM", FEEDFORWARD, "lm"),
    Case("rnn", "EduRecurrentForCausalLM", RECURRENT | {"cell_type": "rnn"}, "lm"),
    Case("gru", "EduRecurrentForCausalLM", RECURRENT | {"cell_type": "gru"}, "lm"),
    Case("lstm", "EduRecurrentForCausalLM", RECURRENT | {"cell_type": "lstm"}, "lm"),
    Case("lstm-window", "EduRecurrentForCausalLM", RECURRENT | WINDOW, "lm"),
    Case("gru-window", "EduRecurrentForCausalLM", RECURRENT | WINDOW | {"cell_type": "gru"}, "lm"),
    Case("gpt-2018", "EduGPTForCausalLM", GPT | {"norm_first": False}, "lm"),
    Case("gpt-2019", "EduGPTForCausalLM", GPT, "lm"),
]
TRANSLATORS = [
    Case("sutskever", "EduSeq2SeqForConditionalGeneration", SEQ2SEQ, "seq2seq"),
    Case("sutskever-gru", "EduSeq2SeqForConditionalGeneration", SEQ2SEQ | {"cell_type": "gru"}, "seq2seq"),
    Case("cho", "EduSeq2SeqForConditionalGeneration", SEQ2SEQ | CHO, "seq2seq"),
    Case("cho-lstm", "EduSeq2SeqForConditionalGeneration", SEQ2SEQ | {"context_every_step": True}, "seq2seq"),
] + [
    Case(
        f"bahdanau-{score}-{cell}",
        "EduBahdanauForConditionalGeneration",
        BAHDANAU | {"attention_score": score, "cell_type": cell, "readout": readout},
        "seq2seq",
    )
    for score, cell, readout in (
        ("additive", "gru", "maxout"),
        ("additive", "lstm", "linear"),
        ("additive", "rnn", "maxout"),
        ("dot", "gru", "linear"),
        ("scaled_dot", "lstm", "maxout"),
        ("general", "gru", "maxout"),
        ("cosine", "rnn", "maxout"),
    )
]
TRANSLATORS += [
    Case(f"transformer-{name}", "EduTransformerForConditionalGeneration", ATTENTION | settings, "seq2seq")
    for name, settings in (
        ("paper", {}),
        ("marian", MARIAN),
        ("newer", NEWER | {"share_embeddings": False}),
        ("concat", {"head_aggregation": "concat", "tie_word_embeddings": False}),
        ("mean", {"head_aggregation": "mean", "decoder_layers": 1}),
    )
]
CLASSIFIERS = [
    Case(f"{task}-{name}", head, RECURRENT | {"num_labels": 3} | settings, task)
    for task, head in (
        ("classify", "EduRecurrentForSequenceClassification"),
        ("tag", "EduRecurrentForTokenClassification"),
    )
    for name, settings in (
        ("lstm", {}),
        ("gru-both-ways", {"cell_type": "gru", "bidirectional": True}),
        ("lstm-both-ways", {"bidirectional": True}),
    )
]
CLASSIFIERS += [
    Case("classify-gpt", "EduGPTForSequenceClassification", GPT | {"num_labels": 3}, "classify"),
    Case("classify-bert", "EduBertForSequenceClassification", BERT | {"num_labels": 3}, "classify"),
    Case("tag-bert", "EduBertForTokenClassification", BERT | {"num_labels": 3}, "tag"),
]
BERTS = [
    Case("pretrain-bert", "EduBertForPreTraining", BERT, "pretrain"),
    Case("mask-bert", "EduBertForMaskedLM", BERT, "mask"),
    Case("mask-bert-norm-first", "EduBertForMaskedLM", BERT | {"norm_first": True}, "mask"),
    Case("next-bert", "EduBertForNextSentencePrediction", BERT, "next"),
    Case("answer-bert", "EduBertForQuestionAnswering", BERT, "answer"),
    Case("choose-bert", "EduBertForMultipleChoice", BERT, "choose"),
]
GENERATORS = LANGUAGE_MODELS + TRANSLATORS
READERS = BERTS + CLASSIFIERS
ALL = GENERATORS + READERS
TWO_FORMS = [case for case in ALL if case.how_to_choose_a_form]
RECURRENT_GENERATORS = [case for case in GENERATORS if not case.attends]
assert {case.head for case in ALL} == {
    head for rung in LADDER for head in rung.config.heads.values() if not head.endswith("Model")
}, "every head of the ladder needs a tiny case"


def by_name(cases):
    """Arguments of `parametrize`."""
    return {"argvalues": cases, "ids": [case.name for case in cases]}


def words(*shape, seed: int = 1):
    """Random ids that are no special token."""
    return torch.randint(3, SIZES["vocab_size"], shape, generator=torch.Generator().manual_seed(seed))


def inputs_for(case: Case, batch: int = BATCH, seed: int = 1) -> dict:
    """A batch without padding or labels."""
    if case.task == "choose":
        return {"input_ids": words(batch, CHOICES, LENGTH, seed=seed)}
    if case.task != "seq2seq":
        return {"input_ids": words(batch, LENGTH, seed=seed)}
    return {
        "input_ids": words(batch, SOURCE, seed=seed),
        "decoder_input_ids": words(batch, LENGTH, seed=seed + 1),
    }


def targets_for(case: Case, batch: int = BATCH, seed: int = 3) -> dict:
    """What a model is told in training, by its parameters' names."""
    one, each = words(batch, seed=seed), words(batch, LENGTH, seed=seed)
    if case.task == "pretrain":
        return {"labels": each, "next_sentence_label": one % 2}
    if case.task == "answer":
        return {"start_positions": one % LENGTH, "end_positions": (one + 3) % LENGTH}
    classes = {"classify": 3, "next": 2, "choose": CHOICES}
    if case.task in classes:
        return {"labels": one % classes[case.task]}
    return {"labels": each % 3 if case.task == "tag" else each}


def logits_of(outputs):
    """What a model predicts, whatever it is called."""
    if "start_logits" in outputs:
        return torch.stack([outputs.start_logits, outputs.end_logits], dim=-1)
    return getattr(outputs, "logits" if hasattr(outputs, "logits") else "prediction_logits")


def pad(ids, where: str, count: int = 2, value: int = 0):
    """Put `count` padding tokens left, right or in the middle; also the mask, and where the real tokens went."""
    *front, length = ids.shape
    left = {"left": count, "right": 0, "middle": 0}[where]
    places = torch.arange(length) + left
    if where == "middle":
        places[length // 2 :] += count
    padded = torch.full((*front, length + count), value)
    padded[..., places] = ids
    mask = torch.zeros_like(padded)
    mask[..., places] = 1
    return padded, mask, places
