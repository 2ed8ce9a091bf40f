"""Run workers as Jobs: dagster-k8s's launcher with our labels, and without taking silence for death."""

import logging
from typing import Any

from dagster._core.launcher.base import CheckRunHealthResult, ResumeRunContext, WorkerStatus
from dagster._core.storage.dagster_run import DagsterRun
from dagster_k8s.container_context import K8sContainerContext
from dagster_k8s.job import UserDefinedDagsterK8sConfig
from dagster_k8s.launcher import K8sRunLauncher

from harbor_assets.cluster.client import ClusterClient
from harbor_assets.cluster.executions import SETTLE_JOB
from harbor_assets.cluster.manifests import RUN_TAG, other_config, run_worker_config, settle_config

log = logging.getLogger(__name__)


class RunWorkers(K8sRunLauncher):
    """What `ClusterRunLauncher` stands for."""

    def __init__(self, **config: Any) -> None:
        # The schema asks for a config map that this launcher never mounts: the instance travels in the command line.
        super().__init__(instance_config_map="unused", **{"dagster_home": "/var/lib/dagster", **config})
        client = ClusterClient(self.job_namespace)
        # Deleting with background propagation needs no rights on pods, which the stock call reads and deletes.
        self._api_client.delete_job = lambda job_name, namespace: client.delete_job(job_name)  # type: ignore[method-assign]

    def get_container_context_for_run(self, dagster_run: DagsterRun) -> K8sContainerContext:
        """Ours are defaults: what the deployment configures stands above them."""
        stock = super().get_container_context_for_run(dagster_run)
        run_id = dagster_run.tags.get(RUN_TAG)
        if run_id is None:
            config = other_config()
        else:
            config = settle_config(run_id) if dagster_run.job_name == SETTLE_JOB else run_worker_config(run_id)
        ours = UserDefinedDagsterK8sConfig.from_dict(config)
        return K8sContainerContext(run_k8s_config=ours).merge(stock)

    def resume_run(self, context: ResumeRunContext) -> None:
        """Only evaluations go on in another worker; what settles a run is tried anew, from the start."""
        if context.dagster_run.job_name == SETTLE_JOB:
            self._instance.report_run_failed(context.dagster_run, "The worker was lost; settling is tried again.")
            return
        super().resume_run(context)

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """An API server that does not answer is no dead worker: the daemon would start another beside the living one,
        again at every look, and then fail the run while all of them go on."""
        result = super().check_run_worker_health(run)
        if result.status is not WorkerStatus.UNKNOWN:
            return result
        if "could not be found" in (result.msg or ""):
            return CheckRunHealthResult(WorkerStatus.FAILED, result.msg)
        log.warning("nobody knows how the worker of %s is: %s", run.run_id, (result.msg or "")[:300])
        return CheckRunHealthResult(WorkerStatus.RUNNING, result.msg)
