"""OpenTelemetry's traces as spans."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.otlp import read_otlp, read_otlp_lines, single_root
from harbor_assets.domain.traces import Usage, usage_of


def value(of: Any) -> dict[str, Any]:
    if isinstance(of, bool):
        return {"boolValue": of}
    if isinstance(of, int):
        return {"intValue": str(of)}
    if isinstance(of, float):
        return {"doubleValue": of}
    if isinstance(of, list):
        return {"arrayValue": {"values": [value(each) for each in of]}}
    if isinstance(of, dict):
        return {"kvlistValue": {"values": [{"key": key, "value": value(each)} for key, each in of.items()]}}
    return {"stringValue": of}


def span(at: str, parent: str = "", start: int = 1, **attributes: Any) -> dict[str, Any]:
    listed = [{"key": key.replace("__", "."), "value": value(each)} for key, each in attributes.items()]
    times = {"startTimeUnixNano": str(start * 10**9), "endTimeUnixNano": str((start + 1) * 10**9)}
    return {"traceId": "t", "spanId": at, "parentSpanId": parent, "name": f"n-{at}", "attributes": listed, **times}


def export(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"spans": [*spans]}]}]}


def test_calls_tools_and_agents_are_told_by_their_attributes_and_usage_counts_once():
    chat = {"gen_ai__operation__name": "chat", "gen_ai__response__model": "m", "gen_ai__usage__input_tokens": 10}
    tool = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": "bash"}
    old = {"openinference__span__kind": "LLM", "llm__token_count__prompt": 5, "llm__cost__total": 0.5}
    found = read_otlp(
        [
            export(
                span("c", "r", 3, **tool, gen_ai__tool__call__arguments={"command": ["ls"]}),
                span("b", "r", 2, **chat, gen_ai__output__messages="hi"),
                span("r", "", 1, gen_ai__operation__name="invoke_agent"),
            ),
            export(span("d", "r", 4, **old)),
        ]
    )
    assert [(s.span_id, s.kind, s.name) for s in found] == [
        ("r", "agent", "n-r"),
        ("b", "model", "n-b"),
        ("c", "tool", "bash"),
        ("d", "model", "n-d"),
    ]
    root, call, tool_call, _ = found
    assert single_root(found) == root
    assert (call.model_name, call.output, tool_call.input) == ("m", "hi", '{"command": ["ls"]}')
    assert root.started_at
    assert root.ended_at
    assert (root.ended_at - root.started_at).total_seconds() == 1
    used = usage_of(found)
    assert (used.prompt_tokens, used.completion_tokens, used.cost_usd) == (15, None, 0.5)
    total = [export(span("r", gen_ai__usage__input_tokens=20), span("b", "r", **chat))]
    assert usage_of(read_otlp(total)).prompt_tokens == 20


def test_an_error_is_one_and_two_roots_are_no_root():
    failed = {**span("a"), "status": {"code": "STATUS_CODE_ERROR", "message": "boom"}}
    found = read_otlp([export(failed, span("b", "gone"))])
    assert [(s.status, s.attributes.get("status_message")) for s in found] == [("error", "boom"), ("ok", None)]
    assert single_root(found) is None
    assert single_root([]) is None


def test_a_file_has_a_request_on_each_line_and_bad_lines_are_counted():
    lines = [json.dumps(export(span("a"))), "", "{", "5", json.dumps(export(span("b", "a"), span("b", "a")))]
    found = read_otlp_lines("\n".join(lines).encode())
    assert [s.span_id for s in found] == ["a", "b"]
    assert found[0].attributes == {"lines_left_out": "2", "spans_left_out": "1"}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
attribute = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["gen_ai.usage.input_tokens", "llm.cost.total", "gen_ai.operation.name", "input.value"]),
        "value": st.dictionaries(
            st.sampled_from(["intValue", "doubleValue", "stringValue", "arrayValue", "kvlistValue"]), values
        ),
    }
)
hostile = st.fixed_dictionaries(
    {},
    optional={
        "spanId": values | st.text(min_size=1),
        "parentSpanId": values,
        "name": values,
        "attributes": st.lists(attribute, max_size=3) | values,
        "startTimeUnixNano": values,
        "status": values | st.fixed_dictionaries({"code": values, "message": values}),
    },
)


@given(st.lists(hostile, max_size=4))
def test_nothing_that_a_stranger_writes_breaks_it(spans: list[Any]):
    json.dumps([span.model_dump(mode="json") for span in read_otlp([export(*spans)])])


def test_more_tokens_than_any_number_holds_are_left_out_and_counted():
    (only,) = read_otlp([export(span("a", gen_ai__usage__input_tokens=2**60, gen_ai__usage__output_tokens=1))])
    assert (only.prompt_tokens, only.completion_tokens, only.attributes["numbers_left_out"]) == (None, 1, "1")
    many = [span(f"s{n}", gen_ai__usage__input_tokens=2**53, gen_ai__usage__cost=1.5e308) for n in range(2)]
    assert usage_of(read_otlp([export(*many)])) == Usage()  # no sum of them can be kept
