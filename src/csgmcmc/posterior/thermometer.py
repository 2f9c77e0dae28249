"""How hot each parameter is, and where its noise comes from."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from csgmcmc.chain import Chain
from csgmcmc.diagnostics import (
    EffectiveNoise,
    Temperature,
    effective_noise,
    kinetic_temperature,
    temperature_of_products,
)
from csgmcmc.draws import Draw
from csgmcmc.loaders import to_device
from csgmcmc.randomness import random_state, restore_random_state
from csgmcmc.samplers import SGHMC, Sampler
from csgmcmc.samplers.base import Group
from csgmcmc.samplers.prior import prior_gradient
from csgmcmc.schedules import Schedule, Tick
from csgmcmc.stack import Stack

MOST_DRAWS = 12
MOST_BATCHES = 32
MOST_STEPS = 1000

Tensors = dict[str, Tensor]
Groups = dict[str, tuple[Group, Tensor]]
"""The group and the sampler's tensor of each parameter, by its name in the single model."""


@dataclass(frozen=True)
class ParameterReport:
    """One parameter tensor of a model.

    Attributes:
        size: how many weights it has.
        noise: that of a step while sampling: what the sampler is to inject, and the minibatches'.
        temperature: the configurational one; None with fewer than two draws.
    """

    size: int
    noise: EffectiveNoise
    temperature: Temperature | None


@dataclass(frozen=True)
class _Measured:
    """Of one parameter at one draw, means over its weights; g is the gradient of U / N.

    Attributes:
        product: of the weights, counted from the mean of other draws, times g.
        squared_gradient: of gain * g^2.
        variance: of gain^2 times the variance of g over the steps' batches.
    """

    product: float
    squared_gradient: float
    variance: float


def kinetic_temperatures(model: nn.Module, sampler: SGHMC) -> dict[str, Temperature]:
    """Temperature of the velocities of each parameter tensor, as they are now.

    For a function that `Chain` calls while sampling. The target is that of small steps whose lr has
    changed little over the last 1 / (1 - momentum) of them.
    """
    if not isinstance(sampler, SGHMC):
        raise ValueError(f"velocities are those of SGHMC, got {type(sampler).__name__}")
    return {
        name: kinetic_temperature(
            sampler.state[param]["velocity"].cpu().numpy(), **_dynamics(group)
        )
        for name, (group, param) in _sampled(model, sampler).items()
        if "velocity" in sampler.state[param]
    }


def parameter_reports(
    model: nn.Module, draws: list[Draw], chain: Chain
) -> dict[str, ParameterReport]:
    """Noise and configurational temperature of each sampled parameter tensor, by its name.

    Measured with gradients of some of the chain's own batches, in training mode, at some of the
    draws. Model, chain and random states are left as they are.
    """
    sampler = chain.sampler
    if not isinstance(sampler, Sampler):
        raise ValueError(f"{type(sampler).__name__} injects no noise: it is no sampler")
    if chain.data is None:
        raise ValueError("a density has no minibatches: use csgmcmc.diagnostics on its draws")
    chosen = [draws[i] for i in _spaced(len(draws), MOST_DRAWS)]
    groups = _sampled(chain.model, sampler)
    state = random_state(chain.generators)
    try:
        measured = list(_measure(model, chosen, chain, groups))
    finally:
        restore_random_state(state, chain.generators)
    kept = [chain.schedule(draw.step) for draw in chosen]
    sampling = _sampling_ticks(chain.schedule)
    reports: dict[str, ParameterReport] = {}
    for name, (group, param) in groups.items():
        here = [one[name] for one in measured]
        temperature = None
        if len(chosen) > 1:
            temperature = temperature_of_products(
                [one.product for one in here],
                squared_gradient=max(float(np.mean([one.squared_gradient for one in here])), 0.0),
                **_dynamics(_mean_group(group, kept)),
            )
        noise = _noise(sampler, group, param, sampling, float(np.mean([o.variance for o in here])))
        reports[name] = ParameterReport(_size(chain, param), noise, temperature)
    return reports


