"""Loaders of all kinds, and what is refused in a sentence."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from csgmcmc import SGLD, Chain, Constant, Keep, MemoryDraws, Posterior, Stepper

INPUTS = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
LABELS = (INPUTS @ torch.randn(4, 3, generator=torch.Generator().manual_seed(1))).argmax(1)
PAIRS = [(INPUTS[:25], LABELS[:25]), (INPUTS[25:], LABELS[25:])]
NAMED = [{"image": inputs, "label": labels, "id": 7} for inputs, labels in PAIRS]


class Named(nn.Module):
    """Takes a batch that is a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, batch):
        return self.layer(batch["image"])


def split(batch: Any) -> Any:
    return batch, batch["label"]


def run_of_dictionaries() -> Chain:
    torch.manual_seed(0)
    model = Named()
    sampler = SGLD(model.parameters(), lr=0.05, num_data=40, weight_decay=0.01, seed=0)

    def loss(model, batch):
        return cross_entropy(model(batch), batch["label"])

    schedule = Constant(40, burn_in=20, keep=Keep(every=5))
    chain = Chain(model, loss, NAMED, sampler, schedule, progress=False, watch=False)
    chain.run()
    return chain


def test_batches_that_are_dictionaries_are_split():
    chain = run_of_dictionaries()
    named = Posterior(chain.model, chain.draws, split=split)
    by_hand = Posterior(chain.model, chain.draws, forward=lambda model, x: model({"image": x}))
    predicted, expected = named.predict_loader(NAMED), by_hand.predict_loader(PAIRS)
    assert torch.equal(predicted.entropy, expected.entropy)
    assert predicted.targets is not None
    assert torch.equal(predicted.targets, LABELS)
    assert torch.equal(named.log_scores(NAMED), by_hand.log_scores(PAIRS))
    weighed = named.weigh("stacking", NAMED)
    assert (weighed.weights == by_hand.weigh("stacking", PAIRS).weights).all()
    assert weighed.with_draws(chain.draws[:2]).split is split


def test_check_compares_n_with_the_likelihood_of_batches_that_are_dictionaries():
    chain = run_of_dictionaries()
    run: Any = {"run": chain, "data": NAMED}
    found = Posterior(chain.model, chain.draws, split=split).check(NAMED, **run)
    assert found.numbers["num_data_expected"] == pytest.approx(40, rel=0.05)
    unknown = Posterior(chain.model, chain.draws).check([(NAMED[0], LABELS[:25])], **run)
    assert "num_data_expected" not in unknown.numbers


def posterior_of_linear(**options) -> Posterior:
    draws = MemoryDraws()
    draws.append(nn.Linear(4, 3), step=0)
    draws.append(nn.Linear(4, 3), step=1)
    return Posterior(nn.Linear(4, 3), draws, **options)


def test_split_must_return_a_pair():
    for wrong in (lambda batch: batch["image"], lambda _: 3):
        with pytest.raises(ValueError, match="split must return inputs and targets, got"):
            posterior_of_linear(split=wrong).predict_loader(NAMED)


def test_single_batch_instead_of_a_loader_is_rejected():
    posterior = posterior_of_linear()
    calls: list[Any] = [posterior.check, posterior.log_scores]
    for call in calls:
        with pytest.raises(ValueError, match="loader must"):
            call((INPUTS, LABELS))
        with pytest.raises(ValueError, match="targets must"):
            call([(INPUTS, LABELS.float())])


def test_dataset_instead_of_a_loader_is_rejected():
    data: Any = TensorDataset(INPUTS, LABELS)
    posterior, model = posterior_of_linear(), nn.Linear(4, 3)
    sampler = SGLD(model.parameters(), lr=0.05, num_data=40)
    stepper = Stepper(model, sampler, Constant(3))
    calls: list[Any] = [
        lambda: Chain(model, cross_entropy, data, sampler, Constant(3)),
        lambda: next(stepper.batches(data)),
        lambda: posterior.check(data),
        lambda: posterior.weigh("stacking", data),
        lambda: posterior.predict_loader(data),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"(data|loader) is a TensorDataset"):
            call()


def test_iterable_dataset_of_batches_is_accepted():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(PAIRS)

    found = posterior_of_linear().predict_loader(Stream())
    assert len(found.entropy) == 40
    assert len(posterior_of_linear().predict_loader(DataLoader(Stream(), None)).entropy) == 40
