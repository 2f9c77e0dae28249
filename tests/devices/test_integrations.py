"""Lightning, the Hugging Face Trainer and Accelerate on the device keep the draws of the CPU.

All three accept the simulated device in one process: Lightning as an accelerator of one's own, the
other two by the variable ACCELERATE_TORCH_DEVICE. Processes that share gradients need a backend of
torch.distributed for the device, which the simulated one has not.
"""

from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState, GradientState
from lightning.pytorch.accelerators import Accelerator
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import SingleDeviceStrategy

from csgmcmc import DrawStore, MemoryDraws
from csgmcmc.integrations.lightning import ResumableLoader, SamplingCallback
from tests.devices.support import assert_same_draws
from tests.integrations import lightning_support as lightning
from tests.integrations import trainer_support as trainer
from tests.integrations.accelerate_jobs import run_loop
from tests.integrations.tiny import llama, sentences

CPU = torch.device("cpu")


# Lightning


class TheDevice(Accelerator):
    """What Lightning asks of a device that it does not know."""

    def setup_device(self, device: torch.device) -> None:
        assert device.type != "cpu"

    def teardown(self) -> None:
        """There is nothing to free."""

    @staticmethod
    def parse_devices(devices: Any) -> Any:
        return devices

    @staticmethod
    def get_parallel_devices(devices: Any) -> Any:
        return devices

    @staticmethod
    def auto_device_count() -> int:
        return 1

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def name() -> str:
        return "sim"


def on(device) -> dict[str, Any]:
    if device.type != "sim":
        return {"accelerator": device.type, "devices": 1}
    # Not by the name of an accelerator: its registry would outlive the test.
    strategy = SingleDeviceStrategy(device=torch.device("sim", 0), accelerator=TheDevice())
    return {"accelerator": "auto", "strategy": strategy}


def test_lightning(device):
    found = lightning.fit(lightning.Network(fused=False), **on(device))
    expected = lightning.fit(lightning.Network(fused=False))
    assert_same_draws(found, expected, device)


def test_lightning_resumes_with_dropout(device, tmp_path):
    def run(name, *callbacks, path=None):
        torch.manual_seed(4)
        module, store = lightning.Network(dropout=0.3, fused=False), DrawStore(tmp_path / name)
        saves = ModelCheckpoint(
            tmp_path / f"{name}-saves", "last", every_n_train_steps=7, enable_version_counter=False
        )
        callback = SamplingCallback(lightning.SCHEDULE, store)
        made = lightning.make_trainer(callback, saves, *callbacks, **on(device))
        made.fit(module, ResumableLoader(lightning.in_order()), ckpt_path=path, weights_only=True)
        return store

    whole = run("whole")
    with pytest.raises(lightning.Stopped):
        run("cut", lightning.StopAt(33))
    torch.randn(5, device=device)
    resumed = run("cut", path=tmp_path / "cut-saves" / "last.ckpt")
    assert_same_draws(resumed, whole, CPU)


# Accelerate and the Trainer, which stands on it


@pytest.fixture
def _anew(device, monkeypatch):
    """Accelerators of one process share their state."""
    if device.type == "sim":
        monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "sim")

    def reset():
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()

    reset()
    yield reset
    reset()


def assert_close_draws(found, expected):
    """To rounding: the losses of these models are rounded otherwise there."""
    for one, other in zip(found, expected, strict=True):
        moved = {name: tensor.cpu() for name, tensor in one.tensors().items()}
        torch.testing.assert_close(moved, other.tensors(), rtol=1e-3, atol=1e-5)


def test_accelerate(device, monkeypatch, _anew):  # noqa: PT019  (it is called)
    found = []
    for cpu in (False, True):
        if cpu:  # the variable would be stronger
            monkeypatch.delenv("ACCELERATE_TORCH_DEVICE", raising=False)
        _anew()
        model, draws = llama(), MemoryDraws()
        run_loop(model, draws, cpu=cpu, fused=False)
        assert next(model.parameters()).device.type == ("cpu" if cpu else device.type)
        found.append(draws)
    assert_close_draws(*found)


def test_the_trainer(device, tmp_path, monkeypatch, _anew):  # noqa: PT019  (it is called)
    found = []
    for name, use_cpu in (("device", False), ("cpu", True)):
        if use_cpu:  # the variable would be stronger
            monkeypatch.delenv("ACCELERATE_TORCH_DEVICE", raising=False)
        _anew()
        model, data, draws = llama(), sentences(), MemoryDraws()
        parts = trainer.manual(model, data, draws, fused=False)
        trainer.trained(tmp_path / name, model, data, draws=draws, parts=parts, use_cpu=use_cpu)
        expected = "cpu" if use_cpu else device.type
        assert next(model.parameters()).device.type == expected
        found.append(draws)
    assert_close_draws(*found)
