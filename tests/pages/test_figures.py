import re

import matplotlib as mpl
import pytest

from csgmcmc import pages
from csgmcmc.pages import COLOURS, INK, STYLE
from tests.pages.samples import sample_figure


def draw(name="lines"):
    with mpl.rc_context(STYLE):
        figure = sample_figure(name)
    return pages.draw(figure, name)


@pytest.mark.parametrize("name", ["lines", "image"])
def test_ink_is_currentcolor_and_nothing_is_black(name):
    drawn = draw(name)
    assert drawn.count("currentColor") > 10
    assert INK not in drawn
    assert "#000000" not in drawn
    assert not re.search(r"fill: #(ffffff|fff)\b", drawn)


def test_data_keep_their_colour():
    assert COLOURS[0].lower() in draw()


@pytest.mark.parametrize("name", ["lines", "image"])
def test_drawing_is_deterministic(name):
    assert draw(name) == draw(name)


@pytest.mark.parametrize("name", ["lines", "image"])
def test_figures_need_no_network(name):
    drawn = pages.as_element(draw(name), name)
    links = re.findall(r'href="([^"]{1,5})', drawn)
    assert links
    assert all(link.startswith(("#", "data:")) for link in links)
    assert "<metadata" not in drawn


def test_elements_have_unique_ids():
    first, second = pages.as_element(draw(), "first"), pages.as_element(draw(), "second")
    ids = re.findall(r'\bid="([^"]*)"', first + second)
    assert len(ids) == len(set(ids)) > 10
    for element in (first, second):
        own = set(re.findall(r'\bid="([^"]*)"', element))
        used = set(re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', element))
        assert {link or url for link, url in used} <= own
        assert used


def test_element_is_a_bare_svg():
    element = pages.as_element(draw(), "x")
    assert element.startswith("<svg")
    assert element.endswith("</svg>")
    assert "<style" not in element  # it would hold for all of the page
