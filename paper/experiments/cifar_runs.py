"""Chains of residual networks on CIFAR.

The draws of a run are made once, in a folder of its name, and found there by every experiment that
needs them; a run that was stopped continues from its last checkpoint. So the chains of one table
are the chains of another, where they are the same. Images are moved by up to 4 pixels and mirrored,
and standardised by the training data.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from csgmcmc.draws import Draw, Draws, DrawStore, MemoryDraws
from csgmcmc.posterior import ClassPredictive, Posterior
from paper.data import Images, PlainBatches, Standard, TrainingBatches, cifar
from paper.experiments import methods
from paper.experiments.methods import Network, Run, make_chain


@dataclass(frozen=True, eq=False)
class Source:
    """A data set, standardised by all of its training data, and its name."""

    name: str
    train: Images
    test: Images
    classes: int
    standard: Standard

    def without(self, held_out: int) -> Images:
        """The training data except the last `held_out`."""
        return self.train.part(0, len(self.train) - held_out)

    def validation(self, held_out: int) -> Images:
        """The last `held_out` of the training data."""
        return self.train.part(len(self.train) - held_out, len(self.train))


@cache
def load(name: str, folder: Path | None, train: int | None, test: int | None) -> Source:
    """The first images of the data set `name`; cached, as one process does many jobs."""
    data = cifar(name, folder)
    images = data.train.part(0, train or len(data.train))
    tested = data.test.part(0, test or len(data.test))
    return Source(name, images, tested, data.classes, Standard(images.pixels))


def folder_of(draws: Path, network: Network, source: Source, run: Run) -> Path:
    """Where the draws of a run are: named by what it is, and by all that decides them."""
    settings = {**asdict(network), **asdict(run), "data": source.name, "size": len(source.train)}
    settings["epochs"] = float(run.epochs)  # 3 and 3.0 are the same run
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
    return draws / source.name / f"{run.method}-seed{run.seed}-{digest}"


def sample(run: Run, network: Network, source: Source, draws: Path | None) -> Draws:
    """The draws of a run, from their folder as far as they are there; None writes no files."""
    train = source.without(run.held_out)
    batches = TrainingBatches(train, source.standard, network.batch, run.seed)
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


def validation_nll(run: Run, network: Network, source: Source) -> float:
    """NLL of the averaged prediction on what the run has held out."""
    draws = sample(run, network, source, None)
    return methods.nll_of(predict(network, source, draws, source.validation(run.held_out)))
