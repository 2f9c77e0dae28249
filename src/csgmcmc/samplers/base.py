"""What every sampler is: a `torch.optim.Optimizer` whose steps leave draws from the posterior.

The contract, for all samplers:

- the loss is the *mean* negative log-likelihood of a minibatch, so that the gradient is that of
  U / N, with U = -log p(data | theta) - log p(theta) and N = `num_data`;
- `weight_decay` is a Gaussian prior of precision N * weight_decay; `prior` is any other;
- `temperature` T samples exp(-U / T): 1 is the posterior, 0 is optimisation, with no noise at all;
- `lr` is N times the step size of the literature: the number one would give `torch.optim.SGD`.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from csgmcmc.arguments import check_number
from csgmcmc.samplers.noise import Noise
from csgmcmc.samplers.prior import check_prior, prior_gradient
from csgmcmc.shards import local_shard

Group = dict[str, Any]
"""A parameter group: `params` and the options by name."""


class Sampler(torch.optim.Optimizer, ABC):
    """Base of all samplers: options, priors, noise and state. A subclass brings the update rule.

    A subclass implements `_update`, and declares its law for the conformance tests:
    `injected_variance`, `reference`, and `stationary_variance` or a `law_tolerance`.

    Args:
        params: parameters, or dictionaries of parameters and their own options.
        options: every option by name, as the default of all groups.
        seed: seed of the noise, an integer; by default a new one, which `sampler.noise.seed` tells.
        generator: draw the seed from this generator instead.
        chain_id: number of the chain; chains of one seed draw independent noise.
    """

    law_tolerance: float = 0.0
    """Largest relative error of the stationary variance against `stationary_variance`."""

    def __init__(
        self,
        params: ParamsT,
        options: dict[str, Any],
        *,
        seed: int | None,
        generator: torch.Generator | None,
        chain_id: int,
    ) -> None:
        if generator is not None:
            if not isinstance(generator, torch.Generator):
                raise ValueError(f"generator must be a torch.Generator, got {generator!r}")
            if seed is not None:
                raise ValueError(f"give seed or generator, not both: got seed={seed!r}")
            seed = _seed_from(generator)
        super().__init__(params, options)
        self.noise = Noise(seed, chain_id)

    @abstractmethod
    def _update(
        self,
        group: Group,
        params: list[Tensor],
        gradients: list[Tensor],
        noise: list[Tensor] | None,
        foreach: bool,
    ) -> None:
        """Move `params` one step; `noise` is standard normal, or None at temperature 0.

        `params` are the keys of `self.state`. Arithmetic is done on `local` tensors: what this
        process holds of parameters that are sharded over several.
        """

    @abstractmethod
    def injected_variance(self, group: Group, param: Tensor) -> Tensor | float:
        """Variance of the noise that a step adds to `param` with the group's current options."""

    def gradient_gain(self, group: Group, param: Tensor) -> Tensor | float:
        """What a step multiplies the gradient of `param` by, besides lr: a preconditioner."""
        return 1.0

    @classmethod
    @abstractmethod
    def reference(cls, params: ParamsT, **options: Any) -> torch.optim.Optimizer:
        """The torch optimizer that this sampler equals at temperature 0 and constant lr."""

    @classmethod
    def stationary_variance(
        cls, curvature: float, *, lr: float, num_data: float, temperature: float = 1.0
    ) -> float:
        """Variance of the sampler's law along an eigenvector of a quadratic mean loss.

        `curvature` is the eigenvalue of the Hessian of U / N. This is the continuous limit, the
        posterior's own variance; samplers whose discrete law is known give that instead, and
        infinity where the step is too large for there to be one.
        """
        del lr
        return temperature / (num_data * curvature)

    def _check_options(self, options: Group) -> None:
        """Raise a `ValueError` that names any option that is out of its range."""
        check_number("lr", options["lr"], at_least=0)
        check_number("temperature", options["temperature"], at_least=0)
        check_number("num_data", options["num_data"], at_least=1)
        check_number("weight_decay", options["weight_decay"], at_least=0)
        for option in ("initial_lr", "initial_temperature"):
            if option in options:
                check_number(option, options[option], at_least=0)
        if options["foreach"] not in (None, True, False):
            raise ValueError(f"foreach must be None, True or False, got {options['foreach']!r}")
        check_prior(options["prior"])
        if options["prior"] is not None and options["weight_decay"] != 0:
            raise ValueError(
                "weight_decay is a prior too: with prior given it must be 0, got "
                f"{options['weight_decay']!r}"
            )

    def add_param_group(self, param_group: Group) -> None:
        """Add a group of parameters, with options of its own where it has them."""
        self._check_options({**self.defaults, **param_group})
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        if any(param.is_complex() for param in group["params"]):
            self.param_groups.pop()
            raise ValueError("params must be real: sample a complex one as its view_as_real")
        for option, value in group.items():  # plain numbers: a state_dict holds nothing else
            if isinstance(value, (Tensor, np.generic)):
                group[option] = value.item()
        for option in ("lr", "temperature"):
            group.setdefault(f"initial_{option}", group[option])

    @torch.no_grad()
    def step(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, closure: Callable[[], Any] | None = None
    ) -> Any:
        """Take one step. `closure`, where given, re-evaluates the model and returns the loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        work = [(group, _with_gradient(group["params"])) for group in self.param_groups]
        work = [(group, params) for group, params in work if params]
        # Both paths give the same bits: for one tensor the plain one has less overhead.
        foreach = [
            len(params) > 1 if group["foreach"] is None else group["foreach"]
            for group, params in work
        ]
        # All that users' code can fail in comes first, so that there are no half steps.
        gradients = [_gradients(*task, path) for task, path in zip(work, foreach, strict=True)]
        hot = [param for group, params in work if group["temperature"] > 0 for param in params]
        everything = [param for group in self.param_groups for param in group["params"]]
        noise = iter(self.noise.like(hot, among=everything))
        for (group, params), path, gradient in zip(work, foreach, gradients, strict=True):
            group_noise = None
            if group["temperature"] > 0:
                group_noise = list(islice(noise, len(params)))
            self._update(group, params, gradient, group_noise, path)
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The state of parameters, options and noise, safe for `torch.load(weights_only=True)`.

        Priors are code, not state: they are left out, and stay as they are in `load_state_dict`.
        """
        state = super().state_dict()
        for group in state["param_groups"]:
            group.pop("prior")
        return {**state, "noise": self.noise.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from `state_dict`, bit for bit: with its options, its seed and its noise.

        It must be of the same chain; to start other chains from it, see `reseed`.
        """
        if "noise" not in state_dict:
            raise ValueError("state_dict has no noise: it was not made by a csgmcmc sampler")
        noise = Noise()
        noise.load_state_dict(state_dict["noise"])
        if noise.chain_id != self.noise.chain_id:
            raise ValueError(
                f"state_dict is of chain {noise.chain_id}, and this sampler is chain "
                f"{self.noise.chain_id}: to start another chain from it, make the sampler with "
                f"chain_id={noise.chain_id}, load, then call reseed(chain_id={self.noise.chain_id})"
            )
        options = self.defaults.keys() & self.param_groups[0].keys()
        for group in state_dict["param_groups"]:
            missing = options - group.keys() - {"prior"}
            if missing:
                raise ValueError(
                    f"state_dict is of another kind of sampler: it has no {', '.join(missing)}"
                )
        priors = [group["prior"] for group in self.param_groups]
        # torch keeps the tensors it is given: two chains loaded from one state would share them.
        super().load_state_dict({**state_dict, "state": copy.deepcopy(state_dict["state"])})
        for group, prior in zip(self.param_groups, priors, strict=True):
            group["prior"] = prior
        self.noise = noise

    def reseed(self, seed: int | None = None, chain_id: int | None = None) -> None:
        """Begin new noise: for chains that start from one state, or copies of one sampler.

        What is not given stays as it is.
        """
        old = self.noise
        self.noise = Noise(
            old.seed if seed is None else seed, old.chain_id if chain_id is None else chain_id
        )

    def set_lr(self, group: Group, lr: float) -> None:
        """Set the step size of a group of `param_groups` between two steps of a chain.

        `lr` replaces `initial_lr`, of which a schedule takes a share; the current share is kept.
        The stationary variance of a velocity is proportional to lr, so velocities are multiplied by
        the root of the change, and stay as they are in units of their standard deviation.
        """
        factor = check_number("lr", lr, above=0) / group["initial_lr"]
        group["lr"] *= factor
        group["initial_lr"] = lr
        for param in group["params"] if factor != 1 else ():
            if "velocity" in self.state.get(param, {}):
                self.state[param]["velocity"].mul_(math.sqrt(factor))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "noise": self.noise}

    def _states(
        self, params: Sequence[Tensor], name: str, start: Callable[[Tensor], Tensor]
    ) -> list[Tensor]:
        """The state tensor `name` of each of `params`, made by `start` where there is none yet."""
        for param in params:
            if name not in self.state[param]:
                self.state[param][name] = start(param)
        return [local_shard(self.state[param][name]) for param in params]


def zeros(param: Tensor) -> Tensor:
    """Zeros in the shape and memory layout of `param`: the start of most state tensors."""
    return torch.zeros_like(param, memory_format=torch.preserve_format)


def _with_gradient(params: list[Tensor]) -> list[Tensor]:
    found = [param for param in params if param.grad is not None]
    for param in found:
        if param.grad is not None and param.grad.layout != torch.strided:
            raise RuntimeError(
                f"the gradient of a parameter of shape {tuple(param.shape)} is sparse: samplers "
                "move every weight at every step and need dense gradients (sparse=False)"
            )
    return found


def _gradients(group: Group, params: list[Tensor], foreach: bool) -> list[Tensor]:
    """Gradients of U / N: those of the loss, and the prior's."""
    gradients = [local_shard(param.grad) for param in params if param.grad is not None]
    params = [local_shard(param) for param in params]
    weight_decay, prior = group["weight_decay"], group["prior"]
    if prior is not None:
        scale = 1 / group["num_data"]
        return [
            gradient.add(prior_gradient(prior, param), alpha=scale)
            for param, gradient in zip(params, gradients, strict=True)
        ]
    if weight_decay == 0:
        return gradients
    if foreach:
        return list(torch._foreach_add(gradients, params, alpha=weight_decay))
    return [
        gradient.add(param, alpha=weight_decay)
        for param, gradient in zip(params, gradients, strict=True)
    ]


def _seed_from(generator: torch.Generator) -> int:
    """A seed of 63 bits, drawn from `generator`."""
    draw = torch.empty((), dtype=torch.int64, device=generator.device)
    return int(draw.random_(generator=generator).item())
