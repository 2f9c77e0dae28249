"""csgmcmc beside its peers, in one run, as ratios.

    make bench

The peers run in an environment of their own, `.venv-peers`, and answer requests between ours.
Writes runs/bench/peers.json.
"""

import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from timing import Case, report
from torch.nn.functional import cross_entropy

from csgmcmc import SGHMC, SGLD, Constant, Cyclical, Keep
from csgmcmc.diagnostics import effective_sample_size
from paper.density import run_density
from paper.networks import mlp
from paper.targets import LogisticRegression, Mixture25

HERE = Path(__file__).parent
PYTHON = HERE.parent / ".venv-peers" / "bin" / "python"


class Peer:
    """A process that runs one peer when it is asked to."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [PYTHON, HERE / "peer_worker.py", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self()  # it has compiled

    def __call__(self) -> float:
        """Seconds a step, as the peer has measured them."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the peer has stopped")
        return float(answer)


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
    schedule = Cyclical(steps, cycles=3, exploration=0.0, keep=Keep(every=1))
    target = Mixture25()

    def work() -> None:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        points = 10 * torch.randn(chains, 2)
        sampler = SGLD([points], lr=0.05, num_data=1, seed=0)
        run_density(target, sampler, schedule, compile=compiled)
        torch.set_num_threads(before)

    return work


def compare_logistic(folder: Path, kind: str, lr: float, rounds: int = 15) -> dict[str, Any]:
    """Least effective sample size a second, of 64 chains that share batches of 32."""
    steps = 2000
    generator = np.random.default_rng(0)
    features = generator.normal(size=(1000, 25)).astype(np.float32)
    labels = (features @ generator.normal(size=25) + generator.logistic(size=1000) > 0).astype(
        np.float32
    )
    np.savez(folder / "data.npz", features=features, labels=labels, lr=lr)
    peer = Peer("blackjax-logistic", str(folder), kind)
    target = LogisticRegression(torch.as_tensor(features), torch.as_tensor(labels))
    draws = torch.empty(0)

    def ours() -> float:
        nonlocal draws
        options = {"num_data": 1000, "weight_decay": target.weight_decay, "seed": 0}
        points = torch.zeros(64, 25)
        sampler = (
            SGHMC([points], lr, momentum=0.9, **options)
            if kind == "sghmc"
            else SGLD([points], lr, **options)
        )
        began = time.perf_counter()
        draws = run_density(
            target, sampler, Constant(steps, keep=Keep(every=1)), batch_size=32, compile=True
        )
        return (time.perf_counter() - began) / steps

    ours()  # compiles
    times = [(ours(), peer()) for _ in range(rounds)]
    least = [_least_ess(path) for path in (draws.numpy(), np.load(folder / "draws.npy"))]
    ratios = np.array([(least[0] / own) / (least[1] / other) for own, other in times])
    resampled = generator.choice(ratios, (2000, rounds))
    low, high = np.percentile(np.median(resampled, axis=1), [2.5, 97.5])
    own, other = np.median(times, axis=0)
    return {
        "kind": kind,
        "microseconds a gradient": {
            "csgmcmc, compiled": 1e6 * own,
            "blackjax in a scan": 1e6 * other,
        },
        "least ESS": {"csgmcmc": least[0], "blackjax": least[1]},
        "ESS a second, ratio": float(np.median(ratios)),
        "interval": [float(low), float(high)],
    }


def _least_ess(path: np.ndarray) -> float:
    """Of the coordinates, over all chains; the first half of the run is burn-in."""
    later = path[len(path) // 2 :].swapaxes(0, 1)
    return float(effective_sample_size(later, kind="mean").min())


def write_versions() -> None:
    code = "import importlib.metadata as m, json; print(json.dumps({n: m.version(n) for n in "
    code += "('posteriors', 'blackjax', 'jax')}))"
    versions = subprocess.check_output([PYTHON, "-c", code], text=True)
    path = Path("runs/bench/peer-versions.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(versions)


def main() -> None:
    write_versions()
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
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        results = [
            compare_logistic(Path(folder), kind, lr)
            for kind, lr in (("sgld", 0.1), ("sghmc", 0.01))
        ]
    path = Path("runs/bench/peers-logistic.json")
    path.write_text(json.dumps(results, indent=2) + "\n")
    Console().print_json(data=results)


if __name__ == "__main__":
    main()
