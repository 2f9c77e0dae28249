"""What all trials share: a run, its bits, and processes that are stopped at a chosen point."""

import builtins
import io
import os
import random
import signal
import traceback
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

from csgmcmc import SGHMC, Chain, Cyclical, DrawStore
from csgmcmc.draws import Draw, keep_trainable
from csgmcmc.errors import CsgmcmcError

STEPS = 60


@dataclass
class Result:
    """What became of the faults of one kind.

    Attributes:
        fault: what was tried.
        tried: how often.
        draws: draws that were read and compared with the right ones.
        named: faults that an error or a warning of the library has named.
        lost: draws that were stored and are gone, without a word.
        wrong: draws or final weights with other bits, and false alarms.
        raw: errors that are not the library's own.
        examples: a sentence for the first failures.
    """

    fault: str
    tried: int = 0
    draws: int = 0
    named: int = 0
    lost: int = 0
    wrong: int = 0
    raw: int = 0
    examples: list[str] = field(default_factory=list)

    def fail(self, kind: str, what: str) -> None:
        """Count a failure: `kind` is "lost", "wrong" or "raw"."""
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.examples) < 10:
            self.examples.append(f"{kind}: {what}")

    @property
    def failures(self) -> int:
        return self.lost + self.wrong + self.raw


# The run


class Augmented(Dataset):
    """Examples with noise of torch's global generator and of a generator of their own."""

    def __init__(self, size: int = 40) -> None:
        self.inputs = torch.randn(size, 6, generator=torch.Generator().manual_seed(0))
        self.labels = (self.inputs[:, 0] > 0).long()
        self.generator = torch.Generator().manual_seed(1)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        noise = torch.randn(6) + torch.randn(6, generator=self.generator)
        return self.inputs[index] + 0.1 * noise, self.labels[index]


def make_chain(path: Path, **options: Any) -> Chain:
    """The same run every time: shuffling, augmentation, dropout, batch norm, a frozen layer."""
    torch.manual_seed(5)
    random.seed(5)  # a fork does not inherit the state of this one
    model = nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2)
    )
    model[0].requires_grad_(False)
    trained = [param for param in model.parameters() if param.requires_grad]
    data = Augmented()
    return Chain(
        model,
        cross_entropy,
        DataLoader(data, batch_size=8, shuffle=True),
        SGHMC(trained, lr=0.1, num_data=len(data), momentum=0.8, seed=3),
        Cyclical(STEPS, cycles=3, exploration=0.5, draws_per_cycle=4),
        DrawStore(path, only=keep_trainable(model)),
        checkpoint_every=7,
        generators=[data.generator],
        watch=False,
        progress=False,
        **options,
    )


class Bits(NamedTuple):
    """All bits of a finished run: those of its draws by step, and of its last checkpoint."""

    draws: dict[int, Any]
    end: Any


def bits_of(path: Path) -> Bits:
    state = torch.load(path / "checkpoints" / "0000.pt", weights_only=True)
    end = {name: as_bytes(state[name]) for name in ("taken", "model", "sampler", "sources")}
    return Bits(bits_of_draws(DrawStore(path)), end)


def bits_of_draws(draws: Iterable[Draw]) -> dict[int, Any]:
    return {
        draw.step: (draw.chain_id, draw.cycle, draw.stage, as_bytes(draw.tensors()))
        for draw in draws
    }


