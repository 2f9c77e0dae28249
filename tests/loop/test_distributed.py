"""Chains x replicas in real processes."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from csgmcmc import SGHMC, Chain, Constant, DrawStore
from csgmcmc.distributed import ProcessLayout, init_distributed
from csgmcmc.errors import StoreWarning
from tests.loop import torchrun_jobs
from tests.processes import PYTHONPATH, all_succeed
from tests.support import SIGMAS


def torchrun(job: str, out: Path, processes: int, restarts: int = 0, **environment: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*launcher, f"--nproc-per-node={processes}", f"--max-restarts={restarts}"]
    variables = {**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1", **environment}
    result = subprocess.run(
        [*command, torchrun_jobs.__file__, job, str(out)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]


def test_replicas_stay_equal_and_chains_are_independent(tmp_path):
    all_succeed(torchrun_jobs.replicas, tmp_path, processes=4)
    ends = {
        (chain, replica): torch.load(tmp_path / f"{chain}-{replica}.pt")
        for chain in range(2)
        for replica in range(2)
    }
    for chain in range(2):
        one, other = ends[chain, 0], ends[chain, 1]
        for ours, theirs in zip(one["params"], other["params"], strict=True):
            assert torch.equal(ours, theirs)
        assert torch.equal(one["noise"], other["noise"])
    # The weights would differ through the order of the data alone: look at the noise itself.
    noise = torch.stack([ends[chain, 0]["noise"] for chain in range(2)])
    assert abs(float(torch.corrcoef(noise)[0, 1])) < SIGMAS / noise.shape[1] ** 0.5

    store = DrawStore(tmp_path / "store")
    assert store.chain_ids == [0, 1]
    assert len(store) == 8
    assert store.problems == []
    last = store.of_chain(1)[-1].tensors()
    assert torch.equal(last["3.weight"], ends[1, 0]["params"][4])


def test_a_killed_worker_is_started_again_and_goes_on(tmp_path):
    torchrun("restart", tmp_path / "whole", processes=2)
    torchrun("restart", tmp_path / "killed", processes=2, restarts=2, DIE="yes")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        whole, killed = (DrawStore(tmp_path / name / "store") for name in ("whole", "killed"))
    assert len(whole) == len(killed) == 10
    for one, other in zip(whole, killed, strict=True):
        assert one == other
        ours, theirs = one.tensors(), other.tensors()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_sharded_chain_draws_the_noise_of_the_whole_one_and_follows_its_path(tmp_path):
    """The noise bit for bit, the path to rounding: gradients are summed in another order."""
    all_succeed(torchrun_jobs.shards, tmp_path, processes=2)
    for fused in (None, False):
        model = torchrun_jobs.sharded_network()
        sampler = torchrun_jobs.run_sharded(model, tmp_path / f"whole-{fused}", fused)
        shards = [torch.load(tmp_path / f"noise-{fused}-{replica}.pt") for replica in range(2)]
        whole = sampler.noise.like(list(model.parameters()))
        assert sampler.noise.step == 12
        for first, second, both in zip(*shards, whole, strict=True):
            assert torch.equal(torch.cat([first, second]), both)
        ours, theirs = (DrawStore(tmp_path / f"{name}-{fused}") for name in ("fused", "whole"))
        assert len(ours) == len(theirs) == 3
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one.tensors(), other.tensors(), rtol=1e-5, atol=1e-6)


def test_shards_restart_as_the_whole_and_replicas_stay_equal(tmp_path):
    all_succeed(torchrun_jobs.restarts, tmp_path, processes=2)
    schedule = torchrun_jobs.RESTARTING
    whole = torchrun_jobs.sharded_network()
    torchrun_jobs.run_sharded(whole, tmp_path / "whole", None, schedule=schedule)
    ours, theirs = (DrawStore(tmp_path / name) for name in ("sharded", "whole"))
    assert len(ours) == len(theirs) == 3
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.tensors(), other.tensors(), rtol=1e-5, atol=1e-6)
    replicas = [torch.load(tmp_path / f"{replica}.pt") for replica in range(2)]
    for one, other in zip(*replicas, strict=True):
        assert torch.equal(one, other)


def test_noise_of_parameters_that_are_sharded_in_two_dimensions(tmp_path):
    all_succeed(torchrun_jobs.two_dimensions, tmp_path, processes=4)
    assert len(list(tmp_path.glob("*.txt"))) == 4


def test_replicas_without_a_common_seed_are_refused(tmp_path):
    all_succeed(torchrun_jobs.seeds, tmp_path, processes=2)
    for replica in range(2):
        assert "have different seeds" in (tmp_path / f"{replica}.txt").read_text()


def test_alone_it_is_one_chain(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert init_distributed() == ProcessLayout()
    with pytest.raises(ValueError, match="chains=2 does not divide the 1 processes"):
        init_distributed(chains=2)


def test_the_sampler_must_be_of_the_processs_chain():
    model = torch.nn.Linear(2, 2)
    sampler = SGHMC(model.parameters(), lr=0.1, num_data=1)
    with pytest.raises(ValueError, match=r"chain_id=layout\.chain_id"):
        Chain(model, None, None, sampler, Constant(3), layout=ProcessLayout(chain_id=1, chains=2))
