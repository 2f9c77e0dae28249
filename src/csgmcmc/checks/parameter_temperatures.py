"""Noise and temperature of each parameter tensor of a run.

The configurational temperature compares weights with gradients at the draws,

    T = N * E[(theta - origin) . g] / d,    g the gradient of U / N,

and is judged against that of the discrete update; see `csgmcmc.diagnostics.temperature`.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from csgmcmc.batches import Loss, batch_loss
from csgmcmc.checks.noise import uncorrected_variance
from csgmcmc.checks.run import StepperLike, evenly_spaced, sampling_ticks
from csgmcmc.diagnostics import (
    EffectiveNoise,
    Temperature,
    effective_noise,
    kinetic_temperature,
    temperature_of_products,
)
from csgmcmc.draws import Draw
from csgmcmc.loaders import to_device
from csgmcmc.randomness import Generator, generators_of, preserved_random_state
from csgmcmc.samplers import SGHMC, Sampler
from csgmcmc.samplers.base import Group
from csgmcmc.samplers.prior import prior_gradient
from csgmcmc.schedules import Tick, options_at
from csgmcmc.stacked import Stack

MOST_DRAWS = 12  # at which gradients are taken
MOST_BATCHES = 32  # for the gradient at each of them

Tensors = dict[str, Tensor]
Groups = dict[str, tuple[Group, Tensor]]
"""The group and the sampler's tensor of each parameter, by its name in the single model."""


@dataclass(frozen=True)
class ParameterReport:
    """One parameter tensor of a model.

    Attributes:
        size: number of weights.
        noise: of a step while sampling: injected, and from the minibatches.
        temperature: configurational temperature; None with fewer than two draws.
    """

    size: int
    noise: EffectiveNoise
    temperature: Temperature | None


class _Measured(NamedTuple):
    """Of one parameter at one draw, as means over its weights; g is the gradient of U / N."""

    product: float  # (weight - origin) * g, the origin being the mean of other draws
    squared_gradient: float  # gain * g^2
    variance: float  # gain^2 * variance of g over the batches of a step


