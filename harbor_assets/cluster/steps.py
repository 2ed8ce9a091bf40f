"""Steps as Jobs: dagster-k8s's step handler with our names and sizes, and with a mind for what can go wrong.

What is overridden and why, each seen on a cluster: a Job waits until one of the run's Jobs is really over, not only its
step; a refused Job fails its step, not the run; a Job that is there already is adopted; an API server that does not
answer kills nobody; a dead or stuck pod is told with its reason; a cancel deletes the Jobs although the run could be
resumed.
"""

import logging
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from dagster import DagsterInstance
from dagster._core.events import DagsterEvent, EngineEventData
from dagster._core.execution.context.system import PlanOrchestrationContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.retries import RetryMode
from dagster._core.executor.step_delegating import CheckStepHealthResult, StepDelegatingExecutor, StepHandlerContext
from dagster._core.storage.dagster_run import DagsterRun, DagsterRunStatus
from dagster_k8s.container_context import K8sContainerContext
from dagster_k8s.executor import K8sStepHandler
from dagster_k8s.job import UserDefinedDagsterK8sConfig

from harbor_assets.cluster import diagnosis
from harbor_assets.cluster.client import ClusterClient, Object
from harbor_assets.cluster.launcher import ClusterRunLauncher
from harbor_assets.cluster.looking import look_at
from harbor_assets.cluster.manifests import (
    COMPONENT_LABEL,
    RUN_TAG,
    STEP_WORKER,
    TASK_LABEL,
    TIMEOUT_TAG,
    step_config,
    step_job_name,
)
from harbor_assets.domain.errors import Conflict, NotFound, Refused, ServiceUnavailable
from harbor_assets.domain.plans import RUN_TIMEOUT_MAX_SECONDS

log = logging.getLogger(__name__)

LOOP_SECONDS = 0.5  # how often ended steps are noticed and their slots given on; one indexed query each time
HEALTH_SECONDS = 5  # two lists a run, from the API server's cache
SILENT_EXIT_GRACE_SECONDS = 20.0  # a step's last events reach the database after its process ended
LINGER_SECONDS = 60.0  # a process whose step has told its result has nothing left to do; it ends within a second or two
_LIST_SECONDS = 2.0  # one look serves all steps of a health check
_PAUSE_SECONDS = 5.0  # between two attempts to reach an API server that does not answer


