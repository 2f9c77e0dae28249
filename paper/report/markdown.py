"""The report as Markdown, for repositories and MkDocs; the HTML page is made from it."""

import re
from collections.abc import Iterable, Mapping, Sequence

from paper.report.chapter import INTRODUCTION, TITLE, VERDICTS, Chapter
from paper.report.page import Grid, Picture

CLAIMS = ("claim", "paper", "ours", "verdict")
SETTINGS = ("setting", "value")

Addresses = Mapping[tuple[str, str], str]
"""Of figures, by the names of experiment and picture."""


def render(chapters: Sequence[Chapter], figures: Addresses) -> str:
    """All chapters in one text."""
    blocks = [f"# {TITLE}", plain(INTRODUCTION), _contents(chapters)]
    for chapter in chapters:
        blocks += _chapter(chapter, figures)
    return "\n\n".join(blocks) + "\n"


def plain(text: str) -> str:
    """Text that Markdown shall show as it is."""
    text = " ".join(text.split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = text.replace("$", "&#36;").replace("~", "&#126;")  # mathematics, and struck out
    text = re.sub(r"([\\`*_\[\]|])", r"\\\1", text)
    # What would begin a heading or a list; a number is none.
    return re.sub(r"^(?:(?=#|[-+](?:\s|-|$))|(\d+)(?=[.)](?:\s|$)))", r"\1\\", text)


def anchor(name: str) -> str:
    """A name from a file as that of a place in the page."""
    return re.sub(r"[^\w-]", "-", name)


def code(command: str) -> str:
    """A command as a block of code, which nothing inside of it can end."""
    runs = re.findall("`+", command)
    fence = "`" * max(3, 1 + max(map(len, runs), default=0))
    return f"{fence}bash\n{command}\n{fence}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of plain text."""
    lines = [list(map(plain, header)), ["---"] * len(header), *(map(plain, row) for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _contents(chapters: Sequence[Chapter]) -> str:
    lines = ["| experiment | preset | claims | time |", "| --- | --- | --- | --- |"]
    for chapter in chapters:
        link = f"[{plain(chapter.title)}](#{anchor(chapter.name)})"
        preset = plain(chapter.results["preset"])
        lines.append(f"| {link} | {preset} | {chapter.tally} | {chapter.time} |")
    return "\n".join(lines)


def _chapter(chapter: Chapter, figures: Addresses) -> Iterable[str]:
    yield f'<a id="{anchor(chapter.name)}"></a>'  # headings get ids of many kinds
    yield f"## {plain(chapter.title)}"
    yield plain(chapter.summary)
    if chapter.page:
        claims = [
            (claim.text, claim.paper, claim.ours, VERDICTS[claim.holds])
            for claim in chapter.page.claims
        ]
        yield table(CLAIMS, claims)
        for part in chapter.page.parts:
            if isinstance(part, Grid):
                yield f"**{plain(part.title)}**"
                yield table(part.header, part.rows)
                if part.note:
                    yield plain(part.note)
            elif isinstance(part, Picture):
                address = figures[chapter.name, part.name]
                yield f"![{plain(part.caption)}]({address})"
                yield plain(part.caption)
            else:
                yield part.strip()
    yield "### How it was made"
    yield code(chapter.command)
    yield table(["run", "value"], chapter.origin.items())
    yield table(SETTINGS, chapter.settings.items())
