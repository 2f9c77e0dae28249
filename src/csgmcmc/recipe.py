"""A method as plain values: what a file holds, a search chooses and a command takes.

    recipe = Recipe(lr=0.1, cycles=4, temperature=0.1, epochs=40)
    chain = recipe.make_chain(model, loss, loader, DrawStore("runs/mine"))

Everything that decides the law is in it, but for the model, the loss and the data.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from inspect import signature
from pathlib import Path
from typing import Any

from torch import nn
from torch.utils.data import DistributedSampler, SubsetRandomSampler

from csgmcmc.arguments import check_choice, check_count, check_number
from csgmcmc.chain import Chain, ProcessLayout, Stack
from csgmcmc.chain.loop import Loss
from csgmcmc.draws import Draws
from csgmcmc.samplers import Sampler
from csgmcmc.samplers import discover as samplers
from csgmcmc.schedules import Cyclical

# What a sampler is given by the recipe itself, or by the chain: not for `options`.
GIVEN = ("params", "lr", "num_data", "temperature", "weight_decay", "seed", "chain_id")


@dataclass(frozen=True)
class Recipe:
    """Which sampler, how hot, and how long: everything about a run but its model and data.

    Args:
        sampler: name of the sampler, e.g. "SGHMC".
        lr: step size at the start of each cycle, as for `torch.optim.SGD`.
        temperature: 1 samples the posterior, 0 optimises.
        weight_decay: Gaussian prior of precision N * weight_decay.
        options: further options of the sampler, e.g. `{"momentum": 0.9}`.
        epochs: how often the run sees the data; need not be whole.
        cycles: M.
        exploration: beta, the share of a cycle that explores.
        draws_per_cycle: draws kept in each cycle.
        seed: of the noise; None takes a new one.
    """

    sampler: str = "SGHMC"
    lr: float = 0.1
    temperature: float = 1.0
    weight_decay: float = 1e-4
    options: Mapping[str, Any] = field(default_factory=dict)
    epochs: float = 40
    cycles: int = 4
    exploration: float = 0.8
    draws_per_cycle: int = 3
    seed: int | None = 0

    def __post_init__(self) -> None:
        known = samplers()
        check_choice("sampler", self.sampler, tuple(known))
        for name in ("lr", "temperature", "weight_decay", "epochs", "exploration"):
            if isinstance(getattr(self, name), str):  # which float() would read
                raise ValueError(f"{name} must be a number, got {getattr(self, name)!r}")
        check_number("lr", self.lr, above=0)
        check_number("temperature", self.temperature, at_least=0)
        check_number("weight_decay", self.weight_decay, at_least=0)
        check_number("epochs", self.epochs, above=0)
        check_count("cycles", self.cycles, at_least=1)
        check_number("exploration", self.exploration, at_least=0, below=1)
        check_count("draws_per_cycle", self.draws_per_cycle, at_least=1)
        if self.seed is not None:
            check_count("seed", self.seed, at_least=0)
        if not isinstance(self.options, Mapping):
            raise ValueError(f"options must be a dictionary, got {self.options!r}")
        object.__setattr__(self, "options", dict(self.options))  # one of its own
        own = [name for name in signature(known[self.sampler]).parameters if name not in GIVEN]
        others = [str(name) for name in self.options if name not in own]
        if others:
            raise ValueError(
                f"options has {', '.join(others)}, which {self.sampler} does not take there: "
                f"choose from {', '.join(own)}"
            )

    def make_sampler(self, params: Any, *, num_data: float, chain_id: int = 0) -> Sampler:
        """The sampler over `params`; `num_data` is the N that the mean loss estimates."""
        kind: Any = samplers()[self.sampler]
        return kind(
            params,
            self.lr,
            num_data=num_data,
            temperature=self.temperature,
            weight_decay=self.weight_decay,
            seed=self.seed,
            chain_id=chain_id,
            **self.options,
        )

    def make_schedule(self, epoch: int) -> Cyclical:
        """The schedule, `epoch` being the steps of one epoch; cycles are equally long."""
        check_count("epoch", epoch, at_least=1)
        length = max(1, round(self.epochs * epoch / self.cycles))
        return Cyclical(
            self.cycles * length,
            self.cycles,
            exploration=self.exploration,
            draws_per_cycle=self.draws_per_cycle,
        )

    def make_chain(
        self,
        model: nn.Module,
        loss: Loss,
        data: Any,
        draws: Draws | None = None,
        *,
        num_data: float | None = None,
        accumulate: int = 1,
        **options: Any,
    ) -> Chain:
        """A chain that is run by `chain.run()`.

        `num_data` is by default the length of the data set of the loader; `options` are those of
        `Chain`.
        """
        check_count("accumulate", accumulate, at_least=1)
        layout = options.get("layout") or ProcessLayout()
        sampler = self.make_sampler(
            [param for param in model.parameters() if param.requires_grad],
            num_data=size_of(data) if num_data is None else num_data,
            chain_id=layout.chain_id * (model.chains if isinstance(model, Stack) else 1),
        )
        schedule = self.make_schedule(max(1, batches_of(data) // accumulate))
        return Chain(model, loss, data, sampler, schedule, draws, accumulate=accumulate, **options)

    def to_json(self) -> str:
        """All values as one JSON object."""
        try:
            return json.dumps(asdict(self), indent=1, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"options cannot be written as JSON: {error}") from error

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        Path(path).write_text(self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | Path, defaults: "Recipe | None" = None) -> "Recipe":
        """Read what `save` has written; values that are absent are those of `defaults`."""
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
        """The same recipe with other values; another sampler begins without options."""
        if values.get("sampler", self.sampler) != self.sampler:
            values = {"options": {}, **values}
        return replace(self, **values)


def read_values(path: str | Path) -> dict[str, Any]:
    """The names and values of a file that holds one JSON object."""
    try:
        found = json.loads(Path(path).read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds no recipe: it must be one JSON object")
    return found


def size_of(data: Any) -> int:
    """N of a loader: the length of its data set, or of the part that it goes through."""
    sampler = getattr(data, "sampler", None)
    try:
        size = len(data.dataset)
        seen = size if sampler is None or isinstance(sampler, DistributedSampler) else len(sampler)
    except (AttributeError, TypeError) as error:
        raise ValueError(
            "the size of the data set is not known: give num_data, the number of data points that "
            "the mean loss is over"
        ) from error
    if seen != size and not isinstance(sampler, SubsetRandomSampler):
        raise ValueError(
            f"an epoch of the loader has {seen} of the {size} data of its set: give num_data, the "
            "number of data points that the mean loss is over"
        )
    return seen


def batches_of(data: Any) -> int:
    """Batches in an epoch of a loader."""
    try:
        return len(data)
    except TypeError as error:
        raise ValueError(
            "the length of data is not known, and a recipe counts in epochs: give a loader with a "
            "length, or make the schedule yourself"
        ) from error
