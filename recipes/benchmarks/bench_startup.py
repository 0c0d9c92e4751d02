"""What starting costs: importing the package and `hf-edu --help`, beside importing one config class of transformers.

    python recipes/benchmarks/bench_startup.py                # half a minute
    python recipes/benchmarks/bench_startup.py --rounds 15    # on a busy machine

Each command runs in a new process. The commands take turns, one round after another, and the medians are compared.
Seconds are CPU time, user and system, of the process and its children: other work on the machine changes it far less
than the wall time. The first round is a warm-up and is not counted: it compiles the files and fills the page cache.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

REFERENCE = "from transformers import AutoConfig"
STATEMENTS = (
    "pass",
    REFERENCE,
    "import hf_edu_models",
    "import hf_edu_models, transformers; transformers.AutoModelForCausalLM",
)
# The module, not the script `hf-edu`, so that the interpreter that runs the benchmark is the one that is measured.
HELP = "import sys; sys.argv = ['hf-edu', '--help']; from hf_edu_models.cli import main; main()"
COMMANDS = {statement: statement for statement in STATEMENTS} | {"hf-edu --help": HELP}


def cpu_seconds(code):
    """User and system time of a new interpreter that runs `code`."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            raise SystemExit(f"`{code}` failed:\n{errors.read().decode()}")
    return usage.ru_utime + usage.ru_stime


def measure(rounds):
    seconds = {name: [] for name in COMMANDS}
    for counts in [False] + [True] * rounds:
        for name, code in COMMANDS.items():
            spent = cpu_seconds(code)
            if counts:
                seconds[name].append(spent)
    return {name: statistics.median(values) for name, values in seconds.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="also write the figures to this file")
    args = parser.parse_args()
    medians = measure(args.rounds)
    print(f"CPU seconds, median of {args.rounds}, and the ratio to `{REFERENCE}`")
    results = [
        {"command": name, "seconds": seconds, "ratio": seconds / medians[REFERENCE]}
        for name, seconds in medians.items()
    ]
    for row in results:
        print(f"{row['command']:72} {row['seconds']:6.2f} s   {row['ratio']:5.2f}x")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results, file, indent=2)


if __name__ == "__main__":
    main()
