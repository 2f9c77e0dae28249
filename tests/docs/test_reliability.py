"""The page on reliability has the numbers that were measured, and names tests that exist."""

import json
import re

import pytest

from benchmarks.faults.__main__ import TRIALS, markdown
from tests.docs.support import DOCS, ROOT

PAGE = (DOCS / "reliability.md").read_text(encoding="utf-8")
FOUND = json.loads((ROOT / "benchmarks" / "results" / "faults.json").read_text(encoding="utf-8"))


def test_table_shows_the_stored_results():
    assert f"<!-- table -->\n{markdown(FOUND)}\n<!-- end of table -->" in PAGE


@pytest.mark.parametrize("one", FOUND["results"], ids=[one["trial"] for one in FOUND["results"]])
def test_each_fault_was_tried_often_enough_and_lost_nothing(one):
    assert one["tried"] >= TRIALS[one["trial"]][0]
    assert one["draws"] >= one["tried"]
    assert one["lost"] == one["wrong"] == one["raw"] == 0
    assert one["examples"] == []


def test_all_faults_were_tried():
    assert [one["trial"] for one in FOUND["results"]] == list(TRIALS)


def test_every_named_test_file_exists():
    files = set(re.findall(r"`(tests/[\w/]+\.py)`", PAGE))
    assert len(files) > 10
    assert [file for file in sorted(files) if not (ROOT / file).exists()] == []


def test_every_guarantee_names_its_tests():
    table = PAGE.partition("## Guarantees\n")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| **")]
    assert len(rows) > 10
    assert [row for row in rows if "`tests/" not in row.split(" | ")[1]] == []
