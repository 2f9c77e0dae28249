"""The tables of docs/howto/tables-beside.md and of the README are those of the stored results."""

import importlib
import json

import pytest

from tests.docs.support import DOCS


@pytest.fixture
def tables_beside(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # importing it sets this
    return importlib.import_module("benchmarks.tables_beside")


def test_the_tables_are_the_stored_ones(tables_beside):
    page = (DOCS / "howto" / "tables-beside.md").read_text(encoding="utf-8")
    texts = {name: tables_beside.bde_lines(name) for name in tables_beside.PUBLISHED_BDE}
    texts |= {"uci": tables_beside.uci_lines(), "defaults": tables_beside.defaults_lines()}
    for name, lines in texts.items():
        assert f"<!-- {name} -->\n" + "\n".join(lines) + f"\n<!-- end of {name} -->" in page
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    assert "\n".join(tables_beside.readme_lines()) in readme


def test_records_are_json_and_are_there_once(tables_beside):
    paths = [*map(tables_beside.path_of, ("bde", "uci"))]
    for path in (*paths, tables_beside.RESULTS / "defaults-report.jsonl"):
        lines = path.read_text(encoding="utf-8").splitlines()
        found = [json.loads(line, parse_constant=pytest.fail) for line in lines]
        names = ("table", "model", "number", "split")
        keys = [tuple(one.get(name) for name in names) for one in found]
        assert len(keys) == len(set(keys))
