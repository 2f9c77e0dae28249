"""The averaged prediction as one `torch.export` program, which runs without this library.

It contains all draws of weight above 0: tensors that differ between draws are stacked, tensors that
are equal (the frozen part of a model with adapters) are stored once.
"""

import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._C._functorch import (
    get_dynamic_layer_stack_depth,
    pop_dynamic_layer_stack_and_undo_to_depth,
)
from torch.export import Dim, ExportedProgram
from torch.func import vmap
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from csgmcmc.files import atomic_write, readable_io_errors
from csgmcmc.loaders import to_device
from csgmcmc.posterior.averages import Average, ClassAverage, NumberAverage
from csgmcmc.posterior.batches import tensors_of_tree
from csgmcmc.posterior.members import with_weights
from csgmcmc.posterior.predictive import ClassPredictive, NumberPredictive, Predictive

if TYPE_CHECKING:
    from csgmcmc.posterior.posterior import Posterior

# Largest difference between the program and `predict`, relative to the largest value.
TOLERANCE = 1e-3
HALF_TOLERANCE = 5e-2  # with autocast, where kernels round differently


def export(
    posterior: "Posterior", path: str | os.PathLike[str], inputs: Any, *, dynamic_shapes: Any = None
) -> ExportedProgram:
    """Write the program that takes `inputs` to `path`; see `Posterior.export`."""
    file = Path(path)
    if file.suffix != ".pt2":
        raise ValueError(f"path must end in .pt2, got {str(path)!r}")
    if not file.parent.is_dir():
        raise ValueError(f"path must be in a folder that is there, got {str(path)!r}")
    inputs = to_device(inputs, posterior.members.device)
    if dynamic_shapes is None:
        dynamic_shapes = _batch_first(inputs)
        inputs = _two_points(inputs)
    _check_traceable(posterior.likelihood.average())
    expected = outputs_of(posterior.predict(inputs))  # wrong inputs raise here
    # Example inputs are saved with a program: only their shapes should go into the file.
    blank = pytree.tree_map_only(Tensor, torch.zeros_like, inputs)
    program = _exported(posterior, blank, dynamic_shapes)
    half = posterior.members.autocast is not None
    _check_equal(program, inputs, expected, HALF_TOLERANCE if half else TOLERANCE)
    # In memory first: where the disk is full, torch's writer of files ends the process.
    content = io.BytesIO()
    torch.export.save(program, content)
    with readable_io_errors(file, "writing the program"):
        atomic_write(file, lambda aside: aside.write_bytes(content.getbuffer()))
    return program


def outputs_of(prediction: Predictive) -> dict[str, Tensor]:
    """Outputs of a program: the tensors of a prediction by name."""
    values = {field.name: getattr(prediction, field.name) for field in fields(prediction)}
    values["mutual_information"] = prediction.mutual_information
    if isinstance(prediction, ClassPredictive):
        values["probs"] = prediction.probs
    if isinstance(prediction, NumberPredictive):
        values["variance"] = prediction.variance
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}


class AveragedModel(nn.Module):
    """A model under many draws, averaged: a module of nothing but tensors and arithmetic."""

    def __init__(self, posterior: "Posterior") -> None:
        super().__init__()
        self.at_once = False
        """Whether to vmap over the draws, or to evaluate them one after another."""

        self._new_average = posterior.likelihood.average
        self._run = posterior.members.run
        # In a list: its own weights are not the program's.
        self._architecture = [posterior.members.architecture]
        counting = np.flatnonzero(posterior.weights).tolist()
        weights = torch.as_tensor(posterior.weights[counting], device=posterior.members.device)
        draws = [posterior.members.tensors_of(posterior.draws[number]) for number in counting]
        self._places: dict[str, str] = {}  # from the model's names to those here
        tied: dict[int, str] = {}
        for name, place in posterior.members.architecture.state_dict(keep_vars=True).items():
            if id(place) not in tied:
                tensors = [draw[name] for draw in draws]
                differ = not all(torch.equal(tensors[0], tensor) for tensor in tensors[1:])
                tied[id(place)] = ("draws/" if differ else "common/") + name.replace(".", "/")
                kept = torch.stack(tensors) if differ else tensors[0].clone()
                self.register_buffer(tied[id(place)], kept)
            self._places[name] = tied[id(place)]
        self.differ = {name for name, place in self._places.items() if place.startswith("draws/")}
        if not self.differ:  # one draw, or many that are the same
            weights = weights.sum(0, keepdim=True)
        self.register_buffer("draw_weights", weights)

    def forward(self, inputs: Any) -> dict[str, Tensor]:
        average = self._new_average()
        parts = average.read(self._outputs(inputs))
        average.add_parts(self.get_buffer("draw_weights").to(parts[0]), *parts)
        return outputs_of(average.result())

    def _outputs(self, inputs: Any) -> Any:
        """Of all draws, with a leading dimension for them."""
        tensors = {name: self.get_buffer(place) for name, place in self._places.items()}
        common = {name: tensor for name, tensor in tensors.items() if name not in self.differ}
        stacked = {name: tensor for name, tensor in tensors.items() if name in self.differ}

        def one(own: dict[str, Tensor]) -> Any:
            return self._run(with_weights(self._architecture[0], {**common, **own}), inputs)

        if self.at_once:
            return vmap(one)(stacked)
        numbers = range(len(self.get_buffer("draw_weights")))
        each = [one({name: tensor[i] for name, tensor in stacked.items()}) for i in numbers]
        return pytree.tree_map(lambda *leaves: torch.stack(leaves), *each)


