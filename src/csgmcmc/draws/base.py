"""What is kept: draws, and the one interface of all that keeps them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import overload

from torch import Tensor, nn

from csgmcmc.arguments import check_count
from csgmcmc.schedules import Stage, Tick
from csgmcmc.shards import whole_tensor

Tensors = Mapping[str, Tensor]
"""Parameters and buffers by name, as in a module's `state_dict`."""


@dataclass(frozen=True)
class Draw:
    """One kept set of weights: where in the run it is from, and how to get at it.

    Attributes:
        chain_id: number of the chain.
        step: the step after which it was taken.
        cycle: cycle of that step.
        stage: stage of that step.
        log_likelihood: of the whole data set under these weights, where known.
    """

    chain_id: int
    step: int
    cycle: int
    stage: Stage
    log_likelihood: float | None
    _load: Callable[[], dict[str, Tensor]] = field(repr=False, compare=False)

    def tensors(self) -> dict[str, Tensor]:
        """Parameters and buffers by name. From a store they are mapped from the file."""
        return self._load()

    def load_into(self, model: nn.Module) -> None:
        """Copy the draw's weights and buffers into `model`."""
        model.load_state_dict(self.tensors())


class Draws(ABC, Sequence[Draw]):
    """A collection of draws in the order of chains, then steps.

    Appending the draw of the same chain and step again changes nothing, so that a chain that
    resumes may repeat its last steps; another draw in its place is refused.
    """

    def append(
        self,
        model: nn.Module | Tensors,
        tick: Tick,
        *,
        chain_id: int = 0,
        log_likelihood: float | None = None,
    ) -> None:
        """Keep the parameters and buffers of `model` as the draw of `tick`."""
        check_count("chain_id", chain_id, at_least=0)
        self._append(tensors_of(model), tick, chain_id, log_likelihood)

    @abstractmethod
    def _append(
        self, tensors: dict[str, Tensor], tick: Tick, chain_id: int, log_likelihood: float | None
    ) -> None: ...

    def set_log_likelihood(self, draw: Draw, value: float) -> None:
        """Keep the log-likelihood of the whole data set under `draw`, in place of any before."""
        if (draw.chain_id, draw.step) not in {(held.chain_id, held.step) for held in self._all()}:
            raise ValueError(f"there is no draw of chain {draw.chain_id} at step {draw.step} here")
        self._set_log_likelihood(draw.chain_id, draw.step, float(value))

    @abstractmethod
    def _set_log_likelihood(self, chain_id: int, step: int, value: float) -> None: ...

    @abstractmethod
    def _all(self) -> list[Draw]:
        """Every draw, in any order."""

    def ordered(self) -> list[Draw]:
        """Every draw, by chain and step."""
        return sorted(self._all(), key=attrgetter("chain_id", "step"))

    def of_chain(self, chain_id: int) -> list[Draw]:
        """The draws of one chain, by step."""
        return [draw for draw in self.ordered() if draw.chain_id == chain_id]

    @property
    def chain_ids(self) -> list[int]:
        """Numbers of the chains that have draws."""
        return sorted({draw.chain_id for draw in self._all()})

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[Draw]:
        return iter(self.ordered())

    @overload
    def __getitem__(self, index: int) -> Draw: ...
    @overload
    def __getitem__(self, index: slice) -> list[Draw]: ...
    def __getitem__(self, index: int | slice) -> Draw | list[Draw]:
        return self.ordered()[index]


def tensors_of(model: nn.Module | Tensors) -> dict[str, Tensor]:
    """Parameters and buffers by name, detached; refuses what is not a tensor."""
    state = model.state_dict() if isinstance(model, nn.Module) else model
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise ValueError(
                f"a draw holds tensors, but {name!r} of the model's state_dict is a "
                f"{type(value).__name__}"
            )
    return {name: whole_tensor(value.detach()) for name, value in state.items()}
