"""What a run costs: plain numbers in, numbers out.

    time    chains in sequence x (steps x (batch + update + noise + sums over processes)
            + draws x write + checkpoints x write)
    memory  of a process: weights, gradients, states of the sampler, buckets or gathered layers
    disk    draws, what they share, and two checkpoints of each chain
    wire    2 (R - 1) / R x gradients for the R processes of a chain (a ring all-reduce, as DDP
            makes it); with shards also (R - 1) / R x weights, twice

Nothing is assumed to overlap, so that the time is what a run takes at most.
"""

import math
from dataclasses import dataclass

from csgmcmc.arguments import check_count

BUCKET = 25 * 2**20
"""Bytes of gradients that DDP sums over processes at a time."""

LOG_ROW, DRAW_ROW = 315, 250  # bytes of a row of the logs, and of a line of a manifest
SUMS_TO_SAVE = 4  # with which processes gather their random states, and agree
MOST = 2**53
"""Counts are below this."""

Parts = dict[str, float]


@dataclass(frozen=True)
class Sizes:
    """A model in bytes.

    Attributes:
        weights: all parameters and buffers.
        trained: the parameters that are sampled; each has a gradient.
        states: tensors that the sampler keeps for each of them: 1 velocity for SGHMC.
        layer: the largest layer, which a sharded model gathers.
        draw: the file of a draw.
        shared: what all draws have in common, and is stored once.
        overhead: bytes of a checkpoint besides its tensors.
        rest: all else in the memory of a process: Python, torch, data, activations.
        weight_bytes: of one weight.
    """

    weights: float
    trained: float
    states: float = 1
    layer: float = 0.0
    draw: float = 0.0
    shared: float = 0.0
    overhead: float = 0.0
    rest: float = 0.0
    weight_bytes: float = 4

    @property
    def checkpoint(self) -> float:
        """Bytes of a checkpoint: all weights, and the states of the sampler."""
        return self.weights + self.states * self.trained + self.overhead


@dataclass(frozen=True)
class Step:
    """Seconds of a step: forward and backward pass, update, and what noise adds to the update."""

    batch: float
    update: float = 0.0
    noise: float = 0.0


@dataclass(frozen=True)
class Machine:
    """What was measured, or is assumed.

    Attributes:
        alone: a step where one process has the machine.
        shared: a step with one thread, as torchrun starts several processes; None: as `alone`.
        draw_seconds: to write one draw.
        checkpoint_seconds: to write one checkpoint.
        log_seconds: to write a row of the log.
        predict_seconds: to predict a batch with one draw, which is read for it.
        disk_bandwidth: bytes a second of the folder, whoever writes.
        bandwidth: bytes a second that a process sends while gradients are averaged.
        latency: seconds of a sum over processes, besides its bytes.
        crowding: how much longer a step takes in processes that have a core each than in one.
        lockstep: the same of processes that wait for the slowest of them in each step.
        cores: cores for all processes; None: enough.
    """

    alone: Step
    shared: Step | None = None
    draw_seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    log_seconds: float = 0.0
    predict_seconds: float = 0.0
    disk_bandwidth: float = math.inf
    bandwidth: float = math.inf
    latency: float = 0.0
    crowding: float = 1.0
    lockstep: float = 1.0
    cores: int | None = None


@dataclass(frozen=True)
class Layout:
    """Chains on processes: `at_once` chains of `replicas` processes, `rounds` times."""

    chains: int
    replicas: int
    at_once: int

    @property
    def processes(self) -> int:
        """Processes in all."""
        return self.at_once * self.replicas

    @property
    def rounds(self) -> int:
        """Chains that a process runs one after the other."""
        return self.chains // self.at_once


