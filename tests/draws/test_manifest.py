"""Lines of a manifest."""

from csgmcmc.draws.manifest import Manifest


def test_a_problem_has_its_line_number(tmp_path):
    manifest = Manifest(tmp_path / "0000.manifest")
    manifest.append({"line": 1})
    with manifest.path.open("ab") as file:
        file.write(b"00000000 {}\n")
    Manifest(manifest.path).append({"line": 3})
    records, problems = manifest.read()
    assert problems == ["0000.manifest, line 2: torn or changed, skipped"]
    assert records == [{"line": 1}, {"line": 3}]
