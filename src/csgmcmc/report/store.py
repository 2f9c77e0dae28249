"""The contents of a draw store as a table."""

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table

from csgmcmc.arguments import counted
from csgmcmc.draws import DrawStore
from csgmcmc.files import readable_size
from csgmcmc.report import as_text


def overview(
    store: DrawStore, damages: Sequence[str] | None, checkpoints: Mapping[int, int]
) -> RenderableType:
    """Chains, cycles, draws, sizes, provenance and integrity of a store.

    `damages` are those of `DrawStore.verify`; None if the draws were not read. `checkpoints` are
    the steps that chains had taken at their newest checkpoint.
    """
    table = Table("chain", "draws", "cycles", "draws per cycle", "steps", title=as_text(store.path))
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
    total = "no draws"
    if len(store):
        size = store.size_on_disk()
        each = readable_size(size / len(store))
        total = f"{counted(len(store), 'draw')}, {readable_size(size)}, {each} each"
    problems = [f"damaged or left over: {line}" for line in (*store.problems, *(damages or ()))]
    integrity = [] if problems else ["integrity: all draws are intact"]
    if damages is None:
        integrity = ["integrity: sizes of files only, the draws were not read"]
    integrity = [*problems, *integrity]
    lines = [total, *_unfinished(store, checkpoints), *_provenance(store), *integrity]
    return Group(table, as_text("\n".join(lines)))


def _unfinished(store: DrawStore, checkpoints: Mapping[int, int]) -> list[str]:
    """A line for each chain that lacks draws; old stores do not say how many there should be."""
    lines: list[str] = []
    for chain_id, header in sorted(store.headers().items()):
        made, draws = header["provenance"], store.of_chain(chain_id)
        planned, steps = made.get("total_draws"), made.get("total_steps")
        if not isinstance(planned, int) or len(draws) >= planned:
            continue
        taken = checkpoints.get(chain_id)
        where = f"last draw at step {draws[-1].step}" if draws else "no draw yet"
        if taken is not None:
            where = f"last checkpoint at step {taken}"
        if store.is_being_written(chain_id):
            where = f"is running, {where}"
        elif taken is not None:
            where = f"stopped at step {taken}"
        lines.append(f"chain {chain_id}: {len(draws)} of {planned} draws, {where} of {steps}")
    return lines


def _provenance(store: DrawStore) -> list[str]:
    lines: list[str] = []
    for chain_id, header in sorted(store.headers().items()):
        versions = ", ".join(f"{name} {number}" for name, number in header["versions"].items())
        lines.append(f"chain {chain_id} was written with {versions}")
        for name, value in header["provenance"].items():
            tensors = name == "model" and isinstance(value, dict)
            shown = f"{len(value)} tensors" if tensors else str(value)
            lines.append(f"  {name}: {shown}")
    return lines
