"""The members of a fit, the cycles of each rung: their draws, and their weights."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import nn

from csgmcmc.draws import Draw, MemoryDraws
from csgmcmc.estimators.chains import Cycle
from csgmcmc.estimators.ladder import Floats
from csgmcmc.samplers import AdamSGHMC
from csgmcmc.schedules import Joined, Schedule

MIN_WEIGHT = 0.01  # of a member, below which its draws are dropped
MIN_WEIGHT_TO_GO_ON = 0.05  # of all cycles of a rung

Numbers = Sequence[int]
Run = tuple[nn.Module, AdamSGHMC, Joined]
"""A network, its sampler, and the schedule of all its cycles: the parts of a `Stepper`."""


@dataclass
class Members:
    """What the cycles have found so far.

    Attributes:
        rungs: number of rungs of each chain.
        names: cycle and rung of each member.
        draws: those of each member, by chain, cycle and rung.
        runs: one run of each rung, of the first chain.
        losses: mean training loss of each step.
        evidence: what each member says of the held-out rows, for each cycle.
        shares: weight of each member.
        scores: mean log score of the held-out rows after each cycle.
    """

    rungs: int
    names: list[tuple[int, int]] = field(default_factory=list)
    draws: dict[tuple[int, int, int], list[Draw]] = field(default_factory=dict)
    runs: dict[int, Run] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    evidence: list[Floats] = field(default_factory=list)
    shares: Floats = field(default_factory=lambda: np.ones(0))
    scores: list[float] = field(default_factory=list)

    def add(self, found: Cycle, schedules: Sequence[Schedule], alive: Numbers) -> None:
        """Add the cycle of `schedules[-1]`, which had the rungs `alive`."""
        cycle, first = len(schedules) - 1, sum(one.steps for one in schedules[:-1])
        self.losses += found.losses.tolist()
        for index, own in enumerate(found.draws):
            chain, rung = index // len(alive), alive[index % len(alive)]
            place: Any = {"chain_id": chain * self.rungs + rung, "cycle": cycle}
            numbered = [replace(draw, step=first + draw.step, **place) for draw in own]
            self.draws[chain, cycle, rung] = numbered
        for rung, (network, sampler) in zip(alive, found.runs, strict=True):
            self.runs[rung] = (network, sampler, Joined(tuple(schedules)))
        self.names += [(cycle, rung) for rung in alive]
        self.shares = np.full(len(self.names), 1 / len(self.names))

    def last_of(self, chain: int, alive: Numbers) -> tuple[list[Draw], list[int]]:
        """The draws of the last cycle of a chain, and the rung of each."""
        cycle = self.names[-1][0]
        draws = [(draw, rung) for rung in alive for draw in self.draws[chain, cycle, rung]]
        return [draw for draw, _ in draws], [rung for _, rung in draws]

    @property
    def gain(self) -> float:
        """What the last cycle has added to the score."""
        return float(np.diff(self.scores[-2:])[0]) if len(self.scores) > 1 else np.inf

    def going_on(self, alive: Numbers) -> list[int]:
        """The rungs that are worth a further cycle: the better half, if they have a weight."""
        by_rung = np.bincount([rung for _, rung in self.names], self.shares, self.rungs)
        most = max(len(alive) // 2, min(len(alive), 2))
        best = sorted(alive, key=lambda rung: by_rung[rung])[-most:]
        return [one for one in alive if one in best and by_rung[one] >= MIN_WEIGHT_TO_GO_ON]

    def weights(self) -> Floats:
        """The weight of each member, of shape (cycles, rungs)."""
        shares = np.where(self.shares < min(MIN_WEIGHT, self.shares.max()), 0.0, self.shares)
        found = np.zeros((self.names[-1][0] + 1, self.rungs))
        found[tuple(np.transpose(self.names))] = shares / shares.sum()
        return found

    def kept(self, weights: Floats) -> MemoryDraws:
        """The draws of the members that have a weight, chain by chain."""
        draws = MemoryDraws()
        for (_, cycle, rung), own in sorted(self.draws.items(), key=lambda item: item[0]):
            for draw in own if weights[cycle, rung] else ():
                where: Any = {"step": draw.step, "cycle": draw.cycle, "chain_id": draw.chain_id}
                draws.append(draw.tensors(), **where)
        return draws
