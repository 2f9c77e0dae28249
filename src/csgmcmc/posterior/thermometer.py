"""How hot each parameter is, and where its noise comes from."""

import copy
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from csgmcmc.chain import Chain, Stack
from csgmcmc.diagnostics import (
    EffectiveNoise,
    Temperature,
    configurational_temperature,
    effective_noise,
    gradient_variance,
    kinetic_temperature,
)
from csgmcmc.draws import Draw
from csgmcmc.posterior.batches import moved
from csgmcmc.samplers import SGHMC, Sampler
from csgmcmc.samplers.base import Group
from csgmcmc.samplers.prior import prior_gradient
from csgmcmc.schedules import Schedule, Tick

MOST_DRAWS = 12
MOST_BATCHES = 32
MOST_STEPS = 200

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ParameterReport:
    """One parameter tensor of a model.

    Attributes:
        size: how many weights it has.
        noise: that of a step while sampling, injected and from the minibatches.
        temperature: the configurational one; None with fewer than two draws.
    """

    size: int
    noise: EffectiveNoise
    temperature: Temperature | None


def kinetic_temperatures(model: nn.Module, sampler: SGHMC) -> dict[str, Temperature]:
    """Temperature of the velocities of each parameter tensor, as they are now.

    For a function that `Chain` calls while sampling. The target is that of small steps whose lr has
    changed little over the last 1 / (1 - momentum) of them.
    """
    if not isinstance(sampler, SGHMC):
        raise ValueError(f"velocities are those of SGHMC, got {type(sampler).__name__}")
    return {
        name: kinetic_temperature(_array(sampler.state[param]["velocity"]), **_dynamics(group))
        for name, (group, param) in _groups_by_name(model, sampler).items()
        if "velocity" in sampler.state[param]
    }


def parameter_reports(
    model: nn.Module, draws: list[Draw], chain: Chain
) -> dict[str, ParameterReport]:
    """Noise and configurational temperature of each parameter tensor, by its name.

    Measured with gradients of some of the chain's own batches, in training mode, at some of the
    draws. `model` is left as it is.
    """
    sampler = chain.sampler
    if not isinstance(sampler, Sampler):
        raise ValueError(f"{type(sampler).__name__} injects no noise: it is no sampler")
    if chain.data is None:
        raise ValueError("a density has no minibatches: use csgmcmc.diagnostics on its draws")
    with torch.random.fork_rng(devices=[]):  # a loader that shuffles draws from the generator
        batches = list(islice(chain.data, MOST_BATCHES))
    if len(batches) < 2:
        raise ValueError("the noise of minibatches needs at least 2 of them")
    chosen = [draws[i] for i in _spaced(len(draws), MOST_DRAWS)]
    groups = _groups_by_name(chain.model, sampler)
    measured = [_Measured.at(draw, model, chain, batches, groups) for draw in chosen]
    ticks = [chain.schedule(draw.step) for draw in chosen]
    sampling = _sampling_ticks(chain.schedule)
    return {
        name: ParameterReport(
            size=measured[0].weights[name].size,
            noise=_noise(sampler, group, param, sampling, measured, name),
            temperature=_temperature(_mean_group(group, ticks), measured, name),
        )
        for name, (group, param) in groups.items()
    }


@dataclass(frozen=True)
class _Measured:
    """Weights of one draw, and mean and variance over batches of the gradient of U / N there."""

    weights: dict[str, Array]
    means: dict[str, Array]
    variances: dict[str, Array]
    """Of the gradient that a step uses, which may be the mean over several batches."""
    batches: float
    """How many such gradients the means are made of."""

    @classmethod
    def at(
        cls,
        draw: Draw,
        model: nn.Module,
        chain: Chain,
        batches: list[Any],
        groups: dict[str, tuple[Group, Tensor]],
    ) -> "_Measured":
        trained = copy.deepcopy(model).requires_grad_().train()
        draw.load_into(trained)
        params = {name: param for name, param in trained.named_parameters() if name in groups}
        device = next(iter(params.values())).device
        rows: list[tuple[Tensor, ...]] = []
        for batch in batches:
            loss = chain.batch_loss(trained, moved(batch, device))
            rows.append(torch.autograd.grad(loss, list(params.values()), materialize_grads=True))
        at_once = _batches_of_a_step(chain)
        weights, means, variances = {}, {}, {}
        for index, (name, param) in enumerate(params.items()):
            gradients = np.stack([_array(row[index]).ravel() for row in rows])
            weights[name] = _array(param).ravel()
            means[name] = gradients.mean(axis=0) + _prior(groups[name][0], param)
            variances[name] = gradient_variance(gradients) / at_once
        return cls(weights, means, variances, len(batches) / at_once)


