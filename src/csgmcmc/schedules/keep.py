"""Which sampling steps are kept as draws."""

from dataclasses import dataclass
from typing import Any

from csgmcmc.arguments import check_count, shown


@dataclass(frozen=True, slots=True)
class Keep:
    """Either `draws` steps, evenly spaced with the last at the end, or `every` n-th, or none.

    `noun` is the name of the caller's argument for `draws`, for error messages.
    """

    draws: int | None
    every: int | None
    noun: str = "draws"

    def __post_init__(self) -> None:
        if self.draws is not None and self.every is not None:
            raise ValueError(
                f"give {self.noun} or every, not both: got {self.noun}={shown(self.draws)}, "
                f"every={shown(self.every)}"
            )
        if self.draws is not None:
            draws = check_count(self.noun, self.draws, at_least=1)
            object.__setattr__(self, "draws", draws)
        if self.every is not None:
            object.__setattr__(self, "every", check_count("every", self.every, at_least=1))

    def require(self) -> "Keep":
        """Raise a `ValueError` if nothing is kept."""
        if self.draws is None and self.every is None:
            raise ValueError(f"say which draws to keep: give {self.noun} or every")
        return self

    def check_window(self, window: int, where: str, remedy: str) -> None:
        """Raise a `ValueError` if `window` sampling steps are too few."""
        needed = self.draws or self.every or 0
        if window < needed:
            asked = f"{self.noun}={self.draws}" if self.draws else f"every={self.every}"
            raise ValueError(
                f"{where} has {window} sampling steps, too few for {asked}: "
                f"lower {asked.split('=', maxsplit=1)[0]}, or {remedy}"
            )

    def contains(self, position: Any, window: Any) -> Any:
        """Whether the `position`-th (from 1) of `window` sampling steps is kept (arrays too)."""
        if self.every is not None:
            return position % self.every == 0
        if self.draws is not None:
            # The quotient increases by one at exactly `draws` positions, the last being `window`.
            return position * self.draws // window > (position - 1) * self.draws // window
        return False

    def count(self, window: int) -> int:
        """How many of `window` sampling steps are kept."""
        if self.every is not None:
            return window // self.every
        return self.draws or 0
