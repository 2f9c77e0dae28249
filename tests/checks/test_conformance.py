"""`conformance`: right samplers pass, and each mistake of a sampler is found by its name."""

import math

import pytest
import torch

from csgmcmc import SGLD, Sampler
from csgmcmc.checks import conformance
from csgmcmc.samplers import discover
from tests.samplers.test_own_sampler import OverlappingSGLD

pytestmark = pytest.mark.filterwarnings("ignore:.*a preconditioner from a single gradient")


class Own(Sampler):
    """SGLD, with one mistake at a time."""

    mistake = ""

    def update(self, group, params, gradients, noise, states):
        lr, n, temperature = group["lr"], group["num_data"], group["temperature"]
        std = math.sqrt(2 * lr * temperature / (1 if self.mistake == "no N" else n))
        for index, param in enumerate(params):
            param.add_(gradients[index], alpha=-lr)
            if noise is not None:
                own = torch.randn_like(param) if self.mistake == "global noise" else noise[index]
                param.add_(own, alpha=std)
            elif self.mistake == "never cold":
                param.add_(torch.randn_like(param))
            if self.mistake == "state of its own":
                self.before = getattr(self, "before", 0 * param) + param
                param.add_(self.before, alpha=1e-6)

    def injected_variance(self, group, param):
        factor = 4 if self.mistake == "another variance" else 1
        return factor * 2 * group["lr"] * group["temperature"] / group["num_data"]


def failed(sampler, **options) -> set[str]:
    return {name for name, found in conformance(sampler, **options).items() if found.holds is False}


@pytest.mark.parametrize("sampler", [*discover().values(), Own], ids=lambda each: each.__name__)
def test_samplers_of_this_library_conform(sampler):
    found = conformance(sampler, lr=0.02, steps=1500, chains=10_000)
    assert not [name for name, verdict in found.items() if verdict.holds is False]
    assert [found[name].holds for name in ("cold", "seeded", "resumed", "noise")] == [True] * 4


def test_noise_that_is_not_declared_is_unknown():
    found = conformance(OverlappingSGLD, chains=5000, steps=200)
    assert found["noise"].holds is None
    assert not failed(OverlappingSGLD, chains=5000, steps=200)


@pytest.mark.parametrize(
    ("mistake", "names"),
    [
        ("no N", {"noise", "variance"}),
        ("global noise", {"seeded", "resumed"}),
        ("never cold", {"cold"}),
        ("state of its own", {"resumed"}),
        ("another variance", {"noise"}),
    ],
)
def test_each_mistake_is_named(mistake, names):
    class Wrong(Own):
        pass

    Wrong.mistake = mistake
    assert failed(Wrong, chains=5000, steps=200) == names


def test_options_are_those_of_the_sampler():
    found = conformance(SGLD, lr=0.5, num_data=3.0, temperature=0.5, chains=5000, steps=200)
    assert found["noise"].holds
    assert found["variance"].holds is not False
