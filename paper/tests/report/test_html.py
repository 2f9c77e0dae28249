import re

import pytest

from csgmcmc.pages import as_element, draw
from paper.report import html, markdown
from paper.report.chapter import Chapter
from paper.report.page import Grid, Page, Picture
from paper.tests.report.support import NASTY, make_chapter, make_results
from tests.pages.reader import Reader


def render(*chapters):
    addresses, figures = {}, {}
    for chapter in chapters:
        for part in chapter.page.parts if chapter.page else ():
            if isinstance(part, Picture):
                name = f"{chapter.name}-{part.name}"
                addresses[chapter.name, part.name] = f"figures/{name}.svg"
                drawn = draw(part.figure, name)
                figures[f"figures/{name}.svg"] = as_element(drawn, name)
    pages = {
        markdown.page_name(chapter.name): markdown.render_chapter(chapter, addresses)
        for chapter in chapters
    }
    return html.render(markdown.render_index(chapters), pages, figures)


@pytest.fixture(scope="module")
def page():
    return render(make_chapter())


@pytest.fixture(scope="module")
def reader(page):
    return Reader(page)


def test_text_is_shown_as_it_is_and_never_run(page, reader):
    assert not reader.all("script")
    assert not reader.all("b")
    text = "".join(reader.texts)
    # title in contents and heading, summary, a claim in the index and twice on its page, grid's
    # title and note, two captions, a setting
    assert text.count(NASTY) == 11


def test_the_page_is_one_file_that_needs_no_network(page, reader):
    assert not re.search(r"(?<!xmlns=\")(?<!xlink=\")https?://", page)
    for tag, attributes in reader.elements:
        assert tag not in ("link", "img", "script", "iframe")
        for name in ("src", "href", "xlink:href"):
            assert attributes.get(name, "#").startswith(("#", "data:")), attributes
    assert "@import" not in page


def test_structure_for_readers_of_all_kinds(reader):
    assert reader.all("html")[0]["lang"] == "en"
    assert len(reader.all("h1")) == 1
    assert len(reader.all("h2")) == 1
    assert len(reader.all("h3")) == 3
    for heading in reader.all("th"):
        assert heading["scope"] in ("row", "col")
    ids = [attributes["id"] for _, attributes in reader.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert len(reader.all("figure")) == len(reader.all("figcaption")) == 2
    for drawing in reader.all("svg"):
        assert drawing["role"] == "img"
        assert drawing["aria-labelledby"] in ids
    for link in reader.all("a"):
        assert link["href"].removeprefix("#") in ids


def test_verdicts_are_words_and_not_colours_alone(page):
    assert '<td role="cell" class="verdict held">✓ held</td>' in page
    assert '<td role="cell" class="verdict contradicted">✗ contradicted</td>' in page
    assert '<td role="cell" class="verdict undecided">? undecided</td>' in page


def test_paragraphs_are_markdown_without_html(page):
    assert "<code>code</code>, <em>emphasis</em> and &lt;b&gt;no HTML&lt;/b&gt;" in page


def test_contents_tell_claims_held_and_time(page):
    assert (
        '<td class="number">1 held, 1 contradicted, 1 undecided</td><td class="number">12.3 s</td>'
        in page
    )


def test_settings_and_origin(page):
    assert "lrs</th><td>[0.1, 0.2]</td>" in page
    for words in ("python -m paper run nasty --preset smoke", "a machine", "torch 2.0"):
        assert words in page


def test_numbers_are_set_right_and_words_left():
    grid = Grid("t", ["method", "error", "note"], [["SGLD", "-1.2 ± 3", "ok"], ["x", "5", "6"]])
    page = render(Chapter(make_results(), Page("t", "s", [], [grid])))
    heads = '<th scope="col">method</th><th scope="col" class="number">error</th>'
    assert f'{heads}<th scope="col">note</th>' in page
    assert '<td class="number">-1.2 ± 3</td><td>ok</td>' in page


@pytest.mark.parametrize(("columns", "kind"), [(5, ""), (6, ' class="long"')])
def test_long_text_gets_room_in_a_wide_table(columns, kind):
    rows = [["a name of more than 24 letters", *["1"] * (columns - 1)]]
    grid = Grid("t", ["method", *["error"] * (columns - 1)], rows)
    page = render(Chapter(make_results(), Page("t", "s", [], [grid])))
    assert f'<th scope="row"{kind}>a name of' in page


def test_an_unfinished_run_is_said_to_be_so():
    chapter = Chapter(make_results(finished=False, records={"a": {}, "b": {}}), page=None)
    page = render(chapter)
    Reader(page)
    assert "This run is unfinished: 2 jobs are done." in page
    assert "<td>unfinished</td>" in page
    assert 'class="claims"' not in page
