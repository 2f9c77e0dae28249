"""The chains of a fit: their priors, minibatches and processes, and the weights of their cycles.

Every chain holds out a fold of the rows. Together the chains predict every row with networks that
have not seen it, and these predictions determine the weights of the cycles.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from joblib import effective_n_jobs
from joblib.parallel import get_active_backend
from numpy.typing import NDArray
from sklearn.utils.parallel import Parallel, delayed
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from csgmcmc.arguments import check_count, check_number, shown
from csgmcmc.draws import MemoryDraws
from csgmcmc.posterior import Posterior
from csgmcmc.posterior.weights import log_mean, stacking_weights
from csgmcmc.samplers import Sampler
from csgmcmc.schedules import Cyclical

Numbers = NDArray[np.int64]

# Rows are gathered for this many batches together: gathering one batch takes a good part of a step
# of a small network, and gathering all would copy a large table.
BATCHES_AT_ONCE = 16


class Batches:
    """Minibatches of nearly equal size from a table, in a new order each epoch.

    A batch is a pair: the features, and a tuple of the other columns. If `stacked`, all have a
    leading dimension for chains, and every chain has rows and an order of its own. Chains may
    differ by a few rows: in each epoch all use as many as the shortest has, at random. A
    `DataLoader` would take most of the time, and its last batch may be a single row, which batch
    normalisation rejects.

    Args:
        table: the features, and the other columns that the loss needs.
        rows: for each chain, its row numbers.
        batch_size: maximum number of rows in a batch of one chain.
        seed: of the order; each chain adds its number.
        chain_ids: the chains to make batches for; by default all. They do not depend on the others.
        stacked: whether batches have a dimension for chains; without it there is one chain.
    """

    draws_globally = False  # the order is from `generators`, and nothing else is random

    def __init__(
        self,
        table: Sequence[Tensor],
        rows: Sequence[Tensor],
        batch_size: int,
        seed: int,
        *,
        chain_ids: Sequence[int] | None = None,
        stacked: bool = False,
    ) -> None:
        self.dataset = TensorDataset(*table)
        self.rows, self.seed, self.stacked = rows, seed, stacked
        self.chain_ids = range(len(rows)) if chain_ids is None else chain_ids
        self.rows_per_epoch = min(len(own) for own in rows)
        self.batch_size = min(batch_size, self.rows_per_epoch)
        seeds = [seed + chain_id for chain_id in self.chain_ids]
        self.generators = [torch.Generator().manual_seed(each) for each in seeds]

    def of_chains(self, chain_ids: Sequence[int], *, stacked: bool) -> "Batches":
        """The batches of some chains, from the start."""
        shared = (self.dataset.tensors, self.rows, self.batch_size, self.seed)
        return Batches(*shared, chain_ids=chain_ids, stacked=stacked)

    def __len__(self) -> int:
        return math.ceil(self.rows_per_epoch / self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, tuple[Tensor, ...]]]:
        shuffled = []
        for chain_id, generator in zip(self.chain_ids, self.generators, strict=True):
            own = self.rows[chain_id]
            order = torch.randperm(len(own), generator=generator, device="cpu")
            shuffled.append(own[order[: self.rows_per_epoch]])
        batches = torch.stack(shuffled).tensor_split(len(self), dim=1)
        for first in range(0, len(batches), BATCHES_AT_ONCE):
            some = batches[first : first + BATCHES_AT_ONCE]
            numbers = torch.cat([batch.flatten() for batch in some])
            sizes = [batch.numel() for batch in some]
            gathered = [each.index_select(0, numbers).split(sizes) for each in self.dataset.tensors]
            shape = (len(self.chain_ids), -1)
            for flat in zip(*gathered, strict=True):
                parts = [part.unflatten(0, shape) for part in flat] if self.stacked else flat
                yield parts[0], tuple(parts[1:])


class Run(NamedTuple):
    """The result of one chain, or of several."""

    parts: tuple[nn.Module, Sampler, Cyclical]  # of the last, for a `Stepper`
    draws: MemoryDraws
    losses: NDArray[np.float64]  # of each step, the mean over the chains


def run_in_parallel(
    run_chains: Callable[[list[nn.Module], Batches, bool], Run],
    models: list[nn.Module],
    batches: Batches,
    *,
    n_jobs: int | None,
    stacked: bool,
) -> Run:
    """Run the chains by joblib: one by one, or as one stack in each process.

    `run_chains` takes the models and batches of some chains, and whether it may show progress.
    """
    jobs = effective_jobs(n_jobs)
    groups = divide_chains(len(models), jobs, stacked=stacked)
    calls = [
        (models[ids[0] : ids[-1] + 1], batches.of_chains(ids, stacked=stacked), jobs == 1 or not i)
        for i, ids in enumerate(groups)
    ]
    parallel = Parallel(n_jobs=min(jobs, len(calls)))
    runs: Any = parallel(delayed(run_chains)(*each) for each in calls)
    if len(runs) == 1:
        return runs[0]
    draws = MemoryDraws()
    for draw in (draw for run in runs for draw in run.draws):
        position = {"step": draw.step, "cycle": draw.cycle, "stage": draw.stage}
        draws.append(draw.tensors(), chain_id=draw.chain_id, **position)
    losses = np.average([run.losses for run in runs], axis=0, weights=[len(ids) for ids in groups])
    return Run(runs[-1].parts, draws, losses)


def effective_jobs(n_jobs: int | None) -> int:
    """The number of processes joblib would use; 1 for threads, which share random numbers."""
    backend: Any = get_active_backend()[0]
    count: Any = n_jobs
    return 1 if getattr(backend, "supports_sharedmem", False) else effective_n_jobs(count)


def divide_chains(chains: int, jobs: int, *, stacked: bool) -> list[range]:
    """The chains that run together: one by one, or nearly equal stacks, one for each process."""
    groups = min(jobs, chains) if stacked else chains
    ends = [chains * group // groups for group in range(groups + 1)]
    return [range(first, last) for first, last in pairwise(ends)]


class Rung(NamedTuple):
    """One cycle samples with the prior N(0, prior_scale^2) of every weight, at a temperature."""

    prior_scale: float
    temperature: float


def make_ladder(prior_scale: Any, temperature: Any, cycles: int) -> tuple[Rung, ...]:
    """One rung for each cycle, from the narrow prior to the wide one.

    With a pair of temperatures, the last cycle samples the wide prior at the second temperature.
    """
    count = check_count("cycles", cycles, at_least=1, below=10_000)
    narrow, wide = _pair("prior_scale", prior_scale, at_least=1e-10, at_most=1e10)
    usual, last = _pair("temperature", temperature, at_least=0)
    if narrow > wide:
        raise ValueError(f"prior_scale must go from narrow to wide, got {shown(prior_scale)}")
    if count == 1 and (narrow, usual) != (wide, last):
        got = f"prior_scale={shown(prior_scale)}, temperature={shown(temperature)}"
        raise ValueError(f"cycles=1 has one prior_scale and one temperature, got {got}")
    colder = [] if usual == last else [Rung(wide, last)]
    climbing = count - len(colder)
    scales = np.geomspace(narrow, wide, climbing).tolist() if climbing > 1 else [wide]
    return (*(Rung(scale, usual) for scale in scales), *colder)


def _pair(name: str, value: Any, **bounds: float) -> tuple[float, float]:
    """A pair of numbers; a single number is used twice."""
    pair = value if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2:
        raise ValueError(f"{name} must be a number or a pair of numbers, got {shown(value)}")
    first, second = (check_number(name, each, **bounds) for each in pair)
    return first, second


def make_folds(labels: Numbers, count: int, random: np.random.RandomState) -> list[Numbers]:
    """Row numbers of `count` random folds, with equal shares of each label."""
    order = random.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    return [np.sort(order[first::count]) for first in range(count)]


def stack_cycles(
    posterior: Posterior,
    held_out: Sequence[Numbers],
    features: Tensor,
    targets: Tensor,
    row_weights: Tensor,
) -> NDArray[np.float64]:
    """The weights of the cycles, over all chains, that predict held-out rows best.

    Chain i was fitted without the rows `held_out[i]`.
    """
    cycles = np.array([draw.cycle for draw in posterior.draws])
    chain_ids = np.array([draw.chain_id for draw in posterior.draws])
    scores = []
    for chain_id, rows in enumerate(held_out):
        own = np.flatnonzero(chain_ids == chain_id)
        some = posterior.with_draws([posterior.draws[number] for number in own])
        log_scores = some.log_scores([(features[rows], targets[rows])]).cpu().numpy()
        scores.append([log_mean(log_scores[cycles[own] == one]) for one in np.unique(cycles)])
    point_weights = row_weights[torch.from_numpy(np.concatenate(held_out))].numpy()
    # A tenth of a row for each cycle: negligible for many rows, and with fifty rows it keeps one
    # cycle from getting all the weight.
    log_scores = np.concatenate(scores, axis=1)
    return stacking_weights(log_scores, point_weights=point_weights, smoothing=0.1)
