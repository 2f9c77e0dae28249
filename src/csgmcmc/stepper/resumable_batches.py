"""An endless stream of minibatches whose exact position can be saved.

A checkpoint holds the random state at the start of the epoch and the number of batches taken since
then. To resume, that state is restored, the epoch is started again, and those batches are skipped:
this gives the same order and, in worker processes too, the same random transforms, for any loader.
A `StatefulDataLoader` without workers skips by itself, which is faster.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from csgmcmc.loaders import check_data, describe_loader
from csgmcmc.randomness import (
    Generator,
    check_generators,
    generators_of,
    random_state,
    restore_random_state,
)


class ResumableBatches:
    """Batches of `loader`, epoch after epoch.

    Args:
        loader: any iterable of batches that can be begun again. If it has an attribute
            `draws_globally` that is False, its batches depend on its own generators alone.
        generators: generators that transforms of the data draw from, besides the global ones.
        end_epochs: end an epoch with its last batch, not with the first of the next one. The
            loader must have a length.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        generators: Sequence[Generator] = (),
        *,
        end_epochs: bool = False,
    ) -> None:
        check_data(loader)
        if getattr(loader, "persistent_workers", False):
            raise ValueError(
                "data has persistent_workers=True: their random state cannot be saved, and a "
                "resumed run would see other augmentations; use persistent_workers=False"
            )
        if describe_loader(loader)["batches"] == 0:
            raise ValueError("data is empty: it gives no batch")
        check_generators(generators)
        self.loader = loader
        self._epoch_length = describe_loader(loader)["batches"] if end_epochs else None
        self.generators = [*generators, *generators_of(loader)]
        self._iterator: Iterator[Any] | None = None
        self._epoch = -1
        self._taken = 0
        self._began: dict[str, Any] = {}

    def next(self) -> Any:
        """The next batch."""
        if self._iterator is None:
            self._begin(self._epoch + 1)
        try:
            batch = next(self._iterator)  # pyright: ignore[reportArgumentType]
        except StopIteration:
            if self._taken == 0:
                raise ValueError(
                    "data is empty: it gives no batch, or is an iterator that cannot be begun "
                    "again (give a DataLoader or a list)"
                ) from None
            self._iterator = None
            return self.next()
        self._taken += 1
        if self._taken == self._epoch_length:
            self._iterator = None
        return batch

    def state_dict(self) -> dict[str, Any]:
        """The position; load it with the random state of the same moment set afterwards."""
        skips_itself = self._iterator is not None and _skips_itself(self.loader)
        return {
            "epoch": self._epoch,
            "taken": self._taken if self._iterator is not None else None,
            "began": self._began,
            "loader": self.loader.state_dict() if skips_itself else None,  # pyright: ignore[reportAttributeAccessIssue]
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to the position of `state`."""
        self._iterator, self._epoch = None, state["epoch"]
        if state["taken"] is None:
            return
        restore_random_state(state["began"], self.generators)
        if state["loader"] is not None:
            self.loader.load_state_dict(state["loader"])  # pyright: ignore[reportAttributeAccessIssue]
            self._begin(state["epoch"])
            self._began, self._taken = state["began"], state["taken"]
            return
        self._begin(state["epoch"])
        for _ in range(state["taken"]):
            self.next()

    def _begin(self, epoch: int) -> None:
        sampler = getattr(self.loader, "sampler", None)
        if hasattr(sampler, "set_epoch"):  # distributed samplers shuffle by it
            sampler.set_epoch(epoch)  # pyright: ignore[reportOptionalMemberAccess]
        # For a small network the global generators take a good part of an epoch to save.
        draws_globally = getattr(self.loader, "draws_globally", True)
        self._began = random_state(self.generators, with_global=draws_globally)
        self._iterator = iter(self.loader)
        self._epoch, self._taken = epoch, 0


def _skips_itself(loader: Iterable[Any]) -> bool:
    return hasattr(loader, "state_dict") and getattr(loader, "num_workers", 1) == 0
