"""Results with their page, and the facts about them that every form of the report shows."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from paper.experiments.results import Results, duration
from paper.pages import make_page
from paper.report.page import Page
from paper.report.verdicts import KINDS, Verdict, judge

ORDER = (
    *("schedule", "mixture", "logistic", "convergence"),
    *("mnist", "mnist-diversity", "mnist-parallel", "mnist-uncertainty", "mnist-sensitivity"),
    *("mnist-tempering", "mnist-stages", "mnist-rivals"),
    *("cifar-converged", "cifar-converged-diversity", "cifar-converged-parallel"),
    *("cifar-converged-tempering", "cifar-converged-rivals", "truth", "imagenet"),
    *("cifar", "cifar-diversity", "cifar-parallel", "cifar-sensitivity", "cifar-tempering"),
    *("uncertainty", "uncertainty-digits"),
)
"""Experiments in the order of the report; others come after them, by name."""

TITLE = "The paper, reproduced"
INTRODUCTION = (
    "Claims of Zhang, Li, Zhang, Chen and Wilson, “Cyclical Stochastic Gradient MCMC for Bayesian "
    "Deep Learning” (ICLR 2020), beside what was measured here, and claims of ours about the "
    "same methods. The page of an experiment has its claims with their verdicts, the tables and "
    "figures, the command that made them, and all settings."
)


@dataclass(frozen=True)
class Chapter:
    """One experiment in the report."""

    results: Mapping[str, Any]
    page: Page | None
    """None for a run that is not finished: partial results are not judged."""
    verdicts: Sequence[Verdict] = ()
    """Those on the claims of the page, corrected for all claims of the report."""

    @property
    def name(self) -> str:
        return self.results["experiment"]

    @property
    def title(self) -> str:
        return self.page.title if self.page else self.name.capitalize()

    @property
    def summary(self) -> str:
        if self.page:
            return self.page.summary
        jobs = len(self.results["records"])
        return f"This run is unfinished: {jobs} jobs are done. The command below continues it."

    @property
    def tally(self) -> str:
        """How many claims have which verdict."""
        if self.page is None:
            return "unfinished"
        return count(self.verdicts)

    @property
    def time(self) -> str:
        return duration(self.results["seconds"])

    @property
    def command(self) -> str:
        return self.results["command"]

    @property
    def origin(self) -> Mapping[str, str]:
        """How the results were made."""
        versions = self.results["versions"]
        return {
            "preset": self.results["preset"],
            "seeds": str(self.results["config"].get("seeds", "")),
            "time": f"{self.time}, all jobs one after another",
            "machine": self.results["machine"],
            "versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
        }

    @property
    def settings(self) -> Mapping[str, str]:
        """The fields of the configuration, as text."""
        return {name: _as_text(value) for name, value in self.results["config"].items()}


def read_chapters(folder: Path) -> list[Chapter]:
    """All results in a folder, in the order of the report."""
    found = [vars(Results.load(path)) for path in sorted(folder.glob("*.json"))]
    if not found:
        raise ValueError(f"{folder} holds no results: python -m paper run makes them")
    places = {name: place for place, name in enumerate(ORDER)}
    found.sort(
        key=lambda results: (places.get(results["experiment"], len(ORDER)), results["experiment"])
    )
    pages = [make_page(results) if results["finished"] else None for results in found]
    judged = iter(judge([claim for page in pages if page for claim in page.claims]))
    return [
        Chapter(results, page, list(islice(judged, len(page.claims) if page else 0)))
        for results, page in zip(found, pages, strict=True)
    ]


def count(verdicts: Iterable[Verdict]) -> str:
    """How many verdicts there are of each kind."""
    found = Counter(verdict.kind for verdict in verdicts)
    return ", ".join(f"{found[kind]} {kind}" for kind in KINDS if found[kind])


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
