"""README's lines on the reproduction, and the demo's table, follow from the stored records."""

import json
import re

import numpy as np

from tests.docs.support import DOCS, ROOT

RIVALS = ("mnist-rivals", "cifar-converged-rivals")
COLUMNS = ("Snapshot-SGDM", "cSGHMC", "ensemble, same budget")


def shown(values, digits=4):
    values = np.array(list(values))
    error = values.std(ddof=1) / len(values) ** 0.5
    return f"{values.mean():.{digits}f} ± {error:.{digits}f}"


def records(name):
    return list(json.loads((DOCS / "results" / f"{name}.json").read_text())["records"].values())


def nlls(found, method):
    """Test NLL by seed."""
    return {
        record["seed"]: record["scores"]["nll"]
        for record in found
        if record["part"] == "group" and record["method"] == method and record["scores"]
    }


def one_network(found):
    """SGDM's test NLL after 20 or 80 epochs, whichever has the lower validation NLL."""
    runs = {}
    for record in found:
        plain = record["part"] == "chain" and not (record.get("dropout") or record.get("level"))
        if plain and record["method"] == "SGDM" and record["seed"] < 3:
            runs.setdefault((record["epochs"], record["lr"]), []).append(record)
    whole = [run for run in runs.values() if len(run) == 3]
    best = min(whole, key=lambda run: np.mean([record["validation"]["nll"] for record in run]))
    return [record["scores"]["nll"] for record in best]


def section():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return text.partition("\n## What to expect\n")[2].partition("\n## ")[0]


def test_the_table_of_readme():
    rows = [line for line in section().splitlines() if line.startswith("| [")]
    assert len(rows) == len(RIVALS)
    for row, name in zip(rows, RIVALS, strict=True):
        found = records(name)
        cells = [one_network(found), *(nlls(found, method).values() for method in COLUMNS)]
        assert [cell.strip() for cell in row.split("|")[2:6]] == [shown(cell) for cell in cells]


def test_what_noise_adds_to_snapshots():
    for name in RIVALS:
        found = records(name)
        cold, hot = (nlls(found, method) for method in COLUMNS[:2])
        assert shown(cold[seed] - hot[seed] for seed in hot) in section()


def test_the_number_of_claims_is_that_of_the_index():
    """A test of the report compares the index with the records."""
    index = (DOCS / "results" / "README.md").read_text(encoding="utf-8")
    counts = re.search(r"Of (\d+) claims: (.*?)\.\n", index)
    assert counts
    text = " ".join(section().split())
    assert f"Of {counts[1]} claims, {counts[2]} " in text


def test_the_table_of_the_demo():
    rows = json.loads((ROOT / "benchmarks" / "results" / "demo-digits.json").read_text())["rows"]
    page = " ".join((DOCS / "demo.md").read_text(encoding="utf-8").split())
    names = {"SGDM": "SGDM", "Snapshot": "Snapshot", "cSGHMC": "cSGHMC"}
    of = {name: [row for row in rows if row["method"] == name] for name in names}
    for name, own in of.items():
        assert len(own) == 30
        cells = [
            str(own[0]["networks"]),
            shown((100 * row["error"] for row in own), 1),
            *(shown((row[score] for row in own), 3) for score in SCORES),
        ]
        assert f"| {name} | {' | '.join(cells)} |" in page
    for other in ("SGDM", "Snapshot"):
        gaps = [row["nll"] - ours["nll"] for row, ours in zip(of[other], of["cSGHMC"], strict=True)]
        assert shown(gaps, 3) in page


SCORES = ("nll", "calibration_error", "auroc")


def test_the_table_of_batch_orders():
    found = json.loads((ROOT / "benchmarks" / "results" / "batch-orders.json").read_text())["rows"]
    page = (DOCS / "chains.md").read_text(encoding="utf-8")
    for momentum, lr in {(row["momentum"], row["lr"]) for row in found}:
        own = [row for row in found if (row["momentum"], row["lr"]) == (momentum, lr)]
        cells = [f"{row['sd_ratio']:.3f}, {row['ess']:.1f} ± {row['ess_error']:.1f}" for row in own]
        assert f"| {momentum:g} | {lr:g} | {' | '.join(cells)} |" in page
