"""Runs whose faults are known, with the verdicts that an expert would give.

    python -m tests.checks.known_runs             # print the table
    python -m tests.checks.known_runs docs/known-runs.md

Classes are drawn from a network whose weights are drawn from the prior, so that an exact sample of
the posterior at temperature 1 is calibrated, whatever the kind of network.
"""

import contextlib
import functools
import math
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import SGHMC, SGLD, Chain, Constant, Cyclical, MemoryDraws, Posterior, Stepper
from csgmcmc.posterior import Gaussian

QUESTIONS = ("learned", "sampling", "mixing", "diverse", "calibrated", "better")
ROWS, HELD_OUT = 200, 400


@dataclass(frozen=True)
class Known:
    """A run and the answers that are right.

    `wanted` has, for each question that matters, the answers that an expert would accept; `cause`
    is a pattern that the first line with a "no", or the first advice, must match. `warning` is a
    pattern of a warning while it runs.
    """

    name: str
    make: Callable[[], tuple[Posterior, Any]]
    wanted: dict[str, str]
    cause: str = ""
    warning: str = ""
    kind: str = "mistake"


@dataclass(frozen=True)
class Problem:
    """Data and network of a run."""

    make: Callable[[], nn.Module]
    train: TensorDataset
    test: TensorDataset
    loss: Callable[..., Tensor] = cross_entropy
    likelihood: Any = "categorical"
    num_data: float = ROWS
    decay: float = 1 / ROWS  # prior precision 1
    options: dict[str, Any] = field(default_factory=dict)


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(1, 4, 3), nn.Linear(4 * 4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.first(inputs[:, None]).tanh().flatten(1))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "logistic regression": lambda: nn.Linear(6, 3),
    "perceptron, tanh": lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)),
    "perceptron, two layers": lambda: nn.Sequential(
        nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)
    ),
    "convolutions": Convolutions,
    "layer norm": lambda: nn.Sequential(
        nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3)
    ),
}


@functools.cache
def taught(name: str = "perceptron, tanh", kind: str = "classes") -> Problem:
    """Targets drawn from a network whose weights are drawn from the prior."""
    generator = torch.Generator().manual_seed(1)
    teacher = NETWORKS[name]()
    with torch.no_grad():
        for param in teacher.parameters():
            param.copy_(torch.randn(param.shape, generator=generator))
        inputs = torch.randn(ROWS + HELD_OUT, 6, generator=generator)
        outputs = teacher(inputs)
    loss: Any = cross_entropy
    likelihood: Any = "categorical"
    num_data = ROWS
    if kind == "classes":
        targets = torch.multinomial(outputs.softmax(1), 1, generator=generator)[:, 0]
    elif kind == "labels":
        targets = torch.bernoulli(outputs.sigmoid(), generator=generator)
        loss, likelihood, num_data = binary_cross_entropy_with_logits, "bernoulli", 3 * ROWS
    else:
        targets = outputs + 0.5 * torch.randn(outputs.shape, generator=generator)
        likelihood, num_data = Gaussian(0.25), 3 * ROWS
        loss = scaled_square
    return Problem(
        NETWORKS[name],
        TensorDataset(inputs[:ROWS], targets[:ROWS]),
        TensorDataset(inputs[ROWS:], targets[ROWS:]),
        loss,
        likelihood,
        num_data,
        1 / num_data,
    )


def scaled_square(outputs: Tensor, targets: Tensor) -> Tensor:
    """The negative log-likelihood of a variance of 0.25, up to a constant."""
    return mse_loss(outputs, targets) / (2 * 0.25)


@functools.cache
def digits(scale: float = 1 / 16) -> Problem:
    """600 digits, and a perceptron with 50 units."""
    images, labels = map(torch.as_tensor, load_digits(return_X_y=True))
    images = images.float() * scale
    return Problem(
        lambda: nn.Sequential(nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 10)),
        TensorDataset(images[:600], labels[:600]),
        TensorDataset(images[600:], labels[600:]),
        num_data=600,
        decay=1e-3,
    )


