"""The cycles of a fit: minibatches, samplers, and the networks side by side."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from csgmcmc.draws import Draw
from csgmcmc.estimators.ladder import Floats, Rung
from csgmcmc.estimators.network import SCALE_PRIOR, Perceptron, Perceptrons, WithNoise
from csgmcmc.loop import Chain
from csgmcmc.randomness import seeded
from csgmcmc.samplers import AdamSGHMC
from csgmcmc.schedules import Cyclical

DAMPING = 0.01  # of the preconditioner while sampling
RUN_SEED_OFFSET = 20_000  # from the seeds of initial weights and of the order of rows

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
        copies: how often each chain's batch is repeated along that dimension.
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
        copies: int = 1,
    ) -> None:
        self.dataset = TensorDataset(*table)
        self.rows, self.seed, self.stacked, self.copies = rows, seed, stacked, copies
        self.chain_ids = range(len(rows)) if chain_ids is None else chain_ids
        self.rows_per_epoch = min(len(own) for own in rows)
        self.batch_size = min(batch_size, self.rows_per_epoch)
        seeds = [seed + chain_id for chain_id in self.chain_ids]
        self.generators = [torch.Generator().manual_seed(each) for each in seeds]

    def of_chains(
        self, chain_ids: Sequence[int], *, stacked: bool, copies: int = 1, seed: int | None = None
    ) -> "Batches":
        """The batches of some chains, from the start."""
        seed = self.seed if seed is None else seed
        shared = (self.dataset.tensors, self.rows, self.batch_size, seed)
        return Batches(*shared, chain_ids=chain_ids, stacked=stacked, copies=copies)

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
            for flat in zip(*gathered, strict=True):
                parts = [self._stacked(part) for part in flat] if self.stacked else flat
                yield parts[0], tuple(parts[1:])

    def _stacked(self, flat: Tensor) -> Tensor:
        parts = flat.unflatten(0, (len(self.chain_ids), -1))
        return parts.repeat_interleave(self.copies, 0) if self.copies > 1 else parts


class Plan(NamedTuple):
    """What all chains and cycles of a fit have in common."""

    loss: Callable[[Any, Any], Tensor]
    lr: float
    num_data: float
    exploration: float
    draws_per_cycle: int
    seed: int
    shows: bool  # the progress of the first process

    def schedule(self, steps: int) -> Cyclical:
        """One cycle, long enough to sample, which keeps as many draws as it samples steps."""
        steps = max(steps, math.ceil(2 / (1 - self.exploration)))
        sampling = sum(position / steps >= self.exploration for position in range(steps))
        draws = min(self.draws_per_cycle, sampling)
        return Cyclical(steps, 1, exploration=self.exploration, draws_per_cycle=draws)

    def sampler(
        self, model: nn.Module, priors: Mapping[str, Tensor], temperature: float, **noise: int
    ) -> AdamSGHMC:
        """A sampler of parameters that have Gaussian priors of the precisions `priors`, by name."""
        groups: list[tuple[list[nn.Parameter], ByShape]] = []
        for name, param in model.named_parameters():
            if not param.requires_grad:
                continue
            # A step of few groups is quicker: parameters of one shape usually have one prior.
            for params, prior in groups:
                if prior.takes(param, priors[name]):
                    params.append(param)
                    break
            else:
                groups.append(([param], ByShape({param.shape: priors[name]})))
        options: Any = {"num_data": self.num_data, "temperature": temperature, **noise}
        if isinstance(model, Perceptrons):
            options["fused"] = True
        each = [{"params": params, "prior": prior} for params, prior in groups]
        return AdamSGHMC(each, self.lr, damping=DAMPING, **options)


class ByShape:
    """Gradient of -log prior: Gaussians whose precision depends on the shape of a parameter."""

    def __init__(self, precisions: dict[torch.Size, Tensor]) -> None:
        self.precisions = precisions

    def takes(self, param: Tensor, precision: Tensor) -> bool:
        """Whether `param` fits in, after which it belongs here."""
        return torch.equal(self.precisions.setdefault(param.shape, precision), precision)

    def __call__(self, param: Tensor) -> Tensor:
        return param * self.precisions[param.shape].to(param.device)


class Cycle(NamedTuple):
    """One cycle of some networks."""

    draws: list[list[Draw]]  # of each network
    losses: Floats  # of each step, the mean over the networks
    runs: list[tuple[nn.Module, AdamSGHMC]]  # the network of each rung of the first chain, alone


def run_cycle(
    plan: Plan,
    schedule: Cyclical,
    number: int,
    networks: Sequence[nn.Module],
    rungs: Sequence[Rung],
    batches: Batches,
) -> Cycle:
    """Cycle `number` of chains that have a network for each of `rungs`: perceptrons as one stack.

    Temperature T is U / T at temperature 1, and a constant factor of U leaves Adam's steps as they
    are: so networks at all temperatures have one lr.
    """
    stacked = isinstance(networks[0], Perceptron)
    each, seed = range(len(networks)), plan.seed + number
    draws, runs, losses = [], [], []
    for ids in [each] if stacked else [each[one : one + 1] for one in each]:
        settings = [rungs[one % len(rungs)] for one in ids]
        model = Perceptrons([networks[one] for one in ids]) if stacked else networks[ids[0]]
        scales = torch.tensor([rung.temperature or 1.0 for rung in settings])
        priors = [precisions_of(networks[one], rungs[one % len(rungs)]) for one in ids]
        for own, scale in zip(priors, scales, strict=True):
            own.update({name: precision / scale for name, precision in own.items()})
        if stacked:
            named = {
                f"inner.{name}": torch.stack([own[name] for own in priors]) for name in priors[0]
            }
        else:
            named, scales = priors[0], scales[0]
        hot = float(rungs[0].temperature > 0)  # all are, or none is
        sampler = plan.sampler(model, named, hot, seed=seed, chain_id=ids[0])
        chains = batches.chain_ids if stacked else [batches.chain_ids[ids[0] // len(rungs)]]
        copies = len(rungs) if stacked else 1
        data = batches.of_chains(chains, stacked=stacked, copies=copies, seed=seed)

        def loss(outputs: Any, columns: Any, scales: Tensor = scales) -> Tensor:
            found = plan.loss(outputs, columns)
            losses.append(found.detach().mean().item())
            return found / scales

        options: Any = {"watch": False, "progress": plan.shows and ids[0] == 0}
        # Random numbers of a user's module, as for dropout, do not depend on the other networks.
        with seeded(seed + RUN_SEED_OFFSET + ids[0]):
            found = Chain(model, loss, data, sampler, schedule, **options).run()
        for place, one in enumerate(ids):
            draws.append(found.of_chain(one))
            draws[-1][-1].load_into(networks[one])
            if one < len(rungs):
                index = place if stacked else ...
                alone = _alone(plan, sampler, model, networks[one], rungs[one], index)
                runs.append((networks[one], alone))
    return Cycle(draws, np.reshape(losses, (-1, schedule.steps)).mean(0), runs)


def precisions_of(network: nn.Module, rung: Rung) -> dict[str, Tensor]:
    """The precision of the prior of each parameter, by its name."""
    if isinstance(network, Perceptron):
        return network.precisions(rung.prior_scale)
    found = {name: torch.tensor(1 / rung.prior_scale**2) for name, _ in network.named_parameters()}
    if isinstance(network, WithNoise):
        found["noise"] = torch.tensor(1 / SCALE_PRIOR**2)
    return found


def _alone(
    plan: Plan, sampler: AdamSGHMC, model: nn.Module, network: nn.Module, rung: Rung, index: Any
) -> AdamSGHMC:
    """A sampler of one network at its own temperature, which moves it as `sampler` did."""
    one = plan.sampler(network, precisions_of(network, rung), rung.temperature)
    root = math.sqrt(rung.temperature)
    for param, shared in zip(network.parameters(), model.parameters(), strict=True):
        state = sampler.state.get(shared, {})
        if "velocity" in state:
            scale, velocity = state["scale"][index] / root, state["velocity"][index] * root
            one.state[param] = {"scale": scale, "velocity": velocity}
    return one
