"""What an HTML page of results is made of: one file, no network, on light and on dark paper."""

from csgmcmc.pages.figures import (
    COLOURS,
    DARK_INK,
    INK,
    LIGHT_INK,
    STYLE,
    as_element,
    as_file,
    draw,
    new_figure,
)
from csgmcmc.pages.markup import contents, document, figure, judgements, table

__all__ = [
    "COLOURS",
    "DARK_INK",
    "INK",
    "LIGHT_INK",
    "STYLE",
    "as_element",
    "as_file",
    "contents",
    "document",
    "draw",
    "figure",
    "judgements",
    "new_figure",
    "table",
]
