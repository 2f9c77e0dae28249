"""The page of a run: one HTML file that needs no network, for light and dark screens."""

import html
import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from csgmcmc.arguments import check_kind, counted
from csgmcmc.checks import Check
from csgmcmc.checks.evaluation import Evaluation, evaluate
from csgmcmc.checks.posterior_check import Metrics, judge
from csgmcmc.checks.sampling import as_run
from csgmcmc.draws import Draw, DrawStore
from csgmcmc.files import atomic_write, check_path, readable_io_errors
from csgmcmc.loaders import Loss
from csgmcmc.loop import Chain, Stepper
from csgmcmc.loop.log import read_scalars
from csgmcmc.pages import document, judgements, sections, table
from csgmcmc.posterior import Posterior
from csgmcmc.report import charts
from csgmcmc.report.store import open_store, printable, provenance

QUESTIONS = {
    "learned": "Learned: is the average better than simple forecasts?",
    "sampling": "Sampling: is N right, and do the draws have the requested temperature?",
    "mixing": "Mixing: do the predictions of chains or cycles agree?",
    "diverse": "Diverse: do the draws differ, so that averaging helps?",
    "calibrated": "Calibrated: are the probabilities right?",
    "better": "Better: is the average better than the best single draw?",
}
ANSWERS = {
    "yes": ("✓ yes", "held"),
    "no": ("✗ no", "contradicted"),
    "unknown": ("? unknown", "undecided"),
    "not asked for": ("not asked for", "undecided"),
}
COLUMNS = ("step", "cycle", "lr", "temperature", "loss")  # of a log
ERRORS = {True: ("error", "{:.2%}"), False: ("RMSE", "{:.4f}")}  # of classes, and numbers


