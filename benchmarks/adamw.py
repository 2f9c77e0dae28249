"""AdamW, an ensemble of it, SGHMC and AdamSGHMC on small digits: a CNN and a transformer.

    python benchmarks/adamw.py

scikit-learn's digits: 500 for training, another choice of them for each seed; 300 to choose
settings and fit the temperature of the probabilities on, 697 to judge. The transformer gets the
eight rows of an image as tokens. Every method takes the same number of steps in all and has a grid
of eight settings, of which the one with the lowest mean NLL after temperature scaling on the 300 is
judged. Five seeds, which are trained side by side as a stack:

- AdamW: one network, `torch.optim.AdamW` with a cosine; step sizes and weight decays.
- ensemble of AdamW: four networks that share the steps; the same grid.
- SGHMC at temperature 0.1 and AdamSGHMC at 1: four cycles, three draws each; step sizes and weight
  decays.
- AdamSGHMC, fresh starts: four networks of one cycle each, three draws each; the same grid.

Prints the table, and a second of settings that were varied. Results are kept in
benchmarks/results/adamw.json as they are made, and a run that was stopped continues there.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import chain, islice, product, repeat
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.optimize import minimize_scalar
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import csgmcmc
from csgmcmc.diagnostics import negative_log_likelihood
from csgmcmc.samplers import adam

RESULTS = Path(__file__).parent / "results" / "adamw.json"
ROWS, BATCH, STEPS, CYCLES, DRAWS = 500, 50, 1000, 4, 3
SEEDS = list(range(5))

LRS = (5e-3, 1e-2, 2e-2, 4e-2)
ADAMW = tuple(product(LRS, (0.1, 1.0)))  # lr, weight decay
ADAM = tuple(product(LRS, (1e-4, 1e-3), (1.0,)))  # and temperature
GRIDS = {
    "AdamW": ADAMW,
    "ensemble of AdamW": ADAMW,
    "SGHMC": tuple(product((0.05, 0.1, 0.2, 0.4), (1e-3, 3e-3), (0.1,))),
    "AdamSGHMC": ADAM,
    "AdamSGHMC, fresh starts": ADAM,
}

VARIED = (  # without decay; other temperatures, and other bounds of the noise than the default's
    ("ensemble of AdamW", (4e-2, 0.0)),
    *(("AdamSGHMC", (2e-2, 1e-4, temperature)) for temperature in (0.0, 0.1, 1.0)),
    *(("AdamSGHMC", (2e-2, 1e-4, 1.0, noise)) for noise in (0.3, 3.0, 10.0)),
)


class Attention(nn.Module):
    """Self-attention with two heads, of operations that vmap has rules for."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        heads = self.project(tokens).unflatten(-1, (3, 2, -1)).movedim(-4, -2)
        query, key, value = heads.unbind(-4)
        weights = (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1)
        return self.out((weights @ value).movedim(-3, -2).flatten(-2))


class Transformer(nn.Module):
    """Two layers over the rows of an image."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.position = nn.Parameter(0.02 * torch.randn(8, width))
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), layer)
            for _ in range(2)
            for layer in (
                Attention(width),
                nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)),
            )
        )
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.embed(images[:, 0]) + self.position
        for layer in self.layers:
            tokens = tokens + layer(tokens)
        return self.head(tokens.mean(-2))


def cnn() -> nn.Module:
    """Two convolutions and a linear layer."""
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(256, 10)),
    )


NETWORKS = {"CNN": cnn, "transformer": Transformer}


@cache
def digits() -> tuple[Tensor, Tensor]:
    """All images and labels, in a fixed random order."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    scaled = torch.tensor(images[order], dtype=torch.float32).view(-1, 1, 8, 8) / 16
    return scaled, torch.tensor(labels[order])


