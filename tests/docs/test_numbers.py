"""Numbers that the guides quote are those of the pages of evidence."""

import re

import pytest

from tests.docs.support import DOCS, ROOT

QUOTED = re.compile(r"[\d.]+ ± [\d.]*\d|\d+\.\d{2,}")
EVIDENCE = [*sorted((DOCS / "results").glob("*.md")), DOCS / "performance.md"]


def unfounded(text: str) -> list[str]:
    """Numbers of two decimals or more, or with an error, that no page of evidence has."""
    evidence = "\n".join(page.read_text(encoding="utf-8") for page in EVIDENCE)
    found = [re.sub(r"\s+", " ", number) for number in QUOTED.findall(text)]
    return [n for n in found if not re.search(rf"(?<![\d.]){re.escape(n)}(?!\d)", evidence)]


@pytest.mark.parametrize("page", ["which-method.md", "comparison.md"])
def test_what_is_quoted_was_measured(page):
    text = (DOCS / page).read_text(encoding="utf-8").replace("\n", " ")
    assert len(QUOTED.findall(text)) > 10
    assert unfounded(text) == []


def test_readme_quotes_measured_numbers():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition("\n## What to expect\n")[2].partition("\n## ")[0].replace("\n", " ")
    assert len(QUOTED.findall(section)) >= 10
    assert unfounded(section) == []


def test_a_number_that_was_not_measured_is_found_out():
    assert unfounded("NLL 0.0445 ± 0.0005, or 0.0446 ± 0.0005, or 0.1234567") == [
        "0.0446 ± 0.0005",
        "0.1234567",
    ]
