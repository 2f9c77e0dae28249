"""The library on another device than the CPU.

    python -m pytest tests/devices --device sim     # made of the CPU's memory: tests/sim_device
    python -m pytest tests/devices --device cuda    # or any other that torch has here

Without `--device` there is nothing to collect: a process cannot be rid of the simulated device, so
that tests/test_second_device.py, one of the slow tests, runs this folder in a process of its own.
"""

import pytest
import torch

from tests import sim_device


def pytest_addoption(parser):
    parser.addoption("--device", help="where the tests of tests/devices run: sim, cuda, ...")


def _named(config) -> str | None:
    return config.getoption("--device", None)


def pytest_configure(config):
    if (_named(config) or "").startswith("sim"):
        if reason := sim_device.why_not():
            pytest.exit(reason, returncode=5)
        sim_device.load()


def pytest_ignore_collect(collection_path, config):
    return True if _named(config) is None and collection_path.name.startswith("test_") else None


@pytest.fixture(scope="session")
def device(request) -> torch.device:
    return torch.device(str(_named(request.config)))


@pytest.fixture
def default_device(device):
    """As after `torch.set_default_device(device)`."""
    torch.set_default_device(device)
    yield device
    torch.set_default_device(None)
