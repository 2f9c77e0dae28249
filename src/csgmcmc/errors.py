"""Every exception and warning of this library.

All exceptions derive from `CsgmcmcError`, and their names end in Error. Wrong arguments are plain
`ValueError`s.
"""

import inspect
import warnings
from typing import Any


class CsgmcmcError(Exception):
    """Base class of this library's exceptions. All of them can be pickled."""


class DivergedError(CsgmcmcError, RuntimeError):
    """The loss, a weight or a buffer is no longer finite.

    Attributes:
        tick: the `Tick` of the step.
        lr: step size at that step.
        chain_ids: the chains that diverged.
    """

    def __init__(self, what: str, tick: Any, lr: float, chain_ids: list[int]) -> None:
        super().__init__(what, tick, lr, chain_ids)  # the arguments that a pickle restores
        self.tick, self.lr, self.chain_ids = tick, lr, chain_ids

    def __str__(self) -> str:
        what, tick, lr, chain_ids = self.args
        return (
            f"chain {', '.join(map(str, chain_ids))} diverged: {what} is not finite at step "
            f"{tick.step} (cycle {tick.cycle + 1}, {tick.stage}, lr {lr:.3g}). Lower lr, or clip "
            "the gradients, and start again; if it happens in exploration, a lower "
            f"exploration_temperature may help. All draws kept so far can be read."
        )


class DrawConflictError(CsgmcmcError, ValueError):
    """A different draw of the same chain and step is already stored."""

    def __init__(self, chain_id: int, step: int) -> None:
        super().__init__(chain_id, step)

    def __str__(self) -> str:
        chain_id, step = self.args
        return (
            f"chain {chain_id} already has a different draw at step {step}: a run that does not "
            "continue exactly from these draws needs a chain_id or a store of its own"
        )


class LockedError(CsgmcmcError, RuntimeError):
    """Another process, or another store object, is writing this chain."""


class SettingsMismatchError(CsgmcmcError, ValueError):
    """A run was resumed with settings that differ from those it began with."""


class StoreError(CsgmcmcError, RuntimeError):
    """The store cannot be used as asked; the draws in it are untouched."""


class SamplingWarning(UserWarning):
    """A run does not sample as it should: lr is unstable, or the noise is lost."""


class StoreWarning(UserWarning):
    """A damaged part of a store is skipped; the rest is usable."""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn of the line of the user's code that called this library."""
    level, frame = 0, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("csgmcmc."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level + 1)
