"""Every operation of the API's description, called with what the description allows and with what it does not.

Schemathesis makes the calls (https://schemathesis.readthedocs.io). It must find no answer of 500, none
whose status, type or body is not described, and nothing accepted that the description forbids.
"""

import dataclasses
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode, checks

from harbor_assets.domain.experiments import EvaluationInput, ExperimentInput, Session
from harbor_assets.domain.metrics.bodies import MetricInline
from harbor_assets.domain.names import name_problem
from harbor_assets.domain.requests import RunRequest, Spec, TaskSelection
from harbor_assets.domain.traces import Span
from harbor_assets.engine.ranking import Rankings
from harbor_assets.interfaces.api.app import create_app
from harbor_assets.leaderboard.store import DuckDbLeaderboard
from tests.api.test_guard import ROLES
from tests.interfaces.backends import NOW, world

# What fits the description may still break a rule that JSON Schema cannot say: an unknown member, a bad archive.
LEFT_OUT = [checks.positive_data_acceptance]
EXAMPLES = int(os.environ.get("HARBOR_ASSETS_TEST_EXAMPLES", "5"))  # an operation; a minute for all of them

# What is there. `path` is a file of a fileset, of a bundle or of an evaluation's.
THERE = {
    "workspace": "default",
    "revision": "latest",
    "tag": "stable",
    "index": 0,
    "key": "0" * 64,
    "path": "a/b",
    "table": "trials",
    "other": "run-0000000000000000",
    "session_id": "run-1:t__1",
}
NAMES = {
    "tasks": "t",
    "tasksets": "suite",
    "metrics": "m",
    "projects": "p",
    "filesets": "f",
    "experiments": "e",
    "evaluations": "v",
}
# What is removed is asked for last.
OPERATIONS = sorted(
    ((method, path) for path, methods in ROLES.items() for method in methods), key=lambda op: op[0] == "DELETE"
)
# Any text is a name where the contract says that names are not checked: nothing about these can be broken.
UNCHECKED = re.compile(r"(GET|DELETE) .*/(tasks|tasksets|metrics|projects|jobs|agent-eval-results|eval-results)/{name}")
METRIC = MetricInline.model_validate(
    {
        "metric_type": "exact-match",
        "metadata": {},
        "outputs": [{"name": "exact-match", "value_json_schema": {"type": "boolean"}}],
        "payload": {"kind": "inline", "metric": {"type": "exact-match", "reference": "{{item.a}}", "candidate": "b"}},
    }
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, str]]:
    """The description of a service that holds a little of everything, and the id of its run."""
    folder: Path = tmp_path_factory.mktemp("service")
    with world(folder) as w:
        w.publish("t", "u")
        w.catalog.put_project("default", "p")
        w.catalog.add_metric("default", "m", METRIC)
        request = RunRequest(spec=Spec(tasks=TaskSelection(taskset="suite")))
        run_id = w.evaluations.submit("default", request).run.id
        w.end(run_id, 1.0, 0.0)
        w.merge(run_id)
        experiment = w.catalog.create_experiment("default", ExperimentInput(name="e"))
        w.catalog.create_evaluation(
            "default", EvaluationInput(name="v", experiment_ids=[experiment.id], dataset_name="suite")
        )
        session = Session(session_id=str(THERE["session_id"]), evaluation="v", test_case_name="t", started_at=NOW)
        w.catalog.put_session("default", session, [Span(span_id="agent", started_at=NOW)])
        store = DuckDbLeaderboard(folder / "leaderboard.duckdb")
        rankings = Rankings(runs=w.catalog, artifacts=w.artifacts, store=store, scratch=folder)
        app = create_app(dataclasses.replace(w.backend, rankings=rankings, scratch=folder))
        yield schemathesis.openapi.from_asgi("/openapi.json", app), run_id


def operation_of(description: Any, method: str, path: str) -> Any:
    return description[re.sub(r":path}", "}", path)][method]


def holds(cases: Any) -> None:
    """Make the calls and check the answers."""

    @hypothesis.settings(max_examples=EXAMPLES, derandomize=True, database=None, phases=[hypothesis.Phase.generate])
    @hypothesis.given(case=cases)
    def calls(case: schemathesis.Case) -> None:
        # `\w` means ASCII to readers of JSON Schema and letters of every script to the contract's rule.
        names = [unquote(str(name)) for name in case.path_parameters.values()]
        wide = all(name_problem(name) is None for name in names) and not "".join(names).isascii()
        case.call_and_validate(excluded_checks=[*LEFT_OUT, *([checks.negative_data_rejection] if wide else [])])

    calls()


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=[" ".join(op) for op in OPERATIONS])
def test_what_fits_the_description_gets_an_answer_that_does(service: Any, method: str, path: str):
    holds(operation_of(service[0], method, path).as_strategy())


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=[" ".join(op) for op in OPERATIONS])
def test_what_does_not_fit_is_refused_as_described(service: Any, method: str, path: str):
    if not UNCHECKED.fullmatch(f"{method} {path}"):
        holds(operation_of(service[0], method, path).as_strategy(generation_mode=GenerationMode.NEGATIVE))


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=[" ".join(op) for op in OPERATIONS])
def test_what_is_there_is_answered_as_described(service: Any, method: str, path: str):
    description, run_id = service
    noun = path.partition("{workspace}/")[2].partition("/")[0].partition(":")[0]
    known = {**THERE, "run_id": run_id, "name": NAMES.get(noun, "x")}
    if "/bundle/" in path:
        known["path"] = "summary.json"
    wanted = {name: known[name] for name in re.findall(r"{(\w+)", path)}
    holds(operation_of(description, method, path).as_strategy(path_parameters=wanted))
