"""Tries an installed csgmcmc that has none of its extras, in the current folder, which is empty.

python scripts/release_smoke.py VERSION
"""

import importlib
import pkgutil
import re
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import metadata, version
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import csgmcmc
import csgmcmc.diagnostics
import csgmcmc.integrations
from csgmcmc.posterior import ClassPredictive

INSTALL = re.compile(r"pip install 'csgmcmc\[(\w+)\]'")
# What needs the extra for plots are commands: scripts/release_check.py tries one. TensorBoard is
# used where it is, and nothing asks for it.
NOT_TRIED = {"arviz", "dev", "docs", "peft", "plot", "tensorboard", "test", "triton"}


def main(wanted: str) -> None:
    """Raises where something is wrong."""
    package = Path(csgmcmc.__file__).parent
    for found in (csgmcmc.__version__, version("csgmcmc")):
        check(found == wanted, f"its version is {found}, not {wanted}")
    check(package.is_relative_to(sys.prefix), f"it is imported from {package}, not as installed")
    check((package / "py.typed").exists(), "py.typed is not installed")
    for name in csgmcmc.__all__:
        getattr(csgmcmc, name)
    sample()
    check_extras()


def make_chain(draws: csgmcmc.DrawStore) -> csgmcmc.Chain:
    model, schedule = nn.Linear(3, 2), csgmcmc.Cyclical(100, 2, draws_per_cycle=3)
    sampler = csgmcmc.SGHMC(model.parameters(), lr=0.1, num_data=100, seed=0)
    loader = DataLoader(table(0, 100), 20, shuffle=True)
    loss = nn.functional.cross_entropy
    return csgmcmc.Chain(model, loss, loader, sampler, schedule, draws, progress=False)


def table(first: int, last: int) -> TensorDataset:
    inputs = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    return TensorDataset(inputs[first:last], (inputs[first:last, 0] > 0).long())


def sample() -> None:
    """A chain on disk, resumed, and its posterior."""
    torch.manual_seed(0)
    for _ in range(2):  # the second time there is nothing left to do
        store = csgmcmc.DrawStore("runs/smoke")
        make_chain(store).run(resume=True)
        check(len(store) == 6, f"the chain has kept {len(store)} draws, not 6")
        store.close()
    posterior = csgmcmc.Posterior(nn.Linear(3, 2), csgmcmc.DrawStore("runs/smoke"))
    predicted = posterior.predict_loader(DataLoader(table(100, 200), 50))
    if not isinstance(predicted, ClassPredictive):
        raise SystemExit(f"the posterior predicts {type(predicted).__name__}, not classes")
    accuracy = csgmcmc.diagnostics.accuracy(predicted.probs_numpy(), predicted.labels_numpy())
    check(accuracy > 0.8, f"the posterior is right in {accuracy} of the cases")


def check_extras() -> None:
    """What needs an extra says which to install, and there is something that needs each."""
    attempts: dict[str, Callable[[], object]] = {
        f"csgmcmc.integrations.{module.name}": partial(
            importlib.import_module, f"csgmcmc.integrations.{module.name}"
        )
        for module in pkgutil.iter_modules(csgmcmc.integrations.__path__)
    }
    extras = set(metadata("csgmcmc").get_all("Provides-Extra") or []) - NOT_TRIED
    named = set()
    for name, attempt in attempts.items():
        try:
            attempt()
        except ImportError as error:
            found = INSTALL.search(str(error))
            check(found is not None, f"{name} does not say which extra to install, but: {error}")
            named |= set(found.groups() if found else ())
    check(named == extras, f"{sorted(named)} were asked for, not {sorted(extras)}")


def check(holds: bool, problem: str) -> None:
    if not holds:
        raise SystemExit(problem)


if __name__ == "__main__":
    main(*sys.argv[1:])
