"""What the pictures of the demo share: colours, a plain style, and the file that each becomes."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:  # an extra: settings are checked without it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# From the palette of Okabe and Ito, which colour-blind people can tell apart.
GREY, ORANGE, BLUE, VERMILION = "#777777", "#E69F00", "#0072B2", "#D55E00"
DOTS_PER_INCH = 90


def new_figure(width: float, height: float, caption: str) -> "Figure":
    """An empty figure, of a size in inches, with a caption below."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.supxlabel(caption, fontsize=10, color="#333333")
    return figure


def open_frame(axes: "Axes") -> None:
    """Leave only the two lines of a frame that carry numbers."""
    axes.spines[["top", "right"]].set_visible(False)


def save_picture(figure: "Figure", path: Path, console: Console) -> None:
    """Write the picture, and print where it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DOTS_PER_INCH)
    console.print(f"picture: {path}", markup=False)