def kinetic_temperatures(model: nn.Module, sampler: SGHMC) -> dict[str, Temperature]:
    """Temperature of the velocities of each parameter tensor, as they are now.

    For a callback while the run samples. The target is that of small steps, with an lr that
    changes little over 1 / (1 - momentum) steps.
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
    model: nn.Module,
    draws: Sequence[Draw],
    stepper: StepperLike,
    loss: Loss,
    data: Iterable[Any],
    *,
    autocast: torch.dtype | None = None,
    generators: Sequence[Generator] = (),
) -> dict[str, ParameterReport]:
    """Noise and configurational temperature of each sampled parameter tensor, by its name.

    Measured with gradients of some batches of `data`, in training mode, at some of the draws. The
    model, the stepper and all random states are left unchanged.

    Args:
        model: the single network, also where the stepper's is a `Stack`.
        draws: of the run.
        stepper: of the run.
        loss: mean negative log-likelihood, called as `Chain` calls it.
        data: the batches that the run was trained on.
        autocast: dtype of automatic mixed precision.
        generators: generators that transforms of the data draw from, besides the global ones and
            those of the loader.
    """
    sampler = stepper.sampler
    if not isinstance(sampler, Sampler):
        raise ValueError(f"{type(sampler).__name__} injects no noise: it is no sampler")
    draws = [draws[i] for i in evenly_spaced(len(draws), MOST_DRAWS)]
    groups = _sampled(stepper.model, sampler)
    with preserved_random_state([*generators, *generators_of(data)]):
        gradients = _Gradients(loss, data, autocast)
        measured = list(_measure(model, draws, stepper, sampler, gradients))
    kept = [stepper.schedule(draw.step) for draw in draws]
    sampling = sampling_ticks(stepper.schedule)
    chains = stepper.model.chains if isinstance(stepper.model, Stack) else 1
    reports: dict[str, ParameterReport] = {}
    for name, (group, param) in groups.items():
        here = [one[name] for one in measured]
        temperature = None
        if len(draws) > 1:
            temperature = temperature_of_products(
                [one.product for one in here],
                squared_gradient=max(float(np.mean([one.squared_gradient for one in here])), 0.0),
                **_dynamics(_mean_options(group, kept)),
            )
        noise = _noise(sampler, group, param, sampling, float(np.mean([o.variance for o in here])))
        reports[name] = ParameterReport(param.numel() // chains, noise, temperature)
    return reports


def _measure(
    model: nn.Module,
    draws: list[Draw],
    stepper: StepperLike,
    sampler: Sampler,
    gradients: "_Gradients",
) -> Iterator[dict[str, _Measured]]:
    """Each draw gets batches of its own, so that their errors are independent."""
    groups = _sampled(stepper.model, sampler)
    trained = copy.deepcopy(model).requires_grad_()
    _train_like(trained, stepper.model)
    params = {name: param for name, param in trained.named_parameters() if name in groups}
    if not params:
        raise ValueError("no parameter has both lr and temperature above 0")
    stacked = isinstance(stepper.model, Stack)
    gains = {name: _gain(sampler, *groups[name], stacked=stacked) for name in params}
    for draw, origin in zip(draws, _origins(draws, list(params)), strict=True):
        draw.load_into(trained)
        means, variances = gradients.at(trained, params)
        found: dict[str, _Measured] = {}
        for name, param in params.items():
            weight = param.detach()
            options = options_at(groups[name][0], stepper.schedule(draw.step))
            mean = means[name] + _prior(options, weight)
            # The square of a mean over batches contains some of their variance: it is removed.
            excess = variances[name] * gradients.error_of_the_mean
            found[name] = _Measured(
                product=_mean((weight - origin[name].to(weight)) * mean),
                squared_gradient=_mean(gains[name] * (mean.square() - excess)),
                variance=_mean(gains[name] ** 2 * variances[name]) / stepper.batches_per_step,
            )
        yield found


class _Gradients:
    """Gradients of the loss over batches of the data: all of a short epoch, else some."""

    def __init__(self, loss: Loss, data: Iterable[Any], autocast: torch.dtype | None) -> None:
        self._loss, self._autocast = loss, autocast
        self._batches = _endless(data)
        first = list(islice(iter(data), MOST_BATCHES + 1))
        if not first:
            raise ValueError("data gave no batches: it may be a generator that is exhausted")
        whole_epoch = len(first) <= MOST_BATCHES
        self._count = min(len(first), MOST_BATCHES)
        self.error_of_the_mean = 0.0 if whole_epoch else 1 / self._count
        """Variance of a mean over the batches, relative to that of one; 0 if they are all data."""
        # Batches of one epoch of a loader are drawn without replacement, which lessens the error.
        replacement = getattr(getattr(data, "sampler", None), "replacement", False)
        if isinstance(data, DataLoader) and not replacement and not whole_epoch:
            self.error_of_the_mean -= 1 / len(data)

    def at(self, model: nn.Module, params: Mapping[str, Tensor]) -> tuple[Tensors, Tensors]:
        """Mean and variance over batches, at the weights that `model` has now."""
        means = {name: torch.zeros_like(param) for name, param in params.items()}
        squares = {name: torch.zeros_like(param) for name, param in params.items()}
        device = next(iter(params.values())).device
        autocast = self._autocast
        precision = torch.autocast(device.type, dtype=autocast) if autocast else nullcontext()
        for count, batch in enumerate(islice(self._batches, self._count), start=1):
            with precision:
                loss = batch_loss(self._loss, model, to_device(batch, device))
            gradients = torch.autograd.grad(loss, list(params.values()), materialize_grads=True)
            for name, gradient in zip(params, gradients, strict=True):
                offset = gradient - means[name]
                means[name] += offset / count
                squares[name] += offset * (gradient - means[name])
        return means, {name: square / max(self._count - 1, 1) for name, square in squares.items()}


def _endless(data: Iterable[Any]) -> Iterator[Any]:
    """The batches of epoch after epoch."""
    while True:
        empty = True
        for batch in data:
            empty = False
            yield batch
        if empty:
            raise ValueError("data gave no more batches: it may be a generator")


def _origins(draws: list[Draw], names: list[str]) -> Iterator[Tensors]:
    """The origin of the weights of each draw: the mean of the draws of other cycles.

    Any point that does not depend on the draw is correct; one near the draws makes the interval of
    the temperature narrow. Within one cycle it is the mean of the other draws.
    """
    one_cycle = len({(draw.chain_id, draw.cycle) for draw in draws}) == 1
    total = _sum(draws, names)
    for draw in draws:
        cycle = (draw.chain_id, draw.cycle)
        same = [draw] if one_cycle else [o for o in draws if (o.chain_id, o.cycle) == cycle]
        near, others = _sum(same, names), max(len(draws) - len(same), 1)
        yield {name: (total[name] - near[name]) / others for name in names}


def _sum(draws: list[Draw], names: list[str]) -> Tensors:
    total: Tensors = {}
    for draw in draws:
        tensors = draw.tensors()
        for name in names:
            total[name] = tensors[name].float() + total.get(name, 0.0)
    return total


def _noise(
    sampler: Sampler, group: Group, param: Tensor, sampling: list[Tick], variance: float
) -> EffectiveNoise:
    """The noise of a step, as a mean over the sampling stages."""
    options = [options_at(group, tick) for tick in sampling]
    variances = [uncorrected_variance(sampler, at, param) for at in options]
    if any(variance is None for variance in variances):
        raise ValueError(f"{type(sampler).__name__} does not declare its injected_variance")
    injected = np.mean([_mean(variance) for variance in variances if variance is not None])
    squared_lr = np.mean([at["lr"] ** 2 for at in options])
    return effective_noise(injected, variance, float(squared_lr**0.5))


def _sampled(model: nn.Module, sampler: torch.optim.Optimizer) -> Groups:
    """Every parameter with lr and temperature above 0."""
    names = {id(param): name for name, param in model.named_parameters() if param.requires_grad}
    prefix = "inner." if isinstance(model, Stack) else ""
    return {
        names[id(param)].removeprefix(prefix): (group, param)
        for group in sampler.param_groups
        for param in group["params"]
        if id(param) in names and group["initial_lr"] > 0 and group["initial_temperature"] > 0
    }


def _train_like(trained: nn.Module, model: nn.Module) -> None:
    """Set the modules of `trained` to the modes that those of the run's model train in."""
    trained.train()
    inner = model.inner if isinstance(model, Stack) else model
    if inner.training:  # else it has not run: all of it will be trained
        modes = {name: module.training for name, module in inner.named_modules()}
        for name, module in trained.named_modules():
            module.training = modes.get(name, True)


