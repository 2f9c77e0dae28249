"""A Lightning run keeps the draws of `Chain`."""

import csv
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from csgmcmc import SGHMC, Chain, Constant, DrawStore, Keep, MemoryDraws, Posterior
from csgmcmc.errors import DivergedError, SamplingWarning
from csgmcmc.integrations.lightning import ResumableLoader, SamplingCallback
from tests.integrations import lightning_support
from tests.integrations.lightning_support import (
    SCHEDULE,
    STEPS,
    Network,
    Points,
    Validated,
    assert_same,
    fit,
    in_order,
    make_trainer,
)
from tests.processes import PYTHONPATH

pytestmark = [
    # Lightning's own use of torch's trees.
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*is deprecated"),
    # Its advice, on machines with more cores.
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
]


# Draws


class OfDictionaries(Network):
    """The same, of batches that are dictionaries."""

    def training_step(self, batch, batch_idx):
        return cross_entropy(self(batch["x"]), batch["labels"])


def as_dictionaries(loader: DataLoader) -> DataLoader:
    rows = [{"x": inputs, "labels": label} for inputs, label in loader.dataset]
    return DataLoader(rows, batch_size=loader.batch_size)  # pyright: ignore[reportArgumentType]


def test_wrong_num_data_warns():
    short = {"max_steps": 2, "schedule": Constant(2)}
    with pytest.warns(SamplingWarning, match="num_data=12"):
        fit(Network(num_data=12), **short)
    with pytest.warns(SamplingWarning, match="num_data=12"):
        fit(Network(num_data=12), loader=ResumableLoader(in_order()), **short)
    with pytest.warns(SamplingWarning, match="num_data=480"):
        fit(Network(num_data=480), **short)
    fit(Network(num_data=48 * 6), **short)  # a loss of the six inputs, perhaps
    for wrong in (12, 480):
        with pytest.warns(SamplingWarning, match=f"num_data={wrong}"):
            fit(OfDictionaries(num_data=wrong), loader=as_dictionaries(in_order()), **short)
    fit(OfDictionaries(num_data=48), loader=as_dictionaries(in_order()), **short)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {}),
        ({"accumulate": 2}, {"accumulate_grad_batches": 2}),
        ({"clip": 0.1, "watch": False}, {"gradient_clip_val": 0.1}),
    ],
    ids=["plain", "accumulated", "clipped"],
)
def test_draws_equal_those_of_chain(ours, theirs):
    module = Network()
    sampler = module.configure_optimizers()
    chain = Chain(module, cross_entropy, in_order(), sampler, SCHEDULE, progress=False, **ours)
    draws = fit(**theirs)
    assert len(draws) == 12
    assert_same(draws, chain.run(), rtol=1e-4, atol=1e-5)


def test_last_step_of_epoch_is_mean_over_fewer_batches():
    """Of five batches two, two and one are accumulated: Lightning halves the last one's loss."""
    data = Points(40)
    draws = fit(
        Network(num_data=40),
        loader=DataLoader(data, batch_size=8),
        schedule=Constant(6, keep=Keep(every=1)),
        max_steps=6,
        accumulate_grad_batches=2,
    )
    module = Network(num_data=40)
    sampler = module.configure_optimizers()
    batches = list(DataLoader(data, batch_size=8))
    wanted = MemoryDraws()
    for step, numbers in enumerate([(0, 1), (2, 3), (4,)] * 2):
        tick = Constant(6, keep=Keep(every=1)).apply(sampler, step)
        sampler.zero_grad()
        for number in numbers:
            (module.training_step(batches[number], 0) / len(numbers)).backward()
        sampler.step()
        wanted.append(module, step=tick.step, cycle=tick.cycle, stage=tick.stage)
    assert_same(draws, wanted, rtol=1e-4, atol=1e-6)


def test_torch_optimizer_follows_schedule():
    class Plain(Network):
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.2)

    found = []

    class Look(Callback):
        def on_before_optimizer_step(self, trainer, pl_module, optimizer):
            found.append(optimizer.param_groups[0]["lr"])

    callback = SamplingCallback(SCHEDULE, chain_id=2)
    make_trainer(callback, Look()).fit(Plain(), in_order())
    assert found == pytest.approx([0.2 * SCHEDULE(step).lr_scale for step in range(STEPS)])
    assert callback.draws.chain_ids == [2]
    assert len(callback.draws) == 12


