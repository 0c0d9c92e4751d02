"""Finished runs as one table: score, interval, size, time, machine, seeds, command, and what was published.

    python recipes/benchmarks/results_table.py runs/*                     # Markdown, to read or to paste
    python recipes/benchmarks/results_table.py runs/* --score perplexity  # another score than the runs' own

Runs that differ in nothing but their seed are one row: the mean, and the lowest and the highest of them. The split is
test where there is one, else validation.
"""

import argparse
import shlex
from pathlib import Path

from hf_edu_models.training import read_results
from hf_edu_models.training.run_folder import RESULTS

COLUMNS = ("model", "data", "score", "interval", "parameters", "minutes", "cores", "seed", "command", "published")
IN_PERCENT = ("accuracy", "f1", "exact_match", "mlm_accuracy", "nsp_accuracy")
PLACES = {"bleu": 1, "perplexity": 2, "word_perplexity": 1}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="folders of runs; what is no finished run is left out")
    parser.add_argument("--score", nargs="+", help="names of scores; the one that each run was chosen by unless given")
    return parser.parse_args()


def table(runs: list[dict], scores: list[str] | None = None) -> str:
    """One line a recipe and its settings, in the order in which they came."""
    groups: dict[tuple, list[dict]] = {}
    for results in runs:
        for score in scores or [results["main_score"]]:
            if score in _split(results)[1]:
                groups.setdefault((without_seed(results["command"]), score), []).append(results)
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    return "\n".join(lines + [f"| {' | '.join(row(found, score))} |" for (_, score), found in groups.items()])


def row(runs: list[dict], score: str) -> list[str]:
    first = runs[0]
    values = [_split(each)[1][score] for each in runs]
    published = [each for each in first["published"] if each["metric"] == score]
    return [
        f"`{first['model_type']}`",
        f"{_data(first['data'])}, {_split(first)[0]}",
        f"{score} {_shown(score, sum(values) / len(values))}",
        _interval(runs, score, values),
        f"{first['parameters']:,}",
        " / ".join(f"{each['seconds'] / 60:.0f}" for each in runs),
        str(first["machine"]["threads"] * first["machine"]["processes"]),
        ", ".join(str(each["seed"]) for each in runs),
        f"`{without_seed(first['command'])}`",
        "; ".join(f"{_shown(score, each['score'])} ({each['system']})" for each in published) or "-",
    ]


def _data(data: dict) -> str:
    return f"{data['name']} {data['source']}-{data['target']}" if "source" in data else data["name"]


def without_seed(command: str) -> str:
    words = shlex.split(command)
    while "--seed" in words:
        place = words.index("--seed")
        del words[place : place + 2]
    return shlex.join(words)


def _split(results: dict) -> tuple[str, dict]:
    split = "test" if "test" in results["scores"] else "validation"
    return split, results["scores"][split]


def _interval(runs: list[dict], score: str, values: list[float]) -> str:
    """Of one run what resampling its rows says; of several what they reached."""
    found = _split(runs[0])[1].get(f"{score}_interval") if len(runs) == 1 else (min(values), max(values))
    return "-" if found is None else f"{_shown(score, found[0])} to {_shown(score, found[1])}"


def _shown(score: str, value: float) -> str:
    """Shares as percent, whoever wrote them down as 0.9."""
    if score in IN_PERCENT:
        return f"{100 * value:.1f}%"
    return f"{value:.{PLACES.get(score, 3)}f}"


def main():
    args = parse_arguments()
    finished = [folder for folder in map(Path, args.runs) if (folder / RESULTS).is_file()]
    if not finished:
        raise SystemExit(f"no finished run in {' '.join(args.runs)}; a run that came to its end has a {RESULTS}")
    print(table([read_results(folder) for folder in finished], args.score))


if __name__ == "__main__":
    main()
