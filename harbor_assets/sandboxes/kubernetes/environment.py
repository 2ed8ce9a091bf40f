"""The `kubernetes` sandbox as a Harbor environment: one pod per sandbox, a second one for a separate verifier.

Used as `EnvironmentConfig(import_path="harbor_assets.sandboxes.kubernetes.environment:KubernetesEnvironment",
kwargs={...})`; all kwargs are JSON.
"""

import contextlib
import time
from collections.abc import Generator, Mapping
from dataclasses import asdict
from typing import Any, override

from harbor.environments.base import ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.models.task.config import NetworkPolicy as TaskPolicy

from harbor_assets.domain.plans import ImageConfig
from harbor_assets.domain.profiles import NetworkPolicy, SandboxProfile
from harbor_assets.sandboxes.environment import SandboxEnvironment
from harbor_assets.sandboxes.errors import SandboxDiskFull, SandboxLost, SandboxStartError, UnknownUser
from harbor_assets.sandboxes.kubernetes import network, runner
from harbor_assets.sandboxes.kubernetes.clients import Clients
from harbor_assets.sandboxes.kubernetes.kube import Kube
from harbor_assets.sandboxes.kubernetes.manifests import (
    Owner,
    Sandbox,
    pod,
    pod_name,
)
from harbor_assets.sandboxes.kubernetes.pod import SandboxPod
from harbor_assets.sandboxes.kubernetes.switching import NetworkSwitch
from harbor_assets.sandboxes.kubernetes.transfer import PodChannel
from harbor_assets.sandboxes.output import Output
from harbor_assets.sandboxes.scripts import script

CANNOT_RUN = 126  # as a shell says it
SECONDS_BEYOND = 60  # a pod's lifetime beyond the trial's deadline: the worker ends first, and says why


