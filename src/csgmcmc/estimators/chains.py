"""The networks of a fit side by side: their minibatches, their cycles and what these have found."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from csgmcmc.draws import Draw, MemoryDraws
from csgmcmc.estimators.ladder import Floats, Rung
from csgmcmc.estimators.network import Perceptron, Perceptrons, WithNoise
from csgmcmc.loop import Chain
from csgmcmc.samplers import AdamSGHMC
from csgmcmc.schedules import Cyclical, Joined, Tick

DAMPING = 0.01  # of the preconditioner while sampling
MIN_WEIGHT = 0.01  # of a member, below which its draws are dropped
MIN_WEIGHT_TO_GO_ON = 0.05  # of all cycles of a rung

# Rows are gathered for this many batches together: gathering one batch takes a good part of a step
# of a small network, and gathering all would copy a large table.
BATCHES_AT_ONCE = 16


class Batches:
    """Minibatches of nearly equal size from a table, in a new order each epoch.

    A batch is a pair: the features, and a tuple of the other columns. With `copies` all have a
    leading dimension for networks, and every chain has rows and an order of its own. Chains may
    differ by a few rows: in each epoch all use as many as the shortest has, at random.

    Args:
        table: the features, and the other columns that the loss needs.
        rows: for each chain, its row numbers.
        batch_size: maximum number of rows in a batch of one chain.
        seed: of the order; each chain adds its number.
        copies: number of networks of each chain, which have the same batches; 0 is one network of
            one chain, without a dimension for networks.
    """

    draws_globally = False  # the order is from `generators`, and nothing else is random

    def __init__(
        self,
        table: Sequence[Tensor],
        rows: Sequence[Tensor],
        batch_size: int,
        seed: int,
        *,
        copies: int = 0,
    ) -> None:
        self.dataset = TensorDataset(*table)
        self.rows, self.copies = rows, copies
        self.rows_per_epoch = min(len(own) for own in rows)
        self.batch_size = min(batch_size, self.rows_per_epoch)
        self.generators = [torch.Generator().manual_seed(seed + i) for i in range(len(rows))]

    def __len__(self) -> int:
        return math.ceil(self.rows_per_epoch / self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, tuple[Tensor, ...]]]:
        shuffled = []
        for own, generator in zip(self.rows, self.generators, strict=True):
            order = torch.randperm(len(own), generator=generator, device="cpu")
            shuffled.append(own[order[: self.rows_per_epoch]])
        batches = torch.stack(shuffled).tensor_split(len(self), dim=1)
        for first in range(0, len(batches), BATCHES_AT_ONCE):
            some = batches[first : first + BATCHES_AT_ONCE]
            numbers = torch.cat([batch.flatten() for batch in some])
            sizes = [batch.numel() for batch in some]
            gathered = [each.index_select(0, numbers).split(sizes) for each in self.dataset.tensors]
            shape, copies = (len(self.rows), -1), self.copies
            for flat in zip(*gathered, strict=True):
                parts: Any = flat
                if copies:
                    parts = [each.unflatten(0, shape).repeat_interleave(copies, 0) for each in flat]
                yield parts[0], tuple(parts[1:])


@dataclass
class Networks:
    """The networks of a fit, for each chain one for each rung, and what their cycles have found."""

    networks: Sequence[Perceptron | WithNoise]  # chain by chain
    ladder: Sequence[Rung]
    batches: Batches  # of all chains
    loss: Callable[[Any, Any], Tensor]  # of each network
    exploration: float  # share of a cycle
    sampling_lr: float  # share of lr in the rest of it
    draws_per_cycle: int
    options: dict[str, float]  # of `AdamSGHMC`
    seed: int  # of the noise; each cycle adds its number
    shows: bool  # the progress

    schedules: list[Cyclical] = field(default_factory=list)  # of each cycle
    members: list[tuple[int, int]] = field(default_factory=list)  # the cycle and rung of each
    shares: Floats = field(default_factory=lambda: np.ones(0))  # the weight of each
    draws: dict[tuple[int, int, int], list[Draw]] = field(default_factory=dict)  # chain and member
    # Of each rung, the sampler and the stack that it was last in, and the place of its first chain
    last: dict[int, tuple[AdamSGHMC, Perceptrons, int]] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)  # of each step, the mean over networks

    def run_cycle(self, steps: int, alive: Sequence[int]) -> None:
        """A cycle of the rungs `alive`, of `steps` steps or more if it is too short to sample.

        Temperature T is U / T at temperature 1, and a constant factor of U leaves Adam's steps as
        they are: so networks at all temperatures have one lr.
        """
        cycle, beta, chains = len(self.schedules), self.exploration, len(self.batches.rows)
        steps = max(steps, math.ceil(2 / (1 - beta)))
        draws = min(self.draws_per_cycle, int((np.arange(steps) / steps >= beta).sum()))
        self.schedules.append(Careful(steps, 1, beta, draws, sampling_lr=self.sampling_lr))
        self.members += [(cycle, rung) for rung in alive]
        self.shares = np.full(len(self.members), 1 / len(self.members))
        ids = [chain * len(self.ladder) + rung for chain in range(chains) for rung in alive]
        networks = [self.networks[one] for one in ids]
        rungs = [self.ladder[rung] for rung in alive] * chains
        scales = torch.tensor([rung.temperature or 1.0 for rung in rungs], device="cpu")
        each = [
            {name: found / scale for name, found in network.precisions(rung.prior_scale).items()}
            for network, rung, scale in zip(networks, rungs, scales, strict=True)
        ]
        priors = {f"inner.{name}": torch.stack([own[name] for own in each]) for name in each[0]}
        stack, seed = Perceptrons(networks), self.seed + cycle + 1
        hot = float(rungs[0].temperature > 0)  # all are, or none is
        sampler = self._sampler(stack, priors, hot, seed)
        shared = (self.batches.dataset.tensors, self.batches.rows, self.batches.batch_size)
        data = Batches(*shared, seed, copies=len(alive))

        def loss(outputs: Any, columns: Any) -> Tensor:
            found = self.loss(outputs, columns)
            self.losses.append(found.detach().mean().item())
            return found / scales

        options: Any = {"watch": False, "progress": self.shows}
        found = Chain(stack, loss, data, sampler, self.schedules[cycle], **options).run()
        for place, one in enumerate(ids):
            chain, rung = divmod(one, len(self.ladder))
            own = self.draws[chain, cycle, rung] = found.of_chain(place)
            own[-1].load_into(networks[place])
        self.last |= {rung: (sampler, stack, place) for place, rung in enumerate(alive)}

    def _sampler(
        self, model: nn.Module, priors: Mapping[str, Tensor], temperature: float, seed: int = 0
    ) -> AdamSGHMC:
        """A sampler of parameters that have Gaussian priors of the precisions `priors`, by name."""
        groups: list[dict[str, Any]] = []
        for name, param in model.named_parameters():
            # A step of few groups is quicker: parameters of one shape usually have one prior.
            for group in groups:
                if group["prior"].takes(param, priors[name]):
                    group["params"].append(param)
                    break
            else:
                groups.append({"params": [param], "prior": ByShape({param.shape: priors[name]})})
        options: Any = {**self.options, "temperature": temperature, "seed": seed}
        return AdamSGHMC(groups, damping=DAMPING, **options)

    def run_of(self, rung: int) -> tuple[nn.Module, AdamSGHMC, Joined]:
        """The parts of a `Stepper` of one network of a rung, which moves it as in its stack."""
        network, (width, temperature, _) = self.networks[rung], self.ladder[rung]
        alone = self._sampler(network, network.precisions(width), temperature)
        sampler, stack, place = self.last[rung]
        for param, stacked in zip(network.parameters(), stack.parameters(), strict=True):
            if temperature:
                scale = sampler.state[stacked]["scale"][place] / math.sqrt(temperature)
                alone.state[param] = {"scale": scale}
        cycles = sum(other == rung for _, other in self.members)
        return network, alone, Joined(tuple(self.schedules[:cycles]))

    def last_of(self, chain: int) -> list[list[Draw]]:
        """The draws of each member of the last cycle of a chain."""
        last = len(self.schedules) - 1
        return [self.draws[chain, last, rung] for cycle, rung in self.members if cycle == last]

    def worth_going_on(self, alive: list[int]) -> list[int]:
        """The rungs that are worth a further cycle: the better half, if they have a weight."""
        by_rung = np.bincount([rung for _, rung in self.members], self.shares, len(self.ladder))
        most = max(len(alive) // 2, min(len(alive), 2))
        best = sorted(alive, key=lambda rung: by_rung[rung])[-most:]
        return [one for one in alive if one in best and by_rung[one] >= MIN_WEIGHT_TO_GO_ON]

    def weights(self) -> Floats:
        """The weight of each member, of shape (cycles, rungs)."""
        shares = np.where(self.shares < min(MIN_WEIGHT, self.shares.max()), 0.0, self.shares)
        found = np.zeros((len(self.schedules), len(self.ladder)))
        found[tuple(np.transpose(self.members))] = shares / shares.sum()
        return found

    def kept(self, weights: Floats) -> MemoryDraws:
        """The draws of the members that have a weight, chain by chain."""
        draws, count = MemoryDraws(), len(self.ladder)
        starts = np.cumsum([0, *(one.steps for one in self.schedules)]).tolist()
        for (chain, cycle, rung), own in sorted(self.draws.items(), key=lambda item: item[0]):
            for draw in own if weights[cycle, rung] else ():
                where: Any = {"cycle": cycle, "chain_id": chain * count + rung}
                draws.append(draw.tensors(), step=starts[cycle] + draw.step, **where)
        return draws


@dataclass(frozen=True)
class Careful(Cyclical):
    """A cycle whose sampling stage may have smaller steps.

    Adam's steps at temperature 0 are as large as is stable: the preconditioner, which is then
    frozen, leaves no room for noise, nor for a curvature that grows as the noise of targets falls.
    """

    sampling_lr: float = 1.0

    def tick(self, step: int) -> Tick:
        found = super().tick(step)
        scale = self.sampling_lr if found.stage == "sample" else 1.0
        return replace(found, lr_scale=scale * found.lr_scale)


class ByShape:
    """Gradient of -log prior: Gaussians whose precision depends on the shape of a parameter."""

    def __init__(self, precisions: dict[torch.Size, Tensor]) -> None:
        self.precisions = precisions

    def takes(self, param: Tensor, precision: Tensor) -> bool:
        """Whether `param` fits in, after which it belongs here."""
        return torch.equal(self.precisions.setdefault(param.shape, precision), precision)

    def __call__(self, param: Tensor) -> Tensor:
        return param * self.precisions[param.shape]
