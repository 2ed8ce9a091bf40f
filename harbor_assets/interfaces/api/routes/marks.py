"""Marks: what is known of tasks' revisions and of runs beside their scores; and judging tasks by two runs."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from harbor_assets.domain.marks import Mark, MarkLookup, Verdict
from harbor_assets.domain.verification import Verification, VerificationRequest
from harbor_assets.engine.mark_ports import MarkCatalog
from harbor_assets.engine.verification import Verifications
from harbor_assets.interfaces.api.answers import Listed, Name, PageNumber, PageSize, dumped, listed, model
from harbor_assets.interfaces.api.guard import owner
from harbor_assets.interfaces.api.strict import StrictRoute


def marks_router(marks: MarkCatalog) -> APIRouter:
    """`/marks`, and `/marks:lookup`."""
    router = APIRouter(tags=["marks"], route_class=StrictRoute)

    @router.get("/marks", response_model=Listed[Mark])
    def list_marks(
        workspace: Name,
        verdict: Annotated[Verdict | None, Query(description="Only marks that say this.")] = None,
        page: PageNumber = 1,
        page_size: PageSize = 100,
    ) -> Response:
        """The marks of a workspace, newest first."""
        found = marks.list_marks(workspace, verdict=verdict, page=page, page_size=page_size)
        return listed(found, dumped(found.items))

    @router.post("/marks:lookup", response_model=list[Mark])
    def lookup(workspace: Name, body: MarkLookup) -> Response:
        """The marks of many tasks and runs in one call, in the order asked for."""
        found = marks.marks_of(workspace, body.subjects)
        return JSONResponse(dumped([mark for each in dict.fromkeys(body.subjects) for mark in found.get(each, ())]))

    return router


def verifications_router(verifications: Verifications) -> APIRouter:
    """`/agent-evaluate/verifications`."""
    router = APIRouter(prefix="/agent-evaluate", tags=["marks"], route_class=StrictRoute)

    @router.post("/verifications", response_model=Verification)
    def judge(workspace: Name, body: VerificationRequest) -> Response:
        """Judge the tasks of a taskset by two ended runs, and mark each of which something can be said. Idempotent."""
        return model(verifications.judge(workspace, body.oracle_run, body.nop_run, who=owner()))

    return router
