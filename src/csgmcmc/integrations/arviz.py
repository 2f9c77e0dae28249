"""Draws, and functions of them, as a tree that ArviZ can summarise and plot.

    tree = to_arviz({"probs": p.members}, draws=posterior.draws)
    arviz_stats.summary(tree)

Look at functions of the weights: single weights of a network have no meaning.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from csgmcmc.arguments import check_choice, check_count
from csgmcmc.draws import Draw
from csgmcmc.integrations.missing import require

if TYPE_CHECKING:
    from xarray import DataTree

Values = Mapping[str, Any]
"""Arrays or tensors by name."""

LIMIT = 10_000_000  # numbers read from draws by default: 80 MB
LIBRARY = {"inference_library": "csgmcmc", "inference_library_version": version("csgmcmc")}


def to_arviz(
    values: Sequence[Draw] | Values,
    *,
    names: str | Collection[str] | Callable[[str], bool] | None = None,
    draws: Sequence[Draw] | None = None,
    chains: ArrayLike | None = None,
    cycles: ArrayLike | None = None,
    by: Literal["chain", "cycle"] = "chain",
    cut: bool = False,
    log_likelihood: Any = None,
    posterior_predictive: Any = None,
    observed_data: Any = None,
    coords: Mapping[str, Any] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    limit: int = LIMIT,
) -> "DataTree":
    """A `DataTree` with dimensions chain and draw, and cycle and step as coordinates.

    ArviZ gives all draws the same weight: weights of a `Posterior` are not passed on.

    Args:
        values: draws, for their weights; or function values by name, such as the predictions of
            each draw, with a leading dimension for draws. Without `draws`, `chains` and `cycles`
            they have leading dimensions for chains and draws.
        names: which tensors of draws to take: their names, or a predicate on the name; by default
            all floating-point tensors.
        draws: the draws that the function values belong to: `posterior.draws`.
        chains: chain of each draw, if `draws` is not given; by default one chain.
        cycles: cycle of each draw, if `draws` is not given.
        by: what the dimension chain is. With "cycle" each cycle of each chain is one chain, so that
            R-hat compares cycles.
        cut: keep as many of the last draws of each chain as the shortest chain has. By default,
            chains with unequal numbers of draws raise a `ValueError`.
        log_likelihood: of each data point under each draw, as `posterior.log_scores` returns it.
        posterior_predictive: data predicted by each draw.
        observed_data: data, without a dimension for draws. This and the two above may be
            dictionaries; otherwise the variable is called "targets".
        coords: values of further dimensions, as `arviz_base.from_dict` takes them.
        dims: names of the further dimensions of each variable.
        limit: largest number of values to read from draws.
    """
    arviz = require("arviz_base", "arviz")
    check_choice("by", by, ("chain", "cycle"))
    if isinstance(values, Mapping):
        if names is not None:
            raise ValueError("names is for draws: give only the function values that you want")
        posterior = dict(values)
    else:
        if draws is not None or chains is not None or cycles is not None:
            raise ValueError(
                "draws, chains and cycles are for function values: draws have their own"
            )
        draws, names = list(values), [names] if isinstance(names, str) else names
        posterior = _weights(draws, names, check_count("limit", limit, at_least=1))
    if not posterior:
        raise ValueError("values is empty: give at least one function value by name")
    taken = sorted({"chain", "draw", "cycle", "step", "source_chain"} & posterior.keys())
    if taken:
        raise ValueError(f"{taken[0]!r} is the name of a coordinate: rename the values")
    known = _known(draws, chains, cycles)
    if by == "cycle" and "cycle" not in known:
        raise ValueError("by='cycle' needs the cycle of each draw: give draws, or cycles")
    layout = _layout(known, by, cut) if known else None

    groups = {
        "posterior": posterior,
        "posterior_predictive": posterior_predictive,
        "log_likelihood": log_likelihood,
    }
    arrays = {
        group: {name: _arranged(name, value, layout) for name, value in _named(members).items()}
        for group, members in groups.items()
        if members is not None
    }
    observed = {name: _array(value) for name, value in _named(observed_data).items()}
    tree = arviz.from_dict(
        {**arrays, "observed_data": observed} if observed else arrays,
        coords={**(coords or {}), **({"chain": layout.names} if layout else {})},
        dims=dims,
        check_conventions=layout is None,  # it warns of more chains than draws, common here
        attrs={"/": LIBRARY},
    )
    if layout is not None:
        for group in arrays:
            tree[group].dataset = tree[group].to_dataset().assign_coords(layout.coordinates)
    return tree


# The layout of the draws


@dataclass(frozen=True)
class _Layout:
    """Which draw is at which position of the arrays."""

    count: int  # of draws, before any are cut off
    rows: NDArray[np.int64]  # the draw at each position, of shape (chains, draws per chain)
    names: list[int]  # of the chains
    coordinates: dict[str, tuple[Any, NDArray]]  # dimensions and values by name


def _known(
    draws: Sequence[Draw] | None, chains: ArrayLike | None, cycles: ArrayLike | None
) -> dict[str, NDArray]:
    """Chain, cycle and step of each draw; empty if the values have these dimensions already."""
    if draws is None:
        given = {"chain": chains, "cycle": cycles}
        known = {name: np.asarray(one) for name, one in given.items() if one is not None}
        shapes = {one.shape for one in known.values()}
        if len(shapes) > 1 or any(len(shape) != 1 or shape == (0,) for shape in shapes):
            shown = " and ".join(f"{name}s of shape {one.shape}" for name, one in known.items())
            raise ValueError(f"chains and cycles must be one number for each draw, got {shown}")
        if known:
            known.setdefault("chain", np.zeros(shapes.pop(), dtype=int))
        return known
    if chains is not None or cycles is not None:
        raise ValueError("chains and cycles are known from draws: give one or the other")
    if not len(draws):
        raise ValueError("draws is empty: there is nothing to show")
    numbers = np.array([(draw.chain_id, draw.cycle, draw.step) for draw in draws])
    return dict(zip(("chain", "cycle", "step"), numbers.T, strict=True))


def _layout(known: dict[str, NDArray], by: str, cut: bool) -> _Layout:
    count = len(known["chain"])
    keys = list(zip(known["chain"].tolist(), known[by].tolist(), strict=True))
    rows: dict[tuple[int, int], list[int]] = {}
    for row in np.argsort(known.get("step", np.arange(count)), kind="stable").tolist():
        rows.setdefault(keys[row], []).append(row)
    ordered = [rows[key] for key in sorted(rows)]
    shortest = min(map(len, ordered))
    if not cut and any(len(some) > shortest for some in ordered):
        counts = ", ".join(str(len(some)) for some in ordered)
        raise ValueError(
            f"{by}s have unequal numbers of draws ({counts}): use cut=True to keep the last "
            f"{shortest} of each"
        )
    table = np.array([some[-shortest:] for some in ordered])
    placed = {name: numbers[table] for name, numbers in known.items()}
    coordinates: dict[str, tuple[Any, NDArray]] = {}
    owners = placed.pop("chain")[:, 0]
    names = owners.tolist()
    if by == "cycle":
        names = list(range(len(table)))
        coordinates["cycle"] = ("chain", placed.pop("cycle")[:, 0])
        coordinates["source_chain"] = ("chain", owners)
    for name, numbers in placed.items():
        same = (numbers == numbers[0]).all()
        coordinates[name] = ("draw", numbers[0]) if same else (("chain", "draw"), numbers)
    return _Layout(count, table, names, coordinates)


# The values


def _weights(
    draws: Sequence[Draw], names: Collection[str] | Callable[[str], bool] | None, limit: int
) -> dict[str, NDArray]:
    """Tensors of draws by name, stacked."""
    if not all(isinstance(draw, Draw) for draw in draws):
        raise ValueError(
            "values must be draws, or a dictionary of function values such as "
            "{'probs': prediction.members}"
        )
    if not draws:
        raise ValueError("values is empty: there are no draws to show")
    first = draws[0].tensors()
    missing: list[str] = []
    if names is None:
        chosen = [name for name, tensor in first.items() if tensor.is_floating_point()]
    elif callable(names):
        chosen = [name for name in first if names(name)]
    else:
        chosen = [name for name in first if name in names]
        missing = sorted(set(names) - set(chosen))
    if missing or not chosen:
        wanted = ", ".join(missing) or "nothing"
        raise ValueError(f"names asks for {wanted}, the draws have {', '.join(first)}")
    size = sum(first[name].numel() for name in chosen) * len(draws)
    if size > limit:
        raise ValueError(
            f"the draws hold {size:,} numbers, more than limit={limit:,}: choose some with names, "
            "give function values instead, or raise limit"
        )
    stacked: dict[str, list[NDArray]] = {name: [] for name in chosen}
    for draw in draws:
        tensors = draw.tensors()
        if absent := stacked.keys() - tensors.keys():
            raise ValueError(
                f"the draw of chain {draw.chain_id}, step {draw.step} is of another model: it has "
                f"no {', '.join(sorted(absent))}"
            )
        for name in chosen:
            stacked[name].append(_array(tensors[name]))
    return {name: np.stack(arrays) for name, arrays in stacked.items()}


def _named(values: Any) -> Values:
    if values is None:
        return {}
    return values if isinstance(values, Mapping) else {"targets": values}


def _arranged(name: str, values: Any, layout: _Layout | None) -> NDArray:
    """With leading dimensions for chains and draws."""
    array = _array(values)
    if layout is None:
        if array.ndim < 2:
            raise ValueError(
                f"{name} must have dimensions for chains and draws, got shape {array.shape}: or "
                "give draws=posterior.draws"
            )
        return array
    if array.shape[:1] != (layout.count,):
        raise ValueError(
            f"{name} must have a leading dimension for the {layout.count} draws, got shape "
            f"{array.shape}"
        )
    return array[layout.rows]


def _array(values: Any) -> NDArray:
    """As an array in double precision: rounding changes ranks, and with them R-hat."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = (values.double() if values.is_floating_point() else values).numpy()
    array = np.asarray(values)
    return array.astype(np.float64, copy=False) if array.dtype.kind == "f" else array
