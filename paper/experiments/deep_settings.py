"""Settings of the experiments on networks: a data set, what is trained on it, and for how long.

- `PAPER`: ResNet-18 on all of CIFAR for 200 epochs.
- `LAPTOPS`: a small ResNet for 12 epochs. Its cycles of three epochs are too short to come near a
  mode, which the paper asks of a cycle: they show what the method does where it is not meant to be
  used.
- `MNIST` and `CONVERGED`: fewer images, so that a network fits them within a cycle, as the paper's
  networks do. Augmentation is off, except in `AUGMENTED`.
- `SMOKE`: seconds, for tests.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from paper.arguments import check_choice
from paper.experiments.methods import BY_NAME, Perceptron, ResidualNetwork, Run

SOURCES = ("mnist", "cifar10", "cifar100")
SHARED = {"Snapshot-SGD": "cSGLD", "Snapshot-SGDM": "cSGHMC", "SGLD": "SGD", "SGHMC": "cSGHMC"}
"""Methods, and those whose step size they share: as in the paper, but for SGHMC, which there has
SGD's; here it has that of the sampler with the same momentum."""


@dataclass(frozen=True)
class Setting:
    """A data set, what is trained on it, and for how long.

    Args:
        source: "mnist", "cifar10" or "cifar100".
        network: what is trained.
        epochs: of every method.
        label: name of the setting, where it is not that of the data.
        seeds: at most so many of the experiment's.
        cycles: M.
        exploration: beta.
        draws_per_cycle: of cSGLD and cSGHMC; Snapshot keeps one a cycle.
        draws: of SGLD and SGHMC.
        augment: move the images by up to 4 pixels, and mirror them.
        lrs: step sizes by method, where none are searched for.
        searched: step sizes that are tried; `searched_momentum` those of Snapshot-SGDM, SGHMC and
            cSGHMC, and `searched_sgdm` those of SGDM, where they differ.
        search_epochs: of the search, as one cycle; None is the run itself. A cycle tells nothing of
            how far the next one gets away from it, which is what their average lives on.
        shared_lr: whether the methods of `SHARED` take the step size of another.
        search_fit: training error that a step size of the search may leave: the paper's networks
            fit their training data, and one that does not may still have the lowest NLL.
        held_out: training data that the search is judged by.
        validation: images after the training data that the search, and the choice of a
            temperature, are judged by.
        gate: training error that a cycle should end below.
        ensembles: whether deep ensembles stand beside the methods of table 1.
        long_ensembles: seeds of the ensembles whose networks have the whole budget each.
        train: use the first of the training data only; `test` the same of the test data.
    """

    source: str
    network: Perceptron | ResidualNetwork
    epochs: int
    label: str = ""
    seeds: int = 3
    cycles: int = 4
    exploration: float = 0.8
    draws_per_cycle: int = 3
    draws: int = 20
    augment: bool = True
    lrs: Mapping[str, float] = field(default_factory=dict)
    searched: tuple[float, ...] = ()
    searched_momentum: tuple[float, ...] = ()
    searched_sgdm: tuple[float, ...] = ()
    search_epochs: int | None = 0
    shared_lr: bool = True
    search_fit: float = 1.0
    held_out: int = 0
    validation: int = 0
    gate: float = 0.005
    ensembles: bool = True
    long_ensembles: int = 3
    train: int | None = None
    test: int | None = None

    def __post_init__(self) -> None:
        check_choice("source", self.source, SOURCES)

    @property
    def name(self) -> str:
        """What tells the settings of an experiment apart."""
        return self.label or self.source

    def run(self, method: str, lr: float, seed: int, **changes: Any) -> Run:
        """A chain of a method with these settings, except for `changes`."""
        run = Run.of(
            method,
            lr,
            seed,
            epochs=self.epochs,
            exploration=self.exploration,
            cycles=self.cycles,
            draws_per_cycle=self.draws_per_cycle,
            draws=self.draws,
        )
        return replace(run, **changes)

    def searched_as(self, method: str) -> str:
        """The method whose search decides the step size of `method`."""
        return SHARED.get(method, method) if self.shared_lr else method

    def searches(self, method: str) -> Iterator[Run]:
        """One run for each step size that is tried; none where the method shares another's."""
        if self.searched_as(method) != method:
            return
        tried = self.searched
        if method in ("Snapshot-SGDM", "SGHMC", "cSGHMC") and self.searched_momentum:
            tried = self.searched_momentum
        if method == "SGDM":
            tried = self.searched_sgdm
        changes: dict[str, Any] = {"held_out": self.held_out}
        if self.search_epochs is not None:
            changes |= {"epochs": self.search_epochs, "cycles": 1}
        for lr in tried:
            yield self.run(method, lr, seed=0, **changes)


