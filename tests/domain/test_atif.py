"""Trajectories as spans: what an agent did, in order, what it used counted once. A stranger breaks nothing."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain import trace_reading
from harbor_assets.domain.atif import Trajectory, read_atif
from harbor_assets.domain.traces import SpanKind, usage_of

AGENT = {"name": "codex", "version": "1.2", "model_name": "m"}


def step(number: int, source: str = "agent", message: Any = "", **more: Any) -> dict[str, Any]:
    return {"step_id": number, "source": source, "message": message, **more}


def document(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"schema_version": "ATIF-v1.7", "session_id": "s", "agent": AGENT, "steps": [*steps], **more}


def read(*steps: dict[str, Any], **more: Any) -> Trajectory:
    found = read_atif(json.dumps(document(*steps, **more)).encode())
    assert found is not None
    return found


def test_messages_model_calls_and_tool_calls_stand_in_order_below_the_agent():
    found = read(
        step(1, "user", "Fix it.", timestamp="2026-01-02T03:04:05Z"),
        step(
            2,
            message="I look.",
            reasoning_content="where?",
            tool_calls=[{"tool_call_id": "c1", "function_name": "bash", "arguments": {"command": "ls"}}],
            observation={"results": [{"source_call_id": "c1", "content": "a.py"}, {"content": "by the way"}]},
            metrics={"prompt_tokens": 10, "completion_tokens": 3, "cached_tokens": 4, "cost_usd": 0.01},
            timestamp="2026-01-02T03:04:09+00:00",
        ),
        step(3, message=[{"type": "text", "text": "Done."}, {"type": "image", "source": {"path": "x.png"}}]),
    )
    assert [(s.span_id, s.parent_span_id, s.kind, s.name) for s in found.spans] == [
        ("agent", None, "agent", "codex"),
        ("agent/1", "agent", "message", "user"),
        ("agent/2", "agent", "model", "model call"),
        ("agent/2/tool-1", "agent", "tool", "bash"),
        ("agent/2/observation-2", "agent", "other", "observation"),
        ("agent/3", "agent", "model", "model call"),
    ]
    root, user, call, tool, other, last = found.spans
    assert (user.input, call.output, call.attributes["reasoning"], call.model_name) == (
        "Fix it.",
        "I look.",
        "where?",
        "m",
    )
    assert (tool.input, tool.output, other.output) == ('{"command": "ls"}', "a.py", "by the way")
    assert last.output == found.final_message == "Done.\n[image x.png]"
    assert (root.started_at, root.ended_at) == (user.started_at, call.started_at)
    assert (found.agent_name, found.agent_version, found.model_name) == ("codex", "1.2", "m")


def test_a_total_is_not_added_to_its_parts_and_what_it_leaves_open_comes_from_them():
    parts = (
        step(1, metrics={"prompt_tokens": 10, "completion_tokens": 3}),
        step(2, metrics={"prompt_tokens": 20, "completion_tokens": 4, "cost_usd": 0.5}),
    )
    steps = usage_of(read(*parts).spans)
    assert (steps.prompt_tokens, steps.completion_tokens, steps.cached_tokens, steps.cost_usd) == (30, 7, None, 0.5)
    whole = usage_of(read(*parts, final_metrics={"total_prompt_tokens": 31, "total_cost_usd": 0.75}).spans)
    assert (whole.prompt_tokens, whole.completion_tokens, whole.cost_usd) == (31, 7, 0.75)
    unknown = usage_of(read(step(1, message="x"), final_metrics={"total_steps": 1}).spans)
    assert not unknown.known


def test_copied_steps_were_counted_where_they_were_made():
    found = read(step(1, metrics={"prompt_tokens": 10}, is_copied_context=True), step(2, metrics={"prompt_tokens": 5}))
    assert usage_of(found.spans).prompt_tokens == 5
    assert "copied" in found.spans[1].attributes


def test_agents_within_an_agent_stand_below_the_call_that_names_them_and_count():
    def sub(name: str, **more: Any) -> dict[str, Any]:
        return document(step(1, metrics={"prompt_tokens": 100}), trajectory_id=name, **more)

    ref = [{"trajectory_id": "a"}, {"trajectory_id": "a"}, {"trajectory_id": "gone"}]
    found = read(
        step(
            1,
            tool_calls=[{"tool_call_id": "c", "function_name": "task", "arguments": {}}],
            observation={"results": [{"source_call_id": "c", "subagent_trajectory_ref": ref}]},
            metrics={"prompt_tokens": 1},
        ),
        subagent_trajectories=[sub("a"), sub("b")],
    )
    tree = {span.span_id: span.parent_span_id for span in found.spans}
    assert tree["agent/1/tool-1/agent-1"] == "agent/1/tool-1"
    assert tree["agent/1/tool-1/agent-1/1"] == "agent/1/tool-1/agent-1"
    assert [at for at, parent in tree.items() if parent == "agent" and "sub" in at] == ["agent/sub-1"]
    assert len([span for span in found.spans if span.kind is SpanKind.AGENT]) == 3
    assert usage_of(found.spans).prompt_tokens == 201


def test_agents_that_name_themselves_or_stand_deep_end_somewhere():
    inner: dict[str, Any] = document(step(1), trajectory_id="t0")
    for depth in range(1, 40):
        inner = document(step(1), trajectory_id=f"t{depth}", subagent_trajectories=[inner])
    ref = {"results": [{"content": "", "subagent_trajectory_ref": [{"trajectory_id": "me"}]}]}
    loop = document(step(1, observation=ref), trajectory_id="me")
    found = read(step(1, observation=ref), subagent_trajectories=[loop, inner])
    assert 3 < len(found.spans) < 100


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b"\xff\xfe",
        b"[" * 200_000,
        b'{"schema_version": "ATIF-v1.7", "steps": []}',
        b'{"schema_version": "OTHER", "steps": [{"source": "agent"}]}',
        b'{"schema_version": 1, "steps": {}}',
    ],
)
def test_what_is_no_trajectory_is_none(data: bytes):
    assert read_atif(data) is None


def test_a_trajectory_that_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch):
    data = json.dumps(document(step(1, message="x" * 100))).encode()
    monkeypatch.setattr("harbor_assets.domain.atif.DOCUMENT_MAX_BYTES", len(data))
    assert read_atif(data) is not None
    monkeypatch.setattr("harbor_assets.domain.atif.DOCUMENT_MAX_BYTES", len(data) - 1)
    assert read_atif(data) is None


def test_limits_cut_and_say_how_much(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(trace_reading, "SPANS_MAX", 3)
    monkeypatch.setattr(trace_reading, "TOTAL_TEXT_MAX", 100)
    found = read(step(1, "user", "x" * 150), *(step(number) for number in range(2, 6)))
    assert len(found.spans) == 3
    room = 100 - len("ATIF-v1.7") - len(AGENT["version"])
    assert found.spans[1].input == "x" * room + "… (cut, 150 characters)"
    assert found.spans[0].attributes["spans_left_out"] == "3"
    assert found.spans[0].attributes["characters_left_out"] == str(150 - room)


def test_numbers_that_are_none_are_unknown_and_counted():
    strange: list[Any] = [-1, True, "5", 1.5, float("nan"), 2**70, [], {}]
    for value in strange:
        found = read(step(1, metrics={"prompt_tokens": value, "completion_tokens": 2, "cost_usd": value}))
        used = usage_of(found.spans)
        assert used.prompt_tokens is None
        assert used.completion_tokens == 2
        assert int(found.spans[0].attributes["numbers_left_out"]) >= 1


def test_names_of_strangers_stay_on_a_line():
    found = read(
        step(1, tool_calls=[{"tool_call_id": "c", "function_name": "\x1b[2Jrm\n" + "x" * 900, "arguments": 5}])
    )
    tool = found.spans[2]
    assert tool.name.startswith("\\x1b[2Jrm\\n")
    assert tool.name.isprintable()
    assert len(tool.name) < 1000
    assert tool.input == "5"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
members = ("source", "message", "tool_calls", "observation", "metrics", "timestamp", "is_copied_context", "model_name")
hostile = st.dictionaries(st.sampled_from(members), values)


@given(st.lists(hostile | values, min_size=1, max_size=4), values, values)
def test_nothing_that_a_stranger_writes_breaks_it(steps: list[Any], agent: Any, more: Any):
    whole = {"schema_version": "ATIF-v9", "steps": steps, "agent": agent, "subagent_trajectories": more}
    found = read_atif(whole)
    assert found is not None
    assert found.spans[0].parent_span_id is None
    json.dumps([span.model_dump(mode="json") for span in found.spans])
