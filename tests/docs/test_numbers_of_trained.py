"""The tables of docs/howto/trained-network.md are those of the stored results."""

from benchmarks import trained_held_out, trained_resnet
from tests.docs.support import DOCS


def test_the_tables_are_the_stored_ones():
    page = (DOCS / "howto" / "trained-network.md").read_text(encoding="utf-8")
    rows = [*trained_held_out.rows(), *trained_resnet.rows_of(2)]
    assert len(rows) > 9
    assert [row for row in rows if f"| {' | '.join(row)} |" not in page] == []


def test_what_is_served_is_never_worse_than_the_scaled_network():
    for one in trained_held_out.results():
        assert one["held_out_average"] < one["held_out_network"] + 1e-6
        assert one["kept"] == (one["gain"] < trained_held_out.MIN_GAIN * one["gain_error"])
