"""An endless stream of minibatches whose position can be saved, and the random state around it.

A checkpoint holds the random state at the start of the epoch and the number of batches taken since
then. To resume, that state is restored, the epoch is started again, and those batches are skipped:
this gives the same order and, in worker processes too, the same random transforms, for any loader.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from csgmcmc.arguments import check_choice
from csgmcmc.loaders import check_data, describe_loader
from csgmcmc.loop.examples import Examples, check_same_examples, read_examples
from csgmcmc.loop.fingerprint import check_same
from csgmcmc.randomness import Generator, generators_of, random_state, restore_random_state

ORDERS = ("loader", "symmetric")
EMPTY = "data is empty, or an iterator that is used up: give a DataLoader or a list of batches"


class ResumableBatches:
    """Batches of a loader, epoch after epoch, and the state of all generators.

    Args:
        generators: generators that the loop or its data draw from, besides the global ones.
        end_epochs: end an epoch with its last batch, not with the first of the next one. The
            loader must have a length.
        compare: compare examples of the data with those of a state that is loaded.
    """

    def __init__(
        self,
        generators: Sequence[Generator] = (),
        *,
        end_epochs: bool = False,
        compare: bool = False,
    ) -> None:
        self._own, self._end_epochs, self._compare = list(generators), end_epochs, compare
        self._examples: Examples | None = None
        self.generators = self._own
        """The generators that are saved, those of the loader included."""
        self.loader: Any = None
        self._order = "loader"
        self._waiting: dict[str, Any] | None = None  # a state that was loaded before its loader

    def attach(self, loader: Iterable[Any], order: str = "loader") -> "ResumableBatches":
        """Take the batches of `loader`; one that is attached already continues.

        With `order="symmetric"` each epoch is followed by the same batches in reverse order.

        It is any iterable of batches that can be iterated repeatedly. If it has an attribute
        `draws_globally` that is False, its batches depend on its own generators alone.
        """
        check_choice("order", order, ORDERS)
        if self.loader is not loader or self._order != order:
            check_data(loader)
            if getattr(loader, "persistent_workers", False):
                raise ValueError(
                    "data has persistent_workers=True: their random state cannot be saved, and a "
                    "resumed run would see other augmentations; use persistent_workers=False"
                )
            length = describe_loader(loader)["batches"]
            if length == 0:
                raise ValueError(EMPTY)
            self.loader, self.generators = loader, [*self._own, *generators_of(loader)]
            self._examples = None
            self._order, sweeps = order, 2 if order == "symmetric" else 1
            self._epoch_length = sweeps * length if self._end_epochs and length else None
            self._iterator: Iterator[Any] | None = None
            self._epoch, self._taken = -1, 0
            self._began: dict[str, Any] = {}
        if self._waiting is not None:
            self._restore(self._waiting)
            self._waiting = None  # last: an attempt that fails can be repeated
        return self

    @property
    def examples(self) -> Examples:
        """A few examples of the data, where they are compared; read when first asked for."""
        if self._examples is None:
            known = self._compare and self.loader is not None
            self._examples = read_examples(self.loader, self.generators) if known else Examples()
        return self._examples

    def next(self) -> Any:
        """The next batch."""
        if self._iterator is None:
            self._begin(self._epoch + 1)
        try:
            batch = next(self._iterator)  # pyright: ignore[reportArgumentType]
        except StopIteration:
            if self._taken == 0:
                raise ValueError(EMPTY) from None
            self._iterator = None
            return self.next()
        self._taken += 1
        if self._taken == self._epoch_length:
            self._iterator = None
        return batch

    def position(self) -> dict[str, Any]:
        """The position in the loader, without the present random state."""
        taken = self._taken if self._iterator is not None else None
        position = {"epoch": self._epoch, "taken": taken, "began": self._began}
        return position if self._order == "loader" else {**position, "order": self._order}

    def load_position(self, state: dict[str, Any]) -> None:
        """Go to a position; the random state of that moment must be restored afterwards."""
        self._iterator, self._epoch = None, state["epoch"]
        if state["taken"] is None:
            return
        restore_random_state(state["began"], self.generators)
        self._begin(state["epoch"])
        for _ in range(state["taken"]):
            self.next()

    def state_dict(self) -> dict[str, Any]:
        """The position in the loader, if there is one, and the state of all generators."""
        if self._waiting is not None:
            return self._waiting
        state = {"data": None, "batches": None, "random": random_state(self.generators)}
        if self.loader is not None:
            state |= {"data": describe_loader(self.loader), "batches": self.position()}
            state["examples"] = self.examples.values
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`, at once or when its loader is attached."""
        self._waiting = state if state["batches"] is not None and self.loader is None else None
        if self._waiting is None:
            self._restore(state)

    def check(self, state: dict[str, Any]) -> None:
        """Raise `SettingsMismatchError` if `state` is of other data or generators."""
        if state["batches"] and self.loader is not None:
            check_same(state["data"], describe_loader(self.loader), "data")
            check_same(state["batches"].get("order", "loader"), self._order, "order")
            check_same_examples(state.get("examples"), self.examples.values)
        check_same(len(state["random"]["generators"]), len(self.generators), "generators")

    def _restore(self, state: dict[str, Any]) -> None:
        if not state["batches"]:  # saved before there was a loader
            self.loader, self.generators = None, self._own
        self.check(state)
        if self.loader is not None:
            self.load_position(state["batches"])
        restore_random_state(state["random"], self.generators)

    def _begin(self, epoch: int) -> None:
        sampler: Any = getattr(self.loader, "sampler", None)
        if hasattr(sampler, "set_epoch"):  # distributed samplers shuffle by it
            sampler.set_epoch(epoch)
        # For a small network, saving the global generators takes a good part of an epoch.
        draws_globally = getattr(self.loader, "draws_globally", True)
        self._began = random_state(self.generators, with_global=draws_globally)
        symmetric = self._order == "symmetric"
        self._iterator = _there_and_back(self.loader) if symmetric else iter(self.loader)
        self._epoch, self._taken = epoch, 0


def _there_and_back(loader: Iterable[Any]) -> Iterator[Any]:
    """The batches of an epoch, and then the same ones in reverse order."""
    seen = []
    for batch in loader:
        seen.append(batch)
        yield batch
    yield from reversed(seen)
