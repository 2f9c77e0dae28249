"""The report as Markdown: an index, and a page for each experiment."""

import re
from collections.abc import Iterable, Mapping, Sequence

from paper.report.chapter import INTRODUCTION, TITLE, Chapter, count
from paper.report.page import Claim, Grid, Picture
from paper.report.verdicts import KINDS, RULE

CLAIMS = ("claim", "paper", "ours", "how sure", "verdict")
INDEX = ("claim", "where", "how sure", "verdict")
SETTINGS = ("setting", "value")

Addresses = Mapping[tuple[str, str], str]
"""Paths of the figures, by the names of experiment and picture."""


def render_index(chapters: Sequence[Chapter]) -> str:
    """The title, what was found, the pages of the experiments, and one table of all claims."""
    found = [verdict for chapter in chapters for verdict in chapter.verdicts]
    summary = f"Of {len(found)} claims: {count(found)}." if found else ""
    blocks = [f"# {TITLE}", plain(f"{INTRODUCTION} {summary}"), _contents(chapters)]
    if found:
        blocks += ["## How claims are judged", plain(RULE), "## All claims", _all_claims(chapters)]
    return _join(blocks)


def render_chapter(chapter: Chapter, figures: Addresses) -> str:
    """The page of one experiment."""
    return _join(_chapter(chapter, figures))


def plain(text: str) -> str:
    """Escape text so that Markdown shows it unchanged."""
    text = " ".join(text.split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = text.replace("$", "&#36;").replace("~", "&#126;")  # mathematics, and struck out
    text = re.sub(r"([\\`*_\[\]|])", r"\\\1", text)
    # Escape what would begin a heading or a list; a signed number begins neither.
    return re.sub(r"^(?:(?=#|[-+](?:\s|-|$))|(\d+)(?=[.)](?:\s|$)))", r"\1\\", text)


def page_name(name: str) -> str:
    """The name of an experiment's page, without a suffix: safe in a path and in a link."""
    return re.sub(r"[^\w-]", "-", name)


def code(command: str) -> str:
    """A command as a block of code, fenced by more backticks than it contains."""
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
        link = f"[{plain(chapter.title)}]({page_name(chapter.name)}.md)"
        preset = plain(chapter.results["preset"])
        lines.append(f"| {link} | {preset} | {chapter.tally} | {chapter.time} |")
    return "\n".join(lines)


def _all_claims(chapters: Sequence[Chapter]) -> str:
    """One row for each claim, those that are decided first."""
    lines = [f"| {' | '.join(INDEX)} |", "| --- | --- | --- | --- |"]
    for kind in KINDS:
        for chapter in chapters:
            for claim, verdict in zip(_claims(chapter), chapter.verdicts, strict=True):
                if verdict.kind == kind:
                    link = f"[{plain(chapter.name)}]({page_name(chapter.name)}.md)"
                    cells = [plain(claim.text), link, plain(verdict.sure), plain(verdict.text)]
                    lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _claims(chapter: Chapter) -> Sequence[Claim]:
    return chapter.page.claims if chapter.page else ()


def _chapter(chapter: Chapter, figures: Addresses) -> Iterable[str]:
    yield f"# {plain(chapter.title)}"
    yield plain(chapter.summary)
    if chapter.page:
        claims = [
            (claim.text, claim.paper, claim.ours, verdict.sure, verdict.text)
            for claim, verdict in zip(_claims(chapter), chapter.verdicts, strict=True)
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
    yield "## How it was made"
    yield code(chapter.command)
    yield table(["run", "value"], chapter.origin.items())
    yield table(SETTINGS, chapter.settings.items())
    yield "[All experiments](README.md)"


def _join(blocks: Iterable[str]) -> str:
    return "\n\n".join(blocks) + "\n"
