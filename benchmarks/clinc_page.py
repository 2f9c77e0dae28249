"""The tables and the picture of docs/howto/know-what-it-does-not-know.md.

    python -m benchmarks.clinc_page

Prints the tables, and draws docs/images/clinc.png from the records of `benchmarks/clinc.py`.
"""

from statistics import mean, stdev
from typing import Any

from rich.console import Console

from benchmarks.clinc import EPOCHS, METHODS, ROOT, VARIED, records

PICTURE = ROOT / "docs" / "images" / "clinc.png"
COLUMNS = {"accuracy": 100, "NLL": 1, "scaled NLL": 1, "ECE": 1, "scaled ECE": 1, "AUROC": 1}
COLUMNS |= {"scaled AUROC": 1}


def judged(name: str, method: str) -> dict[int, dict[str, Any]]:
    """The records of the test queries by seed, of the setting that is chosen."""
    own = {"part": name, "stage": "judge", "method": method}
    found = [each for each in records() if {key: each[key] for key in own} == own]
    return {each["seed"]: each for each in found}


def spread(values: list[float], places: int) -> str:
    """Mean and standard error."""
    if len(values) == 1:
        return f"{values[0]:.{places}f}"
    return f"{mean(values):.{places}f} ± {stdev(values) / len(values) ** 0.5:.{places}f}"


def rows(name: str) -> list[str]:
    """A row for each method, with the difference from AdamW of the same seeds."""
    found, start = [], judged(name, "AdamW")
    for method, each in METHODS.items():
        runs = judged(name, method)
        if not runs:
            continue
        cells = [each.title, str(len(runs))]
        for column, factor in COLUMNS.items():
            own = [factor * run["scores"][column] for run in runs.values()]
            cells.append(spread(own, 2 if column == "accuracy" else 4))
        common = sorted(runs.keys() & start.keys())
        for column in ("scaled NLL", "scaled AUROC"):
            changes = [runs[i]["scores"][column] - start[i]["scores"][column] for i in common]
            cells.append("" if method == "AdamW" else spread(changes, 4))
        cells.append(f"{mean(run['seconds'] for run in runs.values()):.0f}")
        found.append(f"| {' | '.join(cells)} |")
    return found


def varied() -> list[str]:
    """A row for each variation, on the validation queries."""
    found = []
    for method, setting in VARIED:
        runs = [
            record
            for record in records()
            if (record["stage"], record["method"]) == ("vary", method)
            and record["setting"] == setting
        ]
        if runs:
            keys = ("weight_decay", "temperature", "exploration")
            options = ["" if key not in setting else f"{setting[key]:g}" for key in keys]
            own = [
                spread([run["scores"][column] for run in runs], 4)
                for column in ("scaled NLL", "scaled AUROC")
            ]
            title = "ensemble" if method == "short ensemble" else "AdamSGHMC"
            found.append(f"| {' | '.join([title, *options, str(len(runs)), *own])} |")
    return found


def show() -> None:
    """Print the tables of the page."""
    say = Console(width=250).print
    names = ["", "seeds", *COLUMNS, "scaled NLL less AdamW's", "scaled AUROC less AdamW's"]
    for name in EPOCHS:
        say(f"\n| {' | '.join([name, *names[1:], 'seconds'])} |\n|{'---|' * (len(names) + 1)}")
        say("\n".join(rows(name)))
    say("\n| | weight decay | temperature | exploration | seeds | scaled NLL | scaled AUROC |")
    say("|---|---|---|---|---|---|---|\n" + "\n".join(varied()))


def figure() -> None:
    """Draw the picture of the page: scaled NLL and AUROC against epochs of training."""
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    picture, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for number, (method, each) in enumerate(METHODS.items()):
        runs = judged("head", method).values()
        if not runs or method == "SGHMC":
            continue
        for axis, column in zip(axes, ("scaled NLL", "scaled AUROC"), strict=True):
            own = [run["scores"][column] for run in runs]
            error = stdev(own) / len(own) ** 0.5 if len(own) > 1 else 0.0
            style = {"fmt": "o", "color": f"C{number}", "capsize": 3, "label": each.title}
            axis.errorbar([mean(run["seconds"] for run in runs)], [mean(own)], [error], **style)
            axis.set(xlabel="processor seconds of training", title=f"test {column}")
            axis.grid(alpha=0.3)
    axes[1].legend(fontsize=7)
    picture.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    show()
    figure()
