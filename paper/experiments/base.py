"""What an experiment of the paper is: settings under a name, and jobs that give records."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from paper.arguments import check_count

Record = dict[str, Any]
"""What a job found, in the values that JSON has."""


@dataclass(frozen=True)
class Config:
    """Settings of an experiment; each has fields of its own besides."""

    seeds: int = 1

    def __post_init__(self) -> None:
        check_count("seeds", self.seeds, at_least=1)


C = TypeVar("C", bound=Config)


class Experiment(ABC, Generic[C]):
    """One family of tables and figures of the paper.

    An experiment is its jobs: each can be run by itself, in any order, in a process of its own, and
    gives a record. So a run that was stopped continues with the jobs that have no record.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    presets: Mapping[str, C]
    """Settings by name: "laptop", "smoke" for tests, and "paper" where the paper has such a run."""
    keeps_draws: ClassVar[bool] = False
    """Whether jobs get a further option, `draws`: a folder for draws that outlive the job."""

    @abstractmethod
    def jobs(self, config: C, done: Mapping[str, Record]) -> Mapping[str, Mapping[str, Any]]:
        """The options of every job, by a key that says what it is.

        Asked again when all jobs are done, until nothing is new: so a job may depend on the
        records of others, as the last run of a method does on the search for its step size.
        """

    def check_data(self, config: C, data: Path | None) -> None:
        """Raise a `ValueError` if `data` lacks a part of what the paper's settings are for."""

    @abstractmethod
    def run(self, config: C, data: Path | None, **options: Any) -> Record:
        """Do one job; `data` is the folder that the user has named, if any."""
