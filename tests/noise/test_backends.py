"""Which kernels serve a device. Nothing here needs a GPU or Triton."""

import warnings
from types import SimpleNamespace

import pytest
import torch

from csgmcmc import SGHMC
from csgmcmc.noise import Noise, backends
from csgmcmc.noise.backends import load_kernels, refuse_capture

GPU = torch.device("cuda", 0)


@pytest.fixture
def attempts(monkeypatch):
    """The modules that are imported, and a module whose kernels do what a test says."""
    load_kernels.cache_clear()
    found = SimpleNamespace(imported=[], kernels=SimpleNamespace(try_out=lambda _: None))

    def import_module(name):
        found.imported.append(name)
        if isinstance(found.kernels, Exception):
            raise found.kernels
        return found.kernels

    monkeypatch.setattr(backends, "import_module", import_module)
    yield found
    load_kernels.cache_clear()


def test_a_gpu_is_served_by_triton_and_a_cpu_by_numba(attempts):
    assert load_kernels(GPU) is load_kernels(torch.device("cpu")) is attempts.kernels
    assert attempts.imported == ["csgmcmc.noise.triton_kernels", "csgmcmc.noise.numba_kernels"]


@pytest.mark.parametrize("device", ["meta", "mps", "xpu"])
def test_other_devices_are_served_by_torch_operations(attempts, device):
    assert load_kernels(torch.device(device)) is None
    assert attempts.imported == []


def test_triton_is_no_dependency(attempts):
    attempts.kernels = ImportError("No module named 'triton'")
    assert load_kernels(GPU) is None  # and no warning, which would be an error


def test_a_first_launch_that_fails_is_warned_of_once(attempts):
    def fail(_):
        raise RuntimeError("Failed to find C compiler\nat line 3")

    attempts.kernels.try_out = fail
    with pytest.warns(UserWarning, match="Failed to find C compiler") as warned:
        assert load_kernels(GPU) is None
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_kernels(GPU) is None


def test_a_step_is_not_captured_in_a_cuda_graph(monkeypatch):
    """Its noise would be the same in each replay."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(RuntimeError, match=r"CUDA graph.*noise of step 3"):
        refuse_capture(GPU, 3)
    refuse_capture(torch.device("cpu"), 3)


def test_noise_and_update_ask_whether_they_are_captured(monkeypatch):
    asked = []
    for module in ("source", "fused"):
        monkeypatch.setattr(f"csgmcmc.noise.{module}.refuse_capture", lambda *at: asked.append(at))
    param, cpu = torch.ones(3), torch.device("cpu")
    Noise(1).like([param], step=4)
    Noise(1).ahead(param, 2)
    param.grad = torch.ones(3)
    SGHMC([param], 0.1, num_data=1).step()
    assert asked == [(cpu, 4), (cpu, 0), (cpu, 0)]
