"""Traces as others send them: trajectories, and OpenTelemetry's spans in protobuf and JSON, whole and in pieces."""

import gzip
import json
import struct
from typing import Any

import pytest
from fastapi.testclient import TestClient

from harbor_assets.interfaces.api import intake_examples
from harbor_assets.interfaces.api.app import create_app
from harbor_assets.interfaces.api.parts import INTAKE
from harbor_assets.interfaces.api.routes import ingest
from tests.domain.test_otlp import span, value
from tests.interfaces.backends import World

HERE = INTAKE.format(workspace="default")
PROTOBUF = {"Content-Type": "application/x-protobuf"}
TRAJECTORY: dict[str, Any] = intake_examples.ATIF["trajectory"]["value"]


@pytest.fixture
def client(w: World) -> TestClient:
    made = TestClient(create_app(w.backend), raise_server_exceptions=False)
    one = made.post(f"{HERE}/experiments", json={"name": "e"}).json()["id"]
    body = {"name": "codex-run-1", "experiment_ids": [one], "dataset_name": "suite"}
    assert made.post(f"{HERE}/evaluations", json=body).status_code == 201
    return made


# --- ATIF -----------------------------------------------------------------------------------------------------------


def test_a_trajectory_is_a_session_with_its_rewards(client: TestClient):
    for _ in range(2):  # again: nothing is doubled
        answer = client.post(f"{HERE}/ingest/atif", json=TRAJECTORY)
        assert answer.status_code == 201, answer.text
    session = answer.json()
    assert session["evaluator_scores"] == {"correctness": 0.75, "structure": 1.0}
    assert (session["test_case_name"], session["agent_name"], session["model_name"]) == (
        "org/hello",
        "codex",
        "provider/model",
    )
    assert (session["prompt_tokens"], session["completion_tokens"], session["cost_usd"]) == (51701, 255, 0.26)
    assert (session["latency_ms"], session["final_message"]) == (1000.0, "Done.")
    spans = client.get(f"{HERE}/sessions/{session['session_id']}/spans").json()["data"]
    assert [each["kind"] for each in spans] == ["agent", "message", "model", "tool"]
    found = client.get(f"{HERE}/evaluations/codex-run-1").json()
    assert (found["run_count"], found["aggregate_scores"]["correctness"]["mean"]) == (1, 0.75)
    assert found["tokens"]["sum"] == 51956  # counted once, though the agent and its call both say it


def test_without_an_id_the_content_names_the_session(client: TestClient):
    body = {name: member for name, member in TRAJECTORY.items() if name != "session_id"}
    body["extra"] = {"verifier_result": {"score": True}}
    ids = {client.post(f"{HERE}/ingest/atif", json=body).json()["session_id"] for _ in range(2)}
    assert len(ids) == 1
    found = client.get(f"{HERE}/evaluations/codex-run-1").json()
    assert (found["run_count"], found["evaluator_names"]) == (1, ["reward"])


def test_the_older_word_names_the_evaluation_too(client: TestClient):
    body = {name: member for name, member in TRAJECTORY.items() if name != "evaluation_context"}
    body["experiment_context"] = {"experiment_id": "codex-run-1", "test_case_id": "t", "metadata": {}}
    assert client.post(f"{HERE}/ingest/atif", json=body).json()["test_case_name"] == "t"


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"evaluation_context": {"evaluation_id": "nope"}}, 400),
        ({"evaluation_context": None}, 422),
        ({"schema_version": "2"}, 422),
        ({"steps": []}, 422),
        ({"agent": {"version": "1"}}, 422),
        ({"session_id": "a b"}, 422),
        ({"unknown": 1}, 422),
        ({"extra": {"verifier_result": {"rewards": {"a": "high"}}}}, 422),
        ({"extra": {"verifier_result": {"rewards": {"": 1}}}}, 422),
    ],
)
def test_trajectories_that_are_refused_leave_nothing(client: TestClient, more: dict[str, Any], status: int):
    answer = client.post(f"{HERE}/ingest/atif", json=TRAJECTORY | more)
    assert answer.status_code == status, answer.text
    assert client.get(f"{HERE}/evaluations/codex-run-1").json()["run_count"] == 0


# --- OTLP -----------------------------------------------------------------------------------------------------------


def export(*spans: dict[str, Any], **resource: str) -> dict[str, Any]:
    attributes = [{"key": key.replace("__", "."), "value": value(each)} for key, each in resource.items()]
    return {"resourceSpans": [{"resource": {"attributes": attributes}, "scopeSpans": [{"spans": [*spans]}]}]}


def test_spans_of_a_trace_are_a_session_whatever_the_pieces(client: TestClient):
    about = {"nemo__experiment__id": "codex-run-1", "nemo__test_case__id": "org/hello", "service__name": "codex"}
    inner = span("b", "a", 2, gen_ai__usage__input_tokens=3, gen_ai__usage__output_tokens=1, gen_ai__usage__cost=0.5)
    outer = span("a", "", 1, gen_ai__operation__name="invoke_agent", output__value="done")
    for document in (export(inner, **about), export(outer, **about), export(inner)):  # the last one comes twice
        answer = client.post(f"{HERE}/ingest/otlp/v1/traces", json=document)
        assert (answer.status_code, answer.json()) == (200, {"errors": []})
    session = client.get(f"{HERE}/sessions/t").json()
    assert (session["test_case_name"], session["agent_name"], session["final_message"]) == (
        "org/hello",
        "codex",
        "done",
    )
    assert (session["prompt_tokens"], session["completion_tokens"], session["cost_usd"]) == (3, 1, 0.5)
    assert (session["span_count"], session["latency_ms"]) == (2, 1000.0)
    assert client.get(f"{HERE}/evaluations/codex-run-1").json()["cost_usd"]["sum"] == 0.5


