"""The manifest of one chain: a line for every draw, and the line is what makes it count.

A line is the CRC-32 of a JSON object, a space, and the object. Lines are only ever appended. A line
that was torn by a crash, or changed since, does not match its CRC: it is reported and passed over,
and the rest stays usable.
"""

import json
import os
import zlib
from pathlib import Path
from typing import Any


def append_line(path: Path, record: dict[str, Any]) -> None:
    """Append `record`, and return when it is on the disk."""
    text = json.dumps(record, separators=(",", ":"))
    line = f"{zlib.crc32(text.encode()):08x} {text}\n".encode()
    with path.open("ab+") as file:
        size = file.seek(0, os.SEEK_END)
        if size:  # a torn line must not swallow this one
            file.seek(size - 1)
            line = line if file.read(1) == b"\n" else b"\n" + line
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The records of a manifest, and a sentence for every line that cannot be used."""
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
            problems.append(f"{path.name}, line {number}: {last}, passed over")
    return json.loads(b"[%s]" % b",".join(good)), problems  # all at once: many times faster
