"""The Markdown report as one HTML page that needs no network, script or other file."""

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import PurePath

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode as Node

from csgmcmc.pages import document, figure, judgements, table
from paper.report.markdown import CLAIMS, SETTINGS

VERDICTS = {"held": "✓ held", "contradicted": "✗ contradicted", "undecided": "? undecided"}
ANCHOR = re.compile(r'<a id="([\w-]+)"></a>')
NUMBER = re.compile(r"[-+±<>≤≥≈~\u2212]?\s*\d.*|[-\u2212\u2013\u2014]?")
"""What is set to the right in its column: a number, or a dash where there is none."""

WIDE, LONG = 5, 24
"""A table of more columns, a cell of more letters: these would be set on many lines."""

# Raw HTML is parsed only to find the anchors of the chapters; all other is shown as text.
MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")
for raw in ("html_block", "html_inline"):
    MARKDOWN.add_render_rule(raw, lambda _, tokens, index, *__: escape(tokens[index].content))


def render(report: str, figures: Mapping[str, str]) -> str:
    """The page of a report in Markdown; `figures` are SVG elements by their addresses in it."""
    title, introduction, contents, *others = Node(MARKDOWN.parse(report)).children
    body = "\n".join(_blocks(others, figures))
    header = f"<h1>{_inside(title)}</h1>\n<p>{_inside(introduction)}</p>"
    nav = f'<nav id="contents" aria-label="Contents">\n{_table(contents, "Contents")}\n</nav>'
    return document(_text(title), header, f"{nav}\n{body}\n</section>")


def _blocks(nodes: Sequence[Node], figures: Mapping[str, str]) -> Iterator[str]:
    name, caption, skipped = "", "", False
    for node, following in zip(nodes, [*nodes[1:], None], strict=True):
        if skipped:
            skipped = False
        elif anchor := ANCHOR.fullmatch(node.children[0].content if node.children else ""):
            if name:
                yield "</section>"
            name = anchor[1]
            yield f'<section id="{name}" aria-labelledby="{name}-title">'
        elif node.type == "heading" and node.tag == "h2":
            yield f'<h2 id="{name}-title">{_inside(node)}</h2>'
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
    judged = [
        (list(map(_inside, cells)), VERDICTS[_text(verdict)], _text(verdict))
        for *cells, verdict in rows
    ]
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
