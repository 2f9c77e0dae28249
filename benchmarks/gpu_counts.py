"""What can be counted of a step on a GPU without one: operators, bytes, instructions, registers.

`python -m benchmarks.gpu_counts` prints the numbers of docs/performance.md. With `operators` it
counts only those, which needs no Triton. Estimated times are bytes over bandwidth, and instructions
over what the units of a GPU do in a second; nothing is timed but the work of the CPU.
"""

import argparse
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from csgmcmc import SGHMC
from paper.networks import resnet20, resnet50

TARGETS = {"sm_80": ("cuda", 80, 32), "sm_90": ("cuda", 90, 32), "gfx942": ("hip", "gfx942", 64)}
VARIANTS = {
    "SGHMC": {"momentum": True, "scaled": False, "noise": True},
    "SGLD": {"momentum": False, "scaled": False, "noise": True},
    "SGD with momentum": {"momentum": True, "scaled": False, "noise": False},
    "SGD": {"momentum": False, "scaled": False, "noise": False},
    "scaled SGHMC": {"momentum": True, "scaled": True, "noise": True},
    "scaled SGD": {"momentum": True, "scaled": True, "noise": False},
}

# Of data sheets: bytes a second; multiprocessors; clock in Hz. In a clock cycle, a multiprocessor
# of either issues 128 instructions of a thread; it does as many operations of each pipe as below
# (CUDA C++ programming guide, "Throughput of native arithmetic instructions").
GPUS = {"A100": ("sm_80", 1.555e12, 108, 1.41e9), "H100": ("sm_90", 3.35e12, 132, 1.755e9)}
PER_CYCLE = {
    "sm_80": {"floats": 64, "integers": 64, "special": 16, "memory": 32},
    "sm_90": {"floats": 128, "integers": 64, "special": 16, "memory": 32},
}
PIPES = {
    "floats": r"FMUL|FADD|FFMA|IMAD|HFMA2|FSET|FMNMX",
    "special": r"MUFU|I2F|F2I",
    "memory": r"LD|ST",
    "integers": r"LOP|IADD|SHF|ISETP|FSEL|SEL|LEA|MOV|SGXT|PRMT|VIADD|PLOP|CS2R|IMNMX|VIMNMX|FSETP",
}
NUMBERS_OF_A_THREAD = 16


@contextmanager
def compiling_for(target: str) -> Iterator[None]:
    """A stand-in for the driver of a GPU, for which Triton then compiles."""
    driver = import_module("triton.runtime").driver
    target_type = import_module("triton.backends.compiler").GPUTarget
    stand_in = SimpleNamespace(
        get_current_device=lambda: target,
        get_current_stream=lambda _: 0,
        get_current_target=lambda: target_type(*TARGETS[target]),
    )
    with patch.object(driver, "_active", stand_in):
        yield


def compiled(kernel: Any, target: str, **options: Any) -> Any:
    """A kernel as a launch compiles it."""
    from csgmcmc.noise import triton_kernels  # noqa: PLC0415

    tables = [torch.zeros(8, dtype=dtype) for dtype in (torch.int64, torch.int32, torch.int64)]
    numbers = [3, 0.1, 0.2, 0.3, 0.4] if options.keys() & {"momentum"} else []
    with compiling_for(target):
        return kernel.warmup(
            *tables, 1, 2, *numbers, grid=(1,), **{**triton_kernels.OPTIONS, **options}
        )


@dataclass(frozen=True)
class Resources:
    """What a compiled kernel uses.

    Attributes:
        registers: of each thread.
        spilled_bytes: registers that are kept in memory, for each thread.
        inexact: PTX instructions that fuse or approximate; not known for AMD.
        instructions: of the machine, by pipe.
        fused: fused multiply-adds of the machine, of which an exact square root has a few.
        roots: approximate square roots, of which each exact one begins with one.
    """

    registers: int
    spilled_bytes: int
    inexact: list[str]
    instructions: Counter[str]
    fused: int
    roots: int


def resources(made: Any) -> Resources:
    """Read the resources of a compiled kernel from its machine code."""
    if "amdgcn" in made.asm:
        text = made.asm["amdgcn"]
        code = re.findall(r"^\s+([vs]_\w+|(?:global|buffer|flat)_\w+)", text, re.MULTILINE)
        registers = re.search(r"\.vgpr_count:\s+(\d+)", text)
        assert registers is not None
        spills = sum(map(int, re.findall(r"\.[sv]gpr_spill_count:\s+(\d+)", text)))
        fused, root = r"v_(pk_)?(fma|mac|mad)\w*_f32", "v_sqrt_f32"
        counted = Counter({"all": len(code)})
        found = (int(registers[1]), 4 * spills, [])
    else:
        text = _disassembled(made.asm["cubin"])
        code = re.findall(
            r"^\s+/\*[0-9a-f]{4,5}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", text, re.MULTILINE
        )
        used = {name: int(count) for name, count in re.findall(r"(REG|STACK|LOCAL):(\d+)", text)}
        inexact = re.findall(r"\b(?:fma|mad\S*f32|\S*(?:approx|ftz))\S*", made.asm["ptx"])
        fused, root = "FFMA", "MUFU.RSQ"
        pipes = [next((p for p, how in PIPES.items() if re.match(how, c)), "other") for c in code]
        counted = Counter(pipes)
        found = (used["REG"], used["STACK"] + used["LOCAL"], inexact)
    roots = sum(each.startswith(root) for each in code)
    return Resources(*found, counted, sum(bool(re.match(fused, each)) for each in code), roots)