def test_attributes_name_the_session(client: TestClient):
    one = span("a", "", 1, nemo__experiment__id="codex-run-1", session__id="s-1")
    other = span("b", "", 1, nemo__experiment__id="codex-run-1", session__id="s-1") | {"traceId": "u"}
    assert client.post(f"{HERE}/ingest/otlp/v1/traces", json=export(one, other)).json() == {"errors": []}
    assert client.get(f"{HERE}/sessions/s-1").json()["span_count"] == 2


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ({}, "nemo.experiment.id"),
        ({"nemo__experiment__id": "nope"}, "must be created"),
        ({"nemo__experiment__id": "codex-run-1", "session__id": "a b"}, "no id of a session"),
        ({"nemo__experiment__id": "codex-run-1", "nemo__test_case__id": "x" * 401}, "test_case_name"),
    ],
)
def test_what_is_not_stored_is_told_and_the_rest_is(client: TestClient, attributes: dict[str, str], why: str):
    good = span("g", "", 1, nemo__experiment__id="codex-run-1") | {"traceId": "good"}
    answer = client.post(f"{HERE}/ingest/otlp/v1/traces", json=export(span("a", **attributes), good))
    assert answer.status_code == 200
    (error,) = answer.json()["errors"]
    assert why in error
    assert client.get(f"{HERE}/sessions/good").status_code == 200


# The wire format by hand: https://protobuf.dev/programming-guides/encoding/


def number(of: int) -> bytes:
    found = b""
    while of > 127:
        found += bytes([of & 127 | 128])
        of >>= 7
    return found + bytes([of])


def field(at: int, of: bytes | int) -> bytes:
    if isinstance(of, int):
        return number(at << 3) + number(of)
    return number(at << 3 | 2) + number(len(of)) + of


def attribute(key: str, of: bytes) -> bytes:
    return field(1, key.encode()) + field(2, of)


def protobuf() -> bytes:
    text = lambda of: field(1, of.encode())  # noqa: E731
    listed = field(5, field(1, field(3, 7)) + field(1, field(2, 1)))
    spans = field(
        2,
        field(1, bytes.fromhex("5b8efff798038103d269b633813fc60c"))
        + field(2, bytes.fromhex("eee19b7ec3c1b174"))
        + field(5, b"chat")
        + (number(7 << 3 | 1) + struct.pack("<Q", 10**18))
        + (number(8 << 3 | 1) + struct.pack("<Q", 10**18 + 10**9))
        + field(9, attribute("gen_ai.usage.input_tokens", field(3, 24)))
        + field(9, attribute("gen_ai.usage.cost", number(4 << 3 | 1) + struct.pack("<d", 0.25)))
        + field(9, attribute("odd", listed))
        + field(9, attribute("empty", field(1, b"")))
        + field(15, field(2, b"no key") + field(3, 2))
        + field(77, b"of a later version"),
    )
    about = field(1, attribute("nemo.experiment.id", text("codex-run-1")))
    return field(1, field(1, about) + field(2, spans))


@pytest.mark.parametrize("packed", [False, True])
def test_spans_as_standard_exporters_send_them(client: TestClient, packed: bool):
    data = gzip.compress(protobuf()) if packed else protobuf()
    headers = PROTOBUF | ({"Content-Encoding": "gzip"} if packed else {})
    answer = client.post(f"{HERE}/ingest/otlp/v1/traces", content=data, headers=headers)
    assert (answer.status_code, answer.json()) == (200, {"errors": []})
    session = client.get(f"{HERE}/sessions/5b8efff798038103d269b633813fc60c").json()
    assert (session["prompt_tokens"], session["cost_usd"], session["latency_ms"]) == (24, 0.25, 1000.0)
    assert session["status"] == "error"
    (only,) = client.get(f"{HERE}/sessions/5b8efff798038103d269b633813fc60c/spans").json()["data"]
    assert (only["span_id"], only["name"], only["status"]) == ("eee19b7ec3c1b174", "chat", "error")
    assert only["attributes"] == {"odd": "[7, true]", "empty": "", "status_message": "no key"}


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"\xff\xff\xff", PROTOBUF, 400),
        (b"{}", {"Content-Type": "text/plain"}, 400),
        (b"{", {"Content-Type": "application/json"}, 400),
        (b"[" * 100_000, {"Content-Type": "application/json"}, 400),
        (b"[]", {"Content-Type": "application/json"}, 400),
        (b"{}", PROTOBUF | {"Content-Encoding": "gzip"}, 400),
        (b"{}", PROTOBUF | {"Content-Encoding": "br"}, 400),
        (gzip.compress(b" " * 3000), PROTOBUF | {"Content-Encoding": "gzip"}, 413),
        (b"", PROTOBUF, 200),
    ],
    ids=["no protobuf", "text", "cut off", "deep", "a list", "no gzip", "brotli", "too large", "empty"],
)
def test_bodies_that_are_no_export(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, content: bytes, headers: dict[str, str], status: int
):
    monkeypatch.setattr(ingest, "UNPACKED_MAX", 1000)
    answer = client.post(f"{HERE}/ingest/otlp/v1/traces", content=content, headers=headers)
    assert answer.status_code == status, answer.text


def test_the_example_of_the_description_works(client: TestClient):
    example = intake_examples.OTLP["requestBody"]["content"]["application/json"]["example"]
    answer = client.post(
        f"{HERE}/ingest/otlp/v1/traces", content=json.dumps(example), headers={"Content-Type": "application/json"}
    )
    assert answer.json() == {"errors": []}
