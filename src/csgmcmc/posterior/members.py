"""The model with the weights of each draw: one after another, or stacked and vmapped."""

import copy
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils import _pytree as pytree

from csgmcmc.draws import Draw
from csgmcmc.loaders import to_device
from csgmcmc.posterior.batches import bytes_of, tensors_of_tree
from csgmcmc.posterior.stacked_mlp import evaluate_perceptron, is_perceptron

Forward = Callable[[Callable[..., Any], Any], Any]
"""From a model and inputs to outputs."""

Take = Callable[[list[int], int, Any], None]
Turns = Iterator[tuple[list[int], int, Any]]

STACK_BYTES = 32 * 2**20  # of weights that are stacked at once
HELD_BYTES = 128 * 2**20  # of draws that stay mapped between calls, if all of them do
OUTPUT_BYTES = 16 * 2**20  # of outputs that wait to be averaged together
MOST_AT_ONCE = 64  # draws whose outputs wait, however small they are


class Members:
    """Evaluates one model under many draws, without touching the model that it was given.

    Args:
        model: the architecture; its own weights do not matter.
        draws: the weights.
        device: where to; by default where the model is.
        autocast: dtype of automatic mixed precision.
        forward: from a model and inputs to outputs; by default `model(inputs)`.
        vectorize: True stacks draws and vmaps over them, False takes one after another; None
            measures both, for each shape of inputs, where two draws fit into the stack at all.
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
        # Draws are put into the place of this copy's weights, without being copied themselves.
        self._slot = copy.deepcopy(model).eval().requires_grad_(False)
        if device is not None:
            self._slot.to(device)
        self._places: dict[str, Tensor] = self._slot.state_dict(keep_vars=True)
        self._buffers = {
            name: (self._slot.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2])
            for name, _ in self._slot.named_buffers(remove_duplicate=False)
            if name in self._places
        }
        if not self._places:
            raise ValueError("model has no parameters: there is nothing that a draw could set")
        self.device = next(iter(self._places.values())).device
        self._autocast = autocast
        self._forward = forward
        self._vectorize = vectorize
        self._faster: dict[Any, bool] = {}  # by the shape of the inputs: is the stack?
        size = max(bytes_of(self._places), 1)
        self._stack_size = max(1, STACK_BYTES // size)
        self._perceptron = is_perceptron(self._slot)
        self._stack_holds_all = len(self.draws) <= self._stack_size
        # If only some were held, the memory would grow with the draws and little be gained.
        self._hold = len(self.draws) * size <= HELD_BYTES
        self._whole_stack: dict[str, Tensor] | None = None
        self._held: dict[int, dict[str, Tensor]] = {}

    def evaluate(
        self, batches: Sequence[Any], take: Take, among: Sequence[int] | None = None
    ) -> None:
        """Evaluate each of `batches` under the draws numbered `among`, all by default.

        `take` gets the numbers of some draws, the number of a batch, and their outputs for it
        (draws, batch, ...); it is called until all draws have had their turn with all batches.
        """
        wanted = list(range(len(self.draws))) if among is None else list(among)
        batches = [to_device(batch, self.device) for batch in batches]
        with torch.inference_mode():
            at_once = self._how_many_at_once(batches[0])
            if self._stacked_is_faster(batches[0], wanted[:at_once]):
                turns = self._stacked(batches, wanted, at_once)
            else:
                turns = self._one_by_one(batches, wanted)
            for turn in turns:
                with torch.autocast(self.device.type, enabled=False):  # a caller's, too
                    take(*turn)

    # One after another

    def _one_by_one(self, batches: list[Any], wanted: list[int]) -> Turns:
        """Outputs wait until there are enough of them to be averaged together."""
        waiting = [_Waiting() for _ in batches]
        for count, index in enumerate(wanted, start=1):
            model = self._model_with(index)
            for one, batch in zip(waiting, batches, strict=True):
                one.add(index, self.run(model, batch))
                if sum(some.size for some in waiting) >= OUTPUT_BYTES:
                    yield from _ready(waiting)
            if count % MOST_AT_ONCE == 0:
                yield from _ready(waiting)
        yield from _ready(waiting)

    def _model_with(self, number: int) -> nn.Module:
        """The model with the weights of a draw, until the next call."""
        tensors = self._held.get(number) or self._fitted(self.draws[number])
        if self._hold:  # opening a file takes longer than a small model
            self._held[number] = tensors
        for name, tensor in tensors.items():
            if name in self._buffers:  # a model may change these, or put others in their place
                module, own_name = self._buffers[name]
                module._buffers[own_name] = tensor.clone()
            else:
                self._places[name].data = tensor
        return self._slot

    # Stacked

    def _stacked(self, batches: list[Any], wanted: list[int], at_once: int) -> Turns:
        for first in range(0, len(wanted), at_once):
            numbers = wanted[first : first + at_once]
            weights = self._stack_of(numbers)
            for place, batch in enumerate(batches):
                yield numbers, place, self._vmapped(weights, batch)

    def _vmapped(self, weights: dict[str, Tensor], batch: Any) -> Any:
        if self._perceptron and isinstance(batch, Tensor) and batch.ndim == 2:
            return self.run(lambda inputs: evaluate_perceptron(self._slot, weights, inputs), batch)

        def one(tensors: dict[str, Tensor], inputs: Any) -> Any:
            def model(*args: Any, **kwargs: Any) -> Any:
                return functional_call(self._slot, tensors, args, kwargs, tie_weights=False)

            return self.run(model, inputs)

        own = {name: weights[name].clone() for name in self._buffers}
        return vmap(one, in_dims=(0, None))({**weights, **own}, batch)

    def _stack_of(self, numbers: list[int]) -> dict[str, Tensor]:
        """The weights of some draws, stacked. Where all of them fit, they stay for later calls."""
        if not self._stack_holds_all:
            return self._stacked_weights(numbers)
        if self._whole_stack is None:
            self._whole_stack = self._stacked_weights(range(len(self.draws)))
        if len(numbers) == len(self.draws):
            return self._whole_stack
        return {name: tensor[numbers] for name, tensor in self._whole_stack.items()}

    def _stacked_weights(self, numbers: Iterable[int]) -> dict[str, Tensor]:
        fitted = [self._fitted(self.draws[number]) for number in numbers]
        return {name: torch.stack([one[name] for one in fitted]) for name in self._places}

    # Which of the two

    def _how_many_at_once(self, batch: Any) -> int:
        """Draws in a stack: bounded by their weights, and by activations of the inputs' size."""
        return min(self._stack_size, max(1, OUTPUT_BYTES // max(bytes_of(batch), 1)))

    def _stacked_is_faster(self, batch: Any, numbers: list[int]) -> bool:
        """As it was asked for, or as it was measured for inputs of this shape."""
        if self._vectorize is not None:
            return self._vectorize
        if len(numbers) < 2:
            return False
        key = tuple((leaf.shape, leaf.dtype) for leaf in tensors_of_tree(batch))
        if key not in self._faster:
            self._faster[key] = self._measure(batch, numbers)
        return self._faster[key]

    def _measure(self, batch: Any, numbers: list[int]) -> bool:
        """Time both ways on some draws. A model that cannot be vmapped is not."""
        try:
            with warnings.catch_warnings(action="error"):  # vmap warns where it is only a loop
                stacked = self._time(lambda: list(self._stacked([batch], numbers, len(numbers))))
        except Exception:  # whatever it is: the other way works, or says what is wrong
            return False
        return stacked < self._time(lambda: list(self._one_by_one([batch], numbers)))

    def _time(self, run: Callable[[], Any]) -> float:
        """Seconds of the second of two runs: the first has costs of its own."""
        run()
        began = time.perf_counter()
        leaves = tensors_of_tree(run())
        leaves[0].reshape(-1)[:1].tolist()  # waits for a device that works on its own
        return time.perf_counter() - began

    # What both need

    def _fitted(self, draw: Draw) -> dict[str, Tensor]:
        """The tensors of a draw on the device and in the dtypes of the model."""
        tensors = draw.tensors()
        if tensors.keys() != self._places.keys():
            differ = sorted(tensors.keys() ^ self._places.keys())
            raise ValueError(
                f"the draw of chain {draw.chain_id}, step {draw.step} is not of this model: they "
                f"differ in {', '.join(differ[:5])}"
            )
        for name, tensor in tensors.items():
            place = self._places[name]
            if tensor.shape != place.shape:
                raise ValueError(
                    f"{name} has shape {tuple(tensor.shape)} in the draw of chain {draw.chain_id}, "
                    f"step {draw.step}, and {tuple(place.shape)} in the model"
                )
            tensors[name] = tensor.to(place.device, place.dtype)
        return tensors

    def run(self, model: Callable[..., Any], batch: Any) -> Any:
        """Outputs of one model."""
        if self._autocast is None:
            return self._forward(model, batch)
        with torch.autocast(self.device.type, dtype=self._autocast):
            return self._forward(model, batch)


def plain_forward(model: Callable[..., Any], inputs: Any) -> Any:
    """What a model is called with, unless it is said otherwise."""
    return model(inputs)


class _Waiting:
    """Outputs of some draws for one batch, which wait to be averaged together."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.outputs: list[Any] = []
        self.size = 0

    def add(self, number: int, outputs: Any) -> None:
        self.numbers.append(number)
        # Detached: an output may be a parameter, which becomes that of the next draw.
        if isinstance(outputs, Tensor):  # as below, and faster
            self.outputs.append(outputs.detach())
            self.size += outputs.numel() * outputs.element_size()
            return
        self.outputs.append(pytree.tree_map_only(Tensor, Tensor.detach, outputs))
        self.size += bytes_of(outputs)


def _ready(waiting: list[_Waiting]) -> Turns:
    """What has waited, batch by batch; afterwards nothing waits."""
    for batch, one in enumerate(waiting):
        if one.numbers:
            stacked = pytree.tree_map(lambda *leaves: torch.stack(leaves), *one.outputs)
            yield one.numbers, batch, stacked
        waiting[batch] = _Waiting()
