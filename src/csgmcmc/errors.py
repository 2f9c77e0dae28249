"""Every exception and warning of this library.

All exceptions derive from `CsgmcmcError`, and their names end in Error. Wrong arguments are plain
`ValueError`s.
"""

from pathlib import Path
from typing import Any


class CsgmcmcError(Exception):
    """Base class of this library's exceptions. All of them can be pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are pickled as a call with their message, which some constructors make.
        return _unpickled, (type(self), self.args, self.__dict__)


class DivergedError(CsgmcmcError, RuntimeError):
    """The loss, a weight or a buffer is no longer finite.

    Attributes:
        tick: the `Tick` of the step.
        lr: step size at that step.
        chain_ids: the chains that diverged.
    """

    def __init__(
        self,
        what: str,
        tick: Any,
        lr: float,
        chain_ids: list[int],
        checkpoint: Path | None = None,
    ) -> None:
        self.tick, self.lr, self.chain_ids = tick, lr, chain_ids
        which = f"chain {', '.join(map(str, chain_ids))}"
        good = f" The last good checkpoint is {checkpoint}." if checkpoint else ""
        super().__init__(
            f"{which} diverged: {what} is not finite at step {tick.step} (cycle {tick.cycle + 1}, "
            f"{tick.stage}, lr {lr:.3g}). Lower lr, or clip the gradients, and start again; if it "
            "happens in exploration, a lower exploration_temperature may help. "
            f"All draws kept so far can be read.{good}"
        )


class DrawConflictError(CsgmcmcError, ValueError):
    """A different draw of the same chain and step is already stored."""

    def __init__(self, chain_id: int, step: int) -> None:
        super().__init__(
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


def _unpickled(kind: type[CsgmcmcError], args: tuple[Any, ...], values: dict[str, Any]) -> Any:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(values)
    return error
