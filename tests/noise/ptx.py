"""Runs the PTX of straight-line kernels on the CPU: no branches, no shared memory.

An instruction that is not listed here is an error. So is one that is not rounded exactly, as fused
multiply-add, and an access that is outside of the given tensors.
"""

import operator
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

TYPES: dict[str, Any] = {
    "u32": np.uint32, "s32": np.int32, "b32": np.uint32, "f32": np.float32,
    "u64": np.uint64, "s64": np.int64, "b64": np.uint64,
}  # fmt: skip
INTEGERS = ("u32", "s32", "b32", "u64", "s64", "b64")
OF_TWO: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "mul.lo": operator.mul,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "shl": operator.lshift,
    "shr": operator.rshift, "min": np.minimum, "max": np.maximum,
}  # fmt: skip
COMPARISONS = {
    "lt": operator.lt, "le": operator.le, "eq": operator.eq, "ne": operator.ne, "ge": operator.ge,
    "gt": operator.gt,
}  # fmt: skip
ROUNDED = ("add.rn.f32", "sub.rn.f32", "mul.rn.f32", "sqrt.rn.f32")
TO_SINGLE = (["rn", "f32", "s32"], ["rn", "f32", "u32"])

Instruction = tuple[str, str, list[str]]
"""The predicate, or nothing; the operation; and its operands."""


@cache
def instructions_of(text: str) -> list[Instruction]:
    """The instructions of the only kernel of a PTX file, in order."""
    body = text[text.index("{\n", text.index(".entry")) :]
    body = re.sub(r"//.*|^\s*\.(loc|reg)\s.*|^\$\w+:", "", body, flags=re.MULTILINE)
    found = re.findall(r"(@!?%p\d+)?\s*\b([a-z][\w.]*)((?:\s[^;]*)?);", body)
    return [(guard, name, re.findall(r"[%\w.+-]+", rest)) for guard, name, rest in found]


