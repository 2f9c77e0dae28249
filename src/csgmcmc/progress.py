"""The progress bar of whatever takes long."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


def make_bar(
    console: Console, *, width: int | None = 40, shown: bool = True, transient: bool = False
) -> Progress:
    """A bar with a description, a `state` and the time left; it shows nothing off a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=width),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(),
        console=console,
        transient=transient,
        disable=not (shown and console.is_terminal),
    )