class JobSteps(K8sStepHandler):
    """One step, one Job. Of task Jobs, never more than `max_active` are active at once."""

    def __init__(self, launcher: Any, client: ClusterClient | None = None, *, max_active: int | None = None) -> None:
        # Not the stock constructor: it reads a kubeconfig and builds clients that are not used here.
        if not isinstance(launcher, ClusterRunLauncher):
            raise TypeError(f"the executor needs the run launcher ClusterRunLauncher, not {type(launcher).__name__}")
        self._executor_image = None
        self._executor_container_context = K8sContainerContext()
        self._per_step_k8s_config: dict[str, Any] = {}
        self._enable_owner_references = False
        self._launcher, self._client = launcher, client or ClusterClient(launcher.namespace)
        self._api_client = self  # type: ignore[assignment] - of it, launch_step asks for the one method below
        self._max_active = max_active
        self._room = 0  # Jobs that may surely be made now; only a look at the cluster raises it
        self._waiting: dict[str, Any] = {}  # Job name -> the Job, until there is room and the API server answers
        self._pause_until = float("-inf")
        self._refused: dict[str, str] = {}  # Job name -> why it was not taken
        self._ended: dict[str, float] = {}  # Job name -> when its step told its result
        self._silent_since: dict[str, float] = {}
        self._jobs: dict[str, Object] = {}
        self._pods: dict[str, list[Object]] = {}
        self._listed_at = float("-inf")

    # --- make a Job -----------------------------------------------------------------------------------------------

    def _get_k8s_step_job_name(self, step_handler_context: StepHandlerContext) -> str:
        key = self._get_step_key(step_handler_context)
        state = step_handler_context.execute_step_args.known_state
        attempt = state.get_retry_state().get_attempt_count(key) if state else 0
        return step_job_name(step_handler_context.dagster_run.tags[RUN_TAG], key, attempt)

    def _get_container_context(self, step_handler_context: StepHandlerContext) -> K8sContainerContext:
        tags = step_handler_context.dagster_run.tags
        ours = step_config(
            tags[RUN_TAG],
            self._get_step_key(step_handler_context),
            self._launcher.worker_pods,
            timeout_seconds=int(tags.get(TIMEOUT_TAG, RUN_TIMEOUT_MAX_SECONDS)),
        )
        context = super()._get_container_context(step_handler_context)
        return context.merge(K8sContainerContext(run_k8s_config=UserDefinedDagsterK8sConfig.from_dict(ours)))

    def create_namespaced_job_with_retries(self, body: Any, namespace: str) -> None:
        """Called by the stock `launch_step` with the finished Job. Never raises: the executor would end every step."""
        self._refused.pop(body.metadata.name, None)
        self._waiting[body.metadata.name] = body
        self.send_waiting()

    def send_waiting(self) -> None:
        """Make the Jobs that wait, as far as there is room for them. Costs nothing if none waits."""
        if not self._waiting or time.monotonic() < self._pause_until:
            return
        try:
            for name, body in list(self._waiting.items()):
                if self._room <= 0:
                    self._room = self._count_room(body.metadata.labels["dagster/run-id"])
                if self._room <= 0:
                    return
                self._create(body, name)
                self._room -= 1
                del self._waiting[name]
        except ServiceUnavailable as error:
            log.warning("%d Jobs are not made yet: %s", len(self._waiting), error)
            self._pause_until = time.monotonic() + _PAUSE_SECONDS

    def _count_room(self, dagster_run_id: str) -> int:
        """How many Jobs may be made. A step's result comes before the end of its process, and a worker that took a run
        over did not make all of its Jobs: so what counts is what the API server says."""
        if self._max_active is None:
            return len(self._waiting)
        listed = self._client.list("jobs", f"{_steps_of(dagster_run_id)},{TASK_LABEL}", unfinished=True)
        active = [job["metadata"]["name"] for job in listed if not diagnosis.job_is_over(job)]
        for name in active:
            if time.monotonic() - self._ended.get(name, float("inf")) > LINGER_SECONDS:
                log.warning("deleting Job %s: its step has ended, its process has not", name)
                self._client.delete_job(name)
        return self._max_active - len(active)

    def step_ended(self, run_id: str, step_key: str) -> None:
        """The step has told its result; its Job is expected to be over soon."""
        self._ended.setdefault(step_job_name(run_id, step_key), time.monotonic())

    def _create(self, body: Any, name: str) -> None:
        try:
            self._client.create_job(body)
        except Conflict as conflict:
            self._adopt(body, name, str(conflict))
        except Refused as refused:  # a quota, an admission rule, an invalid value
            self._refused[name] = diagnosis.refused(name, str(refused))

    def _adopt(self, body: Any, name: str, said: str) -> None:
        """A Job of that name is there: ours if it is this Dagster run's (made before its worker was lost)."""
        try:
            mine = self._client.job(name)["metadata"]["labels"].get("dagster/run-id")
        except NotFound as gone:
            raise ServiceUnavailable(f"Job {name} was there a moment ago") from gone
        if mine == body.metadata.labels["dagster/run-id"]:
            log.info("adopted Job %s", name)
        else:
            self._refused[name] = diagnosis.refused(name, f"{said} It belongs to another execution.")

    # --- look after it --------------------------------------------------------------------------------------------

    def check_step_health(self, step_handler_context: StepHandlerContext) -> CheckStepHealthResult:
        """Healthy unless something is known to be wrong; what is wrong is told with the pod's own words."""
        name = self._get_k8s_step_job_name(step_handler_context)
        if name in self._waiting:
            return CheckStepHealthResult.healthy()
        if name in self._refused:
            return CheckStepHealthResult.unhealthy(self._refused[name])
        try:
            problem = self._problem(name, step_handler_context.dagster_run)
        except ServiceUnavailable as error:
            log.warning("nobody knows how Job %s is: %s", name, error)
            problem = None
        return CheckStepHealthResult.unhealthy(problem) if problem else CheckStepHealthResult.healthy()

    def _problem(self, name: str, run: DagsterRun) -> str | None:
        self._look(run)
        job = self._jobs.get(name)
        if job is None:  # the list came from a cache: ask for this one before giving it up
            try:
                job = self._client.job(name)
            except NotFound:
                return f"Job {name} is gone, and its step told no result"
        state = look_at(self._client, job, self._pods.get(name, ()))
        if state.failed:
            return diagnosis.failed(name, state)
        if state.succeeded:
            since = self._silent_since.setdefault(name, time.monotonic())
            if time.monotonic() - since > SILENT_EXIT_GRACE_SECONDS:
                return f"Job {name} ended without a result of its step"
        if state.stuck:
            self._client.delete_job(name)
            return diagnosis.cannot_start(name, state)
        return None

    def _look(self, run: DagsterRun) -> None:
        if time.monotonic() - self._listed_at < _LIST_SECONDS:
            return
        selector = _steps_of(run.run_id)
        self._jobs = {job["metadata"]["name"]: job for job in self._client.list("jobs", selector, cached=True)}
        self._pods = {}
        for pod in self._client.list("pods", selector, cached=True):
            self._pods.setdefault(pod["metadata"]["labels"].get("batch.kubernetes.io/job-name", ""), []).append(pod)
        self._listed_at = time.monotonic()

    # --- end it ---------------------------------------------------------------------------------------------------

    def terminate_step(self, step_handler_context: StepHandlerContext) -> Iterator[DagsterEvent]:
        """Delete the step's Job; its process gets SIGTERM."""
        name = self._get_k8s_step_job_name(step_handler_context)
        yield DagsterEvent.engine_event(
            step_handler_context.get_step_context(self._get_step_key(step_handler_context)),
            message=f"Deleting Job {name}",
            event_specific_data=EngineEventData(),
        )
        self._waiting.pop(name, None)
        try:
            self._client.delete_job(name)
        except ServiceUnavailable as error:  # the upkeep deletes by label what is left
            log.warning("Job %s is not deleted yet: %s", name, error)

    def delete_all(self, run: DagsterRun) -> list[str]:
        """Delete every Job of the run's steps; their names."""
        self._waiting.clear()
        names = [job["metadata"]["name"] for job in self._client.list("jobs", _steps_of(run.run_id))]
        return [name for name in names if self._client.delete_job(name)]


