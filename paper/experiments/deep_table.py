"""Table 1: eight methods at equal budgets, and deep ensembles beside them.

Every method has the same network, epochs, batches and test data, and one seed gives all of them the
same starting weights and the same order of the data. Temperature 1/N is that of the published code;
the paper says 0.0045, which is a further row of each sampler. Where step sizes are searched for,
each method has the one that is best on validation data; Snapshot shares that of its cyclical
sampler, as in the paper.

Rows that the paper lacks: ensembles of M networks trained by SGDM from different starts, at the
same total number of epochs as every method, and at M times as many; SGLD and SGHMC whose decay
counts iterations in place of epochs; SGD and SGDM for the epochs of one cycle, which say whether a
cycle is long enough.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paper.experiments.deep_base import Chains, DeepConfig, DeepExperiment, Groups
from paper.experiments.deep_settings import Setting
from paper.experiments.methods import BY_NAME, Run

LITERAL = "0.0045"
SAME, MORE = "ensemble, same budget", "ensemble, M budgets"
TRADITIONAL = ("SGLD", "SGHMC")
PLAIN = ("SGD", "SGDM")


@dataclass(frozen=True)
class TableConfig(DeepConfig):
    """Settings of table 1.

    Args:
        literal_seeds: seeds at the paper's literal temperature.
        ensemble_seeds: ensembles of each kind.
        iteration_seeds: seeds of the traditional samplers whose decay counts iterations.
    """

    literal_seeds: int = 3
    ensemble_seeds: int = 3
    iteration_seeds: int = 0


class Table(DeepExperiment[TableConfig]):
    """Chains are runs of the methods and members of the ensembles; groups are the ensembles."""

    methods = tuple(BY_NAME)

    def chains(self, config: TableConfig, setting: Setting, lrs: Mapping[str, float]) -> Chains:
        chains: dict[str, Run] = {}
        seeds = config.seeds_of(setting)
        for seed in seeds:
            for method in BY_NAME:
                chains[f"{method}, seed {seed}"] = setting.run(method, lrs[method], seed)
        for seed in seeds[: config.literal_seeds]:
            for method in (name for name in BY_NAME if BY_NAME[name].hot):
                run = setting.run(method, lrs[method], seed, temperature=LITERAL)
                chains[f"{method} at {LITERAL}, seed {seed}"] = run
        for seed in seeds[: config.iteration_seeds]:
            for method in TRADITIONAL:
                run = setting.run(method, lrs[method], seed, decay_in="steps")
                chains[f"{method}, decay in iterations, seed {seed}"] = run
        for label, members in _ensembles(config, setting, lrs).items():
            for number, run in enumerate(members):
                if run not in chains.values():  # the first of the longer ones is in the table
                    chains[f"{label}, network {number}"] = run
        if setting.validation:
            for seed in seeds:
                for method in PLAIN:
                    epochs = setting.epochs / setting.cycles
                    run = setting.run(method, lrs[method], seed, epochs=epochs)
                    if run not in chains.values():
                        chains[f"{method}, one cycle, seed {seed}"] = run
        return chains

    def groups(self, config: TableConfig, setting: Setting, lrs: Mapping[str, float]) -> Groups:
        return {
            label: {
                "runs": runs,
                "method": label.split(", seed", maxsplit=1)[0],
                "seed": runs[0].seed,
            }
            for label, runs in _ensembles(config, setting, lrs).items()
        }


def _ensembles(
    config: TableConfig, setting: Setting, lrs: Mapping[str, float]
) -> dict[str, list[Run]]:
    """Members of the ensembles of each seed; no network is in two ensembles of a row."""
    if not setting.ensembles:
        return {}
    seeds, ensembles = config.seeds_of(setting)[: config.ensemble_seeds], {}
    for label, epochs, count in (
        (SAME, setting.epochs / setting.cycles, len(seeds)),
        (MORE, setting.epochs, setting.long_ensembles),
    ):
        for seed in seeds[:count]:
            ensembles[f"{label}, seed {seed}"] = [
                setting.run("SGDM", lrs["SGDM"], seed + member * len(seeds), epochs=epochs)
                for member in range(setting.cycles)
            ]
    return ensembles
