"""Writing Markdown around texts of strangers."""

import re

from harbor_assets.domain.text import visible

_SIGNS = re.compile(r"([\\`*_{}\[\]()#+\-.!|~>:@/$^=\"'])")
TEXT_MAX = 200  # characters of a stranger's text; the report has all of it


def plain(text: str, limit: int = TEXT_MAX) -> str:
    """`text` on one line, cut, and so that none of its characters makes a link, an image or a tag."""
    shown = visible(" ".join(text[: limit + 1].split()))
    if len(shown) > limit:
        shown = shown[:limit] + "…"
    return _SIGNS.sub(r"\\\1", shown.replace("&", "&amp;").replace("<", "&lt;"))


def row(*cells: str) -> str:
    """One line of a table; cells are Markdown already."""
    return f"| {' | '.join(cells)} |"
