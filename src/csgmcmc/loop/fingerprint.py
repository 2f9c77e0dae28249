"""The parts of a run, and their settings as plain values, which a resumed run must share.

A checkpoint holds settings that differ from their defaults, and one that is absent has its default.
So a new option of a sampler, or a new field of a schedule, leaves old checkpoints as they are.
"""

import ast
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, replace
from typing import Any, get_args

import torch
from torch import nn
from torch.distributions import Distribution

from csgmcmc.arguments import check_choice, check_kind, plain_value
from csgmcmc.draws import Draws
from csgmcmc.draws.base import check_state
from csgmcmc.errors import SettingsMismatchError
from csgmcmc.samplers.options import option_defaults
from csgmcmc.schedules import Joined, Keep, Schedule
from csgmcmc.schedules import discover as schedules
from csgmcmc.schedules.base import SCALED, Stage

LOOP_DEFAULTS = {"accumulate": 1, "clip": None, "autocast": "None"}
"""Defaults of what a loop adds."""

SCHEDULED = [option for option, _, _ in SCALED]
"""Options whose present values a schedule sets: their initial values are compared."""

REPLACED_BY_KEEP = {"draws": "per_cycle", "draws_per_cycle": "per_cycle", "every": "every"}
"""Fields of the schedules of 0.2.0, and the field of their `keep` that each has become."""


