"""How figures, times, names and charts are written on a page, in the report and on the service's pages alike.

Names, messages and paths come from tasks, agents and verifiers: the environment escapes all of them, `visible` shows
control and direction characters instead of obeying them, and links are percent-encoded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import quote

from harbor_assets.domain.outcomes import Outcome
from harbor_assets.domain.text import figure, visible
from harbor_assets.engine.report import Bar

if TYPE_CHECKING:
    from jinja2 import BaseLoader, Environment

K_SHOWN = (1, 2, 3, 4, 5, 8, 10, 16, 25, 50, 100, 250, 500, 1000)  # of pass@k, where a run has that many trials
OUTCOME_WORDS: Mapping[Outcome, str] = {
    Outcome.SCORED: "scored",
    Outcome.VERIFIER_FAILED: "verifier failed",
    Outcome.INFRA_FAILED: "infrastructure failed",
    Outcome.AGENT_SETUP_FAILED: "agent setup failed",
    Outcome.CANCELLED: "cancelled",
    Outcome.EXPIRED: "expired",
    Outcome.NOT_STARTED: "not started",
}

_TICKS = {"below 0": "<0", "0.9–1.0": "0.9–1", "above 1": ">1"}  # most scores are 1: the last bar names it


@dataclass(frozen=True, slots=True)
class DrawnBar:
    """A bar with its place in the drawing."""

    kind: str
    label: str
    tick: str
    count: int
    x: int
    y: float
    wide: int
    tall: float


class Chart:
    """The distribution as a drawing, in the units of its view box."""

    height = 120
    bar, gap = 36, 8
    wide_bar = 80  # that of trials without a reward, whose name is longer
    apart = 18  # before it: it is no value on the axis

    def __init__(self, bars: Sequence[Bar]) -> None:
        most = max((bar.count for bar in bars), default=0)
        self.bars: list[DrawnBar] = []
        x = 0
        for bar in bars:
            lone = bar.kind == "none"
            x += self.apart if lone else 0
            wide = self.wide_bar if lone else self.bar
            tall = round(max(2.0, self.height * bar.count / most), 1) if bar.count else 0.0
            tick = _TICKS.get(bar.label, bar.label.partition("–")[0])
            self.bars.append(
                DrawnBar(bar.kind, bar.label, tick, bar.count, x, round(self.height - tall, 1), wide, tall)
            )
            x += wide + self.gap
        self.width = max(x - self.gap, 1)
        self.told = ", ".join(f"{bar.label}: {bar.count}" for bar in bars if bar.count) or "no trials"


def segments(counts: Mapping[Outcome, int], planned: int) -> list[tuple[Outcome, float, float]]:
    """(outcome, start, width) in thousandths of the whole, of those that occurred."""
    found, at = [], 0.0
    for outcome, count in counts.items():
        if count:
            width = 1000 * count / planned
            found.append((outcome, round(at, 2), round(width, 2)))
            at += width
    return found


# --- how values are written ---------------------------------------------------------------------------------------


def number(value: float | None) -> str:
    """A score, as `domain.text.figure` writes it; a dash where there is none."""
    return "–" if value is None else figure(value)


def short(value: float) -> str:
    """A score in as little room as it takes: at most three places."""
    return f"{value:.3g}"


def seconds(value: float | None) -> str:
    """A duration for people: `1.5 s`, `2 min 05 s`, `3 h 04 min`."""
    if value is None:
        return "–"
    if value < 59.95:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def instant(value: datetime | None) -> str:
    """A time in UTC, to the second."""
    return "–" if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def href(path: str) -> str:
    """A relative link to a path of the bundle, percent-encoded; an empty one for a path that would lead elsewhere."""
    if path.startswith("/") or ".." in path.split("/"):
        return ""
    return quote(path, safe="/", errors="surrogateescape")  # a colon is encoded, so no scheme can be smuggled in


def lines(text: str) -> str:
    """A text of several lines with each of them made visible."""
    return "\n".join(visible(line) for line in text.splitlines())


def sentence(text: str) -> str:
    """A note as a sentence: a capital first, a full stop last."""
    return f"{text[:1].upper()}{text[1:]}".rstrip(".") + "."


def tenth(value: float) -> int:
    """A reward as a tenth of the unit interval, 0 to 10, for the small bar below it."""
    return round(10 * min(max(value, 0.0), 1.0))


def digest_short(ref: str) -> str:
    """A pinned reference with its digest cut to 12 characters."""
    name, mark, digest = ref.partition("#")
    return f"{name}{mark}{digest[:12]}"


# --- assets -------------------------------------------------------------------------------------------------------


@cache
def asset(name: str) -> str:
    """A file of this package."""
    return files("harbor_assets.report").joinpath(name).read_text(encoding="utf-8")


def environment(loader: "BaseLoader | None" = None) -> "Environment":
    """Templates that escape everything, with these filters; an unknown name is an error."""
    from jinja2 import Environment, StrictUndefined

    made = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, loader=loader)
    made.filters |= {
        "number": number,
        "short": short,
        "seconds": seconds,
        "instant": instant,
        "href": href,
        "visible": visible,
        "lines": lines,
        "tenth": tenth,
        "sentence": sentence,
        "digest_short": digest_short,
    }
    return made
