"""A checkpoint of each released format resumes, also after options and fields were added.

`store-0.2.0` was written by csgmcmc 0.2.0 with the chain below, which was stopped in step 17: its
checkpoints are those of steps 10 and 15. The same chain, not stopped, had the draws of `EXPECTED`.
"""

import shutil
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import SGHMC, Chain, Constant, Cyclical, DrawStore, Joined, Keep, Ramp, Schedule
from csgmcmc.errors import SettingsMismatchError
from csgmcmc.loop import fingerprint

STORE = Path(__file__).parents[1] / "draws" / "fixtures" / "store-0.2.0"
EXPECTED = {
    11: [0.4758189916610718, 0.44282349944114685],
    13: [0.5069509148597717, 0.3696785569190979],
    21: [0.6514277458190918, 0.24073490500450134],
    23: [0.6922728419303894, 0.2951054573059082],
}
"""The biases of each draw, by step."""


class Newer(SGHMC):
    """SGHMC of a later version, with one more option."""

    def __init__(self, params: Any, lr: float, *, twist: float = 0.0, **options: Any) -> None:
        self._twist = twist
        super().__init__(params, lr, **options)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.defaults["twist"] = self._twist
        super().add_param_group(param_group)


Newer.__name__ = "SGHMC"


@dataclass(frozen=True)
class Later(Cyclical):
    """Cyclical of a later version, with one more field."""

    mood: str = "calm"


Later.__name__ = Later.__qualname__ = "Cyclical"


def make_chain(
    folder: Path, sampler: type[SGHMC] = SGHMC, cyclical: type[Cyclical] = Cyclical, **more: Any
) -> Chain:
    model = nn.Linear(2, 2)
    for param in model.parameters():
        nn.init.constant_(param, 0.5)
    data = TensorDataset(torch.arange(12.0).reshape(6, 2) / 12, torch.tensor([0, 1, 0, 1, 0, 1]))
    order = torch.Generator().manual_seed(1)
    loader = DataLoader(data, batch_size=3, shuffle=True, generator=order)
    options = {"momentum": 0.9, "weight_decay": 1e-3, "num_data": 6, "seed": 3}
    options |= {name: more.pop(name) for name in ("twist",) if name in more}
    made = sampler(model.parameters(), 0.05, **options)
    cycles = cyclical(steps=20, cycles=2, exploration=0.5, draws_per_cycle=2, **more)
    schedule: Schedule = Joined([Ramp(4, start=0.1, end=1.0), cycles])
    store = DrawStore(folder)
    options = {"checkpoint_every": 5, "progress": False, "watch": False}
    return Chain(model, cross_entropy, loader, made, schedule, store, **options)


@pytest.fixture
def folder(tmp_path) -> Path:
    return shutil.copytree(STORE, tmp_path / "store")


@pytest.fixture
def _later_version(monkeypatch):
    known = fingerprint.schedules()
    monkeypatch.setattr(fingerprint, "schedules", lambda: {**known, "Cyclical": Later})


def biases(store: DrawStore) -> dict[int, list[float]]:
    return {draw.step: draw.tensors()["bias"].tolist() for draw in store}


def test_resume_a_checkpoint_of_0_2_0(folder):
    make_chain(folder).run(resume=True)
    assert biases(DrawStore(folder)) == EXPECTED


@pytest.mark.usefixtures("_later_version")
def test_resume_after_an_option_and_a_field_were_added(folder):
    make_chain(folder, Newer, Later).run(resume=True)
    assert biases(DrawStore(folder)) == EXPECTED


@pytest.mark.usefixtures("_later_version")
@pytest.mark.parametrize(
    ("more", "field"), [({"twist": 1.0}, "groups.0.twist"), ({"restart": "fresh"}, "schedule")]
)
def test_an_added_option_that_is_not_at_its_default_differs(folder, more, field):
    with pytest.raises(SettingsMismatchError, match=field):
        make_chain(folder, Newer, Later, **more).run(resume=True)


def test_only_what_differs_from_its_default_is_stored(folder):
    settings = make_chain(folder).stepper.settings
    assert "fused" not in settings["groups"]["0"]
    assert "momentum" not in settings["groups"]["0"]
    ramp, cycles = settings["schedule"]["schedules"]
    assert ramp == {"kind": "Ramp", "steps": 4, "start": 0.1, "end": 1.0}
    assert "burn_in" not in cycles
    assert {each.name for each in fields(Cyclical)} > cycles.keys() - {"kind"}
    assert not settings.keys() & {"accumulate", "clip", "autocast"}


@pytest.mark.parametrize(
    ("saved", "schedule"),
    [
        (
            "Constant(steps=20, burn_in=0, draws=None, every=5, lr_scale=1.0, "
            "temperature_scale=1.0)",
            Constant(20, keep=Keep(every=5)),
        ),
        (
            "Constant(steps=20, burn_in=0, draws=4, every=None, lr_scale=1.0, "
            "temperature_scale=1.0)",
            Constant(20, draws=4),
        ),
        (
            "Joined(schedules=(Cyclical(steps=20, cycles=2, exploration=0.5, "
            "draws_per_cycle=None, every=2, burn_in=0, exploration_temperature=0.0, "
            "anneal=False, weight_decay_scales=None, temperature_scales=None),))",
            Joined([Cyclical(20, 2, exploration=0.5, keep=Keep(every=2))]),
        ),
    ],
)
def test_draws_and_every_of_0_2_0_are_the_keep_of_a_schedule(saved, schedule):
    sampler = SGHMC([torch.zeros(1)], lr=0.1, num_data=1)
    others = [Constant(20, draws=5), Constant(20, keep=Keep(every=4)), Constant(20)]
    old, new, *different = (
        fingerprint.with_defaults({"schedule": each, "groups": {}}, sampler)
        for each in (saved, *map(fingerprint.describe_schedule, [schedule, *others]))
    )
    fingerprint.check_same(old, new)
    for other in different:
        with pytest.raises(SettingsMismatchError, match="schedule"):
            fingerprint.check_same(old, other)