def sample(problem: Problem, **given: Any) -> tuple[Posterior, Any]:
    """Run a chain, or a loop with a `Stepper`, and return its posterior and its run."""
    options = {
        "lr": 0.1,
        "temperature": 1.0,
        "num_data": problem.num_data,
        "weight_decay": problem.decay,
        "momentum": 0.9,
        "schedule": Constant(600, burn_in=200, draws=40),
        "batch_size": 50,
        "shuffle": True,
        "loss": problem.loss,
        "model": problem.make,
        "train": problem.train,
        "clip": None,
        "zero": True,
        "double": False,
        "loop": False,
        **problem.options,
        **given,
    }
    torch.manual_seed(0)
    model = options["model"]()
    loader = DataLoader(
        options["train"],
        options["batch_size"],
        shuffle=options["shuffle"],
        generator=torch.Generator().manual_seed(0),
    )
    sampler = SGHMC(
        model.parameters(),
        options["lr"],
        num_data=options["num_data"],
        momentum=options["momentum"],
        weight_decay=options["weight_decay"],
        temperature=options["temperature"],
        seed=0,
    )
    schedule, loss, draws = options["schedule"], options["loss"], MemoryDraws()
    how: dict[str, Any] = {"likelihood": problem.likelihood, "progress": False}
    if not options["loop"]:
        clip = options["clip"]
        chain = Chain(model, loss, loader, sampler, schedule, draws, clip=clip, progress=False)
        chain.run()
        return Posterior(model, draws, run=chain, **how), {}
    stepper = Stepper(model, sampler, schedule, draws)
    for x, y in stepper.batches(loader):
        if options["zero"]:
            sampler.zero_grad()
        found = loss(model(x), y)
        found.backward()
        if options["double"]:
            sampler.step()
        stepper.step(found)
    run = {"run": stepper, "loss": loss, "data": loader}
    return Posterior(model, draws, **how), run


