"""What a run will cost, before it begins: time, memory, disk, bytes on the wire, and failures."""

from csgmcmc.planning.advice import advise
from csgmcmc.planning.costs import (
    Costs,
    Layout,
    Machine,
    Sizes,
    Step,
    Work,
    cost_of,
    make_layout,
    wire_bytes,
)
from csgmcmc.planning.failures import (
    best_interval,
    simulate_share,
    useful_share,
    young_interval,
)
from csgmcmc.planning.measure import Disk, measure_disk, measure_task, measure_wire

__all__ = [
    "Costs",
    "Disk",
    "Layout",
    "Machine",
    "Sizes",
    "Step",
    "Work",
    "advise",
    "best_interval",
    "cost_of",
    "make_layout",
    "measure_disk",
    "measure_task",
    "measure_wire",
    "simulate_share",
    "useful_share",
    "wire_bytes",
    "young_interval",
]
