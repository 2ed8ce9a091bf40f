"""Executions of runs on a deployment: each a Dagster run whose worker makes the tasks' Jobs."""

import logging
import os
import sys
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harbor_assets.cluster import diagnosis
from harbor_assets.cluster.client import ClusterClient
from harbor_assets.cluster.looking import look_at
from harbor_assets.cluster.manifests import COMPONENT_LABEL, RUN_TAG, RUN_WORKER, TIMEOUT_TAG, task_index
from harbor_assets.cluster.reaper import Reaped, Why, reap, remove_run
from harbor_assets.cluster.settlement import Tried
from harbor_assets.domain.errors import Broken, NotFound, Refused, ServiceUnavailable
from harbor_assets.domain.plans import RunPlan
from harbor_assets.domain.runs import Run
from harbor_assets.engine.account import Lost
from harbor_assets.engine.ports import RunCatalog

if TYPE_CHECKING:
    import dagster as dg
    from dagster._core.origin import JobPythonOrigin
    from dagster._core.remote_origin import RemoteJobOrigin

log = logging.getLogger(__name__)

JOB = "evaluate"
SETTLE_JOB = "settle"
EXECUTION_TAG = "harbor/execution"
PARTITIONS = "run_task"  # as in partitions.py, which this layer cannot import; a test keeps them equal
RUN_PARTITIONS = "run"
DEFINITIONS = "harbor_assets.definitions"
LOCK = "executions"
WORKER = f"{COMPONENT_LABEL}={RUN_WORKER}"
UNBORN_SECONDS = 300.0  # a Job is made within a second of its run's launch, or its maker was killed in between


def partition_key(run_id: str, index: int) -> str:
    """As `partitions.run_task_key`."""
    return f"{run_id}|{index:05d}"


def _executions(instance: "dg.DagsterInstance", run_id: str) -> Sequence["dg.DagsterRun"]:
    import dagster as dg

    return instance.get_runs(dg.RunsFilter(tags={RUN_TAG: run_id}, job_name=JOB))


def lost_workers(instance: "dg.DagsterInstance", run_id: str) -> dict[int, Lost]:
    """Task index -> why its worker left no result; for a task's worker, which has nothing but the instance."""
    return _lost(instance, _executions(instance, run_id))


def _lost(instance: "dg.DagsterInstance", runs: Sequence["dg.DagsterRun"]) -> dict[int, Lost]:
    from dagster import DagsterEventType

    found: dict[int, Lost] = {}
    for run in runs:
        for entry in instance.all_logs(run.run_id, of_type=DagsterEventType.STEP_FAILURE):
            event = entry.dagster_event
            index = task_index(event.step_key) if event and event.step_key else None
            error = event.step_failure_data.error if event else None
            if index is not None and error and (known := diagnosis.lost(error.message)):
                found.setdefault(index, known)
    return found