def exact(draws: int, heat: float = 1.0, num_data: float = ROWS) -> tuple[Posterior, Any]:
    """Exact draws of Bayesian linear regression, at a temperature relative to that asked for."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(ROWS + HELD_OUT, 20, generator=generator)
    truth = torch.randn(20, 1, generator=generator)
    targets = inputs @ truth + 0.5 * torch.randn(len(inputs), 1, generator=generator)
    x, y = inputs[:ROWS].double(), targets[:ROWS].double()
    precision = x.T @ x / 0.25 + torch.eye(20)
    mean = torch.linalg.solve(precision, x.T @ y / 0.25)
    factor = torch.linalg.cholesky(torch.linalg.inv(precision))
    model, kept = nn.Linear(20, 1, bias=False), MemoryDraws()
    for step in range(draws):
        noise = torch.randn(20, 1, generator=generator, dtype=torch.double)
        model.weight.data = (mean + math.sqrt(heat) * factor @ noise).T.float()
        kept.append(model, step=step, cycle=step * 4 // draws)
    sampler = SGLD(model.parameters(), 1e-4, num_data=num_data, weight_decay=1 / ROWS, seed=0)
    stepper = Stepper(model, sampler, Constant(max(draws, 20)))
    train = TensorDataset(inputs[:ROWS], targets[:ROWS])
    test = TensorDataset(inputs[ROWS:], targets[ROWS:])
    posterior = Posterior(model, kept, likelihood=Gaussian(0.25), progress=False)
    run = {"run": stepper, "loss": scaled_square, "data": DataLoader(train, 50, shuffle=True)}
    return posterior, {**run, "test": test}


# What is wanted of them

SAMPLE = {
    "learned": "yes",
    "sampling": "yes",
    "mixing": "yes unknown",
    "calibrated": "yes unknown",
    "better": "yes unknown",
}
NOTHING = {
    "learned": "no",
    **dict.fromkeys(("sampling", "mixing", "calibrated", "better"), "unknown"),
}
WRONG_N = {
    "sampling": "no",
    **dict.fromkeys(("learned", "mixing", "calibrated", "better"), "unknown"),
}
SNAPSHOTS = {
    "learned": "yes",
    "sampling": "not asked for",
    "mixing": "not asked for",
    "diverse": "yes",
    "calibrated": "yes",
    "better": "yes unknown",
}


def softmaxed() -> nn.Module:
    return nn.Sequential(digits().make(), nn.Softmax(1))


def smoothed(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs, targets, label_smoothing=0.2)


def summed(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs, targets, reduction="sum")


def with_layer(layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), layer, nn.Tanh(), nn.Linear(8, 3))


def with_nan() -> TensorDataset:
    inputs, targets = (each.clone() for each in taught().train.tensors)
    inputs[3, 2] = math.nan
    return TensorDataset(inputs, targets)


def in_order() -> TensorDataset:
    inputs, targets = digits().train.tensors
    order = targets.argsort()
    return TensorDataset(inputs[order], targets[order])


SHORT = Cyclical(240, 2, exploration=0.6, draws_per_cycle=3)
CYCLES = Cyclical(1000, 4, exploration=0.8, draws_per_cycle=3)


def digits_run(**options: Any) -> Callable[[], tuple[Posterior, Any]]:
    scale = options.pop("scale", 1 / 16)
    return lambda: sample(digits(scale), **{"schedule": SHORT, "temperature": 0.1, **options})


def taught_run(*which: str, **options: Any) -> Callable[[], tuple[Posterior, Any]]:
    return lambda: sample(taught(*which), **options)


def good(name: str, make: Callable[[], tuple[Posterior, Any]], **wanted: str) -> Known:
    return Known(name, make, {**SAMPLE, **wanted}, kind="right")


LONG = Constant(1000, burn_in=200, draws=40)
KNOWN = [
    # Right
    *(
        good(f"T = 1: {name}", taught_run(name, schedule=LONG), learned="yes unknown")
        for name in NETWORKS
    ),
    good("T = 1: perceptron, regression", taught_run("perceptron, tanh", "numbers", schedule=LONG)),
    good("T = 1: several labels", taught_run("perceptron, tanh", "labels", schedule=LONG)),
    good("T = 1: a loop with a Stepper", taught_run(loop=True, schedule=LONG)),
    good(
        "T = 1: four cycles",
        taught_run(schedule=Cyclical(3000, 4, exploration=0.2, draws_per_cycle=12)),
    ),
    good("T = 0.3", taught_run(temperature=0.3, schedule=LONG), calibrated="yes no unknown"),
    good("exact draws of linear regression", lambda: exact(40), mixing="yes unknown"),
    good("10,000 exact draws", lambda: exact(10_000), mixing="yes", calibrated="yes"),
    Known(
        "snapshots: T = 1/N, 4 cycles of 3 draws",
        digits_run(schedule=CYCLES, temperature=1 / 600, lr=0.5),
        SNAPSHOTS,
        kind="right",
        warning="",
    ),
    Known(
        "snapshots: T = 0",
        digits_run(schedule=CYCLES, temperature=0.0, lr=0.5),
        SNAPSHOTS,
        kind="right",
    ),
    # Nothing learned
    Known("inputs not scaled: x 1000", digits_run(scale=1000 / 16), NOTHING, "inputs|root mean"),
    Known("inputs not scaled: / 10,000", digits_run(scale=1e-4 / 16), NOTHING, "inputs|root mean"),
    Known("lr / 1000", digits_run(lr=1e-4), NOTHING, "lr too small"),
    Known("lr = 10", digits_run(lr=10.0), NOTHING, "lr", "lr|too high"),
    Known(
        "lr = 10 in a loop", digits_run(lr=10.0, loop=True), NOTHING, "lr|too high", "lr|too high"
    ),
    Known(
        "no zero_grad",
        digits_run(loop=True, zero=False),
        NOTHING,
        "zero_grad|accumulate",
        "zero_grad",
    ),
    Known(
        "sorted labels, no shuffle",
        digits_run(train=in_order(), shuffle=False),
        NOTHING,
        "shuffle",
        "shuffle",
    ),
    Known(
        "sorted labels, no shuffle, in a loop",
        digits_run(train=in_order(), shuffle=False, loop=True),
        NOTHING,
        "shuffle",
        "shuffle",
    ),
    # N and the loss
    Known("N / 2", taught_run(num_data=100), WRONG_N, "num_data=200", "num_data=200|"),
    Known("N x 2", taught_run(num_data=400), WRONG_N, "num_data=200", "num_data=200"),
    Known("N x 10", taught_run(num_data=2000), WRONG_N, "num_data=200", "num_data=200"),
    Known("N / 10", taught_run(num_data=20), WRONG_N, "num_data=200", "num_data=200"),
    Known("N = 1", taught_run(num_data=1, lr=0.01), WRONG_N, "num_data=200", "num_data=200"),
    Known(
        "N / 10 in a loop", taught_run(num_data=20, loop=True), WRONG_N, "num_data=200", "num_data"
    ),
    Known(
        "N of rows, loss a mean over labels",
        taught_run("perceptron, tanh", "labels", num_data=ROWS),
        WRONG_N,
        "num_data=600",
        "num_data=600",
    ),
    Known("a sum loss", taught_run(loss=summed, lr=0.002), WRONG_N, "sum", "sum"),
    Known(
        "softmax in the model",
        digits_run(model=softmaxed),
        {"sampling": "no", "calibrated": "unknown"},
        "softmax|probabilities",
        "softmax|probabilities",
    ),
    Known(
        "label smoothing",
        taught_run(loss=smoothed),
        {"sampling": "no"},
        "label smoothing|likelihood",
    ),
    # Temperature
    Known("lr / 100", taught_run(lr=0.001), {"sampling": "no unknown"}, "cold|spread|learned"),
    Known(
        "too short a sampling stage",
        taught_run(schedule=Cyclical(400, 4, exploration=0.9, draws_per_cycle=3)),
        {"learned": "yes", "sampling": "no", "mixing": "unknown no"},
        "cold",
    ),
    Known(
        "T = 10 asked for, 1 wanted",
        taught_run(temperature=10.0, lr=0.02),
        {"calibrated": "no unknown"},
    ),
    Known("draws 10 times too hot", lambda: exact(40, heat=10.0), {"sampling": "no"}, "hot"),
    Known("draws 10 times too cold", lambda: exact(40, heat=0.1), {"sampling": "no"}, "cold"),
    Known(
        "minibatches of one at T = 0.03",
        taught_run(batch_size=1, temperature=0.03, lr=0.05),
        {"sampling": "no"},
        "minibatch",
    ),
    Known(
        "a step besides the stepper's",
        taught_run(loop=True, double=True),
        {"sampling": "no unknown"},
        "step",
        "step",
    ),
    Known("clipping that acts", taught_run(clip=0.1), {"sampling": "no"}, "clip"),
    # Randomness in the network
    Known(
        "dropout on",
        taught_run(model=lambda: with_layer(nn.Dropout(0.3))),
        {"sampling": "no unknown"},
        "Dropout",
    ),
    Known(
        "batch norm in training mode",
        taught_run(model=lambda: with_layer(nn.BatchNorm1d(8))),
        {"sampling": "no unknown"},
        "BatchNorm",
    ),
    # Too little
    Known(
        "one draw",
        taught_run(schedule=Constant(300, draws=1)),
        {"sampling": "unknown", "mixing": "unknown", "better": "unknown"},
    ),
    Known(
        "two draws in all",
        taught_run(schedule=Cyclical(300, 2, exploration=0.5, draws_per_cycle=1)),
        {"sampling": "unknown no", "mixing": "unknown"},
    ),
    Known(
        "snapshots of one cycle",
        digits_run(schedule=Cyclical(300, 1, exploration=0.95, draws_per_cycle=3), temperature=0.0),
        {"sampling": "not asked for", "diverse": "no", "better": "no unknown"},
        "nearly the same",
    ),
    Known("NaN in the training data", taught_run(train=with_nan()), {}, warning="nan"),
]


@dataclass(frozen=True)
class Found:
    """What `check` and the run said."""

    answers: dict[str, str]
    words: str
    advice: list[str]
    warned: list[str]

    def first(self) -> str:
        """The first line with a no, and the first advice."""
        noes = re.findall(r"(?:no|unknown): .*", self.words)
        return " ".join([*noes[:1], *self.advice[:1]])


def try_out(known: Known) -> Found:
    """Make the run and check it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                posterior, run = known.make()
                test = run.pop("test", None) or held_out_of(known)
                found = posterior.check(DataLoader(test, 200), **run)
            except (RuntimeError, ValueError) as error:
                return Found({}, f"no: {error}", [], [str(each.message) for each in caught])
    finally:
        torch.set_num_threads(threads)
    answers = {name: answer_of(getattr(found, name, None)) for name in QUESTIONS}
    said = [str(each.message) for each in caught]
    return Found(answers, str(found).replace("\n            ", " "), found.advice, said)


