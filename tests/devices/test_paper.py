"""Every experiment of the paper takes some steps on the device, to the CPU's records."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from paper.devices import on
from paper.experiments import find_experiments
from paper.experiments.deep_settings import PAPER
from paper.experiments.truth_data import load
from paper.experiments.truth_runs import RUNS, Plan, Problem, run
from paper.rivals import SWAG, diagonal_laplace, dropout_draws, last_layer_laplace, linearised_probs
from paper.targets import GaussianTarget, Mixture25
from paper.tests.data.archives import write_cifar, write_mnist
from tests.devices.support import assert_equal, assert_same_draws, points

CPU = torch.device("cpu")
SHORTER = {"logistic": {"steps": 200, "burn_in": 100}}
"""Settings in place of those of the preset "smoke", by the name of the experiment."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for name in ("cifar10", "cifar100"):
        write_cifar(folder, name, train=70, test=20)
    write_mnist(folder)
    return folder


@pytest.fixture(autouse=True)
def _unfused(monkeypatch):
    """Kernels of one device round otherwise than the operators of another."""
    monkeypatch.setattr("csgmcmc.samplers.fused.can_fuse", lambda *_: False)


def some_records(experiment, where, data, out):
    """Of the first and the last job, and of those that follow if there are no more."""
    config, done = experiment.presets["smoke"], {}
    config = replace(config, **SHORTER.get(experiment.name, {}))
    further = {"draws": out} if experiment.keeps_draws else {}
    while True:
        missing = {
            key: job for key, job in experiment.jobs(config, done).items() if key not in done
        }
        if not missing:
            return done
        keys = list(missing)
        for key in dict.fromkeys((keys[0], keys[-1])):
            with on(where):
                record = experiment.run(config, data, **missing[key], **further)
            done[key] = json.loads(json.dumps(record))
        if len(keys) > 2:
            return done


@pytest.mark.parametrize("name", [name for name in find_experiments() if name != "imagenet"])
def test_every_experiment(name, data, device, tmp_path):
    experiment = find_experiments()[name]
    found = some_records(experiment, str(device), data, tmp_path / "device")
    expected = some_records(experiment, None, data, tmp_path / "cpu")
    assert found.keys() == expected.keys()
    if device.type == "sim":
        assert found == expected


@pytest.fixture
def images(tmp_path):
    """Two classes, dark and bright."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 24), ("val", 9)):
        for name, level in (("n01", 60), ("n02", 200)):
            folder = tmp_path / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = rng.normal(level, 20, (20, 24, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.JPEG")
    return tmp_path


def test_imagenet(images, device, tmp_path):
    """Its processes take the devices of the machine by themselves."""
    experiment = find_experiments()["imagenet"]
    config = replace(experiment.presets["smoke"], epochs=1, cycles=1)
    job = experiment.jobs(config, {})["cSGHMC, seed 0"]
    with on(str(device)):
        record = experiment.run(config, images, **job, draws=tmp_path / "draws")
    assert record["scores"]["tested"] == 18
    assert record["scores"]["draws"] == 1


def test_the_papers_network_on_cifar(data, device, tmp_path):
    """ResNet-18, four steps of the preset paper's cSGHMC on few images, scored and resumed."""
    setting = replace(PAPER["cifar10"], epochs=4, cycles=2, train=64, test=20, draws_per_cycle=1)
    setting = replace(setting, exploration=0.4)
    run = setting.run("cSGHMC", 0.1, seed=0)
    job = {"part": "chain", "setting": setting, "run": run, "draws": tmp_path}
    experiment = find_experiments()["cifar"]
    with on(str(device)):
        records = [experiment.run(experiment.presets["paper"], data, **job) for _ in range(2)]
    assert records[0] == records[1]  # the draws are found again
    assert records[0]["scores"]["draws"] == 2


def test_the_papers_network_on_imagenet(images, device, tmp_path):
    """ResNet-50, four steps."""
    experiment = find_experiments()["imagenet"]
    config = experiment.presets["paper"]
    network = replace(config.network, batch=24)
    config = replace(config, network=network, size=32, epochs=2, cycles=1, loaders=0)
    config = replace(config, draws_per_cycle=1, exploration=0.5)
    job = experiment.jobs(config, {})["cSGHMC, seed 0"]
    with on(str(device)):
        record = experiment.run(config, images, **job, draws=tmp_path / "draws")
    assert record["scores"]["tested"] == 18


@pytest.mark.parametrize("trained", RUNS)
def test_every_method_beside_long_hmc(trained, device):
    problem = Problem("moons", (2, 4, 2), batch=20, weight_decay=1e-2)
    plan = Plan(100, 2, 2, exploration=0.5, momentum=0.9, dropout=0.1)
    found = []
    for where in (device, CPU):
        with on(str(where)):
            found.append(run(trained, problem, plan, load("moons").to(where), 0.01, 2))
    for method in RUNS[trained]:
        for one, other in zip(found[0][method], found[1][method], strict=True):
            assert_equal(one[0], other[0], device)


def test_rivals(device):
    inputs, labels = points(12).tensors
    results = []
    for where in (device, CPU):
        torch.manual_seed(2)
        model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)).to(where)
        batches = [(inputs, labels)]  # on the CPU, as those of the experiments
        diagonal = diagonal_laplace(model, batches, 0.1, 2, seed=0, sampled_labels=True)
        exact = diagonal_laplace(model, batches, 0.1, 2, seed=0)
        swag = SWAG(model, 3)
        for scale in (1.0, 1.1, 1.2):
            swag.collect({name: scale * each for name, each in model.state_dict().items()})
        kept = [
            diagonal,
            exact,
            last_layer_laplace(model, batches, 0.1, 2, seed=0),
            dropout_draws(model, 0.2, 2, seed=0),
            swag.draws(2, seed=0),
        ]
        results.append((kept, linearised_probs(model, exact, inputs)))
    for found, expected in zip(results[0][0], results[1][0], strict=True):
        assert_same_draws(found, expected, device)
    assert_equal(results[0][1], results[1][1], device)


def gaussian(where):
    return GaussianTarget(torch.ones(2, device=where), torch.eye(2, device=where) + 0.2)


def mixture(where):
    return Mixture25(device=where)


@pytest.mark.parametrize("make", [gaussian, mixture])
def test_targets(make, device):
    found = []
    for where in (device, CPU):
        target = make(where)
        drawn = target.sample(4, torch.Generator().manual_seed(0))
        found.append([drawn, target.potential(drawn), target.gradient(drawn), target.covariance])
    assert all(tensor.device.type == device.type for tensor in found[0])
    assert_equal(found[0], found[1], device)


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="device"), on("nowhere"):
        pass
