"""The `kubernetes` sandbox as a Harbor environment: one pod per sandbox, a second one for a separate verifier.

Used as `EnvironmentConfig(import_path="harbor_assets.sandboxes.kubernetes.environment:KubernetesEnvironment",
kwargs={...})`; all kwargs are JSON.
"""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Generator, Mapping
from typing import Any, ClassVar, override

from harbor.environments.base import ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.models.task.config import NetworkPolicy as TaskPolicy

from harbor_assets.domain.plans import ImageConfig
from harbor_assets.domain.profiles import NetworkPolicy, SandboxProfile
from harbor_assets.sandboxes.environment import SandboxEnvironment
from harbor_assets.sandboxes.errors import ControlPlaneError, SandboxLost, SandboxStartError
from harbor_assets.sandboxes.kubernetes import network, passes, runner
from harbor_assets.sandboxes.kubernetes.kube import Kube, StreamBroken, from_kubeconfig, in_cluster
from harbor_assets.sandboxes.kubernetes.manifests import (
    FOLDER,
    LABEL_NETWORK,
    Owner,
    Sandbox,
    pod,
    pod_name,
)
from harbor_assets.sandboxes.kubernetes.pod import SandboxPod
from harbor_assets.sandboxes.kubernetes.proxy import secret
from harbor_assets.sandboxes.kubernetes.transfer import PodChannel
from harbor_assets.sandboxes.output import Output

PROVE_SECONDS = 20  # for a mode to be in force; the slowest seen took one second
SECOND_OF_DEADLINE = 60  # a pod's lifetime beyond the trial's deadline: the worker ends first, and says why
_PROVEN = {
    3: "an address that is to be closed answers; does the cluster's network plugin enforce NetworkPolicies, and are "
    "those of this project installed in the namespace, with the addresses of its nodes?",
    4: "the address that is to be open does not answer",
    5: "the image has no program that can prove it (bash with /dev/tcp)",
    6: "connections of the phase before cannot be ended",
    7: "processes of the phase before cannot be ended",
}


