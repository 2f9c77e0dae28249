"""A Lightning run that is stopped and resumed keeps the draws of one that was not."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader

from csgmcmc import Constant, DrawStore
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
def test_stopped_in_an_epoch_it_goes_on_bit_for_bit(whole, tmp_path, stop):
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
def test_stopped_again_and_again_it_goes_on_bit_for_bit(whole, tmp_path, make_loader, options):
    for number, stop in enumerate((19, 33)):
        with pytest.raises(Stopped):
            run_part(tmp_path, make_loader, stop=stop, resume=number > 0, **options)
    run_part(tmp_path, make_loader, resume=True, **options)
    assert_same(whole(make_loader, **options), DrawStore(tmp_path / "store"))


def test_a_trainer_that_ended_too_early_goes_on(whole, tmp_path):
    """From a checkpoint that was made by hand, after the run."""
    with pytest.warns(UserWarning, match="stops after 22 of the 60 steps"):
        trainer = run_part(tmp_path, max_steps=22)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    run_part(tmp_path, resume=True)
    assert_same(whole(), DrawStore(tmp_path / "store"))


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before")
def test_a_run_that_goes_another_way_keeps_the_draws_that_are_there(whole, tmp_path):
    """Resumed in an epoch with a plain loader, as Lightning warns, the order is another one."""
    with pytest.raises(Stopped):
        run_part(tmp_path, shuffled, stop=18, every=5)
    before = DrawStore(tmp_path / "store")
    assert [draw.step for draw in before if draw.step >= 15] == [17]
    words = "does not continue exactly .* its draw of step 17, .*; a ResumableLoader"
    with pytest.warns(UserWarning, match=words) as caught:
        run_part(tmp_path, shuffled, resume=True, every=5)
    assert sum("exactly" in str(each.message) for each in caught) == 1
    after = DrawStore(tmp_path / "store")
    assert [draw.step for draw in after] == [draw.step for draw in whole()]
    assert_same(before, after[: len(before)])


def test_another_draw_that_a_checkpoint_does_not_explain_is_refused(tmp_path):
    """Another process wrote the chain meanwhile."""

    class Intrudes(Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            if trainer.global_step == 15:
                callback.draws.append(pl_module, step=17, cycle=SCHEDULE(17).cycle)

    callback = SamplingCallback(SCHEDULE)
    with pytest.raises(DrawConflictError, match="already has a different draw at step 17"):
        make_trainer(Intrudes(), callback).fit(Network(), in_order())


def test_what_is_in_the_way_of_resuming_is_said(tmp_path):
    with pytest.raises(Stopped):
        run_part(tmp_path, stop=40)
    with pytest.raises(ValueError, match=r"chain 0 has draws already.*: fit\(\.\.\., ckpt_path"):
        run_part(tmp_path)
    path = tmp_path / "last.ckpt"

    def resume(callback, **options):
        trainer = make_trainer(callback, ModelCheckpoint(tmp_path, every_n_train_steps=7))
        trainer.fit(Network(0.3, **options), resumable(), ckpt_path=path, weights_only=True)

    with pytest.raises(
        SettingsMismatchError, match=r"cannot resume: schedule was Cyclical\(steps=60"
    ):
        resume(SamplingCallback(Constant(STEPS, every=1)))
    with pytest.raises(
        SettingsMismatchError, match=r"cannot resume: groups.0.initial_lr was 0.1 .* 0.2"
    ):
        resume(SamplingCallback(SCHEDULE), lr=0.2)
    with pytest.warns(UserWarning, match="6 of the 6 draws before step 35 are not in draws"):
        resume(SamplingCallback(SCHEDULE))


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks used to create")
def test_a_checkpoint_can_be_loaded_for_a_test(tmp_path):
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


def test_the_store_is_free_again_after_a_run_however_it_ends(tmp_path):
    with pytest.raises(Stopped):
        run_part(tmp_path, stop=10)
    DrawStore(tmp_path / "store").lock_chain(0)
    header = DrawStore(tmp_path / "store").headers()[0]["provenance"]
    assert header["seed"] == 3
    assert header["sampler"] == "SGHMC"
    assert header["schedule"] == repr(SCHEDULE)
