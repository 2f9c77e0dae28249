"""Figures as SVG that is readable on light and on dark paper, the same bytes every time."""

import io
import re

import matplotlib as mpl
from matplotlib.figure import Figure

from paper.pages import STYLE
from paper.report.page import INK

LIGHT_INK, DARK_INK = "#1f2328", "#e6e9ed"
"""What INK becomes on light and on dark paper; page.css has the same."""

OWN_SCHEME = (
    f"<style>svg{{color:{LIGHT_INK}}}"
    f"@media (prefers-color-scheme:dark){{svg{{color:{DARK_INK}}}}}</style>"
)


def draw(figure: Figure, name: str) -> str:
    """The figure as SVG; where it has ink it says `currentColor`."""
    # Ticks are made when they are drawn: they need the style as much as the page did.
    style = {**STYLE, "svg.hashsalt": name, "svg.fonttype": "path"}
    buffer = io.StringIO()
    with mpl.rc_context(style):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    drawn = re.sub(r"\s*<metadata>.*?</metadata>", "", buffer.getvalue(), count=1, flags=re.DOTALL)
    return drawn.replace(INK, "currentColor")


def as_file(drawn: str) -> str:
    """A whole SVG file, which follows the reader's colour scheme by itself."""
    return re.sub(r"(<svg\b[^>]*>)", rf"\1{OWN_SCHEME}", drawn, count=1)


def as_element(drawn: str, name: str) -> str:
    """An element for an HTML page: its colour is the page's, its ids are its own."""
    element = drawn[drawn.index("<svg") :].strip()
    element = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", element, count=1, flags=re.DOTALL)
    # The figures of a page have the same ids: figure_1, axes_1 and so on.
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", element)
