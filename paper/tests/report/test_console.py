import io

from rich.console import Console

from paper.report import console as screen
from paper.report.page import Claim, Grid, Page
from paper.report.progress import JobsBar


def show(thing, width=100):
    stream = io.StringIO()
    Console(file=stream, width=width).print(thing)
    return stream.getvalue()


def test_claims_and_tables_are_shown_as_they_are():
    page = Page(
        "Title [bold]",
        "Summary",
        [Claim("a [red]claim[/red]", "1", "2", exact=False), Claim("b", "1", "", exact=None)],
        ["A *paragraph*.", Grid("Table [x]", ["method [y]"], [["[z]"]], note="a [note]")],
    )
    shown = show(screen.overview(page))
    for words in (
        "Title [bold]",
        "a [red]claim[/red]",
        "contradicted",
        "undecided",
        "A paragraph.",
    ):
        assert words in shown
    for words in ("Table [x]", "method [y]", "[z]", "a [note]"):
        assert words in shown


def test_off_a_terminal_every_job_is_a_line():
    stream = io.StringIO()
    with JobsBar("name", Console(file=stream)) as bar:
        bar.on_start("first [job]", 0, 2)
        bar.on_start("second", 0, 2)
        bar.on_job("second", 1, 2)
        bar.on_job("first [job]", 2, 2)
    lines = stream.getvalue().splitlines()
    assert [line.rsplit(",", 1)[0] for line in lines] == [
        "name: 1/2 second",
        "name: 2/2 first [job]",
    ]


def test_on_a_terminal_a_bar_tells_what_runs():
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100)
    with JobsBar("name", console) as bar:
        bar.on_start("first [job]", 0, 2)
        bar.on_start("second", 0, 2)
        shown = show(bar._bar.get_renderable())
    assert "0/2" in shown
    assert "first [job]; second" in shown
