"""Two posteriors, or two folders of draws, side by side on one page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from csgmcmc.checks.evaluation import Array, Evaluation, evaluate
from csgmcmc.checks.predictions import scaled_by_halves
from csgmcmc.checks.verdict import Interval, mean_interval, number
from csgmcmc.draws import DrawStore
from csgmcmc.pages import document, sections
from csgmcmc.posterior import Posterior
from csgmcmc.randomness import generators_of, preserved_random_state
from csgmcmc.report.page import Report, text, text_table
from csgmcmc.report.store import printable, provenance


class Difference(NamedTuple):
    """A score of two posteriors, of which the lower is better.

    Attributes:
        first, second: mean scores over the data points.
        error: standard error of the second minus the first, paired by data point.
        interval: 99% confidence interval of this difference.
    """

    first: float
    second: float
    error: float
    interval: Interval


@dataclass(frozen=True, repr=False)
class Comparison(Report):
    """A page that compares two posteriors, and its numbers; `print` shows them too.

    Attributes:
        names: of the two.
        differences: by score.
    """

    names: tuple[str, str]
    differences: dict[str, Difference] = field(default_factory=dict)

    def rows(self) -> list[list[str]]:
        """A header, and the scores, difference, standard error, interval and better one."""
        rows = [["score", *self.names, "difference", "standard error", "99% interval", "better"]]
        for name, one in self.differences.items():
            numbers = one.first, one.second, one.interval.value, one.error
            better = {None: "not known", False: self.names[0], True: self.names[1]}
            is_second = one.interval.within(-np.inf, 0.0)
            rows.append([name, *map(number, numbers), str(one.interval), better[is_second]])
        return rows

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self.rows(), strict=True)]
        lines = (map(str.ljust, row, widths) for row in self.rows())
        return "\n".join("  ".join(line).rstrip() for line in lines)

    __repr__ = __str__


def compare(
    first: Posterior,
    second: Posterior,
    loader: Iterable[Any],
    *,
    names: Sequence[str] = (),
    path: str | PathLike[str] | None = None,
) -> Comparison:
    """Compare two posteriors on held-out data: paired differences with standard errors.

    Scores of the same data points are subtracted, so that what is hard for both does not count: the
    NLL per target, raw and scaled by a temperature (fitted on the other half of the points), the
    Brier score and the error of classes, the squared error of numbers. The models may differ.

    Args:
        first: a posterior.
        second: another one, for the same targets.
        loader: held-out pairs of inputs and targets; its order may be random.
        names: what to call the two; by default the folders of their draws.
        path: a file to write the page to; `save` of the result does the same.
    """
    found: list[Evaluation] = []
    for posterior in (first, second):
        with preserved_random_state(generators_of(loader)):  # the same order twice
            found.append(evaluate(posterior, loader))
    if not np.array_equal(found[0].targets, found[1].targets):
        raise ValueError("loader gave other targets the second time: give the same data each time")
    ours, theirs = map(_scores, found)
    differences = {}
    for name, score in ours.items():
        off, means = theirs[name] - score, (float(score.mean()), float(theirs[name].mean()))
        differences[name] = Difference(*means, float(stats.sem(off)), mean_interval(off))
    page = compare_stores(first.store, second.store, names, differences)
    if path is not None:
        page.save(path)
    return page


def compare_stores(
    first: DrawStore | None,
    second: DrawStore | None,
    names: Sequence[str] = (),
    differences: dict[str, Difference] | None = None,
) -> Comparison:
    """The page: the scores, if there are any, and the settings that differ."""
    one, other = names or (str(first and first.path), str(second and second.path))
    page, parts = Comparison("", (one, other), differences or {}), []
    if page.differences:
        header, *rows = page.rows()
        shown = text_table(header, rows, kinds=["", *["number"] * 5, ""])
        words = "<p>Lower is better. The difference is the second minus the first.</p>"
        parts.append(("scores", "Scores", words + shown))
    made = [{} if store is None else provenance(store) for store in (first, second)]
    keys = [key for key in {**made[0], **made[1]} if made[0].get(key) != made[1].get(key)]
    rows = [[key, *(each.get(key, "none") for each in made)] for key in keys]
    parts.append(("settings", "Settings that differ", text_table(["setting", one, other], rows)))
    title = printable(f"{one} and {other}")
    return replace(page, html=document(title, f"<h1>{text(title)}</h1>", sections(parts)))


def _scores(evaluation: Evaluation) -> dict[str, Array]:
    """Scores of each data point per target, by name; lower is better."""
    probs, targets = evaluation.probs, evaluation.targets
    scores = {"NLL": -evaluation.average_scores() / evaluation.targets_per_point}
    if probs is None:
        errors = np.square(evaluation.averaged - targets)
        return {**scores, "squared error": evaluation.per_point(errors)}
    brier = np.square(probs).sum(1) - 2 * probs[np.arange(len(targets)), targets] + 1
    return {
        **scores,
        "Brier": evaluation.per_point(brier),
        "error": evaluation.per_point(probs.argmax(1) != targets),
        "NLL, scaled": -scaled_by_halves(evaluation, lambda _: probs),
    }
