"""The tables of docs/howto/networks-and-cycles.md are those of the stored results."""

import importlib

import pytest

from tests.docs.support import DOCS


@pytest.mark.parametrize("name", ["networks_and_cycles", "split_on_digits"])
def test_the_tables_are_the_stored_ones(name, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # importing it sets this
    lines = importlib.import_module(f"benchmarks.{name}").table()
    page = (DOCS / "howto" / "networks-and-cycles.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) > 3
    assert [line for line in lines if line not in page] == []
