"""An HTML parser for the tests of pages."""

from html.parser import HTMLParser

VOID = {"meta", "br", "hr"}


class Reader(HTMLParser):
    """Elements with their attributes, and the text; fails where tags do not match."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.open, self.texts = [], [], []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return "".join(self.texts)

    def all(self, tag):
        return [attributes for found, attributes in self.elements if found == tag]

    @property
    def sections(self):
        return [attributes["id"] for attributes in self.all("section")]
