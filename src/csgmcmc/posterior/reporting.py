"""What a posterior gives to the page of its run."""

import importlib.util
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from csgmcmc.arguments import check_kind
from csgmcmc.batches import Loss
from csgmcmc.checks import Check, Evaluation, check_draws
from csgmcmc.checks.run import StepperLike
from csgmcmc.draws import DrawStore
from csgmcmc.posterior.evaluation import evaluate, training_run
from csgmcmc.posterior.predictive import ClassPredictive
from csgmcmc.posterior.weights import stacking_weights
from csgmcmc.report import Report
from csgmcmc.report.findings import Findings, find
from csgmcmc.report.page import Material, make_report, store_provenance
from csgmcmc.report.traces import logged_traces, planned_trace

if TYPE_CHECKING:
    from csgmcmc.posterior.posterior import Posterior

MOST_STACKED = 100  # cycles

Run = tuple[StepperLike | None, Loss | None, Iterable[Any] | None]
"""Stepper, loss and training data."""


def report(
    posterior: "Posterior",
    store: DrawStore | None,
    loader: Iterable[Any] | None,
    *,
    other: Iterable[Any] | None,
    run: Run,
    title: str | None,
) -> Report:
    """The page of `Posterior.report`; `store` is where the draws are, if on disk."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError("matplotlib is missing: pip install 'csgmcmc[plot]'", name="matplotlib")
    if title is not None:
        check_kind("title", title, str, "text")
    made_by = training_run(posterior, *run)
    if loader is None and other is not None:
        raise ValueError("other is compared with held-out data: give them too, as loader")
    findings = None
    if loader is not None:
        evaluation = evaluate(posterior, loader)
        findings = findings_of(posterior, evaluation, check_draws(evaluation, made_by), other)
    traces = [] if store is None else logged_traces(store.path)
    if not traces and made_by is not None:
        traces = [planned_trace(made_by.stepper)]
    return make_report(
        Material(
            title=title or ("Posterior" if store is None else str(store.path)),
            draws=posterior.draws,
            traces=traces,
            findings=findings,
            provenance={} if store is None else store_provenance(store),
        )
    )


def findings_of(
    posterior: "Posterior", evaluation: Evaluation, check: Check, other: Iterable[Any] | None
) -> Findings:
    """What a page shows of held-out data and, for classes, of `other` data."""
    probs, stacking = None, None
    if other is not None and evaluation.probs is not None:
        predicted = posterior.predict_loader(other)
        probs = predicted.probs_numpy() if isinstance(predicted, ClassPredictive) else None
    if 1 < len(set(evaluation.cycles.tolist())) <= MOST_STACKED:
        with suppress(ValueError):  # a point that is impossible under every draw
            stacking = stacking_weights(evaluation.log_scores, evaluation.cycles)
    return find(evaluation, check, posterior.draws, stacking=stacking, other=probs)
