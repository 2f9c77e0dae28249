"""Progress of a run: a bar on a terminal, elsewhere a line every 30 seconds."""

import time

from rich.console import Console

from csgmcmc.progress import Bar
from csgmcmc.schedules import Tick

BAR_SECONDS = 0.1
LINE_SECONDS = 30.0


class Display:
    """Shows cycle, stage, lr, temperature, loss, draws kept and time left.

    Args:
        title: name of the run.
        steps: number of steps of the run.
        cycles: number of cycles of the run.
        first_step: first step of this run.
        shown: whether to show anything.
        console: where to show it; standard error by default.
    """

    def __init__(
        self,
        title: str,
        steps: int,
        cycles: int,
        first_step: int,
        shown: bool = True,
        console: Console | None = None,
    ) -> None:
        self._console = console or Console(stderr=True)
        self._title, self._steps, self._cycles = title, steps, cycles
        self._first, self._began, self._shown = first_step, time.monotonic(), shown
        terminal = self._console.is_terminal
        self._wait = BAR_SECONDS if terminal else LINE_SECONDS
        self._next = self._began + (0 if terminal else LINE_SECONDS)
        # With this width all of it fits into 80 columns.
        self._bar = Bar(title, steps, done=first_step, shown=shown, width=6, console=self._console)

    def __enter__(self) -> "Display":
        self._bar.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.__exit__()

    def update(self, tick: Tick, lr: float, temperature: float, loss: float, draws: int) -> None:
        """Called at every step; shows something only now and then."""
        if not self._shown:
            return
        now = time.monotonic()
        if now < self._next and tick.step + 1 < self._steps:
            return
        self._next = now + self._wait
        state = (
            f"cycle {tick.cycle + 1}/{self._cycles} {tick.stage} lr {lr:.2g} "
            f"T {temperature:.2g} loss {loss:.3g} {draws} draws"
        )
        if self._bar.visible:
            self._bar.update(tick.step + 1, state)
            return
        done = tick.step + 1 - self._first
        left = (now - self._began) / done * (self._steps - tick.step - 1)
        where = f"{self._title}: step {tick.step + 1}/{self._steps}"
        self._console.print(f"{where}, {state}, {left:.0f} s left", highlight=False, soft_wrap=True)
