"""What the pages of the experiments on CIFAR share: one skeleton, and the search for step sizes."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paper.report.compare import RULE, Scores
from paper.report.page import Claim, Grid, Page, Part, Results, losses_by_lr

NAMES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}

Record = Mapping[str, Any]
Setting = Mapping[str, Any]
Section = Callable[[Setting, Sequence[Record]], tuple[list[Claim], list[Part]]]
"""From a data set's setting and its records to the claims, tables and figures."""


def make_page(
    results: Results,
    title: str,
    summary: str,
    section: Section,
    *,
    rule: str = RULE,
    search: bool = True,
) -> Page:
    """A section for each data set: settings in words, what `section` makes, and the search."""
    claims: list[Claim] = []
    parts: list[Part] = []
    for setting in results["config"]["settings"]:
        name = name_of(setting)
        records = [r for r in results["records"].values() if setting_of(r) == name]
        found, shown = section(setting, records)
        claims += found
        parts += [describe(setting), *shown]
        if search:
            parts += search_table(setting["source"], records)
    return Page(title, summary, claims, [*parts, rule])


def name_of(setting: Setting) -> str:
    """What tells the settings of an experiment apart."""
    return setting.get("label") or setting["source"]


def setting_of(record: Record) -> str:
    """The setting of a record; those made with csgmcmc 0.1.0 name the data only."""
    return record.get("setting", record["source"])


def scores_by(
    records: Sequence[Record], part: str, label: Callable[[Record], str | None]
) -> Scores:
    """Scores by label and seed of the records of a part, without those that diverged."""
    scores: dict[str, dict[int, Record]] = defaultdict(dict)
    for record in records:
        if record["part"] == part and record["scores"] and (name := label(record)) is not None:
            scores[name][record["seed"]] = record["scores"]
    return scores


def describe(setting: Mapping[str, Any]) -> str:
    """The settings of a data set in words."""
    network = setting["network"]
    text = (
        f"{NAMES[setting['source']]}: {network['kind']} of width {network['width']}, batch "
        f"{network['batch']}, weight decay {network['weight_decay']:g}, {setting['epochs']} epochs "
        f"for every method, {setting['cycles']} cycles, exploration {setting['exploration']:g}, "
        f"crops and mirrored images. Momentum {network['momentum']:g} (the paper's eta = 0.9) in "
        f"cSGHMC, SGHMC and Snapshot-SGDM, {network['sgdm_momentum']:g} in SGDM. SGD and SGDM: one "
        "cosine to 0. SGLD and SGHMC: along a cosine to a hundredth of the step size in three "
        "quarters of the epochs, without noise; then a tenth of the step size times k^-0.5005, k "
        "in epochs. "
    )
    if not setting["searched"]:
        return text + "Step sizes are the paper's; those of SGD and SGDM, which it lacks, are 0.1."
    return text + (
        f"Step sizes: the lowest NLL on {setting['held_out']:,} held-out training images, of runs "
        f"of {setting['search_epochs']} epochs on the others, as long as a cycle."
    )


def search_table(source: str, records: Sequence[Mapping[str, Any]]) -> list[Grid]:
    """What the search for step sizes found, if there was one."""
    losses: dict[str, dict[float, float | None]] = defaultdict(dict)
    for record in records:
        if record["part"] == "search" and record["source"] == source:
            losses[record["method"]][record["lr"]] = record["validation_nll"]
    if not losses:
        return []
    rows = []
    for method, found in losses.items():
        finite = {lr: loss for lr, loss in found.items() if loss is not None}
        best = min(finite, key=lambda lr: finite[lr]) if finite else None
        edge = "yes" if best in (min(found), max(found)) else "no"
        rows.append([method, losses_by_lr(found), "-" if best is None else f"{best:g}", edge])
    return [
        Grid(
            title=f"{NAMES[source]}: the search for step sizes",
            header=["method", "NLL on held-out data, by step size", "taken", "at the edge"],
            rows=rows,
            note="One seed; the lowest is taken. At the edge, a further step size may be better.",
        )
    ]
