"""An agent's trajectory (ATIF) as a page shows it: steps with their messages, tool calls, results and usage. Pure.

Agents write these files, each in its own way: what cannot be read as the format says is left out rather than refused,
and every text is cut. Totals are not computed here: what a trial used stands in its outcome row.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TEXT_MAX = 20_000  # characters of one message, call or result; the file has the rest
STEPS_MAX = 10_000  # of one trajectory that are looked at
_VERSION = "ATIF-v"


@dataclass(frozen=True, slots=True)
class Text:
    """A text and how many of its characters were left out."""

    text: str
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that the agent called. `arguments`: a command as it is, else JSON."""

    name: str
    arguments: Text


@dataclass(frozen=True, slots=True)
class Step:
    """One step. Tokens and US dollars as the agent reported them; None: it did not say."""

    number: int
    source: str
    timestamp: str | None
    model: str | None
    message: Text
    reasoning: Text
    calls: tuple[Call, ...]
    results: tuple[Text, ...]
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    cost_usd: float | None


@dataclass(frozen=True, slots=True)
class Trajectory:
    """What an agent did, in its own words. `total` counts all steps, also those that are not among `steps`."""

    version: str
    agent: str | None
    agent_version: str | None
    model: str | None
    steps: Sequence[Step]
    total: int


def read_trajectory(data: bytes, *, first: int = 1, most: int = STEPS_MAX) -> Trajectory | None:
    """The trajectory with `most` steps from step `first` (from 1); None if this is no ATIF trajectory."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    version, steps = (_table(document).get(key) for key in ("schema_version", "steps"))
    if not isinstance(version, str) or not version.startswith(_VERSION) or not isinstance(steps, list):
        return None
    agent = _table(_table(document).get("agent"))
    shown = steps[first - 1 : first - 1 + min(most, STEPS_MAX)]
    return Trajectory(
        version=version,
        agent=_word(agent.get("name")),
        agent_version=_word(agent.get("version")),
        model=_word(agent.get("model_name")),
        steps=[_step(number, _table(step)) for number, step in enumerate(shown, start=first)],
        total=len(steps),
    )


def _step(number: int, step: Mapping[str, Any]) -> Step:
    metrics = _table(step.get("metrics"))
    results = _list(_table(step.get("observation")).get("results"))
    return Step(
        number=number,
        source=_word(step.get("source")) or "unknown",
        timestamp=_word(step.get("timestamp")),
        model=_word(step.get("model_name")),
        message=_cut(content_text(step.get("message"))),
        reasoning=_cut(content_text(step.get("reasoning_content"))),
        calls=tuple(_calls(step.get("tool_calls"))),
        results=tuple(_cut(content_text(_table(result).get("content"))) for result in results),
        prompt_tokens=_count(metrics.get("prompt_tokens")),
        completion_tokens=_count(metrics.get("completion_tokens")),
        cached_tokens=_count(metrics.get("cached_tokens")),
        cost_usd=_amount(metrics.get("cost_usd")),
    )


def _calls(calls: Any) -> Iterator[Call]:
    for call in map(_table, _list(calls)):
        arguments = call.get("arguments")
        alone = next(iter(arguments.values())) if isinstance(arguments, dict) and len(arguments) == 1 else None
        text = alone if isinstance(alone, str) else json.dumps(arguments, ensure_ascii=False, indent=1, default=str)
        yield Call(_word(call.get("function_name")) or "unnamed", _cut(text))


def content_text(content: object) -> str:
    """A message's text: a string, or parts of which those with text are joined and the others are named."""
    if isinstance(content, str):
        return content
    parts = map(_table, _list(content))
    said = (part["text"] if isinstance(part.get("text"), str) else f"[{part.get('type', 'part')}]" for part in parts)
    return "\n".join(said)


def _cut(text: str) -> Text:
    return Text(text[:TEXT_MAX], max(0, len(text) - TEXT_MAX))


def _word(value: object) -> str | None:
    return value[:200] if isinstance(value, str) and value else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _amount(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) and value >= 0 else None
    except OverflowError:
        return None


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
