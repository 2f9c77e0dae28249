"""Files that are written whole or not at all."""

import pytest

from csgmcmc.files import PART, atomic_write


@pytest.mark.parametrize("overwrite", [True, False])
def test_writers_with_the_same_numbers_do_not_share_a_temporary_file(tmp_path, overwrite):
    """As of processes in containers, which often have the same numbers, on a shared folder."""
    path = tmp_path / "store.json"
    seen = []

    def write_second(aside):
        aside.write_text("second")
        seen.append(aside.name)

    def write_first(aside):
        aside.write_text("fir")
        atomic_write(path, write_second, overwrite=overwrite)
        with aside.open("a") as file:
            file.write("st")
        seen.append(aside.name)

    atomic_write(path, write_first, overwrite=overwrite)
    assert path.read_text() == ("first" if overwrite else "second")
    assert all(PART.search(name) for name in seen)
    assert list(tmp_path.iterdir()) == [path]