@dataclass(frozen=True)
class Work:
    """How long a chain is.

    Attributes:
        steps: of a chain.
        draws: of a chain.
        noisy: share of the steps whose temperature is above 0.
        checkpoint_every: steps between checkpoints; None: a hundredth of the run, as `Chain` does.
        batch_share: part of the measured batch that a process takes: 1 if each has its own.
    """

    steps: int
    draws: int
    noisy: float = 1.0
    checkpoint_every: int | None = None
    batch_share: float = 1.0

    @property
    def every(self) -> int:
        """Steps between checkpoints."""
        return self.checkpoint_every or max(1, self.steps // 100)

    @property
    def rows(self) -> int:
        """Rows of the log."""
        return self.steps // max(1, self.steps // 1000)

    @property
    def checkpoints(self) -> int:
        """Checkpoints of a chain: at the start, every so often, at the end, after rare draws."""
        rare = self.draws - 1 if self.draws and 100 * self.draws <= self.steps else 0
        return 1 + math.ceil(self.steps / self.every) + rare


@dataclass(frozen=True)
class Costs:
    """What a run costs.

    Attributes:
        seconds: of the whole run, by part.
        memory: bytes of a process at its peak, by part.
        disk: bytes, by part.
        wire: bytes that a process sends in a step.
        wire_total: bytes that all processes send in all steps.
        step_seconds: of one step, on average.
        predict_seconds: of a batch with all draws, by one process.
        resume_memory: bytes of a process while it goes on from a checkpoint.
    """

    seconds: Parts
    memory: Parts
    disk: Parts
    wire: float
    wire_total: float
    step_seconds: float
    predict_seconds: float
    resume_memory: float


def make_layout(
    processes: int | None = None, chains: int | None = None, replicas: int | None = None
) -> Layout:
    """Chains on processes, as `csgmcmc run` divides them; a `ValueError` if they do not divide.

    By default one process; with more, a chain of each; with `replicas`, as many for each chain.
    """
    for name, value in (("processes", processes), ("chains", chains), ("replicas", replicas)):
        if value is not None:
            check_count(name, value, at_least=1, below=MOST)
    if processes is None:
        processes = 1 if replicas is None else (chains or 1) * replicas
    if replicas is None:
        replicas = processes // chains if chains is not None and chains < processes else 1
    chains = processes // replicas if chains is None else chains
    at_once = processes // replicas
    if at_once == 0 or at_once * replicas != processes or chains % at_once:
        raise ValueError(
            f"chains={chains} with replicas={replicas} cannot be divided among processes="
            f"{processes}: give processes = chains x replicas, or a divisor of chains of these"
        )
    return Layout(chains, replicas, at_once)


def wire_bytes(sizes: Sizes, replicas: int, *, sharded: bool = False) -> float:
    """Bytes that each of `replicas` processes sends in a step."""
    share = (replicas - 1) / replicas
    return share * (2 * sizes.weights + sizes.trained if sharded else 2 * sizes.trained)


def memory_parts(sizes: Sizes, replicas: int, *, sharded: bool = False) -> Parts:
    """Bytes of a process at the peak of a step, by part."""
    held = replicas if sharded else 1
    parts = {
        "weights": sizes.weights / held,
        "gradients": sizes.trained / held,
        "states of the sampler": sizes.states * sizes.trained / held,
        # Before the update, weight decay is added to a copy of all gradients.
        "gradients of the prior": sizes.trained / held,
    }
    if sharded and replicas > 1:
        # FSDP2 gathers a layer while it computes with another.
        parts["gathered layers"] = 2 * min(sizes.layer, sizes.weights / 2)
    elif replicas > 1:
        parts["buckets of DDP"] = sizes.trained
    return {**parts, "all else": sizes.rest}


def step_parts(
    sizes: Sizes, machine: Machine, layout: Layout, work: Work, *, sharded: bool = False
) -> Parts:
    """Seconds of a step, by part."""
    replicas, processes = layout.replicas, layout.processes
    step = machine.alone if processes == 1 or machine.shared is None else machine.shared
    turns = _turns(machine, layout)
    slower = 1.0
    if processes > 1:
        slower = turns * (machine.lockstep if replicas > 1 else machine.crowding)
    held = replicas if sharded else 1
    messages = 3 * sizes.weights / max(sizes.layer, 1) if sharded else sizes.trained / BUCKET
    sent = wire_bytes(sizes, replicas, sharded=sharded)
    waiting = machine.latency * math.ceil(messages) if replicas > 1 else 0.0
    return {
        "forward and backward": slower * step.batch * work.batch_share,
        "update": slower * step.update / held,
        "noise": slower * work.noisy * step.noise / held,
        # The test of the bandwidth has a core for each process.
        "sums over processes": (waiting + sent / machine.bandwidth) * turns,
    }


def _turns(machine: Machine, layout: Layout) -> float:
    """Processes for each core, whose turns each of them waits for; at least 1."""
    return max(1.0, layout.processes / (machine.cores or layout.processes))


def cost_of(
    sizes: Sizes, machine: Machine, layout: Layout, work: Work, *, sharded: bool = False
) -> Costs:
    """What a run costs."""
    step = step_parts(sizes, machine, layout, work, sharded=sharded)
    steps, checkpoints = layout.rounds * work.steps, layout.rounds * work.checkpoints
    draws, turns = layout.chains * work.draws, _turns(machine, layout)
    saving = machine.checkpoint_seconds
    if layout.replicas > 1:
        saving += SUMS_TO_SAVE * machine.latency
    seconds = {name: steps * each for name, each in step.items()} | {
        "draws": turns * layout.rounds * work.draws * machine.draw_seconds,
        "checkpoints": turns * checkpoints * saving,
        "logs": turns * layout.rounds * work.rows * machine.log_seconds,
    }
    written = draws * sizes.draw + checkpoints * layout.at_once * sizes.checkpoint
    waiting = written / machine.disk_bandwidth - sum(seconds.values())
    # Several chains may write more than the disk takes; of one, it is in the times to write.
    seconds["waiting for the disk"] = max(0.0, waiting) if layout.at_once > 1 else 0.0
    wire = wire_bytes(sizes, layout.replicas, sharded=sharded)
    own = sizes.checkpoint / (layout.replicas if sharded else 1)
    return Costs(
        seconds=seconds,
        memory=memory_parts(sizes, layout.replicas, sharded=sharded),
        disk={
            "draws": draws * sizes.draw,
            "what all draws share": sizes.shared if draws else 0.0,
            "checkpoints": 2 * layout.chains * sizes.checkpoint,
            "logs": layout.chains * (LOG_ROW * work.rows + DRAW_ROW * work.draws),
        },
        wire=wire,
        wire_total=wire * layout.processes * steps,
        step_seconds=sum(step.values()),
        predict_seconds=draws * machine.predict_seconds,
        # The state itself and both checkpoints; shards are mapped, and of the newest only.
        resume_memory=(2 if sharded else 3) * own + sizes.rest,
    )
