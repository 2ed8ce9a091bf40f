"""Evaluations of given outputs as a service: resolve what was asked, score it, keep bundle and record."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import BinaryIO

from harbor_assets.domain import bundle
from harbor_assets.domain.agent_eval import (
    AgentEvalInputSpec,
    AgentEvalJob,
    AgentEvalJobInput,
    AgentEvalResult,
    AgentEvalSpec,
    AgentEvalTask,
    AgentEvalTaskInput,
    ErrorDetails,
    ResultSummary,
    evaluation_key,
    new_run_id,
)
from harbor_assets.domain.bundle import Manifest, RunMetadata, RunnerInfo, Score, Summary, Trial
from harbor_assets.domain.errors import Conflict, NotFound, Problem, Refused
from harbor_assets.domain.metrics.bodies import MetricInline
from harbor_assets.domain.names import Ref
from harbor_assets.domain.summary import summarise
from harbor_assets.domain.tasks import Task
from harbor_assets.domain.views import BundleFile
from harbor_assets.engine.metric_ports import EvalCatalog, MetricCatalog, MetricSort, Templates
from harbor_assets.engine.ports import Artifacts, Page, TaskCatalog
from harbor_assets.engine.scoring import check_trials, prepare, score


def _now() -> datetime:
    return datetime.now(UTC)


class AgentEvals:
    """Accepts evaluations and answers about them. Holds no state of its own."""

    def __init__(
        self,
        *,
        tasks: TaskCatalog,
        metrics: MetricCatalog,
        evals: EvalCatalog,
        artifacts: Artifacts,
        templates: Templates,
        version: str,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        self._tasks, self._metrics, self._evals = tasks, metrics, evals
        self._artifacts, self._templates = artifacts, templates
        self._version, self._clock = version, clock

    # --- submit ---------------------------------------------------------------------------------------------------

    def submit(self, workspace: str, body: AgentEvalJobInput) -> AgentEvalJob:
        """Resolve tasks and metrics, and score the trials that were given; the job is stored with all of it.

        A job with a target is stored as well, and ends in `error` at once: nothing here calls an endpoint. Raises
        `Refused` with everything that cannot be resolved or scored, `NotFound` for a taskset or a revision of it that
        is not there (there is no falling back to another), `Conflict` if the name is taken. Nothing is stored then.
        """
        started = self._clock()
        spec = self.resolve(workspace, body.spec)
        run_id = new_run_id(started)
        name = body.name or run_id
        if body.name is not None:
            self._not_taken(workspace, name)
        common = {
            "name": name,
            "workspace": workspace,
            "project": body.project,
            "created_at": started,
        }
        if spec.trials is None:
            assert spec.target is not None
            job = AgentEvalJob(
                **common,
                id=run_id,
                description=body.description,
                spec=spec,
                status="error",
                error_details=ErrorDetails(message=_cannot_run(spec.target.kind)),
                updated_at=self._clock(),
            )
            self._evals.add_job(job)
            return job
        summary = self._score(run_id, spec, spec.trials, workspace=workspace, started=started)
        job = AgentEvalJob(
            **common, id=run_id, description=body.description, spec=spec, status="completed", updated_at=self._clock()
        )
        result = AgentEvalResult(
            **common,
            id=run_id,
            scores=list(summary.scores.scores),
            summary=ResultSummary(**summary.model_dump(include=set(ResultSummary.model_fields))),
            target_kind="imported",
            target_name="imported",
            bundle_ref=evaluation_key(run_id),
            updated_at=job.updated_at,
        )
        try:
            self._evals.add_job(job, result)
        except Conflict:
            self._artifacts.remove(evaluation_key(run_id))
            raise
        return job

    def resolve(self, workspace: str, spec: AgentEvalInputSpec) -> AgentEvalSpec:
        """The specification with every task and metric in it. Raises as `submit`."""
        taskset_ref = None
        tasks = spec.tasks
        if isinstance(tasks, str):
            ref = Ref.parse(tasks, workspace=workspace)
            taskset = self._tasks.get_taskset(ref.workspace, ref.name, ref.fragment)
            taskset_ref = taskset.ref
            tasks = _of_members(self._tasks.get_pinned_tasks(taskset.tasks))
            if not tasks:
                raise Refused(f"The taskset {taskset_ref} has no tasks; there is nothing to evaluate")
        return AgentEvalSpec(
            **{name: getattr(spec, name) for name in AgentEvalInputSpec.model_fields if name != "tasks"},
            tasks=self._hydrated(workspace, tasks),
            taskset_ref=taskset_ref,
        )

    def _hydrated(self, workspace: str, tasks: Sequence[AgentEvalTaskInput]) -> list[AgentEvalTask]:
        """The tasks with their metrics in place of references."""
        asked = {
            m: str(Ref.parse(m, workspace=workspace)) for task in tasks for m in task.metrics if isinstance(m, str)
        }
        bodies = self._metrics.metric_bodies(list(dict.fromkeys(asked.values())))
        problems = [
            Problem(task.id, f"the metric '{metric}' does not exist in workspace '{asked[metric].partition('/')[0]}'")
            for task in tasks
            for metric in task.metrics
            if isinstance(metric, str) and asked[metric] not in bodies
        ]
        if problems:
            raise Refused("The metrics of the tasks cannot be resolved:", problems[:100])

        def whole(metric: str | MetricInline) -> MetricInline:
            return bodies[asked[metric]] if isinstance(metric, str) else metric

        return [
            AgentEvalTask(
                **{name: getattr(task, name) for name in AgentEvalTaskInput.model_fields if name != "metrics"},
                metrics=[whole(metric) for metric in task.metrics],
            )
            for task in tasks
        ]

    def _not_taken(self, workspace: str, name: str) -> None:
        try:
            self._evals.get_job(workspace, name)
        except NotFound:
            return
        raise Conflict(f"An evaluation with workspace '{workspace}' and name '{name}' already exists")

    # --- score ----------------------------------------------------------------------------------------------------

    def _score(
        self, run_id: str, spec: AgentEvalSpec, trials: Sequence[Trial], *, workspace: str, started: datetime
    ) -> Summary:
        """Write the bundle, the manifest last; answers its summary."""
        ready = prepare(spec.tasks, self._templates)
        check_trials(ready, trials)
        in_order = {task.row.id: task.place for task in ready}
        rows = sorted(trials, key=lambda trial: in_order[trial.task_id])
        scores: list[Score] = []
        for one in score(run_id, ready, rows, self._templates):
            if spec.fail_fast and one.status == "failed":
                raise Refused(
                    f"Scoring stopped at the first failure, as asked (fail_fast): task '{one.task_id}', trial "
                    f"'{one.trial_id}', metric '{one.metric_type}': {one.diagnostics[0].message}"
                )
            scores.append(one)
        summary = summarise([task.row for task in ready], rows, scores)
        finished = self._clock()
        labels = {**spec.labels, "workspace": workspace, "harbor_assets_version": self._version}
        if spec.taskset_ref:
            labels["taskset_ref"] = spec.taskset_ref
        key = evaluation_key(run_id)
        metadata = RunMetadata(
            labels=labels,
            target=RunnerInfo(name="imported", kind="imported"),
            started_at=started,
            finished_at=finished,
            duration_sec=max(0.0, (finished - started).total_seconds()),
        )
        files: list[tuple[str, Iterator[bytes]]] = [
            (bundle.TASKS, bundle.lines(task.row for task in ready)),
            (bundle.TRIALS, bundle.lines(rows)),
            (bundle.SCORES, bundle.lines(scores)),
            (bundle.SUMMARY, iter([bundle.document(summary)])),
            (bundle.METADATA, iter([bundle.document(metadata)])),
            (bundle.MANIFEST, iter([bundle.document(Manifest(run_id=run_id, output_dir=self._artifacts.url(key)))])),
        ]
        for name, pieces in files:
            self._artifacts.put_bytes(f"{key}/{name}", b"".join(pieces))
        return summary

    # --- look -----------------------------------------------------------------------------------------------------

    def get_job(self, workspace: str, name: str) -> AgentEvalJob:
        """Raises `NotFound`."""
        return self._evals.get_job(workspace, name)

    def list_jobs(self, workspace: str, *, page: int, page_size: int, sort: MetricSort) -> Page[AgentEvalJob]:
        """A page of the workspace's jobs."""
        return self._evals.list_jobs(workspace, page=page, page_size=page_size, sort=sort)

    def get_result(self, workspace: str, name: str) -> AgentEvalResult:
        """Raises `NotFound`."""
        return self._evals.get_result(workspace, name)

    def list_results(self, workspace: str, *, page: int, page_size: int, sort: MetricSort) -> Page[AgentEvalResult]:
        """A page of the workspace's results."""
        return self._evals.list_results(workspace, page=page, page_size=page_size, sort=sort)

    def delete_result(self, workspace: str, name: str) -> None:
        """Remove the record and then the bundle that only it led to. Raises `NotFound`."""
        found = self._evals.get_result(workspace, name)
        self._evals.delete_result(workspace, name)
        self._artifacts.remove(found.bundle_ref)

    def bundle_files(self, workspace: str, name: str) -> Sequence[BundleFile]:
        """Every file of a result's bundle."""
        found = self._evals.get_result(workspace, name)
        return [BundleFile(path=path, size=size) for path, size in self._artifacts.list(found.bundle_ref)]

    def open_bundle_file(self, workspace: str, name: str, path: str) -> AbstractContextManager[BinaryIO]:
        """One file of it as a stream. `path` was held to the rules of bundle paths. Raises `NotFound`."""
        return self._artifacts.open(f"{self._evals.get_result(workspace, name).bundle_ref}/{path}")


