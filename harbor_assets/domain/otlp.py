"""Traces of OpenTelemetry (OTLP as JSON) as spans. Pure.

What is a model call, a tool call or an agent is told by the attributes of the GenAI conventions, or by those of
OpenInference. Everything else is a span of kind `other`.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from harbor_assets.domain.trace_reading import (
    ATTRIBUTES_MAX,
    DOCUMENT_MAX_BYTES,
    Reading,
    believable,
    compact,
    identity,
    label,
)
from harbor_assets.domain.traces import Span, SpanKind, Usage

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ERROR_CODES = (2, "2", "STATUS_CODE_ERROR")
_KINDS = {
    "chat": SpanKind.MODEL,
    "text_completion": SpanKind.MODEL,
    "generate_content": SpanKind.MODEL,
    "embeddings": SpanKind.MODEL,
    "execute_tool": SpanKind.TOOL,
    "invoke_agent": SpanKind.AGENT,
    "create_agent": SpanKind.AGENT,
    "invoke_workflow": SpanKind.AGENT,
    "llm": SpanKind.MODEL,
    "embedding": SpanKind.MODEL,
    "tool": SpanKind.TOOL,
    "agent": SpanKind.AGENT,
}
# The first of the names that a span has is taken; later ones are what older producers write.
_PROMPT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt")
_COMPLETION = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion")
_CACHED = (
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cached_input_tokens",
    "gen_ai.usage.cached_tokens",
    "gen_ai.usage.input_cache_tokens",
    "llm.token_count.prompt_details.cache_read",
    "llm.token_count.cached",
)
_COST = ("gen_ai.usage.cost", "gen_ai.usage.cost_usd", "llm.cost.total")
_MODEL = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
_INPUT = ("input.value", "gen_ai.input.messages", "gen_ai.prompt", "gen_ai.tool.call.arguments", "tool.parameters")
_OUTPUT = ("output.value", "gen_ai.output.messages", "gen_ai.completion", "gen_ai.tool.call.result")
_TOOL = ("gen_ai.tool.name", "tool.name")
_SAID = frozenset((*_PROMPT, *_COMPLETION, *_CACHED, *_COST, *_MODEL, *_INPUT, *_OUTPUT))


def read_otlp_lines(data: bytes) -> Sequence[Span]:
    """The spans of a file with one export request on each line, as collectors write them. A line that is none is
    passed over, and counted on the root span. Empty for a file that is too large."""
    if len(data) > DOCUMENT_MAX_BYTES:
        return []
    documents: list[Mapping[str, Any]] = []
    unread = 0
    for line in data.splitlines():
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            documents.append(found)
        else:
            unread += 1
    return read_otlp(documents, unread=unread)


def read_otlp(documents: Iterable[Mapping[str, Any]], *, unread: int = 0) -> Sequence[Span]:
    """The spans of export requests (`resourceSpans`), in the order in which they began."""
    reading = Reading()
    reading.left_out["lines"] += unread
    raw = [span for document in documents for span in _raw(document)]
    raw.sort(key=lambda span: _nanoseconds(span.get("startTimeUnixNano")) or 0)
    for span in raw:
        _read(span, reading)
    spans = reading.spans
    if spans and (said := reading.said()):
        spans[0] = spans[0].model_copy(update={"attributes": {**spans[0].attributes, **said}})
    return spans


def single_root(spans: Sequence[Span]) -> Span | None:
    """The span around all others; None if there is none, or more than one."""
    known = {span.span_id for span in spans}
    roots = [span for span in spans if span.parent_span_id not in known]
    return roots[0] if len(roots) == 1 else None


def _raw(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for resource in _dicts(document.get("resourceSpans")):
        for scope in _dicts(resource.get("scopeSpans")):
            yield from _dicts(scope.get("spans"))


def _read(span: Mapping[str, Any], reading: Reading) -> None:
    found, has = span.get("spanId"), attributes_of(span.get("attributes"))
    if not isinstance(found, str) or not found:
        reading.left_out["spans"] += 1
        return
    parent, status = span.get("parentSpanId"), span.get("status")
    code = status.get("code") if isinstance(status, dict) else None
    words = (has.get("gen_ai.operation.name"), has.get("openinference.span.kind"))
    kind = next((_KINDS[word.lower()] for word in words if isinstance(word, str) and word.lower() in _KINDS), None)
    tool = _first(has, _TOOL) if kind is SpanKind.TOOL else None
    name = tool if isinstance(tool, str) and tool else span.get("name")
    model = _first(has, _MODEL)
    more = [(key, value) for key, value in has.items() if key not in _SAID]
    if len(more) > ATTRIBUTES_MAX:
        reading.left_out["attributes"] += len(more) - ATTRIBUTES_MAX
    about = {label(key): compact(value) for key, value in more[:ATTRIBUTES_MAX]}
    if isinstance(status, dict) and isinstance(status.get("message"), str):
        about["status_message"] = status["message"]
    reading.add(
        identity(found),
        name=name if isinstance(name, str) and name else "span",
        kind=kind or SpanKind.OTHER,
        parent=identity(parent) if isinstance(parent, str) and parent else None,
        usage=Usage(
            prompt_tokens=reading.whole(_first(has, _PROMPT)),
            completion_tokens=reading.whole(_first(has, _COMPLETION)),
            cached_tokens=reading.whole(_first(has, _CACHED)),
            cost_usd=reading.amount(_first(has, _COST)),
        ),
        source=_content(has, _INPUT),
        result=_content(has, _OUTPUT),
        model=model if isinstance(model, str) else None,
        attributes=about,
        failed=code in _ERROR_CODES,
        started_at=_moment(span.get("startTimeUnixNano")),
        ended_at=_moment(span.get("endTimeUnixNano")),
    )


def attributes_of(listed: Any) -> dict[str, Any]:
    """The attributes of a span or a resource by name."""
    return {each["key"]: _value(each.get("value")) for each in _dicts(listed) if isinstance(each.get("key"), str)}


def _value(value: Any, depth: int = 0) -> Any:
    """An attribute's value. 64-bit numbers come as texts."""
    if not isinstance(value, dict) or depth > 20:
        return None
    for name in ("stringValue", "boolValue", "bytesValue"):
        if name in value:
            return value[name]
    if "intValue" in value:
        return _nanoseconds(value["intValue"])
    if "doubleValue" in value:
        number = value["doubleValue"]
        return number if isinstance(number, float) and math.isfinite(number) else compact(number)
    if "arrayValue" in value and isinstance(value["arrayValue"], dict):
        return [_value(each, depth + 1) for each in _dicts(value["arrayValue"].get("values"))]
    if "kvlistValue" in value and isinstance(value["kvlistValue"], dict):
        pairs = _dicts(value["kvlistValue"].get("values"))
        return {str(each.get("key")): _value(each.get("value"), depth + 1) for each in pairs}
    return None


def _first(has: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((has[name] for name in names if has.get(name) is not None), None)


def _content(has: Mapping[str, Any], names: Sequence[str]) -> str | None:
    value = _first(has, names)
    return None if value is None else compact(value)


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _nanoseconds(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    plain = isinstance(value, str) and len(value) <= 20 and value.removeprefix("-")
    return int(value) if plain and plain.isascii() and plain.isdigit() else None


def _moment(value: Any) -> datetime | None:
    number = _nanoseconds(value)
    if not number:
        return None
    try:
        return believable(_EPOCH + timedelta(microseconds=number // 1000))
    except OverflowError:
        return None
