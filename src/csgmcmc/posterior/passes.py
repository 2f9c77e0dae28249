"""One pass over a loader: predictions of its batches, or scores of its targets."""

import zlib
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from csgmcmc.posterior.averages import Average
from csgmcmc.posterior.batches import NOT_OWN, Batch, bar_over, groups, targets_of
from csgmcmc.posterior.members import full_precision
from csgmcmc.posterior.predictive import Predictive
from csgmcmc.posterior.sharing import Share, on_device, share_of
from csgmcmc.progress import Bar

if TYPE_CHECKING:
    from csgmcmc.posterior.posterior import Posterior

NO_BAR = Bar("", None, shown=False)


def predictions(
    posterior: "Posterior", loader: Iterable[Any], keep_members: bool, share: str | None
) -> Iterator[Predictive]:
    """The averaged prediction for each batch, with its targets."""
    here = share_of(share, _key(posterior, share, keep_members))
    found = _averages(posterior, loader, keep_members, here)
    for (group, own), everyone in here.rounds(found, lambda item: _states(item[1])):
        averages = own
        if here.processes > 1:
            states = on_device(everyone, posterior.members.device)
            averages = [_merged(posterior, of_batch) for of_batch in zip(*states, strict=True)]
        for average, (_, targets) in zip(averages, group, strict=True):
            assert average is not None  # noqa: S101  (each batch is some process's own)
            # Outside inference mode, so that a user may go on computing with the tensors.
            known = targets if isinstance(targets, Tensor) else None
            yield replace(average.result(), targets=known)


def add_outputs(
    posterior: "Posterior",
    averages: list[Average],
    batches: list[Any],
    among: list[int],
    keep_members: bool,
    bar: Bar = NO_BAR,
) -> None:
    """Add the outputs of some draws for each batch to its average."""
    with torch.inference_mode():
        for numbers, batch, outputs in posterior.members.outputs(batches, among):
            with full_precision(posterior.members.device):
                averages[batch].add(posterior.weights[numbers], outputs, keep_members)
            bar.advance(len(numbers))


def needed_draws(posterior: "Posterior", keep_members: bool) -> list[int]:
    """The numbers of the draws that a prediction needs."""
    weights = posterior.weights
    return (np.arange(len(weights)) if keep_members else np.flatnonzero(weights)).tolist()


def scores(
    posterior: "Posterior", loader: Iterable[Any], share: str | None = None
) -> Iterator[Tensor]:
    """The scores (draws, points) of one group of batches at a time."""
    here = share_of(share, _key(posterior, share))
    for own, everyone in here.rounds(_scores(posterior, loader, here), lambda item: item):
        found = own
        if here.processes > 1:
            parts = zip(*on_device(everyone, posterior.members.device), strict=True)
            found = [torch.cat([part for part in each if part is not None]) for each in parts]
        yield torch.cat(found, dim=1)  # pyright: ignore[reportArgumentType]


def _averages(
    posterior: "Posterior", loader: Iterable[Any], keep_members: bool, here: Share
) -> Generator[tuple[list[Batch], list[Average | None]], None, None]:
    """Groups of batches, and for each batch the average over this process's draws."""
    among = here.draws(needed_draws(posterior, keep_members))
    with bar_over(loader, len(among), "predicting", **_shown(posterior, here)) as bar:
        for group in groups(loader, posterior.split, here):
            averages: list[Average | None] = [None] * len(group)
            own = [at for at, (inputs, _) in enumerate(group) if inputs is not NOT_OWN and among]
            if own:
                new = [posterior.likelihood.average() for _ in own]
                add_outputs(posterior, new, [group[at][0] for at in own], among, keep_members, bar)
                for at, average in zip(own, new, strict=True):
                    averages[at] = average
            yield group, averages


def _scores(
    posterior: "Posterior", loader: Iterable[Any], here: Share
) -> Generator[list[Tensor | None], None, None]:
    """For each batch of a group the scores under this process's draws."""
    members = posterior.members
    among = here.draws(range(len(posterior.draws)))
    with bar_over(loader, len(among), "scoring", **_shown(posterior, here)) as bar:
        for group in groups(loader, posterior.split, here):
            targets = targets_of(group, members.device)
            parts: list[list[Tensor]] = [[] for _ in group]
            own = [at for at, (inputs, _) in enumerate(group) if inputs is not NOT_OWN and among]
            if own:
                with torch.inference_mode():
                    batches = [group[at][0] for at in own]
                    for numbers, batch, outputs in members.outputs(batches, among):
                        at = own[batch]
                        with full_precision(members.device):
                            log_probs = posterior.likelihood.log_prob(outputs, targets[at])
                        parts[at].append(log_probs)
                        bar.advance(len(numbers))
            yield [torch.cat(each) if each else None for each in parts]


def _states(averages: list[Average | None]) -> list[Any]:
    return [None if average is None else average.state() for average in averages]


def _merged(posterior: "Posterior", states: Iterable[Any]) -> Average:
    """The average of all processes, added up in their order: the same bits in all of them."""
    average = posterior.likelihood.average()
    with full_precision(posterior.members.device):
        for state in states:
            if state is not None:
                average.merge(state)
    return average


def _shown(posterior: "Posterior", here: Share) -> dict[str, Any]:
    """Whether there is a bar in this process, and for what."""
    return {"shown": posterior.progress and here.rank == 0, "share": here}


def _key(posterior: "Posterior", *asked: str | bool | None) -> int:
    """Of the draws, the weights and what is asked, which all processes must have in common."""
    numbers = [(draw.chain_id, draw.step) for draw in posterior.draws]
    return zlib.crc32(posterior.weights.tobytes(), zlib.crc32(repr((numbers, asked)).encode()))
