"""A draw is one kept set of weights; `Draws` is the interface of everything that keeps them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, get_args, overload

import torch
from torch import Tensor, nn

from csgmcmc.arguments import check_choice, check_count, check_kind, counted
from csgmcmc.draws.manifest import Key
from csgmcmc.draws.tensors import part_of
from csgmcmc.schedules.base import Stage
from csgmcmc.shards import local_shard, mesh_of

Tensors = Mapping[str, Tensor]
"""Parameters and buffers by name, as in a module's `state_dict`."""


@dataclass(frozen=True)
class Draw:
    """One kept set of weights, and where in the run it was taken.

    It can be pickled and deep-copied.

    Attributes:
        chain_id: number of the chain.
        step: the step after which it was taken.
        cycle: cycle of that step.
        stage: stage of that step.
    """

    chain_id: int
    step: int
    cycle: int
    stage: Stage
    _load: Callable[[], Tensors] = field(repr=False, compare=False)

    def tensors(self) -> dict[str, Tensor]:
        """Parameters and buffers by name. Large ones of a store are memory-mapped from its file.

        A mapped file is read when its numbers are used. The library never changes a file in place;
        a program that does so changes the numbers, or ends this process (SIGBUS).
        """
        return dict(self._load())

    def load_into(self, model: nn.Module) -> None:
        """Copy the draw's weights and buffers into `model`.

        If the model is sharded over processes, each of them copies its own part.
        """
        check_kind("model", model, nn.Module, "a torch.nn.Module")
        state = model.state_dict()
        found = self.tensors()
        if mesh_of(state.values()) is None:
            model.load_state_dict(found)
            return
        if unexpected := found.keys() - state.keys():
            raise ValueError(f"model has no {min(unexpected)}, which the draw has")
        with torch.no_grad():
            for name, value in state.items():
                local_shard(value).copy_(part_of(found, name, value))


class Draws(ABC, Sequence[Draw]):
    """A sequence of draws, ordered by chain, then by step.

    Appending an identical draw of the same chain and step again changes nothing, so that a resumed
    chain may repeat its last steps. A different one raises `DrawConflictError`.
    """

    _place = ""  # where the draws are, in parentheses

    def __init__(self) -> None:
        self._sorted: tuple[dict[Key, Any], list[Key]] = ({}, [])

    @property
    @abstractmethod
    def _kept(self) -> dict[Key, Any]:
        """What the subclass keeps of each draw."""

    def _keys(self) -> list[Key]:
        """Chain and step of every draw, in order; sorted again only where draws were added."""
        kept, keys = self._sorted
        if kept is not self._kept or len(keys) != len(kept):
            self._sorted = self._kept, sorted(self._kept)
        return self._sorted[1]

    def append(
        self,
        model: nn.Module | Tensors,
        *,
        step: int,
        cycle: int = 0,
        stage: Stage = "sample",
        chain_id: int = 0,
    ) -> None:
        """Keep a copy of the parameters and buffers of `model`.

        If the model is sharded over processes, all of them call this, with a `DrawStore` of one
        folder: the tensors are gathered one at a time, and the first process writes them.

        Args:
            model: a module, or its `state_dict`.
            step: the step after which the draw is taken.
            cycle: cycle of that step.
            stage: stage of that step.
            chain_id: number of the chain.
        """
        step = check_count("step", step, at_least=0)
        cycle = check_count("cycle", cycle, at_least=0)
        check_choice("stage", stage, get_args(Stage))
        chain_id = check_count("chain_id", chain_id, at_least=0)
        tensors = partial(dict, tensors_of(model))
        self._append(Draw(chain_id, step, cycle, stage, tensors))

    @abstractmethod
    def _append(self, draw: Draw) -> None:
        """Keep a copy of `draw`, whose tensors are still those of the model."""

    @abstractmethod
    def _draw(self, key: Key) -> Draw:
        """The draw of a chain and step that is kept."""

    def of_chain(self, chain_id: int) -> list[Draw]:
        """The draws of one chain, by step."""
        number = check_count("chain_id", chain_id, at_least=0)
        return [self._draw(key) for key in self._keys() if key[0] == number]

    @property
    def chain_ids(self) -> list[int]:
        """Numbers of the chains that have draws."""
        return sorted({chain_id for chain_id, _ in self._keys()})

    def __len__(self) -> int:
        return len(self._kept)

    def __repr__(self) -> str:
        cycles = len({(draw.chain_id, draw.cycle) for draw in self})
        counts = [(len(self), "draw"), (cycles, "cycle"), (len(self.chain_ids), "chain")]
        words = ", ".join(counted(number, noun) for number, noun in counts)
        return f"{type(self).__name__}{self._place}: {words}, {self._size() / 1e6:,.3g} MB"

    def _size(self) -> int:
        """Bytes of all draws."""
        return sum(tensor.nbytes for draw in self for tensor in draw.tensors().values())

    def __iter__(self) -> Iterator[Draw]:
        return iter(self[:])

    @overload
    def __getitem__(self, index: int) -> Draw: ...
    @overload
    def __getitem__(self, index: slice) -> list[Draw]: ...
    def __getitem__(self, index: int | slice) -> Draw | list[Draw]:
        keys = self._keys()[index]
        return [self._draw(key) for key in keys] if isinstance(keys, list) else self._draw(keys)


def check_state(state: Mapping[str, Any]) -> None:
    """Raise a `ValueError` if the state of a model is more than its parameters and buffers."""
    for name, value in state.items():
        if not isinstance(value, Tensor) or name.rpartition(".")[2] == "_extra_state":
            raise ValueError(
                f"a draw holds parameters and buffers, but {name!r} of the model's state_dict is a "
                f"{type(value).__name__} of its own: keep it in buffers, or out of the model"
            )


def tensors_of(model: nn.Module | Tensors) -> dict[str, Tensor]:
    """Parameters and buffers by name, detached and still sharded; anything else raises."""
    state = model.state_dict() if isinstance(model, nn.Module) else model
    check_state(check_kind("model", state, Mapping, "a torch.nn.Module or its state_dict"))
    return {name: value.detach() for name, value in state.items()}


def keep_trainable(model: nn.Module) -> Callable[[str], bool]:
    """For `only=`: what training changes, that is trainable parameters and all buffers."""
    named = model.named_parameters(remove_duplicate=False)
    # The draws of a stack have the names of the single model.
    frozen = {name.removeprefix("inner.") for name, param in named if not param.requires_grad}
    return partial(_is_absent, frozen)  # which can be pickled


def _is_absent(names: set[str], name: str) -> bool:
    return name not in names
