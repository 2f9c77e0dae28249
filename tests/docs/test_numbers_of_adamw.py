"""The tables of docs/howto/adamw.md are those of the stored results."""

import pytest

from benchmarks import adamw
from tests.docs.support import DOCS


def test_the_tables_are_the_stored_ones(monkeypatch):
    monkeypatch.setattr(adamw, "probabilities", lambda *_: pytest.fail("a result is missing"))
    page = (DOCS / "howto" / "adamw.md").read_text(encoding="utf-8")
    results = adamw.Results(adamw.RESULTS)
    rows = [*adamw.rows(results, adamw.NETWORKS), *adamw.varied_rows(results, adamw.NETWORKS)]
    assert [row for row in rows if f"| {' | '.join(row)} |" not in page] == []
    assert len(rows) == 2 * (len(adamw.GRIDS) + len(adamw.VARIED))
