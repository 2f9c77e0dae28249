"""What a stepper is given, and its checks."""

import math
import warnings
from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor, nn

from csgmcmc.arguments import check_kind, plain_value, shown
from csgmcmc.distributed import ProcessLayout
from csgmcmc.draws import Draws
from csgmcmc.draws.base import check_state
from csgmcmc.schedules import Schedule
from csgmcmc.stepper.words import LoopWords

NARROW_DTYPES = {torch.float16, torch.bfloat16}


def trained_parameters(model: nn.Module, sampler: torch.optim.Optimizer) -> list[nn.Parameter]:
    """The parameters of the model that are sampled; checks that the sampler holds no others."""
    trained = [param for param in model.parameters() if param.requires_grad]
    if not trained:
        raise ValueError("model has no trainable parameter: nothing to sample")
    known = {id(param) for param in model.parameters()}
    for group in sampler.param_groups:
        for param in group["params"]:
            if id(param) not in known:
                raise ValueError(
                    f"sampler holds a parameter of shape {tuple(param.shape)} that is not the "
                    "model's: make it with model.parameters(), after stacking, and put parameters "
                    "of the loss into the model"
                )
    return trained


def all_tensors(model: nn.Module) -> dict[str, Tensor]:
    """All that a model holds, including buffers that its state_dict leaves out."""
    return {**dict(model.named_buffers()), **model.state_dict()}


def as_tensor(name: str, value: Tensor | float) -> Tensor:
    """A number or a tensor of numbers, detached; anything else raises a `ValueError`."""
    if isinstance(value, Tensor) and not (value.is_meta or value.is_complex()):
        return value.detach()
    number = plain_value(value)
    if isinstance(number, (int, float)):
        with suppress(OverflowError):  # of a whole number that no float holds
            return torch.tensor(float(number))
        return torch.tensor(math.inf)
    raise ValueError(f"{name} must be a number, or a tensor of them, got {shown(value)}")


def check_gradients(params: Sequence[Tensor]) -> None:
    """Raise a `ValueError` if none of them has a gradient: nothing would move, without a word."""
    if all(param.grad is None for param in params):
        raise ValueError(
            "no parameter of the model has a gradient: call backward() of a loss that is computed "
            "from the model's outputs before each step"
        )


def warn_of_narrow_weights(params: Sequence[Tensor], words: LoopWords) -> None:
    """Warn of weights of 16 bits, which round the noise away."""
    narrow = {param.dtype for param in params} & NARROW_DTYPES
    if narrow:
        warnings.warn(
            f"the sampled weights are {narrow.pop()}, which rounds most of the noise away: keep "
            f"them in torch.float32, and use mixed precision: {words.mixed_precision}",
            stacklevel=5,
        )


def warn_of_lost_draws(wanted: int, found: int, taken: int) -> None:
    """Warn if draws that a resumed run has made are not there."""
    if found < wanted:
        warnings.warn(
            f"{wanted - found} of the {wanted} draws before step {taken} are not in draws: give "
            "the DrawStore that the run began with",
            stacklevel=5,
        )


def warn_of_other_draws(step: int, remedy: str) -> None:
    """Warn that a resumed run has found another draw than the one that is stored for a step."""
    warnings.warn(
        f"the run does not continue exactly from its checkpoint: its draw of step {step}, and "
        f"others that are stored already, stay as they are; {remedy} would make it exact",
        stacklevel=5,
    )


def remember_initial_options(sampler: torch.optim.Optimizer) -> None:
    """Note the options that schedules scale, as samplers do: a resumed run finds the same."""
    for group in sampler.param_groups:
        for option in ("lr", "weight_decay"):
            if option in group:
                group.setdefault(f"initial_{option}", float(group[option]))


def check_parts(
    model: nn.Module, sampler: torch.optim.Optimizer, schedule: Schedule, draws: Draws
) -> None:
    """Raise a `ValueError` if one of these is something else, or has a state besides tensors."""
    check_kind("model", model, nn.Module, "a torch.nn.Module")
    check_state(model.state_dict())
    check_sampler(sampler)
    check_schedule(schedule)
    check_draws(draws)


def check_sampler(sampler: torch.optim.Optimizer) -> None:
    """Raise a `ValueError` for what is not a sampler of all the model's parameters."""
    kind = torch.optim.Optimizer
    check_kind("sampler", sampler, kind, "a sampler or a torch optimizer")
    if any(base.__name__ == "ZeroRedundancyOptimizer" for base in type(sampler).__mro__):
        raise ValueError(
            "sampler is a ZeroRedundancyOptimizer, in which parameters of different processes "
            "would share their noise: shard the model with torch.distributed.fsdp.fully_shard"
        )


def check_schedule(schedule: Schedule) -> None:
    """Raise a `ValueError` for what is not a schedule."""
    check_kind("schedule", schedule, Schedule, "a csgmcmc schedule, such as Cyclical")


def check_draws(draws: Draws) -> None:
    """Raise a `ValueError` for what does not keep draws."""
    check_kind("draws", draws, Draws, "a DrawStore or MemoryDraws")


def check_chain_id(chain_id: int | None, own: int, chains: int, layout: ProcessLayout) -> None:
    """Raise a `ValueError` if `own`, the sampler's, is not the first of the process's chains."""
    if chain_id not in (None, own):
        raise ValueError(
            f"chain_id={chain_id}, but the sampler draws the noise of chain {own}: make it with "
            f"chain_id={chain_id}"
        )
    first = layout.chain_id * chains
    if layout.chains > 1 and own != first:
        raise ValueError(
            f"the first chain of this process is {first}, but the sampler is of chain {own}: make "
            "it with chain_id=layout.chain_id (times the chains of a stack)"
        )
