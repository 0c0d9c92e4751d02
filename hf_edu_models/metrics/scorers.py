"""One scorer per task, used as `compute_metrics` of `Trainer` and on every split at the end of a run.

Both compute the same scores from the same predictions; the end of a run adds confidence intervals and example rows.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..data.columns import label_names, read_column
from ..data.labels import IGNORE_INDEX
from ..data.language_modeling import token_stream
from ..data.question_answering import find_answers
from ..data.series import naive_forecasts
from . import load
from .question_answering import answers_of, word_f1

_RESAMPLES = 1000


@dataclass
class Scored:
    """Scores of a split, and its predictions row by row."""

    scores: dict[str, Any]
    rows: list[dict[str, Any]]


def interval(statistic: Callable[[np.ndarray], float], rows: int, resamples: int = _RESAMPLES) -> list[float] | None:
    """The 95% percentile bootstrap interval of a score over resampled rows; None for fewer than two rows.

    Args:
        statistic: from row numbers to the score of these rows.
    """
    from scipy.stats import bootstrap

    if rows < 2:
        return None
    limits = bootstrap(
        (np.arange(rows),),
        lambda numbers: statistic(numbers.astype(int)),
        vectorized=False,
        n_resamples=resamples,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return None if math.isnan(limits.low) else [float(limits.low), float(limits.high)]


class Scorer:
    """Scores of one task; a subclass defines how predictions are read and which scores are computed.

    Args:
        tokenizer: of the target side; only some tasks need it.
        corpus: the split as text, as references; without it, predictions are compared with the labels.
    """

    options: ClassVar[tuple[str, ...]] = ()  # keyword arguments that a user may pass
    preprocess_logits: ClassVar[Any] = None  # a static method (logits, labels) that reduces logits before gathering

    def __init__(self, tokenizer: Any = None, corpus: Any = None):
        self.tokenizer, self.corpus = tokenizer, corpus

    def __call__(self, output: Any) -> dict[str, Any]:
        return self.scores(*self.read(output))

    def score_split(self, output: Any) -> Scored:
        """Scores with intervals, and rows with predictions and references."""
        predictions, references = self.read(output)
        scores = self.scores(predictions, references) | self.intervals(predictions, references)
        scores |= {"loss": output.metrics["split_loss"]}
        return Scored({name: _to_python(value) for name, value in scores.items()}, self.rows(predictions, references))

    def read(self, output: Any) -> tuple[Any, Any]:
        """Predictions and references, as `scores` compares them."""
        return _first(output.predictions), output.label_ids

    def scores(self, predictions: Any, references: Any) -> dict[str, Any]:
        raise NotImplementedError

    def intervals(self, predictions: Any, references: Any) -> dict[str, Any]:
        return {}

    def rows(self, predictions: Any, references: Any) -> list[dict[str, Any]]:
        return []


class TranslationScorer(Scorer):
    """BLEU, chrF, word error rate and exact match of generated texts."""

    options = ("lowercase", "tokenize")

    def __init__(self, tokenizer: Any = None, corpus: Any = None, lowercase: bool = False, tokenize: str | None = None):
        if tokenizer is None:
            raise ValueError("scores for translation need the tokenizer of the target side, to turn ids into text")
        super().__init__(tokenizer, corpus)
        self.lowercase, self.tokenize = lowercase, tokenize

    def read(self, output: Any) -> tuple[list[str], list[str]]:
        # The corpus has the target as it is written; decoded labels lack what the tokenizer does not know.
        references = self._decode(output.label_ids) if self.corpus is None else read_column(self.corpus, "target")
        return self._decode(_generated_ids(output)), references

    def _decode(self, ids: np.ndarray) -> list[str]:
        ids = np.where(ids == IGNORE_INDEX, self.tokenizer.pad_token_id, ids)
        return [text.strip() for text in self.tokenizer.batch_decode(ids, skip_special_tokens=True)]

    def __call__(self, output: Any) -> dict[str, Any]:
        ids = _generated_ids(output)
        real = (ids != self.tokenizer.pad_token_id) & (ids != IGNORE_INDEX)
        return super().__call__(output) | {"generated_length": float(real.sum(-1).mean())}

    def scores(self, predictions: list[str], references: list[str]) -> dict[str, Any]:
        return translation_scores(predictions, references, self.lowercase, self.tokenize, resamples=0)

    def intervals(self, predictions: list[str], references: list[str]) -> dict[str, Any]:
        scores = translation_scores(predictions, references, self.lowercase, self.tokenize)
        if self.corpus is None:
            return scores
        return scores | exact_match_any(read_column(self.corpus, "source"), predictions, references, self.lowercase)

    def rows(self, predictions: list[str], references: list[str]) -> list[dict[str, Any]]:
        sources = read_column(self.corpus, "source")
        return _table(source=sources, reference=references, prediction=predictions)


def translation_scores(
    predictions: list[str],
    references: list[str],
    lowercase: bool = False,
    tokenize: str | None = None,
    resamples: int = _RESAMPLES,
) -> dict[str, Any]:
    """BLEU and chrF with signatures, word error rate and exact match; with `resamples`, intervals too.

    Args:
        lowercase: ignore case in every score.
        tokenize: sacrebleu's tokenizer for BLEU.
    """
    texts = {"predictions": predictions, "references": references}
    if lowercase:
        texts = {side: [text.lower() for text in each] for side, each in texts.items()}
    bleu = load("bleu").compute(**texts, lowercase=lowercase, tokenize=tokenize, n_bootstrap=resamples)
    names = ("bleu", "bleu_interval", "bleu_signature", "brevity_penalty")
    scores = {name: bleu[name] for name in names if name in bleu}
    scores |= load("chrf").compute(**texts, lowercase=lowercase)
    scores |= load("wer").compute(**texts) | load("exact_match").compute(**texts)
    if resamples:
        is_correct = np.array([a == b for a, b in zip(*texts.values(), strict=True)])
        scores["exact_match_interval"] = _mean_interval(is_correct, resamples)
    return scores


def exact_match_any(
    sources: list[str], predictions: list[str], references: list[str], lowercase: bool = False
) -> dict[str, float]:
    """Where sources have several references (rows): the share of sources whose prediction is one of them."""
    if lowercase:
        predictions, references = ([text.lower() for text in each] for each in (predictions, references))
    answers: dict[str, set[str]] = defaultdict(set)
    for source, reference in zip(sources, references, strict=True):
        answers[source].add(reference)
    if len(answers) == len(sources):
        return {}
    found = dict(zip(sources, predictions, strict=True))
    matches = sum(found[source] in allowed for source, allowed in answers.items())
    return {"exact_match_any": matches / len(answers)}


class ClassificationScorer(Scorer):
    """Accuracy, F1 and Matthews' coefficient of classes; F1 of label sets; correlations of numbers."""

    def scores(self, predictions: np.ndarray, references: np.ndarray) -> dict[str, float]:
        if references.ndim == 2:
            sets = {"predictions": (predictions > 0).astype(int), "references": references.astype(int)}
            f1 = load("f1", "multilabel")
            averages = {
                f"f1_{name}": f1.compute(**sets, average=name, zero_division=0)["f1"] for name in ("micro", "macro")
            }
            return averages | load("accuracy", "multilabel").compute(**sets)
        if np.issubdtype(references.dtype, np.floating):
            return load("pearson_spearman").compute(predictions=predictions.reshape(-1), references=references)
        classes = {"predictions": predictions.argmax(-1), "references": references}
        average = "binary" if predictions.shape[-1] == 2 else "macro"
        scores = load("accuracy").compute(**classes) | load("matthews").compute(**classes)
        return scores | load("f1").compute(**classes, average=average)

    def intervals(self, predictions: np.ndarray, references: np.ndarray) -> dict[str, Any]:
        if references.ndim == 2:
            return {}
        if np.issubdtype(references.dtype, np.floating):
            from scipy.stats import spearmanr

            values = predictions.reshape(-1)
            spread = interval(lambda rows: float(spearmanr(values[rows], references[rows]).statistic), len(references))
            return {"spearman_interval": spread}
        return {"accuracy_interval": _mean_interval(predictions.argmax(-1) == references)}

    def rows(self, predictions: np.ndarray, references: np.ndarray) -> list[dict[str, Any]]:
        texts = {
            name: read_column(self.corpus, name)
            for name in ("text", "text_pair", "sentences")
            if name in self.corpus.column_names
        }
        names: Any = label_names(self.corpus, "label")
        predicted: list
        labels: list
        if references.ndim == 2:
            sets: Any = (predictions > 0, references.astype(bool))
            predicted, labels = ([[names[label] for label in row.nonzero()[0]] for row in each] for each in sets)
        elif np.issubdtype(references.dtype, np.floating):
            predicted, labels = predictions.reshape(-1).tolist(), references.tolist()
        else:
            classes = (predictions.argmax(-1), references)
            predicted, labels = ([int(n) if names is None else names[n] for n in each] for each in classes)
        return _table(**texts, label=labels, prediction=predicted)


