"""Predict what a run will cost: time, memory, disk, bytes on the wire, and time lost to failures.

    python -m benchmarks.plan script.py:make_chain --chains 4 --processes 4
    python -m benchmarks.plan --parameters 7e9 --step-seconds 4 --steps 80000

With a script's function, which takes draws and returns their `Chain`, it measures for half a
minute on this machine (`measure.py`); an option that is given replaces the measured number. The
model of the costs:

    time    chains in sequence x (steps x (batch + update + noise + sums over processes)
            + draws x write + checkpoints x write); nothing is assumed to overlap
    memory  of a process: weights, gradients, states of the sampler, buckets or gathered layers
    disk    draws, what they share, and two checkpoints of each chain
    wire    2 (R - 1) / R x gradients for the R processes of a chain (a ring all-reduce, as DDP
            makes it); with shards also (R - 1) / R x weights, twice
"""

import argparse
import math
from dataclasses import dataclass, fields, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.failures import checkpoint_rule, readable_time
from csgmcmc.arguments import counted

BUCKET = 25 * 2**20  # bytes of gradients that DDP sums over processes at a time
LOG_ROW, DRAW_ROW = 315, 250  # bytes of a row of the logs, and of a line of a manifest
SUMS_TO_SAVE = 4  # with which processes gather their random states, and agree
MIN_SHARE = 0.1  # of the parts that are shown
CHANGES = {
    "forward and backward": "more --replicas share the batches of a chain, if there are cores",
    "noise": "a larger exploration has fewer steps with noise",
    "sums over processes": "larger batches have fewer, adapters shorter ones, --replicas 1 none",
    "waiting for the disk": "rarer checkpoints, or checkpoint_dir= on the disks of the machines",
    "writing draws": "fewer draws_per_cycle, dtype=torch.bfloat16 or only= write less",
    "writing checkpoints": "rarer ones (checkpoint_every=); rare draws have one each, too",
    "draws": "fewer draws_per_cycle, dtype=torch.bfloat16, no draws whose weight is 0",
    "checkpoints": "each holds all weights, frozen ones too: fewer --chains",
}

Parts = dict[str, float]


