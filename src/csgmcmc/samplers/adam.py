r"""Stochastic gradient Hamiltonian Monte Carlo with the preconditioner of Adam.

At T = 0 each step is that of `torch.optim.Adam`:

    m     <- beta1 * m + (1 - beta1) * grad,      m_hat = m / (1 - beta1^t)
    v     <- beta2 * v + (1 - beta2) * grad^2,    v_hat = v / (1 - beta2^t)
    theta <- theta - lr * m_hat / (sqrt(v_hat) + eps)

with grad the gradient of U / N (Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR
2015). The first step with T > 0 freezes the preconditioner, and from there on the steps are those
of SGHMC with momentum beta1 in the coordinates theta / s:

    s     =  sqrt((1 - beta1) / (sqrt(v_hat) + damping))
    u     <- beta1 * u - lr * s * grad + sqrt(2 * (1 - beta1) * lr * T / N) * xi,    xi ~ N(0, I)
    theta <- theta + s * u

So each weight has its own step size, lr * s^2, with which SGHMC moves as fast as Adam does. The
stationary distribution does not depend on s, which is fixed: the drift has no further term. When T
is 0 again, as in the next cycle of a schedule, the preconditioner adapts anew.

The damping bounds the noise. Where a network fits its data exactly v_hat vanishes, and noise that
is scaled by it destroys the network. The default is

    damping = eps + lr * weight_decay + 2 * T / (NOISE^2 * lr * N)

with the options of the first step that samples. The last term bounds the standard deviation that
the noise alone gives to s * u, by NOISE * lr * sqrt((1 - beta1) / (1 + beta1)): for NOISE = 1, that
of Adam's own steps where the gradients are nothing but noise. As T goes to 0, the preconditioner
becomes Adam's. The second term keeps weights stable that have a prior and no gradient.
"""

import math
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.optimizer import ParamsT

from csgmcmc.arguments import check_items, check_number, check_real, shown
from csgmcmc.errors import SamplingWarning, warn
from csgmcmc.noise.fused import FusedTerms, can_fuse
from csgmcmc.samplers.base import CommonOptions, Group, Move, States, Tensors
from csgmcmc.samplers.fused import FusedSampler
from csgmcmc.samplers.sgld import langevin_variance
from csgmcmc.shards import local_shard

NOISE = 1.0
"""Largest noise in the velocity of a weight, relative to that of Adam's own steps."""


