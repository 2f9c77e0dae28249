"""Rules for all pages: their own folders for runs, one way to install, names that exist."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.docs.support import ROOT, pages


def test_readme_is_short_and_names_the_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 130
    assert "`make demo`" in text
    assert "`make test`" in text


def test_every_page_has_its_own_folders_of_runs():
    users: dict[str, set[str]] = {}
    for page in pages():
        for folder in re.findall(r"\bruns/[\w-]+", page.read_text(encoding="utf-8")):
            users.setdefault(folder, set()).add(page.name)
    shared = {folder: names for folder, names in users.items() if len(names) > 1}
    assert not {folder: names for folder, names in shared.items() if folder != "runs/reproduce"}


def test_there_is_one_way_to_install():
    for page in pages():
        lines = re.findall(r"pip install[^`\n]*", page.read_text(encoding="utf-8"))
        for line in lines:
            assert re.match(r"pip install (-e )?('\.\[[\w,]+\]'|\.(?!\w))", line), (page.name, line)


def test_names_can_be_used_as_pages_write_them():
    names = ("suggest_lr", "diagnostics.r_hat")
    program = f"import csgmcmc; print({', '.join(f'csgmcmc.{name}.__name__' for name in names)})"
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.stdout.split() == ["suggest_lr", "r_hat"], found.stderr


def test_a_name_that_is_not_there_is_an_attribute_error():
    import csgmcmc  # noqa: PLC0415

    with pytest.raises(AttributeError, match="module 'csgmcmc' has no attribute 'tunning'"):
        getattr(csgmcmc, "tunning")  # noqa: B009


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_takes_any_python_that_is_new_enough_and_says_if_there_is_none(tmp_path):
    def make(*options: str) -> "subprocess.CompletedProcess[str]":
        command = ["make", "-n", f"VENV={tmp_path}/venv", *options, f"{tmp_path}/venv/.ready"]
        # What the make that runs the tests was told is not for this one.
        told = ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES")
        env = {name: value for name, value in os.environ.items() if name not in told}
        return subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, check=False
        )

    old = tmp_path / "python-old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    found = make(f"PYTHONS=no-such-python {old} {sys.executable}")
    assert f"{sys.executable} -m venv" in found.stdout, found.stderr
    none = make(f"PYTHONS=no-such-python {old}")
    assert none.returncode != 0
    assert "no Python of at least 3.11 was found: install one, or name it" in none.stderr
