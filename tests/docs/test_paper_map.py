"""The paper map names what there is, and leaves out nothing of the paper."""

import re

import pytest

from paper.experiments import find_experiments
from tests.docs.support import DOCS, ROOT, find

TEXT = (DOCS / "paper-map.md").read_text(encoding="utf-8")
CODE = set(re.findall(r"`([^`\n]+)`", TEXT))
NAMES = sorted(code for code in CODE if re.fullmatch(r"(csgmcmc|paper)(\.\w+)+", code))
FILES = sorted(code for code in CODE if re.fullmatch(r"[\w-]+(/[\w.-]+)+", code))
COMMANDS = sorted(code for code in CODE if code.startswith(("csgmcmc ", "python -m ")))
PAPER = ROOT.parent / "shared" / "paper" / "cyclical-sgmcmc.tex"


@pytest.mark.parametrize("name", NAMES)
def test_every_name_exists(name):
    find(name)


def test_a_name_that_does_not_exist_is_found_out():
    with pytest.raises(AttributeError):
        find("csgmcmc.samplers.Sgld")
    with pytest.raises(AttributeError):
        find("csgmcmc.posterior.Posterior.weighs")
    with pytest.raises(ModuleNotFoundError):
        find("nothing.of.the.sort")


def test_every_file_exists():
    assert FILES
    assert [file for file in FILES if not (ROOT / file).exists()] == []


def test_commands_and_experiments_are_the_same():
    named = {re.fullmatch(r"python -m paper run (\S+)", command) for command in COMMANDS}
    assert None not in named
    assert {match[1] for match in named if match} == set(find_experiments())


def rows(kind: str) -> set[str]:
    """Numbers of the tables, figures, ... that have a row."""
    return set(re.findall(rf"^\| {kind} (\d+)", TEXT, re.MULTILINE))


def test_all_of_the_paper_is_there():
    assert rows("Equation") == {"1"}
    assert rows("Algorithm") == {"1"}
    assert rows("Theorem") == {"1", "2"}
    assert rows("Figure") == set("1234567")
    assert rows("Table") == set("123456")


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's source is not here")
def test_the_paper_has_no_more():
    captions = PAPER.read_text(encoding="utf-8").count(r"\caption{")
    assert captions == len(rows("Figure")) + len(rows("Table")) + len(rows("Algorithm"))
