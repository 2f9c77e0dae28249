"""Puts what the benchmarks have written to runs/bench into docs/performance.md.

make bench
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

BENCH, DOCS = Path("runs/bench"), Path("docs")

# File, case, ours, against, the ratio of version 0.1.0 where it had one, and what is to be reached.
ROWS = [
    ("steps", "batch 100, SGHMC", "SGHMC, T = 0", "torch SGD", 1.018, 1.02),
    ("loops", "ResNet-20", "SGHMC, T = 0", "torch SGD", 1.003, 1.02),
    ("steps", "batch 100, SGHMC", "SGHMC, T = 1", "torch SGD", 1.693, 1.25),
    ("peers", "20 steps of SGHMC", "csgmcmc", "posteriors", 0.618, 0.45),
    ("loops", "ResNet-20", "SGHMC, T = 1", "torch SGD", 1.001, 1.02),
    ("loops", "784-400-400-10", "cSGHMC by hand", "torch SGD", 1.142, 1.06),
    ("loops", "64-64-10", "Chain", "by hand", 1.016, 1.03),
    ("estimators", "gradient steps", "BayesianMLPClassifier", "MLPClassifier, as", 1.9, 1.3),
    ("peers", "40 chains", "csgmcmc, compiled", "blackjax", 1.789, 1.2),
    ("peers", "4096 chains", "csgmcmc, compiled", "blackjax", 0.419, 0.42),
    ("predictions", "784-400-400-10, batch 100, 10", "by default", "plain forwards", 1.086, 1.1),
    ("predictions", "784-400-400-10, batch 100, 50", "by default", "plain forwards", 1.042, 1.1),
    ("predictions", "784-400-400-10, batch 1000, 10", "by default", "plain forwards", 1.074, 1.1),
    ("predictions", "64-64-10, batch 1, 50", "by default", "plain forwards", 0.361, 0.25),
    ("stores", "append a draw of 11M", "DrawStore.append", "save_file", 1.151, 1.2),
    ("stores", "draws of 0.1 MB", "DrawStore(path)", "reading all", 0.069, 0.03),
    ("stores", "draws of 1.9 MB", "DrawStore(path)", "reading all", 0.018, 0.02),
    ("stores", "store[i]", "of 20,000", "of 2,000", None, 2.0),
]


def load(name: str) -> Any:
    return json.loads((BENCH / f"{name}.json").read_text())


def row(file: str, case: str, ours: str, against: str, before: float | None, wanted: float) -> str:
    results = [one for one in load(file)["results"] if case in one["case"]]
    own = next(one for one in results if ours in one["what"] and against not in one["what"])
    other = next(one for one in results if against in one["what"])
    times = f"{own['microseconds']:.0f} µs | {other['microseconds']:.0f} µs"
    ratio = f"{own['ratio']:.3f} ({own['interval'][0]:.3f} to {own['interval'][1]:.3f})"
    reached = "yes" if own["ratio"] <= wanted else "**no**"
    name = f"{own['case']}: {own['what']}"
    earlier = "" if before is None else f"{before:g}"
    return (
        f"| {name} | {other['what']} | {times} | {earlier} | {ratio} | ≤ {wanted:g} | {reached} |"
    )


def table() -> str:
    lines = [
        "| what | against | ours | theirs | 0.1.0 | ratio (95% interval) | wanted | reached |",
        "|---|---|---|---|---|---|---|---|",
        *[row(*one) for one in ROWS],
    ]
    memory = load("prediction-memory")
    peaks = {draws: f"{peak / 2**20:.0f} MiB" for draws, peak in memory["peak_bytes"].items()}
    lines.append(
        f"| peak memory of prediction, 500 draws | 10 draws | {peaks['500']} | {peaks['10']} | "
        f"1.071 | {memory['ratio']:.3f} | ≤ 1.1 | {'yes' if memory['ratio'] <= 1.1 else '**no**'} |"
    )
    for logistic, before in zip(load("peers-logistic"), (1.86, 2.29), strict=True):
        ours, theirs = logistic["microseconds a gradient"].values()
        low, high = logistic["interval"]
        ratio = logistic["ESS a second, ratio"]
        lines.append(
            "| logistic regression, 64 chains, batch 32: least ESS a second | "
            f"blackjax {logistic['kind']} in a scan | {ours:.0f} µs a gradient | "
            f"{theirs:.0f} µs a gradient | {before:g} | {ratio:.2f} ({low:.2f} to {high:.2f}) | "
            f"≥ 1 | {'yes' if ratio >= 1 else '**no**'} |"
        )
    facts = {**load("steps")["machine"], **load("peer-versions")}
    machine = ", ".join(f"{name} {value}" for name, value in facts.items())
    return "\n".join([*lines, "", f"Machine and versions: {machine}."])


def profiles() -> str:
    """One list for each profile: the whole, and the parts that were timed by themselves."""
    lists = []
    for parts in load("profiles").values():
        (whole, total), *rest = parts.items()
        lines = [f"- {whole}: {total:.0f} µs"]
        lines += [f"    - {name}: {part:.0f} µs ({part / total:.0%})" for name, part in rest]
        lists.append("\n".join(lines))
    return "\n\n".join(lists)


def put(page: str, name: str, text: str) -> str:
    """`page` with `text` between its two marks of that name."""
    marks = rf"(<!-- {name} -->\n).*?(\n<!-- end of {name} -->)"
    changed, count = re.subn(marks, lambda found: found[1] + text + found[2], page, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"the page has {count} places for the {name}")
    return changed


def main() -> None:
    path = DOCS / "performance.md"
    page = put(put(path.read_text(), "table", table()), "profiles", profiles())
    path.write_text(page)
    (DOCS / "images").mkdir(exist_ok=True)
    shutil.copyfile(BENCH / "scaling.png", DOCS / "images" / "scaling.png")


if __name__ == "__main__":
    main()
