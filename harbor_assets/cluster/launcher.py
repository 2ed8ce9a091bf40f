"""The run launcher of a deployment, as every Dagster process loads it.

Loading an instance constructs its launcher, in the code server and in every step too. So this one imports no Kubernetes
library and reads no token until somebody launches, ends or asks after a run: that saves each step 0.4 s of CPU and
54 MB, and lets pods go without a token.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import dagster as dg
from dagster._core.launcher.base import (
    CheckRunHealthResult,
    LaunchRunContext,
    ResumeRunContext,
    RunLauncher,
)
from dagster._core.storage.dagster_run import DagsterRun
from dagster._serdes import ConfigurableClass, ConfigurableClassData

from harbor_assets.cluster.manifests import STEP_RESOURCES, TRIAL_RESOURCES, WorkerPods

if TYPE_CHECKING:
    from harbor_assets.cluster.workers import RunWorkers

_OURS = ("trial_service_account", "trial_resources", "step_resources")


class ClusterRunLauncher(RunLauncher, ConfigurableClass):
    """One Job per Dagster run; made by `workers.RunWorkers`, which this stands for.

    The configuration is that of dagster-k8s's own launcher as far as it is named here, and what task workers get:
    `trial_service_account` (with the right to make sandboxes) and, if the sizes do not fit, `trial_resources` and
    `step_resources` as Kubernetes writes them.
    """

    def __init__(self, inst_data: ConfigurableClassData | None = None, **config: Any) -> None:
        self._inst_data, self._config = inst_data, config
        self._made: RunWorkers | None = None
        super().__init__()

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        return self._inst_data

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        """The schema of `run_launcher.config` in dagster.yaml."""
        optional = {
            "dagster_home": dg.StringSource,
            "postgres_password_secret": dg.StringSource,
            "image_pull_policy": dg.StringSource,
            "image_pull_secrets": [dg.Permissive()],
            "env_vars": [str],
            "env_secrets": [dg.StringSource],
            "env_config_maps": [dg.StringSource],
            "volumes": [dg.Permissive()],
            "volume_mounts": [dg.Permissive()],
            "labels": dg.Permissive(),
            "run_k8s_config": dg.Permissive(),
            "trial_resources": dg.Permissive(),
            "step_resources": dg.Permissive(),
        }
        return {
            "job_namespace": dg.StringSource,
            "service_account_name": dg.StringSource,
            "trial_service_account": dg.StringSource,
            **{name: dg.Field(kind, is_required=False) for name, kind in optional.items()},
        }

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> Self:
        return cls(inst_data=inst_data, **config_value)

    @property
    def worker_pods(self) -> WorkerPods:
        """What task workers get."""
        return WorkerPods(
            trial_service_account=self._config["trial_service_account"],
            trial_resources=self._config.get("trial_resources") or TRIAL_RESOURCES,
            step_resources=self._config.get("step_resources") or STEP_RESOURCES,
        )

    @property
    def namespace(self) -> str:
        return self._config["job_namespace"]

    @property
    def real(self) -> "RunWorkers":
        """What does the work."""
        if self._made is None:
            from harbor_assets.cluster.workers import RunWorkers
            from harbor_assets.settings import Settings

            config = {name: value for name, value in self._config.items() if name not in _OURS}
            config["run_k8s_config"] = placed(config.get("run_k8s_config") or {}, Settings.load().worker_pods)
            self._made = RunWorkers(**config)
            self._made.register_instance(self._instance)
        return self._made

    def __getattr__(self, name: str) -> Any:
        """What dagster-k8s reads of its launcher when it makes a step's Job (`image_pull_policy` and so on)."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.real, name)

    def launch_run(self, context: LaunchRunContext) -> None:
        self.real.launch_run(context)

    def resume_run(self, context: ResumeRunContext) -> None:
        self.real.resume_run(context)

    def terminate(self, run_id: str) -> bool:
        """End the run's worker; False if the run has ended."""
        return bool(self.real.terminate(run_id))

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        return self.real.check_run_worker_health(run)

    def get_run_worker_debug_info(self, run: DagsterRun, include_container_logs: bool | None = True) -> str | None:
        return self.real.get_run_worker_debug_info(run, include_container_logs)

    @property
    def supports_resume_run(self) -> bool:
        return True

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    @property
    def supports_run_worker_crash_recovery(self) -> bool:
        return True


def placed(run_config: Mapping[str, Any], pod_fields: str) -> dict[str, Any]:
    """A launcher's `run_k8s_config` with what HARBOR_ASSETS_WORKER_PODS says of pods (JSON, or empty)."""
    added = json.loads(pod_fields) if pod_fields else {}
    return {**run_config, "pod_spec_config": {**(run_config.get("pod_spec_config") or {}), **added}}
