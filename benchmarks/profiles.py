"""Where the time goes in what is slower than it should be.

    make bench

Parts are timed by themselves, in turn with the whole. Writes runs/bench/profiles.json, and the
lists of docs/performance.md are made from it.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from predictions import SMALL, make_store
from rich.console import Console
from timing import median_time
from torch.nn.functional import cross_entropy

from csgmcmc import SGHMC, SGLD, Cyclical, Keep, Posterior
from csgmcmc.draws import DrawStore
from csgmcmc.draws.manifest import Manifest
from csgmcmc.files import file_sizes
from csgmcmc.stacked import evaluate_perceptron
from paper.density import run_density
from paper.networks import mlp
from paper.targets import Mixture25

Parts = dict[str, Callable[[], object]]


def step_of_mlp() -> Parts:
    """Training MLP 784-400-400-10, batch 100."""
    model = mlp(784, 400, 400, 10)
    inputs, labels = torch.randn(100, 784), torch.randint(10, (100,))
    hot = SGHMC(model.parameters(), lr=1e-4, num_data=60_000, seed=0)
    cold = SGHMC(model.parameters(), lr=1e-4, num_data=60_000, temperature=0.0, seed=0)
    plain = SGHMC(model.parameters(), lr=1e-4, num_data=60_000, seed=0, fused=False)
    params = list(model.parameters())
    numbers = torch.empty(sum(param.numel() for param in params))

    def backward() -> None:
        hot.zero_grad()
        cross_entropy(model(inputs), labels).backward()

    def whole() -> None:
        backward()
        hot.step()

    return {
        "forward, backward and step of SGHMC at T > 0": whole,
        "forward and backward": backward,
        "step at T = 0": cold.step,
        "step at T > 0": hot.step,
        "step at T > 0 with fused=False": plain.step,
        "the noise by itself": lambda: hot.noise.like(params),
        "as many numbers from torch's normal_": numbers.normal_,
    }


def prediction_of_one() -> Parts:
    """MLP 64-64-10, 50 draws, batch 1."""
    with tempfile.TemporaryDirectory() as folder:
        draws = list(make_store(Path(folder), SMALL, 50))
        tensors = [draw.tensors() for draw in draws]
        posterior = Posterior(mlp(*SMALL), draws)
        inputs = torch.randn(1, SMALL[0])
        posterior.predict(inputs)  # it holds the draws from now on
    weights = {name: torch.stack([one[name] for one in tensors]) for name in tensors[0]}
    model, shares, numbers = mlp(*SMALL), np.full(50, 1 / 50), list(range(50))

    @torch.inference_mode()
    def forwards() -> torch.Tensor:
        return evaluate_perceptron(model, weights, inputs)

    outputs = forwards()

    @torch.inference_mode()
    def averaging() -> None:
        average = posterior.likelihood.average(shares)
        average.add(numbers, outputs)
        average.result()

    return {
        "posterior.predict": lambda: posterior.predict(inputs),
        "all networks, in two products of stacked matrices": forwards,
        "probabilities, entropies and spread": averaging,
    }


def mixture_of_40() -> Parts:
    """5000 steps of 40 chains on 25 Gaussians, one thread."""
    schedule, target = Cyclical(5000, cycles=3, exploration=0.0, keep=Keep(every=1)), Mixture25()
    points = torch.randn(40, 2)
    noise = SGLD([points], lr=0.05, num_data=1, seed=0).noise
    products = torch.randn(40, 25), torch.randn(25, 2), torch.empty(40, 2)

    def whole() -> None:
        sampler = SGLD([points.clone()], lr=0.05, num_data=1, seed=0)
        run_density(target, sampler, schedule, compile=True)

    def all_products() -> None:
        for _ in range(schedule.steps):
            torch.mm(*products[:2], out=products[2])

    return {
        "5000 steps": whole,
        "the schedule's table": schedule.table,
        "noise": lambda: noise.ahead(points, 5000),
        "5000 calls of a product of 40x25 and 25x2": all_products,
    }


def opening(folder: Path) -> Parts:
    """A store of 1000 draws of 0.1 MB."""
    store = DrawStore(folder)
    for step in range(1000):
        tensors = {"w": torch.full((25_000,), float(step))}
        store.append(tensors, step=step)
    store.close()
    manifest = next((folder / "chains").glob("*.manifest"))
    return {
        "DrawStore(path)": lambda: DrawStore(folder),
        "lines of the manifest: CRC-32 and JSON": lambda: Manifest(manifest).read(),
        "sizes of the files": lambda: file_sizes(folder / "draws"),
    }


def main() -> None:
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for make in (step_of_mlp, prediction_of_one, lambda: opening(Path(folder))):
            _measure(make(), results)
    torch.set_num_threads(1)
    _measure(mixture_of_40(), results)
    path = Path("runs/bench/profiles.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=2) + "\n")
    Console().print_json(data=results)


def _measure(parts: Parts, results: dict[str, dict[str, float]]) -> None:
    """Median microseconds of each part over rounds in which they take turns."""
    rounds = [{name: median_time(part, 3) for name, part in parts.items()} for _ in range(16)][1:]
    found = {name: 1e6 * sorted(one[name] for one in rounds)[len(rounds) // 2] for name in parts}
    results[next(iter(parts))] = found


if __name__ == "__main__":
    main()
