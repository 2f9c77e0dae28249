"""Compare `paper.rivals.laplace` with laplace-torch, which has an environment of its own.

laplace-torch needs torchvision, which must be of the same build as torch, so it is no dependency:

    python -m venv OTHER
    OTHER/bin/pip install torch==2.13.0 laplace-torch==0.3  # and remove a torchvision that fails
    python benchmarks/laplace_peer.py OTHER/bin/python

Prints the largest relative difference of posterior precisions and of linearised predictions.
"""

import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn

SIZES, ROWS, WEIGHT_DECAY, SEED = (6, 8, 5, 4), 120, 0.01, 0
DRAWS = 100_000  # of the other's linearised prediction, which has no closed form
WORKER = "--worker"


def problem() -> tuple[nn.Sequential, torch.Tensor, torch.Tensor]:
    """The same network and data in both environments."""
    torch.manual_seed(SEED)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(SIZES):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    x = torch.randn(ROWS, SIZES[0])
    return nn.Sequential(*layers[:-1]), x, torch.randint(SIZES[-1], (ROWS,))


def ours() -> dict[str, torch.Tensor]:
    """Precisions, in the order of `model.parameters()`, and predictions."""
    # Inside of the functions: either environment lacks what the other one has.
    from paper.rivals import diagonal_laplace, linearised_probs  # noqa: PLC0415
    from paper.rivals.laplace import (  # noqa: PLC0415
        diagonal_curvature,
        last_layer_curvature,
        last_linear,
    )

    model, x, y = problem()
    prior = ROWS * WEIGHT_DECAY
    whole, _ = last_layer_curvature(model, last_linear(model)[1], [(x, y)])
    inputs, outputs = SIZES[-2:]
    # From (class, weight and bias of it) to all weights, then all biases.
    places = torch.arange(outputs * (inputs + 1)).reshape(outputs, inputs + 1)
    order = torch.cat([places[:, :-1].flatten(), places[:, -1]])
    diagonal, _ = diagonal_curvature(model, [(x, y)])
    draws = diagonal_laplace(model, [(x, y)], WEIGHT_DECAY, 4000, seed=0)
    return {
        "last layer": whole[order][:, order] + prior * torch.eye(len(whole)),
        "diagonal": torch.cat([own.flatten() for own in diagonal.values()]) + prior,
        "linearised": linearised_probs(model, draws, x[:10]),
    }


def theirs() -> dict[str, torch.Tensor]:
    """The same by laplace-torch."""
    import laplace  # noqa: PLC0415  # pyright: ignore[reportMissingImports]
    from laplace.curvature import (  # noqa: PLC0415  # pyright: ignore[reportMissingImports]
        BackPackGGN,
    )

    model, x, y = problem()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=ROWS)
    found: dict[str, Any] = {}
    for name, subset, structure in (
        ("last layer", "last_layer", "full"),
        ("diagonal", "all", "diag"),
    ):
        fitted = laplace.Laplace(
            model,
            "classification",
            subset_of_weights=subset,
            hessian_structure=structure,
            prior_precision=ROWS * WEIGHT_DECAY,
            backend=BackPackGGN,
        )
        fitted.fit(loader)
        found[name] = fitted.posterior_precision.detach()
        if structure == "diag":
            torch.manual_seed(1)
            samples = fitted.predictive_samples(x[:10], pred_type="glm", n_samples=DRAWS)
            found["linearised"] = samples.mean(0).detach()
    return found


def main(other: str) -> None:
    """Run the other in its environment, and print how much they differ."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "theirs.pt")
        subprocess.run([other, __file__, WORKER, str(path)], check=True)
        peer = torch.load(path)
    for name, own in ours().items():
        scale = peer[name].abs().max().double()
        apart = float((own.double() - peer[name].double()).abs().max() / scale)
        print(f"{name}: {apart:.1e} of the largest entry")


if __name__ == "__main__":
    if sys.argv[1] == WORKER:
        torch.save(theirs(), sys.argv[2])
    else:
        main(sys.argv[1])
