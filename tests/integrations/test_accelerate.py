"""A loop with Accelerate and a `Stepper` keeps the draws of `Chain`, also after a resume."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState, GradientState
from torch.utils.data import DataLoader

from csgmcmc import SGHMC, Chain, Cyclical, DrawStore, MemoryDraws
from csgmcmc.errors import SettingsMismatchError
from csgmcmc.integrations.transformers import model_loss, num_targets
from tests.integrations import accelerate_jobs
from tests.integrations.accelerate_jobs import OPTIONS, SCHEDULE, run_loop
from tests.integrations.tiny import assert_same_draws, gpt2, llama, sentences
from tests.processes import PYTHONPATH

EXAMPLE = Path(__file__).parents[2] / "examples" / "accelerate_loop.py"


@pytest.fixture(autouse=True)
def _anew():
    """Accelerators of one process share their state, also with those of a `Trainer`."""
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def chained(batch_size, accumulate):
    data, model = sentences(), llama()
    sampler = SGHMC(model.parameters(), num_data=num_targets(data, model), seed=3, **OPTIONS)
    loader = DataLoader(data, batch_size=batch_size)
    chain = Chain(
        model, model_loss, loader, sampler, SCHEDULE, accumulate=accumulate, progress=False
    )
    return chain.run()


@pytest.mark.parametrize(("batch_size", "accumulate"), [(2, 1), (2, 2), (4, 2)])
def test_draws_equal_those_of_chain(batch_size, accumulate):
    """With three batches an epoch, a step of two has one of each of two epochs."""
    draws = MemoryDraws()
    stepper = run_loop(llama(), draws, batch_size=batch_size, accumulate=accumulate)
    assert stepper.done
    assert_same_draws(draws, chained(batch_size, accumulate))


@pytest.mark.parametrize(("until", "accumulate"), [(4, 1), (6, 1), (5, 2)])
def test_resumed_run_gives_the_same_draws(tmp_path, until, accumulate):
    """In the middle of an epoch of six batches, and between two; with shuffling and dropout."""

    def run(name, **options):
        options = {"folder": tmp_path / "saved", "shuffle": True, **options}
        return run_loop(
            gpt2(dropout=0.1), DrawStore(tmp_path / name), accumulate=accumulate, **options
        )

    torch.manual_seed(0)
    whole = run("whole").draws
    run("stopped", until=until)
    torch.manual_seed(99)  # as in another process
    resumed = run("stopped", resume=True)
    assert_same_draws(resumed.draws, whole, exactly=True)


def test_resume_with_different_settings_raises(tmp_path):
    run_loop(llama(), MemoryDraws(), folder=tmp_path, until=4)
    other = Cyclical(steps=24, cycles=2, exploration=0.5, draws_per_cycle=2)
    with pytest.raises(SettingsMismatchError, match="schedule"):
        run_loop(llama(), MemoryDraws(), folder=tmp_path, resume=True, schedule=other)


# In two processes


def torchrun(script: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    variables = {"PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    return subprocess.run(
        [*launcher, "--nproc-per-node=2", script, *map(str, arguments)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("job", ["accelerate", "trainer", "trainer-classes"])
def test_two_processes_equal_chain_with_twice_the_batch_size(tmp_path, job):
    result = torchrun(accelerate_jobs.__file__, job, tmp_path)
    assert result.returncode == 0, result.stderr[-3000:]
    one, other = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert_same_draws(DrawStore(tmp_path / "draws"), accelerate_jobs.chained(job))


@pytest.mark.slow
def test_two_processes_resume_exactly(tmp_path):
    result = torchrun(accelerate_jobs.__file__, "accelerate-resume", tmp_path)
    assert result.returncode == 0, result.stderr[-3000:]
    one, other = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)
    whole, resumed = DrawStore(tmp_path / "whole"), DrawStore(tmp_path / "draws")
    assert_same_draws(resumed, whole, exactly=True)


@pytest.mark.slow
def test_example_in_two_processes(tmp_path):
    result = torchrun(str(EXAMPLE), tmp_path)
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.count("12 draws: NLL 0.") == 1


@pytest.mark.slow
@pytest.mark.parametrize("job", ["accelerate-seeds", "trainer-seeds"])
def test_processes_with_different_seeds_raise(tmp_path, job):
    result = torchrun(accelerate_jobs.__file__, job, tmp_path)
    assert result.returncode != 0
    assert "have different seeds or chain numbers" in result.stderr