@dataclass(frozen=True)
class Report:
    """A page of a run.

    Attributes:
        html: the page, one HTML document that needs no other file and no network.
    """

    html: str = field(repr=False)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the page to a file, and return its path."""
        where = check_path("path", path)
        with readable_io_errors(where, "writing"):
            if where.exists() and not where.is_file():  # a device would be replaced
                raise ValueError(f"path {where} is not a file")
            content = self.html.encode()
            atomic_write(where, lambda part: part.write_bytes(content))
        return where

    def _repr_html_(self) -> str:
        """The page in a frame, so that its style does not affect the notebook."""
        style = "width:100%;height:80vh;border:0"
        return f'<iframe srcdoc="{html.escape(self.html)}" style="{style}"></iframe>'


class Findings(NamedTuple):
    """What a page shows of held-out data."""

    evaluation: Evaluation
    check: Check
    metrics: tuple[str, ...] = ()  # names of those of the user


def report(
    posterior: Posterior,
    loader: Iterable[Any] | None = None,
    *,
    run: Chain | Stepper | None = None,
    loss: Loss | None = None,
    data: Iterable[Any] | None = None,
    metrics: Metrics | None = None,
    title: str | None = None,
    path: str | PathLike[str] | None = None,
) -> Report:
    """Make a page of a run: one HTML file that needs no network.

    It shows loss, lr and temperature along the cycles; the verdicts of `check`; NLL and error by
    number of draws and by cycle; calibration; temperatures; how the draws were made. A
    notebook displays the result. Needs matplotlib, the extra `plot`.

    Args:
        posterior: the draws and their likelihood.
        loader: held-out pairs of inputs and targets.
        run: as for `csgmcmc.checks.check`.
        loss: as for `csgmcmc.checks.check`.
        data: as for `csgmcmc.checks.check`.
        metrics: as for `csgmcmc.checks.check`; the page has a table of them.
        title: title of the page; by default the folder of the draws.
        path: a file to write the page to; `save` of the result does the same.
    """
    _require_matplotlib()
    if title is not None:
        check_kind("title", title, str, "text")
    training, found = as_run(posterior, run, loss, data), None
    if loader is not None:
        evaluation = evaluate(posterior, loader)
        check = judge(posterior, evaluation, training, metrics)
        found = Findings(evaluation, check, tuple(metrics or ()))
    page = make_page(title, posterior.draws, posterior.store, found)
    if path is not None:
        page.save(path)
    return page


def report_folder(folder: str | PathLike[str], title: str | None = None) -> Report:
    """Make a page of the run in a folder of draws, without predictions. Needs matplotlib."""
    store = open_store(folder)
    _require_matplotlib()
    return make_page(title, list(store), store, None)


def _require_matplotlib() -> None:
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError("matplotlib is missing: pip install 'csgmcmc[plot]'", name="matplotlib")


def make_page(
    title: str | None, draws: Sequence[Draw], store: DrawStore | None, found: Findings | None
) -> Report:
    """Make the page, with a section for each part that is given."""
    import matplotlib as mpl  # noqa: PLC0415  (an extra)

    title = title or ("Posterior" if store is None else str(store.path))
    with mpl.rc_context(charts.CHART_STYLE):
        body = sections(list(_sections(draws, store, found)))
    headers = {} if store is None else store.headers()
    planned = sum(each["provenance"].get("total_draws", 0) for each in headers.values())
    left = f" Not finished: {planned} draws are planned." if planned > len(draws) else ""
    header = f"<h1>{text(title)}</h1>\n<p>{_summary(draws, found)}{left}</p>"
    return Report(document(printable(title), header, body))


def _summary(draws: Sequence[Draw], found: Findings | None) -> str:
    cycles, chains = {(one.chain_id, one.cycle) for one in draws}, {one.chain_id for one in draws}
    counts = {"draw": len(draws), "cycle": len(cycles), "chain": len(chains)}
    words = ", ".join(counted(count, noun) for noun, count in counts.items())
    if found is None:
        return f"{words}. Verdicts and scores need held-out data: posterior.report(loader)."
    name, shown = ERRORS[found.evaluation.probs is not None]
    error = shown.format(found.evaluation.error(found.evaluation.averaged))
    points = counted(found.evaluation.log_scores.shape[1], "held-out data point")
    nll = found.check.numbers["nll"]
    return f"{words}. The average has NLL {nll:.4f}, {name} {error} on {points}."


def _sections(
    draws: Sequence[Draw], store: DrawStore | None, found: Findings | None
) -> Iterator[tuple[str, str, str]]:
    """Id, title and HTML of each section."""
    traces = {} if store is None else logged_traces(store.path)
    if found is not None:
        yield "verdicts", "Is it right?", _verdicts(found.check)
    if traces:
        yield "trace", "Along the run", charts.trace_chart(traces, draws)
    if found is not None:
        evaluation, check = found.evaluation, found.check
        scores = charts.scores_chart(evaluation) + cycle_table(evaluation)
        if found.metrics:
            own = [[name, f"{check.numbers[name]:.4g}"] for name in found.metrics]
            scores += text_table(["metric", "average"], own, kinds=["", "number"])
        yield "scores", "NLL and error", scores
        yield "calibration", "Calibration", charts.calibration_chart(evaluation)
        parameters = check.parameters.items()
        measured = {name: one.temperature for name, one in parameters if one.temperature}
        if measured:
            yield "sampling", "Temperatures", charts.temperature_chart(measured)
    if store is not None:
        made = text_table(["what", "value"], list(provenance(store).items()))
        yield "provenance", "How it was made", made


def _verdicts(check: Check) -> str:
    asked = [(question, getattr(check, name)) for name, question in QUESTIONS.items()]
    rows = [
        ([text(q), text(found.words)], *ANSWERS[found.answer]) for q, found in asked if found.words
    ]
    shown = judgements(["question", "found", "answer"], rows)
    advice = "\n".join(f"<li>{text(words)}</li>" for words in check.advice)
    return f"{shown}\n<h3>What to change</h3>\n<ul>\n{advice}\n</ul>" if advice else shown


def cycle_table(evaluation: Evaluation) -> str:
    """A table of the scores of each cycle; its draws count equally if their weights are 0."""
    name, shown = ERRORS[evaluation.probs is not None]
    rows = []
    started = evaluation.drawn is not None and not evaluation.drawn[0]  # with a trained network
    for number, cycle in enumerate(dict.fromkeys(evaluation.cycles.tolist()), start=not started):
        here = evaluation.cycles == cycle
        weights = np.where(here, evaluation.weights, 0.0)
        counted = weights if weights.any() else here.astype(float)
        average = np.average(evaluation.members[here], axis=0, weights=counted[here])
        scores = f"{evaluation.nll(counted):.4f}", shown.format(evaluation.error(average))
        rows.append([f"cycle {number}" if number else "start", *scores, f"{weights.sum():.3f}"])
    header, kinds = ["draws of", "NLL", name, "weight"], ["", *["number"] * 3]
    title = "Average of the draws of each cycle"
    return text_table(header, rows, kinds=kinds, title=title)


def logged_traces(folder: Path) -> charts.Traces:
    """The logs in the folder of a store; damaged logs are left out."""
    found: charts.Traces = {}
    for path in sorted((folder / "logs").glob("[0-9]*.jsonl")):
        with suppress(OSError, KeyError, ValueError):
            log = read_scalars(path)
            found[int(path.stem)] = {name: np.asarray(log[name], dtype=float) for name in COLUMNS}
    return found


def text(words: str) -> str:
    """Text as HTML."""
    return html.escape(printable(words))


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], **options: Any) -> str:
    """A table of text, which is shown as blocks on a phone."""
    lines = [[text(cell) for cell in row] for row in (header, *rows)]
    return table(lines[0], lines[1:], stacked=True, **options)