class KubernetesEnvironment(SandboxEnvironment):
    """A task's environment as a pod.

    `images`, `image_config`: by role (`agent`, `verifier`), the image to run and what it says of its user, workdir and
    environment. `sizing`: see SandboxEnvironment. `profile`: a SandboxProfile. `owner`: the object that takes the pod
    with it. `deadline_seconds`: how long from now the sandbox may be needed; waiting for a place counts.

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
        deadline_seconds: float | None = None,
        **kwargs: Any,
    ) -> None:
        self._namespace, self._run_id, self._task_index = namespace, run_id, task_index
        self._profile = SandboxProfile.model_validate(profile)
        self._owner = Owner.model_validate(owner) if owner else None
        self._deadline = time.monotonic() + (deadline_seconds or self._profile.max_lifetime_seconds)
        self._kube: Kube | None = None
        self._pod: SandboxPod | None = None
        self._runner: runner.Runner | None = None
        self._reach: network.Reach | None = None  # as proven
        self._wanted: network.Reach | None = None  # as asked for: a wider one is set when the next command needs it
        self._phase: network.Phase = "install"
        self._installed = False  # the installation has just ended, and what it left is still there
        self._policy_now: TaskPolicy | None = None
        self._egress: str | None = None
        self._proxy: dict[str, str] = {}
        self._switching = asyncio.Lock()
        self._api, self._dns = "api", "dns"
        self._kills = 0
        super().__init__(*args, **kwargs)
        self._image = images.get(self._role) or images.get("agent")
        self._image_config = ImageConfig.model_validate((image_config or {}).get(self._role) or {})

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
        self._kube = await _Clients.take()
        first = self._reach_of(self.network_policy)
        if first.proxied:
            self._egress = await self._find_egress()
        manifest = self._manifest(first)
        self._pod = box = SandboxPod(self._kube, self._namespace, manifest)
        self._runner = runner.Runner(box)
        self._record.set(
            kind="kubernetes",
            role=self._role,
            pod=box.name,
            namespace=self._namespace,
            image=self._image,
            profile=self._profile.name,
            resources=manifest["spec"]["containers"][0]["resources"],
        )
        try:
            await self._begin(box, first, began)
        except BaseException as error:
            self._record.set(start_error=f"{type(error).__name__}: {error}", waited_for=box.waited_for)
            self._write_record()
            raise

    async def _begin(self, box: SandboxPod, first: network.Reach, began: float) -> None:
        await box.create(self._deadline)
        await box.until_running(self._deadline, self._profile.start_grace_seconds)
        ready = time.monotonic()
        await runner.install(box)
        await self._switch(first, self.network_policy)  # nothing of the task has run yet
        await self._make_folders()
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
            await box.delete()
        finally:
            self._record.set(oom_kills=self._kills, reconnects=self._runner.reconnects if self._runner else 0)
            self._write_record()
            await self._release()

    async def _release(self) -> None:
        kube, self._kube = self._kube, None
        if kube is not None:
            await _Clients.give_back(kube)

    def _manifest(self, first: network.Reach) -> dict[str, Any]:
        left = max(1, int(self._deadline - time.monotonic()) + SECOND_OF_DEADLINE)
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
                    network=first.label,
                    lifetime_seconds=min(left, self._profile.max_lifetime_seconds),
                    sizes=self._sizes(),
                    profile=self._profile,
                    owner=self._owner,
                )
            )
        except ValueError as error:
            raise SandboxStartError(str(error)) from error

    async def _make_folders(self) -> None:
        folders = self._folders()
        workdir = self.task_env_config.workdir
        command = self._ensure_dirs_command(folders)
        if workdir:  # as an engine does; every command starts there
            command = f"{self._ensure_dirs_command([workdir], chmod=False)} && {command}"
        done = await self._run(command, user="root", cwd="/")
        if done.return_code:
            raise SandboxStartError(f"the folders {', '.join(folders)} cannot be made: {done.stderr}")

    # -- network -----------------------------------------------------------------------------------------------------

    def _reach_of(self, policy: TaskPolicy) -> network.Reach:
        own = NetworkPolicy(mode=policy.network_mode.value, hosts=tuple(policy.allowed_hosts))
        return network.reach(own, self._profile, self._phase)

    @override
    async def set_network_policy(self, network_policy: TaskPolicy) -> None:
        self.validate_network_policy_support(network_policy)
        if network_policy != self._network_policy:
            await self._apply_network_policy(network_policy)
            self._network_policy = network_policy

    @override
    async def _apply_network_policy(self, network_policy: TaskPolicy) -> None:
        """A narrower policy is in force when this returns, a wider one when the next command needs it: Harbor goes
        back to the task's own policy between two phases in which nothing runs."""
        self._policy_now = network_policy
        reach = self._reach_of(network_policy)
        if self._reach is not None and not self._installed and _wider(reach, self._reach):
            self._wanted = reach
            return
        await self._switch(reach, network_policy)

    @override
    @contextlib.contextmanager
    def scoped_exec_env(self, env: dict[str, str]) -> Generator[None, None, None]:
        """Harbor wraps an agent's installation in this, and then its run: the first end is that of the installation."""
        with super().scoped_exec_env(env):
            yield
        if self._phase == "install" and self._role == "agent":
            self._phase, self._installed = "run", True

    async def _settle_network(self) -> None:
        """Before a command: end the installation if it has just ended, and set the reach that was asked for."""
        if not self._installed and self._wanted is None:
            return
        policy = self._policy_now or self.network_policy
        await self._switch(self._reach_of(policy), policy)

    async def _switch(self, reach: network.Reach, policy: TaskPolicy) -> None:
        async with self._switching:
            box, before, installed = self._running(), self._reach, self._installed
            self._wanted = None
            if reach == before and not installed:
                return
            if reach.proxied and self._egress is None:
                self._egress = await self._find_egress()
            if before is not None and before.label != reach.label:
                await box.label(LABEL_NETWORK, reach.label)
            node = (box.state or {}).get("status", {}).get("hostIP")
            shown = network.proof(before, reach, egress=self._egress, node=node, installed=installed)
            names = {"api": self._api, "dns": self._dns}
            words = [names.get(word, word) for word in (shown.allowed, *shown.denied)]
            began = time.monotonic()
            await self._prove([str(PROVE_SECONDS), shown.end, *words], reach)
            self._proxy = self._proxy_variables(reach)
            self._reach, self._installed = reach, False
        how = reach.label if not reach.hosts else f"{reach.label}: {', '.join(reach.hosts)}"
        self._record.add_network(policy.network_mode.value, how)
        self._record.count(proof_milliseconds=round((time.monotonic() - began) * 1000))

    async def _prove(self, words: list[str], reach: network.Reach) -> None:
        box, out = self._running(), bytearray()
        for attempt in range(5):
            out.clear()
            try:
                code = await box.exec(["bash", f"{FOLDER}/switch", *words], out=out.extend, err=lambda _: None)
            except StreamBroken as problem:
                await box.ask(problem)
                await asyncio.sleep(min(2.0**attempt, 15))
                continue
            said = dict(line.split("=", 1) for line in out.decode(errors="replace").splitlines() if "=" in line)
            if code == 0:
                if self._api == "api":
                    self._api, self._dns = said.get("api", "api"), said.get("dns", "dns")
                return
            await box.ask(StreamBroken(f"the proof ended with {code}"))
            why = _PROVEN.get(code, f"its proof ended with {code}")
            if said.get("at"):
                why = f"{said['at']}: {why}"
            self._record.set(network_error=f"{reach.label}: {why}")
            raise SandboxStartError(f"the network mode '{reach.label}' is not in force: {why}")
        raise ControlPlaneError("the network mode could not be proven: every stream to the sandbox broke")

    async def _find_egress(self) -> str:
        """The proxy's address as sandboxes reach it: they have no DNS then."""
        name = os.environ.get("HARBOR_ASSETS_EGRESS_ADDRESS") or f"{network.EGRESS}.{self._namespace}.svc"
        if secret(os.environ) is None:
            raise SandboxStartError(
                "this task may reach named hosts only, which takes the egress proxy: set "
                "HARBOR_ASSETS_EGRESS_SECRET_FILE for the worker to the secret it shares with the proxy"
            )
        try:
            found = await asyncio.get_running_loop().getaddrinfo(name, None, family=socket.AF_INET)
        except OSError as error:
            raise SandboxStartError(
                f"the egress proxy {name} cannot be found ({error}); install it, or set HARBOR_ASSETS_EGRESS_ADDRESS"
            ) from error
        return str(found[0][4][0])

    def _proxy_variables(self, reach: network.Reach) -> dict[str, str]:
        key = secret(os.environ)
        if not reach.proxied or self._egress is None or key is None:
            return {}
        state = (self._running().state or {}).get("status", {})
        port = network.PORTS[reach.label]
        left = max(1, int(self._deadline - time.monotonic()) + SECOND_OF_DEADLINE)
        claims = passes.Pass(
            sandbox=self._running().name,
            hosts=reach.hosts,
            address=str(state.get("podIP", "")),
            port=port,
            expires=int(time.time()) + left,
        )
        return dict(passes.variables(passes.sign(key, claims), self._egress, port))

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
            await self._settle_network()
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
        body = runner.script(
            command,
            cwd=cwd or self.task_env_config.workdir or self._image_config.workdir,
            env={**self._image_config.env, **self._proxy, **(self._merge_env(env) or {})},
        )
        done = await self._runner.run(
            body, user="" if who in ("0", "root") else who, timeout=timeout_sec or None, on_chunk=self._on_chunk()
        )
        kills, self._kills = max(0, done.kills - self._kills), max(done.kills, self._kills)
        return self._result(Output(done.code, done.out, done.err, done.dropped, kills), timeout_sec)

    @override
    def _channel(self) -> PodChannel:
        return PodChannel(self._running())

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _running(self) -> SandboxPod:
        if self._pod is None:
            raise SandboxLost("the sandbox is not running")
        return self._pod


class _Clients:
    """One client, so one connection pool, per event loop; closed when its last sandbox has stopped."""

    _held: ClassVar[dict[asyncio.AbstractEventLoop, tuple[Kube, int]]] = {}

    @classmethod
    async def take(cls) -> Kube:
        loop = asyncio.get_running_loop()
        if loop not in cls._held:
            access = in_cluster() or await asyncio.to_thread(from_kubeconfig)
            if loop not in cls._held:
                cls._held[loop] = (await Kube(access).__aenter__(), 0)
        kube, users = cls._held[loop]
        cls._held[loop] = (kube, users + 1)
        return kube

    @classmethod
    async def give_back(cls, kube: Kube) -> None:
        loop = asyncio.get_running_loop()
        held, users = cls._held.get(loop, (None, 0))
        if held is kube and users > 1:
            cls._held[loop] = (kube, users - 1)
            return
        if held is kube:
            del cls._held[loop]
        await kube.__aexit__(None, None, None)


def _wider(new: network.Reach, old: network.Reach) -> bool:
    """Whether everything the old reach allows the new one allows too."""
    if old == network.NOTHING or new.label == "public":
        return True
    return new.label == old.label and set(old.hosts) <= set(new.hosts)
