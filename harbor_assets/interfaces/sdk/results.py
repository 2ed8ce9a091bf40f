"""What a run gave: scores, the bundle, its files."""

import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, JsonValue, TypeAdapter

from harbor_assets.domain.bundle import BUNDLE_FOLDER, OUTCOME_SUMMARY, SUMMARY
from harbor_assets.domain.comparison import Comparison
from harbor_assets.domain.errors import NotFound
from harbor_assets.domain.outcomes import TrialOutcome
from harbor_assets.domain.plans import job_name
from harbor_assets.domain.policies import OutcomeSummary, account
from harbor_assets.domain.runs import bundle_key
from harbor_assets.domain.traces import TrialTrace
from harbor_assets.domain.views import BundleFile, RunSummary
from harbor_assets.interfaces.sdk.download import Progress, download_bundle
from harbor_assets.interfaces.sdk.http import below, segment
from harbor_assets.interfaces.sdk.readers import Bundle, read_bundle
from harbor_assets.interfaces.sdk.resource import AsyncResource
from harbor_assets.interfaces.sdk.run_ids import check_run_id

FILES = TypeAdapter(list[BundleFile])
_OUTCOMES = TypeAdapter(list[TrialOutcome])


class _RunOnly(BaseModel):
    run: RunSummary


@dataclass(frozen=True, slots=True)
class Results:
    """The scores of a run: `summary.json` and `outcomes.json` of its bundle as they are, and the latter typed."""

    summary: JsonValue
    outcomes: JsonValue
    account: OutcomeSummary


class AsyncRunResults(AsyncResource):
    """The part of `AsyncRuns` that reads what came of a run."""

    async def retrieve(self, run_id: str, *, workspace: str | None = None) -> RunSummary:
        """The run alone. Raises `NotFound` with the nearest ids."""
        return (await self._read(_RunOnly, self._run(workspace, run_id), tasks=False)).run

    async def outcomes(self, run_id: str, *, workspace: str | None = None) -> list[TrialOutcome]:
        """The outcome rows so far."""
        return await self._read_all(_OUTCOMES, self._run(workspace, run_id, "outcomes"))

    async def compare(self, first: str, second: str, *, workspace: str | None = None) -> Comparison:
        """The second run held against the first, both ended: task by task, with the difference of their means.

        `comparable` is False where they were made under other conditions; `differences` names these. Raises `NotReady`,
        `Refused` for runs that have no task in common.
        """
        check_run_id(second)
        return await self._read(Comparison, self._run(workspace, first, "compare", segment(second)))

    async def results(self, run_id: str, *, workspace: str | None = None) -> Results:
        """The scores of an ended run. Raises `NotReady` while it goes on.

        Where no bundle could be written, `summary` is None and the account is computed from the run's own rows.
        """
        run = await self.retrieve(run_id, workspace=workspace)
        try:
            summary = json.loads(await self.read_bundle_file(run_id, SUMMARY, workspace=workspace))
            outcomes = json.loads(await self.read_bundle_file(run_id, OUTCOME_SUMMARY, workspace=workspace))
        except NotFound:
            if not run.phase.terminal:
                raise
            found = account(await self.outcomes(run_id, workspace=workspace))
            return Results(summary=None, outcomes=found.model_dump(mode="json"), account=found)
        return Results(summary=summary, outcomes=outcomes, account=OutcomeSummary.model_validate(outcomes))

    async def bundle(self, run_id: str, output: str | Path = ".", *, workspace: str | None = None) -> Bundle:
        """Download the bundle as `download` does, and read it into typed objects."""
        return read_bundle(await self.download(run_id, output, workspace=workspace))

    async def bundle_files(self, run_id: str, *, workspace: str | None = None) -> list[BundleFile]:
        """Every file of the merged bundle. Raises `NotReady`, `NotFound`."""
        return await self._read_all(FILES, self._run(workspace, run_id, "bundle"))

    async def read_bundle_file(self, run_id: str, path: str, *, workspace: str | None = None) -> bytes:
        """One file of the bundle, whole."""
        return await self._get(self.bundle_path(run_id, path, workspace=workspace))

    async def download(
        self,
        run_id: str,
        output: str | Path = ".",
        progress: Progress | None = None,
        *,
        task: int | None = None,
        workspace: str | None = None,
    ) -> Path:
        """Write the bundle to `<output>/<run id>/agent-eval-results` and return that folder; all of it or nothing.

        `task`: only the bundle of the task with this index, to `<output>/<run id>-task-<i>/agent-eval-results`; it is
        there as soon as that task has ended. A folder that holds it already is left as it is. Raises `Refused` if a
        different one is there, `NotReady`, `StorageFull`.
        """
        if task is None:
            name, base = run_id, self._run(workspace, run_id, "bundle")
        else:
            name, base = job_name(run_id, task), self._run(workspace, run_id, "tasks", str(task), "bundle")
        files = await self._read_all(FILES, base)
        target = Path(output) / name / BUNDLE_FOLDER
        return await download_bundle(self._http, lambda path: below(base, path), files, target, progress)

    def bundle_location(self, run_id: str, path: str, *, workspace: str | None = None) -> str:
        """Where a person finds a file of the bundle: a path or URL in the artifact store, or the service's URL."""
        backend = self._client.service.backend
        if backend is None:
            return f"{self._client.base_url}{self.bundle_path(run_id, path, workspace=workspace)}"
        return backend.artifacts.url(f"{bundle_key(run_id)}/{path}")

    def bundle_path(self, run_id: str, path: str, *, workspace: str | None = None) -> str:
        """The address of a file of the bundle, at any service."""
        return below(self._run(workspace, run_id, "bundle"), path)

    async def trace(self, run_id: str, task: int, *, k: int = 1, workspace: str | None = None) -> TrialTrace:
        """What the agent of trial (task, k) did: model calls, tool calls, tokens, cost. `task`: its index. Raises
        `NotFound`, `NotReady` before the trial has ended."""
        return await self._read(TrialTrace, self._run(workspace, run_id, "tasks", str(task), "trace"), k=k)

    def _run(self, workspace: str | None, run_id: str, *segments: str) -> str:
        return self._at(workspace, "agent-evaluate/runs", check_run_id(run_id), *map(segment, segments))
