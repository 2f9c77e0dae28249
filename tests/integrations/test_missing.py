"""A missing package is named, with the command that installs it."""

import json
import sys

import pytest

from csgmcmc.integrations.missing import require


def test_what_is_installed_is_returned():
    assert require("json", "json") is json
    assert require("os.path", "paths").join("a", "b") == "a/b"


@pytest.mark.parametrize("package", ["no_such_package", "no_such_package.part", "json.no_part"])
def test_what_is_missing_comes_with_the_command(package):
    with pytest.raises(ImportError, match=r"pip install 'csgmcmc\[things\]'") as caught:
        require(package, "things")
    assert package in str(caught.value)
    assert not isinstance(caught.value, ModuleNotFoundError)


def test_a_package_that_misses_something_itself_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        require("broken_package", "things")
    assert "broken_package" not in sys.modules
