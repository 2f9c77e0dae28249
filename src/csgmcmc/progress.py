"""The progress bar of every long task."""

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text


def duration(seconds: float) -> str:
    """Minutes and seconds, or hours too."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class _Time(ProgressColumn):
    max_refresh = 0.5  # seconds

    def render(self, task: Task) -> Text:
        elapsed = duration(task.elapsed or 0.0)
        if task.finished:
            return Text(f"took {elapsed}")
        left = task.time_remaining
        return Text(f"{elapsed} elapsed" if left is None else f"{duration(left)} left")


class Bar:
    """A progress bar on a terminal; elsewhere nothing is shown.

    Args:
        title: the task.
        total: amount of work; None if unknown.
        done: work that was done before.
        shown: False never shows the bar.
        patience: seconds before the bar appears.
        width: columns of the bar itself.
        transient: remove the bar at the end.
        console: standard error by default.
    """

    def __init__(
        self,
        title: str,
        total: float | None,
        *,
        done: float = 0,
        shown: bool = True,
        patience: float = 0.0,
        width: int = 40,
        transient: bool = False,
        console: Console | None = None,
    ) -> None:
        self._title, self._total, self._done = title, total, done
        self._width, self._transient, self._console = width, transient, console
        self._appears = time.monotonic() + patience if shown else float("inf")
        self._bar: Progress | None = None

    @property
    def visible(self) -> bool:
        """Whether the bar is on the screen."""
        return self._bar is not None

    def advance(self, amount: float) -> None:
        """Add to the work done."""
        self.update(self._done + amount)

    def update(self, done: float, state: str = "") -> None:
        """Set the work done, and the text beside the bar."""
        self._done = done
        if self._bar is None and time.monotonic() >= self._appears:
            self._appears = float("inf")
            console = self._console or Console(stderr=True)
            if console.is_terminal:
                self._bar = Progress(
                    TextColumn("{task.description}"),
                    BarColumn(bar_width=self._width),
                    TextColumn("{task.fields[state]}"),
                    _Time(),
                    console=console,
                    transient=self._transient,
                )
                self._task = self._bar.add_task(self._title, total=self._total, state=state)
                self._bar.start()
        if self._bar is not None:
            self._bar.update(self._task, completed=done, state=state)

    def __enter__(self) -> "Bar":
        self.update(self._done)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
