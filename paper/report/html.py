"""The report as one HTML page that needs nothing else: no network, no script, no other file."""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files

from markdown_it import MarkdownIt

from paper.report.chapter import INTRODUCTION, TITLE, VERDICTS, Chapter
from paper.report.page import Claim, Grid, Picture

MARKS = {True: "✓", False: "✗", None: "?"}
CLASSES = {True: "held", False: "not-held", None: "not-judged"}
NUMBER = re.compile(r"[-+±<>≤≥≈~\u2212]?\s*\d.*|[-\u2212\u2013\u2014]?")
"""What is set to the right in its column: a number, or a dash where there is none."""

WIDE, LONG = 5, 24
"""A table of more columns, a cell of more letters: these would be set on many lines."""


def render(chapters: Sequence[Chapter], figures: Mapping[tuple[str, str], str]) -> str:
    """All chapters; `figures` are SVG elements by the names of experiment and picture."""
    style = files("csgmcmc.report").joinpath("page.css").read_text(encoding="utf-8")
    body = "\n".join("\n".join(_chapter(chapter, figures)) for chapter in chapters)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(TITLE)}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{escape(TITLE)}</h1>
<p>{escape(INTRODUCTION)}</p>
</header>
<main>
<nav aria-label="Experiments">
{_contents(chapters)}
</nav>
{body}
</main>
</body>
</html>
"""


def _contents(chapters: Sequence[Chapter]) -> str:
    rows = [
        [
            f'<a href="#{escape(chapter.name)}">{escape(chapter.title)}</a>',
            escape(chapter.results["preset"]),
            escape(chapter.tally),
            escape(chapter.time),
        ]
        for chapter in chapters
    ]
    return _table("Experiments", ["experiment", "preset", "claims held", "time"], rows)


def _chapter(chapter: Chapter, figures: Mapping[tuple[str, str], str]) -> Iterable[str]:
    name = escape(chapter.name)
    yield f'<section id="{name}" aria-labelledby="{name}-title">'
    yield f'<h2 id="{name}-title">{escape(chapter.title)}</h2>'
    yield f'<p class="summary">{escape(chapter.summary)}</p>'
    if chapter.page:
        yield "<h3>Claims</h3>"
        yield _claims(chapter.page.claims)
        yield "<h3>Results</h3>"
        for part in chapter.page.parts:
            if isinstance(part, Grid):
                yield _grid(part)
            elif isinstance(part, Picture):
                yield _figure(part, figures[chapter.name, part.name], f"{name}-{part.name}")
            else:
                yield MarkdownIt("commonmark", {"html": False}).render(part).strip()
    yield "<h3>How it was made</h3>"
    yield f"<pre><code>{escape(chapter.command)}</code></pre>"
    yield _table("", [], [list(map(escape, row)) for row in chapter.origin.items()])
    yield "<details><summary>Settings</summary>"
    settings = [[f"<code>{escape(key)}</code>", escape(it)] for key, it in chapter.settings.items()]
    yield _table("", ["setting", "value"], settings)
    yield "</details>"
    yield "</section>"


def _claims(claims: Sequence[Claim]) -> str:
    # On a phone each row is set as a block of its own; the roles say that it is still a table.
    headings = ("claim", "paper", "ours", "verdict")
    lines = ['<table class="claims" role="table">', '<thead role="rowgroup"><tr role="row">']
    lines += [f'<th scope="col" role="columnheader">{heading}</th>' for heading in headings]
    lines += ["</tr></thead>", '<tbody role="rowgroup">']
    for claim in claims:
        verdict = f"{MARKS[claim.holds]} {VERDICTS[claim.holds]}"
        lines += [
            '<tr role="row">',
            f'<th scope="row" role="rowheader">{escape(claim.text)}</th>',
            f'<td role="cell" data-label="paper">{escape(claim.paper)}</td>',
            f'<td role="cell" data-label="ours">{escape(claim.ours)}</td>',
            f'<td role="cell" class="verdict {CLASSES[claim.holds]}">{verdict}</td>',
            "</tr>",
        ]
    return "\n".join([*lines, "</tbody></table>"])


def _grid(grid: Grid) -> str:
    rows = [list(map(escape, row)) for row in grid.rows]
    shown = _table(grid.title, grid.header, rows)
    return f'{shown}\n<p class="note">{escape(grid.note)}</p>' if grid.note else shown


def _figure(picture: Picture, element: str, name: str) -> str:
    label = f"{escape(name)}-caption"
    element = element.replace("<svg", f'<svg role="img" aria-labelledby="{label}"', 1)
    return (
        f'<figure>\n<div tabindex="0">\n{element}\n</div>\n'
        f'<figcaption id="{label}">{escape(picture.caption)}</figcaption>\n</figure>'
    )


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in a box of its own, which scrolls where it is too wide; `rows` are HTML."""
    wide = len(header) > WIDE
    kinds = [_kind(column, wide) for column in zip(*rows, strict=True)] or [""] * len(header)
    lines = []
    if header:
        heads = zip(header, kinds, strict=True)
        cells = "".join(f'<th scope="col"{kind}>{escape(text)}</th>' for text, kind in heads)
        lines.append(f"<thead><tr>{cells}</tr></thead>")
    lines.append("<tbody>")
    for first, *others in rows:
        kinds_of_others = zip(others, kinds[1:], strict=True)
        cells = "".join(f"<td{kind}>{cell}</td>" for cell, kind in kinds_of_others)
        lines.append(f'<tr><th scope="row"{kinds[0]}>{first}</th>{cells}</tr>')
    lines.append("</tbody>")
    caption = f"<caption>{escape(title)}</caption>\n" if title else ""
    label = f' role="region" aria-label="{escape(title)}"' if title else ""
    inner = "\n".join(lines)
    return f'<div class="scroll" tabindex="0"{label}>\n<table>\n{caption}{inner}\n</table>\n</div>'


def _kind(column: Sequence[str], wide: bool) -> str:
    """Numbers are set to the right; long text gets room, or a wide table would squeeze it."""
    if all(NUMBER.fullmatch(cell) for cell in column):
        return ' class="number"'
    return ' class="long"' if wide and max(map(len, column)) > LONG else ""
