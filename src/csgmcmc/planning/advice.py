"""What dominates a cost, what breaks first, and what to change, in words of the options."""

import math

from csgmcmc.files import readable_size
from csgmcmc.planning.costs import Costs, Layout, Parts, Sizes, Work, memory_parts

WORTH_A_WORD = 0.1  # share of the time below which a part is not worth a change
STEP_PARTS = ("forward and backward", "update", "noise", "sums over processes")
CHANGES = {
    "forward and backward": "more --replicas share the batches of a chain",
    "update": "--shards divides it among --replicas",
    "noise": "a larger --exploration has fewer steps with noise",
    "sums over processes": (
        "larger batches (or accumulate=) have fewer sums, adapters shorter ones, and chains of one "
        "process each (--replicas 1) none"
    ),
    "waiting for the disk": (
        "all chains write to one: rarer checkpoints (checkpoint_every=), or checkpoint_dir= on the "
        "disks of the machines"
    ),
    "logs": "they have a thousand rows, however long the run is",
    "draws": "fewer --draws-per-cycle, --dtype bfloat16 or --only trainable write less",
}
WITHOUT_CORES = {"forward and backward": "all cores are busy: more of them, or fewer --epochs"}
NARROW = 2  # bytes of a bfloat16
RARE_ENOUGH = 0.05  # share of the time of the steps


def largest(parts: Parts) -> tuple[str, float]:
    """The name of the largest part, and its share of all."""
    name = max(parts, key=parts.__getitem__)
    total = sum(parts.values())
    return name, parts[name] / total if total else 0.0


def advise(
    costs: Costs,
    sizes: Sizes,
    layout: Layout,
    work: Work,
    *,
    sharded: bool = False,
    memory: float = math.inf,
    disk: float = math.inf,
    cores: int | None = None,
) -> list[str]:
    """One sentence for what breaks, then one for what dominates the time and the disk.

    `memory` is what a process has, `disk` what is free, both in bytes; `cores` are for all
    processes, None: enough.
    """
    return [
        *_what_breaks(costs, sizes, layout, sharded, memory, disk),
        *_about_time(costs, work, crowded=cores is not None and layout.processes >= cores),
        *_about_disk(costs, sizes),
    ]


def _what_breaks(
    costs: Costs, sizes: Sizes, layout: Layout, sharded: bool, memory: float, disk: float
) -> list[str]:
    part = "use more --replicas" if sharded else "with --shards a process reads its part"
    needs = [
        ("disk", sum(costs.disk.values()), disk, "see below"),
        ("memory", sum(costs.memory.values()), memory, _to_fit(sizes, layout, memory)),
        ("memory to resume", costs.resume_memory, memory, part),
    ]
    broken = sorted(
        (need / limit, f"{name}: {readable_size(need)} of {readable_size(limit)}; {remedy}")
        for name, need, limit, remedy in needs
        if need > limit
    )
    order = ["first", "too", "too"]
    return [
        f"breaks {when}, {words}" for when, (_, words) in zip(order, broken[::-1], strict=False)
    ]


def _to_fit(sizes: Sizes, layout: Layout, memory: float) -> str:
    """The fewest processes that a sharded chain fits into."""
    replicas = max(2, layout.replicas)
    while replicas < 2**20:
        if sum(memory_parts(sizes, replicas, sharded=True).values()) <= memory:
            return f"it fits with --shards --replicas {replicas}"
        replicas *= 2
    return "no number of --shards makes it fit: train adapters, or use a smaller batch"


def _about_time(costs: Costs, work: Work, crowded: bool) -> list[str]:
    total, found = sum(costs.seconds.values()), []
    changes = {**CHANGES, **(WITHOUT_CORES if crowded else {})}
    for name, seconds in sorted(costs.seconds.items(), key=lambda item: -item[1]):
        if total and seconds > WORTH_A_WORD * total:
            change = changes.get(name) or _rarer_checkpoints(costs, work)
            found.append(f"{name}: {seconds / total:.0%} of the time; {change}")
    return found


def _rarer_checkpoints(costs: Costs, work: Work) -> str:
    """Steps between checkpoints that take a small share of the time."""
    regular = math.ceil(work.steps / work.every)
    others = work.checkpoints - regular  # at the start, and after draws that are rare
    fewer_draws = "fewer --draws-per-cycle, each of which has a checkpoint" if others > 1 else ""
    if regular == 1:
        return fewer_draws or "they are one at the start and one at the end: a faster disk"
    stepping = max(sum(costs.seconds[name] for name in STEP_PARTS), 1e-12)
    each = costs.seconds["checkpoints"] / work.checkpoints / stepping  # relative to all steps
    room = RARE_ENOUGH / each - others
    every = math.ceil(work.steps / room) if room >= 1 else work.steps
    share = each * (others + math.ceil(work.steps / every))
    words = (
        f"checkpoint_every={every} in the chain_options of the task would be {share:.0%} of the "
        "time of the steps"
    )
    return f"{words}; {fewer_draws}" if room < 1 and fewer_draws else words


def _about_disk(costs: Costs, sizes: Sizes) -> list[str]:
    name, share = largest(costs.disk)
    changes = {
        "draws": "fewer --draws-per-cycle, and none of the draws whose weight is 0",
        "checkpoints": "each holds all weights, frozen ones too: fewer --chains",
        "what all draws share": "it is stored once",
    }
    if name not in changes:
        return []
    whole = sizes.draw > 0.6 * (sizes.weights - sizes.shared)  # not narrowed yet
    wide = name == "draws" and whole and sizes.weight_bytes > NARROW
    return [f"{name}: {share:.0%} of the disk; {'--dtype bfloat16, ' * wide}{changes[name]}"]


def readable_time(seconds: float) -> str:
    """Seconds in the unit that fits."""
    units = ((1e-3, 1e-6, "µs"), (1, 1e-3, "ms"), (120, 1, "s"), (7200, 60, "min"))
    for limit, size, unit in units:
        if seconds < limit:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 3600:.3g} h" if seconds < 172_800 else f"{seconds / 86_400:,.3g} days"
