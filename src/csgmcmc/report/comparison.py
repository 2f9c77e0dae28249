"""Two posteriors, or two folders of draws, side by side on one page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from csgmcmc.arguments import check_items
from csgmcmc.checks.evaluation import Array, Evaluation, evaluate
from csgmcmc.checks.predictions import scaled_by_halves
from csgmcmc.checks.verdict import Interval, mean_interval, number
from csgmcmc.draws import DrawStore
from csgmcmc.pages import document, table
from csgmcmc.posterior import Posterior
from csgmcmc.randomness import generators_of, preserved_random_state
from csgmcmc.report.page import Report, text
from csgmcmc.report.store import overview, provenance


class Difference(NamedTuple):
    """A score of two posteriors, the means over data points; lower is better.

    Attributes:
        first, second: the scores.
        error: standard error of the second minus the first, paired by data point.
        interval: 99% confidence interval of this difference.
    """

    first: float
    second: float
    error: float
    interval: Interval

    def better(self, names: Sequence[str]) -> str:
        """The name of the better one, or that it is not known."""
        second = self.interval.within(-np.inf, 0.0)
        return "not known" if second is None else names[1 if second else 0]


@dataclass(frozen=True, repr=False)
class Comparison(Report):
    """A page that compares two posteriors, and its numbers.

    Attributes:
        names: of the two.
        differences: by score.
    """

    names: tuple[str, str] = ("first", "second")
    differences: dict[str, Difference] = field(default_factory=dict)

    def rows(self) -> list[list[str]]:
        """The scores, difference, standard error, interval and better one, for a reader."""
        return [
            [
                *(name, number(one.first), number(one.second), number(one.interval.value)),
                *(number(one.error), str(one.interval), one.better(self.names)),
            ]
            for name, one in self.differences.items()
        ]

    def __str__(self) -> str:
        words = "{}: {} and {}, difference {} (standard error {}, 99% interval {}), better: {}"
        lines = [words.format(*row) for row in self.rows()]
        return "\n".join([" and ".join(self.names), *lines])

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

    Scores of the same data points are subtracted, so that what both find hard does not count: the
    NLL per target, raw and after temperature scaling (fitted on the other half of the points), the
    Brier score and the error of classes, the squared error of numbers. The models may differ. A
    notebook displays the page, and `print` the numbers.

    Args:
        first: a posterior.
        second: another one, for the same targets.
        loader: held-out pairs of inputs and targets; its order may be random.
        names: what to call them; by default the folders of their draws.
        path: a file to write the page to; `save` of the result does the same.
    """
    found: list[Evaluation] = []
    for posterior in (first, second):
        with preserved_random_state(generators_of(loader)):  # the same order twice
            found.append(evaluate(posterior, loader))
    if not np.array_equal(found[0].targets, found[1].targets):
        raise ValueError(
            "loader gave other targets the second time: give one of the same data each time, and "
            "posteriors that ignore the same targets"
        )
    stores = [posterior.store for posterior in (first, second)]
    scores = [_scores(each) for each in found]
    differences = {}
    for name in scores[0].keys() & scores[1].keys():
        ours, theirs = (each[name] for each in scores)
        error, interval = float(stats.sem(theirs - ours)), mean_interval(theirs - ours)
        differences[name] = Difference(float(ours.mean()), float(theirs.mean()), error, interval)
    ordered = {name: differences[name] for name in scores[0] if name in differences}
    page = _page(_names(names, stores), stores, ordered, found[0].log_scores.shape[1])
    if path is not None:
        page.save(path)
    return page


def compare_folders(first: DrawStore, second: DrawStore) -> Comparison:
    """The page of two folders of draws without predictions: the settings that differ."""
    return _page(_names((), [first, second]), [first, second], {}, 0)


def _scores(evaluation: Evaluation) -> dict[str, Array]:
    """Scores of each data point, by name; lower is better."""
    points, each = evaluation.log_scores.shape[1], evaluation.targets_per_point

    def summed(values: Array) -> Array:
        return np.bincount(evaluation.point_of_target, values, points) / each

    scores = {"NLL": -evaluation.average_scores() / each}
    if evaluation.probs is None:
        mean = evaluation.weights @ evaluation.members
        return {**scores, "squared error": summed(np.square(mean - evaluation.targets))}
    probs, rows = evaluation.probs, np.arange(len(evaluation.targets))
    wrong = probs.argmax(1) != evaluation.targets
    brier = np.square(probs).sum(1) - 2 * probs[rows, evaluation.targets] + 1
    scaled = -scaled_by_halves(evaluation, lambda _: probs)
    return {**scores, "NLL, scaled": scaled, "Brier": summed(brier), "error": summed(wrong)}


def _names(names: Sequence[str], stores: Sequence[DrawStore | None]) -> tuple[str, str]:
    if names:
        one, other = check_items("names", names, "two names")
        return one, other
    found = [store and str(store.path) for store in stores]
    return found[0] or "first", found[1] or "second"


def _page(
    names: tuple[str, str],
    stores: Sequence[DrawStore | None],
    differences: dict[str, Difference],
    points: int,
) -> Comparison:
    page, parts = Comparison("", names, differences), []
    if differences:
        header = ["score", *map(text, names), "difference", "standard error"]
        header += ["99% interval", "better"]
        rows = [[text(cell) for cell in row] for row in page.rows()]
        parts = [
            "<h2>Scores</h2>",
            f"<p>Of {points:,} data points; lower is better. The difference is that of the second "
            "minus the first, its standard error is paired by data point.</p>",
            table(header, rows, kinds=["", *["number"] * 5, ""], stacked=True),
        ]
    made = [{} if store is None else provenance(store) for store in stores]
    keys = [key for key in {**made[0], **made[1]} if made[0].get(key) != made[1].get(key)]
    if any(made):
        rows = [[text(key), *(text(each.get(key, "none")) for each in made)] for key in keys]
        parts += ["<h2>Settings that differ</h2>", "<p>All others are the same.</p>"]
        parts.append(table(["setting", *map(text, names)], rows, stacked=True))
    for name, store in zip(names, stores, strict=True):
        if store is not None:
            lines = overview(store, None, {}).partition("\nseed:")[0]
            parts.append(f"<h2>{text(name)}</h2>\n<p>{text(lines).replace(chr(10), '<br>')}</p>")
    title = f"{names[0]} and {names[1]}"
    html = document(
        title, f"<h1>{text(title)}</h1>", "\n".join(['<nav id="contents"></nav>', *parts])
    )
    return Comparison(html, names, differences)
