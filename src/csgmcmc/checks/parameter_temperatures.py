"""Noise and temperature of each parameter tensor of a run.

The configurational temperature compares weights with gradients at the draws,

    T = N * E[(theta - origin) . g] / d,    g the gradient of U / N,

and is judged against that of the discrete update; see `csgmcmc.diagnostics.temperature`.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from csgmcmc.checks.evaluation import evenly_spaced
from csgmcmc.checks.verdict import mean_interval
from csgmcmc.diagnostics import temperature_of_products
from csgmcmc.diagnostics.temperature import Temperature
from csgmcmc.draws import Draw
from csgmcmc.loaders import Loss, batch_loss, to_device
from csgmcmc.loop import Stepper
from csgmcmc.posterior import Posterior
from csgmcmc.randomness import generators_of, preserved_random_state
from csgmcmc.samplers.base import Group
from csgmcmc.samplers.prior import prior_gradient
from csgmcmc.schedules import Schedule, Tick
from csgmcmc.schedules.base import options_at
from csgmcmc.stacked import Stack

MAX_DRAWS = 100  # at which gradients are taken
MAX_BATCHES, MAX_GRADIENTS = 32, 400  # for the gradient at each of them, and in all
MAX_TICKS = 1000  # of a schedule that are evaluated

Tensors = dict[str, Tensor]
Groups = dict[str, tuple[Group, Tensor]]
"""The group and the sampler's tensor of each parameter, by its name in the single model."""


class StepNoise(NamedTuple):
    """Variance of the noise that a step adds to a weight, on average: injected, of minibatches."""

    injected: float
    minibatch: float


@dataclass(frozen=True)
class ParameterReport:
    """One parameter tensor of a model.

    Attributes:
        size: number of weights.
        noise: injected noise and minibatch noise of a step while sampling.
        temperature: configurational temperature; None with fewer than two draws.
    """

    size: int
    noise: StepNoise
    temperature: Temperature | None


