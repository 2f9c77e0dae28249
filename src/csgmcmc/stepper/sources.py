"""What a loop draws from: its batches and its generators, with one state to save."""

from collections.abc import Iterable, Sequence
from typing import Any

from csgmcmc.loaders import describe_loader
from csgmcmc.randomness import Generator, check_generators, random_state, restore_random_state
from csgmcmc.stepper.fingerprint import check_same
from csgmcmc.stepper.resumable_batches import ResumableBatches


class Sources:
    """The position in a loader, if one is attached, and the state of all generators."""

    def __init__(self, generators: Sequence[Generator]) -> None:
        check_generators(generators)
        self._own = list(generators)
        self._batches: ResumableBatches | None = None
        self._waiting: dict[str, Any] | None = None  # a state that was loaded before its loader

    @property
    def generators(self) -> list[Generator]:
        """The generators that are saved, those of the loader included."""
        return self._own if self._batches is None else self._batches.generators

    def attach(self, loader: Iterable[Any]) -> ResumableBatches:
        """The endless batches of `loader`; of the same loader again, they continue."""
        if self._batches is None or self._batches.loader is not loader:
            self._batches = ResumableBatches(loader, self._own)
        if self._waiting is not None:
            self.check(self._waiting)
            self._restore(self._waiting)
            self._waiting = None  # not before: an attempt that fails can be repeated
        return self._batches

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values."""
        if self._waiting is not None:
            return self._waiting
        state = {"data": None, "batches": None, "random": random_state(self.generators)}
        if self._batches is not None:
            state["data"] = describe_loader(self._batches.loader)
            state["batches"] = self._batches.state_dict()
        return state

    def check(self, state: dict[str, Any]) -> None:
        """Raise `SettingsMismatchError` if `state` is of another loader or other generators."""
        generators = self._own
        if state["batches"] is not None:
            if self._batches is None:
                return  # which `attach` looks at
            check_same(state["data"], describe_loader(self._batches.loader), "data")
            generators = self.generators
        check_same(len(state["random"]["generators"]), len(generators), "generators")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`, at once or when its loader is attached."""
        self._waiting = state if state["batches"] is not None and self._batches is None else None
        if self._waiting is None:
            self._restore(state)

    def _restore(self, state: dict[str, Any]) -> None:
        if state["batches"] is None:  # saved before there was a loader
            self._batches = None
        elif self._batches is not None:
            self._batches.load_state_dict(state["batches"])
        restore_random_state(state["random"], self.generators)
