"""Evaluation runs: submit, look, cancel, fetch the bundle and the logs."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import PurePosixPath
from typing import Annotated, BinaryIO

from fastapi import APIRouter, Header, Query, Response
from fastapi import Path as PathParameter
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict

from harbor_assets.domain.comparison import Comparison
from harbor_assets.domain.outcomes import TrialOutcome
from harbor_assets.domain.phases import TaskPhase
from harbor_assets.domain.preflight import RunCheck, RunChecked
from harbor_assets.domain.publication import RunPublished
from harbor_assets.domain.regrades import Regrade
from harbor_assets.domain.requests import ATTEMPTS_MAX, KEY_MAX, RunRequest
from harbor_assets.domain.reruns import Rerun
from harbor_assets.domain.resumes import Resumed
from harbor_assets.domain.traces import TrialTrace
from harbor_assets.domain.views import BundleFile, LogChunk, RunStatus, RunSummary, Submitted, TaskView
from harbor_assets.engine.evaluations import Evaluations
from harbor_assets.engine.results import check_path
from harbor_assets.interfaces.api import examples
from harbor_assets.interfaces.api.answers import Listed, Name, PageNumber, PageSize, dumped, listed, model
from harbor_assets.interfaces.api.guard import need_reader, owner
from harbor_assets.interfaces.api.references import of_refs
from harbor_assets.interfaces.api.streams import OWN, UNTRUSTED, streamed
from harbor_assets.interfaces.api.strict import StrictRoute

_OWN_TYPES = {".json": "application/json", ".jsonl": "application/x-ndjson", ".html": "text/html; charset=utf-8"}

Index = Annotated[int, PathParameter(ge=0, le=2**31 - 1)]


class RunAlone(BaseModel):
    """A run without its tasks."""

    model_config = ConfigDict(extra="forbid")

    run: RunSummary


def check_router(evaluations: Evaluations) -> APIRouter:
    """`/agent-evaluate/runs:check`."""
    router = APIRouter(prefix="/agent-evaluate", tags=["runs"], route_class=StrictRoute)

    @router.post("/runs:check", response_model=RunChecked)
    def check(workspace: Name, body: RunCheck) -> Response:
        """Whether tasks that are not stored yet could run as asked: 200, or 422 with every problem. Stores nothing."""
        if body.stored:
            need_reader(of_refs([body.stored.taskset], workspace))
        return model(evaluations.check(workspace, body))

    return router


def going_on_router(evaluations: Evaluations) -> APIRouter:
    """`/agent-evaluate/runs/{run_id}/cancel`, `/resume` and `/publish`."""
    router = APIRouter(prefix="/agent-evaluate/runs", tags=["runs"], route_class=StrictRoute)

    @router.post("/{run_id}/cancel", response_model=RunSummary)
    def cancel(workspace: Name, run_id: Name) -> Response:
        """Ask the run to stop. Idempotent; an ended run is answered as it is."""
        return model(evaluations.cancel(workspace, run_id))

    @router.post("/{run_id}/resume", response_model=Resumed)
    def resume(workspace: Name, run_id: Name) -> Response:
        """Let a run go on that has no worker: exactly its trials without an outcome, under the same id. Idempotent: one
        that is at work is answered as it is. 422 for a run that has ended."""
        return model(evaluations.resume(workspace, run_id))

    @router.post("/{run_id}/publish", response_model=RunPublished)
    def publish(workspace: Name, run_id: Name) -> Response:
        """Publish to the Experiment what of an ended run is missing there; its Evaluation is made anew if it is gone.
        Idempotent. 409 for a run that goes on, 422 for one that is published nowhere."""
        return model(evaluations.publish(workspace, run_id))

    return router


def compare_router(evaluations: Evaluations) -> APIRouter:
    """`/agent-evaluate/runs/{run_id}/compare`."""
    router = APIRouter(prefix="/agent-evaluate/runs", tags=["runs"], route_class=StrictRoute)

    @router.get("/{run_id}/compare/{other}", response_model=Comparison)
    def compare(workspace: Name, run_id: Name, other: Name) -> Response:
        """The run `other` held against `run_id`, both ended: task by task, with the difference of their means."""
        return model(evaluations.compare(workspace, run_id, other))

    return router


def runs_router(evaluations: Evaluations) -> APIRouter:
    """`/agent-evaluate/runs`."""
    router = APIRouter(prefix="/agent-evaluate/runs", tags=["runs"], route_class=StrictRoute)

    @router.post("", response_model=Submitted, status_code=201, responses={200: {"description": "Submitted before"}})
    def submit(
        workspace: Name,
        body: RunRequest,
        idempotency_key: Annotated[str | None, Header(max_length=KEY_MAX, min_length=1)] = None,
    ) -> Response:
        """Accept a run: 201. 200 with the run that exists if the idempotency key named it before."""
        need_reader(of_refs([body.spec.tasks.taskset], workspace))
        submitted = evaluations.submit(workspace, body, idempotency_key=idempotency_key, owner=owner())
        return model(submitted, 201 if submitted.created else 200)

    @router.post(
        "/{run_id}/rerun",
        response_model=Submitted,
        status_code=201,
        responses={200: {"description": "Submitted before"}},
    )
    def rerun(
        workspace: Name,
        run_id: Name,
        body: Rerun,
        idempotency_key: Annotated[str | None, Header(max_length=KEY_MAX, min_length=1)] = None,
    ) -> Response:
        """Run tasks of a run again with its settings, as a new run that names it; statuses as of a submit."""
        need_reader(of_refs([evaluations.get(workspace, run_id).taskset_ref], workspace))
        submitted = evaluations.rerun(workspace, run_id, body, idempotency_key=idempotency_key, owner=owner())
        return model(submitted, 201 if submitted.created else 200)

    @router.post(
        "/{run_id}/regrade",
        response_model=Submitted,
        status_code=201,
        responses={200: {"description": "Submitted before"}},
    )
    def regrade(
        workspace: Name,
        run_id: Name,
        body: Regrade,
        idempotency_key: Annotated[str | None, Header(max_length=KEY_MAX, min_length=1)] = None,
    ) -> Response:
        """Verify again what an ended run kept, as a new run that names it; statuses as of a submit."""
        need_reader(of_refs([evaluations.get(workspace, run_id).taskset_ref, body.taskset], workspace))
        submitted = evaluations.regrade(workspace, run_id, body, idempotency_key=idempotency_key, owner=owner())
        return model(submitted, 201 if submitted.created else 200)

    @router.get("", response_model=Listed[RunSummary])
    def list_runs(
        workspace: Name, active: bool = False, mine: bool = False, page: PageNumber = 1, page_size: PageSize = 100
    ) -> Response:
        """Runs, newest first; `active`: those that have not ended; `mine`: those of the caller."""
        found = evaluations.list_runs(
            workspace, active=active, mine=mine, owner=owner(), page=page, page_size=page_size
        )
        return listed(found, dumped(found.items))

    @router.get("/{run_id}", response_model=RunStatus | RunAlone)
    def get_run(
        workspace: Name,
        run_id: Name,
        tasks: Annotated[bool, Query(description="False leaves the tasks out of the answer.")] = True,
    ) -> Response:
        """The run, and every task of it."""
        if tasks:
            return model(evaluations.status(workspace, run_id))
        return model(RunAlone(run=evaluations.get(workspace, run_id)))

    @router.get("/{run_id}/tasks", response_model=Listed[TaskView])
    def list_tasks(
        workspace: Name,
        run_id: Name,
        phase: TaskPhase | None = None,
        page: PageNumber = 1,
        page_size: PageSize = 100,
    ) -> Response:
        """The run's tasks by index, those in `phase` only if given."""
        found = evaluations.tasks(workspace, run_id, phase=phase, page=page, page_size=page_size)
        return listed(found, dumped(found.items))

    @router.get("/{run_id}/outcomes", response_model=list[TrialOutcome])
    def outcomes(workspace: Name, run_id: Name) -> Response:
        """The outcome rows so far, by task and attempt."""
        return JSONResponse(dumped(evaluations.outcomes(workspace, run_id)))

    @router.get("/{run_id}/bundle", response_model=list[BundleFile])
    def bundle(workspace: Name, run_id: Name) -> Response:
        """Every file of the merged bundle, with its size in bytes."""
        return JSONResponse(dumped(list(evaluations.results.bundle_files(workspace, run_id))))

    @router.get("/{run_id}/bundle/{path:path}", response_class=StreamingResponse, responses=examples.BUNDLE_FILE)
    def bundle_file(workspace: Name, run_id: Name, path: str) -> Response:
        """One file of the bundle."""
        return _bundle_file(path, lambda: evaluations.results.open_bundle_file(workspace, run_id, path))

    @router.get("/{run_id}/tasks/{index}/bundle", response_model=list[BundleFile])
    def task_bundle(workspace: Name, run_id: Name, index: Index) -> Response:
        """Every file of one task's own bundle, as soon as that task has ended."""
        return JSONResponse(dumped(list(evaluations.results.task_bundle_files(workspace, run_id, index))))

    @router.get(
        "/{run_id}/tasks/{index}/bundle/{path:path}", response_class=StreamingResponse, responses=examples.BUNDLE_FILE
    )
    def task_bundle_file(workspace: Name, run_id: Name, index: Index, path: str) -> Response:
        """One file of a task's own bundle."""
        return _bundle_file(path, lambda: evaluations.results.open_task_bundle_file(workspace, run_id, index, path))

    @router.get("/{run_id}/tasks/{index}/trace", response_model=TrialTrace)
    def trace(
        workspace: Name,
        run_id: Name,
        index: Index,
        k: Annotated[int, Query(ge=1, le=ATTEMPTS_MAX, description="Which of the task's trials, from 1.")] = 1,
    ) -> Response:
        """What a trial's agent did: model calls, tool calls, tokens, cost. Texts are as agents and models wrote them;
        usage counts once, and what nobody reported is null. 409 before the trial has ended."""
        return model(evaluations.results.trace(workspace, run_id, index, k))

    @router.get("/{run_id}/logs", response_model=LogChunk)
    def logs(
        workspace: Name,
        run_id: Name,
        task: Annotated[int | None, Query(ge=0)] = None,
        offset: Annotated[int, Query(ge=0, le=2**62)] = 0,
    ) -> Response:
        """A piece of the run's log, or of one task's, from a byte offset."""
        return model(evaluations.logs(workspace, run_id, task=task, offset=offset))

    return router


def _bundle_file(path: str, find: Callable[[], AbstractContextManager[BinaryIO]]) -> Response:
    check_path(path)
    own = _OWN_TYPES.get(PurePosixPath(path).suffix) if "/" not in path else None
    media_type, headers = own or "application/octet-stream", OWN if own else UNTRUSTED
    with ExitStack() as opened:
        file = opened.enter_context(find())
        return streamed(file, opened, media_type=media_type, headers=headers)
