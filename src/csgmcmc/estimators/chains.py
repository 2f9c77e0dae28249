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
from csgmcmc.estimators.network import Perceptrons, is_perceptron, precisions_of
from csgmcmc.loop import Chain
from csgmcmc.randomness import seeded
from csgmcmc.samplers import AdamSGHMC
from csgmcmc.schedules import Cyclical, Joined, Tick

DAMPING = 0.01  # of the preconditioner while sampling
MIN_WEIGHT = 0.01  # of a member, below which its draws are dropped
MIN_WEIGHT_TO_GO_ON = 0.05  # of all cycles of a rung
RUN_SEED_OFFSET = 20_000  # from the seeds of initial weights and of the order of rows

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
        chain_ids: the chains to make batches for; by default all.
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
        chain_ids: Sequence[int] | None = None,
        copies: int = 0,
    ) -> None:
        self.dataset = TensorDataset(*table)
        self.rows, self.copies = rows, copies
        self.chain_ids = range(len(rows)) if chain_ids is None else chain_ids
        self.rows_per_epoch = min(len(own) for own in rows)
        self.batch_size = min(batch_size, self.rows_per_epoch)
        seeds = [seed + chain_id for chain_id in self.chain_ids]
        self.generators = [torch.Generator().manual_seed(each) for each in seeds]

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
            shape, copies = (len(self.chain_ids), -1), self.copies
            for flat in zip(*gathered, strict=True):
                parts: Any = flat
                if copies:
                    parts = [each.unflatten(0, shape).repeat_interleave(copies, 0) for each in flat]
                yield parts[0], tuple(parts[1:])


@dataclass
class Networks:
    """The networks of a fit, for each chain one for each rung, and what their cycles have found."""

    networks: list[nn.Module]  # chain by chain; perceptrons run as one stack
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
    samplers: dict[int, AdamSGHMC] = field(default_factory=dict)  # of each rung of the first chain
    losses: list[float] = field(default_factory=list)  # of each step, the mean over networks

    def run_cycle(self, steps: int, alive: Sequence[int]) -> None:
        """A cycle of the rungs `alive`, of `steps` steps or more if it is too short to sample."""
        cycle, count, beta = len(self.schedules), len(self.ladder), self.exploration
        steps = max(steps, math.ceil(2 / (1 - beta)))
        draws = min(self.draws_per_cycle, int((np.arange(steps) / steps >= beta).sum()))
        self.schedules.append(Careful(steps, 1, beta, draws, sampling_lr=self.sampling_lr))
        self.members += [(cycle, rung) for rung in alive]
        self.shares = np.full(len(self.members), 1 / len(self.members))
        ids = [chain * count + rung for chain in self.batches.chain_ids for rung in alive]
        each = range(len(ids))
        stacked = is_perceptron(self.networks[0])
        losses: list[float] = []
        for places in [each] if stacked else [each[one : one + 1] for one in each]:
            self._run([ids[place] for place in places], places[0], cycle, losses)
        self.losses += np.reshape(losses, (-1, steps)).mean(0).tolist()

    def _run(self, ids: list[int], first: int, cycle: int, losses: list[float]) -> None:
        """Run a stack of perceptrons, or one network; `first` is the number of its noise.

        Temperature T is U / T at temperature 1, and a constant factor of U leaves Adam's steps as
        they are: so networks at all temperatures have one lr.
        """
        count, networks = len(self.ladder), [self.networks[one] for one in ids]
        rungs = [self.ladder[one % count] for one in ids]
        scales = torch.tensor([rung.temperature or 1.0 for rung in rungs], device="cpu")
        priors = [
            {name: each / scale for name, each in precisions_of(network, rung.prior_scale).items()}
            for network, rung, scale in zip(networks, rungs, scales, strict=True)
        ]
        model, named = networks[0], priors[0]
        if is_perceptron(model):
            model = Perceptrons(networks)
            named = {f"inner.{key}": torch.stack([own[key] for own in priors]) for key in named}
        else:
            scales = scales[0]
        seed, hot = self.seed + cycle + 1, float(rungs[0].temperature > 0)  # all are, or none is
        sampler = self._sampler(model, named, hot, seed=seed, chain_id=first)
        chains = sorted({one // count for one in ids})
        copies = len(ids) // len(chains) if isinstance(model, Perceptrons) else 0
        shared = (self.batches.dataset.tensors, self.batches.rows, self.batches.batch_size)
        data = Batches(*shared, seed, chain_ids=chains, copies=copies)

        def loss(outputs: Any, columns: Any) -> Tensor:
            found = self.loss(outputs, columns)
            losses.append(found.detach().mean().item())
            return found / scales.to(found.device)

        options: Any = {"watch": False, "progress": self.shows and first == 0}
        # Random numbers of a user's module, as for dropout, do not depend on the other networks.
        with seeded(seed + RUN_SEED_OFFSET + first):
            found = Chain(model, loss, data, sampler, self.schedules[cycle], **options).run()
        for place, one in enumerate(ids):
            chain, rung = divmod(one, count)
            own = self.draws[chain, cycle, rung] = found.of_chain(first + place)
            own[-1].load_into(networks[place])
            if chain == 0:
                index = place if isinstance(model, Perceptrons) else ...
                self.samplers[rung] = self._alone(sampler, model, rung, index)

    def _sampler(
        self, model: nn.Module, priors: Mapping[str, Tensor], temperature: float, **noise: int
    ) -> AdamSGHMC:
        """A sampler of parameters that have Gaussian priors of the precisions `priors`, by name."""
        groups: list[dict[str, Any]] = []
        for name, param in model.named_parameters():
            if not param.requires_grad:
                continue
            # A step of few groups is quicker: parameters of one shape usually have one prior.
            for group in groups:
                if group["prior"].takes(param, priors[name]):
                    group["params"].append(param)
                    break
            else:
                groups.append({"params": [param], "prior": ByShape({param.shape: priors[name]})})
        options: Any = {**self.options, **noise, "temperature": temperature}
        return AdamSGHMC(groups, damping=DAMPING, **options)

    def _alone(self, sampler: AdamSGHMC, model: nn.Module, rung: int, index: Any) -> AdamSGHMC:
        """A sampler of one network at its own temperature, which moves it as `sampler` did."""
        network, (width, temperature, _) = self.networks[rung], self.ladder[rung]
        one = self._sampler(network, precisions_of(network, width), temperature)
        root = math.sqrt(temperature)
        for param, shared in zip(network.parameters(), model.parameters(), strict=True):
            state = sampler.state.get(shared, {})
            if "velocity" in state:
                scale, velocity = state["scale"][index] / root, state["velocity"][index] * root
                one.state[param] = {"scale": scale, "velocity": velocity}
        return one

    def run_of(self, rung: int) -> tuple[nn.Module, AdamSGHMC, Joined]:
        """The parts of a `Stepper` of the network of a rung."""
        cycles = sum(other == rung for _, other in self.members)
        return self.networks[rung], self.samplers[rung], Joined(tuple(self.schedules[:cycles]))

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
        return param * self.precisions[param.shape].to(param.device)
