"""`csgmcmc report`: print the scores of a run, and make a page of it."""

import warnings
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from csgmcmc.cli.messages import fail
from csgmcmc.draws import DrawStore
from csgmcmc.errors import StoreError, StoreWarning
from csgmcmc.recipe import read_values
from csgmcmc.report import as_text
from csgmcmc.report.run import PAGE_NUMBERS, Record, check_complete, overview, read_record

TO_GIVE = {
    "trace": "loss, lr and temperature along the run: there is no log of a chain in logs/",
    "loss": "the loss along the run: there is no log of a chain in logs/",
    "other": "the entropy of data of another kind: return a csgmcmc.Task with other= from the "
    "function, and give csgmcmc run --report",
    "sampling": "temperatures and noise: see why under sampling",
}
"""What is not on a page, and what to give to have it there, in the words of the commands."""


def report(
    folder: Annotated[Path, typer.Argument(help="Output folder of csgmcmc run, or a draw store.")],
    out: Annotated[Path | None, typer.Option(help="File of the page; FOLDER/report.html.")] = None,
) -> None:
    """Print the scores of a run again, and make a page of it: one HTML file.

    The page needs matplotlib, the extra plot.
    """
    console = Console()
    try:
        if not (folder / "store.json").exists():
            raise fail(f"{folder} is not the folder of a run: it has no store.json")
        if out is not None and not out.absolute().parent.is_dir():
            raise fail(f"there is no folder {out.parent}, in which --out is")
        record = read_record(folder)
        if record.get("chains"):
            check_complete(record, folder)
            console.print(overview(record, folder), soft_wrap=True)
        else:
            words = "no scores, which csgmcmc run adds at the end of a run; csgmcmc inspect"
            console.print(as_text(f"{folder}: {words} {folder} shows the draws"), soft_wrap=True)
        page = _write_page(folder, record, out)
        console.print(as_text(f"page: {page}"), soft_wrap=True)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        typer.echo("csgmcmc: no page: matplotlib is missing: pip install 'csgmcmc[plot]'", err=True)
    except (StoreError, ValueError, OSError) as error:
        raise fail(str(error)) from error


def _write_page(folder: Path, record: Record, out: Path | None) -> Path:
    # Slow to import, and not for --help.
    from csgmcmc.report.findings import Findings  # noqa: PLC0415
    from csgmcmc.report.page import NAME, Material, make_report, store_provenance  # noqa: PLC0415
    from csgmcmc.report.traces import logged_traces  # noqa: PLC0415

    with warnings.catch_warnings(action="ignore", category=StoreWarning):
        store = DrawStore(folder)  # csgmcmc inspect prints its problems
    numbers, recipe = folder / PAGE_NUMBERS, folder / "recipe.json"
    findings = Findings.load(numbers) if numbers.exists() else None
    material = Material(
        title=str(record.get("run", folder)),
        draws=store,
        traces=logged_traces(folder),
        findings=findings,
        provenance={
            "folder": str(folder),
            **({"time": f"{record['seconds']:.3g} s"} if "seconds" in record else {}),
            **store_provenance(store),
            **({"recipe": str(read_values(recipe))} if recipe.exists() else {}),
        },
        to_give={**TO_GIVE, "scores": _how_to_score(record)},
    )
    return make_report(material).save(folder / NAME if out is None else out)


def _how_to_score(record: Record) -> str:
    what = "verdicts, NLL, error, calibration and entropy"
    if not record:
        return f"{what}: posterior.report(loader) makes a page with them"
    if not record.get("chains"):
        return f"{what}: csgmcmc run measures them at the end of the run"
    if record["average"]:
        return f"{what}: csgmcmc run with --report measures them"
    return f"{what}: {record['why']}; csgmcmc run with --report measures them"
