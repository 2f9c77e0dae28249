"""A method as plain values, which a JSON file can hold, a search can choose and a command can take.

    recipe = Recipe(lr=0.1, cycles=4, temperature=0.1, epochs=40)
    chain = recipe.make_chain(model, loss, loader, DrawStore("runs/mine"))

Fixes everything that affects the stationary distribution except model, loss and data.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from inspect import signature
from pathlib import Path
from typing import Any

from torch import nn

from csgmcmc.arguments import (
    check_choice,
    check_count,
    check_items,
    check_kind,
    check_number,
    plain_value,
    shown,
)
from csgmcmc.batches import Loss
from csgmcmc.chain import Chain
from csgmcmc.checks.num_data import default_num_data
from csgmcmc.distributed import as_layout
from csgmcmc.draws import Draws
from csgmcmc.files import check_path, readable_io_errors, reason_of
from csgmcmc.loaders import batches_of
from csgmcmc.range_test import range_test
from csgmcmc.samplers import Sampler
from csgmcmc.samplers import discover as samplers
from csgmcmc.schedules import Cyclical
from csgmcmc.schedules.base import MOST_STEPS
from csgmcmc.stacked import Stack

# Arguments of a sampler that the recipe itself sets, so that `sampler_options` cannot.
RESERVED_SAMPLER_OPTIONS = (
    *("params", "lr", "num_data", "temperature", "weight_decay", "seed", "chain_id"),
)

SEEDS = 2**63
"""Seeds are below this: torch takes twice as many, and chains add their numbers."""

RENAMED_SINCE_0_1 = {"options": "sampler_options", "samples_per_cycle": "draws_per_cycle"}


@dataclass(frozen=True)
class Recipe:
    """The hyperparameters of a run: sampler, temperature, prior and cyclical schedule.

    Args:
        sampler: name of the sampler, e.g. "SGHMC".
        lr: step size at the start of each cycle, as for `torch.optim.SGD`. None, the default, lets
            `make_chain` find one by a range test.
        temperature: 1 samples the posterior, 0 optimises.
        weight_decay: Gaussian prior of precision N * weight_decay.
        sampler_options: further arguments of the sampler, e.g. `{"momentum": 0.9}`.
        epochs: passes over the data; may be fractional.
        cycles: number of cycles, M.
        exploration: share of a cycle that explores, beta.
        draws_per_cycle: draws kept in each cycle.
        weight_decay_scales: one factor of the weight decay for each cycle, as `Cyclical` takes it.
        temperature_scales: one factor of the temperature for each cycle.
        seed: of the noise; None takes a random one.
    """

    sampler: str = "SGHMC"
    lr: float | None = None
    temperature: float = 1.0
    weight_decay: float = 1e-4
    sampler_options: Mapping[str, Any] = field(default_factory=dict)
    epochs: float = 40
    cycles: int = 4
    exploration: float = 0.8
    draws_per_cycle: int = 3
    weight_decay_scales: Sequence[float] | None = None
    temperature_scales: Sequence[float] | None = None
    seed: int | None = 0

    def __post_init__(self) -> None:
        for each in fields(self):
            object.__setattr__(self, each.name, plain_value(getattr(self, each.name)))
        known = samplers()
        check_choice("sampler", self.sampler, tuple(known))
        if self.lr is not None:
            check_number("lr", self.lr, above=0)
        check_number("temperature", self.temperature, at_least=0)
        check_number("weight_decay", self.weight_decay, at_least=0)
        check_number("epochs", self.epochs, above=0)
        check_count("cycles", self.cycles, at_least=1)
        check_number("exploration", self.exploration, at_least=0, below=1)
        check_count("draws_per_cycle", self.draws_per_cycle, at_least=1)
        for name in ("weight_decay_scales", "temperature_scales"):
            if getattr(self, name) is not None:
                scales = tuple(check_items(name, getattr(self, name), "a list of numbers"))
                object.__setattr__(self, name, plain_value(scales))  # as read from JSON again
                for scale in scales:
                    check_number(name, scale, at_least=0)
                if len(scales) != self.cycles:
                    raise ValueError(
                        f"{name} must have one number for each of cycles={self.cycles}, got "
                        f"{shown(scales)}"
                    )
        if self.seed is not None:
            check_count("seed", self.seed, at_least=0, below=SEEDS)
        options = check_kind("sampler_options", self.sampler_options, Mapping, "a dictionary")
        plain = {name: plain_value(value) for name, value in options.items()}  # a copy
        object.__setattr__(self, "sampler_options", plain)
        arguments = signature(known[self.sampler]).parameters
        allowed = [name for name in arguments if name not in RESERVED_SAMPLER_OPTIONS]
        unknown = [str(name) for name in self.sampler_options if name not in allowed]
        if unknown:
            raise ValueError(
                f"sampler_options has {', '.join(unknown)}, which {self.sampler} does not take "
                f"there: choose from {', '.join(allowed)}"
            )

    def make_sampler(self, params: Any, *, num_data: float, chain_id: int = 0) -> Sampler:
        """The sampler over `params`; `num_data` is N, the number of data points."""
        if self.lr is None:
            raise ValueError("lr is not given, and only make_chain can find one: give lr")
        kind: Any = samplers()[self.sampler]
        return kind(
            params,
            self.lr,
            num_data=num_data,
            temperature=self.temperature,
            weight_decay=self.weight_decay,
            seed=self.seed,
            chain_id=chain_id,
            **self.sampler_options,
        )

    def make_schedule(self, epoch: int) -> Cyclical:
        """The schedule, with cycles of equal length; `epoch` is the number of steps in an epoch."""
        check_count("epoch", epoch, at_least=1)
        length = max(1, round(self.epochs * epoch / self.cycles))
        if self.cycles * length >= MOST_STEPS:
            raise ValueError(
                f"epochs={self.epochs} and cycles={self.cycles} make {self.cycles * length} steps, "
                f"and there must be fewer than {MOST_STEPS}: lower them"
            )
        try:
            return Cyclical(
                self.cycles * length,
                self.cycles,
                exploration=self.exploration,
                draws_per_cycle=self.draws_per_cycle,
                weight_decay_scales=self.weight_decay_scales,
                temperature_scales=self.temperature_scales,
            )
        except ValueError as error:  # a schedule counts in steps, a recipe in epochs
            raise ValueError(str(error).replace("more steps", "more epochs")) from error

    def make_chain(
        self,
        model: nn.Module,
        loss: Loss,
        data: Any,
        draws: Draws | None = None,
        *,
        num_data: float | None = None,
        accumulate: int = 1,
        **chain_options: Any,
    ) -> Chain:
        """A chain, to be run by `chain.run()`.

        Args:
            model: the network, or a `Stack`.
            loss: mean negative log-likelihood, as `Chain` takes it.
            data: loader of the training data; it must have a length.
            draws: where draws are kept; in memory by default.
            num_data: N; by default the length of the loader's data set, if each example has one
                target.
            accumulate: batches per step.
            chain_options: further arguments of `Chain`, e.g. `clip=1.0`.
        """
        check_kind("model", model, nn.Module, "a torch.nn.Module")
        check_count("accumulate", accumulate, at_least=1)
        layout = as_layout(chain_options.get("layout"))
        if unknown := sorted(chain_options.keys() - signature(Chain).parameters.keys()):
            raise ValueError(f"{', '.join(unknown)} is no argument of Chain")
        if num_data is None:
            num_data = default_num_data(data, chain_options.get("generators", ()))
        recipe = self.with_lr(model, loss, data, num_data, accumulate=accumulate, **chain_options)
        sampler = recipe.make_sampler(
            [param for param in model.parameters() if param.requires_grad],
            num_data=num_data,
            chain_id=layout.chain_id * (model.chains if isinstance(model, Stack) else 1),
        )
        schedule = self.make_schedule(max(1, batches_of(data) // accumulate))
        parts = (model, loss, data, sampler, schedule, draws)
        return Chain(*parts, accumulate=accumulate, **chain_options)

    def with_lr(
        self, model: nn.Module, loss: Loss, data: Any, num_data: float, **chain_options: Any
    ) -> "Recipe":
        """The same recipe or, if it has no lr, one with the lr that a range test finds.

        The same model, data and random state give the same lr, so that a run can be resumed.
        """
        if self.lr is not None:
            return self
        layout = chain_options.get("layout")
        if layout is not None and layout.replicas > 1:
            raise ValueError("lr is not given, and a range test has one process: give lr")

        def make_sampler(params: list[nn.Parameter], lr: float) -> Sampler:
            return self.replace(lr=lr, temperature=0.0).make_sampler(params, num_data=num_data)

        taken = ("accumulate", "clip", "device", "autocast", "generators")
        options = {name: chain_options[name] for name in taken if name in chain_options}
        return self.replace(lr=range_test(model, loss, data, make_sampler, **options).lr)

    def to_json(self) -> str:
        """All values as one JSON object."""
        try:
            return json.dumps(asdict(self), indent=1, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"sampler_options cannot be written as JSON: {error}") from error

    def save(self, path: str | Path) -> None:
        """Write all values as JSON."""
        file, text = check_path("path", path), self.to_json() + "\n"
        with readable_io_errors(file, "writing the recipe", writing=False):
            file.write_text(text)

    @classmethod
    def load(cls, path: str | Path, defaults: "Recipe | None" = None) -> "Recipe":
        """Read a file of `save`; values that are not in it are taken from `defaults`."""
        check_path("path", path)
        if defaults is not None:
            check_kind("defaults", defaults, Recipe, "a Recipe")
        found = read_values(path)
        known = [each.name for each in fields(cls)]
        unknown = sorted(set(found) - set(known))
        if unknown:
            raise ValueError(
                f"{path} has {', '.join(unknown)}, which no recipe has: choose from "
                f"{', '.join(known)}"
            )
        try:
            return (defaults or cls()).replace(**found)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def replace(self, **values: Any) -> "Recipe":
        """The same recipe with other values; another sampler starts without sampler_options."""
        if unknown := sorted(values.keys() - {each.name for each in fields(self)}):
            raise ValueError(f"{', '.join(unknown)} is no value of a recipe")
        if values.get("sampler", self.sampler) != self.sampler:
            values = {"sampler_options": {}, **values}
        return replace(self, **values)


def read_values(path: str | Path) -> dict[str, Any]:
    """The names and values of a recipe in a JSON file."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"recipe {path} cannot be read: {reason_of(error)}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds no recipe: it must be one JSON object")
    renamed = [f"{old} is now {new}" for old, new in RENAMED_SINCE_0_1.items() if old in found]
    if renamed:
        raise ValueError(f"{path} has names of csgmcmc 0.1: {', '.join(renamed)}")
    return found