def _steps_of(dagster_run_id: str) -> str:
    return f"dagster/run-id={dagster_run_id},{COMPONENT_LABEL}={STEP_WORKER}"


class JobExecutor(StepDelegatingExecutor):
    """The stock loop, which a cancel ends together with its Jobs."""

    def __init__(self, steps: JobSteps, *, retries: RetryMode, max_concurrent: int | None) -> None:
        super().__init__(
            steps,
            retries=retries,
            max_concurrent=max_concurrent,
            sleep_seconds=LOOP_SECONDS,
            check_step_health_interval_seconds=HEALTH_SECONDS,
            should_verify_step=True,
        )
        self._steps = steps
        self._tags: Mapping[str, str] = {}

    def _pop_events(self, instance: DagsterInstance, run_id: str, seen_storage_ids: set[int]) -> Sequence[DagsterEvent]:
        """What the steps have told since; the loop asks in each of its turns, so here Jobs that wait get theirs."""
        events = super()._pop_events(instance, run_id, seen_storage_ids)
        for event in events:
            if event.step_key and (event.is_step_success or event.is_step_failure):
                self._steps.step_ended(self._tags[RUN_TAG], event.step_key)
        self._steps.send_waiting()
        return events

    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Generator[DagsterEvent, Any, None]:
        """In `finally`, since an interrupted execution leaves by an exception, and tells its steps nothing where the
        run could be resumed."""
        self._tags = plan_context.dagster_run.tags
        try:
            yield from super().execute(plan_context, execution_plan)
        finally:
            run = plan_context.instance.get_run_by_id(plan_context.run_id)
            if run and run.status in (DagsterRunStatus.CANCELING, DagsterRunStatus.CANCELED):
                try:
                    names = self._steps.delete_all(run)
                    message = f"Cancelled: deleted {len(names)} Jobs: {', '.join(names)}"
                except ServiceUnavailable as error:
                    message = f"Cancelled; the Jobs are left to the upkeep, which deletes by label: {error}"
                DagsterEvent.engine_event(plan_context, message, EngineEventData())
