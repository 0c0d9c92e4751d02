"""Small models of every rung, for the laws. All sizes differ, so that a swapped axis shows."""

from dataclasses import dataclass, field

import torch

import hf_edu_models
from hf_edu_models import LADDER

BATCH, SOURCE, LENGTH = 2, 5, 7
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

    def build(self, seed: int = 0, **changes):
        head = getattr(hf_edu_models, self.head)
        torch.manual_seed(seed)
        model = head(head.config_class(**(self.settings | changes))).eval()
        # Some papers start weights at zero or nearly so, where a bug may hide.
        for parameter in model.parameters():
            if parameter.abs().max() < 0.2:
                torch.nn.init.uniform_(parameter, -0.5, 0.5)
        return model

    @property
    def has_implementations(self) -> bool:
        return "hidden_size" in self.settings and "window_size" not in self.settings


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
GENERATORS = LANGUAGE_MODELS + TRANSLATORS
ALL = GENERATORS + CLASSIFIERS
TWO_FORMS = [case for case in ALL if case.has_implementations]
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
    if case.task != "seq2seq":
        return {"input_ids": words(batch, LENGTH, seed=seed)}
    return {
        "input_ids": words(batch, SOURCE, seed=seed),
        "decoder_input_ids": words(batch, LENGTH, seed=seed + 1),
    }


def labels_for(case: Case, batch: int = BATCH, seed: int = 3):
    if case.task == "classify":
        return words(batch, seed=seed) % 3
    labels = words(batch, LENGTH, seed=seed)
    return labels % 3 if case.task == "tag" else labels


def pad(ids, where: str, count: int = 2, value: int = 0):
    """Put `count` padding tokens left, right or in the middle; also the mask, and where the real tokens went."""
    batch, length = ids.shape
    left = {"left": count, "right": 0, "middle": 0}[where]
    places = torch.arange(length) + left
    if where == "middle":
        places[length // 2 :] += count
    padded = torch.full((batch, length + count), value)
    padded[:, places] = ids
    mask = torch.zeros_like(padded)
    mask[:, places] = 1
    return padded, mask, places
