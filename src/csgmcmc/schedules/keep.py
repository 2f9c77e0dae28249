"""Which sampling steps are kept as draws."""

from dataclasses import dataclass

from csgmcmc.arguments import check_count


@dataclass(frozen=True, slots=True, repr=False)
class Keep:
    """Which steps of a sampling stage are kept as draws. Give one of the two arguments.

    Args:
        per_cycle: number of draws in each cycle, evenly spaced over its sampling stage, the last
            at its end. A schedule without cycles is one cycle.
        every: keep every n-th step of each sampling stage.
    """

    per_cycle: int | None = None
    every: int | None = None

    def __post_init__(self) -> None:
        if (self.per_cycle is None) == (self.every is None):
            raise ValueError(
                f"Keep needs per_cycle or every, one of the two, got per_cycle={self.per_cycle!r}, "
                f"every={self.every!r}"
            )
        name, number = self._given
        object.__setattr__(self, name, check_count(name, number, at_least=1))

    def __repr__(self) -> str:
        return "Keep({}={})".format(*self._given)

    @property
    def _given(self) -> tuple[str, int | None]:
        return ("per_cycle", self.per_cycle) if self.every is None else ("every", self.every)

    def contains(self, position: int, window: int) -> bool:
        """Whether the `position`-th (from 1) of `window` sampling steps is kept."""
        if self.per_cycle is None:
            return position % (self.every or 1) == 0
        # The quotient increases by one at exactly `per_cycle` positions, the last being `window`.
        return position * self.per_cycle // window > (position - 1) * self.per_cycle // window

    def count(self, window: int) -> int:
        """How many of `window` sampling steps are kept."""
        return window // (self.every or 1) if self.per_cycle is None else self.per_cycle


def resolve_keep(keep: Keep | None, number: int | None, short_form: str) -> Keep:
    """The `Keep` of a schedule: its argument `keep`, or the number given as its short form."""
    if (keep is None) == (number is None):
        raise ValueError(f"give {short_form} or keep, not both: got {number} and {keep}")
    return keep or Keep(per_cycle=check_count(short_form, number, at_least=1))


def check_window(keep: Keep, window: int, where: str, remedy: str) -> None:
    """Raise a `ValueError` if `window` sampling steps are too few for `keep`."""
    if window < (keep.per_cycle or keep.every or 0):
        raise ValueError(
            f"{where} has {window} sampling steps, too few for keep={keep}: lower it, or {remedy}"
        )
