import pytest
from markdown_it import MarkdownIt

from paper.report import html as html_page
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
    text = markdown.render([make_chapter()], FIGURES)
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
    assert [NASTY, NASTY, "1 < 2", "held"] in table
    assert ["second", "0.5", "0.7", "contradicted"] in table
    assert ["third", "", "too few seeds", "undecided"] in table
    assert ["a|b", *["5"] * 30] in table
    assert ["lrs", "[0.1, 0.2]"] in table
    assert ["preset", "smoke"] in table


def test_figures_have_their_captions_as_alternative(tokens):
    images = [child for token in tokens for child in token.children or () if child.type == "image"]
    assert [image.attrs["src"] for image in images] == list(FIGURES.values())
    assert images[0].content.startswith("Caption of lines")


def test_headings(tokens):
    headings = [token.tag for token in tokens if token.type == "heading_open"]
    assert headings == ["h1", "h2", "h3"]


def test_contents_lead_to_the_experiment():
    text = markdown.render([make_chapter()], FIGURES)
    assert "](#nasty) | smoke | 1 held, 1 contradicted, 1 undecided | 12.3 s |" in text
    assert '<a id="nasty"></a>' in text
    assert "```bash\npython -m paper run nasty --preset smoke\n```" in text


def test_an_unfinished_run_is_said_to_be_so():
    text = markdown.render([Chapter(make_results(finished=False), None)], {})
    assert "This run is unfinished: 0 jobs are done." in text
    assert "| unfinished |" in text


FENCES = "run\n```\n# Heading\n````\n<b>x</b>"


def test_a_command_cannot_end_its_block_of_code():
    chapter = Chapter(make_results(command=FENCES, finished=False), None)
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(markdown.render([chapter], {}))
    assert [token.content for token in tokens if token.type == "fence"] == [f"{FENCES}\n"]
    assert [token.tag for token in tokens if token.type == "heading_open"] == ["h1", "h2", "h3"]


@pytest.mark.parametrize("name", [NASTY, 'x"></a><script>', "a](http://b) [c", "a\n\n# b"])
def test_the_name_of_an_unfinished_experiment_is_only_a_name(name):
    chapter = Chapter(make_results(experiment=name, finished=False), None)
    text = markdown.render([chapter], {})
    tokens = MarkdownIt("gfm-like", {"linkify": False, "html": True}).parse(text)
    inside = [child for token in tokens for child in token.children or ()]
    html = [token.content for token in [*tokens, *inside] if token.type.startswith("html")]
    place = markdown.anchor(name)
    assert html == [f'<a id="{place}">', "</a>"]
    assert [child.attrs["href"] for child in inside if child.type == "link_open"] == [
        inside[0].attrs["href"] if inside[0].type == "link_open" else f"#{place}"
    ]
    assert [token.tag for token in tokens if token.type == "heading_open"] == ["h1", "h2", "h3"]
    html_page.render(text, {})
