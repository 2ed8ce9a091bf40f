"""Agent trajectories (ATIF, `agent/trajectory.json` of Harbor's agents) as spans. Pure.

Read leniently: an agent of another version is shown as far as it can be understood. Tool calls stand beside the model
call that asked for them, not below it: whatever an agent that they start uses is not part of that call. Usage of steps
that were copied from an earlier trajectory is left out, since it was counted there.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, NoReturn

from harbor_assets.domain.text import visible
from harbor_assets.domain.trace_reading import DOCUMENT_MAX_BYTES, Reading, compact, label, moment
from harbor_assets.domain.traces import SPANS_MAX, Span, SpanKind, Usage, usage_of

ROOT = "agent"  # the span around all others
_DEPTH_MAX = 10  # of agents within agents
_NONE: Mapping[str, Any] = {}
_LAST = datetime.max.replace(tzinfo=UTC)


class Trajectory(NamedTuple):
    """A trajectory as spans, the first of which is around all others."""

    spans: Sequence[Span]
    agent_name: str | None = None
    agent_version: str | None = None
    model_name: str | None = None
    final_message: str | None = None


def read_atif(document: bytes | Mapping[str, Any]) -> Trajectory | None:
    """A trajectory; None if this is none: no version `ATIF-v…`, no steps, or too large."""
    try:
        return atif_of(document)
    except ValueError:
        return None


def atif_of(document: bytes | Mapping[str, Any]) -> Trajectory:
    """A trajectory. Raises `ValueError`, which says why, if this is none."""
    found = _parsed(document) if isinstance(document, bytes) else document
    if not is_atif(found):
        raise ValueError("it is no ATIF trajectory: it needs a schema_version that begins with ATIF-v, and steps")
    reading = Reading()
    _Reader(reading, found).agent(found, ROOT, None, 0)
    spans = reading.spans
    about = {**spans[0].attributes, **reading.said()}
    spans[0] = spans[0].model_copy(update={"attributes": about, **_completed(spans)})
    agent = _mapping(found.get("agent"))
    return Trajectory(
        spans,
        agent_name=_label(agent.get("name")),
        agent_version=_label(agent.get("version")),
        model_name=_label(agent.get("model_name")) or next((s.model_name for s in spans if s.model_name), None),
        final_message=spans[0].output,
    )


def joined(parts: Iterable[tuple[str, Trajectory]]) -> Trajectory:
    """Trajectories of the steps of one task, by step name, as one: each below a span around all of them."""
    ordered = sorted(parts, key=lambda part: (part[1].spans[0].started_at or _LAST, part[0]))
    spans = [Span(span_id=ROOT, name="steps", kind=SpanKind.AGENT)]
    for number, (name, part) in enumerate(ordered, start=1):
        at = f"{ROOT}-{number}"
        for span in part.spans:
            ids = {"span_id": at + span.span_id.removeprefix(ROOT), "parent_span_id": ROOT}
            if span.parent_span_id is not None:
                ids["parent_span_id"] = at + span.parent_span_id.removeprefix(ROOT)
            else:
                ids["name"] = label(f"{name}: {span.name}")
            spans.append(span.model_copy(update=ids))
    left_out = len(spans) - SPANS_MAX
    last = ordered[-1][1]
    root = spans[0].model_copy(
        update={
            "output": last.final_message,
            "started_at": ordered[0][1].spans[0].started_at,
            "attributes": {"spans_left_out": str(left_out)} if left_out > 0 else {},
        }
    )
    return last._replace(spans=[root, *spans[1:SPANS_MAX]])


def is_atif(document: Mapping[str, Any]) -> bool:
    """Whether it has what every trajectory has: a version, and steps."""
    version, steps = document.get("schema_version"), document.get("steps")
    return isinstance(version, str) and version.startswith("ATIF-v") and isinstance(steps, list) and bool(steps)


def _completed(spans: Sequence[Span]) -> dict[str, int | float]:
    """What the root's total leaves open and the steps know. A total with nothing known says nothing, so it stays so."""
    if not spans[0].usage.known:
        return {}
    below = usage_of(spans[1:])
    known = ((name, getattr(below, name)) for name in Usage.model_fields if getattr(spans[0], name) is None)
    return {name: value for name, value in known if value is not None}


