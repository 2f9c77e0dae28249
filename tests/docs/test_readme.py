"""Numbers of the first page: recomputed, or compared with the pages of evidence."""

import math
import os
import re
import subprocess
import sys
from itertools import zip_longest

import pytest
from rich.console import Console

from examples.demo import regression
from tests.docs.support import DOCS, ROOT, SNIPPET
from tests.docs.test_numbers import EVIDENCE, QUOTED

README = (ROOT / "README.md").read_text(encoding="utf-8")
PRINTED = re.compile(r"^```text\n(.*?)^```", re.DOTALL | re.MULTILINE)
PROSE = re.sub(r"^```.*?^```|\]\(\S+\)", "", README, flags=re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
# Other processors round otherwise, and 6,000 steps amplify that: most numbers by little, and how
# many draws would be needed by much.
COUNTS = re.compile(r"(needs about) [\d,]+")


def test_every_number_of_the_text_is_on_a_page_of_evidence():
    pages = [*EVIDENCE, DOCS / "demo.md"]
    evidence = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    start, _, rest = PROSE.partition("\n## On tables\n")  # a test of tables recomputes these
    numbers = QUOTED.findall(f"{start}{rest.partition('## ')[2]}".replace("\n", " "))
    assert len(numbers) >= 12
    missing = [n for n in numbers if not re.search(rf"(?<![\d.]){re.escape(n)}(?!\d)", evidence)]
    assert missing == []


@pytest.mark.slow
def test_the_snippets_print_what_the_page_shows(tmp_path):
    found = subprocess.run(
        [sys.executable, "-c", "\n".join(SNIPPET.findall(README))],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "100", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    for shown in PRINTED.findall(README):
        for row in rows(shown):
            word = row.split()[0]
            printed = next((each for each in rows(found.stdout) if each.split()[0] == word), "")
            assert differences(row, printed) == [], printed


@pytest.mark.slow
def test_the_figure_has_the_numbers_below_it(tmp_path):
    console = Console(record=True, width=100)
    regression.show_regression(regression.RegressionDemo(), tmp_path, console)
    printed = console.export_text()
    numbers = {
        name: re.findall(r"\d\.\d+", line)
        for line in printed.splitlines()
        for name in ("SGDM", "ensemble", "cSGHMC")
        if name in line
    }  # the second is relative to the exact one
    below = PROSE.partition("\n![")[2].partition("\n## ")[0]
    shown = [float(number) for number in re.findall(r"(\d\.\d+) times", below)]
    assert len(shown) == 2
    for name, expected in (("cSGHMC", shown[0]), ("SGDM", shown[1]), ("ensemble", shown[1])):
        assert float(numbers[name][1]) == pytest.approx(expected, abs=0.03), printed


def rows(text: str) -> list[str]:
    """Lines, with those that go on joined."""
    joined = re.sub(r"\n +", " ", text)
    return [re.sub(r"\s+", " ", line).strip() for line in joined.splitlines() if line.strip()]


def differences(shown: str, printed: str) -> list[tuple[str, str]]:
    """Words that differ, and numbers that differ by more than rounding does, up to `...`."""
    shown, printed = (COUNTS.sub(r"\1 some", text) for text in (shown, printed))
    start = shown.partition(" ...")[0]
    pairs = list(zip_longest(start.split(), printed.split(), fillvalue=""))
    if start != shown:
        pairs = pairs[: len(start.split())]
    return [pair for pair in pairs if not alike(*pair)]


def alike(one: str, other: str) -> bool:
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
    values = [[float(number.replace(",", "")) for number in pair] for pair in pairs]
    return all(math.isclose(first, second, rel_tol=0.15, abs_tol=0.03) for first, second in values)


@pytest.mark.parametrize(
    ("shown", "printed", "differs"),
    [
        ("learned yes: NLL 0.205", "learned yes: NLL 0.211", False),
        ("learned yes: NLL 0.205", "learned yes: NLL 0.305", True),
        ("learned yes: NLL 0.205", "learned no: NLL 0.205", True),
        ("mixing: needs about 99 draws", "mixing: needs about 1,950 draws", False),
        ("better yes: NLL 0.2 (0.3 ...", "better yes: NLL 0.2 (0.3 scaled)", False),
        ("24 draws", "24 draws of 4 cycles", True),
    ],
)
def test_what_is_compared(shown, printed, differs):
    assert bool(differences(shown, printed)) == differs
