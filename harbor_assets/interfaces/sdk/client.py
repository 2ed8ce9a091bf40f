"""The typed client of the REST API, over the network or, without a service, of the same application in this process.

Methods answer domain models and raise the errors of `domain/errors.py`, whichever side of the wire they come from.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel, JsonValue, TypeAdapter

from harbor_assets.domain.agent_eval import AgentEvalJob, AgentEvalJobInput, AgentEvalResult
from harbor_assets.domain.bundle import BUNDLE_FOLDER, OUTCOME_SUMMARY, SUMMARY
from harbor_assets.domain.errors import NotFound
from harbor_assets.domain.images import BuildRequest, ImageStatus, log_key
from harbor_assets.domain.names import Ref
from harbor_assets.domain.outcomes import TrialOutcome
from harbor_assets.domain.phases import TaskPhase
from harbor_assets.domain.plans import SandboxWord, job_name
from harbor_assets.domain.policies import OutcomeSummary, account
from harbor_assets.domain.preflight import RunCheck, RunChecked
from harbor_assets.domain.ranking import Leaderboard
from harbor_assets.domain.requests import RunRequest, check_key
from harbor_assets.domain.runs import bundle_key
from harbor_assets.domain.tasks import Annotation, Task, TaskInput, Taskset, TasksetInput, taskset_digest
from harbor_assets.domain.views import BundleFile, LogChunk, RunStatus, RunSummary, Submitted, TaskView
from harbor_assets.engine.ports import Page
from harbor_assets.engine.recovery import Recovered
from harbor_assets.interfaces.backend import Backend
from harbor_assets.interfaces.sdk.archives import Archives, RemoteArchives, StoredArchives
from harbor_assets.interfaces.sdk.download import Progress, download_bundle
from harbor_assets.interfaces.sdk.http import IDEMPOTENCY_KEY, Http, query, segment, service_url
from harbor_assets.interfaces.sdk.transport import InProcessTransport

LOOKUP_SIZE = 500  # names in one look-up: one query of the catalog each


@dataclass(frozen=True, slots=True)
class Results:
    """The scores of a run: `summary.json` and `outcomes.json` of its bundle as they are, and the latter typed."""

    summary: JsonValue
    outcomes: JsonValue
    account: OutcomeSummary


class Client:
    """Tasks, tasksets and runs of one workspace. Not for several threads at once; use it in a `with` block.

    `service` is what this machine's home is wired to, or the URL of a service elsewhere. `Refused` for what is no URL;
    whether a service answers there is found out by the first call.
    """

    def __init__(self, service: Backend | str, *, workspace: str = "default") -> None:
        self.workspace = workspace
        self.base_url: str | None = None
        if isinstance(service, str):
            self.base_url = service_url(service)
            self._http = Http.remote(service)
            self._archives: Archives = RemoteArchives(self._http)
            self._backend = None
            return
        from harbor_assets.interfaces.api.app import PartedApp

        self._http = Http.in_process(InProcessTransport(PartedApp(service)))
        self._archives = StoredArchives(service.artifacts)
        self._backend = service

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Wait for calls under way, then close."""
        self._http.close()

    # --- runs -----------------------------------------------------------------------------------------------------

    def submit(self, request: RunRequest, *, idempotency_key: str | None = None) -> Submitted:
        """Submit a run. Raises `Refused` with every problem, `NotFound`, `IdempotencyConflict`."""
        headers = {IDEMPOTENCY_KEY: check_key(idempotency_key)} if idempotency_key is not None else {}
        return self._send("POST", self._runs(), request, Submitted, headers=headers)

    def check(self, asked: RunCheck) -> RunChecked:
        """Ask whether tasks could run as asked, before publishing them. Raises `Refused` with every problem."""
        return self._send("POST", f"{self._base(self.workspace)}/agent-evaluate/runs:check", asked, RunChecked)

    def get_run(self, run_id: str) -> RunSummary:
        """The run alone. Raises `NotFound` with the nearest ids."""
        return _RunOnly.model_validate_json(self._get(self._runs(run_id), tasks=False)).run

    def run_status(self, run_id: str) -> RunStatus:
        """The run and every task of it."""
        return RunStatus.model_validate_json(self._get(self._runs(run_id)))

    def list_runs(
        self, *, active: bool = False, mine: bool = False, page: int = 1, page_size: int = 100
    ) -> Page[RunSummary]:
        """Runs, newest first."""
        return self._page(RunSummary, self._runs(), active=active, mine=mine, page=page, page_size=page_size)

    def run_tasks(
        self, run_id: str, *, phase: TaskPhase | None = None, page: int = 1, page_size: int = 100
    ) -> Page[TaskView]:
        """A page of the run's tasks, by index."""
        return self._page(TaskView, self._runs(run_id, "tasks"), phase=phase, page=page, page_size=page_size)

    def all_run_tasks(self, run_id: str, *, phase: TaskPhase | None = None) -> list[TaskView]:
        """Every task of the run, by index, all as of one moment."""
        return [task for task in self.run_status(run_id).tasks if phase in (None, task.phase)]

    def cancel(self, run_id: str) -> RunSummary:
        """Ask the run to stop; an ended run is answered as it is."""
        return self._send("POST", self._runs(run_id, "cancel"), None, RunSummary)

    def outcomes(self, run_id: str) -> list[TrialOutcome]:
        """The outcome rows so far."""
        return _OUTCOMES.validate_json(self._get(self._runs(run_id, "outcomes")))

    def logs(self, run_id: str, *, task: int | None = None, offset: int = 0) -> LogChunk:
        """A piece of the run's log, or of one task's."""
        return LogChunk.model_validate_json(self._get(self._runs(run_id, "logs"), task=task, offset=offset))

    # --- results --------------------------------------------------------------------------------------------------

    def bundle_files(self, run_id: str) -> list[BundleFile]:
        """Every file of the merged bundle. Raises `NotReady`, `NotFound`."""
        return _FILES.validate_json(self._get(self._runs(run_id, "bundle")))

    def read_bundle_file(self, run_id: str, path: str) -> bytes:
        """One file of the bundle, whole."""
        return self._get(self._file_path(run_id, path))

    def download(self, run_id: str, output: Path, progress: Progress | None = None, *, task: int | None = None) -> Path:
        """Write the bundle to `<output>/<run id>/agent-eval-results` and return that folder; all of it or nothing.

        `task`: only the bundle of the task with this index, to `<output>/<run id>-task-<i>/agent-eval-results`; it is
        there as soon as that task has ended. A folder that holds it already is left as it is. Raises `Refused` if a
        different one is there, `NotReady`, `StorageFull`.
        """
        if task is None:
            name, base = run_id, self._runs(run_id, "bundle")
        else:
            name, base = job_name(run_id, task), self._runs(run_id, "tasks", str(task), "bundle")
        files = _FILES.validate_json(self._get(base))
        target = output / name / BUNDLE_FOLDER
        return self._http.run(download_bundle(self._http, lambda path: _below(base, path), files, target, progress))

    def results(self, run_id: str) -> "Results":
        """The scores of an ended run. Raises `NotReady` while it goes on.

        Where no bundle could be written, `summary` is None and the account is computed from the run's own rows.
        """
        run = self.get_run(run_id)
        try:
            summary = json.loads(self.read_bundle_file(run_id, SUMMARY))
            outcomes = json.loads(self.read_bundle_file(run_id, OUTCOME_SUMMARY))
        except NotFound:
            if not run.phase.terminal:
                raise
            found = account(self.outcomes(run_id))
            return Results(summary=None, outcomes=found.model_dump(mode="json"), account=found)
        return Results(summary=summary, outcomes=outcomes, account=OutcomeSummary.model_validate(outcomes))

    def bundle_location(self, run_id: str, path: str) -> str:
        """Where a person finds a file of the bundle: a path or URL in the artifact store, or the service's URL."""
        if self._backend is None:
            return f"{self.base_url}{self._file_path(run_id, path)}"
        return self._backend.artifacts.url(f"{bundle_key(run_id)}/{path}")

    # --- evaluations of given outputs ---------------------------------------------------------------------------

    def submit_agent_eval(self, body: AgentEvalJobInput) -> AgentEvalJob:
        """Have given trials scored. Raises `Refused` with everything that cannot be resolved or scored."""
        return self._send("POST", f"{self._base(self.workspace)}/agent-evaluate/jobs", body, AgentEvalJob)

    def get_agent_eval_result(self, name: str) -> AgentEvalResult:
        """The aggregates and counts of an evaluation. Raises `NotFound`."""
        return AgentEvalResult.model_validate_json(self._get(self._agent_eval_result(name)))

    def download_agent_eval(self, name: str, output: Path) -> Path:
        """Write its bundle to `<output>/<name>/agent-eval-results`, all of it or nothing, as `download` does."""
        base = f"{self._agent_eval_result(name)}/bundle"
        files = _FILES.validate_json(self._get(base))
        target = output / name / BUNDLE_FOLDER
        return self._http.run(download_bundle(self._http, lambda path: _below(base, path), files, target, None))

    def _agent_eval_result(self, name: str) -> str:
        return f"{self._base(self.workspace)}/agent-eval-results/{segment(name)}"

    # --- leaderboard ----------------------------------------------------------------------------------------------

    def leaderboard(self) -> Leaderboard:
        """The ended runs of the workspace by taskset and sandbox, the best mean first."""
        return Leaderboard.model_validate_json(self._get(f"{self._base(self.workspace)}/leaderboard"))

    def rebuild_leaderboard(self) -> tuple[int, dict[str, str]]:
        """Make it afresh from the bundles: how many runs were written, and run id -> why of those that were not."""
        answer = self._http.call("POST", f"{self._base(self.workspace)}/leaderboard:rebuild")
        done = json.loads(answer.content)
        return done["written"], done["failed"]

    # --- tasks and tasksets ---------------------------------------------------------------------------------------

    def get_task(self, ref: str) -> Task:
        """A task by name or reference, current unless it names a revision. Raises `NotFound`."""
        return _task(self._record("tasks", ref))

    def get_taskset(self, ref: str) -> Taskset:
        """A taskset by name or reference, current unless it names a revision. Raises `NotFound`."""
        return _taskset(self._record("tasksets", ref))

    def get_tasks(self, workspace: str, names: Sequence[str]) -> Mapping[str, Task]:
        """The current records of those of `names` that exist."""
        return {task.name: task for task in self._lookup(workspace, "names", names)}

    def get_pinned_tasks(self, refs: Sequence[str]) -> list[Task]:
        """Tasks of pinned references, in their order. Raises `NotFound` naming those that do not resolve."""
        return list(self._lookup(self.workspace, "refs", refs))

    def put_task(self, workspace: str, name: str, body: TaskInput) -> tuple[Task, bool]:
        """Create or replace a task; True if a revision was cut."""
        record, cut = self._put(workspace, "tasks", name, body)
        return _task(record), cut

    def put_taskset(self, workspace: str, name: str, body: TasksetInput) -> tuple[Taskset, bool]:
        """Create or replace a taskset; True if a revision was cut."""
        record, cut = self._put(workspace, "tasksets", name, body)
        return _taskset(record), cut

    def has_archive(self, fileset_ref: str, files_hash: str) -> bool:
        """True if the archive lies in the artifact store; what is there is complete."""
        return self._archives.has(fileset_ref)

    def put_archive(self, fileset_ref: str, files_hash: str, path: Path) -> None:
        """Store an archive: straight into the artifact store where that is this machine's own, else by an upload."""
        self._archives.put(fileset_ref, files_hash, path)

    # --- images ---------------------------------------------------------------------------------------------------

    def build_images(self, taskset: Ref, request: BuildRequest) -> ImageStatus:
        """Begin with every image of a taskset that is not ready; answers at once how things stand."""
        return self._send("POST", self._images(taskset), request, ImageStatus)

    def image_status(self, taskset: Ref, sandbox: SandboxWord = "auto") -> ImageStatus:
        """What is known of the images of every task of a taskset, for one kind of sandbox."""
        found = self._get(self._images(taskset), revision=taskset.fragment, sandbox=sandbox)
        return ImageStatus.model_validate_json(found)

    def build_log(self, key: str) -> str:
        """The log of an image's last build; empty if there is none."""
        try:
            content = self._get(self._build_log(key))
        except NotFound:
            return ""
        return content.decode("utf-8", errors="replace")

    def build_log_location(self, key: str) -> str:
        """Where a person finds that log: a path or URL in the artifact store, or the service's URL."""
        if self._backend is None:
            return f"{self.base_url}{self._build_log(key)}"
        return self._backend.artifacts.url(log_key(key))

    def _build_log(self, key: str) -> str:
        return f"{self._base(self.workspace)}/images/{segment(key)}/log"

    def _images(self, taskset: Ref) -> str:
        return f"{self._base(taskset.workspace)}/tasksets/{segment(taskset.name)}/images"

    # --- upkeep ---------------------------------------------------------------------------------------------------

    def recover(self) -> Recovered:
        """Let runs that lost their worker go on, and say which could not. A service does this by itself: none, then."""
        return Recovered() if self._backend is None else self._backend.evaluations.recover()

    # --- how ------------------------------------------------------------------------------------------------------

    def _base(self, workspace: str) -> str:
        return f"/apis/evals/v2/workspaces/{segment(workspace)}"

    def _runs(self, *segments: str) -> str:
        if segments and not _SEGMENT.fullmatch(segments[0]):
            shown = segments[0][:80]
            raise NotFound(f"'{shown}' is no run's id (run- and 16 hex digits); `harbor-assets runs list` shows all")
        return "/".join([f"{self._base(self.workspace)}/agent-evaluate/runs", *map(segment, segments)])

    def _file_path(self, run_id: str, path: str) -> str:
        return _below(self._runs(run_id, "bundle"), path)

    def _get(self, path: str, **parameters: object) -> bytes:
        return self._http.call("GET", path, params=query(**parameters)).content

    def _send[T: BaseModel](
        self, method: str, path: str, body: BaseModel | None, kind: type[T], headers: Mapping[str, str] | None = None
    ) -> T:
        content, sent = _json(body)
        return kind.model_validate_json(
            self._http.call(method, path, content=content, headers={**sent, **(headers or {})}).content
        )

    def _page[T: BaseModel](self, kind: type[T], path: str, **parameters: object) -> Page[T]:
        envelope = json.loads(self._get(path, **parameters))
        at = envelope["pagination"]
        items = [kind.model_validate_json(json.dumps(item)) for item in envelope["data"]]
        return Page(items, at["page"], at["page_size"], at["total_results"], envelope.get("unreadable") or ())

    def _record(self, collection: str, text: str) -> dict[str, Any]:
        ref = Ref.parse(text, workspace=self.workspace)
        path = f"{self._base(ref.workspace)}/{collection}/{segment(ref.name)}"
        return json.loads(self._get(f"{path}/revisions/{segment(ref.fragment)}" if ref.fragment else path))

    def _put(self, workspace: str, collection: str, name: str, body: BaseModel) -> tuple[dict[str, Any], bool]:
        content, headers = _json(body)
        path = f"{self._base(workspace)}/{collection}/{segment(name)}"
        answer = self._http.call("PUT", path, content=content, headers=headers)
        return json.loads(answer.content), answer.status == 201

    def _lookup(self, workspace: str, by: str, wanted: Sequence[str]) -> Iterator[Task]:
        for start in range(0, len(wanted), LOOKUP_SIZE):
            body = {by: list(wanted[start : start + LOOKUP_SIZE])}
            answer = self._http.call("POST", f"{self._base(workspace)}/tasks:lookup", json=body)
            yield from map(_task, json.loads(answer.content)["data"])


_SEGMENT = re.compile(r"(?!\.+$)[\w\-.]+")  # what the service's routes take for a name


class _RunOnly(BaseModel):
    run: RunSummary


_OUTCOMES = TypeAdapter(list[TrialOutcome])
_FILES = TypeAdapter(list[BundleFile])


def _below(base: str, path: str) -> str:
    return "/".join([base, *map(segment, path.split("/"))])


def _json(body: BaseModel | None) -> tuple[bytes | None, dict[str, str]]:
    if body is None:
        return None, {}
    return body.model_dump_json().encode(), {"Content-Type": "application/json"}


def _task(record: dict[str, Any]) -> Task:
    """A task from its JSON. The digest is no member of it: it follows from the content, as everywhere."""
    body = TaskInput(spec=record["spec"], metadata=record["metadata"])
    return Task.model_validate({**record, "digest": body.digest()})


def _taskset(record: dict[str, Any]) -> Taskset:
    digest = taskset_digest(
        record["tasks"],
        description=record["description"],
        files_ref=record["files_ref"],
        metadata=[Annotation.model_validate(item) for item in record["metadata"]],
    )
    return Taskset.model_validate({**record, "digest": digest})
