"""A page of results in a terminal."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from paper.report.page import Claim, Grid, Page, Picture
from paper.report.verdicts import CONTRADICTED, ELSEWHERE, HELD, OPEN, judge

STYLES = {HELD: "green", CONTRADICTED: "red", ELSEWHERE: "red", OPEN: "yellow"}


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
    table = Table("claim", "paper", "ours", "how sure", "", title="Claims", show_lines=True)
    for claim, verdict in zip(claims, judge(claims), strict=True):
        cells = map(Text, (claim.text, claim.paper, claim.ours, verdict.sure))
        table.add_row(*cells, Text(verdict.text, style=STYLES[verdict.kind]))
    return table


def _grid(grid: Grid) -> Table:
    table = Table(title=Text(grid.title), caption=Text(grid.note) if grid.note else None)
    for heading in grid.header:
        table.add_column(Text(heading))
    for row in grid.rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