def parameter_reports(
    posterior: Posterior, stepper: Stepper, loss: Loss, data: Iterable[Any]
) -> tuple[dict[str, ParameterReport], Temperature | None, float]:
    """Noise and temperature of each sampled parameter tensor, by name, and of all weights.

    The third value is the share of the batches whose gradient is clipped. Measured with gradients
    of some batches of `data`, in training mode, at some of the draws. The model, the stepper, whose
    model may be a `Stack`, and all random states are left unchanged.
    """
    sampler: Any = stepper.sampler
    groups = _sampled(stepper.model, sampler)
    if not groups:
        raise ValueError("no parameter has both lr and temperature above 0")
    draws = [posterior.draws[i] for i in evenly_spaced(len(posterior.draws), MAX_DRAWS)]
    with preserved_random_state([*stepper.generators, *generators_of(data)]):
        gradients = _Gradients(posterior, loss, data, stepper.settings.get("clip"))
        measured = [*_measure(posterior.model, draws, stepper, groups, gradients)]
    kept = [stepper.schedule(draw.step) for draw in draws]
    sampling = sampling_ticks(stepper.schedule)
    chains = stepper.model.chains if isinstance(stepper.model, Stack) else 1
    reports: dict[str, ParameterReport] = {}
    size, total, target = 0, np.zeros(len(draws)), 0.0
    for name, (group, param) in groups.items():
        products, squares, variances = np.transpose([found[name] for found in measured])
        temperature = None
        if len(draws) > 1:
            at_draws = [options_at(group, tick) for tick in kept]
            temperature = temperature_of_products(
                products,
                squared_gradient=max(_mean(squares), 0.0),
                lr=_mean([at["lr"] for at in at_draws]),
                num_data=group["num_data"],
                momentum=sampler.momentum(group),
                temperature=_mean([at["temperature"] for at in at_draws]),
            )
            size += param.numel()
            total += param.numel() * group["num_data"] * products
            target += param.numel() * temperature.target
        options = [options_at(group, tick) for tick in sampling]
        injected = [sampler.uncorrected_variance(at, param) for at in options]
        if any(variance is None for variance in injected):
            raise ValueError(f"{type(sampler).__name__} does not declare its injected_variance")
        minibatch = _mean([at["lr"] ** 2 for at in options]) * _mean(variances)
        noise = StepNoise(_mean([_mean(one) for one in injected]), minibatch)
        reports[name] = ParameterReport(param.numel() // chains, noise, temperature)
    pooled = Temperature(*mean_interval(total / size), target / size) if size else None
    return reports, pooled, gradients.share_clipped


def _measure(
    model: nn.Module, draws: list[Draw], stepper: Stepper, groups: Groups, gradients: "_Gradients"
) -> Iterator[dict[str, tuple[float, float, float]]]:
    """Means over the weights of each parameter at each draw, with g the gradient of U / N.

    They are those of (weight - origin) * g, of gain * g^2, and of gain^2 * the variance of g over
    the batches of a step. Each draw has batches of its own, so that errors are independent.
    """
    model = _in_training_mode(model, stepper)
    params = {name: param for name, param in model.named_parameters() if name in groups}
    gains = {name: _gain(stepper, *groups[name]) for name in params}
    for draw, origin in zip(draws, _origins(draws, params), strict=True):
        draw.load_into(model)
        means, variances = gradients.at(model, params)
        found = {}
        for name, param in params.items():
            weight, gain, variance = param.detach(), gains[name], variances[name]
            group = options_at(groups[name][0], stepper.schedule(draw.step))  # its own prior
            mean = means[name] + group["weight_decay"] * weight
            if group["prior"] is not None:
                mean = means[name] + prior_gradient(group["prior"], weight) / group["num_data"]
            # The square of a mean over batches contains some of their variance: it is removed.
            square = mean.square() - variance * gradients.error_of_the_mean
            found[name] = (
                _mean((weight - origin[name]) * mean),
                _mean(gain * square),
                _mean(gain**2 * variance) / stepper.batches_per_step,
            )
        yield found


def _in_training_mode(model: nn.Module, stepper: Stepper) -> nn.Module:
    """A copy of the network whose modules are in the modes that they had in the run."""
    copied = copy.deepcopy(model).requires_grad_().train()
    inner = stepper.model.inner if isinstance(stepper.model, Stack) else stepper.model
    if inner.training:  # else it has not run, and all of it will be trained
        modes = {name: module.training for name, module in inner.named_modules()}
        for name, module in copied.named_modules():
            module.training = modes.get(name, True)
    return copied


class _Gradients:
    """Gradients of the loss over batches of the data: all of a short epoch, else some."""

    def __init__(
        self, posterior: Posterior, loss: Loss, data: Iterable[Any], clip: float | None
    ) -> None:
        self._loss, self._autocast, self._clip = loss, posterior.members.autocast, clip
        self._clipped: list[bool] = []
        most = min(MAX_BATCHES, max(2, MAX_GRADIENTS // len(posterior.draws)))
        found = sum(1 for _ in islice(data, most + 1))
        if not found:
            raise ValueError("data gave no batches")
        self._batches = chain.from_iterable(repeat(data))  # epoch after epoch
        self._count = min(found, most)
        self.error_of_the_mean = 0.0
        """Variance of the mean over the batches, relative to one batch; 0 if they are all data."""
        if found > most:
            self.error_of_the_mean = 1 / self._count
            # Batches of an epoch are drawn without replacement, which reduces the error.
            if isinstance(data, DataLoader) and not getattr(data.sampler, "replacement", False):
                self.error_of_the_mean -= 1 / len(data)

    @property
    def share_clipped(self) -> float:
        """Share of the batches whose gradient is longer than `clip`."""
        return float(np.mean(self._clipped or 0.0))

    def at(self, model: nn.Module, params: Mapping[str, Tensor]) -> tuple[Tensors, Tensors]:
        """Mean and variance over batches, at the weights that `model` has now."""
        means = {name: torch.zeros_like(param) for name, param in params.items()}
        squares = {name: torch.zeros_like(param) for name, param in params.items()}
        device = next(iter(params.values())).device
        for count, batch in enumerate(islice(self._batches, self._count), start=1):
            with torch.autocast(device.type, self._autocast, enabled=self._autocast is not None):
                loss = batch_loss(self._loss, model, to_device(batch, device))
            gradients = torch.autograd.grad(loss, list(params.values()), materialize_grads=True)
            if self._clip is not None:
                self._clipped.append(nn.utils.get_total_norm(gradients).item() > self._clip)
            for name, gradient in zip(params, gradients, strict=True):
                offset = gradient - means[name]
                means[name] += offset / count
                squares[name] += offset * (gradient - means[name])
        return means, {name: square / max(self._count - 1, 1) for name, square in squares.items()}


def _origins(draws: list[Draw], params: Mapping[str, Tensor]) -> list[Tensors]:
    """For each draw the mean of every other cycle, or of the other half of a single cycle.

    Any point that does not depend on the draw is valid; one near the draws makes the interval of
    the temperature narrow.
    """
    keys = [(draw.chain_id, draw.cycle) for draw in draws]
    cycles = list(dict.fromkeys(keys))
    sides = [cycles.index(key) % 2 for key in keys]
    if len(cycles) == 1:
        sides = [2 * number // len(draws) for number in range(len(draws))]
    means = [
        {name: torch.zeros_like(param).float() for name, param in params.items()} for _ in "01"
    ]
    for draw, side in zip(draws, sides, strict=True):
        tensors = draw.tensors()
        for name, mean in means[side].items():
            mean.add_(tensors[name].to(mean), alpha=1 / sides.count(side))
    return [means[1 - side] for side in sides]


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


def _gain(stepper: Stepper, group: Group, param: Tensor) -> Tensor | float:
    """The sampler's preconditioner, averaged over the chains of a stack."""
    sampler: Any = stepper.sampler
    gain = sampler.gradient_gain(group, param)
    if not isinstance(gain, Tensor):
        return gain
    if not sampler.state[param]:
        raise ValueError("the sampler has taken no step: its preconditioner is not known")
    return gain.mean(0) if isinstance(stepper.model, Stack) else gain


def sampling_ticks(schedule: Schedule) -> list[Tick]:
    """Some ticks of the sampling stages; of all stages if there is no sampling stage."""
    ticks = [schedule(step) for step in evenly_spaced(schedule.steps, MAX_TICKS)]
    return [tick for tick in ticks if tick.stage == "sample"] or ticks


def _mean(values: Any) -> float:
    return values.double().mean().item() if isinstance(values, Tensor) else float(np.mean(values))
