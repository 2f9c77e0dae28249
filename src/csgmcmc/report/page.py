"""The page of a run: one HTML file that needs no network, for light and dark screens."""

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

from csgmcmc.arguments import counted
from csgmcmc.checks import Check
from csgmcmc.checks.evaluation import Evaluation
from csgmcmc.draws import Draw, DrawStore
from csgmcmc.files import atomic_write, check_path, readable_io_errors
from csgmcmc.pages import document, judgements, table
from csgmcmc.report import charts
from csgmcmc.report.findings import Findings, error_by_draws, logged_traces, scores_of_cycles
from csgmcmc.report.store import printable, provenance

QUESTIONS = {
    "sampling": "Sampling: is N right, and do the draws have the requested temperature?",
    "mixing": "Mixing: do the predictions of chains or cycles agree?",
    "calibrated": "Calibrated: are the probabilities right?",
    "better": "Better: is the average better than the best single draw?",
}
ANSWERS = {
    True: ("✓ yes", "held"),
    False: ("✗ no", "contradicted"),
    None: ("? unknown", "undecided"),
}
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
        atomic_write(where, lambda part: part.write_text(self.html, encoding="utf-8", newline="\n"))
        return where

    def _repr_html_(self) -> str:
        """The page in a frame, so that its style does not affect the notebook."""
        style = "width:100%;height:80vh;border:0"
        return f'<iframe srcdoc="{html.escape(self.html)}" style="{style}"></iframe>'


def make_page(
    title: str | None, draws: Sequence[Draw], store: DrawStore | None, found: Findings | None
) -> Report:
    """Make the page, with a section for each part that is given."""
    import matplotlib as mpl  # noqa: PLC0415  (an extra)

    title = title or ("Posterior" if store is None else str(store.path))
    with mpl.rc_context(charts.CHART_STYLE):
        sections = list(_sections(draws, store, found))
    links = "\n".join(f'<li><a href="#{name}">{words}</a></li>' for name, words, _ in sections)
    body = "\n".join(
        f'<section id="{name}" aria-labelledby="{name}-title">\n'
        f'<h2 id="{name}-title">{words}</h2>\n{inside}\n</section>'
        for name, words, inside in sections
    )
    contents = f'<nav id="contents" aria-label="Contents">\n<ul>\n{links}\n</ul>\n</nav>'
    header = f"<h1>{_text(title)}</h1>\n<p>{_summary(draws, found)}</p>"
    return Report(document(printable(title), header, f"{contents}\n{body}"))


def _summary(draws: Sequence[Draw], found: Findings | None) -> str:
    cycles, chains = {(one.chain_id, one.cycle) for one in draws}, {one.chain_id for one in draws}
    counts = {"draw": len(draws), "cycle": len(cycles), "chain": len(chains)}
    words = ", ".join(counted(count, noun) for noun, count in counts.items())
    if found is None:
        return f"{words}. Verdicts and scores need held-out data: posterior.report(loader)."
    name, shown = ERRORS[found.evaluation.probs is not None]
    error = shown.format(error_by_draws(found.evaluation)[-1])
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
        yield "scores", "NLL and error", charts.scores_chart(evaluation) + _cycles(evaluation)
        title, shown = "Calibration", charts.calibration_chart(evaluation, check.numbers)
        if found.entropies:
            title += " and entropy"
            shown = f'<div class="pair">\n{shown}{charts.entropy_chart(found.entropies)}</div>'
        yield "uncertainty", title, shown
        parameters = check.parameters.items()
        measured = {name: one.temperature for name, one in parameters if one.temperature}
        if measured:
            yield "sampling", "Temperatures", charts.temperature_chart(measured)
    if store is not None:
        rows = [[_text(name), _text(value)] for name, value in provenance(store).items()]
        yield "provenance", "How it was made", table(["what", "value"], rows, kinds=["", "long"])


def _verdicts(check: Check) -> str:
    rows = []
    for name, question in QUESTIONS.items():
        verdict = getattr(check, name)
        rows.append(([_text(question), _text(verdict.words)], *ANSWERS[verdict.holds]))
    lines = [judgements(["question", "found", "answer"], rows)]
    if check.advice:
        advice = [f"<li>{_text(words)}</li>" for words in check.advice]
        lines += ["<h3>What to change</h3>", "<ul>", *advice, "</ul>"]
    return "\n".join(lines)


def _cycles(evaluation: Evaluation) -> str:
    name, shown = ERRORS[evaluation.probs is not None]
    rows = [
        [str(number), f"{one.nll:.4f}", shown.format(one.error), f"{one.weight:.3f}"]
        for number, one in enumerate(scores_of_cycles(evaluation), start=1)
    ]
    header, kinds = ["cycle", "NLL", name, "weight"], ["", *["number"] * 3]
    return table(header, rows, kinds=kinds, title="Average of the draws of each cycle")


def _text(text: str) -> str:
    return html.escape(printable(text))
