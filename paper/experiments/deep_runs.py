"""Chains of networks on MNIST and CIFAR, and what their draws predict.

The draws of a run are made once, in a folder of its name, and found there by every experiment that
needs them; a run that was stopped continues from its last checkpoint. So the chains of one table
are the chains of another, where they are the same.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from torch import Tensor

from csgmcmc.diagnostics import accuracy
from csgmcmc.draws import Draw, Draws, DrawStore, MemoryDraws
from csgmcmc.posterior import ClassPredictive, Posterior
from paper.data import Images, PlainBatches, Standard, TrainingBatches, cifar, mnist, not_mnist
from paper.experiments import methods
from paper.experiments.base import Record
from paper.experiments.deep_settings import Setting
from paper.experiments.methods import Network, Run, finite_nll, make_chain, rounded


@dataclass(frozen=True, eq=False)
class Source:
    """A data set, standardised by all of its training data, and its name.

    `later` are images after the training data, to choose by; `augment` moves and mirrors those
    that are trained on.
    """

    name: str
    train: Images
    later: Images
    test: Images
    classes: int
    standard: Standard
    augment: bool

    def without(self, held_out: int) -> Images:
        """The training data except the last `held_out`."""
        return self.train.part(0, len(self.train) - held_out)

    def validation(self, held_out: int) -> Images:
        """The last `held_out` of the training data, or what comes after them."""
        if not held_out:
            return self.later
        return self.train.part(len(self.train) - held_out, len(self.train))


def load(setting: Setting, folder: Path | None) -> Source:
    """The images of a setting; the files are read once, as one process does many jobs."""
    train, test, classes = _read(setting.source, folder)
    end = setting.train or len(train)
    images, later = train.part(0, end), train.part(end, end + setting.validation)
    tested = test.part(0, setting.test or len(test))
    standard = _standard(setting.source, folder, end)
    return Source(setting.source, images, later, tested, classes, standard, setting.augment)


def load_outside(source: Source, folder: Path | None, count: int | None) -> Images:
    """Images of classes that a network of `source` has never seen: the first `count` of them."""
    if source.name == "mnist":
        pixels = as_bytes(not_mnist(folder))
        images = Images(pixels, pixels.new_zeros(len(pixels)).long())
    else:
        other = {"cifar10": "cifar100", "cifar100": "cifar10"}[source.name]
        images = _read(other, folder)[1]
        images = Images(images.pixels, images.labels % source.classes)  # no label is used
    return images.part(0, count or len(images))


@cache
def _read(name: str, folder: Path | None) -> tuple[Images, Images, int]:
    """What to train on, what to test with, and the number of classes."""
    if name != "mnist":
        return cifar(name, folder)
    parts = (part.tensors for part in mnist(folder))
    train, test = (Images(as_bytes(pixels), labels) for pixels, labels in parts)
    return train, test, 10


@cache
def _standard(name: str, folder: Path | None, end: int) -> Standard:
    return Standard(_read(name, folder)[0].pixels[:end])


def as_bytes(pixels: Tensor) -> Tensor:
    """Pixels from 0 to 1 as whole numbers from 0 to 255."""
    return (255 * pixels).round().byte()


def folder_of(draws: Path, network: Network, source: Source, run: Run) -> Path:
    """Where the draws of a run are: named by what it is, and by all that decides them."""
    settings = {**asdict(network), **asdict(run), "data": source.name, "size": len(source.train)}
    settings["epochs"] = float(run.epochs)  # 3 and 3.0 are the same run
    settings["augment"] = source.augment
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
    return draws / source.name / f"{run.method}-seed{run.seed}-{digest}"


def sample(run: Run, network: Network, source: Source, draws: Path | None) -> Draws:
    """The draws of a run, from their folder as far as they are there; None writes no files."""
    train = source.without(run.held_out)
    batches = TrainingBatches(
        train, source.standard, network.batch, run.seed, augment=source.augment
    )
    store: Draws = MemoryDraws()
    if draws is not None:
        store = DrawStore(folder_of(draws, network, source, run), provenance=asdict(run))
        if len(store) == run.schedule(len(batches)).total_draws:  # the last is of the last step
            return store
    model = network.make(source.classes, run.seed)
    chain = make_chain(
        run, network, model, batches, len(train), store, generators=batches.generators
    )
    return chain.run(resume=draws is not None)


def posterior_of(network: Network, source: Source, draws: Sequence[Draw]) -> Posterior:
    """The average over draws, taken one after another: stacked convolutions are slower."""
    return Posterior(network.make(source.classes), draws, vectorize=False, progress=False)


def predict(
    network: Network, source: Source, draws: Sequence[Draw], images: Images
) -> ClassPredictive:
    """The prediction for `images`, with those of the single draws."""
    posterior = posterior_of(network, source, draws)
    return methods.predict(posterior, PlainBatches(images, source.standard), members=True)


def training_fit(network: Network, source: Source, draws: Sequence[Draw]) -> Record:
    """Error and NLL of each draw on the training data, as they are without augmentation."""
    predictive = predict(network, source, draws, source.train)
    members, labels = predictive.member_probs_numpy(), predictive.labels_numpy()
    return {
        "size": len(labels),
        "cycles": [draw.cycle for draw in draws],
        "errors": [rounded(1 - accuracy(probs, labels)) for probs in members],
        "nlls": [rounded(finite_nll(probs, labels)) for probs in members],
    }


def last_of_each_cycle(values: Sequence[float], cycles: Sequence[int]) -> list[float]:
    """One value for each cycle: that of its last draw."""
    return list(dict(zip(cycles, values, strict=True)).values())


def choose_by(run: Run, network: Network, source: Source, draws: Path | None) -> Record:
    """What a step size is chosen by: NLL on validation data, and the error on training data.

    The latter is that of the cycle that ends with the largest one.
    """
    found = sample(run, network, source, draws)
    fit = training_fit(network, source, found)
    predictive = predict(network, source, found, source.validation(run.held_out))
    return {
        "validation_nll": rounded(methods.nll_of(predictive)),
        "train_error": max(last_of_each_cycle(fit["errors"], fit["cycles"])),
    }
