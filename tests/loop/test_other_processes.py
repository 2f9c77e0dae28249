"""A chain resumes with another number of processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch.utils.data import TensorDataset

from csgmcmc import DrawStore
from csgmcmc.distributed import ProcessLayout
from csgmcmc.errors import StoreError, StoreWarning
from csgmcmc.loop.checkpoint import Checkpoints
from tests.loop import elastic_jobs
from tests.loop.elastic_jobs import BATCH, STEPS, run
from tests.processes import PYTHONPATH, all_succeed, free_port, run_together


def batches(out: Path) -> list[list[int]]:
    """The examples of each step, over all processes that took part in it."""
    found = []
    for step in range(STEPS):
        count = int(next(out.glob(f"batch-{step}-0-of-*.json")).stem.rpartition("-")[2])
        files = [out / f"batch-{step}-{replica}-of-{count}.json" for replica in range(count)]
        found.append(sorted(number for file in files for number in json.loads(file.read_text())))
    return found


def assert_same_path(one: Path, other: Path) -> None:
    """The same batches, and the same draws but for rounding: sums are in another order."""
    assert batches(one) == batches(other)
    ours, theirs = (DrawStore(out / "store") for out in (one, other))
    assert [draw.step for draw in ours] == [draw.step for draw in theirs] == [4, 9, 14, 19, 24, 29]
    for mine, yours in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.tensors(), yours.tensors(), rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    """The run of one process, with the whole model."""
    out = tmp_path_factory.mktemp("alone")
    all_succeed(run, out, processes=1, sharded=False)
    return out


WAYS = [
    pytest.param(False, id="replicas", marks=pytest.mark.slow),
    pytest.param(True, id="sharded"),
]


@pytest.mark.parametrize("sharded", WAYS)
def test_resume_with_fewer_and_more_processes(alone, tmp_path, sharded):
    # Each part ends after its last checkpoint, so that the next one repeats steps and a draw.
    with warnings.catch_warnings(action="ignore"):
        all_succeed(run, tmp_path, processes=4, sharded=sharded, until=10)
        all_succeed(run, tmp_path, processes=2, sharded=sharded, until=18)
        all_succeed(run, tmp_path, processes=1, sharded=sharded, until=23)
        all_succeed(run, tmp_path, processes=2, sharded=sharded)
    for path in [
        *tmp_path.glob("batch-[89]-*-of-4.json"),
        *tmp_path.glob("batch-1[67]-*-of-2.json"),
    ]:
        path.unlink()  # steps that were taken again
    assert_same_path(alone, tmp_path)
    left = [path.name for path in (tmp_path / "store" / "checkpoints").iterdir()]
    assert sum(name.endswith(".pt") for name in left) == 2
    assert sum(name.endswith(".safetensors") for name in left) == (2 if sharded else 0)
    assert not any(name.endswith(".part") for name in left)


# The sums of one process are rounded differently.
@pytest.mark.filterwarnings("ignore:the run does not continue exactly")
def test_damaged_tensors_of_a_checkpoint_are_named_and_the_one_before_is_used(tmp_path):
    all_succeed(run, tmp_path, processes=2, sharded=True, until=10)
    for end in ("flipped", "truncated"):
        out = tmp_path / end
        shutil.copytree(tmp_path / "store", out / "store")
        file = next((out / "store" / "checkpoints").glob("0000-000000008-*.safetensors"))
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content if end == "flipped" else content[:-1])
        with pytest.warns(StoreWarning, match=rf"{file.name}.*; the other one is used"):
            run(out, sharded=True, until=6)
        assert {path.name for path in out.glob("batch-*")} == {
            f"batch-{step}-0-of-1.json" for step in (4, 5)
        }


def test_processes_must_see_the_same_folder(tmp_path):
    for rank in range(2):
        (tmp_path / f"machine-{rank}").mkdir()
    all_succeed(elastic_jobs.two_folders, tmp_path, processes=2)
    for rank in range(2):
        said = (tmp_path / f"said-{rank}.txt").read_text()
        assert "of process 1 of chain 0 is not that of its first process" in said
        assert "all processes must see the same folder" in said
    assert not list(tmp_path.glob("machine-*/**/*.part"))


@pytest.mark.parametrize("examples", [40, 45])
def test_batches_are_the_same_for_any_number_of_replicas(examples):
    data = TensorDataset(torch.arange(examples))

    def steps(replicas: int) -> list[set[int]]:
        share = BATCH // replicas
        orders = []
        for replica_id in range(replicas):
            layout = ProcessLayout(replica_id=replica_id, replicas=replicas)
            orders.append(list(layout.data_sampler(data, global_batch_size=BATCH)))
        return [
            {number for order in orders for number in order[start : start + share]}
            for start in range(0, len(orders[0]), share)
        ]

    assert steps(1) == steps(2) == steps(4)
    assert set.union(*steps(1)) == set(range(examples))


def test_global_batch_size_must_divide():
    layout, data = ProcessLayout(replicas=3), TensorDataset(torch.arange(5))
    with pytest.raises(ValueError, match="global_batch_size"):
        layout.data_sampler(data, global_batch_size=8)


def kill_with_children(process_id: int) -> None:
    """As a machine that fails would; torchrun's workers have sessions of their own."""
    children = Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split()
    for each in (process_id, *map(int, children)):
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(each, signal.SIGKILL)


