"""The tasks: one row each, with everything that depends on the task and on nothing else.

Fields that name code hold `module:name` and are resolved when they are used, so that the table costs no import and
every package may read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .lazy import resolve

_ENCODERS, _COLLATORS, _SCORERS = ".data.row_encoders", ".data.collators", ".metrics.scorers"
_SNIPPETS, _WRITERS, _PREDICTORS = ".hub.cards.snippets", ".generation", ".prediction"


@dataclass(frozen=True)
class Task:
    """What one task needs.

    Args:
        auto_class: name of the Auto class that loads its head.
        suffixes: how the class names of its heads end, ours first.
        summary: what a model of the task does, on its card: "`EduGPTForCausalLM` continues a text".
        snippet: the function that writes the usage example of a card.
        pipeline_tag: how the Hub names the task.
        columns: the columns that its corpora have; `optional_columns` are used if they are there.
        label_column: the column whose classes the configuration names.
        inputs: the columns that the encoder reads.
        encoder: from rows of text to rows of token ids; `encoder_options` are the settings of a run that it takes.
        collator: from encoded rows to a batch; `collator_options` are the settings of a run that it takes.
        generates: whether predictions are made with `generate()`.
        scorer: the `Scorer` of its predictions, in training and at the end of a run.
        main_score: which score decides between checkpoints.
        writer: what `hf-edu generate` writes text with.
        predictor: what `hf-edu predict` predicts with, for new texts.
        targets: each label of `forward`, for example inputs: one for every `token` or one for every `row`, and how many
            values it has (a number, a field of the configuration or an axis of `auto.AXES`), or `real`: a real number.
        values: each input of `forward` that holds real numbers, and its axes, keys of `auto.AXES`; a task that has some
            reads no token ids and needs no tokenizer.
    """

    auto_class: str
    suffixes: tuple[str, ...]
    summary: str
    snippet: str
    pipeline_tag: str | None = None
    columns: tuple[str, ...] = ()
    optional_columns: tuple[str, ...] = ()
    label_column: str | None = None
    inputs: tuple[str, ...] = ()
    encoder: str | None = None
    encoder_options: tuple[str, ...] = ()
    collator: str | None = None
    collator_options: tuple[str, ...] = ()
    generates: bool = False
    scorer: str | None = None
    main_score: str = "accuracy"
    writer: str | None = None
    predictor: str | None = None
    targets: Mapping[str, tuple[str, int | str]] = field(default_factory=dict)
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def code(self, name: str) -> Any:
        """The function or class that a field names: `task.code("collator")`."""
        return resolve(getattr(self, name))

    @property
    def verb(self) -> str:
        """The verb of `hf-edu` that uses a model of the task on new texts."""
        if "past_values" in self.values:
            return "forecast"
        return "generate" if self.writer else "predict" if self.predictor else "encode"


_TOKEN_LABELS = {"labels": ("token", "vocab_size")}
_TRANSLATION: dict[str, Any] = {
    "auto_class": "AutoModelForSeq2SeqLM",
    "suffixes": ("ForConditionalGeneration", "MTModel"),
    "summary": "turns one text into another",
    "snippet": f"{_SNIPPETS}:translate",
    "pipeline_tag": "translation",
    "optional_columns": ("language",),
    "inputs": ("source", "target"),
    "encoder": f"{_ENCODERS}:encode_translation",
    "collator": "transformers:DataCollatorForSeq2Seq",
    "generates": True,
    "scorer": f"{_SCORERS}:TranslationScorer",
    "main_score": "bleu",
    "writer": f"{_WRITERS}:TranslationWriter",
    "targets": _TOKEN_LABELS,
}
_CLASSIFICATION: dict[str, Any] = {
    "auto_class": "AutoModelForSequenceClassification",
    "suffixes": ("ForSequenceClassification",),
    "summary": "classifies texts",
    "snippet": f"{_SNIPPETS}:classify",
    "pipeline_tag": "text-classification",
    "label_column": "label",
    "scorer": f"{_SCORERS}:ClassificationScorer",
    "targets": {"labels": ("row", "num_labels")},
}
_MASKED: dict[str, Any] = {
    "pipeline_tag": "fill-mask",
    "collator": f"{_COLLATORS}:DataCollatorForPreTraining",
    "collator_options": ("mlm_probability", "masking", "whole_word_mask"),
    "scorer": f"{_SCORERS}:PretrainingScorer",
    "main_score": "loss",
    "writer": f"{_WRITERS}:MaskFiller",
}
_WORD_VECTORS: dict[str, Any] = {
    "snippet": f"{_SNIPPETS}:nearest_words",
    "pipeline_tag": "feature-extraction",
    "collator": f"{_COLLATORS}:DataCollatorForWordVectors",
    "collator_options": ("counts", "window_size", "negatives", "sample"),
    "scorer": f"{_SCORERS}:WordVectorsScorer",
    "main_score": "loss",
    "targets": _TOKEN_LABELS,
}
# In the order in which the columns of a corpus are compared with them: the more specific first.
TASKS: dict[str, Task] = {
    "alignment": Task(columns=("source", "target", "sure", "possible"), **_TRANSLATION),
    "translation": Task(columns=("source", "target"), **_TRANSLATION),
    "question_answering": Task(
        auto_class="AutoModelForQuestionAnswering",
        suffixes=("ForQuestionAnswering",),
        summary="finds the answer to a question in a text",
        snippet=f"{_SNIPPETS}:answer",
        pipeline_tag="question-answering",
        columns=("id", "context", "question", "answers"),
        inputs=("id", "context", "question", "answers"),
        encoder=".data.question_answering:encode_question_answering",
        collator=f"{_COLLATORS}:DataCollatorForQuestionAnswering",
        scorer=f"{_SCORERS}:QuestionAnsweringScorer",
        predictor=f"{_PREDICTORS}:QuestionAnswerer",
        main_score="f1",
        targets={"start_positions": ("row", "tokens"), "end_positions": ("row", "tokens")},
    ),
    "multiple_choice": Task(
        auto_class="AutoModelForMultipleChoice",
        suffixes=("ForMultipleChoice",),
        summary="chooses one of several continuations",
        snippet=f"{_SNIPPETS}:choose",
        pipeline_tag="multiple-choice",
        columns=("context", "choices", "label"),
        inputs=("context", "choices", "label"),
        encoder=f"{_ENCODERS}:encode_multiple_choice",
        collator="transformers:DataCollatorForMultipleChoice",
        scorer=f"{_SCORERS}:MultipleChoiceScorer",
        predictor=f"{_PREDICTORS}:ChoicePredictor",
        targets={"labels": ("row", "choices")},
    ),
    "token_classification": Task(
        auto_class="AutoModelForTokenClassification",
        suffixes=("ForTokenClassification",),
        summary="predicts a tag for each word of a text",
        snippet=f"{_SNIPPETS}:tag",
        pipeline_tag="token-classification",
        columns=("tokens", "tags"),
        label_column="tags",
        inputs=("tokens", "tags"),
        encoder=f"{_ENCODERS}:encode_token_classification",
        collator="transformers:DataCollatorForTokenClassification",
        scorer=f"{_SCORERS}:TokenClassificationScorer",
        predictor=f"{_PREDICTORS}:WordTagger",
        main_score="f1",
        targets={"labels": ("token", "num_labels")},
    ),
    "documents": Task(
        columns=("sentences", "label"),
        optional_columns=("document",),
        inputs=("sentences", "label"),
        encoder=f"{_ENCODERS}:encode_documents",
        encoder_options=("max_sentences",),
        collator=f"{_COLLATORS}:DataCollatorForDocuments",
        predictor=f"{_PREDICTORS}:DocumentClassifier",
        **_CLASSIFICATION,
    ),
    "classification": Task(
        columns=("text", "label"),
        optional_columns=("text_pair",),
        inputs=("text", "text_pair", "label"),
        encoder=f"{_ENCODERS}:encode_classification",
        encoder_options=("window_stride",),
        collator=f"{_COLLATORS}:DataCollatorForWindows",
        predictor=f"{_PREDICTORS}:TextClassifier",
        **_CLASSIFICATION,
    ),
    "regression": Task(
        auto_class="AutoModel",
        suffixes=("ForRegression",),
        summary="predicts a number from numbers",
        snippet=f"{_SNIPPETS}:regress",
        pipeline_tag="tabular-regression",
        columns=("value", "features"),
        inputs=("features", "value"),
        encoder=f"{_ENCODERS}:encode_regression",
        collator=f"{_COLLATORS}:DataCollatorForValues",
        scorer=f"{_SCORERS}:RegressionScorer",
        predictor=f"{_PREDICTORS}:NumberPredictor",
        main_score="mse",
        targets={"labels": ("row", "real")},
        values={"input_values": ("batch", "features")},
    ),
    "time_series": Task(
        auto_class="AutoModelForTimeSeriesPrediction",
        suffixes=("ForTimeSeriesPrediction", "ForPrediction"),
        summary="forecasts a time series",
        snippet=f"{_SNIPPETS}:forecast",
        pipeline_tag="time-series-forecasting",
        columns=("date", "values"),
        inputs=("date", "values"),
        collator=f"{_COLLATORS}:DataCollatorForValues",
        scorer=f"{_SCORERS}:TimeSeriesScorer",
        main_score="mse",
        targets={"future_values": ("horizon", "real")},
        values={"past_values": ("batch", "tokens", "features")},
    ),
    "language_modeling": Task(
        auto_class="AutoModelForCausalLM",
        suffixes=("ForCausalLM", "LMHeadModel"),
        summary="continues a text",
        snippet=f"{_SNIPPETS}:generate",
        pipeline_tag="text-generation",
        columns=("text",),
        optional_columns=("document",),
        collator=f"{_COLLATORS}:DataCollatorForTexts",
        scorer=f"{_SCORERS}:LanguageModelingScorer",
        main_score="perplexity",
        writer=f"{_WRITERS}:TextContinuer",
        targets=_TOKEN_LABELS,
    ),
    "bidirectional_lm": Task(
        auto_class="AutoModelForPreTraining",
        suffixes=("ElmoForPreTraining",),
        summary="predicts each token from those before it, and from those behind it",
        snippet=f"{_SNIPPETS}:mix_layers",
        pipeline_tag="feature-extraction",
        collator=f"{_COLLATORS}:DataCollatorForTexts",
        scorer=f"{_SCORERS}:BidirectionalScorer",
        main_score="perplexity",
        targets=_TOKEN_LABELS,
    ),
    "skip_gram": Task(
        auto_class="AutoModelForPreTraining",
        suffixes=("ForSkipGram",),
        summary="has one vector for each word, learnt by predicting the words around it",
        **_WORD_VECTORS,
    ),
    "cbow": Task(
        auto_class="AutoModelForMaskedLM",
        suffixes=("ForCBOW",),
        summary="has one vector for each word, learnt by predicting it from the words around it",
        **_WORD_VECTORS,
    ),
    "glove": Task(
        auto_class="AutoModelForTextEncoding",
        suffixes=("ForGloVe",),
        summary="has one vector for each word, learnt from how often words occur near each other",
        **_WORD_VECTORS | {"collator": f"{_COLLATORS}:DataCollatorForPairs", "collator_options": ()},
    ),
    "masked_lm": Task(
        auto_class="AutoModelForMaskedLM",
        suffixes=("ForMaskedLM",),
        summary="predicts masked tokens",
        snippet=f"{_SNIPPETS}:fill_mask",
        targets=_TOKEN_LABELS,
        **_MASKED,
    ),
    "pretraining": Task(
        auto_class="AutoModelForPreTraining",
        suffixes=("ForPreTraining",),
        summary="predicts masked tokens, and whether one text follows another",
        snippet=f"{_SNIPPETS}:fill_mask_pretraining",
        predictor=f"{_PREDICTORS}:NextSentencePredictor",
        targets=_TOKEN_LABELS | {"next_sentence_label": ("row", 2)},
        **_MASKED,
    ),
    "next_sentence_prediction": Task(
        auto_class="AutoModelForNextSentencePrediction",
        suffixes=("ForNextSentencePrediction",),
        summary="predicts whether one text follows another",
        snippet=f"{_SNIPPETS}:predict_next_sentence",
        predictor=f"{_PREDICTORS}:NextSentencePredictor",
        targets={"labels": ("row", 2)},
    ),
    "feature_extraction": Task(
        auto_class="AutoModel",
        suffixes=("Model",),
        summary="encodes a text as hidden states",
        snippet=f"{_SNIPPETS}:extract_features",
        pipeline_tag="feature-extraction",
    ),
}


def find_task(name: str, needs: str | None = None) -> Task:
    """The row of a task; an error that lists the tasks, only those that have the field `needs` if it is given."""
    known = [each for each, task in TASKS.items() if needs is None or getattr(task, needs)]
    if name not in known:
        raise ValueError(f"task must be one of {', '.join(known)}; got {name!r}")
    return TASKS[name]


def task_of_class(class_name: str) -> str | None:
    """The task that a model class is for, by the end of its name; None if no task has such heads."""
    matches = [
        (len(suffix), name)
        for name, task in reversed(TASKS.items())
        for suffix in task.suffixes
        if class_name.endswith(suffix)
    ]
    # Two tasks may share a head (alignment is scored on translations): the later row is the general one.
    return max(matches, key=lambda match: match[0])[1] if matches else None


def task_of_head(class_name: str) -> Task:
    """The row of the task that a model class is for; a class without a head gives features."""
    return TASKS[task_of_class(class_name) or "feature_extraction"]