def test_validation_does_not_change_draws():
    """Neither the modes of the layers, nor what shuffling, augmentation and dropout draw."""

    def run(module, *validation, **options):
        torch.manual_seed(1)
        callback = SamplingCallback(SCHEDULE)
        loader = DataLoader(Points(noise=0.1), batch_size=8, shuffle=True)
        make_trainer(callback, **options).fit(module, loader, *validation)
        return callback.draws

    module = Validated(dropout=0.3)
    held_out = DataLoader(Points(16, noise=0.1), batch_size=8)
    draws = run(module, held_out, val_check_interval=2, num_sanity_val_steps=2)
    assert module.validations == 2 + 2 * STEPS // 2
    assert_same(draws, run(Network(dropout=0.3)))


def test_posterior_of_module():
    module = Network()
    draws = fit(module)
    inputs = Points().inputs
    wanted = sum(
        nn.functional.softmax(torch.func.functional_call(module.eval(), draw.tensors(), inputs), -1)
        for draw in draws
    ) / len(draws)
    posterior = Posterior(module, draws)

    def probs(prediction):
        return prediction.probs

    torch.testing.assert_close(probs(posterior.predict(inputs)), wanted)

    def forward(model: Any, batch):  # a part of the module, for which draws are not stacked
        return model.net(batch["x"])

    through = Posterior(module, draws, forward=forward)
    torch.testing.assert_close(probs(through.predict({"x": inputs})), wanted)
    assert len(probs(posterior.predict_loader(in_order()))) == 48


def test_loggers_receive_metrics(tmp_path):
    draws = fit(logger=CSVLogger(tmp_path), log_every_n_steps=5)
    with (tmp_path / "lightning_logs" / "version_0" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == list(range(4, STEPS, 5))
    lrs = [0.1 * SCHEDULE(step).lr_scale for step in range(4, STEPS, 5)]
    assert [float(row["csgmcmc/lr"]) for row in rows] == pytest.approx(lrs)
    assert float(rows[0]["csgmcmc/temperature"]) == 0  # exploring
    assert float(rows[-1]["csgmcmc/temperature"]) == 1
    assert int(rows[-1]["csgmcmc/draws"]) == len(draws)


def test_pytorch_lightning_package():
    other = pytest.importorskip("pytorch_lightning")

    class Other(other.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Network().net

        def training_step(self, batch, batch_idx):
            return cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return Network.configure_optimizers(self)  # pyright: ignore[reportArgumentType]

        options = Network().options

    callback = SamplingCallback(SCHEDULE)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = other.Trainer(
        max_steps=STEPS,
        accelerator="cpu",
        callbacks=[callback],
        enable_model_summary=False,
        **quiet,
    )
    trainer.fit(Other(), in_order())
    assert_same(callback.draws, fit())


# Precision


def test_mixed_precision_keeps_weights_of_32_bits():
    draws = fit(precision="bf16-mixed")
    assert len(draws) == 12
    assert all(t.dtype != torch.bfloat16 for draw in draws for t in draw.tensors().values())
    assert not torch.equal(draws[0].tensors()["net.0.weight"], fit()[0].tensors()["net.0.weight"])


@pytest.mark.parametrize("bad", [None, 30])
def test_step_skipped_by_gradient_scaler_counts(bad):
    """That is what 16-mixed does on a GPU when gradients overflow."""

    class Overflows(Network):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            return loss * float("inf") if self.trainer.global_step == bad else loss

    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)  # pyright: ignore[reportPrivateImportUsage]
    plugin = MixedPrecision("16-mixed", "cpu", scaler=scaler)
    draws = fit(Overflows(), plugins=[plugin], schedule=Constant(STEPS, keep=Keep(every=1)))
    weights = [draw.tensors()["net.0.weight"] for draw in draws]
    still = [step for step in range(1, STEPS) if torch.equal(weights[step - 1], weights[step])]
    assert still == ([] if bad is None else [bad])
    if bad is None:
        one = fit(schedule=Constant(STEPS, keep=Keep(every=1)), max_steps=STEPS)[0]
        torch.testing.assert_close(one.tensors(), draws[0].tensors(), rtol=1e-2, atol=1e-2)


def test_bfloat16_weights_warn():
    with pytest.warns(UserWarning, match="torch.bfloat16"):
        fit(precision="bf16-true")


# Length of the run


def test_trainer_with_more_steps_than_schedule_raises():
    for epochs in (11, -1):
        with pytest.raises(ValueError, match="max_steps must be 60"):
            fit(max_steps=-1, max_epochs=epochs)


def test_trainer_with_fewer_steps_than_schedule_warns():
    with pytest.warns(UserWarning, match="step 54 of 60 with 9 of 12 draws"):
        draws = fit(max_steps=-1, max_epochs=9)
    assert len(draws) == 9


class Rising(Network):
    """Its validation loss rises, as that of every cycle does when it begins."""

    def validation_step(self, batch, batch_idx):
        self.log("loss", float(self.global_step))


def test_early_stopping_warns_at_the_end():
    callback = SamplingCallback(SCHEDULE)
    early = EarlyStopping("loss", patience=2)
    trainer = make_trainer(callback, early, num_sanity_val_steps=0)
    with pytest.warns(SamplingWarning, match="step 18 of 60 with 3 of 12 draws"):
        trainer.fit(Rising(), in_order(), in_order())
    assert len(callback.draws) == 3


def test_fast_dev_run_does_not_warn():
    assert len(fit(fast_dev_run=True)) == 0


# Errors


class Returns(Network):
    """`configure_optimizers` returns what the function makes of the module."""

    def __init__(self, function, automatic: bool = True) -> None:
        super().__init__()
        self.function, self.automatic_optimization = function, automatic

    def configure_optimizers(self):
        return self.function(self)


def sampler_of(module: Network) -> SGHMC:
    return Network.configure_optimizers(module)


def with_plan(module):
    sampler = sampler_of(module)
    return [sampler], [torch.optim.lr_scheduler.StepLR(sampler, 10)]


@pytest.mark.parametrize(
    ("module", "error", "words"),
    [
        (Returns(sampler_of, automatic=False), ValueError, "automatic_optimization must be True"),
        (Returns(lambda m: [sampler_of(m)] * 2), RuntimeError, "multiple optimizers"),
        (Returns(with_plan), ValueError, "LRScheduler"),
    ],
    ids=["manual", "two", "lr scheduler"],
)
def test_unsupported_optimization_raises(module, error, words):
    with pytest.raises(error, match=words):
        fit(module)


@pytest.mark.filterwarnings("ignore:`LightningModule.configure_optimizers` returned `None`")
def test_no_optimizer_raises():
    with pytest.raises(ValueError, match="no lr for a schedule"):
        fit(Returns(lambda _: None))


def test_chain_id_different_from_sampler_raises():
    with pytest.raises(ValueError, match="chain_id=1"):
        make_trainer(SamplingCallback(SCHEDULE, chain_id=1)).fit(Network(), in_order())


def test_chain_id_comes_from_sampler():
    assert fit(Network(chain_id=4)).chain_ids == [4]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((100,), "schedule must be"),
        ((SCHEDULE, "runs/mine"), "draws must be"),
    ],
)
def test_invalid_arguments_raise(arguments, words):
    with pytest.raises(ValueError, match=words):
        make_trainer(SamplingCallback(*arguments)).fit(Network(), in_order())