class RegressionScorer(Scorer):
    """Mean squared and absolute error of numbers, and R^2: the share of the variance that is explained."""

    def read(self, output: Any) -> tuple[np.ndarray, np.ndarray]:
        references = np.asarray(output.label_ids, np.float64)
        return _first(output.predictions).astype(np.float64).reshape(references.shape), references

    def scores(self, predictions: np.ndarray, references: np.ndarray) -> dict[str, float]:
        return _errors(predictions, references) | {"r2": _explained(predictions, references)}

    def intervals(self, predictions: np.ndarray, references: np.ndarray) -> dict[str, Any]:
        squares = np.square(predictions - references).reshape(len(references), -1).mean(axis=1)
        return {"mse_interval": _mean_interval(squares)}

    def rows(self, predictions: np.ndarray, references: np.ndarray) -> list[dict[str, Any]]:
        features = read_column(self.corpus, "features")
        return _table(features=features, value=references.tolist(), prediction=predictions.tolist())


class TimeSeriesScorer(RegressionScorer):
    """Mean squared and absolute error of forecasts; with the windows also those of naive forecasts."""

    options = ("windows",)

    def __init__(self, tokenizer: Any = None, corpus: Any = None, windows: Any = None):
        super().__init__(tokenizer, corpus)
        self.windows = windows

    def scores(self, predictions: np.ndarray, references: np.ndarray) -> dict[str, float]:
        scores = _errors(predictions, references)
        if self.windows is not None:
            for name, naive in naive_forecasts(self.windows.past, references.shape[1]).items():
                scores |= {f"{name}_{error}": value for error, value in _errors(naive, references).items()}
        return scores

    def intervals(self, predictions: np.ndarray, references: np.ndarray) -> dict[str, Any]:
        return {}  # windows overlap, so that they are no sample of independent rows

    def rows(self, predictions: np.ndarray, references: np.ndarray) -> list[dict[str, Any]]:
        dates = read_column(self.corpus, "date")
        start = len(dates) - len(references) - references.shape[1] + 1
        first = [str(date) for date in dates[start : start + len(references)]]
        values, predicted = (each[:, 0].round(4).tolist() for each in (references, predictions))
        return _table(date=first, values=values, prediction=predicted)


