"""Draw the picture of docs/howto/noise-per-row.md: `python benchmarks/noise_per_row.py`."""

from pathlib import Path

import matplotlib as mpl
import numpy as np

from csgmcmc.estimators import BayesianMLPRegressor

mpl.use("Agg")
import matplotlib.pyplot as plt

PATH = Path(__file__).parents[1] / "docs" / "images" / "noise-per-row.png"


def main() -> None:
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (400, 1))
    y = np.sin(3 * x[:, 0]) + 0.2 * 4.0 ** x[:, 0] * random.normal(size=400)
    grid = np.linspace(-1, 1, 200)[:, None]
    figure, axes = plt.subplots(1, 2, figsize=(8, 3), sharey=True, layout="constrained")
    for axis, noise in zip(axes, ("per row", "constant"), strict=True):
        model = BayesianMLPRegressor(noise=noise, epochs=300, random_state=0).fit(x, y)
        low, high = model.predict_interval(grid, level=0.9)
        axis.fill_between(grid[:, 0], low, high, color="C0", alpha=0.25, linewidth=0)
        axis.plot(grid[:, 0], model.predict(grid), color="C0")
        axis.plot(x[:, 0], y, ".", color="0.3", markersize=2)
        axis.set_title(f'noise="{noise}"')
    figure.savefig(PATH, dpi=110)


if __name__ == "__main__":
    main()
