"""Building blocks of HTML pages: one file, no network, no script, for light and dark screens."""

import io
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # matplotlib is an extra
    from matplotlib.figure import Figure

INK = "#010101"
"""Colour of text and lines in a figure; `draw` replaces it by the text colour of the page."""

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999933", "#882255")
"""Okabe and Ito's colours for data, distinguishable by colour-blind readers; none is black."""

STYLE: Any = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), INK),
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}
"""Matplotlib settings for all figures: `with matplotlib.rc_context(STYLE)`."""


def new_figure(width: float, height: float) -> "Figure":
    """A figure without a background, in inches."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0)
    return figure


def draw(figure: "Figure", name: str) -> str:
    """Render a figure as SVG, the same bytes every time, with `currentColor` in place of INK."""
    import matplotlib as mpl  # noqa: PLC0415

    # Ticks are created when they are drawn, so that this needs the style too.
    buffer = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": name, "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    drawn = re.sub(r"\s*<metadata>.*?</metadata>", "", buffer.getvalue(), count=1, flags=re.DOTALL)
    return drawn.replace(INK, "currentColor")


def as_element(drawn: str, name: str) -> str:
    """An SVG element for an HTML page, in the page's colour, with `name` in front of its ids."""
    element = drawn[drawn.index("<svg") :].strip()
    element = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", element, count=1, flags=re.DOTALL)
    # All figures of matplotlib have the same ids: figure_1, axes_1 and so on.
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", element)


def document(title: str, header: str, main: str) -> str:
    """A whole page; `title` is text, `header` and `main` are HTML.

    `main` should contain a `<nav id="contents">`: a link to it is always visible.
    """
    style = files("csgmcmc").joinpath("page.css").read_text(encoding="utf-8")
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


def figure(element: str, name: str, caption: str) -> str:
    """A figure from an SVG element; the caption is HTML."""
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
    """A table that scrolls inside its own box where it is too wide.

    Args:
        header: names of the columns, as HTML.
        rows: cells, as HTML; the first cell of each row is its heading.
        kinds: CSS class of each column: "number" aligns right, "long" has a minimum width.
        title: caption, as text.
    """
    classes = [f' class="{kind}"' if kind else "" for kind in kinds or [""] * len(header)]
    heads = zip(header, classes, strict=True)
    cells = "".join(f'<th scope="col"{kind}>{cell}</th>' for cell, kind in heads)
    label = f' role="region" aria-label="{escape(title)}"' if title else ""
    lines = [f'<div class="scroll" tabindex="0"{label}>', "<table>"]
    lines += [f"<caption>{escape(title)}</caption>"] if title else []
    lines += [f"<thead><tr>{cells}</tr></thead>", "<tbody>"]
    for first, *others in rows:
        kinds_of_others = zip(others, classes[1:], strict=True)
        cells = "".join(f"<td{kind}>{cell}</td>" for cell, kind in kinds_of_others)
        lines.append(f'<tr><th scope="row"{classes[0]}>{first}</th>{cells}</tr>')
    return "\n".join([*lines, "</tbody>", "</table>", "</div>"])


def judgements(header: Sequence[str], rows: Sequence[tuple[Sequence[str], str, str]]) -> str:
    """A table whose last column is a verdict; on a phone each row is a block.

    Args:
        header: names of the columns, as text.
        rows: all cells except the last, as HTML; the verdict, as text; its CSS class: "held",
            "contradicted" or "undecided".
    """
    # The explicit roles keep it a table for screen readers where CSS shows rows as blocks.
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
