"""Time, memory and file size of an average, beside one forward pass of one of its networks.

    python benchmarks/serving.py

The network is 784-400-400-10, on one thread. Times are processor times, as ratios within a round to
a forward pass on the same batch. Memory is that of a new process after ten predictions. "Last
layer" are draws that differ in the last layer only. Writes runs/bench/serving.json, with a table
for the docs.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from timing import Case, report
from torch import nn

from csgmcmc import DrawStore, Posterior
from paper.networks import mlp

SIZES = (784, 400, 400, 10)
BATCHES = (1, 32, 256)
DRAWS = (10, 50)
KINDS = ("all layers", "last layer")


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return mlp(*SIZES).eval()


def make_store(folder: Path, kind: str, draws: int) -> DrawStore:
    store, model = DrawStore(folder), network()
    for step in range(draws):
        changed = [layer for layer in model if isinstance(layer, nn.Linear)]
        for layer in changed if kind == "all layers" else changed[-1:]:
            layer.reset_parameters()
        store.append(model, step=step)
    store.close()
    return store


def one_forward(batch: int) -> Callable[[], object]:
    model, inputs = network(), torch.randn(batch, SIZES[0])

    @torch.inference_mode()
    def forward() -> None:
        model(inputs).softmax(-1)

    return forward


def of_posterior(store: Path, batch: int) -> Callable[[], object]:
    posterior, inputs = Posterior(network(), DrawStore(store)), torch.randn(batch, SIZES[0])
    return lambda: posterior.predict(inputs)


def of_program(path: Path, batch: int) -> Callable[[], object]:
    program, inputs = torch.export.load(path).module(), torch.randn(batch, SIZES[0])

    @torch.inference_mode()
    def predict() -> None:
        program(inputs)

    return predict


def cases(folder: Path) -> list[Case]:
    found = []
    for kind in KINDS:
        for draws in DRAWS:
            path = folder / f"{kind}-{draws}"
            posterior = Posterior(network(), make_store(path, kind, draws))
            posterior.export(path.with_suffix(".pt2"), torch.zeros(2, SIZES[0]))
            for batch in BATCHES:
                works = {
                    "forward": one_forward(batch),
                    "Posterior": of_posterior(path, batch),
                    "program": of_program(path.with_suffix(".pt2"), batch),
                }
                name = f"{kind}, {draws} draws, batch {batch}"
                found.append(Case(name, works, repeats=5, rounds=9, clock=time.process_time))
    return found


def resident(what: str, path: Path | str = "") -> float:
    """MiB of a new process after ten predictions."""
    command = [sys.executable, __file__, what, str(path)]
    return int(subprocess.check_output(command)) / 2**20


def tell_resident(what: str, path: str) -> None:
    """In the new process: predict, and print the resident memory in bytes."""
    works = {"forward": lambda: one_forward(32)}
    works["Posterior"] = lambda: of_posterior(Path(path), 32)
    works["program"] = lambda: of_program(Path(path), 32)
    work = works[what]()
    for _ in range(10):
        work()
    status = dict(line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines())
    sys.stdout.write(str(int(status["VmRSS"].removesuffix("kB")) * 1024))


def table(folder: Path, timed: list[dict]) -> str:
    """Of ratios, sizes of files and memory."""
    ratios = {(one["case"], one["what"]): one["ratio"] for one in timed}
    base = resident("forward")
    batches = " | ".join(f"batch {batch}" for batch in BATCHES)
    lines = [
        f"| draws | | {batches} | file, MiB | more memory, MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        for draws in DRAWS:
            path = folder / f"{kind}-{draws}"
            program = path.with_suffix(".pt2")
            sizes = {
                "Posterior": sum(file.stat().st_size for file in path.rglob("*") if file.is_file()),
                "program": program.stat().st_size,
            }
            for what, file in (("Posterior", path), ("program", program)):
                times = [ratios[f"{kind}, {draws} draws, batch {batch}", what] for batch in BATCHES]
                shown = " | ".join(f"{ratio:.1f}" for ratio in times)
                more = resident(what, file) - base
                size = sizes[what] / 2**20
                lines.append(f"| {draws}, {kind} | {what} | {shown} | {size:.1f} | {more:.0f} |")
    return "\n".join(lines)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report("serving", cases(folder))
        path = Path("runs/bench/serving.json")
        content = json.loads(path.read_text())
        content["table"] = table(folder, content["results"])
        path.write_text(json.dumps(content, indent=2) + "\n")
        Console(soft_wrap=True).print(content["table"], markup=False, highlight=False)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        tell_resident(*sys.argv[1:])
    else:
        main()
