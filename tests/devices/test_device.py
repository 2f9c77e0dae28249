"""The device itself: what is refused on a GPU is refused here."""

import copy
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.processes import PYTHONPATH

ROOT = Path(__file__).parents[2]
FOLLOW = """
import ctypes, torch
from tests import sim_device
sim_device.load()
tensor = torch.ones(2, device="sim")
assert ctypes.string_at(torch.ones(2).data_ptr(), 8)
print("now", flush=True)
ctypes.string_at(tensor.data_ptr(), 8)
"""


@pytest.fixture
def simulated(device):
    if device.type != "sim":
        pytest.skip("of the simulated device only")


def test_tensors_of_two_devices_are_refused(device):
    tensor = torch.ones(3, device=device)
    assert torch.equal((tensor + torch.tensor(1.0)).cpu(), 2 * torch.ones(3))  # a number may be
    for operation in (torch.add, torch.mul, torch.matmul, torch.dot):
        with pytest.raises(RuntimeError, match=r"same device|on cpu"):
            operation(tensor, torch.ones(3))
    with pytest.raises(RuntimeError, match=r"same device|on cpu"):
        nn.Linear(3, 2).to(device)(torch.ones(1, 3))
    with pytest.raises(TypeError, match="numpy"):
        tensor.numpy()


def test_a_generator_of_the_cpu_is_refused(device):
    with pytest.raises(RuntimeError, match="generator"):
        torch.randn(3, generator=torch.Generator(), device=device)
    one, other = (torch.Generator(device).manual_seed(1) for _ in range(2))
    drawn = [torch.randn(3, generator=each, device=device) for each in (one, other)]
    assert torch.equal(*drawn)


def test_the_cpu_cannot_follow_a_pointer_of_the_device(simulated):
    command, env = [sys.executable, "-c", FOLLOW], {**os.environ, "PYTHONPATH": PYTHONPATH}
    ended = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, check=False)
    assert ended.stdout == b"now\n", ended.stderr.decode()
    assert ended.returncode == -signal.SIGSEGV


def test_its_numbers_are_those_of_the_cpu(simulated):
    torch.manual_seed(3)
    expected = torch.randn(5)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    assert torch.equal(torch.randn(5, device="sim").cpu(), expected)
    assert torch.equal(torch.get_rng_state(), state)  # that of the device has moved on


def test_a_network_trains_to_the_bits_of_the_cpu(simulated):
    plain = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(32, 3))
    moved = copy.deepcopy(plain)
    first = moved[0].weight
    assert moved.to("sim")[0].weight is first  # as on a GPU: optimizers keep their parameters
    for model, where in ((plain, "cpu"), (moved, "sim")):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(0)
        for _ in range(3):
            images = torch.randn(4, 1, 6, 6, generator=generator).to(where)
            labels = torch.randint(3, (4,), generator=generator).to(where)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
    for name, value in plain.state_dict().items():
        assert torch.equal(moved.state_dict()[name].cpu(), value), name


def test_storage_views_and_sizes(simulated):
    tensor = torch.arange(6.0, device="sim:1").reshape(2, 3)
    tensor.t()[1:].mul_(10)
    assert tensor.cpu().tolist() == [[0, 10, 20], [3, 40, 50]]
    out = torch.empty(0, device="sim:1")
    torch.add(tensor, 1, out=out)
    assert out.shape == (2, 3)
    assert out.device == torch.device("sim:1")
    copied = copy.deepcopy([tensor, tensor[0]])  # which share their memory
    copied[1].zero_()
    assert copied[0].cpu().tolist() == [[0, 0, 0], [3, 40, 50]]
    assert tensor[0].cpu().tolist() == [0, 10, 20]
