"""Marks of tasks and runs, and finding out which tasks can be trusted."""

from collections.abc import Sequence

from pydantic import TypeAdapter

from harbor_assets.domain.marks import LOOKUP_MAX, Judgement, Mark, MarkLookup, Touched, Verdict
from harbor_assets.domain.plans import NOP, ORACLE, SandboxWord
from harbor_assets.domain.verification import ATTEMPTS, Verification, VerificationRequest
from harbor_assets.interfaces.sdk.blocking import Blocking, blocking, blocking_page
from harbor_assets.interfaces.sdk.http import query
from harbor_assets.interfaces.sdk.pages import AsyncPage
from harbor_assets.interfaces.sdk.resource import JSON, AsyncResource, encoded
from harbor_assets.interfaces.sdk.runs import AsyncRuns

_MARKS = TypeAdapter(list[Mark])
_TOUCHED = TypeAdapter(list[Touched])


class AsyncMarks(AsyncResource):
    """What is known of tasks' revisions and of runs beside their scores."""

    async def list(
        self,
        *,
        verdict: Verdict | str | None = None,
        page: int = 1,
        page_size: int = 100,
        workspace: str | None = None,
    ) -> AsyncPage[Mark]:
        """A page of a workspace's marks, newest first; those of one verdict only if given."""
        parameters = query(verdict=verdict, page_size=page_size)
        return await self._list(Mark.model_validate, self._at(workspace, "marks"), [*parameters.items()], page)

    async def lookup(self, subjects: Sequence[str], *, workspace: str | None = None) -> Sequence[Mark]:
        """The marks of tasks pinned by digest (`workspace/name#digest`) and of runs by id, in the order given."""
        found: list[Mark] = []
        for start in range(0, len(subjects), LOOKUP_MAX):
            body = MarkLookup(subjects=[*subjects[start : start + LOOKUP_MAX]])
            path = self._at(workspace, "marks:lookup")
            answer = await self._http.call("POST", path, content=encoded(body), headers=JSON)
            found += _MARKS.validate_json(answer.content)
        return found

    async def touching(self, run_ids: Sequence[str], *, workspace: str | None = None) -> Sequence[Touched]:
        """Which of these runs are touched by marks, of themselves or of their tasks; the others are left out."""
        found: list[Touched] = []
        for start in range(0, len(run_ids), LOOKUP_MAX):
            body = MarkLookup(subjects=[*run_ids[start : start + LOOKUP_MAX]])
            path = self._at(workspace, "marks:touching")
            answer = await self._http.call("POST", path, content=encoded(body), headers=JSON)
            found += _TOUCHED.validate_json(answer.content)
        return found

    async def mark_bad(self, subject: str, why: str, *, workspace: str | None = None) -> Mark:
        """Say that a run (by id) or a task's revision (the newest where none is named) is bad: what rests on it is
        shown as stale, and no score changes."""
        body = Judgement(subject=subject, why=why)
        return await self._send(Mark, "POST", self._at(workspace, "marks"), body)

    async def withdraw(self, subject: str, *, workspace: str | None = None) -> Mark:
        """Take back that it is bad. Raises `NotFound` where nobody said so."""
        path = self._at(workspace, "marks")
        answer = await self._http.call("DELETE", path, params=query(subject=subject))
        return Mark.model_validate_json(answer.content)

    async def judge(self, oracle_run: str, nop_run: str, *, workspace: str | None = None) -> Verification:
        """Judge the tasks of a taskset by an ended run of the agent oracle and one of nop, and mark them.

        Raises `NotReady` while one of them goes on, `Refused` for two that cannot be held against each other.
        """
        body = VerificationRequest(oracle_run=oracle_run, nop_run=nop_run)
        return await self._send(Verification, "POST", self._at(workspace, "agent-evaluate/verifications"), body)

    async def verify(
        self,
        taskset: str,
        *,
        select: Sequence[str] | None = None,
        n_attempts: int = ATTEMPTS,
        sandbox: SandboxWord = "auto",
        workspace: str | None = None,
    ) -> Verification:
        """Run the agents oracle and nop on a stored taskset, wait for both, judge its tasks and mark them.

        Raises as `runs.submit`. Stopped in between, the runs go on; `judge` takes them when they have ended.
        """
        runs = AsyncRuns(self._client)
        started = [
            await runs.submit(
                taskset, select=select, agent=agent, n_attempts=n_attempts, sandbox=sandbox, workspace=workspace
            )
            for agent in (ORACLE, NOP)
        ]
        oracle, nop = [await runs.wait(each.run.id, workspace=workspace) for each in started]
        return await self.judge(oracle.id, nop.id, workspace=workspace)


class Marks(Blocking):
    """What is known of tasks' revisions and of runs beside their scores."""

    list = blocking_page(AsyncMarks.list)
    lookup = blocking(AsyncMarks.lookup)
    touching = blocking(AsyncMarks.touching)
    mark_bad = blocking(AsyncMarks.mark_bad)
    withdraw = blocking(AsyncMarks.withdraw)
    judge = blocking(AsyncMarks.judge)
    verify = blocking(AsyncMarks.verify)
