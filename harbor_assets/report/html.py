"""The report as one HTML page that opens offline: no request leaves it, and nothing in it but our own script runs.

Names, messages and paths come from tasks, agents and verifiers. Jinja escapes all of them, `visible` shows control and
direction characters instead of obeying them, links are percent-encoded and relative, and the page's own policy forbids
any script or style but the two it carries, told by their digests.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from harbor_assets.domain import bundle
from harbor_assets.engine.report import Report
from harbor_assets.report.formats import K_SHOWN, OUTCOME_WORDS, Chart, asset, environment, segments

if TYPE_CHECKING:
    from jinja2 import Template

PIECE_CHARACTERS = 64 * 1024  # what is written at once
MESSAGE_LINE = 140  # characters of a message that stand in the table; the rest unfolds
ROWS_SHOWN = 500  # of a table at once, where scripts run: a browser takes seconds to lay out ten thousand
MARKER = 'document.documentElement.className = "js"'  # before the first row is laid out
_PARTS = (
    bundle.SUMMARY,
    bundle.OUTCOME_SUMMARY,
    bundle.OUTCOMES,
    bundle.TASKS,
    bundle.TRIALS,
    bundle.SCORES,
    bundle.METADATA,
    bundle.MANIFEST,
    bundle.TRIALS_TABLE,
    bundle.SCORES_TABLE,
)


class HtmlReport:
    """Implements the engine's `ReportWriter`."""

    def render(self, report: Report) -> Iterator[bytes]:
        """The page in pieces; rows are read as they are drawn."""
        script = asset("report.js").replace("ROWS_SHOWN", str(ROWS_SHOWN))
        style = asset("house.css") + asset("report.css")
        policy = (
            f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(MARKER)}' '{_digest(script)}'; "
            "base-uri 'none'; form-action 'none'"
        )
        shown = _template().generate(
            report=report,
            plan=report.plan,
            summary=report.summary,
            ks=[k for k in K_SHOWN if k <= report.plan.n_attempts],
            chart=Chart(report.bars),
            segments=segments(report.summary.counts, report.summary.planned),
            words=OUTCOME_WORDS,
            parts=_PARTS,
            policy=policy,
            marker=MARKER,
            rows_shown=ROWS_SHOWN,
            script=script,
            style=style,
        )
        yield from _pieces(shown)


def _pieces(texts: Iterable[str]) -> Iterator[bytes]:
    held: list[str] = []
    size = 0
    for text in texts:
        held.append(text)
        size += len(text)
        if size >= PIECE_CHARACTERS:
            yield "".join(held).encode("utf-8", "replace")
            held, size = [], 0
    yield "".join(held).encode("utf-8", "replace")


# --- assets -------------------------------------------------------------------------------------------------------


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _template() -> "Template":
    made = environment()
    made.globals["message_line"] = MESSAGE_LINE
    return made.from_string(asset("report.html.j2"))
