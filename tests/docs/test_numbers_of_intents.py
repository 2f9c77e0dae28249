"""The tables of docs/howto/know-what-it-does-not-know.md are those of the stored results."""

from benchmarks import clinc, clinc_page
from tests.docs.support import DOCS


def test_the_tables_are_the_stored_ones():
    page = (DOCS / "howto" / "know-what-it-does-not-know.md").read_text(encoding="utf-8")
    rows = [*clinc_page.rows("head"), *clinc_page.rows("adapter"), *clinc_page.varied()]
    assert len(rows) > 8
    assert [row for row in rows if row not in page] == []


def test_settings_are_chosen_on_validation_queries_with_a_seed_of_their_own():
    records = clinc.records()
    judged = {record["seed"] for record in records if record["stage"] == "judge"}
    others = {record["seed"] for record in records if record["stage"] != "judge"}
    assert judged
    assert not judged & others
    for record in records:
        if record["stage"] == "judge" and record["part"] == "head":
            assert record["setting"] == clinc.choose(record["method"])
