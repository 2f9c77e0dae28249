"""The chains of a fit: what they learn from, how they are divided, and what they have found."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from joblib.parallel import get_active_backend
from numpy.typing import NDArray
from sklearn.utils.parallel import Parallel, delayed
from torch import Tensor

from csgmcmc.arguments import check_count
from csgmcmc.draws import MemoryDraws
from csgmcmc.estimators.batches import Batches
from csgmcmc.estimators.ladder import Ladder
from csgmcmc.estimators.record import RunRecord

MOST_JOBS = 2**10


@dataclass(frozen=True)
class Plan:
    """What all chains of a fit learn from, and how.

    Attributes:
        features: standardised rows of the table.
        columns: targets, and weights whose mean is 1.
        rows: for each chain, the numbers of the rows that it learns from.
        total_weight: sum of the weights as they were given: N, if all rows are learned from.
        ladder: prior and temperature of each cycle.
        seed: of the noise; chains add their number for initial weights and the order of rows.
        batch_size: maximum number of rows in a minibatch.
    """

    features: Tensor
    columns: tuple[Tensor, ...]
    rows: list[Tensor]
    total_weight: float
    ladder: Ladder
    seed: int
    batch_size: int

    @property
    def rows_per_epoch(self) -> int:
        """The same for all chains, so that they are as long."""
        return min(len(own) for own in self.rows)

    @property
    def num_data(self) -> float:
        """N of each chain."""
        return self.total_weight * self.rows_per_epoch / len(self.features)

    def batches(self, chain_ids: Sequence[int], *, stacked: bool) -> Batches:
        """The minibatches of some chains, which do not depend on those of others."""
        rows = [self.rows[chain] for chain in chain_ids]
        seeds = [self.seed + chain for chain in chain_ids]
        data = (self.features, self.columns, rows, self.batch_size, seeds)
        return Batches(*data, stacked=stacked, rows_per_epoch=self.rows_per_epoch)


@dataclass(frozen=True)
class Run:
    """What one chain, or some that ran as one stack, have found.

    Attributes:
        chains: number of them.
        draws: their draws.
        losses: training loss of each step, the mean of the chains.
        record: what a check needs.
    """

    chains: int
    draws: MemoryDraws
    losses: list[float]
    record: RunRecord


def check_n_jobs(n_jobs: Any) -> int | None:
    """None, or a number of processes as joblib takes it."""
    if n_jobs is None:
        return None
    count = check_count("n_jobs", n_jobs, at_least=-MOST_JOBS, below=MOST_JOBS)
    if count == 0:
        raise ValueError("n_jobs must be None or a whole number other than 0, got 0")
    return count


def effective_jobs(n_jobs: Any) -> int:
    """How many processes joblib would use; 1 where it has threads, which share random numbers."""
    count: Any = check_n_jobs(n_jobs)
    backend: Any = get_active_backend()[0]
    return 1 if getattr(backend, "supports_sharedmem", False) else effective_n_jobs(count)


def divided(chains: int, jobs: int, *, stacked: bool) -> list[range]:
    """The chains that run together: one by one, or as one stack in each of the processes."""
    if not stacked:
        return [range(chain, chain + 1) for chain in range(chains)]
    jobs = min(jobs, chains)
    ends = [chains * job // jobs for job in range(jobs + 1)]
    return [range(first, last) for first, last in pairwise(ends)]


def in_parallel(function: Any, arguments: Sequence[tuple[Any, ...]], jobs: int) -> list[Run]:
    """Call `function` with each of the arguments, by joblib; one after another if `jobs` is 1."""
    call = delayed(function)
    return Parallel(n_jobs=min(jobs, len(arguments)))(call(*each) for each in arguments)  # pyright: ignore[reportReturnType]


def draws_of(runs: Sequence[Run]) -> MemoryDraws:
    """The draws of all runs."""
    if len(runs) == 1:
        return runs[0].draws
    found = MemoryDraws()
    for run in runs:
        for draw in run.draws:
            place = {"step": draw.step, "cycle": draw.cycle, "stage": draw.stage}
            found.append(draw.tensors(), chain_id=draw.chain_id, **place)
    return found


def losses_of(runs: Sequence[Run]) -> NDArray[np.float64]:
    """The loss of each step, the mean of all chains."""
    weights = [run.chains for run in runs]
    return np.average([run.losses for run in runs], axis=0, weights=weights)