def answer_of(verdict: Any) -> str:
    if verdict is None:
        return "-"
    with contextlib.suppress(AttributeError):
        return verdict.answer
    return {True: "yes", False: "no", None: "unknown"}[verdict.holds]  # version 0.2.0


def held_out_of(known: Known) -> TensorDataset:
    """The held-out data of a problem, from the closure of the run."""
    cells = [cell.cell_contents for cell in known.make.__closure__ or ()]
    which = next((cell for cell in cells if isinstance(cell, tuple)), None)
    if which is not None:
        return taught(*which).test
    return digits(next(cell for cell in cells if isinstance(cell, float))).test


def mistakes(known: Known, found: Found) -> list[str]:
    """What is not as an expert would have it."""
    wrong = [
        f"{name}: {found.answers.get(name)}, wanted {wanted}"
        for name, wanted in known.wanted.items()
        if found.answers.get(name) not in [wanted, *wanted.split()]
    ]
    if known.cause and not re.search(known.cause, found.first()):
        wrong.append(f"cause: {found.first()}")
    if known.warning and not any(re.search(known.warning, words) for words in found.warned):
        wrong.append(f"warned: {found.warned}")
    return wrong


def table() -> str:
    """The table of the docs."""
    lines = ["| run | " + " | ".join(QUESTIONS) + " |", "|---" * (1 + len(QUESTIONS)) + "|"]
    chosen = [each for each in sys.argv[1:] if not each.startswith("-") and "." not in each]
    for known in KNOWN:
        if chosen and not re.search(chosen[0], known.name):
            continue
        found = try_out(known)
        cells = [found.answers.get(name, "error") for name in QUESTIONS]
        lines.append(f"| {known.name} | {' | '.join(cells)} |")
        said = [f"{known.name}: {each}\n" for each in mistakes(known, found)]
        if "-v" in sys.argv:
            said.append(f"--- {known.name}\n{found.words}\n{found.warned}\n")
        sys.stderr.writelines(said)
        sys.stderr.flush()
    return "\n".join(lines)


if __name__ == "__main__":
    made = table()
    paths = [each for each in sys.argv[1:] if each.endswith(".md")]
    if paths:
        page = Path(paths[0])
        start, _, _ = page.read_text(encoding="utf-8").partition("| run |")
        page.write_text(f"{start}{made}\n", encoding="utf-8")
    sys.stdout.write(made)
