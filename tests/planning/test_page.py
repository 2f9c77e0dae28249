"""docs/howto/plan.md shows what the command says, and what was measured."""

import json
import re
import shlex

import pytest
from typer.testing import CliRunner

from benchmarks.planning import markdown
from csgmcmc.cli import app
from tests.docs.support import DOCS, ROOT

PAGE = (DOCS / "howto" / "plan.md").read_text(encoding="utf-8")
ROWS = json.loads((ROOT / "benchmarks" / "results" / "planning.json").read_text(encoding="utf-8"))
SHOWN = re.findall(r"^```console\n\$ csgmcmc (.*?[^\\])\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(("command", "output"), SHOWN)
def test_the_page_shows_what_the_command_says(command, output):
    result = CliRunner().invoke(app, shlex.split(command.replace("\\\n", " ")))
    assert result.exit_code == 0, result.output
    assert [line.rstrip() for line in result.output.splitlines()] == output.splitlines()


def test_the_table_is_what_was_measured():
    assert len(SHOWN) == 4
    assert f"<!-- table -->\n{markdown(ROWS)}\n<!-- end of table -->" in PAGE


def test_sizes_and_processes_are_all_there():
    alone = [row["weights"] for row in ROWS if (row["chains"], row["replicas"]) == (1, 1)]
    assert alone == [10**power for power in range(4, 9)]
    assert {(row["chains"], row["replicas"]) for row in ROWS} >= {(1, 2), (1, 4), (2, 1), (4, 1)}


@pytest.mark.parametrize("name", ["run", "step", "memory", "disk", "wire"])
def test_time_memory_disk_and_wire_are_within_a_quarter(name):
    pairs = [(row["predicted"][name], row["measured"][name]) for row in ROWS]
    assert all(0.8 <= one / other <= 1.25 for one, other in pairs if one)
