import io

import pytest
from rich.console import Console

from csgmcmc.progress import Bar


def text_of(*, terminal: bool = True, **options) -> str:
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, force_interactive=terminal, width=80)
    with Bar("predicting", 3, console=console, **options) as bar:
        bar.advance(1)
        assert bar.visible == bool(output.getvalue())
        bar.update(3, "all of them")
    return output.getvalue()


@pytest.fixture(autouse=True)
def _a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")


def test_a_bar_on_a_terminal():
    text = text_of()
    assert "predicting" in text
    assert "all of them" in text


@pytest.mark.parametrize("options", [{"terminal": False}, {"shown": False}, {"patience": 1000}])
def test_no_bar(options):
    assert text_of(**options) == ""
