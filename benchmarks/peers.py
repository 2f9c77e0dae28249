"""csgmcmc beside its peers, in one run, as ratios.

    make bench

The peers run in an environment of their own, `.venv-peers`, and answer requests between ours.
Writes runs/bench/peers.json.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path

import torch
from timing import Case, report
from torch.nn.functional import cross_entropy

from csgmcmc import SGHMC, SGLD, Cyclical
from csgmcmc.chain import run_density
from csgmcmc.models import mlp
from csgmcmc.targets import Mixture25

HERE = Path(__file__).parent
PYTHON = HERE.parent / ".venv-peers" / "bin" / "python"


class Peer:
    """A process that runs one peer when it is asked to."""

    def __init__(self, name: str) -> None:
        self._process = subprocess.Popen(
            [PYTHON, HERE / "peer_worker.py", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self()  # it has compiled

    def __call__(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None  # noqa: PT018
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        if not self._process.stdout.readline():
            raise RuntimeError("the peer has stopped")


def training_steps(optimizer_of: Callable[..., torch.optim.Optimizer]) -> Callable[[], None]:
    """20 times forward, backward and step of an MLP 784-400-400-10 on a batch of 100."""
    model = mlp(784, 400, 400, 10)
    optimizer = optimizer_of(model.parameters())
    inputs, labels = torch.randn(100, 784), torch.randint(10, (100,))

    def work() -> None:
        for _ in range(20):
            optimizer.zero_grad()
            cross_entropy(model(inputs), labels).backward()
            optimizer.step()

    return work


def mixture(chains: int, steps: int, *, threads: int, compiled: bool) -> Callable[[], None]:
    """SGLD on 25 Gaussians, keeping every point; noise at every step, as the peer has it."""
    schedule = Cyclical(steps, cycles=3, exploration=0.0, every=1)
    target = Mixture25()

    def work() -> None:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        points = 10 * torch.randn(chains, 2)
        sampler = SGLD([points], lr=0.09, num_data=1, seed=0)
        run_density(target, sampler, schedule, compile=compiled)
        torch.set_num_threads(before)

    return work


def main() -> None:
    cases = [
        Case(
            "20 steps of SGHMC at T > 0, MLP 784-400-400-10, batch 100",
            {
                "posteriors": Peer("posteriors-sghmc"),
                "csgmcmc": training_steps(
                    lambda params: SGHMC(params, lr=1e-4, num_data=60_000, seed=0)
                ),
                "torch SGD, momentum 0.9": training_steps(
                    lambda params: torch.optim.SGD(params, lr=1e-4, momentum=0.9)
                ),
            },
            repeats=3,
        ),
        Case(
            "5000 steps of SGLD on 25 Gaussians, 40 chains",
            {
                "blackjax in a scan": Peer("blackjax-mixture-40"),
                "csgmcmc, compiled": mixture(40, 5000, threads=1, compiled=True),
                "csgmcmc": mixture(40, 5000, threads=1, compiled=False),
            },
            repeats=1,
        ),
        Case(
            "300 steps of SGLD on 25 Gaussians, 4096 chains",
            {
                "blackjax in a scan": Peer("blackjax-mixture-4096"),
                "csgmcmc, compiled": mixture(4096, 300, threads=2, compiled=True),
                "csgmcmc": mixture(4096, 300, threads=2, compiled=False),
            },
            repeats=1,
        ),
    ]
    report("peers", cases)


if __name__ == "__main__":
    main()
