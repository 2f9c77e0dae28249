"""The Markdown report as one HTML page that needs no network, script or other file."""

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import PurePath

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode as Node

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
    style = files("paper.report").joinpath("page.css").read_text(encoding="utf-8")
    title, introduction, contents, *others = Node(MARKDOWN.parse(report)).children
    body = "\n".join(_blocks(others, figures))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{_inside(title)}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{_inside(title)}</h1>
<p>{_inside(introduction)}</p>
</header>
<main>
<nav aria-label="Experiments">
{_table(contents, "Experiments")}
</nav>
{body}
</section>
</main>
</body>
</html>
"""


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
            yield _figure(str(image.attrs["src"]), _inside(following), figures)
            skipped = True  # it is the caption
        else:
            yield MARKDOWN.renderer.render(node.to_tokens(), MARKDOWN.options, {}).strip()


def _only(node: Node, kind: str) -> Node | None:
    """What a paragraph consists of, if that is one thing of this kind."""
    if node.type != "paragraph":
        return None
    parts = [part for part in node.children[0].children if part.type != "text" or part.content]
    return parts[0] if [part.type for part in parts] == [kind] else None


def _figure(address: str, caption: str, figures: Mapping[str, str]) -> str:
    label = f"{PurePath(address).stem}-caption"
    element = figures[address].replace("<svg", f'<svg role="img" aria-labelledby="{label}"', 1)
    return (
        f'<figure>\n<div tabindex="0">\n{element}\n</div>\n'
        f'<figcaption id="{label}">{caption}</figcaption>\n</figure>'
    )


def _table(node: Node, title: str) -> str:
    """A table in a box of its own, which scrolls where it is too wide."""
    header, *rows = [row.children for part in node.children for row in part.children]
    names = tuple(map(_text, header))
    if names == CLAIMS:
        return _claims(rows)
    wide, columns = len(header) > WIDE, zip(*rows, strict=True)
    kinds = [_kind([_text(cell) for cell in column], wide) for column in columns]
    kinds = kinds or [""] * len(header)
    heads = zip(header, kinds, strict=True)
    cells = "".join(f'<th scope="col"{kind}>{_inside(cell)}</th>' for cell, kind in heads)
    lines = [f"<thead><tr>{cells}</tr></thead>", "<tbody>"]
    for first, *others in rows:
        kinds_of_others = zip(others, kinds[1:], strict=True)
        cells = "".join(f"<td{kind}>{_inside(cell)}</td>" for cell, kind in kinds_of_others)
        lines.append(f'<tr><th scope="row"{kinds[0]}>{_inside(first)}</th>{cells}</tr>')
    lines.append("</tbody>")
    caption = f"<caption>{escape(title)}</caption>\n" if title else ""
    label = f' role="region" aria-label="{escape(title)}"' if title else ""
    inner = "\n".join(lines)
    box = f'<div class="scroll" tabindex="0"{label}>\n<table>\n{caption}{inner}\n</table>\n</div>'
    if names == SETTINGS:
        return f"<details><summary>Settings</summary>\n{box}\n</details>"
    return box


def _claims(rows: Sequence[Sequence[Node]]) -> str:
    # On a phone each row is set as a block of its own; the roles say that it is still a table.
    lines = ['<table class="claims" role="table">', '<thead role="rowgroup"><tr role="row">']
    lines += [f'<th scope="col" role="columnheader">{heading}</th>' for heading in CLAIMS]
    lines += ["</tr></thead>", '<tbody role="rowgroup">']
    for claim, paper, ours, verdict in rows:
        holds = _text(verdict)
        lines += [
            '<tr role="row">',
            f'<th scope="row" role="rowheader">{_inside(claim)}</th>',
            f'<td role="cell" data-label="paper">{_inside(paper)}</td>',
            f'<td role="cell" data-label="ours">{_inside(ours)}</td>',
            f'<td role="cell" class="verdict {holds}">{VERDICTS[holds]}</td>',
            "</tr>",
        ]
    return "\n".join([*lines, "</tbody></table>"])


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
        return ' class="number"'
    return ' class="long"' if wide and max(map(len, column)) > LONG else ""
