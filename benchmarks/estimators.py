"""A fit of our classifier beside scikit-learn's, with as many gradient steps, as ratios.

    make bench

Writes runs/bench/estimators.json. `OMP_NUM_THREADS=1 python benchmarks/estimators.py` times all on
one thread.
"""

import math
import time
import warnings
from typing import Any

import torch
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from timing import Case, report
from torch import nn
from torch.nn.functional import cross_entropy

from csgmcmc.estimators import BayesianMLPClassifier

ROWS, BATCH, HIDDEN = 500, 32, 50
BATCHES = math.ceil(ROWS / BATCH)
EPOCHS = 188
STEPS = EPOCHS * BATCHES

IMAGES, DIGITS = (column[:ROWS] for column in load_digits(return_X_y=True))
STANDARDISED = StandardScaler().fit_transform(IMAGES)


def ours(chains: int = 1) -> BayesianMLPClassifier:
    """As many networks: by default those of five chains and four priors take steps together."""
    return BayesianMLPClassifier(
        (HIDDEN,),
        "relu",
        epochs=EPOCHS,
        batch_size=BATCH,
        temperature=1.0,
        prior_scale=1.0,
        chains=chains,
        cycles=1,
        draws_per_cycle=40,
        random_state=0,
    ).fit(IMAGES, DIGITS)


def scikit_learn() -> Any:
    make: Any = MLPClassifier  # pyright infers wrong types from its defaults
    model = make(
        (HIDDEN,),
        batch_size=BATCH,
        max_iter=EPOCHS,
        tol=0.0,
        n_iter_no_change=EPOCHS + 1,  # it never stops early
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(STANDARDISED, DIGITS)


def bare_torch() -> int:
    """The least that PyTorch takes for such a network: no noise, no schedule, no draws, no loss."""
    inputs, labels = torch.from_numpy(STANDARDISED).float(), torch.from_numpy(DIGITS)
    model = nn.Sequential(nn.Linear(inputs.shape[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    steps = 0
    for _ in range(EPOCHS):
        for rows in torch.randperm(ROWS).tensor_split(BATCHES):
            optimizer.zero_grad()
            cross_entropy(model(inputs[rows]), labels[rows]).backward()
            optimizer.step()
            steps += 1
    return steps


def check_steps() -> None:
    """All take the same number of gradient steps, with batches and networks of the same size."""
    model, peer = ours(), scikit_learn()
    taken = {
        "BayesianMLPClassifier": model.draws_[-1].step + 1,  # its last draw ends its last cycle
        "MLPClassifier": peer._optimizer.t,
        "bare torch": bare_torch(),
    }
    if set(taken.values()) != {STEPS}:
        raise ValueError(f"the gradient steps differ: {taken}")
    if (model.batch_size, model.hidden_layer_sizes) != (peer.batch_size, peer.hidden_layer_sizes):
        raise ValueError("the batches or the hidden layers differ")


def main() -> None:
    check_steps()
    case = Case(
        f"{STEPS} gradient steps, {ROWS} rows",
        {
            "MLPClassifier, as many gradient steps": scikit_learn,
            "fit of BayesianMLPClassifier, one chain": ours,
            "bare torch loop, SGD with momentum": bare_torch,
        },
        repeats=1,
    )
    together = Case(
        "networks side by side",
        {"fit of one": ours, "fit of twenty": lambda: ours(20)},
        repeats=1,
        rounds=5,
        clock=time.process_time,
    )
    report("estimators", [case, together])


if __name__ == "__main__":
    main()
