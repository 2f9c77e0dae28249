"""A chain that is killed again and again, and ends with the draws of an undisturbed one.

Another process runs the chain, with two workers that load the data, and is killed (SIGKILL) three
times. The lines that resume a run are those that start it.

    pip install .
    python examples/chain_resume.py [FOLDER]     # about 15 seconds
"""

import subprocess
import sys
import time
import warnings
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import csgmcmc
from csgmcmc.errors import StoreWarning

warnings.simplefilter("ignore", StoreWarning)  # a kill may leave a file that is no draw yet


def run(folder: Path) -> csgmcmc.draws.Draws:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    images, labels = map(torch.as_tensor, load_digits(return_X_y=True))
    data = TensorDataset(images.float() / 16, labels)
    loader = DataLoader(data, batch_size=100, shuffle=True, num_workers=2)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))
    sampler = csgmcmc.SGHMC(model.parameters(), lr=0.1, num_data=len(data), seed=0)
    schedule = csgmcmc.Cyclical(steps=90, cycles=3, exploration=0.5, draws_per_cycle=4)
    parts = (model, nn.functional.cross_entropy, loader, sampler, schedule)
    chain = csgmcmc.Chain(*parts, csgmcmc.DrawStore(folder), checkpoint_every=5, progress=False)
    return chain.run(resume=True)


def main(folder: Path) -> None:
    for kill in (1, 2, 3):
        child = subprocess.Popen([sys.executable, __file__, str(folder / "killed"), "only run"])
        while child.poll() is None and len(list(folder.glob("killed/draws/*"))) < 3 * kill:
            time.sleep(0.05)
        child.kill()
        child.wait()
        print(f"kill {kill}: {csgmcmc.DrawStore(folder / 'killed')!r}")
    whole, resumed = run(folder / "whole"), run(folder / "killed")
    pairs = zip(whole, resumed, strict=True)
    same = [torch.equal(a.tensors()["0.weight"], b.tensors()["0.weight"]) for a, b in pairs]
    print(f"{sum(same)} of {len(same)} draws are those of the run that was not killed, bit for bit")


if __name__ == "__main__":
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/chain_resume")
    run(path) if sys.argv[-1] == "only run" else main(path)
