"""The page of promises has the numbers that were measured, and tests that exist."""

import json
import re

import pytest

from benchmarks.faults.__main__ import TRIALS, markdown
from tests.docs.support import DOCS, ROOT

PAGE = (DOCS / "promises.md").read_text(encoding="utf-8")
FOUND = json.loads((ROOT / "benchmarks" / "results" / "faults.json").read_text(encoding="utf-8"))


def test_the_table_is_what_was_measured():
    assert f"<!-- table -->\n{markdown(FOUND)}\n<!-- end of table -->" in PAGE


@pytest.mark.parametrize("one", FOUND["results"], ids=[one["trial"] for one in FOUND["results"]])
def test_each_fault_was_tried_often_and_lost_nothing(one):
    assert one["tried"] >= TRIALS[one["trial"]][0]
    assert one["draws"] >= one["tried"]
    assert one["lost"] == one["wrong"] == one["raw"] == 0
    assert one["examples"] == []


def test_all_faults_were_tried():
    assert [one["trial"] for one in FOUND["results"]] == list(TRIALS)


def test_every_test_that_is_named_exists():
    files = set(re.findall(r"`(tests/[\w/]+\.py)`", PAGE))
    names = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(files) > 5
    assert len(names) > 5
    assert [file for file in sorted(files) if not (ROOT / file).exists()] == []
    tests = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    defined = re.findall(r"^def (test_\w+)\(", "\n".join(tests), re.MULTILINE)
    assert names <= set(defined)
