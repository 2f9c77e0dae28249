"""What the tests of shared predictions start in several processes."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import Posterior, init_distributed
from csgmcmc.errors import ProcessError
from csgmcmc.posterior import Bernoulli, Categorical, Gaussian, Likelihood
from csgmcmc.posterior import batches as posterior_batches
from csgmcmc.posterior.averages import Average
from tests.posterior.support import in_memory, mean_and_variance, mlp, random

ROWS = 23
WEIGHTS = [3, 0, 1, 0.5, 2, 0, 1]  # also draws of no weight


def regression() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))


def posterior(kind: str, draws: int = len(WEIGHTS)) -> Posterior:
    """In double precision, so that a wrong formula cannot be taken for rounding."""
    make = regression if kind in ("pair", "gaussian") else mlp
    likelihoods: dict[str, Any] = {
        "categorical": Categorical(),
        "bernoulli": Bernoulli(),
        "gaussian": Gaussian(variance=0.3),
        "pair": Gaussian(),
    }
    options: dict[str, Any] = {"forward": mean_and_variance} if kind == "pair" else {}
    model = make().double()
    found = in_memory(lambda: make().double(), draws)
    weights = WEIGHTS[:draws]
    return Posterior(model, found, weights, likelihood=likelihoods[kind], progress=False, **options)


def loader(rows: int = ROWS, batch_size: int = 4) -> DataLoader:
    data = TensorDataset(random(rows, 4), torch.arange(rows) % 3)
    return DataLoader(data, batch_size=batch_size)


def targets_for(kind: str) -> list[tuple[Tensor, Tensor]]:
    """Pairs whose targets the likelihood takes."""
    shapes = {"bernoulli": (3,), "gaussian": (2,), "pair": ()}
    if kind == "categorical":
        return list(loader())
    wanted = random(ROWS, *shapes[kind], seed=1)
    wanted = (wanted > 0).double() if kind == "bernoulli" else wanted
    return list(DataLoader(TensorDataset(random(ROWS, 4), wanted), batch_size=4))


def numbers_of(prediction: Any) -> dict[str, Any]:
    """All that a prediction holds, as tensors by name."""
    values = dict(vars(prediction))
    mixture = values.pop("mixture", None)
    if mixture is not None:
        values |= {"family": mixture.family, "weights": torch.from_numpy(mixture.weights)}
        values |= mixture.parameters
    return values


def predict(out: Path, share: Any, few: bool) -> None:
    """Every kind of prediction, in groups of some batches; `few` batches and draws otherwise."""
    here = init_distributed()
    posterior_batches.GROUP_BYTES = 300  # two batches and a part
    found: dict[str, Any] = {}
    draws, data = (2, loader(3)) if few else (len(WEIGHTS), loader())
    for kind in ("categorical", "bernoulli", "gaussian", "pair"):
        for members in (False, True):
            prediction = posterior(kind, draws).predict_loader(data, members=members, share=share)
            found[f"{kind}, members={members}"] = numbers_of(prediction)
    if not few:
        for kind in ("categorical", "bernoulli", "gaussian", "pair"):
            scores = posterior(kind).log_scores(targets_for(kind), share=share)
            found[f"{kind}, scores"] = {"scores": scores}
        weighed = posterior("categorical").weigh("stacking", data, by="draw", share=share)
        found["stacking"] = {"weights": torch.from_numpy(weighed.weights)}
    torch.save(found, out / f"{here.chain_id}.pt")


class OwnLikelihood(Likelihood):
    def log_prob(self, outputs: Any, targets: Tensor) -> Tensor:
        raise NotImplementedError

    def average(self) -> Average:
        return OwnAverage()


class OwnAverage(Average):
    """Of a user, who has not heard of processes."""

    def read(self, outputs: Any) -> tuple[Tensor, ...]:
        return (outputs,)

    def prediction(self, parts: tuple[Tensor, ...]) -> Tensor:
        return parts[0]

    def add_parts(self, weights: Tensor, *parts: Tensor) -> None:
        self.total = parts[0]

    def result(self) -> Any:
        raise NotImplementedError


def fail(out: Path) -> None:
    """What goes wrong in one process is told by all, and none waits for ever."""
    rank = init_distributed().chain_id
    ours = posterior("categorical")
    batches = list(loader())

    def broken() -> Iterator[Any]:
        yield from batches[:2]
        raise OSError("the disk is gone")

    class Once:
        def __iter__(self) -> Iterator[Any]:
            return broken() if rank == 1 else iter(batches)

    with pytest.raises((OSError, ProcessError), match="the disk is gone") as caught:
        ours.predict_loader(Once(), share="draws")
    assert isinstance(caught.value, OSError if rank == 1 else ProcessError)
    for share in ("draws", "data"):
        posterior_batches.GROUP_BYTES = 1
        with pytest.raises(ValueError, match="fewer batches in some processes"):
            ours.predict_loader(batches[: 3 - rank], share=share)
        with pytest.raises(ValueError, match="other batches in some processes"):
            ours.predict_loader([batches[rank], *batches], share=share)
        with pytest.raises(ValueError, match=r"draws, weights or the arguments .* differ"):
            posterior("categorical", 4 + rank).predict_loader(batches, share=share)
        with pytest.raises(ValueError, match=r"the arguments share and members differ"):
            ours.predict_loader(batches, share=share, members=rank == 1)
        own = Posterior(mlp().double(), ours.draws, likelihood=OwnLikelihood(), progress=False)
        with pytest.raises(ValueError, match="averages with OwnAverage, which has no state"):
            own.predict_loader(batches, share=share)
        assert ours.predict_loader(batches, share=share).entropy.shape == (ROWS,)  # it goes on
    with pytest.raises(ValueError, match=r"the arguments share and members differ"):
        ours.predict_loader(batches, share=("draws", "data")[rank])
    (out / f"{rank}.done").touch()


def killed(out: Path) -> None:
    """One process is gone before it has predicted anything."""
    rank = init_distributed().chain_id
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    posterior("categorical").predict_loader(loader(), share="draws")
