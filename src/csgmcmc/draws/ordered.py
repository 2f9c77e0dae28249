"""What is kept of each draw, by chain and step, in that order."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

Key = tuple[int, int]
"""Chain and step of a draw."""

T = TypeVar("T")


class ByChainAndStep(Generic[T]):
    """A dictionary whose keys are also kept sorted, so that no access has to sort them."""

    def __init__(self) -> None:
        self._values: dict[Key, T] = {}
        self.keys: list[Key] = []
        """Chain and step of every draw, sorted."""

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: Key) -> bool:
        return key in self._values

    def __getitem__(self, key: Key) -> T:
        return self._values[key]

    def __setitem__(self, key: Key, value: T) -> None:
        if key not in self._values:
            insort(self.keys, key)
        self._values[key] = value

    def get(self, key: Key) -> T | None:
        """What is kept of a draw, or None."""
        return self._values.get(key)

    def values(self) -> Iterator[T]:
        """What is kept of each draw, in order."""
        return map(self._values.__getitem__, self.keys)

    def update(self, values: Mapping[Key, T]) -> None:
        """Keep many at once, which sorts only once."""
        self._values.update(values)
        self.keys = sorted(self._values)

    def forget_chain(self, chain_id: int) -> None:
        """Keep nothing of a chain."""
        for key in self.keys_of(chain_id):
            del self._values[key]
        self.keys = sorted(self._values)

    def keys_of(self, chain_id: int) -> list[Key]:
        """The keys of one chain, by step."""
        return self.keys[self._first_of(chain_id) : self._first_of(chain_id + 1)]

    def has_chain(self, chain_id: int) -> bool:
        """Whether a draw of this chain is kept."""
        return self._first_of(chain_id) < self._first_of(chain_id + 1)

    def chain_ids(self) -> list[int]:
        """Numbers of the chains that have draws."""
        found: list[int] = []
        position = 0
        while position < len(self.keys):
            found.append(self.keys[position][0])
            position = self._first_of(found[-1] + 1)
        return found

    def _first_of(self, chain_id: int) -> int:
        """Where the keys of a chain begin; (chain_id,) sorts before all of them."""
        return bisect_left(self.keys, (chain_id,))