def _errors(predictions: np.ndarray, references: np.ndarray) -> dict[str, float]:
    errors = predictions - references
    return {"mse": float(np.square(errors).mean()), "mae": float(np.abs(errors).mean())}


def _explained(predictions: np.ndarray, references: np.ndarray) -> float:
    """1 - (mean squared error) / (variance); 0 where all references are equal."""
    spread = np.square(references - references.mean(axis=0)).sum()
    return float(1 - np.square(predictions - references).sum() / spread) if spread else 0.0


class MultipleChoiceScorer(Scorer):
    """Accuracy of the chosen continuations."""

    def read(self, output: Any) -> tuple[np.ndarray, np.ndarray]:
        return _first(output.predictions).argmax(-1), output.label_ids

    def scores(self, predictions: np.ndarray, references: np.ndarray) -> dict[str, float]:
        return load("accuracy").compute(predictions=predictions, references=references)

    def intervals(self, predictions: np.ndarray, references: np.ndarray) -> dict[str, Any]:
        return {"accuracy_interval": _mean_interval(predictions == references)}

    def rows(self, predictions: np.ndarray, references: np.ndarray) -> list[dict[str, Any]]:
        choices = read_column(self.corpus, "choices")
        labels, predicted = (
            [row[number] for row, number in zip(choices, each, strict=True)] for each in (references, predictions)
        )
        return _table(context=read_column(self.corpus, "context"), label=labels, prediction=predicted)


