"""Base of all samplers: a `torch.optim.Optimizer` whose steps sample from the posterior.

The loss is the *mean* negative log-likelihood of a minibatch. With that of the prior, its gradient
is that of U / N, with U = -log p(data | theta) - log p(theta) and N = `num_data`, and the chain
samples exp(-U / T). What this means for each option is said at `Sampler`.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, ClassVar, TypedDict

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.optim.optimizer import ParamsT

from csgmcmc.arguments import check_number, shown
from csgmcmc.noise import Noise
from csgmcmc.samplers.options import plain_options, with_defaults
from csgmcmc.samplers.prior import Prior, gradients_with_prior
from csgmcmc.schedules.base import SCALED, record_initial_options
from csgmcmc.shards import check_not_flattened, local_shard

Group = dict[str, Any]
"""A parameter group: `params` and the options by name."""

Tensors = list[Tensor]
Move = tuple[Group, list[int], Tensors, Tensors, Tensors]
"""A group, and the ids, parameters, local values and gradients of those that are moved."""


class CommonOptions(TypedDict, total=False):
    """Optional arguments of every sampler's constructor; `Sampler` documents them."""

    temperature: float
    weight_decay: float
    prior: Prior | None
    seed: int | None
    chain_id: int


class Sampler(torch.optim.Optimizer, ABC):
    """Base of all samplers: options, priors, noise and state. A subclass adds the update rule.

    A subclass implements `update`, and a constructor if it has options of its own. The rest is
    optional: the class attributes below, `check_options`, `injected_variance`,
    `uncorrected_variance`, `gradient_gain` and `stationary_variance`.

    Args:
        params: parameters, or dictionaries of parameters and their own options.
        lr: step size, as for `torch.optim.SGD`: N times the step size of the literature.
        num_data: N, such that N * loss is the negative log-likelihood of all data: the number of
            targets that the mean loss is over (rows, or rows * labels, or tokens); 1 for a plain
            density.
        temperature: T; 1 samples the posterior, 0 optimises.
        weight_decay: Gaussian prior of precision N * weight_decay.
        prior: any other prior: a `torch.distributions` object, or a function from a parameter to
            the gradient of -log prior.
        options: the subclass's own options by name. Like `lr`, they can be set for each group.
        seed: seed of the noise. By default a new one, available as `sampler.noise.seed`.
        chain_id: number of the chain; chains with the same seed draw independent noise.
    """

    thermostat: ClassVar[bool] = False
    """Whether the sampler adapts to minibatch noise of unknown size."""

    exact_stationary_variance: ClassVar[bool] = False
    """Whether `stationary_variance` is exact for the discrete update, not only as lr goes to 0."""

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        *,
        num_data: float,
        temperature: float = 1.0,
        weight_decay: float = 0.0,
        prior: Prior | None = None,
        options: Mapping[str, Any] | None = None,
        seed: int | None = None,
        chain_id: int = 0,
    ) -> None:
        defaults = {"lr": lr, "num_data": num_data, "temperature": temperature}
        defaults |= {"weight_decay": weight_decay, "prior": prior, **(options or {})}
        self.noise = Noise(seed, chain_id)
        super().__init__(params, plain_options(defaults))

    @abstractmethod
    def update(
        self,
        group: Group,
        params: Tensors,
        gradients: Tensors,
        noise: Tensors | None,
        states: "States",
    ) -> None:
        """Move `params` one step, in place, without autograd.

        All tensors are plain local ones: for a parameter that is sharded over processes, the shard
        of this process.

        Args:
            group: the options of the parameter group: `group["lr"]`, `group["temperature"]`, ...
            params: the parameters of the group that have a gradient.
            gradients: for each parameter, the gradient of U / N, prior included. Read only: they
                may be the parameters' own `grad`.
            noise: for each parameter, standard normal noise; None at temperature 0.
            states: `states(name)` gives for each parameter a tensor that is kept between steps and
                saved in `state_dict`, zeros at first.
        """

    def injected_variance(self, group: Group, param: Tensor) -> Tensor | float | None:
        """Variance of the noise that a step with the options of `group` adds to `param`.

        None, the default, means that it is not declared. Checks of the noise are then skipped.
        """
        return None

    def uncorrected_variance(self, group: Group, param: Tensor) -> Tensor | float | None:
        """`injected_variance` without a correction for minibatch noise.

        A sampler that is told the minibatch noise injects less by that much; both together should
        have the variance returned here.
        """
        return self.injected_variance(group, param)

    def gradient_gain(self, group: Group, param: Tensor) -> Tensor | float:
        """What a step multiplies the gradient of `param` by besides lr: a preconditioner."""
        return 1.0

    def momentum(self, group: Group) -> float:
        """The share of a velocity that a step keeps; 0 for a sampler without velocities."""
        return group.get("momentum", 0.0)

    @classmethod
    def stationary_variance(
        cls,
        curvature: float,
        *,
        lr: float,
        num_data: float,
        temperature: float = 1.0,
        minibatch_variance: float = 0.0,
        **options: Any,
    ) -> float:
        """Stationary variance along an eigenvector of the Hessian of a quadratic U / N.

        For a sampler with `exact_stationary_variance`, the variance of the discrete update, an
        AR(2) process; infinite where lr is too large to be stable. For the others the limit of
        small lr, the posterior's own variance.

        `curvature` is the eigenvalue, `minibatch_variance` the variance of the noise in the
        minibatch gradients of the mean loss. The other arguments are those of the sampler.
        """
        if not cls.exact_stationary_variance:
            return temperature / num_data / curvature  # their product may underflow to 0
        param = torch.zeros(1, dtype=torch.float64)
        sampler = cls([param], lr, num_data=num_data, temperature=temperature, **options)
        (group,) = sampler.param_groups
        momentum, rate = sampler.momentum(group), lr * float(sampler.gradient_gain(group, param))
        added = float(sampler.injected_variance(group, param) or 0) + rate**2 * minibatch_variance
        pull = rate * curvature
        kept = (1 - momentum) * pull * (2 * (1 + momentum) - pull)
        return (1 + momentum) * added / kept if kept > 0 else math.inf

    def check_options(self, options: Group) -> None:
        """Raise a `ValueError` that names an option out of its range. Subclasses extend it."""
        check_number("num_data", options["num_data"], at_least=1)
        for option, initial, _ in SCALED:
            for name in (option, initial):
                if name in options:
                    check_number(name, options[name], at_least=0)
        prior = options["prior"]
        if prior is None:
            return
        if not isinstance(prior, Distribution) and not callable(prior):
            raise ValueError(
                "prior must be None, a torch.distributions object, or a function from a parameter "
                f"to the gradient of its negative log prior, got {shown(prior)}"
            )
        if options["weight_decay"] != 0:
            raise ValueError(
                "weight_decay is a prior too: with prior given it must be 0, got "
                f"{options['weight_decay']!r}"
            )

    def check_group(self, group: Group) -> None:
        """Raise a `ValueError` for parameters that cannot be sampled. Subclasses extend it."""
        check_not_flattened(group["params"])
        for param in group["params"]:
            if not param.is_floating_point() or param.layout != torch.strided:
                raise ValueError(
                    f"params must be real, floating-point and dense, got {param.dtype} of layout "
                    f"{param.layout}: make integers a buffer, and sample a complex parameter as "
                    "its view_as_real"
                )

    def add_param_group(self, param_group: Group) -> None:
        """Add a group of parameters, with options of its own where it has them."""
        param_group = plain_options(param_group)
        self.check_options({**self.defaults, **param_group})
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            self.check_group(group)
        except ValueError:
            self.param_groups.pop()
            raise
        record_initial_options(self)

    @torch.no_grad()
    def step(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, closure: Callable[[], Any] | None = None
    ) -> Any:
        """Take one step. `closure`, if given, re-evaluates the model and returns the loss."""
        with torch.enable_grad():
            loss = None if closure is None else closure()
        # Users' code, which may raise, runs before any parameter moves: there are no half steps.
        moves, step = list(self._moves()), self.noise.step
        self.noise.step += 1  # now: a step that is interrupted must not repeat its noise
        for move in moves:
            self._apply(move, step)
        return loss

    def _moves(self) -> Iterator[Move]:
        """For each group, the parameters that have a gradient."""
        first = 0
        for group in self.param_groups:
            own = group["params"]
            ids = [first + i for i, param in enumerate(own) if param.grad is not None]
            if ids:
                params = own if len(ids) == len(own) else [own[i - first] for i in ids]
                values = list(map(local_shard, params))
                yield group, ids, params, values, gradients_with_prior(group, params, values)
            first += len(own)

    def _apply(self, move: Move, step: int) -> None:
        """Add weight decay, draw the noise and update."""
        group, ids, params, values, gradients = move
        if group["weight_decay"] != 0:
            gradients = list(torch._foreach_add(gradients, values, alpha=group["weight_decay"]))
        draw = _untraced_noise if torch.compiler.is_compiling() else Noise.like
        noise = draw(self.noise, params, ids, step) if group["temperature"] > 0 else None
        self.update(group, values, gradients, noise, States(self.state, params))

    def state_dict(self) -> dict[str, Any]:
        """The state of parameters, options and noise, safe for `torch.load(weights_only=True)`.

        Priors are code, not state: they are not saved, and `load_state_dict` does not change them.
        """
        state = super().state_dict()
        for group in state["param_groups"]:
            group.pop("prior")
        return {**state, "kind": type(self).__name__, "noise": self.noise.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from `state_dict`, bit for bit: with its options, its seed and its noise.

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
        state = with_defaults(self, state_dict)
        priors = [group["prior"] for group in self.param_groups]
        for group, prior in zip(state["param_groups"], priors, strict=False):
            self.check_options({**group, "prior": prior})
        # torch keeps the tensors it is given: chains loaded from one state would share them.
        super().load_state_dict({**state, "state": copy.deepcopy(state["state"])})
        for group, prior in zip(self.param_groups, priors, strict=True):
            group["prior"] = prior
        self.noise = noise

    def reseed(self, seed: int | None = None, chain_id: int | None = None) -> None:
        """Continue with other noise, for chains that start from one state or copies of a sampler.

        A seed or chain that is not given stays the same, and so does the number of the step.
        """
        before = self.noise
        chain_id = before.chain_id if chain_id is None else chain_id
        self.noise = Noise(before.seed if seed is None else seed, chain_id)
        self.noise.step = before.step
        self.noise.seed_is_given = before.seed_is_given or seed is not None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "noise": self.noise}


class States:
    """The state tensors of some parameters: `states(name)` gives one for each of them."""

    def __init__(
        self, state: MutableMapping[Tensor, dict[str, Any]], params: Sequence[Tensor]
    ) -> None:
        self._state, self._params = state, params

    def __call__(
        self, name: str, start: Callable[[Tensor], Tensor] = torch.zeros_like
    ) -> list[Tensor]:
        """The tensors called `name`, local as those of `update`; new ones are `start(param)`."""
        tensors = []
        for param in self._params:
            state = self._state[param]
            if name not in state:
                state[name] = start(param)
            tensors.append(local_shard(state[name]))
        return tensors


_untraced_noise = torch._disable_dynamo(Noise.like)
