"""The page of a run: one HTML file that needs no network, on light and on dark paper."""

import html
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from csgmcmc.draws import Draw, DrawStore
from csgmcmc.files import atomic_write, check_path
from csgmcmc.pages import as_element, contents, document, draw, figure, judgements, table
from csgmcmc.report import charts
from csgmcmc.report.findings import Findings
from csgmcmc.report.traces import Trace

if TYPE_CHECKING:  # an extra
    from matplotlib.figure import Figure

NAME = "report.html"
QUESTIONS = {
    "sampling": "Sampling: is N right, and do the draws have the temperature asked for?",
    "mixing": "Mixing: do the predictions of chains or cycles agree?",
    "calibrated": "Calibrated: are the probabilities right?",
    "better": "Better: is the average better than the best single draw?",
}
ANSWERS = {
    True: ("✓ yes", "held"),
    False: ("✗ no", "contradicted"),
    None: ("? unknown", "undecided"),
}
MOST_CYCLES = 200  # in the table
MIXING = {
    "r_hat": "R-hat of predictions, median over points",
    "r_hat_by_chance": "R-hat by chance, up to",
    "disagreement_within_cycles": "share of points on which draws of one cycle disagree",
    "disagreement_between_cycles": "share of points on which draws of two cycles disagree",
}
IN_PYTHON = {
    "trace": "loss, lr and temperature along the run: use a DrawStore of a Chain, which keeps a "
    "log beside the draws, or give stepper=",
    "loss": "the loss along the run: a Chain with a DrawStore logs it",
    "scores": "verdicts, NLL, error, calibration and entropy: give held-out data, as in "
    "posterior.report(loader)",
    "other": "the entropy of data of another kind: give them as other=",
    "sampling": "temperatures and noise: give stepper=, loss= and data= of the run",
}
"""What is not on a page, and what to give to have it there, in the words of Python."""


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
        if where.exists() and not where.is_file():  # a device would be replaced
            raise ValueError(f"{where} is not a file: give one for the page")
        atomic_write(where, lambda part: part.write_text(self.html, encoding="utf-8", newline="\n"))
        return where

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that a notebook keeps its style."""
        style = "width:100%;height:80vh;border:0"
        return f'<iframe srcdoc="{html.escape(self.html)}" style="{style}"></iframe>'


@dataclass(frozen=True)
class Material:
    """What a page is made of.

    Attributes:
        title: of the page.
        draws: all draws of the run.
        traces: along the run, one for each chain.
        findings: on held-out data.
        provenance: how it was made, by name.
        to_give: what to give for what is missing, by the names of `IN_PYTHON`.
    """

    title: str
    draws: Sequence[Draw]
    traces: Sequence[Trace] = ()
    findings: Findings | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    to_give: Mapping[str, str] = field(default_factory=lambda: IN_PYTHON)


def make_report(material: Material) -> Report:
    """The page; needs matplotlib."""
    import matplotlib as mpl  # noqa: PLC0415  (an extra)

    with mpl.rc_context(charts.CHART_STYLE):
        sections = list(_sections(material))
    links = {name: title for name, title, _ in sections}
    body = "\n".join(
        f'<section id="{name}" aria-labelledby="{name}-title">\n'
        f'<h2 id="{name}-title">{html.escape(title)}</h2>\n{inside}\n</section>'
        for name, title, inside in sections
    )
    header = f"<h1>{_text(material.title)}</h1>\n<p>{_text(_summary(material))}</p>"
    return Report(document(_plain(material.title), header, f"{contents(links)}\n{body}"))


def _summary(material: Material) -> str:
    draws, found = material.draws, material.findings
    cycles = len({(each.chain_id, each.cycle) for each in draws})
    counts = {
        "draw": len(draws),
        "cycle": cycles,
        "chain": len({each.chain_id for each in draws}),
    }
    words = ", ".join(f"{n} {name}{'' if n == 1 else 's'}" for name, n in counts.items())
    if found is None:
        return f"{words}."
    scores = f"NLL {_score(found.numbers.get('nll'))}, {_error(found, found.error_by_draws)}"
    return f"{words}. The average has {scores} on {found.points} held-out data points."


def _sections(material: Material) -> Iterator[tuple[str, str, str]]:
    """Id, title and HTML of each section that there is something for."""
    found = material.findings
    if found is not None:
        yield "verdicts", "Is it right?", _verdicts(found)
    if any(len(trace.step) for trace in material.traces):
        yield "trace", "Along the run", _trace(material)
    if found is not None:
        yield "scores", "NLL and error", _scores(found)
        title = "Calibration and entropy" if found.share_up_to else "Calibration"
        yield "uncertainty", title, _uncertainty(found)
        yield "sampling", "Temperatures and mixing", _sampling(found)
    if material.provenance:
        rows = [[_text(name), _text(value)] for name, value in material.provenance.items()]
        yield "provenance", "How it was made", table(["what", "value"], rows, kinds=["", "long"])
    missing = list(_missing(material))
    if missing:
        items = "\n".join(f"<li>{_text(sentence)}</li>" for sentence in missing)
        yield "missing", "What is not shown", f"<ul>\n{items}\n</ul>"


def _missing(material: Material) -> Iterator[str]:
    """What to give for what is not there."""
    found = material.findings
    names = []
    if not material.traces:
        names.append("trace")
    elif all(trace.loss is None for trace in material.traces):
        names.append("loss")
    if found is None:
        names.append("scores")
    else:
        if found.entropies and "other" not in found.share_up_to:
            names.append("other")
        if not found.parameters:
            names.append("sampling")
    for name in names:
        sentence = material.to_give[name]
        yield f"{sentence[0].upper()}{sentence[1:]}."


def _verdicts(found: Findings) -> str:
    rows = [
        (
            [_text(question), _text(found.verdicts[name]["words"])],
            *ANSWERS[found.verdicts[name]["holds"]],
        )
        for name, question in QUESTIONS.items()
    ]
    parts = [judgements(["question", "found", "answer"], rows)]
    if found.advice:
        items = "\n".join(f"<li>{_text(advice)}</li>" for advice in found.advice)
        parts += [f"<h3>What to change</h3>\n<ul>\n{items}\n</ul>"]
    return "\n".join(parts)


def _trace(material: Material) -> str:
    chart = charts.trace_chart(material.traces, material.draws)
    loss = any(trace.loss is not None for trace in material.traces)
    caption = "Dots: draws. Vertical lines: a new cycle begins."
    if loss:
        caption = f"Loss of the minibatch without the prior, faint, and its mean. {caption}"
    return _figure("trace-chart", chart, caption)


def _scores(found: Findings) -> str:
    last = found.nll_by_draws[-1] if found.nll_by_draws else None
    by_draws = (
        "Average of the first draws, by chain and step, and each draw alone. With all draws the "
        f"NLL is {_score(last)}, with {_error(found, found.error_by_draws)}."
    )
    by_cycle = "Average of the draws of each cycle, and of all draws. "
    by_cycle += "Stacking would give the weights that are best for these same data."
    chart = _figure("cycles-chart", charts.cycles_chart(found), by_cycle)
    pair = _figure("scores-chart", charts.scores_chart(found), by_draws) + "\n" + chart
    return f'<div class="pair">\n{pair}\n</div>\n{_cycles(found)}'


def _cycles(found: Findings) -> str:
    rows = [
        [
            str(number),
            str(cycle["chain_id"]),
            str(cycle["cycle"] + 1),
            str(cycle["draws"]),
            _number(cycle["weight"]),
            _number(cycle["stacking"]),
            _score(cycle["nll"]),
            _error(found, [cycle["error"]]).partition(" ")[2],
        ]
        for number, cycle in enumerate(found.cycles[:MOST_CYCLES], start=1)
    ]
    header = ["", "chain", "cycle", "draws", "weight", "by stacking", "NLL", found.error_name]
    return table(
        list(map(_text, header)),
        [list(map(_text, row)) for row in rows],
        kinds=["number"] * 8,
        title="Cycles",
    )


def _uncertainty(found: Findings) -> str:
    if found.error_name == "error":
        caption = (
            "Accuracy against confidence, in bins; a larger dot has more points, and lines are 99% "
            f"intervals. Calibration error {_number(found.numbers.get('ece'))}, by chance up to "
            f"{_number(found.numbers.get('ece_by_chance'))}."
        )
    else:
        caption = (
            "Share of targets inside of central predictive intervals, with 99% intervals. 90% "
            f"intervals contain {_percent(found.numbers.get('coverage_90'))}."
        )
    parts = [_figure("calibration-chart", charts.calibration_chart(found), caption)]
    if found.share_up_to:
        told = {"wrong": "wrong predictions from right ones", "other": "other data from these"}
        auroc = [
            f"{told[name]} {_number(found.auroc[name])}" for name in told if name in found.auroc
        ]
        caption = "Entropy of predictions that are right and wrong"
        caption += ", and of other data." if "other" in found.share_up_to else "."
        caption += f" AUROC of entropy: {', '.join(auroc)}." if auroc else ""
        parts.append(_figure("entropy-chart", charts.entropy_chart(found), caption))
    inside = "\n".join(parts)
    return f'<div class="pair">\n{inside}\n</div>'


def _sampling(found: Findings) -> str:
    mixing = [
        [_text(words), _number(found.numbers[name])]
        for name, words in MIXING.items()
        if name in found.numbers
    ]
    parts = []
    chart = charts.temperature_chart(found)
    if chart is not None:
        caption = (
            "Temperature of each parameter tensor at the draws, relative to its target, with 99% "
            "intervals. Squares are off by more than a factor of two, the grey band. What is below "
            "a thousandth is drawn there."
        )
        parts.append(_figure("temperature-chart", chart, caption))
    if found.parameters:
        parts.append(_temperatures(found))
    if mixing:
        parts.append(table(["mixing", "value"], mixing, kinds=["", "number"], title="Mixing"))
    return "\n".join(parts) or f"<p>{_text(found.verdicts['mixing']['words'])}</p>"


def _temperatures(found: Findings) -> str:
    rows = [
        [
            name,
            f"{row['size']:,}",
            _number(row["target"]),
            _number(row["value"]),
            f"{_number(row['low'])} to {_number(row['high'])}",
            _number(row["injected"] / row["minibatch"] if row["minibatch"] else None),
        ]
        for name, row in found.parameters.items()
    ]
    header = ["parameter", "weights", "target", "temperature", "99% interval", "noise ratio"]
    box = table(
        header,
        [list(map(_text, row)) for row in rows],
        kinds=["", *["number"] * 5],
        title="Temperatures",
    )
    return f"{box}\n<p>Noise ratio: variance of injected noise by that of the minibatches.</p>"


def _figure(name: str, drawn: "Figure", caption: str) -> str:
    return figure(as_element(draw(drawn, name), name), name, _text(caption))


def store_provenance(store: DrawStore) -> dict[str, str]:
    """How the chains of a store were made; where they differ, of each."""
    values: dict[str, dict[int, str]] = {}
    for chain_id, header in sorted(store.headers().items()):
        made, versions = header.get("provenance", {}), header.get("versions", {})
        found = {name: _as_text(name, made[name]) for name in made}
        found["versions"] = ", ".join(f"{name} {number}" for name, number in versions.items())
        for name, value in found.items():
            values.setdefault(name, {})[chain_id] = value
    return {
        name: next(iter(each.values()))
        if len(set(each.values())) == 1
        else "; ".join(f"chain {chain_id}: {value}" for chain_id, value in each.items())
        for name, each in values.items()
    }


def _as_text(name: str, value: Any) -> str:
    if name == "model" and isinstance(value, dict):
        return f"{len(value)} tensors"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _error(found: Findings, errors: Sequence[float]) -> str:
    """The name of the error and the last of some."""
    last = errors[-1] if errors else None
    shown = _percent(last) if found.error_name == "error" else _score(last)
    return f"{found.error_name} {shown}"


def _percent(share: float | None) -> str:
    return "-" if share is None or math.isnan(share) else f"{100 * share:.2f}%"


def _number(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.3g}"


def _score(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.4f}"


def _plain(text: str) -> str:
    """Text that every browser can show: a byte of a path that is no letter is written out."""
    return text.encode(errors="backslashreplace").decode()


def _text(text: str) -> str:
    """Text as HTML, whatever it would mean there."""
    return html.escape(_plain(str(text)))
