"""An HTML page that needs no network, script or other file."""

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files


def document(title: str, header: str, main: str) -> str:
    """The whole page; `title` is text, `header` and `main` are HTML.

    `main` should hold a `<nav id="contents">`: a link to it is always in sight.
    """
    style = files("csgmcmc.pages").joinpath("page.css").read_text(encoding="utf-8")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<header>
{header}
</header>
<main>
{main}
</main>
<a class="up" href="#contents">↑ Contents</a>
</body>
</html>
"""


def contents(links: Mapping[str, str]) -> str:
    """Links to sections; their titles, as text, by the ids of the sections."""
    items = "\n".join(
        f'<li><a href="#{escape(name)}">{escape(title)}</a></li>' for name, title in links.items()
    )
    return f'<nav id="contents" aria-label="Contents">\n<ul>\n{items}\n</ul>\n</nav>'


def figure(element: str, name: str, caption: str) -> str:
    """A figure in a box of its own, from an SVG element; the caption is HTML."""
    label = f"{name}-caption"
    element = element.replace("<svg", f'<svg role="img" aria-labelledby="{label}"', 1)
    return (
        f'<figure>\n<div tabindex="0">\n{element}\n</div>\n'
        f'<figcaption id="{label}">{caption}</figcaption>\n</figure>'
    )


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    kinds: Sequence[str] | None = None,
    title: str = "",
) -> str:
    """A table in a box of its own, which scrolls where it is too wide.

    Args:
        header: names of the columns, as HTML.
        rows: cells, as HTML; the first of each row is its heading.
        kinds: class of each column: "number" is set to the right, "long" gets room.
        title: of the table, as text.
    """
    classes = [f' class="{kind}"' if kind else "" for kind in kinds or [""] * len(header)]
    heads = zip(header, classes, strict=True)
    cells = "".join(f'<th scope="col"{kind}>{cell}</th>' for cell, kind in heads)
    lines = [f"<thead><tr>{cells}</tr></thead>", "<tbody>"]
    for first, *others in rows:
        kinds_of_others = zip(others, classes[1:], strict=True)
        cells = "".join(f"<td{kind}>{cell}</td>" for cell, kind in kinds_of_others)
        lines.append(f'<tr><th scope="row"{classes[0]}>{first}</th>{cells}</tr>')
    lines.append("</tbody>")
    caption = f"<caption>{escape(title)}</caption>\n" if title else ""
    label = f' role="region" aria-label="{escape(title)}"' if title else ""
    inner = "\n".join(lines)
    return f'<div class="scroll" tabindex="0"{label}>\n<table>\n{caption}{inner}\n</table>\n</div>'


def judgements(header: Sequence[str], rows: Sequence[tuple[Sequence[str], str, str]]) -> str:
    """A table whose last column is a verdict; on a phone each row is a block of its own.

    Args:
        header: names of the columns, as text.
        rows: cells but the last, as HTML; the verdict, as text; its class: "held", "contradicted"
            or "undecided".
    """
    # The roles say that it is still a table where its rows are set as blocks.
    lines = ['<table class="claims" role="table">', '<thead role="rowgroup"><tr role="row">']
    lines += [f'<th scope="col" role="columnheader">{escape(name)}</th>' for name in header]
    lines += ["</tr></thead>", '<tbody role="rowgroup">']
    for (first, *others), verdict, kind in rows:
        lines += ['<tr role="row">', f'<th scope="row" role="rowheader">{first}</th>']
        lines += [
            f'<td role="cell" data-label="{escape(name)}">{cell}</td>'
            for name, cell in zip(header[1:-1], others, strict=True)
        ]
        lines += [f'<td role="cell" class="verdict {kind}">{escape(verdict)}</td>', "</tr>"]
    return "\n".join([*lines, "</tbody></table>"])
