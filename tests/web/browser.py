"""A page as a browser reads it, and the rules that every page keeps to, for people with a keyboard or screen reader."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise

VOID = {"meta", "input", "br", "rect", "line", "img", "link", "circle", "path"}
HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x1b[31m&amp;{{ 7*7 }}"


@dataclass
class Element:
    tag: str
    attrs: dict[str, str | None]
    parent: "Element | None"
    children: list["Element | str"] = field(default_factory=list)

    @property
    def text(self) -> str:
        parts = [child if isinstance(child, str) else child.text for child in self.children]
        return re.sub(r"\s+", " ", " ".join(parts)).strip()

    def all(self, tag: str) -> list["Element"]:
        found = [self] if self.tag == tag else []
        for child in self.children:
            if isinstance(child, Element):
                found += child.all(tag)
        return found

    def get(self, name: str) -> str:
        return self.attrs.get(name) or ""


class Document(HTMLParser):
    """The tree of a page. An end tag that closes another element than the open one is an error."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.root = self.at = Element("", {}, None)
        self.feed(html)
        self.close()
        assert self.at is self.root, f"<{self.at.tag}> is never closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Element(tag, dict(attrs), self.at)
        assert len(made.attrs) == len(attrs), (tag, attrs)
        self.at.children.append(made)
        if tag not in VOID:
            self.at = made

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.at.children.append(Element(tag, dict(attrs), self.at))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.at.tag == tag, f"</{tag}> closes <{self.at.tag}>"
            assert self.at.parent is not None
            self.at = self.at.parent

    def handle_data(self, data: str) -> None:
        self.at.children.append(data)

    def all(self, tag: str) -> list[Element]:
        return self.root.all(tag)

    def one(self, tag: str) -> Element:
        (found,) = self.all(tag)
        return found

    @property
    def text(self) -> str:
        return self.one("body").text

    def links(self) -> list[str]:
        return [link.get("href") for link in self.all("a")]


def check(page: Document) -> None:
    """The rules: WCAG 2.2 A and AA as far as markup shows them, and nothing of foreign hosts."""
    everything = _elements(page.root)
    html = page.one("html")
    assert html.get("lang") == "en"
    assert page.one("head").all("title")[0].text
    assert len(page.all("main")) == 1
    assert len(page.all("h1")) == 1
    ids = [element.get("id") for element in everything if element.get("id")]
    assert len(ids) == len(set(ids)), "an id stands twice"
    levels = [int(element.tag[1]) for element in everything if re.fullmatch("h[1-6]", element.tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels)), levels
    first = page.all("a")[0]
    assert first.get("class") == "skip"
    assert first.get("href").removeprefix("#") in ids
    for element in everything:
        _check_names(element, ids)
        assert "style" not in element.attrs
        assert not [name for name in element.attrs if name.startswith("on")], element
        for name in ("href", "src", "action"):
            assert not re.match(r"(javascript|data|vbscript):|//", element.get(name).strip().lower()), element
    for script in page.all("script"):
        assert script.get("src").startswith("/static/")
        assert not script.text
    assert not page.all("style")
    labelled = {label.get("for") for label in page.all("label")}
    for tag in ("input", "select"):
        for control in page.all(tag):
            inside = control.parent is not None and control.parent.tag == "label"
            assert control.get("type") == "hidden" or inside or control.get("id") in labelled, control
    for table in page.all("table"):
        assert table.all("caption"), "a table without a caption"
        assert all(head.get("scope") in ("col", "row") for head in table.all("th")), "a heading without a scope"
        assert all(head.text for head in table.all("th")), "an empty heading"
    navs = [nav.get("aria-label") for nav in page.all("nav")]
    assert all(navs)
    assert len(navs) == len(set(navs))


def _check_names(element: Element, ids: list[str]) -> None:
    if element.tag in ("a", "button", "summary"):
        assert element.text or element.get("aria-label"), f"nothing is said by {element.tag} {element.attrs}"
    if element.tag == "svg":
        assert element.get("role") == "img"
        assert element.get("aria-label") or element.get("aria-labelledby")
    if element.get("tabindex") == "0":  # what scrolls is reached by keys, and says what it is
        assert element.get("aria-label") or element.get("aria-labelledby"), element
    for name in ("aria-labelledby", "aria-describedby", "for"):
        assert all(word in ids for word in element.get(name).split()), element
    if element.tag == "a" and element.get("href").startswith("#"):
        assert element.get("href")[1:] in ids, element


def _elements(root: Element) -> list[Element]:
    found = [root] if root.tag else []
    for child in root.children:
        if isinstance(child, Element):
            found += _elements(child)
    return found