class TokenClassificationScorer(Scorer):
    """F1 of spans where the tags have B- and I-, otherwise accuracy; labels of -100 do not count."""

    options = ("tag_names",)

    def __init__(self, tokenizer: Any = None, corpus: Any = None, tag_names: list[str] | None = None):
        super().__init__(tokenizer, corpus)
        self.tag_names = (tag_names if corpus is None else label_names(corpus, "tags")) or []
        if not self.tag_names:
            raise ValueError("scores for token_classification need tag_names=[...], the names of the tags in order")
        self.has_spans = has_spans(self.tag_names)

    def read(self, output: Any) -> tuple[list[list[str]], list[list[str]]]:
        best, labels = _first(output.predictions).argmax(-1), np.asarray(output.label_ids)
        counted = labels != IGNORE_INDEX
        predicted, references = (
            [[self.tag_names[tag] for tag in row[real]] for row, real in zip(tags, counted, strict=True)]
            for tags in (best, labels)
        )
        return predicted, references

    def scores(self, predictions: list[list[str]], references: list[list[str]]) -> dict[str, float]:
        if not self.has_spans:
            correct, total = _count_correct(predictions, references)
            return {"accuracy": float(correct.sum() / max(total.sum(), 1))}
        scores = load("seqeval").compute(predictions=predictions, references=references)
        return {name.removeprefix("overall_"): score for name, score in scores.items() if name.startswith("overall_")}

    def intervals(self, predictions: list[list[str]], references: list[list[str]]) -> dict[str, Any]:
        if not self.has_spans:
            return {"accuracy_interval": _share_interval(*_count_correct(predictions, references))}
        from seqeval.metrics import f1_score

        def f1(rows: np.ndarray) -> float:
            return f1_score([references[row] for row in rows], [predictions[row] for row in rows], zero_division=0)

        return {"f1_interval": interval(f1, len(predictions), resamples=100)}  # each resample counts all spans again

    def rows(self, predictions: list[list[str]], references: list[list[str]]) -> list[dict[str, Any]]:
        tokens = [row[: len(tags)] for row, tags in zip(read_column(self.corpus, "tokens"), references, strict=True)]
        return _table(tokens=tokens, tags=references, prediction=predictions)


def has_spans(tag_names: list[str]) -> bool:
    """Whether tags mark spans (B-PER, I-PER) or single words (NOUN)."""
    return any(name[:2] in ("B-", "I-") for name in tag_names)