def readable_size(size: float) -> str:
    """A number of bytes in the unit that fits."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} PB"


@dataclass(frozen=True)
class Plan:
    """All that the costs are computed from. Each field is an option; 0 stands for "not given"."""

    parameters: float  # weights of the model
    step_seconds: float  # forward and backward pass
    steps: int  # of a chain on one process
    trained: float = 0  # weights that are sampled; all by default
    weight_bytes: float = 4  # of a weight in memory
    stored_bytes: float = 0  # of a weight in a draw; as in memory by default
    states: float = 1  # tensors that the sampler keeps for each sampled weight: 1 for SGHMC
    layers: float = 32  # of equal size, of which a sharded model gathers two
    chains: int = 1
    replicas: int = 1  # processes of each chain
    processes: int = 0  # processes / replicas chains run at a time; by default one
    shards: int = 0  # 1: replicas share the weights (FSDP2)
    split_batch: int = 0  # 1: replicas share each batch; 0: a chain has fewer steps
    draws: int = 12  # of all chains together
    noisy: float = 0.2  # share of the steps whose temperature is above 0
    checkpoint_every: int = 0  # steps; by default a hundredth of the run, as for Chain
    update_seconds: float = 0
    noise_seconds: float = 0  # what noise adds to an update
    draw_seconds: float = 0  # to write a draw; by default its size / disk_bandwidth
    checkpoint_seconds: float = 0
    predict_seconds: float = 0  # to predict a batch with one draw, which is read for it
    disk_bandwidth: float = 1e9  # bytes a second, whoever writes
    bandwidth: float = 1e10  # bytes a second that a process sends while gradients are averaged
    latency: float = 0  # seconds of a sum over processes, besides its bytes
    crowding: float = 1  # how much longer a step takes in processes with a core each than in one
    lockstep: float = 1  # the same, where they wait for the slowest of them in each step
    cores: int = 0  # for all processes; enough by default
    draw_bytes: float = 0
    shared_bytes: float = 0  # what all draws share, and is stored once
    overhead: float = 0  # bytes of a checkpoint besides tensors
    rest: float = 0  # memory of a process besides tensors: Python, torch, data, activations
    memory: float = math.inf  # bytes that a process may use
    disk: float = math.inf  # bytes that are free
    failures_per_hour: float = 0  # of all processes
    restart_seconds: float = 60  # from a failure to the next step

    def complete(self) -> "Plan":
        """Fill in what was not given and follows from the rest."""
        processes = self.processes or self.replicas
        if processes % self.replicas or self.chains % (processes // self.replicas):
            raise ValueError(f"processes={processes} / replicas={self.replicas} must divide chains")
        if self.shards and self.replicas == 1:
            raise ValueError("shards are divided among the replicas of a chain: give --replicas")
        trained = self.trained or self.parameters
        draw = self.draw_bytes or trained * (self.stored_bytes or self.weight_bytes)
        shared = self.shared_bytes or (self.parameters - trained) * self.weight_bytes
        sizes = {"trained": trained, "draw_bytes": draw, "shared_bytes": shared}
        plan = replace(self, processes=processes, **sizes)
        # Shared weights are compared with those on the disk each time.
        written, saved = (draw + shared) / self.disk_bandwidth, plan.saved / self.disk_bandwidth
        return replace(
            plan,
            draw_seconds=self.draw_seconds or written,
            checkpoint_seconds=self.checkpoint_seconds or saved,
            checkpoint_every=self.checkpoint_every or max(1, plan.own_steps // 100),
        )

    @property
    def saved(self) -> float:
        """Bytes of a checkpoint: all weights, and the states of the sampler."""
        return (self.parameters + self.states * self.trained) * self.weight_bytes + self.overhead

    @property
    def own_steps(self) -> int:
        """Steps of a chain; where replicas take batches of their own, an epoch has fewer."""
        return self.steps if self.split_batch else -(-self.steps // self.replicas)

    @property
    def own_draws(self) -> int:
        """Draws of a chain."""
        return -(-self.draws // self.chains)

    @property
    def checkpoints(self) -> int:
        """Checkpoints of a chain: at the start, every so often, at the end, after rare draws."""
        after_draws = self.own_draws - 1 if 0 < 100 * self.own_draws <= self.own_steps else 0
        return 1 + math.ceil(self.own_steps / self.checkpoint_every) + after_draws


@dataclass(frozen=True)
class Costs:
    """The costs of a run, by part where there are several."""

    seconds: Parts
    memory: Parts  # of a process at its peak
    disk: Parts
    wire: float  # bytes that a process sends in a step
    wire_total: float  # bytes that all processes send in all steps
    step_seconds: float
    predict_seconds: float  # of a batch with all draws, by one process
    resume_memory: float  # of a process while it resumes from a checkpoint


def wire_bytes(plan: Plan) -> float:
    """Bytes that each process of a chain sends in a step."""
    sent = 2 * plan.parameters + plan.trained if plan.shards else 2 * plan.trained
    return (plan.replicas - 1) / plan.replicas * sent * plan.weight_bytes


def memory_parts(plan: Plan) -> Parts:
    """Bytes of a process at the peak of a step, by part."""
    weights, trained = plan.parameters * plan.weight_bytes, plan.trained * plan.weight_bytes
    held = plan.replicas if plan.shards else 1
    parts = {
        "weights": weights / held,
        "gradients": trained / held,
        "states of the sampler": plan.states * trained / held,
        # Before the update, weight decay is added to a copy of all gradients.
        "gradients of the prior": trained / held,
    }
    if plan.shards:  # FSDP2 gathers a layer while it computes with another
        parts["gathered layers"] = 2 * weights / max(2, plan.layers)
    elif plan.replicas > 1:
        parts["buckets of DDP"] = trained
    return {**parts, "all else": plan.rest}


def cost_of(plan: Plan) -> Costs:
    """Predict what a run costs."""
    plan = plan.complete()
    steps, draws, held = plan.own_steps, plan.own_draws, plan.replicas if plan.shards else 1
    at_once = plan.processes // plan.replicas
    rounds = plan.chains // at_once
    turns = max(1.0, plan.processes / (plan.cores or plan.processes))  # processes wait for a core
    crowding = plan.crowding if plan.processes > 1 else 1.0
    slower = turns * (plan.lockstep if plan.replicas > 1 else crowding)
    messages = 3 * plan.layers if plan.shards else plan.trained * plan.weight_bytes / BUCKET
    latency, wire = plan.latency if plan.replicas > 1 else 0.0, wire_bytes(plan)
    step = {
        "forward and backward": slower * plan.step_seconds / plan.replicas**plan.split_batch,
        "update": slower * plan.update_seconds / held,
        "noise": slower * plan.noisy * plan.noise_seconds / held,
        "sums over processes": (latency * math.ceil(messages) + wire / plan.bandwidth) * turns,
    }
    checkpoints, rows = rounds * plan.checkpoints, steps // max(1, steps // 1000)
    saving = plan.checkpoint_seconds + SUMS_TO_SAVE * latency
    seconds = {name: rounds * steps * each for name, each in step.items()} | {
        "writing draws": turns * rounds * draws * plan.draw_seconds,
        "writing checkpoints": turns * checkpoints * saving,
    }
    written = plan.chains * draws * plan.draw_bytes + checkpoints * at_once * plan.saved
    waiting = written / plan.disk_bandwidth - sum(seconds.values())
    # Several chains may write more than the disk takes; that of one is in the times to write.
    seconds["waiting for the disk"] = max(0.0, waiting) if at_once > 1 else 0.0
    return Costs(
        seconds=seconds,
        memory=memory_parts(plan),
        disk={
            "draws": plan.chains * draws * plan.draw_bytes,
            "what all draws share": plan.shared_bytes if draws else 0.0,
            "checkpoints": 2 * plan.chains * plan.saved,
            "logs": plan.chains * (LOG_ROW * rows + DRAW_ROW * draws),
        },
        wire=wire,
        wire_total=wire * plan.processes * rounds * steps,
        step_seconds=sum(step.values()),
        predict_seconds=plan.chains * draws * plan.predict_seconds,
        # The state itself and both checkpoints; shards are mapped, and only of the newest.
        resume_memory=(2 if plan.shards else 3) * plan.saved / held + plan.rest,
    )


def advise(plan: Plan, costs: Costs) -> list[str]:
    """What breaks, the worst first; then what to change in the largest parts."""
    shards = "--shards 1 with more --replicas, or adapters"
    needs = [
        ("disk", sum(costs.disk.values()), plan.disk, "see below"),
        ("memory", sum(costs.memory.values()), plan.memory, shards),
        ("memory to resume", costs.resume_memory, plan.memory, shards),
    ]
    lines = [
        f"too much {name}: {readable_size(need)} of {readable_size(limit)}; {remedy}"
        for name, need, limit, remedy in sorted(needs, key=lambda each: -each[1] / each[2])
        if need > limit
    ]
    for what, parts in (("time", costs.seconds), ("disk", costs.disk)):
        for name, share in shares(parts):
            if name in CHANGES:
                lines.append(f"{name}: {share:.0%} of the {what}; {CHANGES[name]}")
    return lines


def shares(parts: Parts) -> list[tuple[str, float]]:
    """The parts that are worth a word and their shares, largest first."""
    total = sum(parts.values()) or 1.0
    found = [(name, part / total) for name, part in parts.items() if part > MIN_SHARE * total]
    return sorted(found, key=lambda each: -each[1])


def show(plan: Plan, costs: Costs) -> Table:
    of = f"{counted(plan.chains, 'chain')} of {counted(plan.own_steps, 'step')}"
    on = f"{plan.processes:,} process{'' if plan.processes == 1 else 'es'}"
    saved = f"{readable_size(plan.saved)}, every {counted(plan.checkpoint_every, 'step')}"
    sizes = [readable_size(sum(parts.values())) for parts in (costs.memory, costs.disk)]
    rows = [
        (f"time: {of} on {on}", readable_time(sum(costs.seconds.values())), costs.seconds),
        ("  a step", readable_time(costs.step_seconds), {}),
        (f"  a draw of {readable_size(plan.draw_bytes)}", readable_time(plan.draw_seconds), {}),
        (f"  a checkpoint of {saved}", readable_time(plan.checkpoint_seconds), {}),
        ("memory of a process", sizes[0], costs.memory),
        ("  to resume", readable_size(costs.resume_memory), {}),
        (f"disk: {counted(plan.chains * plan.own_draws, 'draw')}", sizes[1], costs.disk),
        ("wire: a process in a step", readable_size(costs.wire), {}),
        ("  all processes in all steps", readable_size(costs.wire_total), {}),
        ("prediction of a batch with all draws", readable_time(costs.predict_seconds), {}),
    ]
    table = Table("", "", "most of it", box=None, pad_edge=False)
    for name, total, parts in rows if plan.predict_seconds else rows[:-1]:
        table.add_row(name, total, "{}, {:.0%}".format(*shares(parts)[0]) if parts else "")
    return table


def parse(arguments: list[str] | None) -> Plan:
    """The plan of the command's options; a script is measured for what they do not say."""
    parser = argparse.ArgumentParser(prog="plan", description="Options: see Plan in plan.py.")
    parser.add_argument(
        "script", nargs="?", help="FILE.py:FUNCTION, which takes draws and returns their Chain"
    )
    parser.add_argument("--out", type=Path, default=Path("runs"), help="whose disk is measured")
    for each in fields(Plan):
        parser.add_argument(f"--{each.name.replace('_', '-')}", type=float)
    asked = vars(parser.parse_args(arguments))
    script, out = asked.pop("script"), asked.pop("out")
    given = {name: value for name, value in asked.items() if value is not None}
    if wrong := [name for name, value in given.items() if not 0 <= value < math.inf]:
        raise ValueError(f"{', '.join(wrong)} must be at least 0 and finite")
    whole = {each.name for each in fields(Plan) if each.type is int} & given.keys()
    given |= {name: math.ceil(given[name]) for name in whole}
    if script is not None:
        from benchmarks.measure import measure_script  # noqa: PLC0415  (slow to import)

        given = measure_script(script, out, given)
    if absent := sorted({"parameters", "step_seconds", "steps"} - given.keys()):
        raise ValueError(f"give FILE.py:FUNCTION, or {', '.join(absent)}")
    return Plan(**given).complete()


def main(arguments: list[str] | None = None) -> None:
    try:
        plan = parse(arguments)
    except ValueError as error:
        raise SystemExit(f"plan: {error}") from error
    costs, console = cost_of(plan), Console(width=100, highlight=False, soft_wrap=True)
    console.print(show(plan, costs))
    rules = [checkpoint_rule(plan, costs.step_seconds)] if plan.failures_per_hour else []
    console.print(*(f"- {line}" for line in [*advise(plan, costs), *rules]), sep="\n", markup=False)


if __name__ == "__main__":
    main()
