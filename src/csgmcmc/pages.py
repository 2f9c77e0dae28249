"""Building blocks of HTML pages: one file, no network, no script, for light and dark screens."""

import io
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment

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
    return _macros().document(title, header, main, _read("page.css"))


def figure(element: str, name: str, caption: str) -> str:
    """A figure from an SVG element; the caption is HTML."""
    label = f"{name}-caption"
    element = element.replace("<svg", f'<svg role="img" aria-labelledby="{label}"', 1)
    return _macros().figure(element, label, caption)


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    kinds: Sequence[str] | None = None,
    title: str = "",
    stacked: bool = False,
) -> str:
    """A table that scrolls inside its own box where it is too wide; `header` and `rows` are HTML.

    `kinds` are CSS classes of the columns: "number" aligns right, "long" has a minimum width. With
    `stacked`, a phone shows each row as a block.
    """
    return _macros().table(header, rows, kinds or [""] * len(header), title, stacked)


def judgements(header: Sequence[str], rows: Sequence[tuple[Sequence[str], str, str]]) -> str:
    """A table whose last column is a verdict; on a phone each row is a block.

    A row is all other cells as HTML, the verdict as text, and its CSS class: "held", "contradicted"
    or "undecided".
    """
    return _macros().judgements(header, rows)


@cache
def _macros() -> Any:
    made = Environment(trim_blocks=True)  # noqa: S701  (the macros escape text themselves)
    return made.from_string(_read("page.html")).module


def _read(name: str) -> str:
    return files("csgmcmc").joinpath(name).read_text(encoding="utf-8")
