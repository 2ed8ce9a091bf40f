"""Experiments, evaluations and their sessions. Statuses and shapes are the contract's where it has any."""

from typing import Annotated, Literal

from fastapi import APIRouter, Body, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from harbor_assets.domain.evaluation_lists import EVALUATION_FIELDS, EXPERIMENT_FIELDS, SORT_MAX, SORT_PATTERN
from harbor_assets.domain.experiments import (
    LABEL_MAX,
    SESSION_PATTERN,
    Evaluation,
    EvaluationInput,
    EvaluationPatch,
    EvaluationUpdate,
    EvaluatorResult,
    Experiment,
    ExperimentInput,
    ExperimentUpdate,
    StoredResult,
    StoredSession,
)
from harbor_assets.domain.filter_syntax import parse_filter
from harbor_assets.domain.tasks import Sort
from harbor_assets.domain.traces import Span
from harbor_assets.engine.experiment_ports import ExperimentCatalog
from harbor_assets.interfaces.api import intake_examples as examples
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
from harbor_assets.interfaces.api.failures import failures
from harbor_assets.interfaces.api.guard import owner
from harbor_assets.interfaces.api.strict import StrictRoute

_FILTER = """JSON if it begins with `{`, else text, as in every list. Fields: `name`, `created_by`, `created_at`,
`updated_at`, `is_deleted`, `metadata.<key>` and"""
_EXPERIMENT_FILTER = f"{_FILTER} `description`, `insight_id`, `is_favorite`."
_EVALUATION_FILTER = f"""{_FILTER} `experiment_id`, `status`, `dataset_name`, `dataset_version`, `is_pinned`,
`pinned_at`, `test_case_count`, `run_count`, `cost_usd.<stat>`, `latency_ms.<stat>`, `tokens.<stat>`,
`evaluators.<name>.<stat>`. Deleted ones are in a list only if it asks for `is_deleted`."""
_SORT = """`name`, `created_at`, `updated_at`, `test_case_count`, `run_count`, `cost_usd.<stat>`, `latency_ms.<stat>`,
`tokens.<stat>` or `evaluators.<name>.<stat>`, with `-` for descending; `<stat>` is one of sum, mean, min, max, median,
p90, p95, p99, count, failed_count. Pinned ones come first, those without the figure last. A list sorted or filtered by
a figure has at most 1,000 evaluations to look at, else 413: name an experiment in the filter."""

ExperimentWhere = Annotated[
    str | None, Query(alias="filter", description=_EXPERIMENT_FILTER, openapi_examples=examples.EXPERIMENT_FILTERS)
]
EvaluationWhere = Annotated[
    str | None, Query(alias="filter", description=_EVALUATION_FILTER, openapi_examples=examples.EVALUATION_FILTERS)
]
EvaluationSort = Annotated[str, Query(pattern=SORT_PATTERN, max_length=SORT_MAX, description=_SORT)]
SessionPath = Annotated[str, Path(pattern=SESSION_PATTERN, max_length=LABEL_MAX)]
TestCase = Annotated[str | None, Query(max_length=LABEL_MAX, description="Only sessions of this test case.")]

Mode = Annotated[
    Literal["summary", "detailed"],
    Query(description="`summary`: without final messages, and with the first 1,000 characters of errors and comments."),
]


class Trace(BaseModel):
    """The spans of a session, by the time at which they began; `parent_span_id` says which stands below which."""

    data: list[Span]


def experiments_router(catalog: ExperimentCatalog) -> APIRouter:
    """`/experiments`."""
    router = APIRouter(prefix="/experiments", tags=["experiments"], route_class=StrictRoute)

    @router.post("", response_model=Experiment, status_code=201)
    def create(
        workspace: Name, body: Annotated[ExperimentInput, Body(openapi_examples=examples.EXPERIMENTS)]
    ) -> Response:
        """Create an experiment: 201; 409 if the name is taken."""
        return model(catalog.create_experiment(workspace, body, created_by=owner()), 201)

    @router.get("", response_model=Listed[Experiment])
    def list_experiments(
        request: Request,
        workspace: Name,
        page: PageNumber = 1,
        page_size: PageSize = 100,
        sort: Sort = Sort.CREATED,
        where: ExperimentWhere = None,
    ) -> Response:
        """One page of experiments; null members are left out, as everywhere in record lists."""
        asked = parse_filter(request.query_params.multi_items(), fields=EXPERIMENT_FIELDS, workspace=workspace)
        found = catalog.list_experiments(workspace, page=page, page_size=page_size, sort=sort, where=asked)
        return listed(found, map(without_nulls, dumped(found.items)), sort=sort)

    @router.get("/{name}", response_model=Experiment)
    def get(workspace: Name, name: Name) -> Response:
        """The experiment, and how many evaluations are in it."""
        return model(catalog.get_experiment(workspace, name))

    @router.put("/{name}", response_model=Experiment)
    def put(
        workspace: Name, name: Name, body: Annotated[ExperimentUpdate, Body(openapi_examples=examples.EXPERIMENT_PUTS)]
    ) -> Response:
        """Replace its content: what the body leaves out is reset. 422 for another name, or a baseline that is none of
        its evaluations."""
        return model(catalog.update_experiment(workspace, name, body))

    @router.delete("/{name}", status_code=204, response_class=Response)
    def delete(workspace: Name, name: Name) -> Response:
        """Delete it and every evaluation that is in no other experiment. Both are kept under other names, which lists
        with `is_deleted` show."""
        catalog.delete_experiment(workspace, name)
        return Response(status_code=204)

    return router