def as_bytes(value: Any) -> Any:
    """Nested tensors as something that == compares bit for bit."""
    if isinstance(value, Tensor):
        flat = value.detach().contiguous().reshape(-1).view(torch.uint8)
        return str(value.dtype), tuple(value.shape), flat.numpy().tobytes()
    if isinstance(value, dict):
        return {name: as_bytes(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_bytes(inner) for inner in value]
    return value


# Processes

REFUSED, RAISED = 3, 4  # exit codes: an error of the library's own, or another one

Action = Callable[[], object]


def nothing() -> None:
    pass


class Ending(NamedTuple):
    """How a process ended: exit code (minus the signal), the draws it reported, and its error."""

    code: int
    reported: list[int]
    error: str


class Life:
    """A process that runs the chain, or goes on with it, and reports each draw it has appended."""

    def __init__(self, path: Path, prepare: Action = nothing, at_end: Action = nothing) -> None:
        self._pipe, end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._pipe)
            os._exit(_live(path, prepare, at_end, end))  # and none of the parent's own ending
        os.close(end)

    def wait(self) -> Ending:
        with os.fdopen(self._pipe, "rb") as pipe:
            said = pipe.read().decode(errors="replace")
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        steps, _, error = said.partition("!")
        return Ending(code, [int(step) for step in steps.split(",")[:-1]], error)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def _live(path: Path, prepare: Action, at_end: Action, pipe: int) -> int:
    def report(info: Any) -> None:
        if info.tick.collect:
            os.write(pipe, b"%d," % info.tick.step)

    try:
        prepare()
        with warnings.catch_warnings(action="ignore"):
            make_chain(path, callbacks=report).run(resume=True)
        at_end()
    except CsgmcmcError as error:
        os.write(pipe, f"!{error}".encode())
        return REFUSED
    except BaseException:
        os.write(pipe, f"!{traceback.format_exc()}".encode())
        return RAISED
    return 0


CALLS = [
    *[(os, name) for name in ("fsync", "replace", "link", "unlink", "mkdir", "open")],
    *[(io, "open"), (builtins, "open")],
]


class Points:
    """Counts the calls of the file system on the files of a folder, and acts at one of them.

    A point is the moment before such a call, or after it.
    """

    def __init__(self, folder: Path, at: int = -1, act: Action = nothing) -> None:
        self.folder, self.at, self.act = str(folder), at, act
        self.names: list[str] = []

    def install(self) -> None:
        """For the rest of this process."""
        for module, name in CALLS:
            setattr(module, name, self._watched(name, getattr(module, name)))

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(target: Any, *args: Any, **options: Any) -> Any:
            path = _path_of(target)
            is_inside = path == self.folder or path.startswith(f"{self.folder}/")
            is_new = not os.path.exists(path)
            if not is_inside or (name == "mkdir" and not is_new):
                return call(target, *args, **options)
            what = f"{name} of {self._kind(path)}"
            if name == "open" and _creates(*args, **options):
                what = f"creating {what}"
            self._reach(f"before {what}")
            result = call(target, *args, **options)
            self._done(name, path, is_new)
            self._reach(f"after {what}")
            return result

        return watched

    def _done(self, name: str, path: str, is_new: bool) -> None:
        """Called after each call."""

    def _kind(self, path: str) -> str:
        """What a file is, without its numbers: its folder and its suffix."""
        inside = Path(path).relative_to(self.folder)
        return f"{inside.parent}/*{inside.suffix}" if inside.suffix else str(inside)

    def _reach(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) == self.at + 1:
            self.act()


def _path_of(target: Any) -> str:
    if isinstance(target, int):
        with suppress(OSError):
            return os.readlink(f"/proc/self/fd/{target}")
        return ""
    return os.fspath(target) if isinstance(target, (str, os.PathLike)) else ""


def _creates(flags: Any = "r", *_: Any, mode: Any = None, **__: Any) -> bool:
    flags = mode if isinstance(mode, str) else flags
    return bool(flags & os.O_CREAT) if isinstance(flags, int) else not flags.startswith("r")


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def points_of_a_run(path: Path) -> list[str]:
    """Names of all points of an uninterrupted run, in order."""
    points, file = Points(path), path.with_suffix(".points")
    end = Life(path, points.install, lambda: file.write_text("\n".join(points.names))).wait()
    assert end.code == 0, end.error
    return file.read_text().splitlines()