class KubernetesEnvironment(SandboxEnvironment):
    """A task's environment as a pod.

    `images`, `image_config`: by role (`agent`, `verifier`), the image to run and what it says of its user, workdir and
    environment. `sizing`: see SandboxEnvironment. `profile`: a SandboxProfile. `owner`: the object that takes the pod
    with it; `worker_pod`: the pod that we are in. `deadline_seconds`: how long from now the sandbox may be needed;
    waiting for a place counts. `keep_seconds`: how long the pod stays after its trial, to be looked at.

    Raises SandboxStartError and its kin from `start`; SandboxLost and its kin, ControlPlaneError later.
    """

    DOWNLOAD_MB = 20 * 1024  # above any suite's artifacts, below what would fill a worker's node unseen

    def __init__(
        self,
        *args: Any,
        namespace: str,
        run_id: str,
        task_index: int,
        images: Mapping[str, str],
        profile: Mapping[str, Any],
        image_config: Mapping[str, Mapping[str, Any]] | None = None,
        owner: Mapping[str, str] | None = None,
        worker_pod: str | None = None,
        deadline_seconds: float | None = None,
        keep_seconds: int = 0,
        **kwargs: Any,
    ) -> None:
        self._namespace, self._run_id, self._task_index = namespace, run_id, task_index
        self._profile = SandboxProfile.model_validate(profile)
        self._owner = Owner.model_validate(owner) if owner else None
        self._worker_pod, self._keep_seconds = worker_pod, keep_seconds
        self._deadline = time.monotonic() + (deadline_seconds or self._profile.max_lifetime_seconds)
        self._kube: Kube | None = None
        self._pod: SandboxPod | None = None
        self._runner: runner.Runner | None = None
        self._kills = self._foreign_kills = 0  # by the memory limit, by a node short of memory; so far
        super().__init__(*args, **kwargs)
        self._image = images.get(self._role) or images.get("agent")
        self._image_config = ImageConfig.model_validate((image_config or {}).get(self._role) or {})
        self._network = NetworkSwitch(namespace, self._profile, self._record, until=self._deadline + SECONDS_BEYOND)

    @staticmethod
    @override
    def type() -> str:
        return "kubernetes"

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(
            gpus=True,
            disable_internet=True,
            network_allowlist=True,
            network_allowlist_hostnames=True,
            network_allowlist_wildcard_hostnames=True,
            dynamic_network_policy=True,
        )

    @classmethod
    @override
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(
            cpu_limit=True, cpu_request=True, memory_limit=True, memory_request=True, fractional_cpus=True
        )

    # -- life --------------------------------------------------------------------------------------------------------

    @override
    async def start(self, force_build: bool) -> None:
        began = time.monotonic()
        if not self._image:
            raise SandboxStartError(f"the plan has no image for the {self._role} of this task; build its images first")
        if self._host_mounts:
            raise SandboxStartError("a sandbox in a cluster mounts no folders of the machine; remove `mounts`")
        self._kube = await Clients.take()
        manifest = self._manifest(await self._network.prepare(_policy(self.network_policy)))
        self._pod = box = SandboxPod(
            self._kube, self._namespace, manifest, worker_pod=self._worker_pod, logger=self.logger
        )
        self._runner = runner.Runner(box)
        self._record.set(
            kind="kubernetes",
            role=self._role,
            pod=box.name,
            namespace=self._namespace,
            image=self._image,
            profile=self._profile.name,
            resources=manifest["spec"]["containers"][0]["resources"],
            limits={"asked": asdict(self._sizes())},
        )
        try:
            await self._begin(box, began)
        except BaseException as error:
            self._record.set(start_error=f"{type(error).__name__}: {error}", waited_for=box.waited_for)
            self._write_record()
            raise

    async def _begin(self, box: SandboxPod, began: float) -> None:
        self.logger.info("sandbox %s is being made from %s", box.name, self._image)
        await box.create(self._deadline)
        await box.until_running(self._deadline, self._profile.start_grace_seconds)
        ready = time.monotonic()
        node = (box.state or {}).get("spec", {}).get("nodeName")
        self.logger.info("sandbox %s runs on node %s after %.1f s", box.name, node, ready - began)
        await self._network.begin(box, _policy(self.network_policy), *self._making_folders())  # before anything runs
        box.keep_spare()
        await self._upload_environment_dir_after_start()
        state = box.state or {}
        self._record.set(
            uid=box.uid,
            node=state.get("spec", {}).get("nodeName"),
            image_id=next((c.get("imageID") for c in state.get("status", {}).get("containerStatuses", [])), None),
            waited_for=box.waited_for,
            ready_seconds=round(ready - began, 3),
            start_seconds=round(time.monotonic() - began, 3),
        )
        self._write_record()

    @override
    async def stop(self, delete: bool) -> None:
        box, self._pod = self._pod, None
        if box is None:
            await self._release()
            return
        try:
            self._record.set(ended=True)
            until = await box.keep(self._keep_seconds) if self._keep_seconds else None
            if until is None:
                await box.delete()
            else:
                self._record.set(kept_until=until.isoformat())
        finally:
            self._record.set(reconnects=self._runner.reconnects if self._runner else 0)
            self._write_record()
            await self._release()

    async def _release(self) -> None:
        kube, self._kube = self._kube, None
        if kube is not None:
            await Clients.give_back(kube)

    def _manifest(self, label: network.Label) -> dict[str, Any]:
        left = max(1, int(self._deadline - time.monotonic()) + SECONDS_BEYOND)
        assert self._image is not None
        try:
            return pod(
                Sandbox(
                    name=pod_name(self._run_id, self._task_index, self.session_id, self._role),
                    image=self._image,
                    role=self._role,
                    run_id=self._run_id,
                    task_index=self._task_index,
                    session=self.session_id,
                    network=label,
                    lifetime_seconds=min(left, self._profile.max_lifetime_seconds) + self._keep_seconds,
                    sizes=self._sizes(),
                    profile=self._profile,
                    owner=self._owner,
                )
            )
        except ValueError as error:
            raise SandboxStartError(str(error)) from error

    def _making_folders(self) -> list[str]:
        """Shell commands. The workdir too, as an engine does: every command starts there."""
        workdir = self.task_env_config.workdir
        own = [self._ensure_dirs_command([workdir], chmod=False)] if workdir else []
        return [*own, self._ensure_dirs_command(self._folders())]

    # -- network -----------------------------------------------------------------------------------------------------

    @override
    async def set_network_policy(self, network_policy: TaskPolicy) -> None:
        self.validate_network_policy_support(network_policy)
        if network_policy != self._network_policy:
            await self._apply_network_policy(network_policy)
            self._network_policy = network_policy

    @override
    async def _apply_network_policy(self, network_policy: TaskPolicy) -> None:
        with self._watched():
            await self._network.ask_for(self._running(), _policy(network_policy))

    @override
    @contextlib.contextmanager
    def scoped_exec_env(self, env: dict[str, str]) -> Generator[None, None, None]:
        """Harbor wraps an agent's installation in this, and then its run: the first end is that of the installation."""
        with super().scoped_exec_env(env):
            yield
        if self._role == "agent":
            self._network.end_installation()

    # -- commands ----------------------------------------------------------------------------------------------------

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        with self._watched():
            await self._network.settle(self._running())
            return await self._run(command, cwd=cwd, env=env, timeout_sec=timeout_sec, user=user)

    async def _run(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        self._running()
        assert self._runner is not None
        who = self._resolve_user(user)
        who = str(self._image_config.user or "" if who is None else who)
        body = script(
            command,
            cwd=cwd or self.task_env_config.workdir or self._image_config.workdir,
            env={**self._image_config.env, **self._network.variables, **(self._merge_env(env) or {})},
        )
        try:
            done = await self._runner.run(
                body, user="" if who in ("0", "root") else who, timeout=timeout_sec or None, on_chunk=self._on_chunk()
            )
        except UnknownUser as error:  # the task's fault, and told as the other sandboxes tell it
            self._record.add_missing_user(who)
            return self._result(Output(CANNOT_RUN, b"", f"sandbox: {error}\n".encode()), timeout_sec)
        kills, self._kills = max(0, done.kills - self._kills), max(done.kills, self._kills)
        self._foreign_kills = max(done.foreign_kills, self._foreign_kills)
        self._record.set(oom_kills=self._kills, foreign_oom_kills=self._foreign_kills)
        return self._result(Output(done.code, done.out, done.err, done.dropped, kills), timeout_sec)

    @override
    def _channel(self) -> PodChannel:
        return PodChannel(self._running())

    # -- helpers -----------------------------------------------------------------------------------------------------

    @override
    @contextlib.contextmanager
    def _watched(self) -> Generator[None, None, None]:
        with super()._watched():
            try:
                yield
            except SandboxDiskFull:
                self._record.set(disk_limit_hits=1)
                raise

    def _running(self) -> SandboxPod:
        if self._pod is None:
            raise SandboxLost("the sandbox is not running")
        return self._pod


def _policy(policy: TaskPolicy) -> NetworkPolicy:
    return NetworkPolicy(mode=policy.network_mode.value, hosts=tuple(policy.allowed_hosts))