def _measure(
    model: nn.Module, draws: list[Draw], chain: Chain, groups: Groups
) -> Iterator[dict[str, _Measured]]:
    """Each draw gets batches of its own, so that their errors are independent."""
    trained = copy.deepcopy(model).requires_grad_()
    _train_like(trained, chain.model)
    params = {name: param for name, param in trained.named_parameters() if name in groups}
    if not params:
        raise ValueError("no parameter is both moved and heated")
    batches = _Batches(chain.data, next(iter(params.values())).device)
    gains = {name: _gain(chain, *groups[name]) for name in params}
    origins = _Origins(draws, list(params))
    for draw in draws:
        draw.load_into(trained)
        origin = origins.of(draw)
        weights = {name: param.detach() for name, param in params.items()}
        means, variances, exact = _gradients(trained, params, chain, batches)
        found: dict[str, _Measured] = {}
        for name, weight in weights.items():
            mean = means[name] + _prior(groups[name][0], weight)
            # The square of a mean over batches holds some of their variance: it is taken out.
            excess = 0.0 if exact else variances[name] * batches.error_of_the_mean
            found[name] = _Measured(
                product=_mean((weight - origin[name].to(weight)) * mean),
                squared_gradient=_mean(gains[name] * (mean.square() - excess)),
                variance=_mean(gains[name] ** 2 * variances[name]) / _batches_of_a_step(chain),
            )
        yield found


class _Batches:
    """Batches of a chain's data: one epoch at a time if it is short, else on and on."""

    def __init__(self, data: Any, device: torch.device) -> None:
        self._data, self._device = data, device
        self._epoch: Iterator[Any] = iter(())
        first = list(islice(iter(data), MOST_BATCHES + 1))
        if not first:
            raise ValueError("the chain's data gave no batches: it may be a generator, used up")
        self.whole_epoch = len(first) <= MOST_BATCHES
        self.at_once = min(len(first), MOST_BATCHES)
        # Batches of one epoch of a loader are drawn without replacement, which lessens the error.
        sampler = getattr(data, "sampler", None)
        one_epoch = isinstance(data, DataLoader) and not getattr(sampler, "replacement", False)
        self.error_of_the_mean = 1 / self.at_once - (1 / len(data) if one_epoch else 0.0)
        """The variance of a mean over the batches, as a share of that of one."""

    def take(self) -> Iterator[Any]:
        if self.whole_epoch:
            self._epoch = iter(self._data)
        for _ in range(self.at_once):
            batch = next(self._epoch, None)
            if batch is None:
                self._epoch = iter(self._data)
                batch = next(self._epoch, None)
            if batch is None:
                raise ValueError("the chain's data gave no more batches: it may be a generator")
            yield to_device(batch, self._device)


class _Origins:
    """A point for each draw to count its weights from: the mean of the draws of other cycles.

    Any point that does not depend on the draw will do; one near the draws makes the interval of the
    temperature narrow. Within one cycle it is the mean of the other draws.
    """

    def __init__(self, draws: list[Draw], names: list[str]) -> None:
        self._draws, self._names = draws, names
        self._one_cycle = len({(draw.chain_id, draw.cycle) for draw in draws}) == 1
        self._total = self._sum(draws)

    def of(self, draw: Draw) -> Tensors:
        same = [draw] if self._one_cycle else [o for o in self._draws if _cycle(o) == _cycle(draw)]
        others = len(self._draws) - len(same)
        near = self._sum(same)
        return {name: (self._total[name] - near[name]) / max(others, 1) for name in self._names}

    def _sum(self, draws: list[Draw]) -> Tensors:
        total: Tensors = {}
        for draw in draws:
            tensors = draw.tensors()
            for name in self._names:
                total[name] = tensors[name].float() + total.get(name, 0.0)
        return total


