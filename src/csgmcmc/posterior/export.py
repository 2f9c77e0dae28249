"""The averaged prediction as one `torch.export` program, which runs without this library.

It contains all draws of weight above 0: tensors that differ between draws are stacked, and tensors
that are equal (the frozen part of a model with adapters) are stored once.
"""

import io
import os
import warnings
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from csgmcmc.arguments import check_number
from csgmcmc.files import atomic_write, readable_io_errors
from csgmcmc.loaders import to_device
from csgmcmc.posterior.averages import weighted
from csgmcmc.posterior.members import tensors_of_tree, with_weights
from csgmcmc.posterior.predictive import Predictive
from csgmcmc.stacked import evaluate_perceptron

if TYPE_CHECKING:
    from csgmcmc.posterior.posterior import Posterior

# Largest difference between the program and `predict`, relative to the largest value.
MAX_DIFFERENCE = 1e-3
BISECTIONS = 25  # of an interval: the rest of it is below rounding in single precision
MAX_HALF_DIFFERENCE = 5e-2  # with autocast, where kernels round differently


def export(
    posterior: "Posterior",
    path: str | os.PathLike[str],
    inputs: Any,
    *,
    quantiles: Sequence[float] = (),
    dynamic_shapes: Any = None,
) -> ExportedProgram:
    """Write the program that takes `inputs` to `path`; see `Posterior.export`."""
    file = Path(path)
    if file.suffix != ".pt2":
        raise ValueError(f"path must end in .pt2, got {str(path)!r}")
    if not file.parent.is_dir():
        raise ValueError(f"path must be in an existing folder, got {str(path)!r}")
    levels = [check_number("quantiles", level, above=0, below=1) for level in quantiles]
    if levels and getattr(posterior.likelihood, "family", "") != "norm":
        raise ValueError(
            f"quantiles can be exported of a gaussian likelihood, not of {posterior.likelihood}: "
            'predict(inputs, members=True).quantile(q) has them, or export "probs" or "mean"'
        )
    inputs = to_device(inputs, posterior.members.device)
    if dynamic_shapes is None:
        inputs, dynamic_shapes = _batch_first(inputs)
    predicted = posterior.predict(inputs, members=bool(levels))  # wrong inputs raise here
    expected = outputs_of(predicted)
    if levels:
        expected["quantiles"] = predicted.quantile(levels)
    # Example inputs are saved with a program: only their shapes should go into the file.
    blank = pytree.tree_map_only(Tensor, torch.zeros_like, inputs)
    program = _traced(AveragedModel(posterior, levels).eval(), blank, dynamic_shapes)
    with torch.no_grad():
        found = program.module()(inputs)
    tolerance = MAX_DIFFERENCE if posterior.members.autocast is None else MAX_HALF_DIFFERENCE
    for name in {"probs", "mean", "variance", "quantiles"} & expected.keys():
        scale = expected[name].abs().max()
        if name in ("mean", "quantiles"):  # which may be 0
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
    """A model under many draws, averaged: nothing but tensors and arithmetic.

    With `levels` it has quantiles of the mixture of Gaussians too, of shape (levels, batch, ...).
    """

    def __init__(self, posterior: "Posterior", levels: Sequence[float] = ()) -> None:
        super().__init__()
        # In a list: the weights of its architecture are not the program's.
        self._posterior = [posterior]
        members, self._levels = posterior.members, levels
        counting = np.flatnonzero(posterior.weights).tolist()
        weights = torch.as_tensor(posterior.weights[counting], device=members.device)
        draws = [members.tensors_of(posterior.draws[number]) for number in counting]
        self._places: dict[str, str] = {}  # from the model's names to those here
        tied: dict[int, str] = {}
        for name, place in members.architecture.state_dict(keep_vars=True).items():
            if id(place) not in tied:
                tensors = [draw[name] for draw in draws]
                differ = not all(torch.equal(tensors[0], tensor) for tensor in tensors[1:])
                tied[id(place)] = ("draws/" if differ else "common/") + name.replace(".", "/")
                kept = torch.stack(tensors) if differ else tensors[0].clone()
                self.register_buffer(tied[id(place)], kept)
            self._places[name] = tied[id(place)]
        if all(place.startswith("common/") for place in tied.values()):
            weights = weights.sum(0, keepdim=True)  # one draw, or many that are the same
        self.register_buffer("draw_weights", weights)

    def forward(self, inputs: Any) -> dict[str, Tensor]:
        posterior, weights = self._posterior[0], self.get_buffer("draw_weights")
        average = posterior.likelihood.average(posterior.weights)
        parts = average.read(self._outputs(len(weights), inputs))
        average.add_parts(weights.to(parts[0]), *parts)
        found = outputs_of(average.result())
        if self._levels:
            each = [quantile(level, weights.to(parts[0]), *parts) for level in self._levels]
            found["quantiles"] = torch.stack(each)
        return found

    def _outputs(self, draws: int, inputs: Any) -> Any:
        """Of all draws: of a perceptron at once, of other models one draw after another."""
        members = self._posterior[0].members
        model: Any = members.architecture
        tensors = {name: self.get_buffer(place) for name, place in self._places.items()}
        differ = [name for name, place in self._places.items() if place.startswith("draws/")]
        if differ and members.vectorize is not False and members.is_perceptron_on(inputs):
            for name in tensors.keys() - differ:
                tensors[name] = tensors[name].expand(draws, *tensors[name].shape)
            return members.run(partial(evaluate_perceptron, model, tensors), inputs)
        each = []
        for i in range(draws):
            own = {name: tensors[name][i] for name in differ}
            each.append(members.run(with_weights(model, {**tensors, **own}), inputs))
        return pytree.tree_map(lambda *leaves: torch.stack(leaves), *each)


def quantile(level: float, weights: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Quantile of a mixture of Gaussians, by bisection between those of its members."""
    std = variance.sqrt()
    own = mean + std * NormalDist().inv_cdf(level)
    low, high = own.amin(0), own.amax(0)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        is_below = weighted(weights, torch.special.ndtr((middle - mean) / std)) < level
        low, high = torch.where(is_below, middle, low), torch.where(is_below, high, middle)
    return (low + high) / 2


def _traced(model: AveragedModel, inputs: Any, dynamic_shapes: Any) -> ExportedProgram:
    shapes = {"inputs": dynamic_shapes}
    try:
        with torch.no_grad(), warnings.catch_warnings():
            # torch warns of its own calls.
            warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
            program = torch.export.export(model, (inputs,), dynamic_shapes=shapes, strict=False)
    except Exception as error:
        lines = [line.strip("- ") for line in str(error).splitlines() if line.strip("- ")]
        vague = len(lines) > 1 and lines[0].startswith("Constraints violated")
        reason = (lines or [repr(error)])[1 if vague else 0]
        raise ValueError(f"model cannot be exported: torch.export says: {reason}") from error
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