@pytest.mark.slow
def test_a_run_that_loses_a_node_goes_on(alone, tmp_path):
    """Two agents of torchrun are two nodes; one of them is killed, with its worker."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1:2", "--max-restarts=5"]
    rendezvous = ["--rdzv-backend=c10d", "--rdzv-id=lost", "--nproc-per-node=1"]
    quick = "last_call_timeout=2,join_timeout=300,keep_alive_interval=2,keep_alive_max_attempt=8"
    variables = {**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"}
    port = free_port()

    def agent(is_host: int) -> subprocess.Popen:
        options = [f"--rdzv-endpoint=127.0.0.1:{port}", f"--rdzv-conf={quick},is_host={is_host}"]
        command = [*launcher, *rendezvous, *options, elastic_jobs.__file__, str(tmp_path), "0.3"]
        return subprocess.Popen(command, env=variables)

    stays, lost = agent(1), agent(0)
    try:
        end = time.monotonic() + 300
        while not list(tmp_path.glob("batch-9-1-of-2.json")) and time.monotonic() < end:
            time.sleep(0.05)
        kill_with_children(lost.pid)
        assert stays.wait(timeout=400) == 0
    finally:
        for one in (stays, lost):
            if one.poll() is None:
                kill_with_children(one.pid)
    assert (tmp_path / f"batch-{STEPS - 1}-0-of-1.json").exists()
    for stale in tmp_path.glob("batch-*-of-2.json"):
        step = stale.stem.split("-")[1]
        if (tmp_path / f"batch-{step}-0-of-1.json").exists():
            stale.unlink()  # a step that was taken again
    assert_same_path(alone, tmp_path)


def test_waiting_processes_end_when_one_fails(tmp_path):
    run_together(elastic_jobs.fail_alone, tmp_path, processes=2)
    assert len(list(tmp_path.glob("left-*"))) == 2


def test_kill_while_a_checkpoint_is_written_by_fewer_processes(tmp_path):
    """Its tensors are not committed, and those of the checkpoint before stay."""
    run_together(elastic_jobs.killed_in_the_first_step, tmp_path, processes=2)
    run_together(elastic_jobs.killed_in_a_checkpoint, tmp_path, processes=1)
    for error in tmp_path.glob("error-*.txt"):
        error.unlink()
    all_succeed(run, tmp_path, processes=2, sharded=True, until=6)


def test_saving_a_step_again_replaces_nothing_in_use(tmp_path):
    """A run that is killed before it commits leaves the older checkpoint of the same step whole."""
    all_succeed(run, tmp_path, processes=2, sharded=True, until=10)
    folder = tmp_path / "store" / "checkpoints"
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".lock"}
    run_together(elastic_jobs.killed_in_a_checkpoint, tmp_path, processes=1)
    assert before.items() <= {path.name: path.read_bytes() for path in folder.iterdir()}.items()
    for error in tmp_path.glob("error-*.txt"):
        error.unlink()
    all_succeed(run, tmp_path, processes=2, sharded=True, until=14)
    assert len(list(folder.glob("*.safetensors*"))) == 2


def test_checkpoint_of_a_sharded_run_of_0_2_0_is_refused(tmp_path):
    checkpoints = Checkpoints(tmp_path, "0000")
    checkpoints.save({"taken": 4})
    state = torch.load(checkpoints.newest, weights_only=True)
    torch.save({**state, "shards": {"checksum": "0", "sizes": {}}}, checkpoints.newest)
    with pytest.raises(StoreError, match=r"0\.2 with a sharded model.*finish the run"):
        Checkpoints(tmp_path, "0000").load(lambda _: None, ProcessLayout())
