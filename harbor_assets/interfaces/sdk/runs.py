"""Runs: submit, look, follow to the end, read what they gave."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Sequence

from pydantic import ValidationError

from harbor_assets.domain.errors import NotReady, Refused, ServiceUnavailable
from harbor_assets.domain.phases import TaskPhase
from harbor_assets.domain.plans import SandboxWord
from harbor_assets.domain.preflight import RunCheck, RunChecked
from harbor_assets.domain.publication import RunPublished, read_dataset
from harbor_assets.domain.regrades import Regrade
from harbor_assets.domain.requests import RunRequest, check_key
from harbor_assets.domain.reruns import Rerun
from harbor_assets.domain.resumes import Resumed
from harbor_assets.domain.validation import problems_of
from harbor_assets.domain.views import LogChunk, RunStatus, RunSummary, Submitted, TaskView
from harbor_assets.interfaces.sdk.blocking import Blocking, blocking, blocking_each, blocking_page
from harbor_assets.interfaces.sdk.http import IDEMPOTENCY_KEY, query
from harbor_assets.interfaces.sdk.pages import AsyncPage
from harbor_assets.interfaces.sdk.results import AsyncRunResults

POLL_SECONDS = 1.0  # a trial takes seconds at least; a look costs the service one query
OUTAGE_SECONDS = 180.0  # a service is moved to another node within a minute or two


class AsyncRuns(AsyncRunResults):
    """Runs of tasksets. `workspace` None: the client's."""

    async def submit(
        self,
        taskset: str,
        *,
        select: Sequence[str] | None = None,
        agent: str = "oracle",
        n_attempts: int = 1,
        max_retries: int = 0,
        infra_retries: int | None = None,
        sandbox: SandboxWord = "auto",
        n_concurrent: int | None = None,
        timeout_seconds: int | None = None,
        experiment: str | None = None,
        dataset: str | None = None,
        idempotency_key: str | None = None,
        workspace: str | None = None,
    ) -> Submitted:
        """Start a run of a stored taskset; answers as soon as it is accepted.

        `select`: names or indexes of its tasks, by default all. `n_attempts`: trials of each task;
        `max_retries`: how often one that errs is tried again; `infra_retries`: how often one that lost its sandbox or
        node (None: the deployment's number). `experiment`: where its trials are published, each as it ends; `dataset`:
        what they are labelled with there, `NAME[@VERSION]`. The same `idempotency_key` and request twice is one run.

        Raises `Refused` with every problem, `NotFound`, `IdempotencyConflict`. `submit_request` takes everything else
        that can be asked for.
        """
        if dataset is not None and experiment is None:
            raise Refused("`dataset` labels what is published; give `experiment`, too")
        name, version = (None, None) if dataset is None else read_dataset(dataset)
        published = {"experiment": experiment, "dataset_name": name, "dataset_version": version}
        asked = {
            "spec": {
                "publication": {"intake": published} if experiment is not None else None,
                "tasks": {"taskset": taskset, "select": None if select is None else [*select]},
                "target": {"source": {"name": agent}, "n_attempts": n_attempts, "max_retries": max_retries},
            },
            "execution": {
                "sandbox": {"kind": sandbox},
                "max_concurrent_task_jobs": n_concurrent,
                "infra_retries": infra_retries,
            },
            "timeout_seconds": timeout_seconds,
        }
        try:
            request = RunRequest.model_validate(asked)
        except ValidationError as error:
            raise Refused("The run was not submitted:", problems_of(error, RunRequest)) from None
        return await self.submit_request(request, idempotency_key=idempotency_key, workspace=workspace)

    async def submit_request(
        self, request: RunRequest, *, idempotency_key: str | None = None, workspace: str | None = None
    ) -> Submitted:
        """Start a run as `request` says. Raises as `submit`.

        Over a network a request without a key gets one, so that it can be sent again when its answer is lost.
        """
        headers = self._key(idempotency_key)
        path = self._at(workspace, "agent-evaluate/runs")
        return await self._send(Submitted, "POST", path, request, brief=True, **headers)

    async def rerun(
        self,
        run_id: str,
        *,
        failed: bool = False,
        select: Sequence[str] | None = None,
        idempotency_key: str | None = None,
        workspace: str | None = None,
    ) -> Submitted:
        """Run tasks of a run again with its settings, as a new run whose `rerun_of` names it: all, those that `select`
        names, or with `failed` those of which a trial was not scored.

        Raises as `submit`, `NotReady` for the failed ones of a run that goes on, `Refused` where nothing failed.
        """
        asked = Rerun(which="failed" if failed else "all", select=None if select is None else [*select])
        headers = self._key(idempotency_key)
        return await self._send(Submitted, "POST", self._run(workspace, run_id, "rerun"), asked, brief=True, **headers)

    async def regrade(
        self,
        run_id: str,
        *,
        select: Sequence[str] | None = None,
        taskset: str | None = None,
        idempotency_key: str | None = None,
        workspace: str | None = None,
    ) -> Submitted:
        """Run the verifiers alone on what an ended run kept of its agent's work, as a new run whose `regrade_of` names
        it: of all tasks, or those that `select` names; with the tests of `taskset`, by default the newest.

        Raises as `submit`, `NotReady` for a run that goes on, `Refused` where nothing can be verified again.
        """
        asked = Regrade(select=None if select is None else [*select], taskset=taskset)
        headers = self._key(idempotency_key)
        path = self._run(workspace, run_id, "regrade")
        return await self._send(Submitted, "POST", path, asked, brief=True, **headers)

    def _key(self, key: str | None) -> dict[str, str]:
        if key is None and self._client.base_url is not None:
            key = f"submit-{secrets.token_hex(8)}"
        return {} if key is None else {IDEMPOTENCY_KEY: check_key(key)}

    async def check(self, asked: RunCheck, *, workspace: str | None = None) -> RunChecked:
        """Ask whether tasks could run as asked, before publishing them. Raises `Refused` with every problem."""
        path = self._at(workspace, "agent-evaluate/runs:check")
        return await self._send(RunChecked, "POST", path, asked, brief=True)

    async def status(self, run_id: str, *, workspace: str | None = None) -> RunStatus:
        """The run and every task of it, all as of one moment."""
        return await self._read(RunStatus, self._run(workspace, run_id))

    async def list(
        self,
        *,
        active: bool = False,
        mine: bool = False,
        page: int = 1,
        page_size: int = 100,
        workspace: str | None = None,
    ) -> AsyncPage[RunSummary]:
        """A page of runs, newest first; iterate over it for all that follow. `active`: those that have not ended."""
        parameters = query(active=active, mine=mine, page_size=page_size)
        path = self._at(workspace, "agent-evaluate/runs")
        return await self._list(RunSummary.model_validate, path, [*parameters.items()], page)

    async def tasks(
        self,
        run_id: str,
        *,
        phase: TaskPhase | str | None = None,
        page: int = 1,
        page_size: int = 100,
        workspace: str | None = None,
    ) -> AsyncPage[TaskView]:
        """A page of the run's tasks by index, those in `phase` only if given."""
        parameters = query(phase=phase, page_size=page_size)
        path = self._run(workspace, run_id, "tasks")
        return await self._list(TaskView.model_validate, path, [*parameters.items()], page)

    async def cancel(self, run_id: str, *, workspace: str | None = None) -> RunSummary:
        """Ask the run to stop; an ended run is answered as it is."""
        return await self._send(RunSummary, "POST", self._run(workspace, run_id, "cancel"))

    async def resume(self, run_id: str, *, workspace: str | None = None) -> Resumed:
        """Let a run go on that has no worker, under the same id; one that is at work is answered as it is.

        A paused run tries again at once. Raises `Refused` for a run that has ended, is stopped or being cancelled.
        """
        return await self._send(Resumed, "POST", self._run(workspace, run_id, "resume"))

    async def publish(self, run_id: str, *, workspace: str | None = None) -> RunPublished:
        """Publish to the Experiment what of an ended run is missing there. Raises `NotReady` for a run that goes on,
        `Refused` for one that is published nowhere."""
        return await self._send(RunPublished, "POST", self._run(workspace, run_id, "publish"))

    async def logs(
        self, run_id: str, *, task: int | None = None, offset: int = 0, workspace: str | None = None
    ) -> LogChunk:
        """A piece of the run's log, or of one task's."""
        return await self._read(LogChunk, self._run(workspace, run_id, "logs"), task=task, offset=offset)

    async def follow(
        self, run_id: str, *, poll_seconds: float = POLL_SECONDS, workspace: str | None = None
    ) -> AsyncIterator[RunStatus]:
        """The status now, then each time it has changed, the last one when the run has ended.

        A service that is away for up to three minutes is waited for. In process, a run that lost its worker goes on.
        """
        told: RunStatus | None = None
        answered = time.monotonic()
        while True:
            try:
                status = await self.status(run_id, workspace=workspace)
            except ServiceUnavailable:
                if time.monotonic() - answered > OUTAGE_SECONDS:
                    raise
            else:
                answered = time.monotonic()
                if status != told:
                    yield status
                if status.run.phase.terminal:
                    return
                told = status
            await asyncio.sleep(poll_seconds)
            await asyncio.to_thread(self._client.service.recover)

    async def wait(
        self,
        run_id: str,
        *,
        timeout_seconds: float | None = None,
        poll_seconds: float = POLL_SECONDS,
        workspace: str | None = None,
    ) -> RunSummary:
        """The run when it has ended. Raises `NotReady` if it goes on after `timeout_seconds`; it is not stopped."""
        until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        answered = time.monotonic()
        while True:
            try:
                run = await self.retrieve(run_id, workspace=workspace)
            except ServiceUnavailable:
                if time.monotonic() - answered > OUTAGE_SECONDS:
                    raise
            else:
                answered = time.monotonic()
                if run.phase.terminal:
                    return run
            left = poll_seconds if until is None else min(poll_seconds, until - time.monotonic())
            if left <= 0:
                raise NotReady(f"{run_id} has not ended after {timeout_seconds:g} s; it goes on, wait for it again")
            await asyncio.sleep(left)
            await asyncio.to_thread(self._client.service.recover)


