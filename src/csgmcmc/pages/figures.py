"""Figures as SVG that is readable on light and on dark paper, the same bytes every time."""

import io
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # matplotlib is an extra
    from matplotlib.figure import Figure

INK = "#010101"
"""Colour of text and lines in a figure: `draw` makes it dark on light paper, light on dark."""
LIGHT_INK = "#1f2328"
"""What INK becomes on light paper; page.css has the same."""
DARK_INK = "#e6e9ed"
"""What INK becomes on dark paper; page.css has the same."""

# Okabe and Ito's colours, which the colour-blind can tell apart; none of them is black.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999933", "#882255")
"""Colours of data, to be told apart by the colour-blind too, on light and on dark paper."""

STYLE: Any = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), INK),
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}
"""Settings of matplotlib under which figures are made: `with matplotlib.rc_context(STYLE)`."""

OWN_SCHEME = (
    f"<style>svg{{color:{LIGHT_INK}}}"
    f"@media (prefers-color-scheme:dark){{svg{{color:{DARK_INK}}}}}</style>"
)


def new_figure(width: float, height: float) -> "Figure":
    """A figure with no paper of its own, so that it is readable on light and dark pages."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0)
    return figure


def draw(figure: "Figure", name: str) -> str:
    """The figure as SVG; where it has ink it says `currentColor`."""
    import matplotlib as mpl  # noqa: PLC0415

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
