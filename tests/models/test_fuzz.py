"""Calls made at random: each is right, or is rejected with one sentence. `fuzz.py` makes them and knows the answer."""

import subprocess
import sys
from collections import Counter

import fuzz
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from tiny import ALL

HEADS = list(dict.fromkeys(case.head for case in ALL))
GOOD = (fuzz.RIGHT, fuzz.SENTENCE)


@pytest.fixture(scope="module")
def no_call_crashes():
    """The calls that could end the process, made in another one before they are made here."""
    child = subprocess.run([sys.executable, fuzz.__file__, "risky"], capture_output=True, text=True)
    lines = child.stdout.splitlines()
    assert child.returncode == 0, f"the call after this one ended the process: {lines[-1:]}, {child.stderr[-2000:]}"
    assert len(lines) > 100
    assert [line for line in lines if line.split("\t")[0] not in GOOD] == []


@pytest.mark.parametrize("head", HEADS)
@settings(
    max_examples=100,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_a_call_is_right_or_rejected_with_a_sentence(head, data, no_call_crashes):
    case = data.draw(st.sampled_from([case for case in ALL if case.head == head]))
    change = data.draw(st.sampled_from(fuzz.changes_of(case)))
    made = fuzz.attempt(case, data.draw(st.integers(0, 999)), change)
    assume(made is not None)
    assert made.outcome in GOOD, str(made)


@pytest.mark.slow
def test_five_thousand_calls():
    rungs = list(dict.fromkeys(case.rung.name for case in ALL))
    found = [row for rung in rungs for row in fuzz.run_rung(rung, -(-5000 // len(rungs)))]
    counts = Counter(outcome for outcome, _ in found)
    assert not [row for row in found if row[0] in (fuzz.CRASH, fuzz.SILENT, fuzz.REFUSED)]
    assert counts[fuzz.TRACEBACK] < 0.05 * len(found), counts