def task_ids(tasks: Sequence[Task]) -> Mapping[str, str]:
    """Pinned reference -> id in an evaluation: the task's name, with its workspace where two have one name."""
    seen = Counter(task.name for task in tasks)
    return {task.ref: task.name if seen[task.name] == 1 else f"{task.workspace}/{task.name}" for task in tasks}


def _of_members(tasks: Sequence[Task]) -> list[AgentEvalTaskInput]:
    others = [task for task in tasks if task.spec.kind != "evaluator"]
    if others:
        raise Refused(
            "Only tasks of kind 'evaluator' are scored over given outputs; Harbor tasks run with `harbor-assets runs "
            "submit --taskset`:",
            [Problem(task.name, f"is of kind '{task.spec.kind}'") for task in others[:100]],
        )
    ids = task_ids(tasks)
    return [
        AgentEvalTaskInput.model_validate(
            {
                "id": ids[task.ref],
                **task.spec.model_dump(mode="json", exclude={"kind"}),
                "metadata": [item.model_dump(mode="json") for item in task.metadata],
            }
        )
        for task in sorted(tasks, key=lambda task: ids[task.ref])
    ]


def _cannot_run(kind: str) -> str:
    if kind == "harbor":
        return (
            "A Harbor target is run by POST /agent-evaluate/runs (`harbor-assets runs submit --taskset`); this job was "
            "stored and not run"
        )
    return (
        f"Running against a target of kind '{kind}' is not available here: nothing calls model or agent endpoints. The "
        "job was stored and not run; send outputs that exist as `trials` instead, or use `harbor-assets evaluate`"
    )
