"""The demo: two experiments of a minute each, with their tables."""

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from csgmcmc.experiments import digits, mixture
from csgmcmc.experiments.digits import DigitsConfig as Digits
from csgmcmc.experiments.mixture import MixtureConfig as Mixture
from csgmcmc.report import digits as digits_report
from csgmcmc.report import mixture as mixture_report

__all__ = ["Digits", "Mixture", "show_digits", "show_mixture"]


def show_mixture(config: Mixture, out: Path, console: Console) -> None:
    """SGLD against cSGLD on the paper's 25 Gaussians: a table and a picture."""
    methods = config.methods
    draws = {}
    for method in methods:
        with console.status(f"{method.name}: {config.steps} steps of {config.chains} chains"):
            draws[method.name] = mixture.sample(config, method)
    rows = [
        (name, chains, score)
        for name, points in draws.items()
        for chains, score in mixture.scores(config, points).items()
    ]
    console.print(mixture_report.table(rows))
    pooled = {name: points.reshape(-1, 2) for name, points in draws.items()}
    exact = mixture.exact_draws(config, count=len(pooled["cSGLD"]))
    titled = {f"{name}, {config.chains} chains": points for name, points in pooled.items()}
    figure = mixture_report.picture(
        {"target": exact} | titled,
        {method.name: (method.lr, method.schedule.table()) for method in methods},
        steps_shown=max(config.steps // 5, 1),
    )
    path = out / "mixture.png"
    mixture_report.save(figure, path)
    console.print(f"picture: {path}")


def show_digits(config: Digits, console: Console) -> None:
    """Four methods at equal epochs on handwritten digits: a table."""
    scores = []
    with _progress(console) as progress:
        total = config.steps * len(config.seed_numbers)
        tasks = [progress.add_task(method.name, total=total) for method in digits.METHODS]
        for method, task in zip(digits.METHODS, tasks, strict=True):
            for number, seed in enumerate(config.seed_numbers):
                before = number * config.steps
                posterior = digits.sample(
                    config,
                    method,
                    seed,
                    lambda done, task=task, before=before: progress.update(
                        task, completed=before + done
                    ),
                )
                scores.append(digits.score(config, method, seed, posterior))
    console.print(digits_report.table(scores, config.steps))


def _progress(console: Console) -> Progress:
    columns = [TextColumn("{task.description:8}"), BarColumn(), "{task.completed}/{task.total}"]
    return Progress(*columns, TimeRemainingColumn(), console=console)
