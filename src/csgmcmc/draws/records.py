"""What the manifests of a store say, compared with the files that are there."""

from pathlib import Path
from typing import Any

from csgmcmc.arguments import shown
from csgmcmc.draws import folder as contents
from csgmcmc.draws.lock import is_locked
from csgmcmc.draws.manifest import Lines, Manifest
from csgmcmc.draws.ordered import ByChainAndStep, Key
from csgmcmc.errors import StoreError
from csgmcmc.files import file_size, file_sizes


class Records:
    """The lines of all chains of a store.

    Attributes:
        kept: the line of each draw whose files are whole.
        log_likelihoods: those that were set later.
        headers: provenance of each chain.
        foreign: why a chain's manifest is not that of the chain.
    """

    def __init__(self, folder: Path) -> None:
        self.kept: ByChainAndStep[dict[str, Any]] = ByChainAndStep()
        self.log_likelihoods: dict[Key, float] = {}
        self.headers: dict[int, dict[str, Any]] = {}
        self.foreign: dict[int, str] = {}
        self._folder = folder
        self._manifests: dict[int, Manifest] = {}

    def manifest(self, chain_id: int) -> Manifest:
        """The manifest of a chain."""
        if chain_id not in self._manifests:
            path = self._folder / "chains" / contents.manifest_name(chain_id)
            self._manifests[chain_id] = Manifest(path)
        return self._manifests[chain_id]

    def read(self) -> list[str]:
        """Read the manifests, then list the files: never the other way round.

        While a chain is being written, its newest file may have no line yet. Returns a sentence for
        each damaged or leftover file.
        """
        records: list[dict[str, Any]] = []
        problems: list[str] = []
        chain_ids, strays = contents.chains_with_manifest(self._folder)
        for chain_id in chain_ids:
            lines = self.manifest(chain_id).read_new()
            records += self._enter(chain_id, lines)
            problems += lines.problems
        problems += [*self.foreign.values(), *strays]
        sizes = file_sizes(self._folder / "draws")
        whole = {
            (record["chain"], record["step"]): record
            for record in records
            if contents.are_whole(record, sizes.get)
        }
        self.kept.update(whole)
        if len(whole) < len(records):
            problems += contents.problems_of_files(records, sizes)
        for name in self._leftover(sizes.keys() - _names(records)):
            problems.append(f"draws/{name}: not in a manifest, ignored")
        return problems

    def _leftover(self, without_line: set[str]) -> list[str]:
        """Of files that had no line, those that nobody is about to give one, or has meanwhile."""
        chains: dict[int | None, set[str]] = {}
        for name in without_line:
            chains.setdefault(contents.chain_of(name), set()).add(name)
        for chain_id, of_chain in chains.items():
            if chain_id is None:
                continue
            if is_locked(contents.lock_file(self._folder, chain_id)):
                without_line = without_line - of_chain
            else:
                self.read_on(chain_id)
        unnamed = {name for name in without_line if contents.UNNAMED_PART.fullmatch(name)}
        if unnamed and contents.is_any_locked(self._folder):
            without_line = without_line - unnamed
        leftover = without_line - _names(self.kept.values())
        return sorted(name for name in leftover if (self._folder / "draws" / name).exists())

    def read_on(self, chain_id: int) -> list[dict[str, Any]]:
        """Enter what was added to a chain's manifest since it was last read or written."""
        added = [
            record
            for record in self._enter(chain_id, self.manifest(chain_id).read_new())
            if contents.are_whole(record, lambda name: file_size(self._folder / "draws" / name))
        ]
        self.kept.update({(chain_id, record["step"]): record for record in added})
        return added

    def _enter(self, chain_id: int, lines: Lines) -> list[dict[str, Any]]:
        """Read a manifest's header and log-likelihoods; return the lines of draws."""
        if lines.replaced:
            self.kept.forget_chain(chain_id)
            for key in [key for key in self.log_likelihoods if key[0] == chain_id]:
                del self.log_likelihoods[key]
            self.headers.pop(chain_id, None)
            self.foreign.pop(chain_id, None)
        name = f"chains/{contents.manifest_name(chain_id)}"
        chains = [line.get("chain", chain_id) for line in lines.records]
        if others := [one for one in chains if one != chain_id]:
            self.kept.forget_chain(chain_id)
            self.foreign[chain_id] = f"{name}: holds lines of chain {shown(others[0])}, ignored"
        if chain_id in self.foreign:  # its log-likelihoods would be those of other draws
            return []
        records: list[dict[str, Any]] = []
        for line in lines.records:
            if "draw" in line and contents.is_line_of_draw(line, chain_id):
                records.append(line)
            elif "likelihood_of" in line and contents.is_line_of_likelihood(line):
                self.log_likelihoods[chain_id, line["likelihood_of"]] = line["log_likelihood"]
            elif contents.is_header(line):
                self.headers[chain_id] = line
            else:
                raise StoreError(f"{self._folder}/{name}: has a line that no version has written")
        return records


def _names(records: Any) -> set[str]:
    return {name for record in records for name in contents.files_of(record)}
