"""How the pages write what the report does not have: sizes, money, tokens, logs, and how long ago something was."""

import json
import re
from datetime import UTC, datetime

from harbor_assets.domain.text import visible
from harbor_assets.report.formats import instant

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # what terminals are told; a page has its own
_FIGURES = {"cost_usd": "cost in US dollars", "latency_ms": "time in ms"}
_UNITS = ("kB", "MB", "GB", "TB")


def size(count: int) -> str:
    """Bytes for people: `17 bytes`, `1.2 kB`."""
    if count < 1000:
        return f"{count} byte{'' if count == 1 else 's'}"
    power = next((n for n in range(1, len(_UNITS)) if count < 999.95 * 1000**n), len(_UNITS))
    return f"{count / 1000**power:.1f} {_UNITS[power - 1]}"


def money(value: float | None) -> str:
    """US dollars; a dash where nobody knows."""
    if value is None:
        return "–"
    return f"${value:.2f}" if value >= 1 or value == 0 else f"${value:.4f}"


def count(value: int | None) -> str:
    """A number of something with its thousands apart; a dash where nobody knows."""
    return "–" if value is None else f"{value:,}"


def log_text(text: str) -> str:
    """A log fit for a page: tabs stay, colours go, every other control character is shown rather than obeyed."""
    plain = _COLOUR.sub("", text)
    return "\n".join("\t".join(map(visible, line.split("\t"))) for line in plain.splitlines())


def plain(name: str) -> str:
    """A word of ours for people: `image_ready` is `image ready`."""
    return name.replace("_", " ")


def ago(value: datetime | None) -> str:
    """How long before now: `3 min ago`; the day where that is long ago."""
    if value is None:
        return "–"
    passed = (datetime.now(UTC) - value).total_seconds()
    for limit, unit, name in ((90, 1, "s"), (5400, 60, "min"), (129_600, 3600, "h"), (864_000, 86_400, "days")):
        if passed < limit:
            return f"{max(0, round(passed / unit))} {name} ago"
    return instant(value)[:10]


def plural(count: int, noun: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def metric(name: str) -> str:
    """A figure of an experiment for people: `evaluators.reward.mean` is `reward, mean`."""
    field, _, key = name.removeprefix("-").partition(".")
    if field == "evaluators":
        evaluator, _, stat = key.rpartition(".")
        return f"{visible(evaluator)[:60]}, {stat}"
    return f"{_FIGURES.get(field, plain(visible(field)))}{f', {visible(key)}' if key else ''}"


def tool_input(text: str) -> str:
    """What a tool was given: a single argument that is a text as it is, others as JSON with a line each."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(found, dict) and len(found) == 1 and isinstance(alone := next(iter(found.values())), str):
        return alone
    return json.dumps(found, ensure_ascii=False, indent=1)


FILTERS = {
    "tool_input": tool_input,
    "metric": metric,
    "size": size,
    "money": money,
    "thousands": count,
    "log_text": log_text,
    "plain": plain,
    "ago": ago,
    "plural": plural,
}