class QuestionAnsweringScorer(Scorer):
    """SQuAD's exact match and F1 of the best span over all windows of a context."""

    options = ("windows", "examples", "best", "max_answer_length", "null_threshold")

    def __init__(
        self, tokenizer: Any = None, corpus: Any = None, windows: Any = None, examples: Any = None, **options: Any
    ):
        super().__init__(tokenizer, examples if corpus is None else corpus)
        if self.corpus is None or (corpus is None and windows is None):
            raise ValueError(
                "scores for question_answering need windows= (the encoded data) and examples= (the corpus)"
            )
        self.windows, self.search = windows, options

    def read(self, output: Any) -> tuple[list[str], list[dict[str, Any]]]:
        starts, ends = output.predictions[:2]
        spans = find_answers(starts, ends, self.windows, self.corpus, **self.search)
        answers = {row["id"]: row["prediction_text"] for row in spans}
        references = list(self.corpus)
        return [answers[row["id"]] for row in references], references

    def scores(self, predictions: list[str], references: list[dict[str, Any]]) -> dict[str, float]:
        pairs = zip(predictions, references, strict=True)
        answers = [{"id": row["id"], "prediction_text": text} for text, row in pairs]
        references = [{"id": row["id"], "answers": row["answers"]} for row in references]
        return load("squad").compute(predictions=answers, references=references)

    def intervals(self, predictions: list[str], references: list[dict[str, Any]]) -> dict[str, Any]:
        pairs = zip(predictions, references, strict=True)
        f1 = [100 * max(word_f1(text, answer) for answer in answers_of(row)) for text, row in pairs]
        return {"f1_interval": _mean_interval(np.array(f1))}

    def rows(self, predictions: list[str], references: list[dict[str, Any]]) -> list[dict[str, Any]]:
        texts = {name: [row[name] for row in references] for name in ("question", "context")}
        return _table(**texts, reference=[answers_of(row)[0] for row in references], prediction=predictions)


class LanguageModelingScorer(Scorer):
    """Perplexity over all tokens; with the corpus also per word, and bits per character."""

    @staticmethod
    def preprocess_logits(logits: Any, labels: Any) -> Any:
        """Summed loss and number of tokens of each row, (B, 2): small enough to be gathered."""
        import torch

        logits = logits[0] if isinstance(logits, tuple) else logits
        targets = labels[:, 1:]  # (B, T - 1)
        losses = torch.nn.functional.cross_entropy(
            logits[:, :-1].transpose(1, 2).float(), targets, ignore_index=IGNORE_INDEX, reduction="none"
        )  # (B, T - 1)
        return torch.stack([losses.sum(1), (targets != IGNORE_INDEX).sum(1).to(losses.dtype)], dim=1)

    def read(self, output: Any) -> tuple[np.ndarray, np.ndarray]:
        losses, counts = np.asarray(_first(output.predictions), np.float64).T
        return losses, counts.round().astype(int)

    def scores(self, losses: np.ndarray, counts: np.ndarray) -> dict[str, float]:
        scores = load("perplexity").compute(predictions=losses, references=counts)
        if self.corpus is None:
            return {"perplexity": scores["perplexity"], "nll": scores["nll"]}
        return scores | by_word(losses.sum() / counts.sum(), self.corpus, self.tokenizer)

    def intervals(self, losses: np.ndarray, counts: np.ndarray) -> dict[str, Any]:
        spread = interval(lambda rows: np.exp(losses[rows].sum() / counts[rows].sum()), len(losses))
        return {"perplexity_interval": spread}


class BidirectionalScorer(LanguageModelingScorer):
    """Perplexity of two language models together, and of each: one predicts the next token, one the previous."""

    @staticmethod
    def preprocess_logits(logits: Any, labels: Any) -> Any:
        """As of one language model, for each direction, (B, 2, 2): backwards is forwards in the text turned round."""
        import torch

        forwards, backwards, *_ = logits  # each (B, T, V)
        reduce = LanguageModelingScorer.preprocess_logits
        return torch.stack([reduce(forwards, labels), reduce(backwards.flip(1), labels.flip(1))], dim=1)

    def read(self, output: Any) -> tuple[np.ndarray, np.ndarray]:
        losses, counts = np.moveaxis(np.asarray(_first(output.predictions), np.float64), 2, 0)
        return losses, counts.round().astype(int)

    def scores(self, losses: np.ndarray, counts: np.ndarray) -> dict[str, float]:
        each = np.exp(losses.sum(axis=0) / counts.sum(axis=0))
        both = super().scores(losses.sum(axis=1), counts.sum(axis=1))
        return both | {"forward_perplexity": float(each[0]), "backward_perplexity": float(each[1])}


