"""Time to append, open, index and annotate draws, beside plain files or fewer draws, in one run.

    make bench

Rounds take turns; a ratio is that of two medians. Writes runs/bench/stores.json.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from timing import Case, report

from csgmcmc import DrawStore
from csgmcmc.draws.manifest import Manifest, encoded

DRAWS = 1000
ITEMS = 1000  # draws that are looked up, or annotated, in one call


def model(parameters: int) -> dict[str, torch.Tensor]:
    return {f"layer{index}": torch.randn(parameters // 10) for index in range(10)}


def plain_save(folder: Path, tensors: dict[str, torch.Tensor]) -> Callable[[], None]:
    def work() -> None:
        save_file(tensors, folder / "plain.safetensors")
        descriptor = os.open(folder / "plain.safetensors", os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)

    return work


def append(folder: Path, tensors: dict[str, torch.Tensor]) -> Callable[[], None]:
    store, step = DrawStore(folder / "store"), iter(range(10**9))

    def work() -> None:
        now = next(step)
        store.append(tensors, step=now)
        (folder / "store" / "draws" / f"0000-{now:09d}.safetensors").unlink()  # spare the disk

    return work


def many_draws(folder: Path, parameters: int) -> Path:
    store = DrawStore(folder)
    for step in range(DRAWS):
        tensors = {"w": torch.full((parameters,), float(step))}
        store.append(tensors, step=step)
    store.close()
    return folder


def read_all(path: Path) -> Callable[[], None]:
    def work() -> None:
        for file in (path / "draws").iterdir():
            for tensor in load_file(file).values():
                tensor.sum()  # mapped: the sum is what reads it

    return work


def linked_draws(folder: Path, count: int) -> DrawStore:
    """A store of many draws that is quick to make: their files are links to that of the first."""
    store = DrawStore(folder)
    store.append({"w": torch.zeros(10)}, step=0)
    store.close()
    manifest = Manifest(folder / "chains" / "0000.manifest")
    record = manifest.read()[0][-1]
    with manifest.path.open("ab") as file:
        for step in range(1, count):
            name = f"0000-{step:09d}.safetensors"
            (folder / "draws" / name).hardlink_to(folder / "draws" / record["draw"])
            file.write(encoded({**record, "draw": name, "step": step}))
    return DrawStore(folder)


def access(store: DrawStore) -> Callable[[], None]:
    def work() -> None:
        for index in range(0, len(store), len(store) // ITEMS):
            store[index]

    return work


def many_accesses(folder: Path) -> list[Case]:
    few, many = (linked_draws(folder / str(count), count) for count in (2_000, 20_000))
    return [
        Case(
            "store[i] for all i",
            {"of 2,000 draws": access(few), "of 20,000 draws": access(many)},
            repeats=3,
            items=ITEMS,
        ),
    ]


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        cases = []
        for parameters in (100_000, 11_000_000):
            tensors, place = model(parameters), folder / str(parameters)
            place.mkdir()
            name = f"append a draw of {parameters / 1e6:g}M parameters"
            works = {"save_file + fsync": plain_save(place, tensors)}
            cases.append(Case(name, {**works, "DrawStore.append": append(place, tensors)}, 5))
        for parameters in (25_000, 478_410):  # the second is the MLP 784-400-400-10
            path = many_draws(folder / f"many-{parameters}", parameters)
            works = {
                "reading all": read_all(path),
                "DrawStore(path)": lambda path=path: DrawStore(path),
            }
            megabytes = 4 * parameters / 1e6
            cases.append(Case(f"open a store of {DRAWS} draws of {megabytes:.1f} MB", works, 3))
        report("stores", cases + many_accesses(folder))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
