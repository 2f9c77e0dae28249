"""The trial that splits a budget: what it takes, what it compares, and what it suggests."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, gaussian_nll_loss
from torch.utils.data import DataLoader, TensorDataset

from benchmarks import choose_split as split
from benchmarks.choose_split import choose_split
from csgmcmc import SGHMC, Cyclical, MemoryDraws, Posterior
from csgmcmc.posterior import Gaussian

SCHEDULE = Cyclical(80, cycles=4, exploration=0.5, draws_per_cycle=2, burn_in=3)
ROWS, BATCH = 300, 30


def problem(noise: float = 0.0) -> tuple[TensorDataset, list[Any]]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(2 * ROWS, 5, generator=generator)
    classes = (inputs[:, 0] > 0).long()
    wrong = torch.rand(2 * ROWS, generator=generator) < noise
    classes = torch.where(wrong, 1 - classes, classes)
    held_out = [(inputs[ROWS:], classes[ROWS:])]
    return TensorDataset(inputs[:ROWS], classes[:ROWS]), held_out


def make_model(outputs: int = 2) -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 50), nn.ReLU(), nn.Linear(50, outputs))


def suggest(
    schedule: Cyclical = SCHEDULE, lr: float = 0.1, noise: float = 0.0, seen: Any = None
) -> split.SuggestedSplit:
    data, held_out = problem(noise)

    def make_loader(share: float) -> DataLoader:
        part = TensorDataset(*data[: round(share * ROWS)])
        found = DataLoader(part, batch_size=round(share * BATCH), shuffle=True)
        if seen is not None:
            seen["batches"] = found
        return found

    def make_sampler(params: Any, num_data: float) -> SGHMC:
        if seen is not None:
            seen["num_data"] = num_data
        options: dict[str, Any] = {"num_data": num_data, "temperature": 1 / num_data, "seed": 0}
        return SGHMC(params, lr, momentum=0.9, **options)

    parts = (make_model, cross_entropy, make_loader, held_out, make_sampler)
    return choose_split(*parts, schedule)


def test_the_trial_takes_a_tenth_of_the_examples_and_leaves_generators_alone(monkeypatch):
    chains: list[Any] = []

    class Recorded(split.Chain):
        def __init__(self, *parts, **options):
            super().__init__(*parts, **options)
            chains.append(self)

    monkeypatch.setattr(split, "Chain", Recorded)
    before, seen = torch.get_rng_state(), {}
    found = suggest(seen=seen)
    assert torch.equal(torch.get_rng_state(), before)
    (chain,) = chains
    examples = chain.stepper.taken * seen["batches"].batch_size
    assert examples == SCHEDULE.steps * BATCH / 10
    assert seen["num_data"] == ROWS // 10
    assert chain.schedule.cycle_length == SCHEDULE.cycle_length
    restarts = [step for step in range(80) if chain.schedule(step).restart < 1]
    assert restarts == [40]
    assert [draw.cycle for draw in chain.draws] == [0, 0, 1, 1, 2, 2, 3, 3]
    again = suggest()
    assert (again.continued, again.restarted) == (found.continued, found.restarted)


def test_networks_that_one_cycle_does_not_train_continue():
    found = suggest(lr=0.003)
    assert found.continued < found.restarted
    assert found.schedule == SCHEDULE
    assert "networks x cycles 1 x 4" in str(found)


def test_networks_whose_second_cycle_learns_nothing_new_restart():
    """Each cycle fits the 30 points of the trial: what differs is where the networks began."""
    long = Cyclical(1200, cycles=4, exploration=0.8, draws_per_cycle=1)
    found = suggest(long, lr=0.02)
    assert found.restarted < found.continued
    assert found.schedule.restart == "fresh"
    assert (found.schedule.steps, found.schedule.keep) == (long.steps, long.keep)


@pytest.mark.parametrize(
    ("gain", "cycles", "networks"),
    [(0.1, 4, 4), (0.01, 4, 2), (-0.01, 4, 1), (-0.1, 4, 1), (0.01, 5, 2), (0.01, 2, 2)],
)
def test_the_rule(gain, cycles, networks, monkeypatch):
    """400 validation points whose difference has a standard error of 0.01."""
    spread = np.tile([-0.2, 0.2], 200) * np.sqrt(399 / 400)
    found = by_rule(
        monkeypatch, cycles, [(0 * spread - 0.1, True), (0 * spread + 0.1, True)], gain + spread
    )
    assert found.error == pytest.approx(0.01)
    steps = found.schedule.steps
    assert sum(found.schedule(step).restart == 0 for step in range(steps)) + 1 == networks
    assert f"networks x cycles {networks} x {-(-cycles // networks)}" in str(found)


def by_rule(monkeypatch, cycles: int, continued: list[Any], restarted: Any) -> Any:
    scores = iter([*continued, (restarted, True)])
    monkeypatch.setattr(split, "_scores", lambda *_: next(scores))
    return suggest(Cyclical(20 * cycles, cycles, exploration=0.5, draws_per_cycle=1))


def test_a_trial_that_learns_nothing_suggests_nothing(monkeypatch):
    nothing, more = np.zeros(50), np.ones(50)
    found = by_rule(monkeypatch, 4, [(nothing, True), (nothing, False)], more)
    assert not found.schedule.restarts


def test_a_trial_with_a_tiny_lr_learns_nothing():
    found = suggest(lr=1e-6)
    assert found.schedule == SCHEDULE


def test_scores_are_after_temperature_scaling():
    """Logits that are ten times too large change nothing."""

    def nll(factor: float) -> tuple[float, bool]:
        model, kept = nn.Linear(5, 2), MemoryDraws()
        nn.init.zeros_(model.weight)
        with torch.no_grad():
            model.weight[1, 0] = factor
            model.bias.zero_()
        kept.append(model, step=0)
        scores, is_learned = split._scores(Posterior(model, kept), problem(0.1)[1])
        return float(scores.mean()), is_learned

    assert nll(1.0)[0] == pytest.approx(nll(10.0)[0], abs=1e-3)
    assert nll(1.0)[1]


def test_predicted_numbers_are_compared_as_they_are():
    inputs = torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
    targets = inputs[:, :1].sin()

    def loss(outputs: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return gaussian_nll_loss(outputs, wanted, torch.full_like(outputs, 0.1), full=True)

    found = choose_split(
        lambda: make_model(1),
        loss,
        lambda share: DataLoader(
            TensorDataset(inputs[: round(100 * share)], targets[: round(100 * share)]), batch_size=4
        ),
        [(inputs[100:], targets[100:])],
        lambda params, num_data: SGHMC(params, 0.01, num_data=num_data, momentum=0.9, seed=0),
        SCHEDULE,
        posterior_options={"likelihood": Gaussian(variance=0.1)},
    )
    assert np.isfinite([found.continued, found.restarted, found.error]).all()


@pytest.mark.parametrize(
    "schedule",
    [
        Cyclical(20, cycles=1, draws_per_cycle=1),
        Cyclical(20, cycles=2, draws_per_cycle=1, restart="fresh"),
        split,
    ],
)
def test_wrong_schedules_are_refused(schedule):
    with pytest.raises(ValueError, match="schedule must"):
        suggest(schedule)
