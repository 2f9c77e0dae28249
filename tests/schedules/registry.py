"""Examples of every schedule for the conformance tests: an entry for each discovered class."""

from collections.abc import Sequence

from csgmcmc import Constant, Cyclical, Decreasing, Joined, Keep, Ramp, Schedule

REGISTRY: dict[str, Sequence[Schedule]] = {
    "Constant": [
        Constant(steps=10),
        Constant(steps=40, burn_in=9, draws=4),
        Constant(steps=40, keep=Keep(every=3)),
    ],
    "Cyclical": [
        Cyclical(steps=100, cycles=4, exploration=0.8, draws_per_cycle=3),
        Cyclical(steps=103, cycles=5, exploration=0.25, keep=Keep(every=2), burn_in=30),
        Cyclical(steps=60, cycles=2, exploration=0, keep=Keep(every=1)),
        Cyclical(steps=60, cycles=3, draws_per_cycle=1, exploration_temperature=10, anneal=True),
        Cyclical(steps=60, cycles=3, draws_per_cycle=2, weight_decay_scales=[9, 1, 0.5]),
        Cyclical(
            steps=61, cycles=3, keep=Keep(every=4), exploration=0.5, temperature_scales=[1, 0.1, 2]
        ),
        Cyclical(steps=61, cycles=3, draws_per_cycle=1, restart="fresh"),
        Cyclical(steps=80, cycles=5, draws_per_cycle=1, restart=0.4, restart_every=2),
        Cyclical(steps=60, cycles=2, draws_per_cycle=1, restart="fresh", restart_every=2),
    ],
    "Decreasing": [
        Decreasing(steps=50, gamma=0.55, keep=Keep(every=1)),
        Decreasing(steps=80, gamma=1.0, b=3, burn_in=30, draws=7, burn_in_temperature=0),
    ],
    "Joined": [
        Joined(
            [
                Ramp(30, start=1, end=0.01, shape="exponential"),
                Decreasing(40, gamma=0.5005, lr_scale=0.1, draws=20),
            ]
        ),
        Joined(
            [
                Constant(5),
                Cyclical(40, cycles=2, keep=Keep(every=1)),
                Cyclical(30, cycles=3, keep=Keep(every=2)),
            ]
        ),
        Joined([Ramp(5, start=0, end=1), Cyclical(40, cycles=4, draws_per_cycle=1, restart=0.5)]),
    ],
    "Ramp": [
        Ramp(steps=20, start=0, end=1),
        Ramp(steps=20, start=1, end=0, shape="cosine", temperature_scale=0.5),
        Ramp(steps=1, start=1, end=0.01, shape="exponential"),
    ],
}
