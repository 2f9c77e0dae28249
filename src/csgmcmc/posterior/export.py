"""The averaged prediction as one `torch.export` program, which runs without this library.

It contains all draws of weight above 0: tensors that differ between draws are stacked, and tensors
that are equal (the frozen part of a model with adapters) are stored once.
"""

import io
import os
import warnings
from contextlib import suppress
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
from csgmcmc.posterior.members import tensors_of_tree, with_weights
from csgmcmc.posterior.predictive import Predictive

if TYPE_CHECKING:
    from csgmcmc.posterior.posterior import Posterior

# Largest difference between the program and `predict`, relative to the largest value.
MAX_DIFFERENCE = 1e-3
MAX_HALF_DIFFERENCE = 5e-2  # with autocast, where kernels round differently


def export(
    posterior: "Posterior", path: str | os.PathLike[str], inputs: Any, *, dynamic_shapes: Any = None
) -> ExportedProgram:
    """Write the program that takes `inputs` to `path`; see `Posterior.export`."""
    file = Path(path)
    if file.suffix != ".pt2":
        raise ValueError(f"path must end in .pt2, got {str(path)!r}")
    if not file.parent.is_dir():
        raise ValueError(f"path must be in an existing folder, got {str(path)!r}")
    inputs = to_device(inputs, posterior.members.device)
    if dynamic_shapes is None:
        inputs, dynamic_shapes = _batch_first(inputs)
    expected = outputs_of(posterior.predict(inputs))  # wrong inputs raise here
    # Example inputs are saved with a program: only their shapes should go into the file.
    blank = pytree.tree_map_only(Tensor, torch.zeros_like, inputs)
    program = _exported(posterior, blank, dynamic_shapes)
    with torch.no_grad():
        found = program.module()(inputs)
    tolerance = MAX_DIFFERENCE if posterior.members.autocast is None else MAX_HALF_DIFFERENCE
    for name in {"probs", "mean", "variance"} & expected.keys():
        scale = expected[name].abs().max()
        if name == "mean":  # which may be 0
            scale = scale + expected["variance"].max().sqrt()
        off = (found[name] - expected[name]).abs().max() / scale
        if not off <= tolerance:
            raise ValueError(
                f"model cannot be exported: {name} of the program differs from that of predict by "
                f"{off:.2g} of its size: does the model draw random numbers?"
            )
    # In memory first: on a full disk, torch's own writer ends the process.
    content = io.BytesIO()
    torch.export.save(program, content)
    with readable_io_errors(file, "writing the program"):
        atomic_write(file, lambda aside: aside.write_bytes(content.getbuffer()))
    return program


def outputs_of(prediction: Predictive) -> dict[str, Tensor]:
    """Outputs of a program: the tensors of a prediction by name."""
    names = [field.name for field in fields(prediction)]
    names += ["mutual_information", "probs", "variance"]
    values = {name: getattr(prediction, name, None) for name in names}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}


class AveragedModel(nn.Module):
    """A model under many draws, averaged: nothing but tensors and arithmetic."""

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
        stacked = {name: tensor for name, tensor in tensors.items() if name in self.differ}

        def one(own: dict[str, Tensor]) -> Any:
            return self._run(with_weights(self._architecture[0], {**tensors, **own}), inputs)

        if self.at_once:
            return vmap(one)(stacked)
        numbers = range(len(self.get_buffer("draw_weights")))
        each = [one({name: tensor[i] for name, tensor in stacked.items()}) for i in numbers]
        return pytree.tree_map(lambda *leaves: torch.stack(leaves), *each)


def _exported(posterior: "Posterior", inputs: Any, dynamic_shapes: Any) -> ExportedProgram:
    """All draws at once if that can be exported, else one after another; or as asked for."""
    model = AveragedModel(posterior).eval()
    asked = posterior.members.vectorize
    model.at_once = asked is not False and bool(model.differ)
    if model.at_once and not asked:
        with suppress(ValueError):
            return _traced(model, inputs, dynamic_shapes)
        model.at_once = False  # this works, or raises the actual error
    return _traced(model, inputs, dynamic_shapes)


def _traced(model: AveragedModel, inputs: Any, dynamic_shapes: Any) -> ExportedProgram:
    shapes, depth = {"inputs": dynamic_shapes}, get_dynamic_layer_stack_depth()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            # Without a rule for an operation, vmap is only a loop.
            warnings.filterwarnings("error", message="There is a performance drop")
            # torch warns of its own calls.
            warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
            program = torch.export.export(model, (inputs,), dynamic_shapes=shapes, strict=False)
            if model.at_once:
                # The program still holds the vmap itself, which an error in a later call would
                # leave open; this replaces it by the stacked operations.
                program = program.run_decompositions({})
    except Exception as error:
        lines = [line.strip("- ") for line in str(error).splitlines() if line.strip("- ")]
        vague = len(lines) > 1 and lines[0].startswith("Constraints violated")
        reason = (lines or [repr(error)])[1 if vague else 0]
        raise ValueError(f"model cannot be exported: torch.export says: {reason}") from error
    finally:
        # If a decomposition of a vmap fails, the vmap stays open, and everything that torch does
        # afterwards would be inside it.
        pop_dynamic_layer_stack_and_undo_to_depth(depth)
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, GraphModule) else ():
            node.meta.pop("stack_trace", None)  # paths on this machine
    return program


def _batch_first(inputs: Any) -> tuple[Any, Any]:
    """Inputs and dynamic shapes in which dimension 0 of all tensors is the batch, of any size."""
    sizes = {tensor.shape[0] if tensor.ndim else 0 for tensor in tensors_of_tree(inputs)}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(
            "inputs must be tensors with the batch in dimension 0, at least one data point long "
            f"and all of the same length, got {sorted(sizes)}: for others, give dynamic_shapes"
        )
    batch = Dim("batch", min=1)
    shapes = pytree.tree_map(lambda leaf: {0: batch} if isinstance(leaf, Tensor) else None, inputs)
    if sizes == {1}:  # torch.export would treat a size of 1 as constant
        inputs = pytree.tree_map_only(Tensor, lambda one: torch.cat([one, one]), inputs)
    return inputs, shapes
