"""Tables of numbers that were computed elsewhere."""

from rich.text import Text


def as_text(words: object) -> Text:
    """Words from files and paths as they are, whatever they would mean to rich.

    What a terminal cannot show, such as a byte of a path that is no letter, is written as a number.
    """
    return Text(str(words).encode(errors="backslashreplace").decode())