def _disassembled(cubin: bytes) -> str:
    tool = import_module("triton").knobs.nvidia.cuobjdump.path
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [tool, "-sass", "--dump-resource-usage", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Operators(TorchDispatchMode):
    """Counts operators that start a kernel, and the bytes that they read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.bytes = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = str(func)
        is_view = func.is_view or any(each in name for each in ("detach", "empty", "profiler"))
        if not is_view:
            read, written = tree_leaves((args, kwargs)), tree_leaves(result)
            if re.search(r"_\.", name.replace("_foreach_", "")):  # in place: the first is written
                written = tree_leaves(args[0])
            tensors = [each for each in [*read, *written] if isinstance(each, torch.Tensor)]
            self.count += 1
            self.bytes += sum(each.numel() * each.itemsize for each in tensors)
        return result


def counted_step(optimizer: torch.optim.Optimizer) -> Operators:
    """The operators of a step that is not the first."""
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad = torch.ones_like(param)
    optimizer.step()
    with Operators() as counted:
        optimizer.step()
    return counted


def print_operators() -> None:
    options = {"num_data": 50_000, "weight_decay": 5e-4, "fused": False}
    for name, model in (("ResNet-20", resnet20(10)), ("ResNet-50", resnet50(10))):
        params = list(model.parameters())
        weights = sum(param.numel() for param in params)
        print(f"{name}, {len(params)} parameters, {weights:,} weights: a step by torch operations")
        sgd = torch.optim.SGD(params, 0.1, momentum=0.9, weight_decay=5e-4, foreach=True)
        steps = {"torch SGD, foreach": counted_step(sgd)}
        with patch("csgmcmc.noise.source.load_kernels", lambda _: None):
            steps["SGHMC, T = 1"] = counted_step(SGHMC(params, 0.1, temperature=1.0, **options))
        for what, counted in steps.items():
            per_weight = counted.bytes / weights
            print(f"    {what}: {counted.count} operators, {per_weight:.0f} bytes a weight")


def print_resources() -> None:
    from csgmcmc.noise import triton_kernels  # noqa: PLC0415

    kernels = {"fill": (triton_kernels.fill, {})}
    kernels |= {name: (triton_kernels.move, flags) for name, flags in VARIANTS.items()}
    for target in TARGETS:
        for name, (kernel, flags) in kernels.items():
            used = resources(compiled(kernel, target, **flags))
            print(
                f"{target} {name}: {used.registers} registers, {used.spilled_bytes} bytes spilled, "
                f"{sum(used.instructions.values())} instructions {dict(used.instructions)}, "
                f"{used.fused} fused (in {used.roots} square roots)"
            )


def print_estimates() -> None:
    from csgmcmc.noise import triton_kernels  # noqa: PLC0415

    weights = sum(param.numel() for param in resnet50(1000).parameters())
    for gpu, (target, bandwidth, multiprocessors, clock) in GPUS.items():
        used = resources(compiled(triton_kernels.move, target, **VARIANTS["SGHMC"]))
        threads = weights / NUMBERS_OF_A_THREAD
        each = multiprocessors * clock
        pipes = {
            pipe: used.instructions[pipe] * threads / (each * rate)
            for pipe, rate in PER_CYCLE[target].items()
        }
        pipes["issue"] = sum(used.instructions.values()) * threads / (each * 128)
        slowest = max(pipes, key=lambda pipe: pipes[pipe])
        print(
            f"{gpu}, {weights:,} weights of ResNet-50: 20 bytes a weight take "
            f"{1e3 * 20 * weights / bandwidth:.2f} ms, the slowest units ({slowest}) "
            f"{1e3 * pipes[slowest]:.2f} ms"
        )


def print_host_time(rounds: int = 50) -> None:
    """Processor time of a step whose launch does nothing, beside torch SGD's for tiny tensors."""
    from csgmcmc.noise import triton_kernels  # noqa: PLC0415

    class Nothing:
        def __getitem__(self, grid: Any) -> Any:
            return lambda *_, **__: None

    tiny = [torch.ones(3) for _ in resnet50(10).parameters()]
    gradients = [[torch.ones_like(param) for param in tiny] for _ in range(rounds)]
    sgd = torch.optim.SGD(tiny, 0.1, momentum=0.9, weight_decay=5e-4, foreach=True)
    sampler = SGHMC(tiny, 0.1, num_data=50_000, weight_decay=5e-4, fused=True)
    with (
        patch.object(triton_kernels, "move", Nothing()),
        patch("csgmcmc.noise.fused.load_kernels", lambda _: triton_kernels),
    ):
        same, other, plain = [], [], []  # in turns
        for own in gradients:
            same.append(_time(sampler, gradients[0]))
            other.append(_time(sampler, own))
            plain.append(_time(sgd, gradients[0]))
    same, other, plain = (sorted(times)[rounds // 2] for times in (same, other, plain))
    print(
        f"CPU, {len(tiny)} parameters: a step takes {same / plain:.2f} of the time of torch SGD's "
        f"own operators for tensors of three numbers, {other / plain:.2f} where all gradients have "
        f"new addresses, of which {3 * 8 * len(tiny)} bytes are copied"
    )


def _time(optimizer: torch.optim.Optimizer, gradients: Sequence[torch.Tensor]) -> float:
    for param, gradient in zip(optimizer.param_groups[0]["params"], gradients, strict=True):
        param.grad = gradient
    begin = time.process_time()
    optimizer.step()
    return time.process_time() - begin


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    torch.set_num_threads(1)
    parser.add_argument("what", nargs="?", choices=("operators", "all"), default="all")
    wanted = parser.parse_args().what
    print_operators()
    if wanted == "all":
        print_resources()
        print_estimates()
        print_host_time()