def _gradients(
    model: nn.Module, params: Mapping[str, Tensor], chain: Chain, batches: _Batches
) -> tuple[Tensors, Tensors, bool]:
    """Mean and variance over batches of the loss' gradient; whether the mean is over all data."""
    count = 0
    means = {name: torch.zeros_like(param) for name, param in params.items()}
    squares = {name: torch.zeros_like(param) for name, param in params.items()}
    for batch in batches.take():
        loss = chain.batch_loss(model, batch)
        gradients = torch.autograd.grad(loss, list(params.values()), materialize_grads=True)
        count += 1
        for name, gradient in zip(params, gradients, strict=True):
            offset = gradient - means[name]
            means[name] += offset / count
            squares[name] += offset * (gradient - means[name])
    return (
        means,
        {name: square / max(count - 1, 1) for name, square in squares.items()},
        batches.whole_epoch,
    )


def _noise(
    sampler: Sampler, group: Group, param: Tensor, sampling: list[Tick], variance: float
) -> EffectiveNoise:
    """The noise of all steps of the sampling stage, as a mean over them."""
    there = [_group_at(group, tick) for tick in sampling]
    for at in there:  # what the sampler leaves out for the minibatches' noise is meant, too
        at.update({"gradient_variance": 0.0} if "gradient_variance" in at else {})
    injected = np.mean([_mean(sampler.injected_variance(at, param)) for at in there])
    squared_lr = np.mean([at["lr"] ** 2 for at in there])
    return effective_noise(injected, variance, float(squared_lr**0.5))


def _sampled(model: nn.Module, sampler: torch.optim.Optimizer) -> Groups:
    """Every parameter that moves and is heated."""
    names = {id(param): name for name, param in model.named_parameters() if param.requires_grad}
    prefix = "inner." if isinstance(model, Stack) else ""
    return {
        names[id(param)].removeprefix(prefix): (group, param)
        for group in sampler.param_groups
        for param in group["params"]
        if id(param) in names and group["initial_lr"] > 0 and group["initial_temperature"] > 0
    }


def _train_like(trained: nn.Module, model: nn.Module) -> None:
    """Put the modules of `trained` into the modes that those of the chain's model train in."""
    trained.train()
    inner = model.inner if isinstance(model, Stack) else model
    if inner.training:  # else the chain has not run: it will train all of it
        modes = {name: module.training for name, module in inner.named_modules()}
        for name, module in trained.named_modules():
            module.training = modes.get(name, True)


def _gain(chain: Chain, group: Group, param: Tensor) -> Tensor | float:
    """The sampler's preconditioner, as a mean over the chains of a stack."""
    sampler = chain.sampler
    assert isinstance(sampler, Sampler)  # noqa: S101  (checked before)
    gain = sampler.gradient_gain(group, param)
    if not isinstance(gain, Tensor):
        return gain
    if not sampler.state[param]:
        raise ValueError("the chain has not run: its preconditioner is not known")
    return gain.mean(0) if isinstance(chain.model, Stack) else gain


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
    ticks = [schedule(step) for step in _spaced(schedule.steps, MOST_STEPS)]
    return [tick for tick in ticks if tick.stage == "sample"] or ticks


def sampling_temperature(chain: Chain) -> float:
    """The highest temperature of the steps that sample; 0 where no noise is injected."""
    ticks = _sampling_ticks(chain.schedule)
    groups = chain.sampler.param_groups
    return max(_group_at(group, tick)["temperature"] for group in groups for tick in ticks)


def _batches_of_a_step(chain: Chain) -> float:
    """How many batches of the loader the gradient of one step is the mean of."""
    model = chain.model
    dealt = model.chains if isinstance(model, Stack) and model.separate_batches else 1
    return chain.accumulate * chain.layout.replicas / dealt


def _size(chain: Chain, param: Tensor) -> int:
    return param.numel() // (chain.model.chains if isinstance(chain.model, Stack) else 1)


def _prior(group: Group, param: Tensor) -> Tensor:
    """The prior's part of the gradient of U / N."""
    if group["prior"] is not None:
        return prior_gradient(group["prior"], param) / group["num_data"]
    return group["weight_decay"] * param


def _cycle(draw: Draw) -> tuple[int, int]:
    return draw.chain_id, draw.cycle


def _spaced(count: int, most: int) -> list[int]:
    """At most `most` numbers below `count`, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, most).round().astype(int)).tolist()


def _mean(value: Tensor | float) -> float:
    return value.double().mean().item() if isinstance(value, Tensor) else value
