"""The results of an experiment: one JSON file with all that is needed to repeat the run."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from paper.experiments.base import Record

RENAMED = {"ramp": "anneal"}
"""Fields that records made with csgmcmc 0.1.0 have under another name."""
OLD_COMMAND, COMMAND = "csgmcmc reproduce ", "python -m paper run "
"""Records made with 0.1.0 name its command; they are shown with today's, which does the same."""

KINDS: Mapping[str, tuple[Any, str]] = {
    **dict.fromkeys(("experiment", "preset", "machine", "command"), (str, "text")),
    **dict.fromkeys(("config", "versions", "records"), (dict, "an object")),
    "seconds": ((int, float), "a number"),
    "finished": (bool, "true or false"),
}
"""What a file has in each field."""


@dataclass
class Results:
    """The records of a run, with its settings, the versions of the packages and the machine."""

    experiment: str
    preset: str
    config: Mapping[str, Any]
    versions: Mapping[str, str]
    machine: str
    command: str = ""
    seconds: float = 0.0
    """Of all jobs together, one after another."""
    finished: bool = False
    records: dict[str, Record] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write the file as a whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".json.tmp")
        fresh.write_text(json.dumps(asdict(self), indent=1, allow_nan=False) + "\n")
        fresh.replace(path)

    def check(self, path: Path) -> None:
        """Raise a `ValueError` that names a field of another kind than it should have."""
        for name, (kind, words) in KINDS.items():
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise ValueError(f"{path} is damaged: {name} must be {words}, got {value!r:.200}")
        for name, record in self.records.items():
            if not isinstance(record, dict):
                raise ValueError(f"{path} is damaged: records.{name} must be an object")

    @classmethod
    def load(cls, path: Path) -> "Results":
        """Read a file of `python -m paper run`, or of `csgmcmc reproduce` of version 0.1.0."""
        try:
            results = cls(**json.loads(path.read_text(encoding="utf-8"), object_hook=_renamed))
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"{path} does not hold results of python -m paper run") from error
        results.check(path)
        results.command = results.command.replace(OLD_COMMAND, COMMAND)
        return results


def duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def _renamed(values: dict[str, Any]) -> dict[str, Any]:
    return {RENAMED.get(name, name): value for name, value in values.items()}
