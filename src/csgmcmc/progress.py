"""The progress bar of every long task."""

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


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
        self._done, self._bar = done, None
        self._appears = time.monotonic() + patience
        if shown and (console := console or Console(stderr=True)).is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=width),
                TextColumn("{task.fields[state]}"),
                TimeRemainingColumn(elapsed_when_finished=True),
                console=console,
                transient=transient,
            )
            self._task = self._bar.add_task(title, total=total, state="")

    @property
    def visible(self) -> bool:
        """Whether the bar is on the screen."""
        return self._bar is not None and self._bar.live.is_started

    def advance(self, amount: float) -> None:
        """Add to the work done."""
        self.update(self._done + amount)

    def update(self, done: float, state: str = "") -> None:
        """Set the work done, and the text beside the bar."""
        self._done = done
        if self._bar is not None:
            if not self.visible and time.monotonic() >= self._appears:
                self._bar.start()
            self._bar.update(self._task, completed=done, state=state)

    def __enter__(self) -> "Bar":
        self.update(self._done)
        return self

    def __exit__(self, *_: object) -> None:
        if self.visible:
            self._bar.stop()  # pyright: ignore[reportOptionalMemberAccess]