def too_large(size: int) -> NoReturn:
    """Raises `ValueError` for a document of `size` bytes."""
    raise ValueError(f"it has {size} bytes; no more than {DOCUMENT_MAX_BYTES} are read")


def _parsed(data: bytes) -> Mapping[str, Any]:
    if len(data) > DOCUMENT_MAX_BYTES:
        too_large(len(data))
    if not data:
        raise ValueError("it is empty")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {visible(str(error))[:200]}") from None
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - a file of a stranger, not an argument
    return found


class _Reader:
    """One document. Agents that are embedded in it stand below the tool call that names them, else below the root."""

    def __init__(self, reading: Reading, document: Mapping[str, Any]) -> None:
        self._reading = reading
        self._embedded: dict[str, Mapping[str, Any]] = {}
        self._collect(document, 0)

    def _collect(self, document: Mapping[str, Any], depth: int) -> None:
        for each in _mappings(document.get("subagent_trajectories")):
            if isinstance(name := each.get("trajectory_id"), str) and depth < _DEPTH_MAX:
                self._embedded.setdefault(name, each)
                self._collect(each, depth + 1)

    def agent(self, document: Mapping[str, Any], at: str, parent: str | None, depth: int) -> str | None:
        """The span of an agent, and all of its steps below it."""
        agent, final = _mapping(document.get("agent")), _mapping(document.get("final_metrics"))
        steps = _mappings(document.get("steps"))
        times = [time for step in steps if (time := moment(step.get("timestamp")))]
        said = next((text for step in reversed(steps) if (text := _agent_text(step))), None)
        reading = self._reading
        span = reading.add(
            at,
            name=_label(agent.get("name")) or "agent",
            kind=SpanKind.AGENT,
            parent=parent,
            # An embedded agent's own total is in that of the agent around it, where there is one.
            usage=Usage(
                prompt_tokens=reading.whole(final.get("total_prompt_tokens")),
                completion_tokens=reading.whole(final.get("total_completion_tokens")),
                cached_tokens=reading.whole(final.get("total_cached_tokens")),
                cost_usd=reading.amount(final.get("total_cost_usd")),
            ),
            result=said,
            model=_label(agent.get("model_name")),
            attributes={
                name: value
                for name, value in (
                    ("version", _label(agent.get("version"))),
                    ("schema", _label(document.get("schema_version"))),
                    ("notes", document.get("notes")),
                )
                if isinstance(value, str)
            },
            started_at=min(times, default=None),
            ended_at=max(times, default=None),
        )
        if span is None:
            return None
        model = _label(agent.get("model_name"))
        for number, step in enumerate(steps, start=1):
            self._step(step, f"{at}/{number}", span, model, depth)
        if depth == 0:  # what no tool call named
            for number, each in enumerate([*self._embedded.values()], start=1):
                if each.get("trajectory_id") in self._embedded:
                    self._subagent(each, f"{at}/sub-{number}", span, depth)
        return span

    def _subagent(self, document: Mapping[str, Any], at: str, parent: str, depth: int) -> None:
        self._embedded.pop(document["trajectory_id"], None)  # each stands once, whoever names it again
        if depth < _DEPTH_MAX:
            self.agent(document, at, parent, depth + 1)

    def _step(self, step: Mapping[str, Any], at: str, parent: str, model: str | None, depth: int) -> None:
        source, time = step.get("source"), moment(step.get("timestamp"))
        if source != "agent":
            name = source if source in ("user", "system") else "message"
            span = self._reading.add(
                at, name=name, kind=SpanKind.MESSAGE, parent=parent, source=_text(step.get("message")), started_at=time
            )
            if span:
                self._observations(step, at, span, set(), time, depth)
            return
        copied, calls = step.get("is_copied_context") is True, step.get("llm_call_count")
        about = {"reasoning": step.get("reasoning_content")}
        if copied:
            about["copied"] = "from an earlier trajectory; its usage was counted there"
        if isinstance(calls, int) and calls > 1:
            about["model_calls"] = str(calls)
        span = self._reading.add(
            at,
            name="step" if calls == 0 else "model call",
            kind=SpanKind.OTHER if calls == 0 else SpanKind.MODEL,
            parent=parent,
            usage=None if copied else self._usage(_mapping(step.get("metrics"))),
            result=_text(step.get("message")),
            model=_label(step.get("model_name")) or (None if calls == 0 else model),
            attributes={name: value for name, value in about.items() if isinstance(value, str)},
            started_at=time,
        )
        if span is None:
            return
        told = self._tools(step, at, parent, time, depth)
        self._observations(step, at, parent, told, time, depth)

    def _tools(self, step: Mapping[str, Any], at: str, parent: str, time: datetime | None, depth: int) -> set[str]:
        """The spans of the tool calls of a step, each with its result; answers the ids of the calls."""
        results: dict[str, list[Mapping[str, Any]]] = {}
        for result in _results(step):
            if isinstance(call := result.get("source_call_id"), str):
                results.setdefault(call, []).append(result)
        told: set[str] = set()
        for number, call in enumerate(_mappings(step.get("tool_calls")), start=1):
            mine = results.get(call["tool_call_id"], []) if isinstance(call.get("tool_call_id"), str) else []
            if mine:
                told.add(call["tool_call_id"])
            arguments = call.get("arguments")
            span = self._reading.add(
                f"{at}/tool-{number}",
                name=_label(call.get("function_name")) or "tool",
                kind=SpanKind.TOOL,
                parent=parent,
                source=None if arguments is None else compact(arguments),
                result="\n".join(text for each in mine if (text := _text(each.get("content")))) if mine else None,
                started_at=time,
            )
            if span:
                for each in mine:
                    self._named(each, span, depth)
        return told

    def _observations(
        self, step: Mapping[str, Any], at: str, parent: str, told: set[str], time: datetime | None, depth: int
    ) -> None:
        for number, result in enumerate(_results(step), start=1):
            if result.get("source_call_id") in told:
                continue
            span = self._reading.add(
                f"{at}/observation-{number}",
                name="observation",
                kind=SpanKind.OTHER,
                parent=parent,
                result=_text(result.get("content")),
                started_at=time,
            )
            if span:
                self._named(result, span, depth)

    def _named(self, result: Mapping[str, Any], parent: str, depth: int) -> None:
        """Agents that a result names."""
        for number, ref in enumerate(_mappings(result.get("subagent_trajectory_ref")), start=1):
            name = ref.get("trajectory_id")
            if isinstance(name, str) and name in self._embedded:
                self._subagent(self._embedded[name], f"{parent}/agent-{number}", parent, depth)

    def _usage(self, metrics: Mapping[str, Any]) -> Usage:
        return Usage(
            prompt_tokens=self._reading.whole(metrics.get("prompt_tokens")),
            completion_tokens=self._reading.whole(metrics.get("completion_tokens")),
            cached_tokens=self._reading.whole(metrics.get("cached_tokens")),
            cost_usd=self._reading.amount(metrics.get("cost_usd")),
        )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else _NONE


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _results(step: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return _mappings(_mapping(step.get("observation")).get("results"))


def _label(value: Any) -> str | None:
    return label(value) if isinstance(value, str) and value else None


def _agent_text(step: Mapping[str, Any]) -> str | None:
    text = _text(step.get("message")) if step.get("source") == "agent" else None
    return text if text and text.strip() else None


def _text(message: Any) -> str | None:
    """A text, or parts: texts joined, the place of an image or a recording in brackets."""
    if isinstance(message, str):
        return message
    if message is None:
        return None
    return "\n".join(_parts(message)) if isinstance(message, list) else compact(message)


def _parts(message: Sequence[Any]) -> Iterator[str]:
    for part in _mappings(message):
        if isinstance(text := part.get("text"), str):
            yield text
        elif isinstance(path := _mapping(part.get("source")).get("path"), str):
            yield f"[{_label(part.get('type')) or 'file'} {label(path)}]"
