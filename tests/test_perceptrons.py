"""Stacked perceptrons, held to `vmap` and to the models themselves."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from csgmcmc import Posterior
from csgmcmc.posterior import members as members_module
from csgmcmc.stacked import ELEMENTWISE, is_perceptron
from tests.posterior.support import CLOSE, in_memory, outputs_of


def plain():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3, bias=False))


def with_every_activation():
    layers: list[nn.Module] = [nn.Tanh()]
    for kind in ELEMENTWISE:
        layers += [nn.Linear(4, 4), kind()]
    return nn.Sequential(*layers)


@pytest.mark.parametrize("make", [plain, with_every_activation])
def test_it_is_the_model_with_each_draw(make, monkeypatch):
    assert is_perceptron(make())
    monkeypatch.setattr(members_module, "vmap", lambda *_, **__: pytest.fail("vmapped"))
    draws, inputs = in_memory(make, 5), torch.randn(7, 4)
    found = Posterior(make(), draws, vectorize=True).predict(inputs, members=True)
    assert_close(found.members, outputs_of(make(), draws, inputs).softmax(2), **CLOSE)


def test_images_go_the_general_way():
    draws, images = in_memory(plain, 3), torch.randn(7, 1, 2, 2)
    found = Posterior(plain(), draws, vectorize=True).predict(images, members=True)
    assert_close(found.members, outputs_of(plain(), draws, images).softmax(2), **CLOSE)


class Doubled(nn.Linear):
    def forward(self, input):  # noqa: A002  (torch's name)
        return 2 * super().forward(input)


def hooked():
    model = plain()
    model[1].register_forward_hook(lambda *_: None)
    return model


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(Doubled(4, 3)),
        nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)),
        nn.Sequential(nn.Linear(4, 3), nn.Softmax(1)),
        nn.Sequential(nn.Linear(4, 3), nn.Flatten()),
        nn.Sequential(nn.Flatten(0), nn.Linear(4, 3)),
        nn.Sequential(),
        nn.Linear(4, 3),
        hooked(),
    ],
    ids=lambda model: str(model)[:40],
)
def test_anything_else_is_no_perceptron(model):
    assert not is_perceptron(model)
