"""What the buttons of the pages send, against a real `ui`: launch, terminate, materialise what may not be."""

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.suites import make
from tests.worker.conftest import Home, eventually, processes_naming

LAUNCH = """mutation($params: ExecutionParams!) { launchRun(executionParams: $params) { __typename
  ... on LaunchRunSuccess { run { runId } }
  ... on RunConfigValidationInvalid { errors { message } }
  ... on PythonError { message } } }"""
TERMINATE = """mutation($id: String!) { terminateRun(runId: $id) { __typename } }"""
STATUS = """query($id: ID!) { runOrError(runId: $id) { ... on Run { status tags { key value } } } }"""
EVALUATIONS = """query($tag: String!) { runsOrError(filter: {tags: [{key: "harbor/run_id", value: $tag}],
  pipelineName: "evaluate"}) { ... on Runs { results { runId status } } } }"""

TASKSETS = """{ assetNodeOrError(assetKey: {path: ["taskset"]}) { ... on AssetNode { partitionKeys } } }"""

type Ask = Callable[..., Any]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def ask(home: Home) -> Iterator[Ask]:
    """GraphQL as the pages ask it; the answer's only field."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, "-m", "harbor_assets", "ui", "--port", str(port)]
    ui = subprocess.Popen(words, env={**os.environ, **home.env}, stderr=subprocess.PIPE, text=True)
    assert ui.stderr is not None
    said = [ui.stderr.readline(), ui.stderr.readline()]
    assert said[1].startswith("Dagster UI: "), said

    def post(query: str, **variables: Any) -> Any:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/graphql", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                told = json.load(answer)
        except urllib.error.HTTPError as error:  # so come refusals that Dagster has no type for
            told = json.load(error)
        assert "errors" not in told, told
        (field,) = told["data"].values()
        return field

    yield post
    ui.terminate()
    ui.communicate()
    eventually(lambda: not processes_naming(str(home.folder)), "everything ended")


def launch(ask: Ask, job: str, config: dict[str, Any], **tags: str) -> Any:
    selector = {"repositoryLocationName": "harbor_assets", "repositoryName": "__repository__", "jobName": job}
    metadata = {"tags": [{"key": key, "value": value} for key, value in tags.items()]}
    return ask(LAUNCH, params={"selector": selector, "runConfigData": config, "executionMetadata": metadata})


def ended(ask: Ask, run: str) -> dict[str, str]:
    """The tags of a Dagster run that has succeeded."""
    look = lambda: ask(STATUS, id=run)  # noqa: E731
    eventually(lambda: look()["status"] in ("SUCCESS", "FAILURE", "CANCELED"), "its end")
    assert look()["status"] == "SUCCESS"
    return {tag["key"]: tag["value"] for tag in look()["tags"]}


def test_launchpad_terminate_and_a_refused_materialisation(ask: Ask, home: Home, tmp_path: Path):
    make.make_task(tmp_path / "suite", "a-quick")
    make.make_task(tmp_path / "suite", "b-slow", solve="sleep 600", agent={"timeout_sec": 900.0})
    published = launch(ask, "publish_suite", {"ops": {"publish": {"config": {"folder": str(tmp_path / "suite")}}}})
    ended(ask, published["run"]["runId"])

    ref = ask(TASKSETS)["partitionKeys"][0].partition("#")[0]
    config = {"taskset": ref, "agent": "oracle", "sandbox": "process"}
    submitted = launch(ask, "submit_evaluation", {"ops": {"submit": {"config": config}}})
    run_id = ended(ask, submitted["run"]["runId"])["harbor/run_id"]
    eventually(lambda: home.outcomes(run_id) == ["scored"], "the quick trial's score")

    (evaluation,) = ask(EVALUATIONS, tag=run_id)["results"]
    assert ask(TERMINATE, id=evaluation["runId"])["__typename"] == "TerminateRunSuccess"
    eventually(lambda: home.status(run_id)["run"]["phase"] == "cancelled", "the cancel")
    assert home.status(run_id)["run"]["result_state"] == "ready"
    assert sorted(home.outcomes(run_id)) == ["cancelled", "scored"]
    assert ask(EVALUATIONS, tag=run_id)["results"] == [{**evaluation, "status": "CANCELED"}]

    refused = launch(ask, "evaluate", {}, **{"dagster/partition": f"{run_id}|00000"})
    assert refused["__typename"] == "PythonError"  # what the pages show as a dialog
    assert "harbor-assets runs submit --taskset REF" in refused["message"]
    assert len(ask(EVALUATIONS, tag=run_id)["results"]) == 1
