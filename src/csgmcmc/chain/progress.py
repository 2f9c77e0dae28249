"""Progress of a run: a bar on a terminal, otherwise a line every half minute."""

import time

from rich.console import Console

from csgmcmc.progress import make_bar
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
        self._wait = float("inf")
        self._next = 0.0
        self._first, self._began = first_step, time.monotonic()
        if shown:
            self._wait = BAR_SECONDS if self._console.is_terminal else LINE_SECONDS
            self._next = self._began + (0 if self._console.is_terminal else LINE_SECONDS)
        else:
            self._next = float("inf")
        self._bar = make_bar(self._console, width=6, shown=shown)  # all fits into 80 columns
        self._task = self._bar.add_task(title, total=steps, completed=first_step, state="")

    def __enter__(self) -> "Display":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._bar.disable:  # rich 13 would print an empty line
            self._bar.stop()

    def update(self, tick: Tick, lr: float, temperature: float, loss: float, draws: int) -> None:
        """Called at every step; shows something only if it is due."""
        now = time.monotonic()
        last = tick.step + 1 == self._steps and self._wait < float("inf")
        if now < self._next and not last:
            return
        self._next = now + self._wait
        state = (
            f"cycle {tick.cycle + 1}/{self._cycles} {tick.stage} lr {lr:.2g} "
            f"T {temperature:.2g} loss {loss:.3g} {draws} draws"
        )
        if not self._bar.disable:
            self._bar.update(self._task, completed=tick.step + 1, state=state)
            return
        done = tick.step + 1 - self._first
        left = (now - self._began) / done * (self._steps - tick.step - 1)
        where = f"{self._title}: step {tick.step + 1}/{self._steps}"
        self._console.print(f"{where}, {state}, {left:.0f} s left", highlight=False, soft_wrap=True)
