"""What a trained network gains on held-out data, and on others, over the network scaled.

    python benchmarks/trained_held_out.py [--networks 10]
    python benchmarks/trained_held_out.py figure

scikit-learn's digits: 500 for training, 600 held out, 697 to judge. Perceptrons with two layers of
50, trained for 100 epochs, half of them with a weight decay of 0.003 and half without one. From
each, `csgmcmc.posterior_from_trained` takes 10 epochs at a constant step size, or 40 in four cycles
at temperature 0.03 or 0; its other arguments have their defaults. A result is a line of
benchmarks/results/trained_held_out.jsonl; those that are there are not computed again. The figure
is docs/images/trained-network.png.
"""

import argparse
import json
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, nll_loss
from torch.utils.data import DataLoader, TensorDataset

import csgmcmc
from benchmarks.trained_network import digits
from csgmcmc.errors import SamplingWarning
from csgmcmc.trained import MIN_GAIN, HeldOut

RESULTS = Path("benchmarks/results/trained_held_out.jsonl")
FIGURE = Path("docs/images/trained-network.png")
TRAIN, HELD_OUT = slice(0, 500), slice(500, 1100)
DECAYS = (0.0, 3e-3)
SETTINGS: dict[str, dict[str, Any]] = {
    "constant": {"epochs": 10},
    "cycles": {"epochs": 40, "cycles": 4},
    "cycles, T = 0": {"epochs": 40, "cycles": 4, "temperature": 0.0},
}


def data() -> tuple[Tensor, Tensor]:
    """All digits in random order; as stored they are sorted by writer."""
    parts = [part.tensors for part in (digits().train, digits().validation, digits().test)]
    images, labels = (torch.cat(each) for each in zip(*parts, strict=True))
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    return images.flatten(1)[order], labels[order]


def train(loader: DataLoader[Any], weight_decay: float, seed: int) -> nn.Module:
    """With SGD at a constant lr."""
    torch.manual_seed(seed)
    layers = nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 10)
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9, weight_decay=weight_decay)
    for _ in range(100):
        for inputs, labels in loader:
            optimizer.zero_grad()
            cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    return model


def measure(seed: int, weight_decay: float, setting: str) -> dict[str, Any]:
    """NLLs of network and average, raw and scaled, on held-out data and on the judging ones."""
    images, labels = data()
    loader = DataLoader(TensorDataset(images[TRAIN], labels[TRAIN]), batch_size=50, shuffle=True)
    held_out = [(images[HELD_OUT], labels[HELD_OUT])]
    others = images[HELD_OUT.stop :], labels[HELD_OUT.stop :]
    model = train(loader, weight_decay, seed)
    quiet: dict[str, Any] = {"progress": False, "watch": False, "seed": seed}
    prior = {"weight_decay": weight_decay or 1e-4}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SamplingWarning)
        posterior = csgmcmc.posterior_from_trained(
            *(model, cross_entropy, loader),
            held_out=held_out,
            **SETTINGS[setting],
            **prior,
            **quiet,
        )
    found: dict[str, Any] = {"kept": any("no gain" in str(one.message) for one in caught)}
    found["error"] = float(
        (posterior.predict(others[0]).probs.argmax(1) != others[1]).float().mean()
    )
    assert posterior.run is not None
    plain = csgmcmc.Posterior(model, posterior.draws, progress=False)
    outputs, groups = HeldOut(plain, held_out), plain.cycles
    network, average = outputs.fit((groups > 0) * -1), outputs.fit(groups)
    gains = average.scores - network.scores
    found["gain"], found["gain_error"] = float(gains.mean()), float(gains.std() / len(gains) ** 0.5)
    for name, fit in (("network", network), ("average", average)):
        found[f"held_out_{name}"] = fit.nll
        scaled = plain.likelihood.scaled(fit.temperature or 1.0)
        for suffix, likelihood in (("", plain.likelihood), ("_scaled", scaled)):
            options = {"likelihood": likelihood, "progress": False}
            one = csgmcmc.Posterior(model, plain.draws, fit.weights, **options)
            found[f"{name}{suffix}"] = nll_loss(one.predict(others[0]).log_probs, others[1]).item()
    found["served"] = nll_loss(posterior.predict(others[0]).log_probs, others[1]).item()
    return {"seed": seed, "weight_decay": weight_decay, "setting": setting, **found}


def results() -> list[dict[str, Any]]:
    """All that is stored."""
    if not RESULTS.exists():
        return []
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


def rows() -> list[list[str]]:
    """Rows of the table: means over networks, by weight decay and setting."""
    table = []
    for weight_decay, setting in product(DECAYS, SETTINGS):
        wanted = {"weight_decay": weight_decay, "setting": setting}
        own = [one for one in results() if wanted.items() <= one.items()]
        if own:
            names = ("network", "network_scaled", "average", "average_scaled", "served")
            nlls = [f"{sum(one[name] for one in own) / len(own):.3f}" for name in names]
            kept = f"{sum(one['kept'] for one in own)} of {len(own)}"
            table.append([f"{weight_decay:g}", setting, *nlls, kept])
    return table


def figure() -> None:
    """The gain on held-out data, in standard errors, against that on the judging ones."""
    import matplotlib as mpl  # noqa: PLC0415  (an extra)

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    _, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    for setting, marker in zip(SETTINGS, "os^", strict=True):
        own = [one for one in results() if one["setting"] == setting]
        x = [one["gain"] / max(one["gain_error"], 1e-9) if one["gain_error"] else 0 for one in own]
        y = [one["network_scaled"] - one["average_scaled"] for one in own]
        axes.plot(x, y, marker, label=setting, alpha=0.8)
    axes.axhline(0, color="0.6", lw=0.8)
    axes.axvline(MIN_GAIN, color="0.6", lw=0.8, ls="--", label="left of it, the network is kept")
    axes.set_xlabel("gain on held-out digits, in standard errors")
    axes.set_ylabel("gain in NLL on other digits")
    axes.legend(frameon=False)
    plt.savefig(FIGURE, dpi=120)


def main() -> None:
    """Compute what is missing, and print the table; or draw the figure."""
    parser = argparse.ArgumentParser(description="A trained network, scaled, and an average.")
    parser.add_argument("command", nargs="?", choices=("run", "figure"), default="run")
    parser.add_argument("--networks", type=int, default=10)
    options = parser.parse_args()
    if options.command == "figure":
        figure()
        return
    torch.set_num_threads(1)
    known = {(one["seed"], one["weight_decay"], one["setting"]) for one in results()}
    for seed, setting in product(range(options.networks), SETTINGS):
        key = (seed, DECAYS[seed % 2], setting)
        if key not in known:
            with RESULTS.open("a") as file:
                file.write(json.dumps(measure(*key)) + "\n")
    names = ["weight decay", "", "network", "scaled", "average", "scaled", "served", "network kept"]
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    for row in rows():
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
