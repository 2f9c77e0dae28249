"""The manifest of one chain: one line per draw. A draw exists once its line is written.

A line is the CRC-32 of a JSON object, a space, and the object. Lines are only ever appended. A line
that was torn by a crash, or changed later, does not match its CRC: it is reported and skipped, and
the rest stays usable.
"""

import json
import os
import zlib
from pathlib import Path
from typing import Any


def append_line(path: Path, record: dict[str, Any]) -> None:
    """Append `record`, and return once it is on disk."""
    text = json.dumps(record, separators=(",", ":"))
    line = f"{zlib.crc32(text.encode()):08x} {text}\n".encode()
    with path.open("ab+") as file:
        size = file.seek(0, os.SEEK_END)
        if size:  # do not append to a torn line
            file.seek(size - 1)
            line = line if file.read(1) == b"\n" else b"\n" + line
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The records of a manifest, and a sentence for each line that cannot be used."""
    good: list[bytes] = []
    problems: list[str] = []
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        found, _, text = line.partition(b" ")
        if found == b"%08x" % zlib.crc32(text):
            good.append(text)
        else:
            last = "torn" if number == len(lines) else "torn or changed"
            problems.append(f"{path.name}, line {number}: {last}, skipped")
    return json.loads(b"[%s]" % b",".join(good)), problems  # one call: many times faster
