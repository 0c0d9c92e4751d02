"""Published results, shown beside ours. They were measured on other data with larger models."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedTable:
    """Some rows of a paper's table.

    Args:
        source: Paper and table.
        data: Data or setting of the measurement.
        metrics: Names of the columns.
        rows: Each system and its numbers, one for each metric.
        note: A remark on the results.
    """

    source: str
    data: str
    metrics: tuple[str, ...]
    rows: dict[str, tuple[float, ...]]
    note: str = ""


PUBLISHED = {
    "bleu-by-length": PublishedTable(
        source="Bahdanau et al. 2015, Table 1",
        data="English-French, all sentences",
        metrics=("BLEU",),
        rows={
            "RNNencdec-30": (13.93,),
            "RNNencdec-50": (17.82,),
            "RNNsearch-30": (21.50,),
            "RNNsearch-50": (26.75,),
        },
        note="Fig. 2: RNNsearch-50 (attention) stays flat past 50 words, RNNencdec (one vector) falls.",
    ),
    "reversal": PublishedTable(
        source="Sutskever et al. 2014, Section 3.3",
        data="WMT14 English-French",
        metrics=("perplexity", "BLEU"),
        rows={"source as it is": (5.8, 25.9), "source reversed": (4.7, 30.6)},
    ),
    "heads": PublishedTable(
        source="Vaswani et al. 2017, Table 3",
        data="English-German, development set",
        metrics=("perplexity", "BLEU"),
        rows={
            "1 head": (5.29, 24.9),
            "4 heads": (5.00, 25.5),
            "8 heads (base)": (4.92, 25.8),
            "16 heads": (4.91, 25.8),
            "32 heads": (5.01, 25.4),
        },
    ),
    "positions": PublishedTable(
        source="Vaswani et al. 2017, Table 3",
        data="English-German, development set",
        metrics=("perplexity", "BLEU"),
        rows={"sinusoidal (base)": (4.92, 25.8), "learned": (4.92, 25.7)},
    ),
    "scores": PublishedTable(
        source="Luong et al. 2015, Table 4",
        data="WMT14 English-German, without replacing unknown words",
        metrics=("perplexity", "BLEU"),
        rows={"global (location)": (6.4, 18.1), "global (dot)": (6.1, 18.6), "global (general)": (6.1, 17.3)},
    ),
    "masking": PublishedTable(
        source="Devlin et al. 2019, Table 8",
        data="after pre-training and fine-tuning",
        metrics=("MNLI accuracy", "NER F1"),
        rows={"80-10-10": (84.2, 95.4), "100-0-0": (84.3, 94.9), "0-0-100": (83.6, 94.9)},
    ),
    "nsp": PublishedTable(
        source="Devlin et al. 2019, Table 5",
        data="after pre-training and fine-tuning",
        metrics=("MNLI-m", "QNLI", "MRPC", "SST-2", "SQuAD"),
        rows={
            "with NSP (base)": (84.4, 88.4, 86.7, 92.7, 88.5),
            "no NSP": (83.9, 84.9, 86.5, 92.6, 87.9),
            "left-to-right, no NSP": (82.1, 84.3, 77.5, 92.1, 77.8),
        },
    ),
    "long-time-lags": PublishedTable(
        source="Hochreiter & Schmidhuber 1997, Tables 1 to 9: LSTM",
        data="single sequences, gradient descent",
        metrics=("sequences",),
        rows={
            "reber": (8_440,),
            "lag 100, regular": (5_040,),
            "lag 100, random": (5_680,),
            "lag 100, noise": (31_000,),
            "lag 1,000, noise": (135_000,),
            "two sequences": (39_850,),
            "two sequences, noise": (43_250,),
            "two sequences, noisy targets": (269_650,),
            "adding": (74_000,),
            "multiplication": (1_273_000,),
            "temporal order": (31_390,),
        },
        note="The paper's LSTM has no forget gate and 1 to 4 memory blocks, and learns from single sequences; BPTT "
        "and RTRL fail with lags of 10 (Section 5.2).",
    ),
}
