"""What `csgmcmc reproduce` shows: what is being done, and then the page in a terminal."""

import time
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from paper.report.chapter import VERDICTS, duration
from paper.report.page import Claim, Grid, Page, Picture

VERDICT_STYLES = {True: "green", False: "red", None: "yellow"}


def catalogue(rows: Sequence[tuple[str, str, Sequence[str]]]) -> RenderableType:
    """Names, summaries and presets of all experiments."""
    table = Table("name", "what it shows", "presets")
    for name, summary, presets in rows:
        table.add_row(Text(name), Text(summary), Text(", ".join(presets)))
    return table


def overview(page: Page) -> RenderableType:
    """The claims and the tables of a page; figures are for the written report."""
    shown: list[RenderableType] = [Text(page.title, style="bold"), Text(page.summary)]
    shown.append(_claims(page.claims))
    for part in page.parts:
        if isinstance(part, Grid):
            shown.append(_grid(part))
        elif not isinstance(part, Picture):
            shown.append(Markdown(part))
    return Group(*(Padding(part, (0, 0, 1, 0)) for part in shown))


def _claims(claims: Sequence[Claim]) -> Table:
    table = Table("claim", "paper", "ours", "", title="Claims", show_lines=True)
    for claim in claims:
        verdict = Text(VERDICTS[claim.holds], style=VERDICT_STYLES[claim.holds])
        table.add_row(Text(claim.text), Text(claim.paper), Text(claim.ours), verdict)
    return table


def _grid(grid: Grid) -> Table:
    table = Table(title=Text(grid.title), caption=Text(grid.note) if grid.note else None)
    for heading in grid.header:
        table.add_column(Text(heading))
    for row in grid.rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


class JobsBar:
    """A bar over the jobs of an experiment on a terminal, else a line for each that is done."""

    def __init__(self, title: str, console: Console) -> None:
        self._title, self._console = title, console
        self._running: dict[str, float] = {}
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[running]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(title, total=None, running="")

    def __enter__(self) -> "JobsBar":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def on_start(self, key: str, done: int, total: int) -> None:
        """A job begins."""
        self._running[key] = time.monotonic()
        self._show(done, total)

    def on_job(self, key: str, done: int, total: int) -> None:
        """A job is done."""
        took = duration(time.monotonic() - self._running.pop(key))
        self._show(done, total)
        if not self._console.is_terminal:
            self._console.print(
                Text(f"{self._title}: {done}/{total} {key}, {took}"), soft_wrap=True
            )

    def _show(self, done: int, total: int) -> None:
        running = Text("; ".join(self._running)).markup
        self._bar.update(self._task, completed=done, total=total, running=running)