class Batches:
    """Batches of all chains of a stack, one after another: each chain has digits of its own.

    Those of the chains are given by `seeds`; chains with the same seed have the same digits, in
    another order.
    """

    def __init__(self, seeds: list[int]) -> None:
        self._chosen = [
            torch.randperm(800, generator=torch.Generator().manual_seed(seed))[:ROWS]
            for seed in seeds
        ]
        self._random = torch.Generator().manual_seed(0)

    def __len__(self) -> int:
        return ROWS // BATCH

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        images, labels = digits()
        orders = [one[torch.randperm(ROWS, generator=self._random)] for one in self._chosen]
        for batch in torch.stack(orders).split(BATCH, dim=1):
            yield images[batch.flatten()], labels[batch.flatten()]


def held_out() -> tuple[Tensor, Tensor]:
    """300 rows to choose on, then 697 to judge."""
    images, labels = digits()
    return images[800:], labels[800:]


def loss(model: Callable[[Tensor], Tensor], batch: tuple[Tensor, Tensor]) -> Tensor:
    return cross_entropy(model(batch[0]), batch[1])


def adamw(network: str, seeds: list[int], steps: int, lr: float, decay: float) -> Tensor:
    """Probabilities of a network for each of `seeds`: AdamW moves each weight by itself."""
    model = csgmcmc.stack(NETWORKS[network], len(seeds), separate_batches=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr, weight_decay=decay)
    decrease = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    batches = chain.from_iterable(repeat(Batches(seeds)))
    for batch in islice(batches, steps):
        optimizer.zero_grad()
        model.per_chain(loss, batch).sum().backward()
        optimizer.step()
        decrease.step()
    with torch.no_grad():
        return model(held_out()[0]).softmax(-1)