def _noise(
    sampler: Sampler,
    group: Group,
    param: Tensor,
    sampling: list[Tick],
    measured: list[_Measured],
    name: str,
) -> EffectiveNoise:
    """The noise of all steps of the sampling stage, as a mean over them."""
    there = [_group_at(group, tick) for tick in sampling]
    injected = np.mean([float(_mean(sampler.injected_variance(at, param))) for at in there])
    squared_lr = np.mean([at["lr"] ** 2 for at in there])
    variance = np.mean([one.variances[name].mean() for one in measured])
    return effective_noise(injected, variance, float(squared_lr**0.5))


def _temperature(group: Group, measured: list[_Measured], name: str) -> Temperature | None:
    if len(measured) < 2:
        return None
    # The square of a mean over batches holds some of their variance: it is taken out.
    squares = [
        float((one.means[name] ** 2 - one.variances[name] / one.batches).mean()) for one in measured
    ]
    return configurational_temperature(
        np.stack([one.weights[name] for one in measured]),
        np.stack([one.means[name] for one in measured]),
        squared_gradient=max(float(np.mean(squares)), 0.0),
        **_dynamics(group),
    )


def _groups_by_name(
    model: nn.Module, sampler: torch.optim.Optimizer
) -> dict[str, tuple[Group, Tensor]]:
    """Every sampled parameter and its group, by the parameter's name in the single model."""
    names = {id(param): name for name, param in model.named_parameters()}
    return {
        names[id(param)].removeprefix("inner." if isinstance(model, Stack) else ""): (group, param)
        for group in sampler.param_groups
        for param in group["params"]
        if id(param) in names
    }


def _dynamics(group: Group) -> dict[str, float]:
    """What the target of a temperature depends on."""
    names = ("lr", "num_data", "temperature")
    return {"momentum": group.get("momentum", 0.0), **{name: group[name] for name in names}}


def _group_at(group: Group, tick: Tick) -> Group:
    """The options of a group as they are at a step."""
    return {
        **group,
        "lr": group["initial_lr"] * tick.lr_scale,
        "temperature": group["initial_temperature"] * tick.temperature_scale,
    }


def _mean_group(group: Group, ticks: list[Tick]) -> Group:
    """The options of a group with the mean lr and temperature of some steps."""
    there = [_group_at(group, tick) for tick in ticks]
    means = {name: float(np.mean([at[name] for at in there])) for name in ("lr", "temperature")}
    return {**group, **means}


def _sampling_ticks(schedule: Schedule) -> list[Tick]:
    """Some of the steps at which the schedule samples, or of all where it never does."""
    ticks = [schedule(step) for step in range(schedule.steps)]
    sampling = [tick for tick in ticks if tick.stage == "sample"] or ticks
    return [sampling[i] for i in _spaced(len(sampling), MOST_STEPS)]


def _batches_of_a_step(chain: Chain) -> float:
    """How many batches of the loader the gradient of one step is the mean of."""
    dealt = isinstance(chain.model, Stack) and chain.model.separate_batches
    chains = chain.model.chains if isinstance(chain.model, Stack) and dealt else 1
    return chain.accumulate * chain.place.replicas / chains


def _prior(group: Group, param: Tensor) -> Array:
    """The prior's part of the gradient of U / N."""
    if group["prior"] is not None:
        return _array(prior_gradient(group["prior"], param)).ravel() / group["num_data"]
    return group["weight_decay"] * _array(param).ravel()


def _spaced(count: int, most: int) -> list[int]:
    """At most `most` numbers below `count`, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, most).round().astype(int)).tolist()


def _mean(value: Tensor | float) -> Tensor | float:
    return value.mean() if isinstance(value, Tensor) else value


def _array(tensor: Tensor) -> Array:
    return tensor.detach().cpu().double().numpy()