class Memory:
    """The tensors that a kernel may read and write, by address."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        unique = {tensor.data_ptr(): tensor for tensor in tensors if tensor.numel()}
        self.begins = np.array(sorted(unique), np.uint64)
        self.bytes = [unique[begin].view(-1).numpy().view(np.uint8) for begin in sorted(unique)]

    def places(self, addresses: Any, size: int) -> list[tuple[Any, Any, Any]]:
        """For each tensor, which of the addresses are in it, its bytes, and where they begin."""
        tensors = np.searchsorted(self.begins, addresses, side="right") - 1
        if (tensors < 0).any():
            raise IndexError("an address is before all tensors")
        found = []
        for index in np.unique(tensors):
            inside = tensors == index
            offsets = (addresses[inside] - self.begins[index]).astype(np.int64)
            if (offsets > len(self.bytes[index]) - size).any() or (offsets % size).any():
                raise IndexError(f"an address is outside of tensor {index}")
            found.append((inside, self.bytes[index], offsets // size))
        return found

    def load(self, addresses: Any, kind: Any) -> Any:
        values = np.empty(len(addresses), kind)
        for inside, content, at in self.places(addresses, values.itemsize):
            values[inside] = content.view(kind)[at]
        return values

    def store(self, addresses: Any, values: Any) -> None:
        for inside, content, at in self.places(addresses, values.itemsize):
            content.view(values.dtype)[at] = values[inside]


class Threads:
    """All threads of a launch, which execute each instruction together."""

    def __init__(self, text: str, programs: int, arguments: Sequence[Any], memory: Memory) -> None:
        width = re.search(r"\.reqntid (\d+)", text)
        assert width is not None
        self.count = int(width[1]) * programs
        threads = np.arange(self.count, dtype=np.uint32)
        self.registers: dict[str, Any] = {
            "%tid.x": threads % np.uint32(width[1]),
            "%ctaid.x": threads // np.uint32(width[1]),
        }
        declared = re.findall(r"^\s+\.param \.(\w+).* (\w+_param_\d+)", text, re.MULTILINE)
        self.parameters = {
            name: TYPES[kind](each.data_ptr() if isinstance(each, torch.Tensor) else each)
            for (kind, name), each in zip(declared, arguments, strict=False)
        }  # the last two are Triton's own
        self.memory = memory

    def value(self, operand: str, kind: Any) -> Any:
        """A register or a constant as numbers of a kind."""
        if operand.startswith("%"):
            held = self.registers[operand]
            return held if held.dtype == kind else held.view(kind)
        unsigned = np.dtype(f"u{np.dtype(kind).itemsize}")
        bits = int(re.sub("^0f", "0x", operand), 0)
        return np.full(self.count, bits % 2 ** (8 * unsigned.itemsize), unsigned).view(kind)

    def run(self, instructions: Sequence[Instruction]) -> None:
        for guard, name, operands in instructions:
            if name == "ret":
                return
            active = np.ones(self.count, bool)
            if guard:
                active = self.registers[guard.lstrip("@!")] ^ ("!" in guard)
            result = self.execute(name, operands, active)
            if result is not None:
                self.registers[operands[0]] = result

    def execute(self, name: str, operands: list[str], active: Any) -> Any:
        """The new value of the first operand, or None for an instruction that has stored it."""
        base, *mods = name.split(".")
        kind = TYPES.get(mods[-1]) if mods else None
        last = operands[1:]
        if name.startswith(("ld.global.", "st.global.")):
            return self.access(base, operands, kind, active)
        if name.startswith("ld.param."):
            return np.full(self.count, self.parameters[last[0]])
        if not active.all():
            raise NotImplementedError(f"{name} with a predicate")
        if mods == ["pred"]:
            return self.predicate(base, last)
        if name == "mov.b64" and len(operands) == 3:
            return self.halves(operands)
        if base == "mov":
            return self.value(last[0], kind)
        if base == "setp" and mods[0] in COMPARISONS:
            return COMPARISONS[mods[0]](*(self.value(each, kind) for each in last))
        if base == "selp":
            return np.where(
                self.registers[last[2]], self.value(last[0], kind), self.value(last[1], kind)
            )
        if name in ROUNDED or mods[-1] in INTEGERS:
            return self.arithmetic(base, mods, kind, last)
        raise NotImplementedError(name)

    def arithmetic(self, base: str, mods: list[str], kind: Any, operands: list[str]) -> Any:
        if base == "cvt" and (mods in TO_SINGLE or (len(mods) == 2 and mods[0] in INTEGERS)):
            values = self.value(operands[0], kind)
            return values.astype(TYPES[mods[-2]])
        if base == "sqrt":
            return np.sqrt(self.value(operands[0], kind))
        if base == "neg":
            return -self.value(operands[0], kind)
        if base in ("mul", "mad") and mods[0] in ("wide", "lo"):
            wide = TYPES[mods[-1].replace("32", "64")] if mods[0] == "wide" else kind
            first, second = (self.value(each, kind).astype(wide) for each in operands[:2])
            return first * second + (self.value(operands[2], wide) if base == "mad" else 0)
        if base in ("shl", "shr"):  # the distance is a word of 32 bits
            return OF_TWO[base](self.value(operands[0], kind), kind(int(operands[1], 0)))
        if (base, *mods) == ("shf", "l", "wrap", "b32"):
            low, high = (self.value(each, kind) for each in operands[:2])
            bits = np.uint32(operands[2])
            return high << bits | low >> np.uint32(32 - bits)
        if (base, *mods) == ("bfe", "u32"):
            shift, length = (int(each, 0) for each in operands[1:])
            return self.value(operands[0], kind) >> np.uint32(shift) & np.uint32(2**length - 1)
        if base in OF_TWO and len(mods) == (2 if kind is np.float32 else 1):
            return OF_TWO[base](*(self.value(each, kind) for each in operands))
        raise NotImplementedError(".".join((base, *mods)))

    def predicate(self, base: str, operands: list[str]) -> Any:
        if base == "mov":
            return np.full(self.count, int(operands[0], 0) != 0)
        if base == "not":
            return ~self.registers[operands[0]]
        return OF_TWO[base](*(self.registers[each] for each in operands))

    def halves(self, operands: list[str]) -> Any:
        """Two words of 32 bits from one of 64, or the other way."""
        first, second, third = operands
        if first.startswith("%rd"):
            low, high = (self.value(each, np.uint32).astype(np.uint64) for each in operands[1:])
            return low | high << np.uint64(32)
        whole = self.value(third, np.uint64)
        self.registers[first] = whole.astype(np.uint32)
        self.registers[second] = (whole >> np.uint64(32)).astype(np.uint32)
        return None

    def access(self, base: str, operands: list[str], kind: Any, active: Any) -> Any:
        """Load, or store; operands are a register and an address with an offset."""
        where, held = (operands[1:], operands[0]) if base == "ld" else (operands[:-1], operands[-1])
        offset = int("".join(where[1:]).replace("+", "") or "0")
        addresses = (self.value(where[0], np.uint64) + np.uint64(offset % 2**64))[active]
        if base == "st":
            self.memory.store(addresses, self.value(held, kind)[active])
            return None
        values = self.value(held, kind).copy()
        values[active] = self.memory.load(addresses, kind)
        return values


def run(
    text: str, programs: int, arguments: Sequence[Any], tensors: Sequence[torch.Tensor]
) -> None:
    """Execute a launch; arguments are numbers and tables, and `tensors` what else it may use."""
    tables = [each for each in arguments if isinstance(each, torch.Tensor)]
    memory = Memory([*tables, *tensors])
    Threads(text, programs, arguments, memory).run(instructions_of(text))
