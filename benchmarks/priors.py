"""What was tried so that the prior finds its own width: log scores at equal numbers of steps.

    python benchmarks/priors.py --data DATA

For each classification table of `benchmarks/tables.py`, three quarters of what is not set aside are
learned from and the fourth is scored; what is set aside is never looked at. All methods have the
same network, numbers of steps and of chains (but for the last), and step sizes from a range test.

- fixed: one isotropic prior for all cycles, on all rows.
- Gibbs: the precision of each tensor is drawn given its weights every ten steps at temperature 1,
  with the hyperprior Gamma(1, 0.1), as Chen et al. 2014 do.
- hierarchical: w = exp(s) * z with z and the log-scale s of each tensor sampled together
  (non-centred), s with the prior N(0, 1).
- ladder: a width for each cycle, weighed by stacking on rows that a chain has left out.

Prints a table, and writes it to runs/bench/priors.md.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn.functional import linear

from benchmarks.defaults import point_scores
from benchmarks.tables import split, tables
from csgmcmc.estimators import BayesianMLPClassifier
from csgmcmc.samplers import Sampler

GIBBS_EVERY = 10
SHAPE, RATE = 1.0, 0.1  # of the hyperprior of a precision


class GibbsClassifier(BayesianMLPClassifier):
    """Draws the precision of each tensor's prior given its weights."""

    def _groups(self, model: nn.Module) -> list[dict[str, Any]]:
        return [{"params": [param]} for param in model.parameters() if param.requires_grad]

    def _before_step(self, model: nn.Module, sampler: Sampler) -> Callable[[float], object]:
        del model
        random = np.random.default_rng(0)
        steps = 0

        def draw_precisions(_: float) -> None:
            nonlocal steps
            steps += 1
            if steps % GIBBS_EVERY or sampler.param_groups[0]["temperature"] == 0:
                return
            for group in sampler.param_groups:
                (param,) = group["params"]
                size, squares = param.numel(), param.detach().square().sum().item()
                precision = random.gamma(SHAPE + size / 2) / (RATE + squares / 2)
                group["initial_weight_decay"] = precision / group["num_data"]

        return draw_precisions


class Scaled(nn.Module):
    """A perceptron of one hidden layer in non-centred form: each tensor is exp(s) * z."""

    def __init__(self, features: int, outputs: int, width: int = 50) -> None:
        super().__init__()
        shapes = {"w1": (width, features), "b1": (width,), "w2": (outputs, width), "b2": (outputs,)}
        self.z = nn.ParameterDict({n: nn.Parameter(torch.randn(s)) for n, s in shapes.items()})
        fan_in = {"w1": features, "b1": features, "w2": width, "b2": width}
        self.log_scales = nn.ParameterDict(
            {n: nn.Parameter(torch.tensor(-0.5 * np.log(3.0 * each))) for n, each in fan_in.items()}
        )

    def forward(self, rows: Tensor) -> Tensor:
        w1, b1, w2, b2 = (
            self.log_scales[name].exp() * self.z[name] for name in ("w1", "b1", "w2", "b2")
        )
        return linear(linear(rows, w1, b1).relu(), w2, b2)


ONE: dict[str, Any] = {"chains": 1, "random_state": 0}
METHODS: dict[str, Callable[[], Any]] = {
    **{
        f"fixed, scale {scale:g}, T = {temperature:g}": partial(
            BayesianMLPClassifier, prior_scale=scale, temperature=temperature, **ONE
        )
        for scale, temperature in ((0.3, 1.0), (0.3, 0.3), (1.0, 0.3))
    },
    "Gibbs, T = 1": partial(GibbsClassifier, prior_scale=1.0, temperature=1.0, **ONE),
    "hierarchical, T = 1": partial(
        BayesianMLPClassifier, module=Scaled, prior_scale=1.0, temperature=1.0, **ONE
    ),
    "hierarchical, T = 0.3": partial(
        BayesianMLPClassifier, module=Scaled, prior_scale=1.0, temperature=0.3, **ONE
    ),
    "ladder, one chain": partial(BayesianMLPClassifier, **ONE),
    "ladder, five chains and folds: the default": partial(BayesianMLPClassifier, random_state=0),
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", type=Path, help="folder with the UCI tables")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    scores: dict[str, list[float]] = {name: [] for name in METHODS}
    seconds = dict.fromkeys(METHODS, 0.0)
    for table in tables(options.data):
        if not table.classes:
            continue
        rest, _ = split(table.rows, True, seed=1000)
        rows, held_out = split(rest, True, seed=0)
        for name, make in METHODS.items():
            start = time.process_time()
            scores[name].append(float(-point_scores(make(), rows, held_out).mean()))
            seconds[name] += time.process_time() - start
        found = [f"{values[-1]:.3f}" for values in scores.values()]
        Console().print(table.name, *found, highlight=False)
    default = np.array(list(scores.values())[-1])
    lines = ["| prior | mean log loss | the default is ahead on | seconds |", "|---|---|---|---|"]
    for name, values in scores.items():
        ahead = f"{(default < np.array(values)).sum()} of {len(values)}"
        cost = f"{seconds[name] / len(values):.1f}"
        lines.append(f"| {name} | {np.mean(values):.3f} | {ahead} | {cost} |")
    path = Path("runs/bench/priors.md")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    Console().print("\n".join(lines), highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
