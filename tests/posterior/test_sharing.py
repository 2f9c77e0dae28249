"""Predictions that several processes share."""

import signal
from collections import UserDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from csgmcmc.posterior.sharing import Share
from tests.posterior import sharing_jobs as jobs
from tests.posterior.support import TIGHT
from tests.processes import all_succeed, run_together


def alone(few: bool) -> dict[str, Any]:
    """The same predictions by one process."""
    draws, data = (2, jobs.loader(3)) if few else (len(jobs.WEIGHTS), jobs.loader())
    found: dict[str, Any] = {}
    for kind in ("categorical", "bernoulli", "gaussian", "pair"):
        for members in (False, True):
            prediction = jobs.posterior(kind, draws).predict_loader(data, members=members)
            found[f"{kind}, members={members}"] = jobs.numbers_of(prediction)
    if not few:
        for kind in ("categorical", "bernoulli", "gaussian", "pair"):
            scores = jobs.posterior(kind).log_scores(jobs.targets_for(kind))
            found[f"{kind}, scores"] = {"scores": scores}
        weighed = jobs.posterior("categorical").weigh("stacking", data, by="draw")
        found["stacking"] = {"weights": torch.from_numpy(weighed.weights)}
    return found


def load(folder: Path, processes: int) -> list[dict[str, Any]]:
    paths = [folder / f"{rank}.pt" for rank in range(processes)]
    return [torch.load(path, weights_only=False) for path in paths]


@pytest.mark.parametrize(
    ("share", "processes", "few"),
    [
        ("draws", 2, False),
        ("data", 2, False),
        pytest.param("draws", 3, True, marks=pytest.mark.slow),
        pytest.param("data", 3, True, marks=pytest.mark.slow),
        pytest.param("draws", 4, False, marks=pytest.mark.slow),
        pytest.param("data", 4, False, marks=pytest.mark.slow),
    ],
)
def test_all_processes_have_the_prediction_of_one(tmp_path, share, processes, few):
    all_succeed(jobs.predict, tmp_path, processes, share=share, few=few)
    first, *others = load(tmp_path, processes)
    expected = alone(few)
    assert first.keys() == expected.keys()
    for name, values in expected.items():
        assert first[name].keys() == values.keys()
        for field, value in values.items():
            if not isinstance(value, Tensor):
                assert first[name][field] == value
                continue
            tolerance: Any = {"rtol": 1e-4, "atol": 1e-4} if name == "stacking" else TIGHT
            torch.testing.assert_close(first[name][field], value, **tolerance, equal_nan=True)
            for other in others:
                assert torch.equal(other[name][field], first[name][field]), (name, field)
    if not few:
        assert first["pair, members=True"]["members"].shape[:2] == (7, jobs.ROWS)


def test_what_fails_in_one_process_ends_in_all(tmp_path):
    all_succeed(jobs.fail, tmp_path, processes=2)
    assert len(list(tmp_path.glob("*.done"))) == 2


@pytest.mark.slow
def test_the_others_notice_one_that_was_killed(tmp_path):
    codes = run_together(jobs.killed, tmp_path, processes=2)
    assert codes == [1, -signal.SIGKILL]


def test_one_process_does_everything():
    plain = jobs.posterior("pair")
    whole = jobs.numbers_of(plain.predict_loader(jobs.loader()))
    expected = {name: value for name, value in whole.items() if value is not None}
    for share in ("draws", "data"):
        found = jobs.numbers_of(plain.predict_loader(jobs.loader(), share=share))
        same = [
            torch.equal(found[name], value) for name, value in expected.items() if value is not None
        ]
        assert all(same)


def test_another_word_is_refused():
    with pytest.raises(ValueError, match="share must be one of 'draws', 'data', got 'all'"):
        jobs.posterior("pair").predict_loader(jobs.loader(), share="all")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="share is for stacking"):
        jobs.posterior("pair").weigh("uniform", share="draws")


@pytest.mark.parametrize(("draws", "processes"), [(7, 3), (2, 4), (1, 1), (0, 2)])
def test_parts_are_all_draws_in_their_order(draws, processes):
    parts = [Share("draws", rank, processes).draws(range(draws)) for rank in range(processes)]
    assert [number for part in parts for number in part] == list(range(draws))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@dataclass(slots=True)
class Pair:
    one: Any
    other: Any


@pytest.mark.parametrize(
    "batch_of",
    [
        lambda numbers: (numbers, None),
        lambda numbers: (torch.zeros(3), numbers),
        lambda numbers: (numbers.numpy(), None),
        lambda numbers: (numbers.numpy()[::2], None),
        lambda numbers: (np.array([str(numbers), None], dtype=object), None),
        lambda numbers: (UserDict(ids=[numbers]), None),
        lambda numbers: (UserDict({str(numbers): 1}), None),
        lambda numbers: (Pair("text", numbers), None),
        lambda numbers: ([{"words": f"{numbers}"}], None),
    ],
)
def test_batches_of_every_kind_are_compared(batch_of: Callable[[Tensor], Any]):
    def seen(numbers: Tensor) -> int:
        share = Share("draws", 0, 2)
        share.look_at(batch_of(numbers))
        return share._seen

    numbers = torch.arange(4)
    assert seen(numbers) == seen(numbers.clone())
    assert seen(numbers) != seen(numbers.flip(0))
