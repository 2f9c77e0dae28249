"""Reports of a run: tables for a terminal, and an HTML page."""

from typing import TYPE_CHECKING

from rich.text import Text

from csgmcmc.lazy import lazy_attributes

if TYPE_CHECKING:
    from csgmcmc.report.page import Report

__all__ = ["Report"]

__getattr__ = lazy_attributes(__name__, page=("Report",))


def as_text(words: object) -> Text:
    """Words from files and paths as they are, whatever they would mean to rich.

    What a terminal cannot show, such as a byte of a path that is no letter, is written as a number.
    """
    return Text(str(words).encode(errors="backslashreplace").decode())
