"""The Markdown report as one HTML page that needs no network, script or other file."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode as Node

from csgmcmc.pages import document, figure, judgements, table
from paper.report.markdown import CLAIMS, SETTINGS

MARKS = {"held": "✓", "contradicted": "✗", "not": "✗", "undecided": "?"}
"""Before a verdict, by its first word."""
NUMBER = re.compile(r"[-+±<>≤≥≈~\u2212]?\s*\d.*|[-\u2212\u2013\u2014]?")
"""What is set to the right in its column: a number, or a dash where there is none."""

WIDE, LONG = 5, 24
"""A table of more columns, a cell of more letters: these would be set on many lines."""

MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")


def render(index: str, pages: Mapping[str, str], figures: Mapping[str, str]) -> str:
    """One HTML page of the index and of the pages by name, all in Markdown.

    `figures` are SVG elements by the paths that the pages have for them.
    """
    title, introduction, contents, *others = _parse(index)
    header = f"<h1>{_inside(title)}</h1>\n<p>{_inside(introduction)}</p>"
    nav = f'<nav id="contents" aria-label="Contents">\n{_table(contents, "Contents")}\n</nav>'
    found = "\n".join(_blocks(others, {})) if others else ""
    sections = [_section(name, _parse(page), figures) for name, page in pages.items()]
    return document(_text(title), header, "\n".join([nav, found, *sections]))


def _parse(text: str) -> list[Node]:
    """The blocks of a page; a link to another page becomes one to its section."""
    nodes = Node(MARKDOWN.parse(text)).children
    for link in (each for node in nodes for each in node.walk() if each.type == "link"):
        address = str(link.attrs["href"])
        if address.endswith(".md"):
            name = address.removesuffix(".md")
            link.attrs["href"] = "#contents" if name == "README" else f"#{name}"
    return nodes


def _section(name: str, nodes: Sequence[Node], figures: Mapping[str, str]) -> str:
    title, *others = nodes
    return "\n".join(
        [
            f'<section id="{name}" aria-labelledby="{name}-title">',
            f'<h2 id="{name}-title">{_inside(title)}</h2>',
            *_blocks(others, figures),
            "</section>",
        ]
    )


def _blocks(nodes: Sequence[Node], figures: Mapping[str, str]) -> Iterator[str]:
    caption, skipped = "", False
    for node, following in zip(nodes, [*nodes[1:], None], strict=True):
        if skipped:
            skipped = False
        elif node.type == "heading":  # one level below the title of its section
            yield f"<h3>{_inside(node)}</h3>"
        elif node.type == "table":
            yield _table(node, caption)
            caption = ""
        elif strong := _only(node, "strong") if following and following.type == "table" else None:
            caption = _text(strong)
        elif following and (image := _only(node, "image")):
            address = str(image.attrs["src"])
            yield figure(figures[address], PurePath(address).stem, _inside(following))
            skipped = True  # it is the caption
        else:
            yield MARKDOWN.renderer.render(node.to_tokens(), MARKDOWN.options, {}).strip()


def _only(node: Node, kind: str) -> Node | None:
    """What a paragraph consists of, if that is one thing of this kind."""
    if node.type != "paragraph":
        return None
    parts = [part for part in node.children[0].children if part.type != "text" or part.content]
    return parts[0] if [part.type for part in parts] == [kind] else None


def _table(node: Node, title: str) -> str:
    header, *rows = [row.children for part in node.children for row in part.children]
    names = tuple(map(_text, header))
    if names == CLAIMS:
        return _claims(rows)
    wide, columns = len(header) > WIDE, zip(*rows, strict=True)
    kinds = [_kind([_text(cell) for cell in column], wide) for column in columns]
    cells = [list(map(_inside, row)) for row in rows]
    box = table(list(map(_inside, header)), cells, kinds=kinds or None, title=title)
    if names == SETTINGS:
        return f"<details><summary>Settings</summary>\n{box}\n</details>"
    return box


def _claims(rows: Sequence[Sequence[Node]]) -> str:
    judged = []
    for *cells, last in rows:
        verdict = _text(last)
        kind = verdict.split()[0]
        name = "contradicted" if kind == "not" else kind
        judged.append((list(map(_inside, cells)), f"{MARKS[kind]} {verdict}", name))
    return judgements(CLAIMS, judged)


def _inside(node: Node) -> str:
    """The HTML inside of a heading, a paragraph or a cell."""
    tokens = node.children[0].to_tokens() if node.children else []
    return MARKDOWN.renderer.render(tokens, MARKDOWN.options, {})


def _text(node: Node) -> str:
    """The same as text, without marks."""
    return "".join(part.content for part in node.walk() if part.type in ("text", "code_inline"))


def _kind(column: Sequence[str], wide: bool) -> str:
    """Numbers are set to the right; long text gets room, or a wide table would squeeze it."""
    if all(NUMBER.fullmatch(cell) for cell in column):
        return "number"
    return "long" if wide and max(map(len, column)) > LONG else ""