class AdamSGHMC(FusedSampler):
    """Adam at temperature 0; above, SGHMC with Adam's preconditioner, which is then frozen.

    Begin with steps at temperature 0, in which the preconditioner adapts, as every schedule with a
    cold exploration or burn-in does.

    Args:
        lr: step size, as for `torch.optim.Adam`. While sampling, a weight has SGHMC's step size
            lr * (1 - betas[0]) / (sqrt(v_hat) + damping).
        betas: memory of the gradient, which is also the momentum while sampling, and of its square;
            each at least 0 and below 1.
        eps: bound of the preconditioner at temperature 0, which is at most 1 / eps; above 0.
        damping: bound of the preconditioner while sampling, above 0. By default it follows from
            lr, T and N.
        fused: as for `SGLD`; at temperature 0 it is torch's own fused Adam.

    Other arguments: see `Sampler`.
    """

    exact_stationary_variance: ClassVar[bool] = True

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        *,
        num_data: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        damping: float | None = None,
        fused: bool | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        options = {"betas": betas, "eps": eps, "damping": damping, "fused": fused}
        super().__init__(params, lr, num_data=num_data, options=options, **common)

    def check_options(self, options: Group) -> None:
        super().check_options(options)
        words = "two numbers, each at least 0 and below 1"
        betas = check_items("betas", options["betas"], words)
        if len(betas) != 2 or not all(0 <= check_real("betas", beta) < 1 for beta in betas):
            raise ValueError(f"betas must be {words}, got {shown(options['betas'])}")
        check_number("eps", options["eps"], above=0)
        if options["damping"] is not None:
            check_number("damping", options["damping"], above=0)

    def momentum(self, group: Group) -> float:
        return group["betas"][0]

    def gradient_gain(self, group: Group, param: Tensor) -> Tensor:
        """s^2; before it is frozen, what it would be now."""
        state = self.state.get(param, {})
        if "scale" in state:
            return state["scale"].square()
        return square_scale(_mean_square(state, group) if state else torch.zeros_like(param), group)

    def injected_variance(self, group: Group, param: Tensor) -> Tensor:
        return self.gradient_gain(group, param) * velocity_noise(group) ** 2

    def fused_terms(self, group: Group, states: States) -> FusedTerms | None:
        if group["temperature"] == 0:
            return None
        return FusedTerms(velocity_noise(group), states("velocity"), states("scale"))

    def _apply(self, move: Move, step: int) -> None:
        """Freeze the preconditioner where sampling begins, and forget it where it has ended."""
        group, _, params, values, gradients = move
        is_hot = group["temperature"] > 0
        changed = [i for i, param in enumerate(params) if is_hot != ("scale" in self.state[param])]
        if is_hot and not all(self.state[params[i]] for i in changed):
            warn(
                "AdamSGHMC samples with a preconditioner from a single gradient: begin with steps "
                "at temperature 0, in which it adapts",
                SamplingWarning,
            )
        for i in changed:
            parts = (group, params[i], values[i], gradients[i])
            self.state[params[i]] = self._frozen(*parts) if is_hot else {}
        super()._apply(move, step)

    def _frozen(
        self, group: Group, param: Tensor, value: Tensor, gradient: Tensor
    ) -> dict[str, Tensor]:
        """The state of a parameter when sampling begins."""
        state, scale = self.state[param], torch.zeros_like(param)
        square = gradient.add(value, alpha=group["weight_decay"]).square_()
        if state:
            square = local_shard(_mean_square(state, group))
        local_shard(scale).copy_(square_scale(square, group).sqrt_())
        return {"scale": scale}

    def _can_fuse(self, group: Group, params: Tensors, gradients: Tensors) -> bool:
        """Whether torch's own fused Adam does a cold step."""
        if group["fused"] is False or torch.compiler.is_compiling():
            return False
        return can_fuse(params, gradients)

    def update(self, group, params, gradients, noise, states) -> None:
        if noise is None:
            averages, squares = states("exp_avg"), states("exp_avg_sq")
            steps = states("step", lambda _: torch.zeros((), device="cpu"))
            beta1, beta2 = group["betas"]
            options: Any = {"lr": group["lr"], "eps": group["eps"], "weight_decay": 0.0}
            options |= {"beta1": beta1, "beta2": beta2, "amsgrad": False, "maximize": False}
            fused = True if self._can_fuse(group, params, gradients) else None  # None: foreach
            adam(params, gradients, averages, squares, [], steps, fused=fused, **options)
            return
        velocities, scales = states("velocity"), states("scale")
        torch._foreach_mul_(velocities, group["betas"][0])
        torch._foreach_addcmul_(velocities, scales, gradients, value=-group["lr"])
        torch._foreach_add_(velocities, noise, alpha=velocity_noise(group))
        torch._foreach_addcmul_(params, scales, velocities)


def _mean_square(state: dict[str, Tensor], group: Group) -> Tensor:
    """v_hat."""
    return state["exp_avg_sq"] / (1 - group["betas"][1] ** state["step"].item())


def square_scale(mean_square: Tensor, group: Group) -> Tensor:
    """s^2, if it is frozen with the present options of `group`."""
    damping = group["damping"]
    if damping is None:
        lr = group["lr"] or group.get("initial_lr") or 1.0  # a schedule may begin at 0
        damping = group["eps"] + lr * group["weight_decay"]
        damping += 2 * group["temperature"] / (NOISE**2 * lr * group["num_data"])
    return (1 - group["betas"][0]) / mean_square.sqrt().add_(damping)


def velocity_noise(group: Group) -> float:
    """Standard deviation of the noise that a step adds to u."""
    return math.sqrt((1 - group["betas"][0]) * langevin_variance(group))
