"""The progress of a search: a bar on a terminal, otherwise one line per trial."""

import math
from collections.abc import Sequence

from rich.console import Console

from csgmcmc.progress import Bar
from csgmcmc.tuning.study import Trial


class SearchDisplay:
    """Shows the number of finished trials, the best log score so far, and the time left.

    `trials` is the total number of trials of the search, and `done` are those of earlier calls.
    """

    def __init__(
        self, trials: int, done: Sequence[Trial], shown: bool = True, console: Console | None = None
    ) -> None:
        self._console = console or Console(stderr=True)
        self._console.quiet = self._console.quiet or not shown
        self._trials, self._done, self._share = trials, len(done), 0.0
        complete = [trial.score for trial in done if trial.outcome == "complete"]
        self._best = max(complete, default=-math.inf)
        options = {"done": len(done), "shown": shown, "width": 20}
        self._bar = Bar("tune", trials, console=self._console, **options)

    def __enter__(self) -> "SearchDisplay":
        self._bar.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.__exit__()

    def say(self, words: str) -> None:
        """Print a line, above the bar where there is one."""
        self._console.print(words, highlight=False, markup=False, soft_wrap=True)

    def advance(self, share: float) -> None:
        """Say that so much of the trial's budget is used; called at every step."""
        if self._bar.visible and share - self._share >= 0.01:
            self._share = share
            self._update()

    def end(self, trial: Trial) -> None:
        """Show that a trial has ended."""
        self._done, self._share = self._done + 1, 0.0
        if trial.outcome == "complete":
            self._best = max(self._best, trial.score)
        if self._bar.visible:
            self._update()
            return
        self.say(f"trial {self._done} of {self._trials}: {in_words(trial)}{self._best_so_far}")

    @property
    def _best_so_far(self) -> str:
        return f", best {self._best:.4f}" if self._best > -math.inf else ""

    def _update(self) -> None:
        state = f"{self._done}/{self._trials} trials{self._best_so_far}"
        self._bar.update(self._done + self._share, state)


def in_words(trial: Trial) -> str:
    """A trial in one line."""
    ends = {
        "diverged": "diverged",
        "pruned": f"pruned after {trial.used:.0%}, log score {trial.score:.4f}",
        "complete": f"log score {trial.score:.4f}",
    }
    setting = f"cycles {trial.cycles}, exploration {trial.exploration:.2f}"
    return f"{setting}, temperature {trial.temperature:.2g}: {ends[trial.outcome]}"
