"""One pass over a loader under many draws: the loop of predictions, scores and checks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from csgmcmc.arguments import shown
from csgmcmc.loaders import check_data, is_pair
from csgmcmc.posterior.members import Members, Outputs, bytes_of, full_precision
from csgmcmc.posterior.predictive import Predictive
from csgmcmc.progress import Bar

if TYPE_CHECKING:
    from csgmcmc.posterior.posterior import Posterior

Batch = tuple[Any, Any]
"""Inputs and targets; the targets are None if there are none."""

Split = Callable[[Any], Batch]
"""From a batch of a loader to its inputs and targets."""

MAX_GROUP_BYTES = 64 * 2**20  # of inputs in memory at a time
NO_BAR = Bar("", None, shown=False)


def plain_split(batch: Any) -> Batch:
    """Default split: a pair is inputs and targets, any other batch has no targets."""
    if is_pair(batch):
        return batch[0], batch[1]
    if isinstance(batch, (tuple, list)) and len(batch) == 1:
        return batch[0], None
    return batch, None


@dataclass(frozen=True, eq=False)
class Group:
    """Batches that are evaluated together, so that each draw is loaded once for all of them."""

    members: Members
    batches: Sequence[Batch]  # targets are on the device of the members
    among: Sequence[int] | None = None  # numbers of the draws to evaluate; None for all
    bar: Bar = NO_BAR  # advances by one for each draw and batch

    def targets(self) -> list[Tensor]:
        """The targets of each batch; raises if there are none."""
        found = [targets for _, targets in self.batches if targets is not None]
        if len(found) < len(self.batches):
            raise ValueError(
                "loader must give pairs of inputs and targets, the targets a tensor: for a single "
                "batch, give [(inputs, targets)]; for batches of another form, give the posterior "
                "a split= function"
            )
        return found

    def outputs(self) -> Outputs:
        """Numbers of some draws, index of a batch, and their outputs, (draws, batch, ...).

        The body of the loop runs in inference mode and without autocast. Iterate with
        `for ... in group.outputs():`, so that an error in the body ends both.
        """
        inputs = [inputs for inputs, _ in self.batches]
        with torch.inference_mode():
            for numbers, index, outputs in self.members.outputs(inputs, self.among):
                with full_precision(self.members.device):
                    yield numbers, index, outputs
                self.bar.advance(len(numbers))


def passes(
    posterior: "Posterior", loader: Iterable[Any], title: str, among: Sequence[int] | None = None
) -> Iterator[Group]:
    """The batches of one pass over `loader`, a group at a time; raises if there are none.

    The loader is read only once: one that shuffles gives every draw the same inputs.
    """
    check_data(loader, "loader")
    total = None
    with suppress(TypeError):  # some loaders have no length
        total = len(loader) * len(posterior.draws if among is None else among)  # pyright: ignore[reportArgumentType]
    batches: list[Batch] = []
    size, found, device = 0, None, posterior.members.device
    with Bar(title, total, shown=posterior.progress, patience=1.0, transient=True) as bar:
        for batch in loader:
            found = posterior.split(batch)
            if not is_pair(found):
                raise ValueError(f"split must return inputs and targets, got {shown(found)}")
            inputs, targets = found
            batches.append((inputs, targets.to(device) if isinstance(targets, Tensor) else None))
            size += bytes_of(inputs)
            if size >= MAX_GROUP_BYTES:
                yield Group(posterior.members, batches, among, bar)
                batches, size = [], 0
        if batches:
            yield Group(posterior.members, batches, among, bar)
    if found is None:
        raise ValueError("loader gave no batches")


def predicted(posterior: "Posterior", inputs: Any, keep_members: bool) -> Predictive:
    """The averaged prediction for one batch."""
    group = Group(posterior.members, [(inputs, None)], _needed_draws(posterior, keep_members))
    return _averaged(posterior, group, keep_members)[0]


def predictions(
    posterior: "Posterior", loader: Iterable[Any], keep_members: bool
) -> Iterator[Predictive]:
    """The averaged prediction for each batch of a loader, with its targets."""
    among = _needed_draws(posterior, keep_members)
    for group in passes(posterior, loader, "predicting", among):
        yield from _averaged(posterior, group, keep_members)


def _needed_draws(posterior: "Posterior", keep_members: bool) -> list[int] | None:
    """Numbers of the draws that a prediction needs: those of weight 0 only as members."""
    return None if keep_members else np.flatnonzero(posterior.weights).tolist()


def _averaged(posterior: "Posterior", group: Group, keep_members: bool) -> list[Predictive]:
    """The averaged prediction for each batch of a group."""
    averages = [posterior.likelihood.average() for _ in group.batches]
    for numbers, index, outputs in group.outputs():
        averages[index].add(posterior.weights[numbers], outputs, keep_members)
    # Outside inference mode: autograd can use these tensors.
    pairs = zip(averages, group.batches, strict=True)
    return [average.result(targets) for average, (_, targets) in pairs]


def scores(posterior: "Posterior", loader: Iterable[Any]) -> Iterator[Tensor]:
    """Log-likelihoods of shape (draws, points), one group of batches at a time."""
    for group in passes(posterior, loader, "scoring"):
        targets = group.targets()
        parts: list[list[Tensor]] = [[] for _ in targets]
        for _, index, outputs in group.outputs():
            parts[index].append(posterior.likelihood.log_prob(outputs, targets[index]))
        yield torch.cat([torch.cat(each) for each in parts], dim=1)
