"""ImageNet in small: alone, and on two processes under torchrun."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from csgmcmc.draws import DrawStore
from paper.experiments import find_experiments, reproduce
from paper.experiments.imagenet import METHODS, Imagenet
from paper.pages import make_page

SHARED = Path(__file__).parents[4] / "shared" / "data"
EXPERIMENT = Imagenet()
RUN = """
import sys, torch
from pathlib import Path
from csgmcmc.distributed import shutdown_distributed
from paper.experiments import find_experiments, reproduce
torch.set_num_threads(1)
reproduce(find_experiments()["imagenet"], "smoke", Path(sys.argv[1]), data=Path(sys.argv[2]))
shutdown_distributed()
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Two classes, dark and bright."""
    root, rng = tmp_path_factory.mktemp("imagenet"), np.random.default_rng(0)
    for part, count in (("train", 24), ("val", 9)):
        for name, level in (("n01", 60), ("n02", 200)):
            folder = root / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = rng.normal(level, 20, (20, 24, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.JPEG")
    return root


def torchrun(out: Path, data: Path) -> dict:
    script = out.parent / "run.py"
    script.write_text(RUN)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    root = Path(__file__).parents[3]
    path = os.pathsep.join([str(root / "src"), str(root)])
    result = subprocess.run(
        [*launcher, "--nproc-per-node=2", str(script), str(out), str(data)],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads((out / "imagenet.json").read_text())


def check(results: dict, tested: int, processes: int) -> None:
    assert results["finished"]
    assert [record["method"] for record in results["records"].values()] == list(METHODS)
    for record in results["records"].values():
        found = record["scores"]
        assert found["tested"] == tested
        assert record["processes"] == processes
        assert 0 <= found["top5_error"] <= found["top1_error"] <= 1
        assert 0 <= found["nll"] < 10
    draws = [record["scores"]["draws"] for record in results["records"].values()]
    assert draws == [1, 3, 3, 3]
    page = make_page(results)
    assert len(page.claims) == 2


def test_the_settings_of_the_paper():
    config = EXPERIMENT.presets["paper"]
    runs = {method: config.run(method, 0) for method in METHODS}
    schedules = {method: run.schedule(10) for method, run in runs.items()}
    assert {schedule.steps for schedule in schedules.values()} == {1200}
    kept = [schedules[method].total_draws for method in METHODS]
    assert kept == [1, 3, 9, 9]
    assert sum(param.numel() for param in config.network.make(1000).parameters()) > 25e6


def test_alone(data, tmp_path):
    results = reproduce(find_experiments()["imagenet"], "smoke", tmp_path, data=data)
    check(vars(results), tested=18, processes=1)
    with pytest.raises(ValueError, match="--data"):
        reproduce(EXPERIMENT, "smoke", tmp_path / "none")


def test_two_processes_share_the_work_and_one_writes(data, tmp_path):
    out = tmp_path / "out"
    results = torchrun(out, data)
    check(results, tested=18, processes=2)
    store = DrawStore(out / "draws" / "imagenet" / "cSGHMC-seed0")
    assert store.problems == []
    assert len(store) == 3
    # Of 48 images two processes take 24 each, in 6 batches of 4 each an epoch, 4 epochs long.
    assert store[-1].step == 23


@pytest.mark.skipif(not (SHARED / "tiny-imagenet-20.tar").exists(), reason="no data at hand")
def test_two_processes_on_the_real_slice(tmp_path):
    check(torchrun(tmp_path / "out", SHARED), tested=400, processes=2)
