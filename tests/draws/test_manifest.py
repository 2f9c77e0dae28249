"""What a manifest has read is known, and nothing that was added or replaced is missed."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csgmcmc.draws.manifest import Manifest

ACTIONS = [
    "own line",
    "line of another",
    "two of another",
    "torn",
    "in writing",
    "replaced",
    "gone",
]


def records_of(path: Path) -> list[dict]:
    return Manifest(path).read()[0]


def act(action: str, manifest: Manifest, number: int) -> None:
    path, record = manifest.path, {"number": number}
    other = Manifest(path)
    if action == "own line":
        manifest.append(record)
    elif action == "line of another":
        other.append(record)
    elif action == "two of another":
        other.append(record)
        other.append({"number": -number})
    elif action == "torn":
        other.append(record)
        os.truncate(path, path.stat().st_size - 3)
    elif action == "in writing":  # all but the end of the line
        other.append(record)
        os.truncate(path, path.stat().st_size - 1)
    elif action == "replaced":
        path.unlink(missing_ok=True)
        for copy in range(3 * number):
            other.append({"replaced": copy})
    else:
        path.unlink(missing_ok=True)
    if action != "own line" and path.exists():  # a coarse clock has one time for several writes
        os.utime(path, ns=(number * 10**10, number * 10**10))


@given(actions=st.lists(st.tuples(st.sampled_from(ACTIONS), st.booleans()), max_size=10))
def test_a_change_by_another_is_noticed_and_nothing_is_missed(actions, tmp_path_factory):
    """Any sequence of writers and accidents, read after some of them."""
    manifest = Manifest(tmp_path_factory.mktemp("chain") / "0000.manifest")
    known: list[dict] = []

    def read() -> None:
        if not manifest.is_known():
            known[:] = manifest.read()[0]

    for number, (action, reads) in enumerate(actions, start=1):
        if action == "own line":
            read()  # as a writer does, once it has the lock
            known.append({"number": number})
        act(action, manifest, number)
        if reads:
            read()
    read()
    assert known == records_of(manifest.path)
    assert manifest.is_known()


@pytest.mark.parametrize("replacement", ["a", "abc", "abcdef"])
def test_a_file_that_was_rewritten_in_place_is_noticed(tmp_path, replacement):
    manifest, other = Manifest(tmp_path / "one"), Manifest(tmp_path / "other")
    for letter in "xyz":
        manifest.append({"letter": letter})
    for letter in replacement:
        other.append({"letter": letter})
    os.utime(other.path, ns=(0, 0))
    manifest.path.write_bytes(other.path.read_bytes())  # the same inode
    os.utime(manifest.path, ns=(0, 0))
    assert not manifest.is_known()
    assert [record["letter"] for record in manifest.read()[0]] == list(replacement)


def test_a_problem_has_its_line_number(tmp_path):
    manifest = Manifest(tmp_path / "0000.manifest")
    manifest.append({"line": 1})
    with manifest.path.open("ab") as file:
        file.write(b"00000000 {}\n")
    Manifest(manifest.path).append({"line": 3})
    records, problems = manifest.read()
    assert problems == ["0000.manifest, line 2: torn or changed, skipped"]
    assert records == [{"line": 1}, {"line": 3}]
