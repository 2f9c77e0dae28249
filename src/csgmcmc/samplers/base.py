"""Base of all samplers: a `torch.optim.Optimizer` whose steps sample from the posterior.

The contract of all samplers:

- The loss is the *mean* negative log-likelihood of a minibatch. The gradient is therefore that of
  U / N, with U = -log p(data | theta) - log p(theta) and N = `num_data`. So N * loss must equal
  the negative log-likelihood of all data.
- `weight_decay` is a Gaussian prior of precision N * weight_decay; `prior` is any other prior.
- `temperature` T samples exp(-U / T): 1 is the posterior, 0 is optimisation without noise.
- `lr` is N times the step size of the literature: the number one would give `torch.optim.SGD`.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import cache
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from csgmcmc.arguments import (
    check_function,
    check_kind,
    check_number,
    plain_value,
    shown,
)
from csgmcmc.samplers.description import describe
from csgmcmc.samplers.fused import FusedTerms, fused_update, pays, shapes_agree, why_not_fused
from csgmcmc.samplers.inputs import (
    check_groups,
    check_real,
    checked_formula,
    checked_group,
    checked_params,
    plain_options,
)
from csgmcmc.samplers.noise import Noise
from csgmcmc.samplers.prior import Prior, check_prior, gradients_with_prior
from csgmcmc.shards import check_not_flattened, local_shard

SCHEDULED = ("lr", "temperature", "weight_decay")
"""Options that a schedule may scale; a group records the initial value of each."""

Group = dict[str, Any]
"""A parameter group: `params` and the options by name."""


class Sampler(torch.optim.Optimizer, ABC):
    """Base of all samplers: options, priors, noise and state. A subclass adds the update rule.

    A subclass implements `update`, and a constructor if it has options of its own. The rest is
    optional: the class attributes below, `check_options`, `injected_variance`, `gradient_gain` and
    `stationary_variance`.

    Args:
        params: parameters, or dictionaries of parameters and their own options.
        lr: step size, as for `torch.optim.SGD`: N times the step size of the literature.
        num_data: N, for which N * loss is the negative log-likelihood of all data: the number of
            targets that the mean loss is over (rows, or rows * labels, or tokens); 1 for a plain
            density.
        temperature: T; 1 samples the posterior, 0 optimises.
        weight_decay: Gaussian prior of precision N * weight_decay.
        prior: any other prior: a `torch.distributions` object, or a function from a parameter to
            the gradient of -log prior.
        options: the subclass's own options by name. As `lr`, they can be set for each group.
        seed: seed of the noise. By default a new one, available as `sampler.noise.seed`.
        chain_id: number of the chain; chains with the same seed draw independent noise.
    """

    preconditioned: ClassVar[bool] = False
    """Whether steps are scaled per weight by a preconditioner, which `gradient_gain` returns."""

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
        priors = {"weight_decay": weight_decay, "prior": prior}
        noise = Noise(seed, chain_id)
        options = plain_options({**defaults, **priors, **(options or {})})
        super().__init__(checked_params(params), options)
        self.noise = noise

    def __repr__(self) -> str:
        return describe(self)

    @abstractmethod
    def update(
        self,
        group: Group,
        params: list[Tensor],
        gradients: list[Tensor],
        noise: list[Tensor] | None,
        states: "States",
    ) -> None:
        """Move `params` one step, in place, without autograd.

        All tensors are plain local ones: of a parameter that is sharded over processes, the shard
        of this process.

        Args:
            group: the options of the parameter group: `group["lr"]`, `group["temperature"]`, ...
            params: the parameters of the group that have a gradient.
            gradients: for each parameter, the gradient of U / N, prior included. Read only: they
                may be the parameters' own `grad`.
            noise: for each parameter, standard normal noise; None at temperature 0.
            states: `states("velocity")` gives for each parameter a tensor that is kept between
                steps and saved in `state_dict`, zeros at first.
        """

    def fused_terms(self, group: Group, states: "States") -> FusedTerms:
        """What the fused kernel needs for the update; for samplers that have the option `fused`."""
        return FusedTerms(noise_std=0.0)

    def injected_variance(self, group: Group, param: Tensor) -> Tensor | float | None:
        """Variance of the noise that a step with the options of `group` adds to `param`.

        None, the default, means that it is not declared. Checks of the noise are then skipped.
        """
        return None

    def gradient_gain(self, group: Group, param: Tensor) -> Tensor | float:
        """What a step multiplies the gradient of `param` by besides lr: a preconditioner."""
        return 1.0

    @classmethod
    def stationary_variance(
        cls, curvature: float, *, lr: float, num_data: float, temperature: float = 1.0
    ) -> float:
        """Stationary variance along an eigenvector of the Hessian of a quadratic U / N.

        `curvature` is the eigenvalue. By default this is the limit of small lr, the posterior's own
        variance. Samplers with `exact_stationary_variance` return the variance of the discrete
        update instead, which is infinite where lr is too large to be stable.
        """
        temperature, num_data, curvature, _ = checked_formula(
            temperature=temperature, num_data=num_data, curvature=curvature, lr=lr
        )
        return temperature / num_data / curvature  # their product may be rounded to 0

    def check_options(self, options: Group) -> None:
        """Raise a `ValueError` that names an option out of its range. Subclasses extend it."""
        check_number("num_data", options["num_data"], at_least=1)
        for option in SCHEDULED:
            for name in (option, f"initial_{option}"):
                if name in options:
                    check_number(name, options[name], at_least=0)
        if "fused" in options and "fused" not in self.defaults:
            raise ValueError(
                f"fused must be left out, got {options['fused']!r}: {type(self).__name__} has no "
                "fused update"
            )
        if not any(options.get("fused") is choice for choice in (None, True, False)):
            raise ValueError(f"fused must be None, True or False, got {shown(options['fused'])}")
        check_prior(options["prior"])
        if options["prior"] is not None and options["weight_decay"] != 0:
            raise ValueError(
                "weight_decay is a prior too: with prior given it must be 0, got "
                f"{options['weight_decay']!r}"
            )

    def add_param_group(self, param_group: Group) -> None:
        """Add a group of parameters, with options of its own where it has them."""
        param_group = plain_options(checked_group(param_group))
        self.check_options({**self.defaults, **param_group})
        try:
            super().add_param_group(param_group)
        except (TypeError, LookupError) as error:
            raise ValueError(f"params must be parameters of a model: {error}") from error
        group = self.param_groups[-1]
        try:
            check_not_flattened(group["params"])
            check_real(group["params"])
        except ValueError:
            self.param_groups.pop()
            raise
        reason = why_not_fused(map(local_shard, group["params"])) if group.get("fused") else None
        if reason is not None:
            self.param_groups.pop()
            raise ValueError(f"fused must be None or False here, got True: {reason}")
        for option, value in group.items():  # a state_dict holds nothing else
            if option not in ("params", "prior"):
                group[option] = plain_value(value)
        for option in SCHEDULED:
            group.setdefault(f"initial_{option}", group[option])

    @torch.no_grad()
    def step(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, closure: Callable[[], Any] | None = None
    ) -> Any:
        """Take one step. `closure`, where given, re-evaluates the model and returns the loss."""
        with torch.enable_grad():
            loss = None if closure is None else check_function("closure", closure)()
        # Users' code, which may raise, runs before any parameter moves: there are no half steps.
        moves, step = list(self._moves()), self.noise.step
        self.noise.step += 1  # now: a step that is interrupted must not repeat its noise
        for move in moves:
            self._apply(move, step)
        return loss

    def _moves(self) -> Iterator["_Move"]:
        """What is to be moved: of each group, the parameters that have a gradient."""
        first = 0
        for group in self.param_groups:
            own = group["params"]
            ids = [first + i for i, param in enumerate(own) if param.grad is not None]
            if ids:
                params = own if len(ids) == len(own) else [own[i - first] for i in ids]
                values = list(map(local_shard, params))
                yield _Move(group, ids, params, values, gradients_with_prior(group, params, values))
            first += len(own)

    def _apply(self, move: "_Move", step: int) -> None:
        group, ids, params, values, gradients = move
        states, decay = States(self.state, params), group["weight_decay"]
        fused = group.get("fused", False)
        # torch.compile fuses by itself; the kernels, which it cannot trace, only make the noise.
        compiling = torch.compiler.is_compiling()
        if fused is not False and not compiling and _has_fused_update(type(self)):
            terms = self.fused_terms(group, states)
            tensors = [*values, *gradients, *terms.velocities]
            agree = shapes_agree(values, gradients, terms.velocities)
            if (fused or pays(terms, values)) and agree and why_not_fused(tensors) is None:
                options = {"lr": group["lr"], "weight_decay": decay}
                fused_update(self.noise, step, ids, params, values, gradients, terms, **options)
                return
        if decay != 0:
            gradients = list(torch._foreach_add(gradients, values, alpha=decay))
        draw = _untraced_noise if compiling else Noise.like
        noise = draw(self.noise, params, ids, step) if group["temperature"] > 0 else None
        self.update(group, values, gradients, noise, states)

    def state_dict(self) -> dict[str, Any]:
        """The state of parameters, options and noise, safe for `torch.load(weights_only=True)`.

        Priors are code, not state: they are not saved, and `load_state_dict` does not change them.
        """
        state = super().state_dict()
        for group in state["param_groups"]:
            group.pop("prior")
        return {**state, "noise": self.noise.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from `state_dict`, bit for bit: with its options, its seed and its noise.

        It must be of the same chain; to start other chains from it, see `reseed`.
        """
        check_kind("state_dict", state_dict, Mapping, "a dictionary")
        priors = [group["prior"] for group in self.param_groups]
        noise = Noise()

        # Registered last, so that it checks what other hooks have made of the state.
        def check(_: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
            self._check_state(state, noise)
            # torch keeps the tensors it is given: chains loaded from one state would share them.
            return {**state, "state": copy.deepcopy(state["state"])}

        def restore(_: torch.optim.Optimizer) -> None:
            for group, prior in zip(self.param_groups, priors, strict=True):
                group["prior"] = prior
            self.noise = noise

        before = self.register_load_state_dict_pre_hook(check)
        after = self.register_load_state_dict_post_hook(restore, prepend=True)
        try:
            super().load_state_dict(state_dict)
        finally:
            before.remove()
            after.remove()

    def _check_state(self, state: dict[str, Any], noise: Noise) -> None:
        """Load the noise of a state, or raise a `ValueError` if it is not of such a sampler."""
        if "noise" not in state:
            raise ValueError("state_dict has no noise: it was not made by a csgmcmc sampler")
        noise.load_state_dict(state["noise"])
        if noise.chain_id != self.noise.chain_id:
            raise ValueError(
                f"state_dict is of chain {noise.chain_id}, and this sampler is chain "
                f"{self.noise.chain_id}: to start another chain from it, make the sampler with "
                f"chain_id={noise.chain_id}, load, then call reseed(chain_id={self.noise.chain_id})"
            )
        check_groups(self, state)

    def reseed(self, seed: int | None = None, chain_id: int | None = None) -> None:
        """Go on with other noise, for chains that begin from one state or for copies of a sampler.

        A seed or chain that is not given stays the same, and so does the number of the step.
        """
        before = self.noise
        self.noise = Noise(
            before.seed if seed is None else seed, before.chain_id if chain_id is None else chain_id
        )
        self.noise.step = before.step
        self.noise.seed_is_given = before.seed_is_given or seed is not None

    def set_lr(self, group: Group, lr: float) -> None:
        """Set the step size of a group of `param_groups` between two steps of a chain.

        `lr` replaces `initial_lr`, of which a schedule takes a share; the current share is kept.
        The stationary variance of a velocity is proportional to lr, so velocities are multiplied by
        the root of the change, and stay as they are in units of their standard deviation.
        """
        if not any(group is own for own in self.param_groups):
            raise ValueError(f"group must be one of param_groups, got {shown(group)}")
        lr = check_number("lr", lr, above=0)
        factor = lr / check_number("initial_lr", group["initial_lr"], above=0)
        group["lr"] *= factor
        group["initial_lr"] = lr
        for param in group["params"] if factor != 1 else ():
            if "velocity" in self.state.get(param, {}):
                self.state[param]["velocity"].mul_(math.sqrt(factor))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "noise": self.noise}


class States:
    """The state tensors of some parameters: `states("velocity")` gives one for each of them.

    Args:
        state: the optimizer's state, by parameter.
        params: the parameters, in the order of the tensors.
    """

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

    def missing(self, name: str) -> list[int]:
        """Indices of the parameters that have no tensor called `name` yet."""
        return [i for i, param in enumerate(self._params) if name not in self._state[param]]


_untraced_noise = torch._disable_dynamo(Noise.like)


@cache
def _has_fused_update(sampler: type[Sampler]) -> bool:
    """Whether the class that defines the update also says what of it the kernel needs."""
    owner = next(each for each in sampler.__mro__ if "update" in vars(each))
    return owner is not Sampler and "fused_terms" in vars(owner)


class _Move(NamedTuple):
    """Parameters of a group that are moved together; gradients are those of loss and prior."""

    group: Group
    parameter_ids: list[int]
    params: list[Tensor]
    values: list[Tensor]
    gradients: list[Tensor]
