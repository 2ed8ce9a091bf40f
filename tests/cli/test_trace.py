"""`runs trace`: what an agent did, over the command line, REST and SDK; also where it left nothing that can be read."""

import json
from typing import Any

import pytest

from harbor_assets.domain.errors import NotFound, NotReady
from harbor_assets.domain.outcomes import Reason
from harbor_assets.domain.runs import bundle_key
from harbor_assets.domain.trace_reading import DOCUMENT_MAX_BYTES
from harbor_assets.engine.trial_traces import completed, read_trace
from tests.cli.conftest import Cli
from tests.interfaces.backends import NOW, World, evaluator_of, outcome

STEPS = [
    {"step_id": 1, "source": "user", "message": "Fix\nit.", "timestamp": "2026-01-02T03:04:05Z"},
    {
        "step_id": 2,
        "source": "agent",
        "message": "Looking.",
        "timestamp": "2026-01-02T03:04:07Z",
        "metrics": {"prompt_tokens": 10, "completion_tokens": 3},
        "tool_calls": [{"tool_call_id": "c", "function_name": "ba\x1b[2Jsh", "arguments": {"command": "ls"}}],
        "observation": {"results": [{"source_call_id": "c", "content": "a.py\n\x1b[31mb.py"}]},
    },
]


def trajectory(*steps: Any) -> bytes:
    agent = {"name": "codex", "version": "3.1", "model_name": "m"}
    return json.dumps({"schema_version": "ATIF-v1.7", "agent": agent, "steps": steps or STEPS}).encode()


def ended(w: World, files: dict[str, bytes], *, reward: float | Reason = 1.0) -> str:
    """A run of one task whose trial left these files. Its row says what these say, as its worker would have made it."""
    run_id = evaluator_of(w).runs.submit(w.publish("a"), agent="nop").run.id
    w.catalog.mark_started(run_id, NOW)
    task = w.catalog.get_run(run_id).plan.tasks[0]
    for path, data in files.items():
        w.artifacts.put_bytes(f"{bundle_key(run_id)}/evidence/t/{path}", data)
    row = outcome(run_id, task, reward, evidence="evidence/t")
    used = completed(row.measurements, read_trace(w.artifacts, row).trajectory)
    w.catalog.add_outcome(row.model_copy(update={"measurements": used}))
    return run_id


def test_a_line_for_each_thing_it_did_and_nothing_a_terminal_acts_on(w: World, cli: Cli):
    run_id = ended(w, {"agent/trajectory.json": trajectory()})
    said = cli("runs", "trace", run_id, "a")
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0].endswith(": scored (graded), reward 1.0000")
    assert lines[1] == "Agent nop 3.1, model m; 10 tokens in, 3 out; cost unknown"
    assert [line.split()[0] for line in lines[4:]] == ["agent", "message", "model", "tool"]
    assert lines[5].endswith("+0.0 s  -       Fix it.")
    assert lines[6].endswith("+2.0 s  10/3    Looking.")
    assert lines[7].endswith('{"command": "ls"} -> a.py \\x1b[31mb.py')
    assert "\x1b" not in said.out
    found = cli("runs", "trace", run_id, "0", "--json").json
    assert (found["prompt_tokens"], found["cost_usd"], len(found["spans"])) == (10, None, 4)
    assert found["spans"][3]["output"] == "a.py\n\x1b[31mb.py"


@pytest.mark.parametrize("files", [{}, {"agent/trajectory.json": b"{"}])
def test_a_trial_without_a_trajectory_is_one_step_of_its_agent(w: World, cli: Cli, files: dict[str, bytes]):
    run_id = ended(w, files, reward=Reason.SANDBOX_LOST)
    said = cli("runs", "trace", run_id, "0")
    assert said.code == 0
    assert "infra_failed (sandbox_lost), reward -" in said.out
    assert "Error sandbox_lost: as the test wanted" in said.out
    found = evaluator_of(w).runs.trace(run_id, 0)
    assert [(span.kind, span.parent_span_id) for span in found.spans] == [("agent", None)]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is empty"),
        (b"{", "it is no JSON: Expecting property name"),
        (b"[]", "it is no JSON object"),
        (b'{"schema_version": "ATIF-v1.7", "steps": []}', "it is no ATIF trajectory: it needs a schema_version"),
        (b" " * (DOCUMENT_MAX_BYTES + 1), f"it has {DOCUMENT_MAX_BYTES + 1} bytes; no more than {DOCUMENT_MAX_BYTES}"),
    ],
    ids=["empty", "no-json", "no-object", "no-atif", "too-large"],
)
def test_a_trajectory_that_cannot_be_read_is_told(w: World, cli: Cli, data: bytes, why: str):
    run_id = ended(w, {"agent/trajectory.json": data})
    said = cli("runs", "trace", run_id, "0")
    assert (said.code, f"agent/trajectory.json could not be read: {why}" in said.out) == (0, True)
    (told,) = cli("runs", "trace", run_id, "0", "--json").json["unreadable"]
    assert told.startswith(f"agent/trajectory.json could not be read: {why}")


def test_a_task_of_several_steps_has_the_agents_of_all(w: World):
    first, second = {**STEPS[1]}, {**STEPS[1], "timestamp": "2026-01-02T04:00:00Z", "message": "Later."}
    files = {
        "steps/z-first/agent/trajectory.json": trajectory(first),
        "steps/a-second/agent/trajectory.json": trajectory({**second, "step_id": 1}),
    }
    found = evaluator_of(w).runs.trace(ended(w, files), 0)
    names = [span.name for span in found.spans if span.kind == "agent"]
    assert names == ["steps", "z-first: codex", "a-second: codex"]
    known = {span.span_id for span in found.spans}
    assert all(span.parent_span_id in known for span in found.spans[1:])
    assert (found.prompt_tokens, found.final_message) == (20, "Later.")


def test_what_is_not_there_is_told(w: World, cli: Cli):
    runs = evaluator_of(w).runs
    run_id = runs.submit(w.publish("a"), agent="nop").run.id
    with pytest.raises(NotReady, match="has not ended"):
        runs.trace(run_id, 0)
    for index, k in ((7, 1), (0, 2)):
        with pytest.raises(NotFound):
            runs.trace(run_id, index, k=k)
    said = cli("runs", "trace", run_id, "nobody")
    assert said.code == 2
    assert "has no task 'nobody'" in said.err
