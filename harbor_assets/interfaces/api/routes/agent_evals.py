"""Evaluations of given outputs: submit, and read, list and delete what came of them."""

from contextlib import ExitStack
from typing import Annotated

from fastapi import APIRouter, Body, Response
from fastapi.responses import JSONResponse, StreamingResponse

from harbor_assets.domain.agent_eval import AgentEvalJob, AgentEvalJobInput, AgentEvalResult
from harbor_assets.domain.bundle import MANIFEST, METADATA, SCORES, SUMMARY, TASKS, TRIALS
from harbor_assets.domain.errors import NotFound
from harbor_assets.domain.views import BundleFile
from harbor_assets.engine.agent_evals import AgentEvals
from harbor_assets.engine.metric_ports import MetricSort
from harbor_assets.engine.ports import Page
from harbor_assets.interfaces.api import examples
from harbor_assets.interfaces.api.answers import (
    Listed,
    Name,
    PageNumber,
    PageSize,
    dumped,
    listed,
    model,
    without_nulls,
)
from harbor_assets.interfaces.api.guard import need_reader
from harbor_assets.interfaces.api.references import of_evaluation
from harbor_assets.interfaces.api.streams import UNTRUSTED, streamed
from harbor_assets.interfaces.api.strict import StrictRoute

EvaluationBody = Annotated[AgentEvalJobInput, Body(openapi_examples=examples.EVALUATIONS)]
_FILES = frozenset({MANIFEST, METADATA, SUMMARY, TASKS, TRIALS, SCORES})


def agent_evals_router(evals: AgentEvals) -> APIRouter:
    """`/agent-evaluate/jobs`, `/agent-eval-results` and `/eval-results`."""
    router = APIRouter(tags=["evaluations"], route_class=StrictRoute)

    @router.post("/agent-evaluate/jobs", response_model=AgentEvalJob, status_code=201)
    def submit(workspace: Name, body: EvaluationBody) -> Response:
        """Resolve an evaluation and store it: 201. Trials that are given are scored at once; a job whose target would
        have to be called ends in `error`, and says so."""
        need_reader(of_evaluation(body, workspace))
        return model(evals.submit(workspace, body), 201)

    @router.get("/agent-evaluate/jobs", response_model=Listed[AgentEvalJob])
    def list_jobs(
        workspace: Name, page: PageNumber = 1, page_size: PageSize = 100, sort: MetricSort = "created_at"
    ) -> Response:
        """One page of jobs."""
        return _listed(evals.list_jobs(workspace, page=page, page_size=page_size, sort=sort), sort)

    @router.get("/agent-evaluate/jobs/{name}", response_model=AgentEvalJob)
    def get_job(workspace: str, name: str) -> Response:
        """The job with its whole specification."""
        return model(evals.get_job(workspace, name))

    @router.get("/agent-eval-results", response_model=Listed[AgentEvalResult])
    def list_results(
        workspace: Name, page: PageNumber = 1, page_size: PageSize = 100, sort: MetricSort = "created_at"
    ) -> Response:
        """One page of results."""
        return _listed(evals.list_results(workspace, page=page, page_size=page_size, sort=sort), sort)

    @router.get("/agent-eval-results/{name}", response_model=AgentEvalResult)
    def get_result(workspace: str, name: str) -> Response:
        """The aggregates and counts of an evaluation."""
        return model(evals.get_result(workspace, name))

    @router.delete("/agent-eval-results/{name}", status_code=204, response_class=Response)
    def delete_result(workspace: str, name: str) -> Response:
        """Remove a result and its bundle; the job stays."""
        evals.delete_result(workspace, name)
        return Response(status_code=204)

    @router.get("/agent-eval-results/{name}/bundle", response_model=list[BundleFile])
    def bundle(workspace: Name, name: Name) -> Response:
        """Every file of the result's bundle, with its size in bytes."""
        return JSONResponse(dumped(evals.bundle_files(workspace, name)))

    @router.get("/agent-eval-results/{name}/bundle/{path}", response_class=StreamingResponse, responses=examples.BYTES)
    def bundle_file(workspace: Name, name: Name, path: str) -> Response:
        """One file of the bundle."""
        if path not in _FILES:
            raise NotFound(f"The bundle of an evaluation holds {', '.join(sorted(_FILES))}; not '{path[:80]}'")
        with ExitStack() as opened:
            file = opened.enter_context(evals.open_bundle_file(workspace, name, path))
            return streamed(file, opened, media_type="application/octet-stream", headers=UNTRUSTED)

    _dataset_results(router)
    return router


def _dataset_results(router: APIRouter) -> None:
    """`/eval-results`: of evaluations over data sets, which this service does not run, so there never are any."""

    @router.get("/eval-results", response_model=Listed[AgentEvalResult])
    def list_eval_results(
        workspace: Name,
        page: PageNumber = 1,
        page_size: PageSize = 100,
        sort: MetricSort = "created_at",
    ) -> Response:
        """An empty page."""
        nothing: Page[AgentEvalResult] = Page((), page, page_size, 0)
        return _listed(nothing, sort)

    @router.get("/eval-results/{name}", response_model=AgentEvalResult)
    def get_eval_result(workspace: str, name: str) -> Response:
        """404: evaluations over data sets are not run here."""
        raise _none(workspace, name)

    @router.delete("/eval-results/{name}", status_code=204, response_class=Response)
    def delete_eval_result(workspace: str, name: str) -> Response:
        """404: evaluations over data sets are not run here."""
        raise _none(workspace, name)


def _none(workspace: str, name: str) -> NotFound:
    return NotFound(f"Result not found: {workspace[:80]}/{name[:80]}; evaluations over data sets are not run here")


def _listed(found: Page[AgentEvalJob] | Page[AgentEvalResult], sort: str) -> Response:
    return listed(found, [without_nulls(row) for row in dumped(found.items)], sort=sort)