def check_parts(
    model: nn.Module, sampler: torch.optim.Optimizer, schedule: Schedule, draws: Draws
) -> None:
    """Raise a `ValueError` if one of these has the wrong type, or they do not fit together."""
    check_kind("model", model, nn.Module, "a torch.nn.Module")
    check_state(model.state_dict())
    check_kind("sampler", sampler, torch.optim.Optimizer, "a sampler or a torch optimizer")
    check_kind("schedule", schedule, Schedule, "a csgmcmc schedule, such as Cyclical")
    check_kind("draws", draws, Draws, "a DrawStore or MemoryDraws")
    for step in range(0, schedule.steps, max(1, schedule.steps // 100)):
        check_choice("stage of a tick of schedule", schedule(step).stage, get_args(Stage))
    if any(base.__name__ == "ZeroRedundancyOptimizer" for base in type(sampler).__mro__):
        raise ValueError(
            "sampler is a ZeroRedundancyOptimizer, in which parameters of different processes "
            "would share their noise: shard the model with torch.distributed.fsdp.fully_shard"
        )
    if not any(param.requires_grad for param in model.parameters()):
        raise ValueError("model has no trainable parameter: nothing to sample")
    known = set(map(id, model.parameters()))
    for param in (param for group in sampler.param_groups for param in group["params"]):
        if id(param) not in known:
            raise ValueError(
                f"sampler holds a parameter of shape {tuple(param.shape)} that is not the model's: "
                "make it with model.parameters(), those of the loss included, after stacking"
            )


def check_no_lr_scheduler(sampler: torch.optim.Optimizer) -> None:
    """Raise a `ValueError` if a torch `LRScheduler` is attached, whose lr would not be used."""
    if hasattr(sampler.step, "_wrapped_by_lr_sched"):  # as torch marks it
        raise ValueError(
            "sampler has a torch LRScheduler, and the schedule sets lr: make the sampler without "
            "one (for a warm-up, join csgmcmc.Ramp and the schedule by csgmcmc.Joined)"
        )


def check_same(saved: Any, current: Any, field: str = "") -> None:
    """Raise `SettingsMismatchError` that names the first field in which two settings differ."""
    if isinstance(saved, dict) and isinstance(current, dict):
        for key in dict.fromkeys([*saved, *current]):
            inner = f"{field}.{key}" if field else str(key)
            check_same(saved.get(key, "absent"), current.get(key, "absent"), inner)
    elif saved != current:
        longer = field in ("schedule.steps", "schedule.cycles")
        more = "; run(extend=2) of a Chain adds two cycles to a schedule" if longer else ""
        raise mismatch(field, saved, current, more)


def mismatch(what: str, saved: Any, current: Any, more: str = "") -> SettingsMismatchError:
    """The error of a run that has changed since its checkpoint was made."""
    return SettingsMismatchError(
        f"cannot resume: {what} was {saved} when the checkpoint was made, and is {current} now: "
        f"begin anew by run(overwrite=True) of a Chain, or use another folder{more}"
    )


def with_defaults(settings: Mapping[str, Any], sampler: torch.optim.Optimizer) -> dict[str, Any]:
    """Settings with the defaults that they leave out; `sampler` is that of the resumed run."""
    schedule, options = settings["schedule"], _option_defaults(sampler)
    schedule = _parsed(schedule) if isinstance(schedule, str) else schedule
    groups = {index: {**options, **given} for index, given in settings["groups"].items()}
    return {**LOOP_DEFAULTS, **settings, "schedule": completed(schedule), "groups": groups}


def describe_run(
    model: nn.Module, sampler: torch.optim.Optimizer, schedule: Schedule
) -> dict[str, Any]:
    """The settings of the parts of a run that a resumed run must share."""
    defaults, groups = _option_defaults(sampler), {}
    for index, group in enumerate(sampler.param_groups):
        names = [name for name in group if name not in ("params", "prior", *SCHEDULED)]
        options = {name: plain_value(group[name]) for name in names}
        prior = group.get("prior")
        if prior is not None and not isinstance(prior, Distribution):  # a function
            prior = getattr(prior, "__qualname__", type(prior).__name__)
        options |= {"prior": str(prior), "tensors": len(group["params"])}
        groups[str(index)] = differing(options, defaults)
    tensors = model.state_dict().items()
    return {
        "schedule": describe_schedule(schedule),
        "sampler": type(sampler).__name__,
        "groups": groups,
        "model": {name: f"{tuple(value.shape)} {value.dtype}" for name, value in tensors},
        "modules": {  # those without parameters: what has some shows in the tensors, or is sharded
            name: type(module).__name__
            for name, module in model.named_modules()
            if not any(True for _ in module.parameters())
        },
    }


def describe_schedule(schedule: Any) -> dict[str, Any]:
    """The kind of a schedule, and its fields that differ from their defaults."""

    def described(value: Any) -> Any:
        if isinstance(value, tuple) and any(isinstance(part, Schedule) for part in value):
            return [describe_schedule(part) for part in value]
        if isinstance(value, Keep):
            return {name: number for name, number in asdict(value).items() if number is not None}
        return plain_value(value)

    values = {each.name: described(getattr(schedule, each.name)) for each in fields(schedule)}
    return {"kind": type(schedule).__name__, **differing(values, _field_defaults(schedule))}


def with_cycles(schedule: Schedule, more: int) -> Schedule:
    """A schedule with more cycles of the same length."""
    if isinstance(schedule, Joined):
        return Joined((*schedule.schedules[:-1], with_cycles(schedule.schedules[-1], more)))
    cycles = getattr(schedule, "cycles", None)
    if not isinstance(cycles, int):
        raise ValueError(
            f"extend adds cycles, and a {type(schedule).__name__} has none: make the chain with a "
            "longer schedule, and keep its draws in another folder"
        )
    steps = schedule.steps // cycles * (cycles + more)
    longer: Any = schedule
    return replace(longer, steps=steps, cycles=cycles + more)


def extended(schedule: Schedule, cycles: int) -> Schedule:
    """`with_cycles`, or a `ValueError` if a step that was planned before would change."""
    try:
        longer = with_cycles(schedule, cycles)
        same = all(longer(step) == schedule(step) for step in range(schedule.steps))
    except ValueError as error:
        raise ValueError(f"extend={cycles} is not possible: {error}") from error
    if not same:
        raise ValueError(
            f"extend={cycles} is not possible: with more cycles the steps before them would be "
            "others, as where the last cycle is shorter (make steps a multiple of cycles)"
        )
    return longer


def differing(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Values that differ from their defaults, or have none."""
    return {name: v for name, v in values.items() if name not in defaults or defaults[name] != v}


def _option_defaults(sampler: torch.optim.Optimizer) -> dict[str, Any]:
    """Defaults of the options of a parameter group, as the sampler's constructor has them."""
    defaults = {}
    for name, default in option_defaults(type(sampler)).items():
        if name in sampler.defaults:
            defaults[f"initial_{name}" if name in SCHEDULED else name] = plain_value(default)
    return defaults | {"prior": "None"}


def _field_defaults(schedule: Any) -> dict[str, Any]:
    return {each.name: each.default for each in fields(schedule) if each.default is not MISSING}


def completed(described: Any) -> Any:
    """What `describe_schedule` has made, with the defaults of all fields."""
    if isinstance(described, list):
        return [completed(part) for part in described]
    if not isinstance(described, dict) or "kind" not in described:
        return described
    known = schedules().get(described["kind"])
    defaults = {} if known is None else _field_defaults(known)  # None for a schedule of the user
    kind = {"kind": described["kind"]}  # first, so that it is the first to differ
    saved = {name: completed(each) for name, each in described.items()}
    for old, name in REPLACED_BY_KEEP.items() if "keep" in defaults else ():
        number = saved.pop(old, None)
        if number is not None:
            saved["keep"] = {name: number}
    return {**kind, **defaults, **saved}


def _parsed(text: str) -> Any:
    """A schedule from its `repr`, which names all fields: checkpoints of 0.2.0 hold that."""

    def described(node: ast.expr) -> Any:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            values = {each.arg: described(each.value) for each in node.keywords if each.arg}
            return {"kind": node.func.id, **values}
        if isinstance(node, ast.Tuple) and any(isinstance(each, ast.Call) for each in node.elts):
            return [described(each) for each in node.elts]
        return ast.literal_eval(node)

    return described(ast.parse(text, mode="eval").body)
