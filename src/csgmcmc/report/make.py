"""Make a page of a posterior, or of a folder of draws."""

import importlib.util
import warnings
from collections.abc import Iterable
from os import PathLike
from typing import Any

from csgmcmc.arguments import check_kind
from csgmcmc.checks.evaluation import evaluate
from csgmcmc.checks.posterior_check import judge
from csgmcmc.checks.sampling import as_run
from csgmcmc.draws import DrawStore
from csgmcmc.errors import StoreWarning
from csgmcmc.files import check_path
from csgmcmc.loaders import Loss
from csgmcmc.loop import Chain, Stepper
from csgmcmc.posterior import Posterior
from csgmcmc.report.findings import Findings, entropies
from csgmcmc.report.page import Report, make_page


def report(
    posterior: Posterior,
    loader: Iterable[Any] | None = None,
    *,
    other: Iterable[Any] | None = None,
    run: Chain | Stepper | None = None,
    loss: Loss | None = None,
    data: Iterable[Any] | None = None,
    title: str | None = None,
    path: str | PathLike[str] | None = None,
) -> Report:
    """Make a page of a run: one HTML file that needs no network.

    It shows loss, lr and temperature along the cycles; the verdicts of `check`; NLL and error by
    number of draws and by cycle; calibration and entropy; temperatures; how the draws were made. A
    notebook displays the result. Needs matplotlib, the extra `plot`.

    Args:
        posterior: the draws and their likelihood.
        loader: held-out pairs of inputs and targets.
        other: inputs of another kind, whose entropy is compared; pairs may have any targets.
        run: as for `csgmcmc.checks.check`.
        loss: as for `csgmcmc.checks.check`.
        data: as for `csgmcmc.checks.check`.
        title: title of the page; by default the folder of the draws.
        path: a file to write the page to; `save` of the result does the same.
    """
    _require_matplotlib()
    if title is not None:
        check_kind("title", title, str, "text")
    if loader is None and other is not None:
        raise ValueError("other is compared with held-out data: give them too, as loader")
    training, found = as_run(posterior, run, loss, data), None
    if loader is not None:
        evaluation = evaluate(posterior, loader)
        check = judge(posterior, evaluation, training)
        found = Findings(evaluation, check, entropies(posterior, evaluation, other))
    page = make_page(title, posterior.draws, posterior.store, found)
    if path is not None:
        page.save(path)
    return page


def report_folder(folder: str | PathLike[str], title: str | None = None) -> Report:
    """Make a page of the run in a folder of draws, without predictions. Needs matplotlib."""
    _require_matplotlib()
    where = check_path("folder", folder)
    if not (where / "store.json").exists():
        raise ValueError(f"folder {where} is not a draw store: it has no store.json")
    with warnings.catch_warnings(action="ignore", category=StoreWarning):
        store = DrawStore(where)  # csgmcmc inspect prints its problems
    return make_page(title, list(store), store, None)


def _require_matplotlib() -> None:
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError("matplotlib is missing: pip install 'csgmcmc[plot]'", name="matplotlib")
