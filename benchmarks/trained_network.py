"""A posterior from a trained network at a tenth of its epochs, beside Laplace and SWAG.

    python benchmarks/trained_network.py

scikit-learn's digits: 500 for training, another choice of them for each seed; 300 to choose
hyperparameters on, 497 to judge. A perceptron with two layers of 50 is trained for 100 epochs (SGD
with momentum, one cosine), once with a weak weight decay and once with the one, of four, that is
best on the 300. Every method starts from these weights. It has at most 10 epochs, 40 draws and nine
settings, of which the one with the lowest mean NLL on the 300, over all seeds, is judged:

- ours: `csgmcmc.posterior_from_trained`, of all weights and of the last layer; temperatures and
  weight decays, with the lr that it finds. Other rows have its defaults and the weight decay of the
  training, or temperature 0, which is SGD that goes on with other weight decays.
- Laplace: the last layer with the whole matrix, and all weights with the diagonal and linearised
  predictions (`paper.rivals`); nine widths of the prior.
- SWAG: step sizes and weight decays; it collects weights twice an epoch.

Seconds are those of the processor, without predictions; the training itself has a row. Prints the
tables, and writes runs/bench/trained_network.json.
"""

import argparse
import copy
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import csgmcmc
from csgmcmc.diagnostics import accuracy, auroc, calibration_error, negative_log_likelihood
from csgmcmc.draws import Draws
from paper.data import load_digits, load_letters
from paper.rivals import SWAG, diagonal_laplace, last_layer_laplace, linearised_probs

ROWS, BATCH, WIDTH, EPOCHS, SHORT, DRAWS = 500, 50, 50, 100, 10, 40
LR, MOMENTUM = 0.1, 0.9
WEAK, DECAYS = 1e-4, (1e-4, 1e-3, 3e-3, 1e-2)
PRIORS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
NARROWER = (1e-3, 3e-3, 1e-2, 3e-2)  # weight decays: priors that the training did not have
OURS = (*product((0.03, 0.3), NARROWER), (1.0, 1e-2))  # temperature and weight decay
COLD = tuple(product((0.0,), NARROWER))
SWAGS = (*product((0.03, 0.1), NARROWER), (0.01, 1e-2))  # lr and weight decay
MEASURES = ("error %", "NLL", "calibration error", "AUROC, letters", "seconds")

digits, letters = cache(load_digits), cache(load_letters)

Predict = Callable[[Tensor], Tensor]
"""From images to averaged probabilities."""


@dataclass
class Trained:
    """A trained network, its data, and the weight decay and seed of its training."""

    model: nn.Module
    data: TensorDataset
    weight_decay: float
    seed: int
    seconds: float
    lrs: dict[Any, float]
    """Step sizes of our method by what is sampled, so that its range test runs once."""

    @property
    def loader(self) -> DataLoader[Any]:
        return DataLoader(self.data, batch_size=BATCH, shuffle=True)

    @property
    def whole(self) -> list[tuple[Tensor, Tensor]]:
        images, labels = self.data.tensors
        return [(images, labels)]


