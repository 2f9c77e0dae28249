"""docs/api/signatures.txt has the public signatures, and changes of them are in the CHANGELOG."""

from difflib import unified_diff

import pytest

from scripts import signatures

STORED = {
    "csgmcmc.Chain": "class csgmcmc.Chain(\n    model: nn.Module,\n    seed: int = 0,\n) of object",
    "csgmcmc.Chain.run": "csgmcmc.Chain.run(*, resume: bool = False) -> Draws",
    "$ csgmcmc sample": "$ csgmcmc sample SCRIPT --out --resume/--no-resume",
}


def test_the_file_has_the_signatures_of_the_code():
    before = "\n".join(signatures.stored().values()).splitlines()
    after = "\n".join(signatures.current().values()).splitlines()
    changes = "\n".join(unified_diff(before, after, "signatures.txt", "the code", "", "", n=0))
    assert not changes, (
        f"a public signature has changed:\n{changes}\n"
        "Say it in the newest section of CHANGELOG.md, with the name and the arguments, and run "
        "`make signatures` (python scripts/signatures.py)."
    )


def changed(**entries: str | None) -> list[str]:
    """What a changelog that mentions `Chain` misses after these changes of `run` and `Chain`."""
    names = {"chain": "csgmcmc.Chain", "run": "csgmcmc.Chain.run", "command": "$ csgmcmc sample"}
    after = STORED | {names[key]: text for key, text in entries.items() if text is not None}
    for key, text in entries.items():
        if text is None:
            del after[names[key]]
    return signatures.unmentioned(STORED, after, "- `Chain` is new.")


def test_no_change_needs_no_line():
    assert changed() == []


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"run": "csgmcmc.Chain.run(*, resume: bool = True) -> Draws"}, ["csgmcmc.Chain.run: run"]),
        ({"run": "csgmcmc.Chain.run(*, again: bool)"}, ["csgmcmc.Chain.run: run, again, resume"]),
        ({"run": None}, ["csgmcmc.Chain.run: run"]),
        ({"chain": "class csgmcmc.Chain(model: nn.Module) of object"}, ["csgmcmc.Chain: seed"]),
        ({"chain": STORED["csgmcmc.Chain"].replace("= 0", "= 1")}, []),  # it is mentioned
        ({"chain": None, "run": None}, []),  # it is mentioned, and its methods went with it
        (
            {"command": "$ csgmcmc sample SCRIPT --out"},
            ["$ csgmcmc sample: sample, no-resume, resume"],
        ),
    ],
)
def test_a_change_that_the_changelog_does_not_mention_is_named(changes, missing):
    assert changed(**changes) == missing


def test_a_change_that_is_not_mentioned_is_not_written(monkeypatch, tmp_path, capsys):
    file = tmp_path / "signatures.txt"
    file.write_text(signatures.HEAD + "\ncsgmcmc.removed_in_a_test(seed: int)\n")
    monkeypatch.setattr(signatures, "FILE", file)
    monkeypatch.setattr(signatures, "current", lambda: {"csgmcmc.stack": "csgmcmc.stack()"})
    monkeypatch.setattr(signatures, "newest_changes", lambda: "`stack`")
    assert signatures.main() == 1
    assert "csgmcmc.removed_in_a_test: removed_in_a_test" in capsys.readouterr().err
    assert "removed_in_a_test" in file.read_text()


def test_what_is_written_is_read_back(monkeypatch, tmp_path):
    file = tmp_path / "signatures.txt"
    monkeypatch.setattr(signatures, "FILE", file)
    monkeypatch.setattr(signatures, "ROOT", tmp_path)
    monkeypatch.setattr(signatures, "current", lambda: STORED)
    assert signatures.main() == 0
    assert signatures.stored() == STORED
