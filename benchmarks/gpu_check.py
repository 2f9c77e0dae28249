"""Checks the kernels on a real GPU: bits, speed beside torch SGD, and the tests of devices.

`make gpu-check` runs this. docs/performance.md says what it should print.
"""

import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from csgmcmc import SGHMC
from csgmcmc.noise import Noise
from csgmcmc.noise.backends import load_kernels
from paper.networks import resnet50

ROOT = Path(__file__).parents[1]
OPTIONS: dict[str, Any] = {"momentum": 0.9, "weight_decay": 5e-4}
ROUNDS, STEPS = 15, 20


def made_parameters(device: torch.device) -> list[torch.Tensor]:
    """Those of a ResNet-50, each with a gradient; the same numbers on every device."""
    torch.manual_seed(0)
    params = [param.detach() for param in resnet50(1000).parameters()]
    made = [param.to(device) for param in params]
    for param, own in zip(made, params, strict=True):
        param.grad = own.sin().to(device)
    return made


def differing_noise(device: torch.device) -> tuple[int, int]:
    """How many numbers are compared with torch operations and with the CPU; how many differ."""
    noise, params = Noise(seed=2**64 - 1, chain_id=7), made_parameters(device)
    compared = different = 0
    for noise.step in (0, 1, 2**33):
        found = noise.like(params)
        with patch("csgmcmc.noise.source.load_kernels", lambda _: None):
            by_torch = noise.like(params)
        by_cpu = noise.like([torch.empty(param.shape) for param in params])
        for one, second, third in zip(found, by_torch, by_cpu, strict=True):
            compared += 2 * one.numel()
            different += int((one != second).sum()) + int((one.cpu() != third).sum())
    return compared, different


def differing_weights(device: torch.device) -> tuple[int, int]:
    """The same for weights after three steps of SGHMC from the same gradients, and the CPU's."""
    ends = []
    for place in (device, torch.device("cpu")):
        params = made_parameters(place)
        sampler = SGHMC(params, 0.1, num_data=50_000, seed=1, fused=True, **OPTIONS)
        for _ in range(3):
            sampler.step()
        ends.append([param.cpu() for param in params])
    pairs = list(zip(*ends, strict=True))
    return sum(one.numel() for one, _ in pairs), sum(int((a != b).sum()) for a, b in pairs)


def milliseconds(step: Callable[[], object]) -> float:
    """Time of the GPU for one of some steps."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(STEPS):
        step()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / STEPS


def print_speed(device: torch.device) -> None:
    params = made_parameters(device)
    hot: dict[str, Any] = {"num_data": 50_000, "seed": 1, **OPTIONS}

    def by_torch() -> None:
        with (
            patch("csgmcmc.noise.source.load_kernels", lambda _: None),
            patch("csgmcmc.noise.fused.load_kernels", lambda _: None),
        ):
            third.step()

    third = SGHMC(params, 1e-6, **hot)
    works = {
        "torch SGD, fused": torch.optim.SGD(params, 1e-6, fused=True, **OPTIONS).step,
        "torch SGD, foreach": torch.optim.SGD(params, 1e-6, foreach=True, **OPTIONS).step,
        "SGHMC, T = 0": SGHMC(params, 1e-6, temperature=0.0, **hot).step,
        "SGHMC, T = 1": SGHMC(params, 1e-6, **hot).step,
        "SGHMC, T = 1, by torch operations": by_torch,
    }
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS + 2):  # the first two warm up
        for name, work in works.items():
            times[name].append(milliseconds(work))
    first, *_ = (own[2:] for own in times.values())
    for name, own in times.items():
        ratio = statistics.median(a / b for a, b in zip(own[2:], first, strict=True))
        print(f"{name}: {statistics.median(own[2:]):.3f} ms, {ratio:.2f} of torch SGD, fused")


def tests_pass() -> bool:
    """Whether the tests of a GPU, and those of any device, pass."""
    commands = [["tests/noise/test_cuda.py", "-m", "cuda"]]
    if (ROOT / "tests" / "devices").is_dir():
        commands.append(["tests/devices", "--device=cuda"])
    runs = [
        subprocess.run([sys.executable, "-m", "pytest", "-q", "-n0", *own], cwd=ROOT, check=False)
        for own in commands
    ]
    return all(run.returncode == 0 for run in runs)


def main() -> int:
    if not torch.cuda.is_available():
        print(
            f"torch {torch.__version__} finds no CUDA or ROCm device here, so nothing is checked."
        )
        return 1
    device = torch.device("cuda", torch.cuda.current_device())
    print(f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}")
    kernels = load_kernels(device)
    print(f"kernels: {'none, torch operations serve' if kernels is None else 'Triton'}")
    compared, different = differing_noise(device)
    print(f"noise: {compared} numbers compared, {different} differ")
    wrong = different
    if kernels is not None:
        compared, different = differing_weights(device)
        print(f"weights after three steps: {compared} numbers compared, {different} differ")
        wrong += different
    print_speed(device)
    return int(not tests_pass() or wrong > 0 or kernels is None)


if __name__ == "__main__":
    sys.exit(main())