def train(seed: int, weight_decay: float) -> Trained:
    """One network; the seed decides its digits, initial weights and batches."""
    begin = time.process_time()
    known = digits().train
    chosen = torch.randperm(len(known), generator=torch.Generator().manual_seed(seed))[:ROWS]
    data = TensorDataset(*known[chosen.tolist()])
    torch.manual_seed(seed)
    model = nn.Sequential(
        *(nn.Flatten(), nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()),
        nn.Linear(WIDTH, 10),
    )
    found = Trained(model, data, weight_decay, seed, 0.0, {})
    optimise(found, csgmcmc.Cyclical(EPOCHS * ROWS // BATCH, 1, draws_per_cycle=1), LR)
    found.seconds = time.process_time() - begin
    return found


def optimise(trained: Trained, schedule: csgmcmc.Schedule, lr: float) -> Draws:
    """SGD with momentum, which changes the model; the weights that the schedule keeps."""
    options = {"momentum": MOMENTUM, "weight_decay": trained.weight_decay, "num_data": ROWS}
    sampler = csgmcmc.SGHMC(trained.model.parameters(), lr, temperature=0.0, **options)
    parts = (trained.model, cross_entropy, trained.loader, sampler, schedule)
    return csgmcmc.Chain(*parts, progress=False, watch=False).run()


def averaged(model: nn.Module, draws: Any) -> Predict:
    """The mean of the probabilities under the draws."""
    posterior = csgmcmc.Posterior(model, draws, progress=False)
    return lambda images: posterior.predict(images).probs


def network(trained: Trained, _: Any) -> Predict:
    """The trained network itself."""
    return lambda images: trained.model(images).softmax(-1)


def ours(trained: Trained, setting: tuple[float, float] | None, part: str = "all") -> Predict:
    """The library's helper; without a setting, with its defaults."""
    options: dict[str, Any] = {"weight_decay": trained.weight_decay}
    if setting is not None:
        temperature, weight_decay = setting
        own = {"lr": trained.lrs.get(part), "draws": DRAWS}
        options = {"temperature": temperature, "weight_decay": weight_decay, **own}
    options |= {"epochs": SHORT, "seed": trained.seed, "progress": False, "watch": False}
    options["held_out"] = None  # settings are chosen on validation data, for all methods alike
    model = copy.deepcopy(trained.model)
    if part == "last layer":
        model.requires_grad_(False)
        list(model.children())[-1].requires_grad_(True)
    posterior = csgmcmc.posterior_from_trained(model, cross_entropy, trained.loader, **options)
    assert posterior.run is not None
    trained.lrs.setdefault(part, posterior.run.sampler.param_groups[0]["lr"])
    return lambda images: posterior.predict(images).probs


def ours_last(trained: Trained, setting: tuple[float, float] | None) -> Predict:
    """The same for the last layer."""
    return ours(trained, setting, part="last layer")


def laplace_last(trained: Trained, prior: float) -> Predict:
    """Laplace of the last layer, with the whole matrix."""
    draws = last_layer_laplace(trained.model, trained.whole, prior, DRAWS, seed=trained.seed)
    return averaged(trained.model, draws)


def laplace_diagonal(trained: Trained, prior: float) -> Predict:
    """Laplace of all weights, with the diagonal and linearised predictions."""
    draws = diagonal_laplace(trained.model, trained.whole, prior, DRAWS, seed=trained.seed)
    return lambda images: linearised_probs(trained.model, draws, images)


def swag(trained: Trained, setting: tuple[float, float]) -> Predict:
    """SWAG: a Gaussian of the weights that SGD passes through at a constant lr."""
    lr, weight_decay = setting
    own = copy.deepcopy(trained)
    own.weight_decay = weight_decay
    torch.manual_seed(trained.seed)
    steps = SHORT * ROWS // BATCH
    path = optimise(own, csgmcmc.Constant(steps, keep=csgmcmc.Keep(every=ROWS // BATCH // 2)), lr)
    moments = SWAG(own.model)
    for draw in path:
        moments.collect(draw.tensors())
    return averaged(trained.model, moments.draws(DRAWS, seed=trained.seed))


METHODS: dict[str, tuple[Callable[..., Predict], tuple[Any, ...]]] = {
    "the network itself": (network, (None,)),
    "ours, all weights": (ours, OURS),
    "ours, last layer": (ours_last, OURS),
    "ours, all weights, defaults": (ours, (None,)),
    "ours, last layer, defaults": (ours_last, (None,)),
    "ours, all weights, temperature 0": (ours, COLD),
    "ours, last layer, temperature 0": (ours_last, COLD),
    "Laplace, last layer": (laplace_last, PRIORS),
    "Laplace, all weights, diagonal": (laplace_diagonal, PRIORS),
    "SWAG": (swag, SWAGS),
}


def validate(method: Callable[..., Predict], trained: Trained, setting: Any) -> float:
    """NLL on the validation digits; what diverged is as bad as can be."""
    images, labels = digits().validation.tensors
    try:
        probs = method(trained, setting)(images).detach().double().numpy()
    except csgmcmc.DivergedError:
        return np.inf
    return negative_log_likelihood(probs, labels.numpy()) if np.isfinite(probs).all() else np.inf


def judge(method: Callable[..., Predict], trained: Trained, setting: Any) -> list[float]:
    """The measures on test digits and letters."""
    trained.lrs.clear()  # the range test counts
    begin = time.process_time()
    predict = method(trained, setting)
    seconds = trained.seconds if method is network else time.process_time() - begin
    images, labels = digits().test.tensors
    probs, others = (predict(x).detach().double().numpy() for x in (images, letters()))
    entropies = [-(p * np.log(p.clip(1e-300))).sum(1) for p in (probs, others)]
    wanted = labels.numpy()
    return [
        100 * (1 - accuracy(probs, wanted)),
        negative_log_likelihood(probs, wanted),
        calibration_error(probs, wanted),
        float(auroc(*entropies)),
        seconds,
    ]


def compare(networks: list[Trained], say: Console) -> dict[str, dict[str, Any]]:
    """The setting and the measures (seeds, measures) of every method."""
    found: dict[str, dict[str, Any]] = {}
    for name, (method, settings) in METHODS.items():
        nlls = [np.mean([validate(method, one, each) for one in networks]) for each in settings]
        setting = settings[int(np.argmin(nlls))]
        measures = np.array([judge(method, one, setting) for one in networks])
        tried = [[each, float(nll)] for each, nll in zip(settings, nlls, strict=True)]
        found[name] = {"setting": setting, "measures": measures.tolist(), "validation": tried}
        say.print(row(name, measures, measures - np.array(next(iter(found.values()))["measures"])))
    return found


def row(name: str, measures: NDArray[Any], change: NDArray[Any]) -> str:
    """Means ± standard errors over seeds, and the NLL less that of the network, paired by seed."""
    places = (1, 3, 3, 3, 2)
    cells = [
        f"{value:.{p}f} ± {error:.{p}f}"
        for value, error, p in zip(measures.mean(0), _errors(measures), places, strict=True)
    ]
    cells[-1] = cells[-1].split(" ")[0]
    paired = f"{change.mean(0)[1]:+.3f} ± {_errors(change)[1]:.3f}"
    return f"| {' | '.join([name, *cells[:2], paired, *cells[2:]])} |"


def _errors(values: NDArray[Any]) -> NDArray[Any]:
    return values.std(0, ddof=1) / len(values) ** 0.5


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description="Laplace, SWAG and ours.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs/bench/trained_network.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    say = Console(width=200)
    networks = {decay: [train(seed, decay) for seed in range(options.seeds)] for decay in DECAYS}
    nlls = {decay: [validate(network, one, None) for one in networks[decay]] for decay in DECAYS}
    best = min(DECAYS, key=lambda decay: float(np.mean(nlls[decay])))
    found = {}
    for decay in dict.fromkeys((WEAK, best)):
        say.print(f"\ntrained with weight decay {decay:g}{' (best of four)' * (decay == best)}")
        names = ["", *MEASURES[:2], "NLL less the network's", *MEASURES[2:]]
        say.print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
        found[f"{decay:g}"] = compare(networks[decay], say)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"best_decay": best, "tables": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
