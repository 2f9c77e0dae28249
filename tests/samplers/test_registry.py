"""Every discovered sampler has an entry in the registry of the conformance tests."""

import math

import pytest

from csgmcmc import SGLD
from csgmcmc.samplers import discover
from tests.samplers.registry import LARGEST_TOLERANCE, REGISTRY, SAMPLERS


def check_entries(discovered: set[str]) -> None:
    missing, stale = discovered - REGISTRY.keys(), REGISTRY.keys() - discovered
    assert not missing, (
        f"no entry for {', '.join(sorted(missing))}: add one to REGISTRY in "
        "tests/samplers/registry.py, so that the conformance tests can run on it"
    )
    assert not stale, f"tests/samplers/registry.py has an entry for {stale}, which does not exist"


def test_every_sampler_has_an_entry():
    check_entries(set(discover()))


def test_a_sampler_without_an_entry_fails_with_a_sentence():
    with pytest.raises(AssertionError, match="no entry for Mine: add one to REGISTRY"):
        check_entries({*REGISTRY, "Mine"})


@pytest.mark.parametrize("name", REGISTRY)
def test_tolerances_are_capped_and_exact_samplers_have_none(name):
    tolerance = REGISTRY[name].tolerance
    assert 0 <= tolerance <= LARGEST_TOLERANCE
    assert (tolerance == 0) == SAMPLERS[name].exact_stationary_variance


def test_traits():
    traits = ("thermostat", "exact_stationary_variance")
    declared = {
        name: [trait for trait in traits if getattr(sampler, trait)]
        for name, sampler in SAMPLERS.items()
    }
    assert declared["SGNHT"] == ["thermostat"]
    for name in ("AdamSGHMC", "SGHMC", "SGLD"):
        assert declared[name] == ["exact_stationary_variance"]
    assert math.isinf(SGLD.stationary_variance(1.0, lr=2.5, num_data=1))
