"""Truth: how near each method's predictions are to those of the posterior itself.

For networks of some hundred weights, long HMC with exact gradients gives the posterior predictive
distribution. Every other method is measured against it at equal budgets, as Izmailov et al. 2021
did: agreement of the predicted class, and total variation of the predicted probabilities. It is no
experiment of the paper, which has no such reference. Choices:

- The prior is N(0, 1) for every weight (N * weight_decay = 1), the same for all methods, and the
  temperature of all samplers is 1: the posterior, neither cold nor likelihood-tempered.
- HMC has chains from different starts. Where two halves of the chains differ, the reference is not
  known better: the floor.
- A budget is a number of minibatch gradients. An ensemble shares it among its networks.
- Every method has the step size, of a grid, whose predictions on validation data are nearest to
  HMC's there: all are shown at their best, and no choice sees the test data. The grid is searched
  at all budgets but the largest, which tries the step size of the one before it and the next
  smaller one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csgmcmc.diagnostics import effective_sample_size, r_hat
from paper.devices import device
from paper.experiments.base import Config, Experiment, Record
from paper.experiments.methods import rounded
from paper.experiments.truth_data import Source, load
from paper.experiments.truth_hmc import energy_of_network, hmc
from paper.experiments.truth_networks import flat, logits_of, stacked_weights, unflat
from paper.experiments.truth_runs import RUNS, Plan, Problem, run, shape_of, start
from paper.experiments.truth_scores import disagreement, scores, total_variation

HMC_SEED = 10_000  # starts unlike those of the methods
MIXING_POINTS = 4  # of so many points one is looked at, for R-hat


@dataclass(frozen=True)
class Reference:
    """Length of HMC: paths of each chain before the first draw, and draws, one for each path."""

    chains: int = 8
    burn_in: int = 60
    draws: int = 400


@dataclass(frozen=True)
class Case:
    """A problem, its reference, and the budgets that it is solved with, from small to large.

    `grids` are step sizes by what is trained; "others" are all that have momentum.
    """

    problem: Problem
    reference: Reference
    plans: tuple[Plan, ...]
    grids: dict[str, tuple[float, ...]]

    def grid(self, trained: str) -> tuple[float, ...]:
        """The step sizes of a method."""
        return self.grids.get(trained, self.grids["others"])


@dataclass(frozen=True)
class TruthConfig(Config):
    """Settings of `truth`."""

    seeds: int = 3
    cases: tuple[Case, ...] = ()


DIGITS = Problem("digits", (64, 20, 10), batch=50, weight_decay=1e-3)
MOONS = Problem("moons", (2, 16, 16, 2), batch=20, weight_decay=1e-2)
GRIDS = {"others": (0.01, 0.03, 0.1, 0.3), "cPSGLD": (0.0003, 0.001, 0.003, 0.01)}
SIZES = ((4, 5), (6, 10), (10, 20))
"""Cycles, and draws of each: more for larger budgets."""


def plans(*budgets: int, sizes: Sequence[tuple[int, int]] = SIZES) -> tuple[Plan, ...]:
    """The same settings for several budgets."""
    return tuple(
        Plan(budget, cycles, draws, exploration=0.3, momentum=0.9, dropout=0.1)
        for budget, (cycles, draws) in zip(budgets, sizes, strict=False)
    )


LAPTOP = TruthConfig(
    cases=(
        Case(DIGITS, Reference(), plans(1000, 10_000, 100_000), GRIDS),
        Case(
            MOONS,
            Reference(draws=600, burn_in=100),
            plans(300, 3000, 30_000),
            GRIDS,
        ),
    ),
)


class Truth(Experiment[TruthConfig]):
    """Jobs are the references, and the methods at each budget and step size, all seeds at once."""

    name = "truth"
    summary = "how near each method is to the posterior predictive of long HMC, small networks"
    presets = {
        "paper": LAPTOP,  # which has no such experiment
        "laptop": LAPTOP,
        "smoke": TruthConfig(
            seeds=2,
            cases=(
                Case(
                    Problem("moons", (2, 4, 2), batch=20, weight_decay=1e-2),
                    Reference(chains=4, burn_in=20, draws=20),
                    plans(60, 120, sizes=((2, 2), (2, 4))),
                    {"others": (0.03, 0.1), "cPSGLD": (0.003, 0.01)},
                ),
            ),
        ),
    }

    def jobs(
        self, config: TruthConfig, done: Mapping[str, Record]
    ) -> Mapping[str, Mapping[str, Any]]:
        jobs: dict[str, Mapping[str, Any]] = {}
        for place, case in enumerate(config.cases):
            key = reference_key(case)
            jobs[key] = {"place": place}
            if key in done:
                jobs.update(_method_jobs(config, place, done))
        return jobs

    def run(self, config: TruthConfig, data: Path | None, **options: Any) -> Record:
        case = config.cases[options.pop("place")]
        source = load(case.problem.data).to(device())
        return _methods(config, case, source, **options) if options else _reference(case, source)


def reference_key(case: Case) -> str:
    """The job of a case that the others depend on."""
    return f"{case.problem.data}: HMC"


def _method_jobs(
    config: TruthConfig, place: int, done: Mapping[str, Record]
) -> Iterator[tuple[str, dict[str, Any]]]:
    case = config.cases[place]
    for trained in RUNS:
        for number, plan in enumerate(case.plans):
            lrs = case.grid(trained)
            if number and number == len(case.plans) - 1:
                before = [job_key(case, trained, case.plans[number - 1].budget, lr) for lr in lrs]
                if not all(key in done for key in before):
                    continue
                lrs = with_next_smaller(lrs, best_lrs([done[key] for key in before]).values())
            for lr in lrs:
                yield (
                    job_key(case, trained, plan.budget, lr),
                    {
                        "place": place,
                        "trained": trained,
                        "number": number,
                        "lr": lr,
                        "reference": done[reference_key(case)]["probs"],
                    },
                )


def with_next_smaller(tried: Sequence[float], best: Iterable[float]) -> list[float]:
    """The best step sizes of a smaller budget, and the next smaller ones, as longer runs like."""
    ordered = sorted(tried)
    places = {ordered.index(lr) for lr in best}
    return [ordered[place] for place in sorted({*places, *(max(at - 1, 0) for at in places)})]


def job_key(case: Case, trained: str, budget: int, lr: float) -> str:
    """What a job trains."""
    return f"{case.problem.data}: {trained}, budget {budget}, step size {lr:g}"


def best_lrs(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Of each method the step size that is nearest to HMC on validation data, if any converged."""
    found: dict[str, dict[float, float]] = {}
    for record in records:
        for method in {row["method"] for row in record["rows"]}:
            own = [row["validation_tv"] for row in record["rows"] if row["method"] == method]
            found.setdefault(method, {})[record["lr"]] = float(np.mean(own))
    return {method: min(values, key=lambda lr: values[lr]) for method, values in found.items()}


