"""A Lightning run that is stopped and resumed keeps the draws of one that was not."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader

from csgmcmc import Constant, DrawStore, Keep
from csgmcmc.errors import DrawConflictError, SettingsMismatchError
from csgmcmc.integrations.lightning import ResumableLoader, SamplingCallback
from tests.integrations.lightning_support import (
    SCHEDULE,
    STEPS,
    Network,
    Points,
    StopAt,
    Stopped,
    Validated,
    assert_same,
    in_order,
    make_trainer,
)

pytestmark = [
    # Lightning's own use of torch's trees.
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*is deprecated"),
    # Its advice, on machines with more cores.
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
]


def shuffled() -> DataLoader:
    return DataLoader(Points(noise=0.1), batch_size=8, shuffle=True)


def resumable() -> ResumableLoader:
    return ResumableLoader(shuffled())


def own_generator() -> ResumableLoader:
    generator = torch.Generator().manual_seed(8)
    data = Points(noise=0.1)
    return ResumableLoader(DataLoader(data, batch_size=8, shuffle=True, generator=generator))


def run_part(
    folder: Path,
    make_loader=resumable,
    stop: int | None = None,
    resume: bool = False,
    every: int = 7,
    **options: Any,
) -> Trainer:
    """A run of the same start each time, that is stopped, or goes on."""
    torch.manual_seed(99 if resume else 1)  # what the generators did meanwhile must not matter
    store = DrawStore(folder / "store")
    when: dict[str, Any] = {"every_n_train_steps": every} if every else {"every_n_epochs": 1}
    saves = ModelCheckpoint(folder, "last", enable_version_counter=False, **when)
    callbacks = [SamplingCallback(SCHEDULE, store), saves, *([StopAt(stop)] if stop else [])]
    options = {"val_check_interval": 2, "num_sanity_val_steps": 0, **options}
    path = str(folder / "last.ckpt") if resume else None
    trainer = make_trainer(*callbacks, **options)
    validation = DataLoader(Points(16, noise=0.1), batch_size=8)
    trainer.fit(
        Validated(dropout=0.3), make_loader(), validation, ckpt_path=path, weights_only=True
    )
    return trainer


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Any:
    """Draws of runs that were not interrupted, made when they are first asked for."""
    known: dict[Any, DrawStore] = {}

    def get(make_loader=resumable, **options):
        key = (make_loader, *sorted(options.items()))
        if key not in known:
            folder = tmp_path_factory.mktemp("whole")
            run_part(folder, make_loader, **options)
            known[key] = DrawStore(folder / "store")
            assert len(known[key]) == 12
        return known[key]

    return get


@pytest.mark.parametrize("stop", [8, 20, 31, 44])
def test_resume_within_epoch_is_exact(whole, tmp_path, stop):
    with pytest.raises(Stopped):
        run_part(tmp_path, stop=stop)
    run_part(tmp_path, resume=True)
    assert_same(whole(), DrawStore(tmp_path / "store"))


@pytest.mark.parametrize(
    ("make_loader", "options"),
    [
        (own_generator, {}),
        (resumable, {"every": 6}),  # with the last batch of an epoch
        (resumable, {"accumulate_grad_batches": 2, "every": 2, "limit_val_batches": 0}),
        (resumable, {"every": 0}),  # after a validation, in an epoch
        (resumable, {"every": 0, "val_check_interval": 1.0}),
        (resumable, {"every": 0, "limit_val_batches": 0}),
        (resumable, {"every": 0, "limit_val_batches": 0, "max_steps": -1, "max_epochs": 10}),
        (resumable, {"limit_train_batches": 4}),
    ],
    ids=[
        "generator",
        "last batch",
        "accumulated",
        "validation",
        "validated epochs",
        "epochs",
        "counted epochs",
        "short epochs",
    ],
)
def test_repeated_resume_is_exact(whole, tmp_path, make_loader, options):
    for number, stop in enumerate((19, 33)):
        with pytest.raises(Stopped):
            run_part(tmp_path, make_loader, stop=stop, resume=number > 0, **options)
    run_part(tmp_path, make_loader, resume=True, **options)
    assert_same(whole(make_loader, **options), DrawStore(tmp_path / "store"))


def test_resume_after_trainer_with_too_few_steps(whole, tmp_path):
    """From a checkpoint that was made by hand, after the run."""
    with pytest.warns(UserWarning, match="step 22 of 60"):
        trainer = run_part(tmp_path, max_steps=22)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    run_part(tmp_path, resume=True)
    assert_same(whole(), DrawStore(tmp_path / "store"))


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before")
def test_resume_with_plain_loader_keeps_stored_draws(whole, tmp_path):
    """Resumed in an epoch with a plain loader, as Lightning warns, the order is another one."""
    with pytest.raises(Stopped):
        run_part(tmp_path, shuffled, stop=18, every=5)
    before = DrawStore(tmp_path / "store")
    assert [draw.step for draw in before if draw.step >= 15] == [17]
    with pytest.warns(UserWarning, match="exactly") as caught:
        run_part(tmp_path, shuffled, resume=True, every=5)
    assert sum("exactly" in str(each.message) for each in caught) == 1
    after = DrawStore(tmp_path / "store")
    assert [draw.step for draw in after] == [draw.step for draw in whole()]
    assert_same(before, after[: len(before)])


def test_conflicting_draw_of_another_process_raises(tmp_path):
    """Another process wrote the chain meanwhile."""

    class Intrudes(Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            if trainer.global_step == 15:
                callback.draws.append(pl_module, step=17, cycle=SCHEDULE(17).cycle)

    callback = SamplingCallback(SCHEDULE)
    with pytest.raises(DrawConflictError, match="step 17"):
        make_trainer(Intrudes(), callback).fit(Network(), in_order())


def test_resume_with_different_settings_raises(tmp_path):
    with pytest.raises(Stopped):
        run_part(tmp_path, stop=40)
    with pytest.raises(ValueError, match="chain 0 has draws already"):
        run_part(tmp_path)
    path = tmp_path / "last.ckpt"

    def resume(callback, **options):
        trainer = make_trainer(callback, ModelCheckpoint(tmp_path, every_n_train_steps=7))
        trainer.fit(Network(0.3, **options), resumable(), ckpt_path=path, weights_only=True)

    with pytest.raises(SettingsMismatchError, match="schedule"):
        resume(SamplingCallback(Constant(STEPS, keep=Keep(every=1))))
    with pytest.raises(SettingsMismatchError, match="initial_lr"):
        resume(SamplingCallback(SCHEDULE), lr=0.2)
    with pytest.warns(UserWarning, match="draws before step 35"):
        resume(SamplingCallback(SCHEDULE))


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks used to create")
def test_checkpoint_loaded_for_trainer_test(tmp_path):
    with pytest.raises(Stopped):
        run_part(tmp_path, stop=10)

    class Tested(Network):
        def test_step(self, batch, batch_idx):
            return None

    callback = SamplingCallback(SCHEDULE)
    loader = in_order()
    options: Any = {"ckpt_path": tmp_path / "last.ckpt", "weights_only": True, "verbose": False}
    make_trainer(callback).test(Tested(0.3), loader, **options)
    assert len(callback.draws) == 0


def test_store_is_unlocked_after_an_error(tmp_path):
    with pytest.raises(Stopped):
        run_part(tmp_path, stop=10)
    DrawStore(tmp_path / "store").lock_chain(0)
    header = DrawStore(tmp_path / "store").headers()[0]["provenance"]
    assert header["seed"] == 3
    assert header["sampler"] == "SGHMC"
    assert header["schedule"]["kind"] == "Cyclical"
    assert header["schedule"]["steps"] == STEPS
