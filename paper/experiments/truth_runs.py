"""The methods of `truth`: samplers at temperature 1, and what people use in their place.

All seeds of a method are trained at once, as chains of one stack, each with batches and noise of
its own. A budget is the number of minibatch gradients of all networks of one seed together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from csgmcmc.draws import Draw, MemoryDraws
from csgmcmc.posterior import ClassPredictive, Posterior
from csgmcmc.samplers import SGHMC, SGLD, SGNHT, Sampler
from csgmcmc.schedules import Constant, Cyclical, Joined, Ramp, Schedule, Tick
from paper.devices import device
from paper.experiments.truth_data import Part, Source
from paper.experiments.truth_networks import (
    flat,
    gradients_of,
    losses_and_gradients,
    stacked_weights,
    state_of_chain,
)
from paper.networks import mlp
from paper.psgld import PSGLD
from paper.rivals import (
    SWAG,
    diagonal_laplace,
    dropout_draws,
    ensemble_draws,
    last_layer_laplace,
    linearised_probs,
)

CYCLICAL: dict[str, type[Sampler]] = {
    "cSGHMC": SGHMC,
    "cSGLD": SGLD,
    "cSGNHT": SGNHT,
    "cPSGLD": PSGLD,
}
CHAINS = {"SGHMC, 4 chains": 4, "cSGHMC, 4 chains": 4}
SAMPLERS = (*CYCLICAL, "SGHMC", "SGLD", *CHAINS)
ENSEMBLES = {"ensemble of 4": 4, "ensemble of 10": 10}
MEMBERS = ENSEMBLES | CHAINS
"""Networks or chains of the methods that share their budget among several."""
LAPLACES = ("Laplace, last layer", "Laplace, diagonal")
RUNS = {
    **{name: (name,) for name in (*SAMPLERS, *ENSEMBLES, "Snapshot-SGDM", "SWAG", "MC dropout")},
    "SGDM": ("SGDM", *LAPLACES),
}
"""What is trained, and the methods that it gives: Laplace approximations begin with SGDM."""
METHODS = tuple(name for names in RUNS.values() for name in names)

BURN_IN = 0.2  # of SGHMC and SGLD without cycles
SWAG_START, SWAG_LR, SWAG_RANK = 0.75, 0.5, 20  # when it begins, the share of the step size, K
ROWS = 200  # of a batch for curvatures
HOTTEST = 1000.0  # temperatures above are recorded as this: they may overflow


@dataclass(frozen=True)
class Problem:
    """A data set, a network and a prior. The last of `sizes` is the number of classes."""

    data: str
    sizes: tuple[int, ...]
    batch: int
    weight_decay: float


@dataclass(frozen=True)
class Plan:
    """How a budget is used. The draws of all samplers are as many: cycles * draws_per_cycle."""

    budget: int
    cycles: int
    draws_per_cycle: int
    exploration: float
    momentum: float
    dropout: float

    @property
    def draws(self) -> int:
        """Of a sampler, and of an approximation that draws can be taken from."""
        return self.cycles * self.draws_per_cycle

    def schedule(self, method: str) -> Schedule:
        """Step sizes and temperatures of one network."""
        members, kind = MEMBERS.get(method, 1), kind_of(method)
        steps = self.budget // members
        if kind in CYCLICAL or kind == "Snapshot-SGDM":
            cycles = max(self.cycles // members, 1)
            draws = self.draws // members // cycles if kind in CYCLICAL else 1
            return Cyclical(steps, cycles, exploration=self.exploration, draws_per_cycle=draws)
        if method in SAMPLERS:
            draws = self.draws // members
            return Constant(steps, burn_in=round(BURN_IN * steps), draws=draws)
        if method == "SWAG":
            start = round(SWAG_START * steps)
            end = Constant(steps - start, lr_scale=SWAG_LR, draws=self.draws)
            return Joined([Ramp(start, 1, SWAG_LR, "cosine"), end])
        return Cyclical(steps, 1, draws_per_cycle=1)


def kind_of(method: str) -> str:
    """What each chain of a method is."""
    return method.partition(",")[0] if method in CHAINS else method


Prediction = dict[str, Tensor]
"""Class probabilities by part of the data: validation, test and outside."""


def start(problem: Problem, seeds: Sequence[int]) -> list[nn.Sequential]:
    """A network for each seed."""
    models = []
    with torch.random.fork_rng(devices=[]):
        for seed in seeds:
            torch.manual_seed(seed)
            models.append(mlp(*problem.sizes).to(device()))
    return models


def train(
    weights: list[Tensor],
    sampler: torch.optim.Optimizer,
    schedule: Schedule,
    part: Part,
    batch: int,
    *,
    seed: int,
    dropout: float = 0.0,
    on_draw: Callable[[Tick], None],
) -> None:
    """Take all steps of a schedule; every chain sees the data in an order of its own."""
    generator = torch.Generator().manual_seed(seed)
    chains, rows = len(weights[0]), len(part.inputs)
    hidden = [bias.shape[-1] for bias in weights[1:-1:2]]
    batches = rows // batch
    dealt: list[tuple[Tensor, Tensor]] = []
    for step in range(schedule.steps):
        if step % batches == 0:
            order = torch.rand(chains, rows, generator=generator).argsort(1)[:, : batches * batch]
            inputs, labels = part.inputs[order], part.labels[order]
            dealt = list(zip(inputs.split(batch, 1), labels.split(batch, 1), strict=True))
        masks = [
            _mask(torch.rand(chains, batch, size, generator=generator), dropout, part.inputs)
            for size in hidden
            if dropout
        ]
        tick = schedule.apply(sampler, step)
        with torch.no_grad():
            gradients = gradients_of(weights, *dealt[step % batches], masks)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient
        sampler.step()
        if tick.collect:
            if not all(bool(weight.isfinite().all()) for weight in weights):
                raise FloatingPointError(f"weights are not finite at step {step}")
            on_draw(tick)


def _mask(numbers: Tensor, dropout: float, like: Tensor) -> Tensor:
    return ((numbers >= dropout) / (1 - dropout)).to(like.device)


def run(
    trained: str, problem: Problem, plan: Plan, source: Source, lr: float, seeds: int
) -> dict[str, list[tuple[Prediction, dict[str, float]]]]:
    """Train, and predict with every method that this gives: for each seed, with further numbers."""
    members = MEMBERS.get(trained, 1)
    models = start(problem, [1000 * seed + own for seed in range(seeds) for own in range(members)])
    weights = [tensor.requires_grad_() for tensor in stacked_weights(models)]
    schedule = plan.schedule(trained)
    rate = plan.dropout if trained == "MC dropout" else 0.0
    num_data = len(source.train.inputs)
    sampler = make_sampler(trained, weights, lr, num_data, problem, plan)
    stores = [MemoryDraws() for _ in models]

    def keep(tick: Tick) -> None:
        for chain, store in enumerate(stores):
            store.append(
                state_of_chain(weights, chain), step=tick.step, cycle=tick.cycle, stage=tick.stage
            )

    train(
        weights, sampler, schedule, source.train, problem.batch, seed=0, dropout=rate, on_draw=keep
    )
    found: dict[str, list[tuple[Prediction, dict[str, float]]]] = {}
    for method in RUNS[trained]:
        rows = found[method] = []
        for seed in range(seeds):
            own = stores[members * seed : members * (seed + 1)]
            model = models[members * seed]
            draws, options = draws_of(method, model, own, problem, plan, source, seed)
            further = {"draws": float(len(draws))}
            if trained in SAMPLERS:
                heat = temperature(draws, source.train, problem.weight_decay)
                further["temperature"] = min(heat, HOTTEST)
            predicted = predict(model, draws, source, **options)
            if not all(bool(probs.isfinite().all()) for probs in predicted.values()):
                raise FloatingPointError(f"predictions of {method} are not finite")
            rows.append((predicted, further))
    return found


def make_sampler(
    trained: str, weights: list[Tensor], lr: float, num_data: int, problem: Problem, plan: Plan
) -> Sampler:
    """The sampler of a method; without noise it is SGD with momentum."""
    kind = SGLD if trained == "SGLD" else CYCLICAL.get(kind_of(trained), SGHMC)
    own: dict[str, Any] = {}
    if kind in (SGHMC, SGNHT):
        own["momentum"] = plan.momentum
    return kind(
        weights,
        lr,
        num_data=num_data,
        weight_decay=problem.weight_decay,
        temperature=1.0 if trained in SAMPLERS else 0.0,
        seed=plan.budget,
        **own,
    )


def draws_of(
    method: str,
    model: nn.Sequential,
    stores: Sequence[MemoryDraws],
    problem: Problem,
    plan: Plan,
    source: Source,
    seed: int,
) -> tuple[Sequence[Draw], dict[str, bool]]:
    """The draws of one seed from what was kept of its networks, and options of `predict`."""
    if method in ENSEMBLES:
        return ensemble_draws(store[-1].tensors() for store in stores), {}
    if method in CHAINS:
        return [draw for store in stores for draw in store], {}
    (store,) = stores
    if method in SAMPLERS or method in ("Snapshot-SGDM", "SGDM"):
        return store, {}
    if method == "SWAG":
        swag = SWAG(model, SWAG_RANK)
        for draw in store:
            swag.collect(draw.tensors())
        return swag.draws(plan.draws, seed=seed), {}
    store[-1].load_into(model)
    if method == "MC dropout":
        return dropout_draws(model, plan.dropout, plan.draws, seed=seed), {}
    batches = list(
        zip(source.train.inputs.split(ROWS), source.train.labels.split(ROWS), strict=True)
    )
    make = last_layer_laplace if method == LAPLACES[0] else diagonal_laplace
    draws = make(model, batches, problem.weight_decay, plan.draws, seed=seed)
    return draws, {"linearised": method != LAPLACES[0]}


def predict(
    model: nn.Module, draws: Sequence[Draw], source: Source, *, linearised: bool = False
) -> Prediction:
    """Averaged probabilities."""
    parts = {
        "validation": source.validation.inputs,
        "test": source.test.inputs,
        "outside": source.outside,
    }
    if linearised:
        return {
            part: linearised_probs(model, draws, own).double().cpu() for part, own in parts.items()
        }
    posterior = Posterior(model, draws, vectorize=True, progress=False)
    return {part: _probs(posterior, own) for part, own in parts.items()}


def _probs(posterior: Posterior, inputs: Tensor) -> Tensor:
    predictive = posterior.predict(inputs)
    assert isinstance(predictive, ClassPredictive)  # noqa: S101  (the outputs are of classes)
    return predictive.probs.double().cpu()


def temperature(draws: Sequence[Draw], part: Part, weight_decay: float) -> float:
    """Mean of theta . grad U over draws and weights: 1 in equilibrium, for small steps."""
    states = [list(draw.tensors().values()) for draw in draws]
    weights = [
        torch.stack([state[place].reshape(len(state[place]), -1).T for state in states])
        for place in range(len(states[0]))
    ]
    rows = len(part.inputs)
    _, gradients = losses_and_gradients(
        weights, part.inputs[None], part.labels.expand(len(states), -1)
    )
    points = flat(weights)
    products = points * (flat(gradients) + weight_decay * points) * rows
    return float(products.mean().nan_to_num(HOTTEST))


def shape_of(problem: Problem) -> str:
    """The network's sizes, and how many weights it has."""
    count = sum((one + 1) * other for one, other in pairwise(problem.sizes))
    return f"{'-'.join(map(str, problem.sizes))}, {count} weights"