def _gain(sampler: Sampler, group: Group, param: Tensor, *, stacked: bool) -> Tensor | float:
    """The sampler's preconditioner, as a mean over the chains of a stack."""
    gain = sampler.gradient_gain(group, param)
    if not isinstance(gain, Tensor):
        return gain
    if not sampler.state[param]:
        raise ValueError("the sampler has taken no step: its preconditioner is not known")
    return gain.mean(0) if stacked else gain


def _dynamics(group: Group) -> dict[str, float]:
    """What the target of a temperature depends on."""
    names = ("lr", "num_data", "temperature")
    return {"momentum": group.get("momentum", 0.0), **{name: group[name] for name in names}}


def _mean_options(group: Group, ticks: list[Tick]) -> Group:
    """The options of a group, with the mean lr and temperature over some steps."""
    options = [options_at(group, tick) for tick in ticks]
    means = {name: float(np.mean([at[name] for at in options])) for name in ("lr", "temperature")}
    return {**group, **means}


def _prior(group: Group, param: Tensor) -> Tensor:
    """The prior's part of the gradient of U / N."""
    if group["prior"] is not None:
        return prior_gradient(group["prior"], param) / group["num_data"]
    return group["weight_decay"] * param


def _mean(value: Tensor | float) -> float:
    return value.double().mean().item() if isinstance(value, Tensor) else value
