"""A new sampler or schedule is found from its file alone.

The conformance tests ask for an entry in the registries of tests/samplers and tests/schedules.
"""

import inspect

import csgmcmc.diagnostics
import csgmcmc.noise
import csgmcmc.samplers
import csgmcmc.schedules

NEW_SAMPLER = """
from csgmcmc.samplers.sgld import SGLD

class Brownian(SGLD):
    pass

class _Private(SGLD):
    pass
"""

NEW_SCHEDULE = """
from csgmcmc.schedules.constant import Constant

class Steady(Constant):
    pass
"""


def test_the_samplers_and_schedules_are_found():
    assert set(csgmcmc.samplers.discover()) >= {"AdamSGHMC", "SGHMC", "SGLD", "SGNHT"}
    assert set(csgmcmc.schedules.discover()) >= {
        "Constant",
        "Cyclical",
        "Decreasing",
        "Joined",
        "Ramp",
    }


def test_a_new_file_is_found(tmp_path, monkeypatch):
    (tmp_path / "brownian.py").write_text(NEW_SAMPLER)
    (tmp_path / "steady.py").write_text(NEW_SCHEDULE)
    for package in (csgmcmc.samplers, csgmcmc.schedules):
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    assert "Brownian" in csgmcmc.samplers.discover()
    assert "_Private" not in csgmcmc.samplers.discover()
    assert "Steady" in csgmcmc.schedules.discover()


def test_every_public_name_is_documented():
    rooms = (csgmcmc.samplers, csgmcmc.noise, csgmcmc.schedules, csgmcmc.diagnostics)
    for package in (csgmcmc, *rooms):
        members = {name: getattr(package, name) for name in package.__all__}
        for name, member in members.items():
            if inspect.isclass(member) or inspect.isfunction(member):
                assert member.__doc__, name
