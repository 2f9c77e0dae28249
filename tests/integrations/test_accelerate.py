"""A loop with Accelerate keeps the draws of `Chain`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import DataLoaderConfiguration, DistributedType
from torch.utils.data import DataLoader, IterableDataset

from csgmcmc import SGHMC, Chain, Cyclical, DrawStore, MemoryDraws
from csgmcmc.errors import SamplingWarning, SettingsMismatchError
from csgmcmc.integrations.accelerate import AcceleratedRun, num_targets
from csgmcmc.integrations.transformers import model_loss
from tests.integrations import accelerate_jobs
from tests.integrations.tiny import assert_same_draws, gpt2, llama, sentences
from tests.processes import PYTHONPATH

SCHEDULE = Cyclical(steps=12, cycles=3, exploration=0.25, draws_per_cycle=2)
KEPT = [2, 3, 6, 7, 10, 11]
OPTIONS = {"lr": 0.05, "momentum": 0.8, "weight_decay": 0.01, "seed": 3}


@pytest.fixture(autouse=True)
def _anew():
    """Accelerators of one process share their state, also with those of a `Trainer`."""
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def prepared(
    model,
    draws,
    *,
    batch_size=2,
    shuffle=False,
    schedule=SCHEDULE,
    scaler=None,
    num_data=None,
    **kwargs,
):
    seeded = DataLoaderConfiguration(use_seedable_sampler=True, data_seed=5)
    accelerator = Accelerator(cpu=True, **{"dataloader_config": seeded, **kwargs})
    accelerator.scaler = scaler
    data = sentences()
    num_data = num_data or num_targets(data, model)
    sampler = SGHMC(model.parameters(), num_data=num_data, **OPTIONS)
    loader = DataLoader(data, batch_size=batch_size, shuffle=shuffle)
    model, sampler, loader = accelerator.prepare(model, sampler, loader)
    return accelerator, AcceleratedRun(accelerator, model, sampler, schedule, draws), loader


def run_loop(accelerator, run, loader, until=None, every=None, folder=Path()):
    """The loop of a user; the ticks that it saw."""
    ticks = []
    for batch in run.batches(loader):
        with accelerator.accumulate(run.model):
            accelerator.backward(run.model(**batch).loss)
            ticks.append(run.step())
        if every and ticks[-1] is not None and run.taken % every == 0:
            accelerator.save_state(str(folder / f"step-{run.taken}"))
        if run.taken == until:
            break
    return ticks


def chained(model, batch_size=2, accumulate=1):
    data = sentences()
    sampler = SGHMC(model.parameters(), num_data=num_targets(data, model), **OPTIONS)
    loader = DataLoader(data, batch_size=batch_size)
    chain = Chain(
        model, model_loss, loader, sampler, SCHEDULE, accumulate=accumulate, progress=False
    )
    return chain.run()


@pytest.mark.parametrize("accumulate", [1, 2])
def test_draws_equal_those_of_chain(accumulate):
    draws = MemoryDraws()
    parts = prepared(llama(), draws, gradient_accumulation_steps=accumulate)
    ticks = run_loop(*parts)
    assert_same_draws(draws, chained(llama(), accumulate=accumulate))
    assert [tick.step for tick in ticks if tick] == list(range(12))
    assert ticks[0] is None or accumulate == 1
    accelerator, run, _ = parts
    assert run.done
    assert run.stepper.batches_per_step == accumulate
    assert not accelerator.gradient_state.in_dataloader


def test_last_step_of_epoch_is_mean_over_fewer_batches():
    """Accelerate divides by 3 all the same; four batches an epoch give steps of three and one."""
    draws, expected = MemoryDraws(), MemoryDraws()
    run_loop(*prepared(llama(), draws, batch_size=3, gradient_accumulation_steps=3))
    again = llama()
    sampler = SGHMC(again.parameters(), num_data=num_targets(sentences(), again), **OPTIONS)
    batches = list(DataLoader(sentences(), batch_size=3))
    for step in range(SCHEDULE.steps):
        tick = SCHEDULE.apply(sampler, step)
        sampler.zero_grad()
        mine = batches[:3] if step % 2 == 0 else batches[3:]
        torch.stack([again(**batch).loss for batch in mine]).mean().backward()
        sampler.step()
        if tick.collect:
            expected.append(again, step=tick.step, cycle=tick.cycle, stage=tick.stage)
    assert_same_draws(draws, expected)


@pytest.mark.parametrize(("until", "accumulate"), [(4, 1), (6, 1), (5, 2)])
def test_resumed_run_gives_the_same_draws(tmp_path, until, accumulate):
    """In the middle of an epoch of six batches, and between two."""

    def parts(name):
        store = DrawStore(tmp_path / name)
        kwargs = {"shuffle": True, "gradient_accumulation_steps": accumulate}
        return prepared(gpt2(dropout=0.1), store, **kwargs)

    accelerator, run, loader = parts("whole")
    run_loop(accelerator, run, loader)
    whole = run.stepper.draws

    accelerator, run, loader = parts("stopped")
    run_loop(accelerator, run, loader, until=until + 1, every=until, folder=tmp_path)

    accelerator, run, loader = parts("stopped")
    torch.manual_seed(99)  # as in another process
    accelerator.load_state(str(tmp_path / f"step-{until}"))
    assert run.taken == until
    run_loop(accelerator, run, loader)
    assert_same_draws(run.stepper.draws, whole, exactly=True)


def test_resume_with_unseeded_shuffling_warns(tmp_path):
    unseeded = {"shuffle": True, "dataloader_config": DataLoaderConfiguration()}
    accelerator, run, loader = prepared(llama(), DrawStore(tmp_path / "draws"), **unseeded)
    run_loop(accelerator, run, loader, until=7, every=4, folder=tmp_path)
    accelerator, run, loader = prepared(llama(), DrawStore(tmp_path / "draws"), **unseeded)
    accelerator.load_state(str(tmp_path / "step-4"))
    another = pytest.warns(UserWarning, match="exactly")
    with another, pytest.warns(UserWarning, match="use_seedable_sampler"):
        run_loop(accelerator, run, loader)
    assert [draw.step for draw in run.stepper.draws] == KEPT


def test_resume_with_different_settings_raises(tmp_path):
    accelerator, run, loader = prepared(llama(), DrawStore(tmp_path / "draws"))
    run_loop(accelerator, run, loader, until=5, every=4, folder=tmp_path)
    other = Cyclical(steps=24, cycles=2, exploration=0.5, draws_per_cycle=2)
    accelerator, *_ = prepared(llama(), MemoryDraws(), schedule=other)
    with pytest.raises(SettingsMismatchError, match="schedule"):
        accelerator.load_state(str(tmp_path / "step-4"))


def test_skipped_steps_do_not_count():
    draws = MemoryDraws()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, backoff_factor=2.0**-45)
    accelerator, run, loader = prepared(llama(), draws, scaler=scaler)
    ticks = run_loop(accelerator, run, loader)
    skipped = sum(tick is None for tick in ticks)
    assert 0 < skipped < 6
    assert [tick.step for tick in ticks if tick] == list(range(12))
    assert run.seen == 12 + skipped
    assert [draw.step for draw in draws] == KEPT


def test_schedule_applies_to_prepared_sampler():
    _, run, _ = prepared(llama(), MemoryDraws())
    tick = SCHEDULE.apply(run.sampler, 1)
    (group,) = run.sampler.optimizer.param_groups  # pyright: ignore[reportAttributeAccessIssue]
    assert (group["lr"], group["temperature"]) == (0.05 * tick.lr_scale, 1.0)
    SCHEDULE.apply(run.sampler, 0)
    assert (group["lr"], group["temperature"]) == (0.05, 0.0)


def test_invalid_arguments_raise(tmp_path):
    model, data = llama(), sentences()
    accelerator = Accelerator(cpu=True)
    sampler = SGHMC(model.parameters(), num_data=num_targets(data, model), **OPTIONS)
    with pytest.raises(ValueError, match="sampler must be"):
        AcceleratedRun(accelerator, model, sampler, SCHEDULE, MemoryDraws())

    draws = MemoryDraws()
    parts = prepared(model, draws, gradient_accumulation_steps=2)
    accelerator, run, loader = parts
    with pytest.raises(ValueError, match="loader must be"):
        next(run.batches(DataLoader(data)))
    batches = run.batches(loader)
    with accelerator.accumulate(run.model):
        accelerator.backward(run.model(**next(batches)).loss)
        run.step()
    with pytest.raises(ValueError, match="save_state must be"):
        accelerator.save_state(str(tmp_path / "too-soon"))
    del batches
    with pytest.raises(ValueError, match="draws must be"):
        prepared(llama(), "runs")
    with pytest.raises(ValueError, match="schedule must be"):
        prepared(llama(), MemoryDraws(), schedule=12)  # pyright: ignore[reportArgumentType]

    run_loop(*prepared(llama(), draws))
    with pytest.raises(ValueError, match="chain 0 has draws already"):
        run_loop(*prepared(llama(), draws))


def test_wrong_num_data_warns():
    accelerator, run, loader = prepared(llama(), MemoryDraws(), num_data=3)
    with pytest.warns(SamplingWarning, match="num_data=3"):
        run_loop(accelerator, run, loader, until=1)
    accelerator, run, loader = prepared(llama(), MemoryDraws(), num_data=10_000)
    with pytest.warns(SamplingWarning, match="num_data=10000"):
        run_loop(accelerator, run, loader, until=1)


def test_number_of_sequences_as_num_data_raises():
    accelerator, run, loader = prepared(llama(), MemoryDraws(), num_data=len(sentences()))
    with pytest.raises(ValueError, match="num_data=12"):
        run_loop(accelerator, run, loader)


def test_stream_raises():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(sentences())

    accelerator, run, _ = prepared(llama(), MemoryDraws())
    with pytest.raises(ValueError, match="loader must have a length"):
        next(run.batches(accelerator.prepare(DataLoader(Stream(), batch_size=2))))


def test_sharded_model_raises(monkeypatch):
    accelerator, run, _ = prepared(llama(), MemoryDraws())
    monkeypatch.setattr(Accelerator, "distributed_type", DistributedType.DEEPSPEED)
    with pytest.raises(ValueError, match="DEEPSPEED shards"):
        AcceleratedRun(accelerator, run.model, run.sampler, SCHEDULE, MemoryDraws())


# In two processes


def torchrun(job: str, out: Path) -> "subprocess.CompletedProcess[str]":
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return subprocess.run(
        [*launcher, "--nproc-per-node=2", accelerate_jobs.__file__, job, str(out)],
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("job", ["accelerate", "trainer", "trainer-classes"])
def test_two_processes_equal_chain_with_twice_the_batch_size(tmp_path, job):
    result = torchrun(job, tmp_path)
    assert result.returncode == 0, result.stderr[-3000:]
    one, other = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert_same_draws(DrawStore(tmp_path / "draws"), accelerate_jobs.chained(job))


@pytest.mark.slow
@pytest.mark.parametrize("job", ["accelerate-seeds", "trainer-seeds"])
def test_processes_with_different_seeds_raise(tmp_path, job):
    result = torchrun(job, tmp_path)
    assert result.returncode != 0
    assert "have different seeds or chain numbers" in result.stderr
