"""Draws, and functions of them, as a tree that ArviZ can summarise and plot.

    tree = to_arviz({"probs": p.members}, draws=posterior.draws)
    arviz_stats.summary(tree)

Look at functions of the weights: single weights of a network have no meaning.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from csgmcmc.arguments import check_choice
from csgmcmc.draws import Draw
from csgmcmc.integrations import require

if TYPE_CHECKING:
    from xarray import DataTree


def to_arviz(
    values: Sequence[Draw] | Mapping[str, Any],
    *,
    names: Sequence[str] | None = None,
    draws: Sequence[Draw] | None = None,
    by: Literal["chain", "cycle"] = "chain",
    log_likelihood: Any = None,
    **options: Any,
) -> "DataTree":
    """A `DataTree` with dimensions chain and draw, and cycle and step as coordinates.

    ArviZ gives all draws the same weight: weights of a `Posterior` are not passed on.

    Args:
        values: draws, for their weights; or function values by name, such as the predictions of
            each draw, with a leading dimension for draws.
        names: names of the tensors of draws to take; by default all floating-point tensors.
        draws: the draws that function values belong to: `posterior.draws`.
        by: what the dimension chain is. With "cycle" each cycle of each chain is one chain, so that
            R-hat compares cycles. All chains, or cycles, must have equally many draws.
        log_likelihood: of each data point under each draw, as `posterior.log_scores` returns it.
        options: further arguments of `arviz_base.from_dict`, such as `coords` and `dims`.
    """
    arviz = require("arviz_base", "arviz")
    check_choice("by", by, ("chain", "cycle"))
    groups: dict[str, Any] = {"posterior": values}
    if not isinstance(values, Mapping):
        draws = list(values)
        groups["posterior"] = _weights(draws, names)
    if draws is None:
        raise ValueError("draws are needed for function values: those that they belong to")
    if log_likelihood is not None:
        groups["log_likelihood"] = {"targets": log_likelihood}
    table, coordinates = _layout(draws, by)
    arrays = {
        group: {name: _arranged(name, value, table) for name, value in members.items()}
        for group, members in groups.items()
    }
    library = {"inference_library": "csgmcmc", "inference_library_version": version("csgmcmc")}
    # ArviZ's conventions would warn of more chains than draws, which is common here.
    options = {"check_conventions": False, "attrs": {"/": library}, **options}
    tree = arviz.from_dict(arrays, **options)
    for group in arrays:
        tree[group].dataset = tree[group].to_dataset().assign_coords(coordinates)
    return tree


def _layout(draws: Sequence[Draw], by: str) -> tuple[NDArray[np.int64], dict[str, Any]]:
    """The index of the draw at each (chain, draw), and the coordinates."""
    numbers = np.array([(draw.chain_id, draw.cycle, draw.step) for draw in draws])
    chain_ids, cycles, steps = numbers.T
    groups = np.stack([chain_ids, cycles if by == "cycle" else np.zeros_like(cycles)])
    counts = np.unique(groups, axis=1, return_counts=True)[1].tolist()
    if len(set(counts)) > 1:
        found = ", ".join(map(str, counts))
        raise ValueError(f"each {by} must have as many draws as the others, got {found}")
    table = np.lexsort((steps, *groups[::-1])).reshape(len(counts), -1)
    owners, both = chain_ids[table[:, 0]], ("chain", "draw")
    coordinates: dict[str, Any] = {"cycle": (both, cycles[table]), "step": (both, steps[table])}
    if by == "chain":
        return table, {**coordinates, "chain": owners}
    return table, {**coordinates, "chain": range(len(table)), "source_chain": ("chain", owners)}


def _weights(draws: Sequence[Draw], names: Sequence[str] | None) -> dict[str, NDArray]:
    """Tensors of draws by name, stacked."""
    if not draws or not all(isinstance(draw, Draw) for draw in draws):
        raise ValueError("values must be draws, or a dictionary of function values")
    tensors = [draw.tensors() for draw in draws]
    if names is None:
        names = [name for name, tensor in tensors[0].items() if tensor.is_floating_point()]
    return {name: np.stack([_array(each[name]) for each in tensors]) for name in names}


def _arranged(name: str, values: Any, table: NDArray[np.int64]) -> NDArray:
    """With leading dimensions for chains and draws."""
    array = _array(values)
    if array.shape[:1] != (table.size,):
        raise ValueError(f"{name} must have {table.size} rows, one per draw, got {array.shape}")
    return array[table]


def _array(values: Any) -> NDArray:
    """As an array in double precision: rounding changes ranks, and with them R-hat."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = (values.double() if values.is_floating_point() else values).numpy()
    array = np.asarray(values)
    return array.astype(np.float64, copy=False) if array.dtype.kind == "f" else array