class Runs(Blocking):
    """Runs of tasksets."""

    _twin: AsyncRuns

    submit = blocking(AsyncRuns.submit)
    submit_request = blocking(AsyncRuns.submit_request)
    check = blocking(AsyncRuns.check)
    retrieve = blocking(AsyncRuns.retrieve)
    status = blocking(AsyncRuns.status)
    list = blocking_page(AsyncRuns.list)
    tasks = blocking_page(AsyncRuns.tasks)
    rerun = blocking(AsyncRuns.rerun)
    regrade = blocking(AsyncRuns.regrade)
    cancel = blocking(AsyncRuns.cancel)
    resume = blocking(AsyncRuns.resume)
    publish = blocking(AsyncRuns.publish)
    logs = blocking(AsyncRuns.logs)
    follow = blocking_each(AsyncRuns.follow)
    wait = blocking(AsyncRuns.wait)
    outcomes = blocking(AsyncRuns.outcomes)
    results = blocking(AsyncRuns.results)
    compare = blocking(AsyncRuns.compare)
    trace = blocking(AsyncRuns.trace)
    bundle = blocking(AsyncRuns.bundle)
    bundle_files = blocking(AsyncRuns.bundle_files)
    read_bundle_file = blocking(AsyncRuns.read_bundle_file)
    download = blocking(AsyncRuns.download)

    def bundle_location(self, run_id: str, path: str, *, workspace: str | None = None) -> str:
        """Where a person finds a file of the bundle: a path or URL in the artifact store, or the service's URL."""
        return self._twin.bundle_location(run_id, path, workspace=workspace)
