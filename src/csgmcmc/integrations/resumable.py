"""A loader whose position can be saved, for training loops of other packages."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch.distributed as dist

from csgmcmc.loaders import check_data, describe_loader
from csgmcmc.randomness import Generator, random_state, restore_random_state
from csgmcmc.stepper.fingerprint import check_same
from csgmcmc.stepper.resumable_batches import ResumableBatches


class ResumableLoader:
    """A loader whose order, position and random transforms resume exactly from a checkpoint.

    Its state, which Lightning saves and loads, includes that of the global generators. The epoch in
    progress is started again and its batches are skipped. Each iteration continues from the current
    position and gives as many batches as an epoch has: a Trainer that resumes does not always begin
    its epochs at the same step.

    With several processes the loader's sampler must be a `DistributedSampler`, and only the first
    process resumes with the same random transforms and dropout.

    Args:
        loader: a `DataLoader`, or anything with a length that gives batches when it is iterated.
        generators: generators that the data's transforms draw from, besides the global ones and
            the loader's own.
    """

    def __init__(self, loader: Iterable[Any], generators: Sequence[Generator] = ()) -> None:
        check_data(loader)
        self.loader = loader
        if describe_loader(loader)["batches"] is None:
            raise ValueError(
                f"loader must have a length, got {type(loader).__name__} without one: its position "
                "could not be restored"
            )
        self._feed = ResumableBatches(loader, generators, end_epochs=True)
        self._loaded: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(self.loader)  # pyright: ignore[reportArgumentType]

    def __iter__(self) -> Iterator[Any]:
        for _ in range(len(self)):
            if self._loaded is not None:  # only now: iterating draws from the generators
                state, self._loaded = self._loaded, None
                self._resume(state)
            yield self._feed.next()

    def state_dict(self) -> dict[str, Any]:
        """The position and the current random state."""
        if self._loaded is not None:
            return self._loaded
        return {
            "data": describe_loader(self.loader),
            "feed": self._feed.state_dict(),
            "random": random_state(self._feed.generators),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state` when the next batch is requested."""
        check_same(state["data"], describe_loader(self.loader), "data")
        self._loaded = state

    def _resume(self, state: dict[str, Any]) -> None:
        feed, now = state["feed"], state["random"]
        if dist.is_available() and dist.is_initialized() and dist.get_rank() > 0:
            # The state is that of the first process: replicas must not repeat its random numbers.
            now = random_state(self._feed.generators)
            feed = {**feed, "began": now}
        self._feed.load_state_dict(feed)
        restore_random_state(now, self._feed.generators)
