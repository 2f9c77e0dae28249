"""A model under many draws: their outputs, one draw after another or several stacked.

By default draws are stacked where that was measured to be faster (docs/posterior.md): plain
multi-layer perceptrons whose draws all fit into one stack, on batches of at most 256 rows. The rule
is fixed: the same predictions have the same bits.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils import _pytree as pytree

from csgmcmc.draws import Draw
from csgmcmc.draws.base import check_state
from csgmcmc.loaders import to_device
from csgmcmc.stacked import accepts, evaluate_perceptron, is_perceptron

Forward = Callable[[Callable[..., Any], Any], Any]
"""From a model and inputs to outputs."""

Outputs = Iterator[tuple[list[int], int, Any]]
"""Numbers of some draws, index of a batch, and their outputs for it, (draws, batch, ...)."""

MAX_STACKED_ROWS = 256  # of a batch that is evaluated under a stack by default
MAX_STACK_BYTES = 32 * 2**20  # of weights in a stack
MAX_HELD_BYTES = 128 * 2**20  # of draws that stay open between calls, if all of them fit
TENSOR_BYTES = 2**10  # that a held tensor takes beside its values, about
MAX_OUTPUT_BYTES = 16 * 2**20  # of outputs that are buffered before they are yielded
MAX_BUFFERED = 64  # draws whose outputs are buffered, however small they are


class Members:
    """Evaluates one model under many draws, without changing the given model.

    The arguments are those of `Posterior`; `vectorize=None` decides by the rule above.
    """

    def __init__(
        self,
        model: nn.Module,
        draws: Sequence[Draw],
        *,
        device: torch.device | str | None,
        autocast: torch.dtype | None,
        forward: Forward,
        vectorize: bool | None,
    ) -> None:
        self.draws = list(draws)
        with torch.inference_mode(False):  # inference tensors could not be written to later
            self.architecture = copy.deepcopy(model).eval().requires_grad_(False)
        """The model that draws are evaluated with, in evaluation mode; its weights change."""
        if device is not None:
            self.architecture.to(device)
        self._places: dict[str, Tensor] = self.architecture.state_dict(keep_vars=True)
        check_state(self._places)
        if not self._places:
            raise ValueError("model has no parameters that a draw could set")
        self._buffers: dict[str, tuple[nn.Module, str]] = {}
        for name, _ in self.architecture.named_buffers(remove_duplicate=False):
            if name in self._places:
                module, _, own_name = name.rpartition(".")
                self._buffers[name] = (self.architecture.get_submodule(module), own_name)
        self.device = next(iter(self._places.values())).device
        self.autocast, self.vectorize = autocast, vectorize
        self._forward = forward
        size = max(bytes_of(self._places), 1)
        self._stack_size = max(1, MAX_STACK_BYTES // size)
        self._perceptron = is_perceptron(self.architecture)
        # Keeping only some would use memory for little gain.
        held_size = size + TENSOR_BYTES * len(self._places)
        self._hold = len(self.draws) * held_size <= MAX_HELD_BYTES
        self._last_stack: tuple[list[int], dict[str, Tensor]] | None = None
        self._held: dict[int, dict[str, Tensor]] = {}

    def outputs(self, batches: Sequence[Any], among: Sequence[int] | None = None) -> Outputs:
        """Outputs of each of `batches` under the draws numbered `among`, all by default.

        Use it inside `torch.inference_mode()`. Yields until every draw has had every batch.
        """
        wanted = list(range(len(self.draws))) if among is None else list(among)
        batches = [to_device(batch, self.device) for batch in batches]
        stack = self.vectorize
        if stack is None:
            stack = (
                len(wanted) > 1
                and len(self.draws) <= self._stack_size
                and self.is_perceptron_on(batches[0])
                and len(batches[0]) <= MAX_STACKED_ROWS
            )
        return (self._stacked if stack else self._one_by_one)(batches, wanted)

    def is_perceptron_on(self, batch: Any) -> bool:
        """Whether `evaluate_perceptron` can evaluate this batch under many draws."""
        known = self._perceptron and self._forward is plain_forward
        return known and accepts(self.architecture, batch)

    def _one_by_one(self, batches: list[Any], wanted: list[int]) -> Outputs:
        """Evaluate draws one after another; outputs are buffered so as to be averaged together."""
        buffers: list[dict[int, Any]] = [{} for _ in batches]  # outputs by number of the draw
        size = 0
        for count, index in enumerate(wanted, start=1):
            model = self._model_with(index)
            for number, batch in enumerate(batches, start=1):
                outputs = self.run(model, batch)
                # An output may be a parameter, whose data are replaced by those of the next draw.
                kept = pytree.tree_map_only(Tensor, Tensor.detach, outputs)
                buffers[number - 1][index] = kept
                size += bytes_of(outputs)
                full = number == len(batches) and count % MAX_BUFFERED == 0
                if full or size >= MAX_OUTPUT_BYTES:
                    yield from _flush(buffers)
                    size = 0
        yield from _flush(buffers)

    def _model_with(self, number: int) -> nn.Module:
        """The model with the weights of a draw, until the next call."""
        tensors = self._held.get(number) or self.tensors_of(self.draws[number])
        if self._hold:  # opening a file takes longer than a small model
            self._held[number] = tensors
        for name, tensor in tensors.items():
            if name in self._buffers:  # a model may change or replace these
                module, own_name = self._buffers[name]
                module._buffers[own_name] = tensor.clone()
            else:
                self._places[name].data = tensor
        return self.architecture

    def _stacked(self, batches: list[Any], wanted: list[int]) -> Outputs:
        """As many draws at once as their weights, and activations of the inputs' size, allow."""
        at_once = max(1, MAX_OUTPUT_BYTES // max(bytes_of(batches[0]), 1))
        at_once = min(self._stack_size, at_once)
        for first in range(0, len(wanted), at_once):
            numbers = wanted[first : first + at_once]
            weights = self._stack_of(numbers)
            for index, batch in enumerate(batches):
                if self._perceptron and accepts(self.architecture, batch):
                    model = partial(evaluate_perceptron, self.architecture, weights)
                    yield numbers, index, self.run(model, batch)
                else:
                    own = {name: weights[name].clone() for name in self._buffers}
                    outputs = vmap(self._run_with, in_dims=(0, None))({**weights, **own}, batch)
                    yield numbers, index, outputs

    def _run_with(self, tensors: dict[str, Tensor], batch: Any) -> Any:
        return self.run(with_weights(self.architecture, tensors), batch)

    def _stack_of(self, numbers: list[int]) -> dict[str, Tensor]:
        """The weights of some draws, stacked. They are kept for the next call."""
        if self._last_stack is None or self._last_stack[0] != numbers:
            fitted = [self.tensors_of(self.draws[number]) for number in numbers]
            stacked = {name: torch.stack([one[name] for one in fitted]) for name in self._places}
            self._last_stack = numbers, stacked
        return self._last_stack[1]

    def tensors_of(self, draw: Draw) -> dict[str, Tensor]:
        """The tensors of a draw on the device and in the dtypes of the model."""
        tensors, places = draw.tensors(), self._places
        own, wanted = ({n: tuple(t.shape) for n, t in each.items()} for each in (tensors, places))
        if own != wanted:
            names = sorted({name for name, _ in own.items() ^ wanted.items()})[:5]
            differ = [f"{name} ({own.get(name)}, {wanted.get(name)})" for name in names]
            raise ValueError(
                f"the draw of chain {draw.chain_id}, step {draw.step} is not of this model: they "
                f"differ in the shapes of {', '.join(differ)}"
            )
        return {n: t.to(places[n].device, places[n].dtype) for n, t in tensors.items()}

    def run(self, model: Callable[..., Any], batch: Any) -> Any:
        """Outputs of one model."""
        try:
            if self.autocast is None:
                return self._forward(model, batch)
            with torch.autocast(self.device.type, dtype=self.autocast):
                return self._forward(model, batch)
        except Exception as error:
            sizes = [f"shape {tuple(t.shape)} and {t.dtype}" for t in tensors_of_tree(batch)]
            given = f"tensors of {', '.join(sizes)}" if sizes else f"of type {type(batch).__name__}"
            error.add_note(f"The inputs were {given}: give tensors as in training.")
            raise


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """No autocast, not even that of the caller: for averages of outputs."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()  # entering a context that changes nothing takes as long as an operation


def with_weights(model: nn.Module, tensors: dict[str, Tensor]) -> Callable[..., Any]:
    """`model` as a function, with other parameters and buffers than its own."""
    return lambda *args, **kwargs: functional_call(model, tensors, args, kwargs, tie_weights=False)


def plain_forward(model: Callable[..., Any], inputs: Any) -> Any:
    """Default forward: `model(inputs)`."""
    return model(inputs)


def tensors_of_tree(tree: Any) -> list[Tensor]:
    """All tensors inside tuples, lists and dictionaries."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def bytes_of(tree: Any) -> int:
    """Bytes of all tensors inside."""
    if isinstance(tree, Tensor):
        return tree.numel() * tree.element_size()  # a sparse one has no `nbytes`
    return sum(map(bytes_of, tensors_of_tree(tree)))


def _flush(buffers: list[dict[int, Any]]) -> Outputs:
    """The buffered outputs, batch by batch; the buffers are empty afterwards."""
    for batch, buffer in enumerate(buffers):
        if buffer:
            stacked = pytree.tree_map(lambda *leaves: torch.stack(leaves), *buffer.values())
            yield list(buffer), batch, stacked
            buffer.clear()
