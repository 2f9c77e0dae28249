"""Runs with known answers: no wrong yes, no wrong no on runs that are right, and the right cause.

The runs are fixed by their seeds. Each interval is of 99%, so that a right run gets a wrong "no"
in half a percent of cases for each of its four questions.
"""

import pytest

from tests.checks.known_runs import KNOWN, Known, mistakes, try_out

QUICK = ("exact draws of linear regression", "T = 1: a loop with a Stepper", "snapshots: T = 0")


def is_slow(known: Known) -> bool:
    return known.kind == "right" and known.name not in QUICK


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(each, id=each.name, marks=pytest.mark.slow if is_slow(each) else ())
        for each in KNOWN
    ],
)
def test_verdicts_are_those_of_an_expert(known: Known):
    assert mistakes(known, try_out(known)) == []


def test_there_are_runs_enough():
    assert len(KNOWN) >= 40
    assert sum(each.kind == "right" for each in KNOWN) >= 12
    assert {each.name for each in KNOWN} >= set(QUICK)
