"""What the conformance tests know about each sampler: one entry for each discovered class."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from csgmcmc.samplers import discover
from csgmcmc.samplers.adam import NOISE

# No sampler may declare a larger error of its stationary variance.
LARGEST_TOLERANCE = 0.2

Options = dict[str, Any]
State = dict[str, Tensor]
PlainUpdate = Callable[[Options, Tensor, Tensor, Tensor | None, State], None]
"""The update of one tensor in place: options, parameter, gradient of U / N, noise, state."""


@dataclass(frozen=True)
class Expected:
    """What a sampler is compared with.

    Attributes:
        at_temperature_0: the torch optimizer that it equals at temperature 0 and constant lr, made
            from parameters and the sampler's options.
        plain_update: its update written out for one tensor, which it equals bit for bit.
        tolerance: largest relative error of its stationary variance; 0 where that is exact.
        options: options for tests of the contract of N, T and lr, in place of defaults that
            themselves depend on these.
    """

    at_temperature_0: Callable[[Any, Options], torch.optim.Optimizer]
    plain_update: PlainUpdate
    tolerance: float = 0.0
    options: Options = field(default_factory=dict)


def state_tensor(state: State, name: str, param: Tensor, value: float = 0.0) -> Tensor:
    return state.setdefault(name, torch.full_like(param, value))


def langevin_std(options: Options) -> float:
    return (2 * options["lr"] * options["temperature"] / options["num_data"]) ** 0.5


def sgld(options, param, gradient, noise, state):
    param.add_(gradient, alpha=-options["lr"])
    if noise is not None:
        param.add_(noise, alpha=langevin_std(options))


def sghmc(options, param, gradient, noise, state):
    velocity = state_tensor(state, "velocity", param)
    velocity.mul_(options["momentum"]).add_(gradient, alpha=-options["lr"])
    if noise is not None:
        lr, temperature = options["lr"], options["temperature"]
        variance = 2 * (1 - options["momentum"]) * lr * temperature / options["num_data"]
        velocity.add_(noise, alpha=(variance - lr**2 * options["gradient_variance"]) ** 0.5)
    param.add_(velocity)


def sgnht(options, param, gradient, noise, state):
    if noise is None:
        sghmc(options, param, gradient, None, state)
        return
    coupling, lr = options["coupling"], options["lr"]
    friction = state_tensor(state, "friction", param, 1 - options["momentum"])
    velocity = state_tensor(state, "velocity", param)
    kinetic_target = lr * options["temperature"] / options["num_data"]
    noise_std = (2 * (1 - options["momentum"]) * kinetic_target) ** 0.5
    velocity.addcmul_(velocity, friction, value=-1).add_(gradient, alpha=-lr)
    velocity.add_(noise, alpha=noise_std)
    param.add_(velocity)
    kinetic = friction.mul(-0.5).add_(1).mul_(velocity).mul_(velocity)
    friction.add_(kinetic, alpha=coupling / kinetic_target).sub_(coupling)
    friction.clamp_(max=1)


def adam_sghmc(options, param, gradient, noise, state):
    lr, (beta1, beta2) = options["lr"], options["betas"]
    if noise is None:
        state["step"] = state.get("step", 0) + 1
        average, squares = (state_tensor(state, f"exp_avg{name}", param) for name in ("", "_sq"))
        average.lerp_(gradient, 1 - beta1)
        squares.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        root = squares.sqrt() / (1 - beta2 ** state["step"]) ** 0.5
        param.addcdiv_(average, root.add_(options["eps"]), value=-lr / (1 - beta1 ** state["step"]))
        return
    if "scale" not in state:  # of a chain without exploration
        damping = options["damping"]
        if damping is None:
            damping = options["eps"] + lr * options["weight_decay"]
            damping += 2 * options["temperature"] / (NOISE**2 * lr * options["num_data"])
        state["scale"] = ((1 - beta1) / gradient.square().sqrt().add_(damping)).sqrt()
    velocity, scale = state_tensor(state, "velocity", param), state["scale"]
    velocity.mul_(beta1).addcmul_(scale, gradient, value=-lr)
    velocity.add_(noise, alpha=(1 - beta1) ** 0.5 * langevin_std(options))
    param.addcmul_(scale, velocity)


def torch_sgd(params: Any, options: Options) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        params,
        lr=options["lr"],
        momentum=options.get("momentum", 0.0),
        weight_decay=options["weight_decay"],
    )


def torch_adam(params: Any, options: Options) -> torch.optim.Optimizer:
    names = ("lr", "betas", "eps", "weight_decay")
    return torch.optim.Adam(params, **{name: options[name] for name in names})


REGISTRY = {
    "SGLD": Expected(torch_sgd, sgld),
    "SGHMC": Expected(torch_sgd, sghmc),
    "AdamSGHMC": Expected(torch_adam, adam_sghmc, options={"betas": (0.7, 0.99), "damping": 0.3}),
    # The thermostat follows the weights: exact only as lr goes to 0.
    "SGNHT": Expected(torch_sgd, sgnht, tolerance=0.03),
}

# A sampler without an entry fails in tests/samplers/test_registry.py, with a sentence.
SAMPLERS = {name: sampler for name, sampler in discover().items() if name in REGISTRY}
every_sampler = pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
