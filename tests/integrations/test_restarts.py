"""A restart between cycles is the same in a Trainer as in `Chain`, also after a resume there."""

from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from csgmcmc import SGHMC, Chain, Cyclical, DrawStore, MemoryDraws
from csgmcmc.integrations.lightning import ResumableLoader, SamplingCallback
from csgmcmc.integrations.transformers import model_loss, num_targets
from tests.integrations import lightning_support
from tests.integrations.accelerate_jobs import run_loop
from tests.integrations.lightning_support import STEPS, Network, assert_same, in_order, make_trainer
from tests.integrations.tiny import assert_same_draws, llama, sentences
from tests.integrations.trainer_support import OPTIONS, Stop, manual, trained

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*is deprecated"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
]
CYCLE = 4
SCHEDULE = Cyclical(3 * CYCLE, cycles=3, exploration=0.25, draws_per_cycle=2, restart=0.5)


def language_model() -> Any:
    """A model of Transformers, whose own function initialises it."""
    model: Any = llama()
    model.reset_parameters = lambda: model.apply(model._init_weights)
    return model


def chained(model: Any) -> MemoryDraws:
    sampler = SGHMC(model.parameters(), num_data=num_targets(sentences(), model), **OPTIONS)
    loader = DataLoader(sentences(), batch_size=2)
    return Chain(model, model_loss, loader, sampler, SCHEDULE, progress=False).run()  # pyright: ignore[reportReturnType]


def test_trainer(tmp_path):
    def run(folder, resume=None, **options):
        model, data = language_model(), sentences()
        parts = manual(model, data, DrawStore(folder / "draws"), SCHEDULE)
        options |= {"parts": parts, "save_strategy": "steps", "save_steps": CYCLE}
        trained(folder, model, data, resume=resume, **options)
        return DrawStore(folder / "draws")

    expected = chained(language_model())
    whole = run(tmp_path / "whole")
    assert_same_draws(whole, expected)
    run(tmp_path / "stopped", callbacks=[Stop(CYCLE + 1)])
    resumed = run(tmp_path / "stopped", str(tmp_path / "stopped" / f"checkpoint-{CYCLE}"))
    assert_same_draws(resumed, whole, exactly=True)


def test_accelerate(tmp_path):
    options = {**OPTIONS, "folder": tmp_path / "saved", "schedule": SCHEDULE}
    store = DrawStore(tmp_path / "store")
    run_loop(language_model(), store, until=CYCLE, **options)
    AcceleratorState._reset_state(reset_partial_state=True)
    stepper = run_loop(language_model(), store, resume=True, **options)
    assert_same_draws(stepper.draws, chained(language_model()))


class Look(Callback):
    """The weights that a validation at the end of a cycle sees."""

    def __init__(self) -> None:
        self.seen: dict[int, torch.Tensor] = {}

    def on_validation_start(self, trainer, pl_module):
        self.seen[trainer.global_step] = pl_module.get_parameter("net.0.weight").detach().clone()


def test_lightning(tmp_path):
    schedule = Cyclical(STEPS, cycles=5, exploration=0.5, draws_per_cycle=1, restart="fresh")
    module, cycle = Network(), STEPS // 5
    sampler = module.configure_optimizers()
    expected = Chain(module, cross_entropy, in_order(), sampler, schedule, progress=False).run()

    def run(*callbacks, path=None):
        store, look = DrawStore(tmp_path / "store"), Look()
        saves = ModelCheckpoint(
            tmp_path, "last", enable_version_counter=False, every_n_train_steps=cycle
        )
        options = {"val_check_interval": 6, "num_sanity_val_steps": 0}
        trainer = make_trainer(
            *(SamplingCallback(schedule, store), saves, look, *callbacks), **options
        )
        data = ResumableLoader(in_order())
        own = lightning_support.Validated()
        trainer.fit(own, data, in_order(), ckpt_path=path, weights_only=True)
        return store, look

    with pytest.raises(lightning_support.Stopped):
        run(lightning_support.StopAt(cycle + 1))
    store, look = run(path=str(tmp_path / "last.ckpt"))
    assert_same(store, expected, rtol=1e-4, atol=1e-5)
    for draw in store.of_chain(0)[1:]:
        assert torch.equal(look.seen[draw.step + 1], draw.tensors()["net.0.weight"])
