"""The tables of docs/howto/tables-beside.md are those of the stored results."""

import importlib

import pytest

from tests.docs.support import DOCS


def test_the_tables_are_the_stored_ones(monkeypatch):
    pytest.importorskip("pandas")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # importing it sets this
    tables_beside = importlib.import_module("benchmarks.tables_beside")
    page = (DOCS / "howto" / "tables-beside.md").read_text(encoding="utf-8")
    rows = [*tables_beside.own_rows("airfoil"), *tables_beside.own_rows("bikesharing")]
    rows += tables_beside.uci_lines()
    assert len(rows) > 4
    assert [row for row in rows if row not in page] == []