def evaluations_router(catalog: ExperimentCatalog) -> APIRouter:
    """`/evaluations`."""
    router = APIRouter(prefix="/evaluations", tags=["experiments"], route_class=StrictRoute)

    @router.post("", response_model=Evaluation, status_code=201)
    def create(
        workspace: Name, body: Annotated[EvaluationInput, Body(openapi_examples=examples.EVALUATIONS)]
    ) -> Response:
        """Create an evaluation in one or more experiments: 201; 409 if the name is taken, 422 for unknown ids."""
        return model(catalog.create_evaluation(workspace, body, created_by=owner()), 201)

    @router.get("", response_model=Listed[Evaluation], responses=failures(413))
    def list_evaluations(
        request: Request,
        workspace: Name,
        page: PageNumber = 1,
        page_size: PageSize = 100,
        sort: EvaluationSort = "-created_at",
        where: EvaluationWhere = None,
    ) -> Response:
        """One page of evaluations with the figures of their sessions; null members are left out."""
        asked = parse_filter(request.query_params.multi_items(), fields=EVALUATION_FIELDS, workspace=workspace)
        found = catalog.list_evaluations(workspace, page=page, page_size=page_size, sort=sort, where=asked)
        return listed(found, map(without_nulls, dumped(found.items)), sort=sort)

    @router.get("/{name}", response_model=Evaluation)
    def get(workspace: Name, name: Name) -> Response:
        """The evaluation, with the figures of its sessions as they are now."""
        return model(catalog.get_evaluation(workspace, name))

    @router.patch("/{name}", response_model=Evaluation)
    def patch(
        workspace: Name, name: Name, body: Annotated[EvaluationPatch, Body(openapi_examples=examples.PATCHES)]
    ) -> Response:
        """Change the members that are sent; metadata is replaced whole. Name and dataset never change."""
        return model(catalog.patch_evaluation(workspace, name, body))

    @router.put("/{name}", response_model=Evaluation)
    def put(
        workspace: Name, name: Name, body: Annotated[EvaluationUpdate, Body(openapi_examples=examples.EVALUATION_PUTS)]
    ) -> Response:
        """Replace what can be changed: what the body leaves out is reset. Name and dataset may be sent as they are."""
        return model(catalog.update_evaluation(workspace, name, body))

    @router.delete("/{name}", status_code=204, response_class=Response)
    def delete(workspace: Name, name: Name) -> Response:
        """Delete it with its sessions. It is kept under another name, which lists with `is_deleted` show."""
        catalog.delete_evaluation(workspace, name)
        return Response(status_code=204)

    @router.post("/{name}/pin", response_model=Evaluation)
    def pin(workspace: Name, name: Name) -> Response:
        """Let it stand first in every list. Idempotent."""
        return model(catalog.pin_evaluation(workspace, name, True))

    @router.delete("/{name}/pin", response_model=Evaluation)
    def unpin(workspace: Name, name: Name) -> Response:
        """Let it stand where it belongs. Idempotent."""
        return model(catalog.pin_evaluation(workspace, name, False))

    @router.get("/{name}/sessions", response_model=Listed[StoredSession])
    def sessions(
        workspace: Name,
        name: Name,
        page: PageNumber = 1,
        page_size: PageSize = 100,
        test_case: TestCase = None,
        mode: Mode = "summary",
    ) -> Response:
        """The sessions by test case and id, each with the results of its evaluators; null members are left out."""
        found = catalog.list_sessions(workspace, name, page=page, page_size=page_size, test_case=test_case)
        items = found.items if mode == "detailed" else [each.brief() for each in found.items]
        return listed(found, map(without_nulls, dumped(items)), sort="test_case_name")

    return router


def sessions_router(catalog: ExperimentCatalog) -> APIRouter:
    """`/sessions` and `/evaluator-results`."""
    router = APIRouter(tags=["sessions"], route_class=StrictRoute)

    @router.get("/sessions/{session_id}", response_model=StoredSession)
    def get(workspace: Name, session_id: SessionPath) -> Response:
        """One session: what the trial was, what it used, and the results of its evaluators."""
        return model(catalog.get_session(workspace, session_id))

    @router.get("/sessions/{session_id}/spans", response_model=Trace)
    def spans(workspace: Name, session_id: SessionPath) -> Response:
        """The trace of a session: steps, model calls, tool calls. Texts are as agents and models wrote them."""
        return JSONResponse({"data": dumped(catalog.session_spans(workspace, session_id))})

    @router.post("/evaluator-results", response_model=StoredResult, status_code=201)
    def put_result(
        workspace: Name, body: Annotated[EvaluatorResult, Body(openapi_examples=examples.RESULTS)]
    ) -> Response:
        """Store what an evaluator says of a span. One of the same session, span and name is replaced, so that sending
        it again changes nothing. 404 for a session whose trace was not sent."""
        return model(catalog.put_evaluator_result(workspace, body), 201)

    return router
