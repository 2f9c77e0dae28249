import pytest
from markdown_it import MarkdownIt

from paper.report import markdown
from paper.report.chapter import Chapter
from paper.tests.report.support import NASTY, make_chapter, make_results

FIGURES = {("nasty", name): f"figures/nasty-{name}.svg" for name in ("lines", "image")}


@pytest.mark.parametrize("text", [NASTY, "- x", "+ x", "# x", "1. x", "2) x", "> x", "---", "a\nb"])
def test_plain_text_is_shown_as_it_is(text):
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(markdown.plain(text))
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    children = tokens[1].children or []
    kinds = {child.type for child in children}
    assert kinds <= {"text", "text_special"}
    shown = "".join(child.content for child in children)
    assert shown == text.replace("\n", " ")


@pytest.mark.parametrize("text", ["0.25", "-1.5 ± 0.2", "+3", "5 of 6"])
def test_numbers_need_no_escapes(text):
    assert markdown.plain(text) == text


@pytest.fixture(scope="module")
def tokens():
    text = markdown.render_chapter(make_chapter(), FIGURES)
    return MarkdownIt("gfm-like", {"linkify": False}).parse(text)


def rows(tokens):
    """The cells of every row of every table."""
    found, inside = [], False
    for token in tokens:
        if token.type == "tr_open":
            found.append([])
        inside = token.type in ("th_open", "td_open") or (inside and token.type == "inline")
        if inside and token.type == "inline":
            found[-1].append("".join(child.content for child in token.children))
    return found


def test_tables_have_their_cells(tokens):
    table = rows(tokens)
    assert [NASTY, NASTY, "1 < 2", "exact", "held"] in table
    assert ["second", "0.5", "0.7", "exact", "contradicted"] in table
    assert ["third", "", "too few seeds", "missing runs", "undecided"] in table
    assert ["a|b", *["5"] * 30] in table
    assert ["lrs", "[0.1, 0.2]"] in table
    assert ["preset", "smoke"] in table


def test_figures_have_their_captions_as_alternative(tokens):
    images = [child for token in tokens for child in token.children or () if child.type == "image"]
    assert [image.attrs["src"] for image in images] == list(FIGURES.values())
    assert images[0].content.startswith("Caption of lines")


def test_headings(tokens):
    headings = [token.tag for token in tokens if token.type == "heading_open"]
    assert headings == ["h1", "h2"]


def test_index_links_to_the_page_of_the_experiment():
    index = markdown.render_index([make_chapter()])
    assert "](nasty.md) | smoke | 1 held, 1 contradicted, 1 undecided | 12.3 s |" in index


def test_page_has_its_command_and_links_to_the_index():
    page = markdown.render_chapter(make_chapter(), FIGURES)
    assert "```bash\npython -m paper run nasty --preset smoke\n```" in page
    assert page.endswith("[All experiments](README.md)\n")


def test_unfinished_run():
    chapter = Chapter(make_results(finished=False), None)
    assert "This run is unfinished: 0 jobs are done." in markdown.render_chapter(chapter, {})
    assert "| unfinished |" in markdown.render_index([chapter])


FENCES = "run\n```\n# Heading\n````\n<b>x</b>"


def test_a_command_cannot_end_its_block_of_code():
    chapter = Chapter(make_results(command=FENCES, finished=False), None)
    text = markdown.render_chapter(chapter, {})
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(text)
    assert [token.content for token in tokens if token.type == "fence"] == [f"{FENCES}\n"]
    assert [token.tag for token in tokens if token.type == "heading_open"] == ["h1", "h2"]


@pytest.mark.parametrize("name", [NASTY, 'x"></a><script>', "a](http://b) [c", "a\n\n# b"])
def test_markup_in_the_name_of_an_unfinished_experiment(name):
    chapter = Chapter(make_results(experiment=name, finished=False), None)
    index, page = markdown.render_index([chapter]), markdown.render_chapter(chapter, {})
    file = markdown.page_name(name)
    assert set(file) & set("/\\.<>()[] \n") == set()
    for text, links, headings in (
        (index, [f"{file}.md"], ["h1"]),
        (page, ["README.md"], ["h1", "h2"]),
    ):
        tokens = MarkdownIt("gfm-like", {"linkify": False, "html": True}).parse(text)
        inside = [child for token in tokens for child in token.children or ()]
        assert not [each for each in [*tokens, *inside] if each.type.startswith("html")]
        assert [each.attrs["href"] for each in inside if each.type == "link_open"] == links
        assert [token.tag for token in tokens if token.type == "heading_open"] == headings
