"""Marks: what is known of tasks' revisions and of runs beside their scores; and judging tasks by two runs."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from harbor_assets.domain.marks import Judgement, Mark, MarkLookup, Touched, Verdict
from harbor_assets.domain.verification import Verification, VerificationRequest
from harbor_assets.engine.mark_ports import MarkCatalog
from harbor_assets.engine.marking import Marking
from harbor_assets.engine.staleness import Staleness
from harbor_assets.engine.verification import Verifications
from harbor_assets.interfaces.api.answers import Listed, Name, PageNumber, PageSize, dumped, listed, model
from harbor_assets.interfaces.api.failures import failures
from harbor_assets.interfaces.api.guard import need_reader, owner
from harbor_assets.interfaces.api.references import of_refs
from harbor_assets.interfaces.api.strict import StrictRoute

Subject = Annotated[
    str,
    Query(
        min_length=1,
        max_length=700,
        description="A run's id, or a task: NAME, WORKSPACE/NAME, or either with #DIGEST.",
        examples=["run-0123456789abcdef"],
    ),
]


def marks_router(marks: MarkCatalog, marking: Marking, staleness: Staleness) -> APIRouter:
    """`/marks`, `/marks:lookup` and `/marks:touching`."""
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

    @router.post("/marks", response_model=Mark, status_code=201, responses=failures(404))
    def mark(workspace: Name, body: Judgement) -> Response:
        """Say that a run or a task's revision is bad, in the caller's name; a newer word takes the older's place."""
        need_reader(of_refs([body.subject], workspace))
        return model(marking.mark_bad(workspace, body.subject, body.why, who=owner()), 201)

    @router.delete("/marks", response_model=Mark, responses=failures(404))
    def withdraw(workspace: Name, subject: Subject) -> Response:
        """Take back that something is bad; answers what was said."""
        need_reader(of_refs([subject], workspace))
        return model(marking.withdraw(workspace, subject))

    @router.post("/marks:lookup", response_model=list[Mark])
    def lookup(workspace: Name, body: MarkLookup) -> Response:
        """The marks of many tasks and runs in one call, in the order asked for."""
        found = marks.marks_of(workspace, body.subjects)
        return JSONResponse(dumped([mark for each in dict.fromkeys(body.subjects) for mark in found.get(each, ())]))

    @router.post("/marks:touching", response_model=list[Touched])
    def touching(workspace: Name, body: MarkLookup) -> Response:
        """Which of these runs are touched by marks, of themselves or of their tasks; the others are left out."""
        return JSONResponse(dumped(staleness.touched(workspace, body.subjects)))

    return router


def verifications_router(verifications: Verifications) -> APIRouter:
    """`/agent-evaluate/verifications`."""
    router = APIRouter(prefix="/agent-evaluate", tags=["marks"], route_class=StrictRoute)

    @router.post("/verifications", response_model=Verification)
    def judge(workspace: Name, body: VerificationRequest) -> Response:
        """Judge the tasks of a taskset by two ended runs, and mark each of which something can be said. Idempotent."""
        return model(verifications.judge(workspace, body.oracle_run, body.nop_run, who=owner()))

    return router
