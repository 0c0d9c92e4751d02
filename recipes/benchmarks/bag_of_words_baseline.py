"""Baseline for text classifiers: logistic regression on tf-idf weights of words and bigrams.

    python recipes/benchmarks/bag_of_words_baseline.py runs/bert_finetune-sst2     # is the run above it?
    python recipes/benchmarks/bag_of_words_baseline.py sst2 --dataset my/sst2      # the bar that the preset states

Without word order beyond pairs, and without any pre-training: a classifier that is not above it has learnt which words
occur, and no more. The score is the run's main score. For pairs of texts the words of each text have weights of their
own, and a further line adds how many words they share (`overlap_baseline.py`). Numbers are predicted by ridge
regression, sets of labels by one classifier each. It is trained on the train split and scored on test, or on
validation if there is no test split.

The exit code is 0 if the run is above all lines, 1 if it is not, 2 after an error.
"""

import runpy
import sys
from pathlib import Path

import numpy as np
from ngram_baseline import data_of, run_baseline
from overlap_baseline import PairFeatures
from scipy.sparse import csr_matrix, hstack
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler

from hf_edu_models.data.columns import read_column
from hf_edu_models.metrics.scorers import ClassificationScorer
from hf_edu_models.training import corpus_for, parse_arguments, preset_names, read_results, recipe_files
from hf_edu_models.training.arguments import RecipeArguments, section_of

TASKS = ("classification", "documents")


def texts_of(rows):
    """The texts of a split, one list of strings for each text of a row."""
    if "sentences" in rows.column_names:
        return [[" ".join(sentences) for sentences in read_column(rows, "sentences")]]
    return [list(read_column(rows, name)) for name in ("text", "text_pair") if name in rows.column_names]


def labels_of(rows):
    """Class numbers, real numbers, or for sets of labels a matrix of zeros and ones."""
    labels = read_column(rows, "label")
    if not isinstance(labels[0], list | tuple):
        return np.array(labels)
    size = rows.features["label"].feature.num_classes
    return np.array([[float(number in row) for number in range(size)] for row in labels])


def features_of(train, test):
    """tf-idf weights of both splits; of pairs also with the words that the two texts share."""
    kinds = {"words and bigrams": [], "and shared words": []}
    for first, second in zip(train, test, strict=True):
        weigh = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, token_pattern=r"\w+|[^\w\s]")
        kinds["words and bigrams"].append((weigh.fit_transform(first), weigh.transform(second)))
    if len(train) == 2:
        words = [[[text.lower().split() for text in column] for column in split] for split in (train, test)]
        count, scale = PairFeatures(*words[0]), StandardScaler()
        numbers = [np.hstack([count.lengths(*split), count.shared(*split)]) for split in words]
        shared = (csr_matrix(scale.fit_transform(numbers[0])), csr_matrix(scale.transform(numbers[1])))
        kinds["and shared words"] = [*kinds["words and bigrams"], shared]
    return {name: [hstack(each).tocsr() for each in zip(*parts, strict=True)] for name, parts in kinds.items() if parts}


def scores_of(corpus, split, score):
    """The score of each baseline on a split of a corpus."""
    rows = {name: corpus[name] for name in ("train", split)}
    train, test = (labels_of(each) for each in rows.values())
    is_number, is_set = np.issubdtype(train.dtype, np.floating) and train.ndim == 1, train.ndim == 2
    constant = DummyRegressor() if is_number else DummyClassifier()
    learner = Ridge() if is_number else LogisticRegression(C=10, max_iter=1000)
    if is_set:
        constant, learner = OneVsRestClassifier(constant), OneVsRestClassifier(learner)
    found = {}
    inputs = features_of(*(texts_of(each) for each in rows.values()))
    for name, model, (known, new) in [
        ("majority", constant, next(iter(inputs.values()))),
        *((name, learner, each) for name, each in inputs.items()),
    ]:
        model.fit(known, train)
        scored = model.predict(new) if is_number else model.predict_proba(new)
        if is_set:
            scored = scored - 0.5  # a scorer counts what is above zero
        found[name] = float(ClassificationScorer().scores(scored, test)[score])
    return {
        name: 0.0 if np.isnan(value) else value for name, value in found.items()
    }  # a constant correlates with nothing


def data_of_preset(preset, dataset=None):
    """The corpus of a preset for classifiers, and its main score."""
    files = [str(file) for file in recipe_files().values() if preset in preset_names(section_of(str(file)))]
    if not files:
        raise ValueError(f"{preset} is neither the folder of a run nor a preset; presets: {', '.join(preset_names())}")
    file = files[0]  # all recipes with this preset read the same texts and labels
    options = ["--preset", preset] + ([] if dataset is None else ["--dataset", dataset])
    arguments = runpy.run_path(file).get("Arguments", RecipeArguments)
    args, training_args = parse_arguments(file, options, arguments)
    score = training_args.metric_for_best_model
    return corpus_for(args, tasks=TASKS), "accuracy" if score in (None, "loss") else score


def compare(run, dataset=None):
    """Scores of the baselines and of the run, if there is one, and whether the run's is the highest."""
    if Path(run).is_dir():
        results = read_results(run)
        if results["task"] not in TASKS:
            raise ValueError(f"{run} was trained for {results['task']}; give a run that classifies texts")
        corpus, score = data_of(run, dataset), results["main_score"]
    else:
        results, (corpus, score) = None, data_of_preset(run, dataset)
    split = "test" if "test" in corpus else "validation"
    found = scores_of(corpus, split, score)
    own = {} if results is None else {"run": results["scores"][split][score]}
    return {
        "run": Path(run).name,
        "split": split,
        "score": score,
        "rows": {name: len(corpus[name]) for name in ("train", split)},
        "scores": found | own,
        "is_better": not own or own["run"] > max(found.values()),
    }


def print_comparison(found):
    rows, split = found["rows"], found["split"]
    print(f"{found['score']} on {rows[split]:,} rows of {split}; trained on {rows['train']:,} rows")
    for name, score in found["scores"].items():
        print(f"{found['run'] if name == 'run' else name:28} {score:7.3f}")
    if "run" in found["scores"]:
        print(f"{found['run']} is {'above' if found['is_better'] else 'NOT above'} the baseline")


def main(argv=None):
    return run_baseline(argv, __doc__, compare, print_comparison)


if __name__ == "__main__":
    sys.exit(main())