def _check_traceable(average: Average) -> None:
    if not isinstance(average, (ClassAverage, NumberAverage)):
        raise ValueError(
            f"likelihood averages with {type(average).__name__}, which cannot be exported: use "
            "'categorical', 'bernoulli' or 'gaussian'"
        )


def _exported(posterior: "Posterior", inputs: Any, dynamic_shapes: Any) -> ExportedProgram:
    """All draws at once if that can be exported, else one after another; or as asked for."""
    model = AveragedModel(posterior).eval()
    asked = posterior.members.vectorize
    model.at_once = asked is not False and bool(model.differ)
    try:
        return _traced(model, inputs, dynamic_shapes)
    except ValueError:
        if asked or not model.at_once:
            raise
    model.at_once = False  # this works, or raises the actual error
    return _traced(model, inputs, dynamic_shapes)


def _traced(model: AveragedModel, inputs: Any, dynamic_shapes: Any) -> ExportedProgram:
    shapes = {"inputs": dynamic_shapes}
    try:
        with torch.no_grad(), warnings.catch_warnings(), _vmaps_closed():
            # Without a rule for an operation, vmap is only a loop.
            warnings.filterwarnings("error", message="There is a performance drop")
            # torch warns of what it does itself.
            warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
            program = torch.export.export(model, (inputs,), dynamic_shapes=shapes, strict=False)
            if model.at_once:
                # A program still holds the vmap itself, which an error in a later call would leave
                # half done; this puts the stacked operations in its place.
                program = program.run_decompositions({})
    except Exception as error:
        raise ValueError(
            f"model cannot be exported, because torch.export says: {_reason(error)}"
        ) from error
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, GraphModule) else ():
            node.meta.pop("stack_trace", None)  # names of files and folders of this machine
    return program


@contextmanager
def _vmaps_closed() -> Iterator[None]:
    """Close what is still open at the end.

    Decompositions run a program with its vmap as plain calls. If one of them fails, the vmap stays
    open, and everything that torch does afterwards would be inside of it.
    """
    depth = get_dynamic_layer_stack_depth()
    try:
        yield
    finally:
        pop_dynamic_layer_stack_and_undo_to_depth(depth)


def _reason(error: Exception) -> str:
    """The lines of torch's message that matter: the first, and the line of the model."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [repr(error)]
    reason = lines[0]
    if reason.startswith("Constraints violated") and len(lines) > 1:
        reason = lines[1].removeprefix("- ")
    marker = "The following call raised this error:"
    if marker in lines:
        place = lines.index(marker) + 1
        reason += f" [{': '.join(lines[place : place + 2])}]"
    return reason


def _check_equal(
    program: ExportedProgram, inputs: Any, expected: dict[str, Tensor], tolerance: float
) -> None:
    """Raise if the program differs from `predict`."""
    with torch.no_grad():
        found = program.module()(inputs)
    for name in {"probs", "mean", "variance"} & expected.keys():
        scale = expected[name].abs().max()
        if name == "mean":  # which may be 0
            scale = scale + expected["variance"].max().sqrt()
        off = (found[name] - expected[name]).abs().max() / scale
        if not off <= tolerance:
            raise ValueError(
                f"model cannot be exported, because {name} of the program differs from that of "
                f"predict by {off:.2g} of its size: does the model draw random numbers?"
            )


def _batch_first(inputs: Any) -> Any:
    """Dynamic shapes in which the first dimension of all tensors is the batch, of any size."""
    tensors = tensors_of_tree(inputs)
    sizes = sorted({tensor.shape[0] if tensor.ndim else 0 for tensor in tensors})
    if len(sizes) != 1 or not sizes[0]:
        raise ValueError(
            "inputs must be tensors with the batch in dimension 0, at least one data point long "
            f"and all of the same length, got {sizes}: for others, give dynamic_shapes"
        )
    batch = Dim("batch", min=1)
    return pytree.tree_map(lambda leaf: {0: batch} if isinstance(leaf, Tensor) else None, inputs)


def _two_points(inputs: Any) -> Any:
    """A batch of one, repeated: torch.export would treat a size of 1 as constant."""
    if any(len(tensor) > 1 for tensor in tensors_of_tree(inputs)):
        return inputs
    return pytree.tree_map_only(Tensor, lambda one: torch.cat([one, one]), inputs)
