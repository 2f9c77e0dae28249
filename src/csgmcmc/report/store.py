"""The contents of a draw store: a table for a terminal, and how its chains were made."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from csgmcmc.arguments import counted
from csgmcmc.draws import DrawStore
from csgmcmc.files import readable_size


def overview(
    store: DrawStore, damages: Sequence[str] | None, checkpoints: Mapping[int, int]
) -> RenderableType:
    """Chains, cycles, draws, sizes, provenance and integrity of a store.

    `damages` are those found by `DrawStore.verify`, None if the draws were not read; `checkpoints`
    the steps that chains had taken at their newest checkpoint.
    """
    title = Text(printable(store.path))
    table = Table("chain", "draws", "cycles", "draws per cycle", "steps", title=title)
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
    lines, size = ["no draws"], store.size_on_disk()
    if len(store):
        each = readable_size(size / len(store))
        lines = [f"{counted(len(store), 'draw')}, {readable_size(size)}, {each} each"]
    lines += _unfinished(store, checkpoints)
    lines += [f"{name}: {value}" for name, value in provenance(store).items()]
    problems = (*store.problems, *(damages or ()))
    lines += [f"damaged or left over: {line}" for line in problems]
    if damages is None:
        lines.append("integrity: sizes of files only, the draws were not read")
    elif not problems:
        lines.append("integrity: all draws are intact")
    return Group(table, Text(printable("\n".join(lines))))


def _unfinished(store: DrawStore, checkpoints: Mapping[int, int]) -> list[str]:
    """A line for each chain that lacks draws; old stores do not record how many are planned."""
    lines: list[str] = []
    for chain_id, header in sorted(store.headers().items()):
        made, draws = header["provenance"], store.of_chain(chain_id)
        planned, steps = made.get("total_draws"), made.get("total_steps")
        if not isinstance(planned, int) or len(draws) >= planned:
            continue
        taken, running = checkpoints.get(chain_id), store.is_being_written(chain_id)
        where = f"last draw at step {draws[-1].step}" if draws else "no draw yet"
        if taken is not None:
            where = f"{'last checkpoint' if running else 'stopped'} at step {taken}"
        where = f"is running, {where}" if running else where
        lines.append(f"chain {chain_id}: {len(draws)} of {planned} draws, {where} of {steps}")
    return lines


def provenance(store: DrawStore) -> dict[str, str]:
    """How the chains of a store were made; one value for each chain where they differ."""
    values: dict[str, dict[int, str]] = {}
    for chain_id, header in sorted(store.headers().items()):
        versions = ", ".join(f"{name} {number}" for name, number in header["versions"].items())
        for name, value in {**header["provenance"], "versions": versions}.items():
            values.setdefault(name, {})[chain_id] = _described(name, value)
    found = {}
    for name, each in values.items():
        first, *others = each.values()
        apart = "; ".join(f"chain {chain_id}: {value}" for chain_id, value in each.items())
        found[name] = apart if set(others) - {first} else first
    return found


def _described(name: str, value: Any) -> str:
    if name in ("model", "modules") and isinstance(value, dict):
        return f"{len(value)} {'tensors' if name == 'model' else 'without parameters'}"
    if isinstance(value, dict) and "kind" in value:  # a schedule
        return f"{value['kind']}({', '.join(f'{k}={value[k]!r}' for k in value if k != 'kind')})"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def printable(words: object) -> str:
    """Text in which bytes of a path that are not UTF-8 are escaped."""
    return str(words).encode(errors="backslashreplace").decode()
