"""The one loop over draws and batches, for predictions, scores and checks."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from csgmcmc.arguments import shown
from csgmcmc.loaders import check_data, is_pair
from csgmcmc.posterior.members import bytes_of, full_precision

if TYPE_CHECKING:
    from csgmcmc.posterior.likelihoods.base import Likelihood
    from csgmcmc.posterior.posterior import Posterior

Batch = tuple[Any, Tensor | None]
"""Inputs and targets, if there are any."""

Split = Callable[[Any], tuple[Any, Any]]
"""From a batch of a loader to its inputs and targets."""

MAX_GROUP_BYTES = 64 * 2**20  # of inputs in memory at a time


class Collector(Protocol):
    """What is computed from the outputs of all draws for one batch."""

    def add(self, numbers: list[int], outputs: Any) -> None:
        """Add the outputs of some draws, (draws, batch, ...), by the numbers of the draws."""


C = TypeVar("C", bound=Collector)


def over_draws(
    posterior: "Posterior",
    loader: Iterable[Any],
    title: str,
    collector: Callable[[Tensor | None], C],
    *,
    among: Sequence[int] | None = None,
    split: Split | None = None,
) -> Iterator[C]:
    """Evaluate all draws, or those numbered `among`, on all batches of `loader`.

    Yields what `collector(targets)` has made for each batch, once it has the outputs of all draws.
    Its `add` is called in inference mode and without autocast. The progress bar has a `title`;
    without one it is not shown. `split` is by default that of the posterior.

    The loader is read once: one that shuffles gives every draw the same inputs.
    """
    members = posterior.members
    total = None
    with suppress(TypeError):  # some loaders have no length
        total = len(loader) * len(members.draws if among is None else among)  # pyright: ignore[reportArgumentType]
    with ExitStack() as stack:
        advance = None
        if posterior.progress and title and sys.stderr.isatty():
            bar = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
            advance = partial(bar.advance, bar.add_task(title, total=total))
        for group in _groups(loader, split or posterior.split, members.device):
            collectors = [collector(targets) for _, targets in group]
            with torch.inference_mode():
                for numbers, index, outputs in members.outputs([x for x, _ in group], among):
                    with full_precision(members.device):
                        collectors[index].add(numbers, outputs)
                    if advance:
                        advance(len(numbers))
            yield from collectors  # outside inference mode, so that autograd can use the results


def _groups(loader: Iterable[Any], split: Split, device: torch.device) -> Iterator[list[Batch]]:
    """Batches that are evaluated together, so that each draw is loaded once for all of them."""
    check_data(loader, "loader")
    group: list[Batch] = []
    size, found = 0, None
    for batch in loader:
        found = split(batch)
        if not is_pair(found):
            raise ValueError(f"split must return inputs and targets, got {shown(found)}")
        inputs, targets = found
        group.append((inputs, targets.to(device) if isinstance(targets, Tensor) else None))
        size += bytes_of(inputs)
        if size >= MAX_GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
    if found is None:
        raise ValueError("loader gave no batches")


def plain_split(batch: Any) -> tuple[Any, Any]:
    """Default split: a pair is inputs and targets, any other batch has no targets."""
    if is_pair(batch):
        return batch[0], batch[1]
    if isinstance(batch, (tuple, list)) and len(batch) == 1:
        return batch[0], None
    return batch, None


class Scores:
    """Log-likelihood of each data point of a batch under each draw, (draws, points)."""

    def __init__(self, likelihood: "Likelihood", targets: Tensor | None) -> None:
        if targets is None:
            raise ValueError(
                "loader must give pairs of inputs and targets, the targets a tensor: for a single "
                "batch, give [(inputs, targets)]; for batches of another form, give the posterior "
                "a split= function"
            )
        self.likelihood, self.targets = likelihood, targets
        self.parts: list[Tensor] = []

    def add(self, numbers: list[int], outputs: Any) -> None:
        """Add the outputs of some draws; `numbers` ascend from call to call."""
        self.parts.append(self.likelihood.log_prob(outputs, self.targets))

    def result(self) -> Tensor:
        """The scores of all draws."""
        return torch.cat(self.parts)