def sampled(
    kind: Any,
    network: str,
    starts: int,
    lr: float,
    decay: float,
    temperature: float,
    noise: float = 1.0,
) -> Tensor:
    """Averaged probabilities of the draws of four cycles, of one network or of fresh `starts`.

    `noise` is the bound of the noise, relative to the default.
    """
    seeds, cycles = SEEDS * starts, CYCLES // starts
    model = csgmcmc.stack(NETWORKS[network], len(seeds), separate_batches=True)
    options = {"num_data": ROWS, "weight_decay": decay, "temperature": temperature, "seed": 0}
    sampler = kind(model.parameters(), lr, **options)
    schedule = csgmcmc.Cyclical(STEPS // starts, cycles, exploration=0.7, draws_per_cycle=DRAWS)
    parts = (model, cross_entropy, Batches(seeds), sampler, schedule)
    with patch.object(adam, "NOISE", noise):
        draws = csgmcmc.Chain(*parts, progress=False, watch=False).run()
    found = []
    for chain_id in range(len(seeds)):
        posterior = csgmcmc.Posterior(NETWORKS[network](), draws.of_chain(chain_id), progress=False)
        found.append(torch.as_tensor(posterior.predict(held_out()[0]).probs))
    return torch.stack(found).unflatten(0, (starts, len(SEEDS))).mean(0)


def probabilities(network: str, method: str, setting: Any) -> Tensor:
    """Of shape (seeds, rows, classes)."""
    torch.manual_seed(0)
    if method == "AdamW":
        return adamw(network, SEEDS, STEPS, *setting)
    if method == "ensemble of AdamW":
        members = adamw(network, SEEDS * CYCLES, STEPS // CYCLES, *setting)
        return members.unflatten(0, (CYCLES, len(SEEDS))).mean(0)
    name, fresh, _ = method.partition(", fresh starts")
    return sampled(getattr(csgmcmc, name), network, CYCLES if fresh else 1, *setting)


def scores(probs: Tensor) -> dict[str, float]:
    """Of the 697; settings are chosen by that of the 300."""
    labels = held_out()[1].numpy()
    found = probs.double().clamp_min(1e-30).numpy()
    (ours, own), (theirs, judged) = ((found[part], labels[part]) for part in parts())

    def scaled(log_temperature: float, probs: NDArray[Any]) -> NDArray[Any]:
        powers = probs ** np.exp(-log_temperature)
        return powers / powers.sum(-1, keepdims=True)

    def loss(log_temperature: float) -> float:
        return negative_log_likelihood(scaled(log_temperature, ours), own)

    fitted: Any = minimize_scalar(loss, bounds=(-3, 3), method="bounded")
    return {
        "chosen by": float(fitted.fun),
        "error %": 100 * float((theirs.argmax(-1) != judged).mean()),
        "NLL": negative_log_likelihood(theirs, judged),
        "scaled NLL": negative_log_likelihood(scaled(fitted.x, theirs), judged),
    }


def parts() -> tuple[slice, slice]:
    return slice(300), slice(300, None)


class Results(dict[str, Any]):
    """Scores of all runs by name, a list over the seeds for each, kept in a file."""

    def __init__(self, path: Path) -> None:
        super().__init__(json.loads(path.read_text()) if path.exists() else {})
        self._path = path

    def of(self, network: str, method: str, setting: tuple[float, ...]) -> Any:
        name = f"{network}, {method}, {', '.join(map('{:g}'.format, setting))}"
        if name not in self:
            try:
                found = [scores(probs) for probs in probabilities(network, method, setting)]
                self[name] = {each: [one[each] for one in found] for each in found[0]}
            except csgmcmc.DivergedError:
                self[name] = None
            if self._path.exists():  # what another process has added
                self.update(json.loads(self._path.read_text()))
            self._path.write_text(json.dumps(self, indent=1) + "\n")
        return self[name]


def rows(results: Results, networks: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """The table."""
    for network, (method, grid) in product(networks, GRIDS.items()):
        best, judged = chosen(results, network, method, grid)
        _, reference = chosen(results, network, "AdamW", ADAMW)
        cells = [_mean(judged["error %"], 2), _mean(judged["NLL"], 4)]
        # The same digits, first weights and order of batches: seeds are pairs.
        own, theirs = (np.array(each["scaled NLL"]) for each in (judged, reference))
        cells += [_mean(own, 4), "" if method == "AdamW" else _mean(own - theirs, 4)]
        yield network, method, ", ".join(f"{each:g}" for each in best), *cells


def varied_rows(results: Results, networks: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """The second table."""
    for network, (method, setting) in product(networks, VARIED):
        found = results.of(network, method, setting)
        means = [f"{np.mean(found[name]):.3f}" for name in ("chosen by", "scaled NLL")]
        yield network, method, ", ".join(f"{each:g}" for each in setting), *means


def chosen(
    results: Results, network: str, method: str, grid: tuple[tuple[float, ...], ...]
) -> tuple[tuple[float, ...], dict[str, list[float]]]:
    """The setting with the lowest NLL on the 300, and its scores."""
    found = {setting: results.of(network, method, setting) for setting in grid}
    finite = {setting: each for setting, each in found.items() if each is not None}
    return min(finite.items(), key=lambda each: float(np.mean(each[1]["chosen by"])))


def _mean(values: Any, places: int) -> str:
    array = np.asarray(values)
    error = array.std(ddof=1) / len(array) ** 0.5
    return f"{array.mean():.{places}f} ± {error:.{places}f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=list(NETWORKS), help="one of them alone")
    only = parser.parse_args().network
    torch.set_num_threads(1)
    networks, results = [only] if only else list(NETWORKS), Results(RESULTS)
    names = ("network", "method", "setting", "error, %", "NLL", "scaled", "less AdamW's")
    table, varied = Table(*names), Table(*names[:3], "scaled, on the 300", "on the 697")
    for row in rows(results, networks):
        table.add_row(*row)
    for row in varied_rows(results, networks):
        varied.add_row(*row)
    Console(width=120).print(table, varied)


if __name__ == "__main__":
    main()
