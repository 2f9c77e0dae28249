"""`require` names a missing package and the extra that installs it."""

import json

import pytest

from csgmcmc.integrations import require


def test_installed_package_is_returned():
    assert require("json", "json") is json
    assert require("os.path", "paths").join("a", "b") == "a/b"


@pytest.mark.parametrize("package", ["no_such_package", "no_such_package.part", "json.no_part"])
def test_missing_package_names_install_command(package):
    with pytest.raises(ImportError, match=r"pip install 'csgmcmc\[things\]'") as caught:
        require(package, "things")
    assert package in str(caught.value)
    assert not isinstance(caught.value, ModuleNotFoundError)


def test_cause_names_missing_dependency_of_package(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match="broken_package") as caught:
        require("broken_package", "things")
    assert "no_such_dependency" in str(caught.value.__cause__)
