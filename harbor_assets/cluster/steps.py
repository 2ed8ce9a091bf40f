"""Steps as Jobs: dagster-k8s's step handler with our names and sizes, and with a mind for what can go wrong.

What is overridden and why, each seen on a cluster: a refused Job fails its step, not the run; a Job that is there
already is adopted; an API server that does not answer kills nobody; a dead or stuck pod is told with its reason; a
cancel deletes the Jobs although the run could be resumed.
"""

import logging
import time
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from typing import Any

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
from harbor_assets.cluster.manifests import RUN_TAG, TIMEOUT_TAG, step_config, step_job_name
from harbor_assets.domain.errors import Conflict, NotFound, Refused, ServiceUnavailable
from harbor_assets.domain.plans import RUN_TIMEOUT_MAX_SECONDS

log = logging.getLogger(__name__)

LOOP_SECONDS = 0.5  # how often ended steps are noticed and their slots given on; one indexed query each time
HEALTH_SECONDS = 5  # two lists a run, from the API server's cache
SILENT_EXIT_GRACE_SECONDS = 20.0  # a step's last events reach the database after its process ended
_LIST_SECONDS = 2.0  # one look serves all steps of a health check


class JobSteps(K8sStepHandler):
    """One step, one Job."""

    def __init__(self, launcher: Any, client: ClusterClient | None = None) -> None:
        # Not the stock constructor: it reads a kubeconfig and builds clients that are not used here.
        if not isinstance(launcher, ClusterRunLauncher):
            raise TypeError(f"the executor needs the run launcher ClusterRunLauncher, not {type(launcher).__name__}")
        self._executor_image = None
        self._executor_container_context = K8sContainerContext()
        self._per_step_k8s_config: dict[str, Any] = {}
        self._enable_owner_references = False
        self._launcher, self._client = launcher, client or ClusterClient(launcher.namespace)
        self._api_client = self  # type: ignore[assignment] - of it, launch_step asks for the one method below
        self._refused: dict[str, str] = {}  # Job name -> why it was not taken
        self._unsent: dict[str, Any] = {}  # Job name -> the Job, while the API server does not answer
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
        self._create(body, body.metadata.name)

    def _create(self, body: Any, name: str) -> None:
        self._unsent.pop(name, None)
        self._refused.pop(name, None)
        try:
            self._client.create_job(body)
        except Conflict as conflict:
            self._adopt(body, name, str(conflict))
        except Refused as refused:  # a quota, an admission rule, an invalid value
            self._refused[name] = diagnosis.refused(name, str(refused))
        except ServiceUnavailable as error:
            log.warning("Job %s is not made yet: %s", name, error)
            self._unsent[name] = body

    def _adopt(self, body: Any, name: str, said: str) -> None:
        """A Job of that name is there: ours if it is this Dagster run's (made before its worker was lost)."""
        try:
            mine = self._client.job(name)["metadata"]["labels"].get("dagster/run-id")
        except (NotFound, ServiceUnavailable):
            self._unsent[name] = body
            return
        if mine == body.metadata.labels["dagster/run-id"]:
            log.info("adopted Job %s", name)
        else:
            self._refused[name] = diagnosis.refused(name, f"{said} It belongs to another execution.")

    # --- look after it --------------------------------------------------------------------------------------------

    def check_step_health(self, step_handler_context: StepHandlerContext) -> CheckStepHealthResult:
        """Healthy unless something is known to be wrong; what is wrong is told with the pod's own words."""
        name = self._get_k8s_step_job_name(step_handler_context)
        if name in self._unsent:
            self._create(self._unsent[name], name)
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
        state = diagnosis.job_state(job, self._pods.get(name, ()), datetime.now(UTC))
        if state.failed:
            return f"Job {name} failed: {state.facts}"
        if state.succeeded:
            since = self._silent_since.setdefault(name, time.monotonic())
            if time.monotonic() - since > SILENT_EXIT_GRACE_SECONDS:
                return f"Job {name} ended without a result of its step"
        if state.stuck:
            self._client.delete_job(name)
            return diagnosis.cannot_start(name, state.facts)
        return None

    def _look(self, run: DagsterRun) -> None:
        if time.monotonic() - self._listed_at < _LIST_SECONDS:
            return
        selector = _steps_of(run)
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
        self._unsent.pop(name, None)
        try:
            self._client.delete_job(name)
        except ServiceUnavailable as error:  # the upkeep deletes by label what is left
            log.warning("Job %s is not deleted yet: %s", name, error)

    def delete_all(self, run: DagsterRun) -> list[str]:
        """Delete every Job of the run's steps; their names."""
        names = [job["metadata"]["name"] for job in self._client.list("jobs", _steps_of(run))]
        return [name for name in names if self._client.delete_job(name)]


def _steps_of(run: DagsterRun) -> str:
    return f"dagster/run-id={run.run_id},app.kubernetes.io/component=step_worker"


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

    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Generator[DagsterEvent, Any, None]:
        """In `finally`, since an interrupted execution leaves by an exception, and tells its steps nothing where the
        run could be resumed."""
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
