"""A second device for tests: `load()` adds "sim", with sim:0 and sim:1, to torch.

It shows what else only a GPU would: tensors of two devices in one operation, the CPU reading a
pointer of the device, and generators whose state was not saved. Its numbers are the CPU's. A
process that has loaded it cannot be rid of it, so that its tests are in processes of their own.
"""

import os
import platform
import shutil
import sys
import tempfile
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch.utils import cpp_extension

SOURCE = Path(__file__).with_name("sim.cpp")


def why_not() -> str | None:
    """The reason why the device cannot be built here, or None."""
    if sys.platform != "linux":
        return "the simulated device is built on Linux only"
    for program in (cpp_extension.get_cxx_compiler(), "ninja"):
        if _which(program) is None:
            return f"the simulated device is built by {program}, which is not installed"
    return None


def build() -> Any:
    """The compiled module: built once for each version of torch, in the folder for such caches."""
    names = (f"python{sys.version_info.major}{sys.version_info.minor}", torch.__version__)
    root = os.environ.get(
        "TORCH_EXTENSIONS_DIR", Path(tempfile.gettempdir()) / f"sim-{os.getuid()}"
    )
    folder = Path(root, "csgmcmc_sim", *names, platform.machine())
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], str(Path(sys.executable).parent)])
    with FileLock(folder / "build.lock"):  # of several test workers, one builds it
        return cpp_extension.load(
            "csgmcmc_sim", [str(SOURCE)], extra_cflags=["-O1", "-g0"], build_directory=str(folder)
        )


def load() -> None:
    """Add the device to torch, in this process."""
    torch.utils.rename_privateuse1_backend("sim")
    native = build()

    def index_of(device: Any) -> int:
        index = device if isinstance(device, int) else torch.device(device).index
        return native.current_device() if index is None else index

    @contextmanager
    def chosen(device: Any) -> Iterator[None]:
        before = native.current_device()
        native.set_device(index_of(device))
        try:
            yield
        finally:
            native.set_device(before)

    def manual_seed_all(seed: int) -> None:
        for index in range(native.device_count()):
            native.default_generator(index).manual_seed(seed)

    def get_rng_state(device: Any = "sim") -> torch.Tensor:
        return native.default_generator(index_of(device)).get_state()

    def set_rng_state(state: torch.Tensor, device: Any = "sim") -> None:
        native.default_generator(index_of(device)).set_state(state)

    def synchronize(device: Any = None) -> None:
        """Everything is synchronous already."""

    module: Any = types.ModuleType("torch.sim")
    module.is_available = module.is_initialized = lambda: True
    module._is_in_bad_fork = lambda: False
    module.device = chosen
    module.device_count = native.device_count
    module.current_device = native.current_device
    module.set_device = lambda device: native.set_device(index_of(device))
    module.synchronize = synchronize
    module.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    module.manual_seed_all = manual_seed_all
    module.manual_seed = lambda seed: native.default_generator(index_of("sim")).manual_seed(seed)
    module.get_rng_state, module.set_rng_state = get_rng_state, set_rng_state
    torch._register_device_module("sim", module)
    sys.modules["torch.sim"] = module
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)


def _which(program: str) -> str | None:
    """Where a program is, also one that was installed beside Python."""
    places = os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.executable).parent)])
    return shutil.which(program, path=places)