PAPER_LRS = {
    **dict.fromkeys(("Snapshot-SGD", "Snapshot-SGDM", "cSGLD", "cSGHMC"), 0.5),
    **dict.fromkeys(("SGD", "SGDM", "SGLD", "SGHMC"), 0.1),
}
RESNET18 = ResidualNetwork("resnet18", width=64, batch=64)


def _paper(source: str, exploration: float) -> Setting:
    return Setting(source, RESNET18, epochs=200, exploration=exploration, lrs=PAPER_LRS)


def _laptop(source: str, exploration: float, seeds: int) -> Setting:
    return Setting(
        source,
        ResidualNetwork("resnet8", width=8, batch=64),
        epochs=12,
        seeds=seeds,
        exploration=exploration,
        searched=(0.4, 0.8, 1.6, 3.2),
        searched_sgdm=(0.04, 0.08, 0.16, 0.32),
        search_epochs=3,
        shared_lr=False,
        held_out=2000,
    )


def _smoke(source: str, seeds: int) -> Setting:
    return Setting(
        source,
        ResidualNetwork("resnet8", width=8, batch=10),
        epochs=10,
        seeds=seeds,
        draws_per_cycle=2,
        draws=3,
        exploration=0.6,
        searched=(0.1, 0.3),
        searched_sgdm=(0.01, 0.03),
        search_epochs=3,
        shared_lr=False,
        held_out=10,
        train=60,
        test=50,
    )


PAPER = {"cifar10": _paper("cifar10", 0.8), "cifar100": _paper("cifar100", 0.94)}
LAPTOPS = {"cifar10": _laptop("cifar10", 0.8, 3), "cifar100": _laptop("cifar100", 0.94, 1)}
SMOKE = {"cifar10": _smoke("cifar10", 2), "cifar100": _smoke("cifar100", 1)}
SMOKE_CONVERGED = replace(
    SMOKE["cifar10"], augment=False, shared_lr=True, held_out=0, validation=10, seeds=1
)

MNIST = Setting(
    "mnist",
    Perceptron((784, 400, 400, 10), batch=64),
    epochs=80,
    seeds=10,
    augment=False,
    searched=(0.1, 0.2, 0.4, 0.8),
    searched_momentum=(0.05, 0.1, 0.2, 0.4),
    searched_sgdm=(0.05, 0.1, 0.2, 0.4),
    search_epochs=None,
    validation=5000,
    train=5000,
)
# At a temperature of 1 the step size that is best at 1/N diverges.
SMALL_STEPS = replace(MNIST, label="mnist, small steps", seeds=2, lrs={"cSGLD": 0.1}, searched=())
SMALL_STEPS_OF_ALL = replace(SMALL_STEPS, seeds=3, lrs={"SGD": 0.1, "SGLD": 0.1, "cSGLD": 0.1})
# The stem halves the image: a quarter of the work, so that eight methods of three seeds can be run.
HALVED = ResidualNetwork("resnet8", width=16, batch=64, stem_stride=2)
CONVERGED = {
    "cifar10": Setting(
        "cifar10",
        HALVED,
        epochs=80,
        augment=False,
        searched=(1.0, 2.0),
        searched_sgdm=(0.2, 0.4),
        search_epochs=None,
        search_fit=0.01,
        validation=5000,
        long_ensembles=1,
        train=2500,  # more would need longer cycles
    ),
}
# What the search on CIFAR-10 chooses; the paper has one step size for both data sets, too.
SEARCHED = {
    "lrs": {**dict.fromkeys(BY_NAME, 2.0), "SGDM": 0.4},
    "searched": (),
    "searched_sgdm": (),
    "ensembles": False,
}
CONVERGED["cifar100"] = replace(
    CONVERGED["cifar10"], source="cifar100", exploration=0.94, **SEARCHED
)
AUGMENTED = replace(CONVERGED["cifar10"], label="cifar10, augmented", augment=True, **SEARCHED)
SMOKE_MNIST = replace(
    MNIST,
    network=Perceptron((784, 20, 10), batch=10),
    epochs=8,
    seeds=2,
    draws_per_cycle=2,
    draws=3,
    exploration=0.5,
    searched=(0.1, 0.2),
    searched_momentum=(0.05,),
    searched_sgdm=(0.05,),
    validation=20,
    train=60,
    test=50,
)