def test_sharded_strategy_raises():
    trainer: Any = SimpleNamespace(strategy=ModelParallelStrategy())
    with pytest.raises(ValueError, match="strategy must be"):
        SamplingCallback(SCHEDULE).setup(trainer, Network(), "fit")


def test_weights_that_are_not_finite_are_never_kept():
    draws = MemoryDraws()
    with pytest.raises(DivergedError, match="a weight is not finite at step 1"):
        fit(Network(lr=1e30), draws=draws, schedule=Constant(STEPS, keep=Keep(every=1)))
    assert [draw.step for draw in draws] == [0]


def test_missing_package_names_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    monkeypatch.delitem(sys.modules, "csgmcmc.integrations.lightning")
    with pytest.raises(ImportError, match=r"pip install 'csgmcmc\[lightning\]'"):
        import csgmcmc.integrations.lightning  # noqa: F401, PLC0415


# Two processes


def test_replicas_stay_equal_and_first_process_writes(tmp_path):
    result = subprocess.run(
        [sys.executable, lightning_support.__file__, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,  # where all is busy; it takes seconds
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    one, other = (torch.load(tmp_path / f"weights-{rank}.pt") for rank in range(2))
    assert all(torch.equal(left, right) for left, right in zip(one, other, strict=True))
    store = DrawStore(tmp_path / "whole")
    assert len(store) == 12
    assert store.problems == []
    assert torch.equal(store[-1].tensors()["net.0.weight"], one[0])
    assert_same(store, DrawStore(tmp_path / "cut"))
    for rank in range(2):
        assert "have different seeds" in (tmp_path / f"seeds-{rank}.txt").read_text()
        assert "sampler=DistributedSampler" in (tmp_path / f"same-{rank}.txt").read_text()
        assert "chain 0 has draws already" in (tmp_path / f"whole-{rank}.txt").read_text()
    assert len(DrawStore(tmp_path / "whole")) == 12
