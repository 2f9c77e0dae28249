"""AdamSGHMC in the loops of other packages draws what it draws in a `Chain`."""

from typing import Any

import pytest
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from csgmcmc import AdamSGHMC, Chain, MemoryDraws
from csgmcmc.integrations.counting import num_targets
from csgmcmc.integrations.transformers import model_loss, trainer_parts
from tests.integrations import lightning_support
from tests.integrations.test_peft import adapted, trainable
from tests.integrations.tiny import assert_same_draws, sentences
from tests.integrations.trainer_support import SCHEDULE, trained

OPTIONS: Any = {"lr": 0.01, "weight_decay": 0.01, "seed": 3}


def sampler_of(model) -> AdamSGHMC:
    return AdamSGHMC(trainable(model), num_data=num_targets(sentences(), model), **OPTIONS)


@pytest.fixture(scope="module")
def chained() -> Any:
    """The draws of LoRA adapters by a `Chain`."""
    model, loader = adapted(), DataLoader(sentences(), batch_size=2)
    return Chain(model, model_loss, loader, sampler_of(model), SCHEDULE, progress=False).run()


def test_trainer(chained, tmp_path):
    model, draws = adapted(), MemoryDraws()
    parts = trainer_parts(model, sentences(), SCHEDULE, draws, sampler=AdamSGHMC, **OPTIONS)
    trained(tmp_path, model, sentences(), draws=draws, parts=parts)
    assert_same_draws(draws, chained)


class Network(lightning_support.Network):
    def configure_optimizers(self) -> Any:
        return AdamSGHMC(self.parameters(), num_data=48, **OPTIONS)


def test_lightning():
    module = Network()
    loader, sampler = lightning_support.in_order(), module.configure_optimizers()
    schedule = lightning_support.SCHEDULE
    chain = Chain(module, cross_entropy, loader, sampler, schedule, progress=False)
    draws = lightning_support.fit(Network())
    lightning_support.assert_same(draws, chain.run(), rtol=1e-3, atol=1e-5)