def _methods(
    config: TruthConfig,
    case: Case,
    source: Source,
    *,
    trained: str,
    number: int,
    lr: float,
    reference: Mapping[str, Any],
) -> Record:
    plan = case.plans[number]
    record: Record = {"data": case.problem.data, "budget": plan.budget, "lr": lr, "rows": []}
    try:
        found = run(trained, case.problem, plan, source, lr, config.seeds)
    except FloatingPointError as error:
        return {**record, "diverged": str(error)}
    for method, predictions in found.items():
        for seed, (predicted, further) in enumerate(predictions):
            numbers = {name: rounded(value) for name, value in further.items()}
            own = {"method": method, "seed": seed, **numbers}
            record["rows"].append({**own, **scores(predicted, reference, source)})
    return record


def _reference(case: Case, source: Source) -> Record:
    """Predictions of all HMC draws, how well the chains agree, and the scores of few draws."""
    problem, length = case.problem, case.reference
    like = stacked_weights(start(problem, range(HMC_SEED, HMC_SEED + length.chains)))
    energy, sd = energy_of_network(like, *source.train, problem.weight_decay)
    starts = flat(like).double() / sd
    chains = hmc(energy, starts, burn_in=length.burn_in, draws=length.draws, seed=HMC_SEED)
    inputs = (source.validation.inputs, source.test.inputs, source.outside)
    members = {
        part: torch.stack(
            [
                logits_of(unflat(chains.draws[:, draw] * sd, like), own[None]).softmax(-1)
                for draw in range(length.draws)
            ],
            dim=1,
        )
        .double()
        .cpu()
        for part, own in zip(("validation", "test", "outside"), inputs, strict=True)
    }  # (chains, draws, points, classes)
    probs = {part: own.mean((0, 1)) for part, own in members.items()}
    halves = [
        {part: own[chosen].mean((0, 1)) for part, own in members.items()}
        for chosen in (slice(None, length.chains // 2), slice(length.chains // 2, None))
    ]
    return {
        "data": problem.data,
        "shape": shape_of(problem),
        "accepted": [rounded(value) for value in chains.accepted],
        "steps": [rounded(value) for value in chains.steps],
        "gradients": chains.gradients,
        "floor": {
            part: {
                "tv": rounded(total_variation(halves[0][part], halves[1][part])),
                "disagreement": rounded(disagreement(halves[0][part], halves[1][part])),
            }
            for part in members
        },
        "mixing": {part: _mixing(own) for part, own in members.items()},
        "scores": scores(probs, probs, source),
        "few": [row for plan in case.plans for row in _few_draws(members, plan, source)],
        "probs": {part: own.numpy().round(5).tolist() for part, own in probs.items()},
    }


def _mixing(members: Tensor) -> dict[str, float]:
    """R-hat and effective sample size of the probabilities, of all points and classes."""
    values = members[:, :, ::MIXING_POINTS].numpy()
    hats, sizes = r_hat(values), effective_sample_size(values)
    return {
        "r_hat_median": rounded(np.nanmedian(hats)),
        "r_hat_largest": rounded(np.nanmax(hats)),
        "effective_draws": rounded(np.nanmedian(sizes)),
    }


def _few_draws(
    members: Mapping[str, Tensor], plan: Plan, source: Source
) -> Iterator[dict[str, Any]]:
    """Scores of as many draws of one HMC chain as samplers keep, by all the other chains.

    What is left of the distance when a sampler makes no other error than to stop.
    """
    chains, draws = next(iter(members.values())).shape[:2]
    chosen = torch.linspace(0, draws - 1, min(plan.draws, draws)).round().long()
    for chain in range(min(chains, 3)):
        own = {part: value[chain, chosen].mean(0) for part, value in members.items()}
        others = {
            part: torch.cat([value[:chain], value[chain + 1 :]]).mean((0, 1))
            for part, value in members.items()
        }
        numbers = {"budget": plan.budget, "seed": chain, "draws": len(chosen)}
        yield {**numbers, **scores(own, others, source)}
