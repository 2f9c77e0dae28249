"""The manifest of one chain: one line per draw. A draw exists once its line is written.

A line is the CRC-32 of a JSON object, a space, and the object. Lines are only ever appended. A line
that was torn by a crash, or changed later, does not match its CRC: it is reported and skipped, and
the rest stays usable.
"""

import json
import os
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from csgmcmc.errors import StoreError
from csgmcmc.files import FileIdentity, flush, identity, identity_of


@dataclass(frozen=True)
class Lines:
    """What was read of a manifest.

    Attributes:
        records: the JSON objects.
        problems: one sentence for each line that cannot be used.
        replaced: what was read before no longer holds: these are all lines of another file.
    """

    records: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    replaced: bool = False


class Manifest:
    """A manifest, and how much of it was read: what is read or written once is not read again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_flushed = True
        self._start_again()

    def _start_again(self) -> None:
        self._seen: FileIdentity | None = None  # the file, when it was last read or written
        self._end = 0  # of the last whole line that was read or written
        self._tail = (0, b"")  # where the last line is, and what: if not, the file is another one
        self._line_count = 0

    def read_new(self) -> Lines:
        """The lines that were added since this object last read or wrote.

        All lines, if the file has not just grown since.
        """
        seen, found = self._seen, identity_of(self.path)
        if found == seen:
            return Lines()
        if found is None:
            self._start_again()
            return Lines(replaced=True)
        with self.path.open("rb") as file:
            grown = seen is not None and self._continues(file, seen, found)
            if not grown:
                self._start_again()
            file.seek(self._end)
            content = file.read()
        records, problems = _parse(content, self._line_count, self.path)
        # A last line without its end may still be in writing: it is read again with what follows.
        whole = content.rfind(b"\n") + 1
        last_line = content.rfind(b"\n", 0, max(whole - 1, 0)) + 1
        self._tail = (self._end + last_line, content[last_line:])
        self._end += whole
        self._line_count += content.count(b"\n")
        self._seen = found
        return Lines(records, problems, replaced=seen is not None and not grown)

    def _continues(self, file: BinaryIO, seen: FileIdentity, found: FileIdentity) -> bool:
        """Whether it is the file that was seen, with more at its end."""
        if found.file != seen.file or found.size <= seen.size:
            return False
        start, tail = self._tail
        file.seek(start)
        return file.read(len(tail)) == tail

    def append(self, record: dict[str, Any], *, flushed: bool = True) -> None:
        """Append a line, after `read_new`, by the only writer.

        Returns once it is on disk. With `flushed=False` that waits for `flush`: a crash of the
        machine may lose the line, but a crash of the process does not.
        """
        text = json.dumps(record, separators=(",", ":"))
        line = f"{zlib.crc32(text.encode()):08x} {text}\n".encode()
        with open(self.path, "ab+", buffering=0, opener=_open_itself) as file:
            size = file.seek(0, os.SEEK_END)
            if size:  # do not append to a torn line
                file.seek(size - 1)
                line = line if file.read(1) == b"\n" else b"\n" + line
            self._is_flushed = False
            written = 0
            while written < len(line):  # a nearly full disk takes a part, then raises
                written += file.write(line[written:])
            if flushed:
                os.fsync(file.fileno())
                self._is_flushed = True
            self._seen = identity(os.fstat(file.fileno()))
        self._end = self._seen.size
        self._tail = (self._end - len(line), line)
        self._line_count += line.count(b"\n")

    def flush(self) -> None:
        """Wait until every line that was appended is on disk."""
        if not self._is_flushed:
            flush(self.path)
            self._is_flushed = True


def _open_itself(path: str, flags: int) -> int:
    """Open a file, but no link to another one, which may not be of the store at all."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _parse(content: bytes, lines_before: int, path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The records of some lines, and a sentence for each line that cannot be used."""
    good: list[bytes] = []
    problems: list[str] = []
    lines = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        text = line[9:]
        if line[:9] == b"%08x " % zlib.crc32(text):
            good.append(text)
        elif line:
            torn = "torn" if number == len(lines) else "torn or changed"
            problems.append(f"{path.name}, line {lines_before + number}: {torn}, skipped")
    try:
        records = json.loads(f"[{b','.join(good).decode()}]")  # one call: many times faster
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not a manifest of csgmcmc: {error}") from error
    if not all(type(record) is dict for record in records):
        raise StoreError(f"{path} is not a manifest of csgmcmc: a line is not a JSON object")
    return records, problems
