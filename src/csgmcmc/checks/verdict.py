"""The answer to a question about a posterior."""

from dataclasses import dataclass

Numbers = dict[str, float]
Advice = list[str]


@dataclass(frozen=True)
class Verdict:
    """An answer, yes, no, or None if it is unknown, and the reason."""

    holds: bool | None
    words: str

    def __str__(self) -> str:
        answer = {True: "yes", False: "no", None: "unknown"}[self.holds]
        return f"{answer}: {self.words}"
