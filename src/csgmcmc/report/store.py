"""The contents of a draw store as a table."""

from collections import Counter
from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table

from csgmcmc.draws import DrawStore


def overview(store: DrawStore, damages: Iterable[str]) -> RenderableType:
    """Chains, cycles, draws, sizes, provenance and integrity of a store."""
    table = Table("chain", "draws", "cycles", "draws per cycle", "steps", title=str(store.path))
    for chain_id in store.chain_ids:
        draws = store.of_chain(chain_id)
        cycles = Counter(draw.cycle for draw in draws)
        each = sorted(set(cycles.values()))
        table.add_row(
            str(chain_id),
            str(len(draws)),
            str(len(cycles)),
            str(each[0]) if len(each) == 1 else f"{each[0]} to {each[-1]}",
            f"{draws[0].step} to {draws[-1].step}",
        )
    return Group(
        table, "\n".join([*_totals(store), *_provenance(store), *_integrity(store, damages)])
    )


def _totals(store: DrawStore) -> list[str]:
    if not len(store):
        return ["no draws"]
    size = store.size_on_disk()
    return [f"{len(store)} draws, {size / 1e6:,.1f} MB, {size / len(store) / 1e6:,.3f} MB each"]


def _provenance(store: DrawStore) -> list[str]:
    lines = []
    for chain_id, header in sorted(store.headers().items()):
        versions = ", ".join(f"{name} {number}" for name, number in header["versions"].items())
        lines.append(f"chain {chain_id} was written with {versions}")
        for name, value in header["provenance"].items():
            shown = f"{len(value)} tensors" if name == "model" else str(value)
            lines.append(f"  {name}: {shown}")
    return lines


def _integrity(store: DrawStore, damages: Iterable[str]) -> list[str]:
    found = [*store.problems, *damages]
    return [f"damaged or left over: {line}" for line in found] or [
        "integrity: all draws are intact"
    ]