class ClusterExecutions:
    """Implements the engine's `Executions` with Dagster runs, of which a run never has two unfinished ones.

    `has_work` is the engine's; `image` what run workers and task Jobs run; `max_concurrent` the deployment's cap of a
    run's task Jobs at once. The Dagster instance is that of DAGSTER_HOME, where
    `workspace.yaml` names the code location.
    """

    def __init__(
        self,
        *,
        runs: RunCatalog,
        client: ClusterClient,
        has_work: Callable[[str], bool],
        image: str,
        max_concurrent: int,
    ) -> None:
        self._runs, self._client, self._has_work = runs, client, has_work
        self._image, self._cap = image, max_concurrent

    @cached_property
    def instance(self) -> "dg.DagsterInstance":
        """The deployment's Dagster instance."""
        import dagster as dg

        return dg.DagsterInstance.get()

    def start(self, run_id: str) -> bool:
        """Submit the run's next execution; False if one is unfinished, nothing is left to do, or pods of the last one
        are still there. A run whose cancel was asked for is stopped instead.

        A moment that is not the right one is no loss: the deployment looks after its active runs again and again.
        """
        with self._runs.lock(LOCK):
            run = self._runs.get_run(run_id)
            if run.cancel_requested_at is not None:
                self.stop(run_id)
                return False
            if self.unfinished(run_id) or not self._has_work(run_id):
                return False
            if run.executions and remove_run(self._client, run_id).left:
                return False
            run = self._runs.begin_execution(run_id)
            if not self._has_work(run_id):  # too many workers were lost in a row
                return False
            self._submit(run)
            return True

    def alive(self, run_id: str) -> bool:
        """True while a Dagster run of the run is unfinished, its worker at work, waiting for a place, or about to be
        resumed. One whose worker can never start is ended here: Dagster would only count the seconds."""
        unborn = [self._ended_unborn(run) for run in self.unfinished(run_id)]
        return not all(unborn)

    def _ended_unborn(self, run: "dg.DagsterRun") -> bool:
        from dagster import DagsterRunStatus

        if run.status not in (DagsterRunStatus.NOT_STARTED, DagsterRunStatus.STARTING):
            return False
        worker = f"dagster/run-id={run.run_id},{WORKER}"
        try:
            jobs, pods = self._client.list("jobs", worker), self._client.list("pods", worker)
            states = [(job["metadata"]["name"], look_at(self._client, job, pods)) for job in jobs]
        except ServiceUnavailable as error:
            log.warning("nobody knows how the worker of %s is: %s", run.run_id, error)
            return False
        if states and all(state.stuck or state.failed for _, state in states):
            name, state = states[0]
            why = diagnosis.failed(name, state) if state.failed else diagnosis.cannot_start(name, state)
        elif not states and not pods and self._age(run.run_id) > UNBORN_SECONDS:
            why = "The run's Job was never made: whoever was to make it is gone"
        else:
            return False
        self.instance.report_run_failed(run, f"{diagnosis.HEALTH_CHECK}{why}")
        return True

    def _age(self, dagster_run_id: str) -> float:
        record = self.instance.get_run_record_by_id(dagster_run_id)
        return (datetime.now(UTC) - record.update_timestamp.astimezone(UTC)).total_seconds() if record else 0.0

    def blocked(self) -> str | None:
        """See `engine.ports.Executions`: what keeps a pod from starting is told of the pod."""
        return None

    def last_words(self, run_id: str) -> str | None:
        """See `engine.ports.Executions`: run monitoring keeps the account of a deployment's workers."""
        return None

    def clean(self) -> Sequence[str]:
        """Remove what ended runs left in the cluster."""
        return self.reap().lines()

    def reap(self, *, dry_run: bool = False) -> Reaped:
        """The same, with its counts; with `dry_run`, what there is to remove."""
        return reap(self._client, self._ended, dry_run=dry_run)

    def stop(self, run_id: str) -> None:
        """End the run's worker and delete its Jobs, with or without a worker that lives. Idempotent."""
        from dagster import DagsterRunStatus

        for run in self.unfinished(run_id):
            if run.status is DagsterRunStatus.CANCELING:
                self._bury(run)
            elif run.status in (DagsterRunStatus.QUEUED, DagsterRunStatus.NOT_STARTED):
                self.instance.report_run_canceling(run)
                self.instance.report_run_canceled(run)
            else:
                launcher: Any = self.instance.run_launcher
                launcher.real.terminate(run.run_id)
        log.info("stopped %s: %s", run_id, remove_run(self._client, run_id))

    def _bury(self, run: "dg.DagsterRun") -> None:
        """A cancelled run whose worker is no more tells nobody that it has ended, so we do."""
        worker = f"dagster/run-id={run.run_id},{WORKER}"
        if not self._client.list("jobs", worker) and not self._client.list("pods", worker):
            self.instance.report_run_canceled(run, "The run was cancelled, and its worker is gone.")

    # --- what Dagster knows ---------------------------------------------------------------------------------------

    def executions(self, run_id: str) -> Sequence["dg.DagsterRun"]:
        """The Dagster runs of a run, newest first."""
        return _executions(self.instance, run_id)

    def unfinished(self, run_id: str) -> list["dg.DagsterRun"]:
        """Those that have not ended."""
        return [run for run in self.executions(run_id) if not run.is_finished]

    def at_work(self) -> int:
        """How many runs of the deployment have an execution that was launched and has not ended."""
        import dagster as dg

        launched = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
        return self.instance.get_runs_count(dg.RunsFilter(job_name=JOB, statuses=launched))

    def slots(self, plan: RunPlan) -> int:
        """How many task Jobs of a run may be active at once."""
        return min(plan.n_concurrent, self._cap)

    def cancelled_elsewhere(self, run_id: str) -> bool:
        """True if the last execution was cancelled: by hand in the Dagster UI, if the catalog knows of no cancel."""
        from dagster import DagsterRunStatus

        last = next(iter(self.executions(run_id)), None)
        return last is not None and last.status is DagsterRunStatus.CANCELED

    def settlements(self, run_id: str) -> Sequence[Tried]:
        """The Dagster runs that were to settle the run, newest first."""
        import dagster as dg

        records = self.instance.get_run_records(dg.RunsFilter(tags={RUN_TAG: run_id}, job_name=SETTLE_JOB))
        return [
            Tried(
                record.dagster_run.run_id,
                datetime.fromtimestamp(record.end_time or record.update_timestamp.timestamp(), UTC)
                if record.dagster_run.is_finished or self._ended_unborn(record.dagster_run)
                else None,
            )
            for record in records
        ]

    def lost(self, run_id: str) -> dict[int, Lost]:
        """Task index -> what the newest execution that knows it recorded of a worker that left no result; of a run
        worker that never started, if that is the newest, for every task."""
        runs = self.executions(run_id)
        if runs and (unborn := self._unborn(runs[0])):
            return {task.index: unborn for task in self._runs.get_run(run_id).plan.tasks}
        return _lost(self.instance, runs)

    def _unborn(self, run: "dg.DagsterRun") -> Lost | None:
        from dagster import DagsterEventType

        if not run.is_failure:
            return None
        entries = self.instance.all_logs(run.run_id, of_type=DagsterEventType.RUN_FAILURE)
        said = [entry.dagster_event.message or "" for entry in entries if entry.dagster_event]
        return next((known for text in said if (known := diagnosis.lost(text))), None)

    def _ended(self, run_ids: Collection[str]) -> dict[str, Why]:
        found = {run_id: self._why_over(run_id) for run_id in run_ids}
        return {run_id: why for run_id, why in found.items() if why}

    def _why_over(self, run_id: str) -> Why | None:
        try:
            return Why.ENDED if self._runs.get_run(run_id).phase.terminal else None
        except NotFound:
            return Why.UNKNOWN
        except Broken:  # its phase can be told all the same
            return Why.ENDED if run_id in self._runs.ended_runs() else None

    # --- submit ---------------------------------------------------------------------------------------------------

    def _submit(self, run: Run) -> None:
        from dagster._utils.hosted_user_process import recon_job_from_origin

        plan, instance = run.plan, self.instance
        instance.add_dynamic_partitions(PARTITIONS, [partition_key(run.id, task.index) for task in plan.tasks])
        instance.add_dynamic_partitions(RUN_PARTITIONS, [run.id])
        remote, code = self._origins()
        created = instance.create_run_for_job(
            recon_job_from_origin(code).get_definition(),
            run_config={
                "execution": {"config": {"max_concurrent": self.slots(plan)}},
                "ops": {"trial_results": {"ops": {"plan": {"config": {"submitted_run": run.id}}}}},
            },
            tags={
                RUN_TAG: run.id,
                EXECUTION_TAG: str(run.executions),
                TIMEOUT_TAG: str(plan.timeout_seconds),
                "harbor/taskset": plan.taskset_ref,
                "harbor/agent": plan.agent.name,
            },
            remote_job_origin=remote,
            job_code_origin=code,
        )
        # The queue takes a run as it is; only coordinators that launch at once look into the workspace.
        instance.submit_run(created.run_id, workspace=None)  # type: ignore[arg-type]
        log.info("execution %d of %s is Dagster run %s", run.executions, run.id, created.run_id)

    def _origins(self) -> "tuple[RemoteJobOrigin, JobPythonOrigin]":
        """What the webserver would write; the image stands in it, so that a later upgrade does not change this run."""
        from dagster._core.code_pointer import ModuleCodePointer
        from dagster._core.origin import DEFAULT_DAGSTER_ENTRY_POINT, JobPythonOrigin, RepositoryPythonOrigin
        from dagster._core.remote_origin import RemoteJobOrigin, RemoteRepositoryOrigin
        from dagster._core.workspace.load_target import WorkspaceFileTarget

        if not self._image:
            raise Refused("HARBOR_ASSETS_WORKER_IMAGE is not set: it names the image of run workers and task Jobs.")
        path = Path(os.environ["DAGSTER_HOME"], "workspace.yaml")
        locations = WorkspaceFileTarget([str(path)]).create_origins()
        if not locations:
            raise ServiceUnavailable(f"{path} names no code location; put the deployment's configuration back.")
        remote = RemoteJobOrigin(RemoteRepositoryOrigin(locations[0], "__repository__"), JOB)
        repository = RepositoryPythonOrigin(
            sys.executable,
            ModuleCodePointer(DEFINITIONS, "defs", None),
            container_image=self._image,
            entry_point=DEFAULT_DAGSTER_ENTRY_POINT,
        )
        return remote, JobPythonOrigin(JOB, repository)