def by_word(loss: float, corpus: Any, tokenizer: Any) -> dict[str, float]:
    """The loss per token, converted to units that every vocabulary shares: words (with ends of rows) and characters.

    `unknown` is the share of unknown tokens. Their spelling is never predicted, so the more there are, the better all
    perplexities look.
    """
    texts = [text or "" for text in read_column(corpus, "text")]
    tokens = token_stream(corpus, tokenizer)
    total = loss * len(tokens)  # as if every token had been predicted
    words = sum(len(text.split()) + 1 for text in texts)
    characters = sum(len(text) + 1 for text in texts)
    unknown = float(np.mean(tokens == tokenizer.unk_token_id))
    return {
        "word_perplexity": math.exp(min(total / words, 700)),
        "bits_per_character": total / characters / math.log(2),
    } | ({"unknown": unknown} if unknown else {})


class PretrainingScorer(Scorer):
    """Accuracy on masked tokens (MLM) and, where there are labels, of next sentence prediction (NSP)."""

    @staticmethod
    def preprocess_logits(logits: Any, labels: Any) -> Any:
        """The most likely tokens instead of logits over the vocabulary."""
        if isinstance(logits, tuple):
            return logits[0].argmax(-1), *logits[1:2]
        return logits.argmax(-1)

    def read(self, output: Any) -> tuple[tuple[np.ndarray, Any], tuple[np.ndarray, Any]]:
        labels = output.label_ids
        labels, next_labels = labels if isinstance(labels, tuple | list) else (labels, None)
        if next_labels is None:
            return (_first(output.predictions), None), (labels, None)
        return (_first(output.predictions), output.predictions[1].argmax(-1)), (labels, next_labels.reshape(-1))

    def scores(self, predictions: tuple, references: tuple) -> dict[str, float]:
        mlm = load("mlm_accuracy").compute(predictions=predictions[0], references=references[0])
        scores = {"mlm_accuracy": mlm["mlm_accuracy"]}
        if references[1] is None:
            return scores
        nsp = load("accuracy").compute(predictions=predictions[1], references=references[1])
        return scores | {"nsp_accuracy": nsp["accuracy"]}

    def intervals(self, predictions: tuple, references: tuple) -> dict[str, Any]:
        masked = references[0] != IGNORE_INDEX
        correct = ((predictions[0] == references[0]) & masked).sum(1)
        intervals = {"mlm_accuracy_interval": _share_interval(correct, masked.sum(1))}
        if references[1] is not None:
            intervals["nsp_accuracy_interval"] = _mean_interval(predictions[1] == references[1])
        return intervals


class WordVectorsScorer(Scorer):
    """The loss alone: what the vectors are worth is measured on lists of word pairs and analogies."""

    def read(self, output: Any) -> tuple[None, None]:
        return None, None

    def scores(self, predictions: Any, references: Any) -> dict[str, float]:
        return {}


def _first(predictions: Any) -> np.ndarray:
    return np.asarray(predictions[0] if isinstance(predictions, tuple | list) else predictions)


def _generated_ids(output: Any) -> np.ndarray:
    ids = _first(output.predictions)
    return ids.argmax(-1) if ids.ndim == 3 else ids  # logits under teacher forcing, where nothing was generated


def _mean_interval(values: np.ndarray, resamples: int = _RESAMPLES) -> list[float] | None:
    return interval(lambda rows: values[rows].mean(), len(values), resamples)


def _share_interval(correct: np.ndarray, total: np.ndarray) -> list[float] | None:
    return interval(lambda rows: correct[rows].sum() / max(total[rows].sum(), 1), len(correct))


def _count_correct(predictions: list[list[str]], references: list[list[str]]) -> tuple[np.ndarray, np.ndarray]:
    """Number of correct tags and of all tags in each row."""
    pairs = zip(predictions, references, strict=True)
    correct = [sum(a == b for a, b in zip(*pair, strict=True)) for pair in pairs]
    return np.array(correct), np.array([len(row) for row in references])


def _table(**columns: list) -> list[dict[str, Any]]:
    """Columns to rows."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _to_python(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
