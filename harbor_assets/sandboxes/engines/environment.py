"""The sandboxes `docker` and `podman` as one Harbor environment: a container each, a second for a separate verifier.

Used as `EnvironmentConfig(import_path="harbor_assets.sandboxes.engines.environment:EngineEnvironment", kwargs={...})`;
all kwargs are JSON.
"""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, override

from harbor.environments.base import ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.models.task.config import NetworkMode, NetworkPolicy

from harbor_assets.domain.plans import ImageConfig
from harbor_assets.sandboxes import files
from harbor_assets.sandboxes.engines import commands
from harbor_assets.sandboxes.engines.channel import EngineChannel
from harbor_assets.sandboxes.engines.cli import Engine, EngineKind
from harbor_assets.sandboxes.engines.container import LABEL_RUN, LABEL_TRIAL, Container, Order
from harbor_assets.sandboxes.engines.guard import Guard, guard, guard_folder
from harbor_assets.sandboxes.engines.images import runnable
from harbor_assets.sandboxes.environment import SandboxEnvironment
from harbor_assets.sandboxes.errors import SandboxImagePullError, SandboxLost, SandboxStartError, UnknownUser
from harbor_assets.sandboxes.output import Output
from harbor_assets.sandboxes.scripts import script

LIFETIME_SECONDS = 24 * 3600  # where nobody says how long the sandbox may be needed
AFTER_SECONDS = 600  # a container's own end beyond the run's deadline: the worker ends first, and says why
_LOOK_SECONDS = 60.0  # it takes a few milliseconds
# Without a route and without an address nothing can be reached: what an engine says of itself is not taken for it.
_CLOSED = """n=0
while read -r _; do n=$((n + 1)); done </proc/net/route
[ $n -le 1 ] || { echo "there is an IPv4 route"; exit 1; }
[ -r /proc/net/if_inet6 ] || exit 0
while read -r _ _ _ _ _ name; do
  [ "$name" = lo ] || { echo "$name has an IPv6 address"; exit 1; }
done </proc/net/if_inet6
exit 0"""


class EngineEnvironment(SandboxEnvironment):
    """A task's environment as a container of the engine on this machine.

    `engine`: docker or podman. `images`, `image_config`: by role (`agent`, `verifier`), the image to run and what it
    says of its user. `deadline_seconds`: how long from now the sandbox may be needed at most.

    Raises SandboxStartError and its kin from `start`; SandboxLost and its kin, ControlPlaneError later (`errors.py`).
    """

    def __init__(
        self,
        *args: Any,
        engine: EngineKind,
        home: str,
        run_id: str,
        images: Mapping[str, str],
        image_config: Mapping[str, Mapping[str, Any]] | None = None,
        deadline_seconds: float | None = None,
        **kwargs: Any,
    ) -> None:
        self._home, self._run_id = Path(home), run_id
        self._engine = Engine(engine, folder=guard_folder(self._home))
        self._images, self._image_configs = dict(images), dict(image_config or {})
        self._deadline = time.monotonic() + (deadline_seconds or LIFETIME_SECONDS)
        self._box: Container | None = None
        self._guard: Guard | None = None
        self._kills = 0
        super().__init__(*args, **kwargs)
        self._image_config = ImageConfig.model_validate(self._image_configs.get(self._role) or {})

    @staticmethod
    @override
    def type() -> str:
        return "engine"

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True, dynamic_network_policy=True)

    @classmethod
    @override
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True, fractional_cpus=True)

    # -- life --------------------------------------------------------------------------------------------------------

    @override
    async def start(self, force_build: bool) -> None:
        began = time.monotonic()
        self._record.set(kind=self._engine.kind, role=self._role)
        try:
            await self._start()
        except BaseException as error:
            self._record.set(start_error=f"{type(error).__name__}: {error}")
            raise
        finally:
            self._record.set(start_seconds=round(time.monotonic() - began, 3))
            self._write_record()

    async def _start(self) -> None:
        if self._host_mounts:
            raise SandboxStartError(
                f"the sandbox {self._engine.kind} mounts no folders of the machine; remove `mounts`"
            )
        self._guard = await asyncio.to_thread(guard, self._home, self._engine)
        image = await self._image()
        sizes = self._sizes()
        self._guard.began()
        try:
            box = await Container.start(
                self._engine,
                Order(
                    image=image,
                    session=self.session_id,
                    labels={**self._guard.labels, LABEL_RUN: self._run_id, LABEL_TRIAL: self.session_id},
                    sizes=sizes,
                    lifetime_seconds=max(1, int(self._deadline - time.monotonic())) + AFTER_SECONDS,
                ),
            )
        except Exception:
            self._guard.ended()
            raise
        self._box = box
        asked: dict[str, float | None] = {
            "cpus": sizes.cpus,
            "memory_mb": sizes.memory_mb,
            "storage_mb": sizes.storage_mb,
        }
        wanted = [name.removesuffix("_mb") for name, size in asked.items() if size is not None]
        held = [name for name in wanted if name not in box.missing]
        self._record.set(
            container=box.name,
            image_id=box.facts.get("Image"),
            limits={"asked": asked, "set": held, "missing": box.missing},
        )
        self._record.note(*box.notes)
        await self._install()
        if self.network_policy.network_mode is not NetworkMode.PUBLIC:  # nothing of the task has run yet
            await self._apply_network_policy(self.network_policy)
        else:
            self._record.add_network("public", "bridge")
        await self._upload_environment_dir_after_start()

    async def _image(self) -> str:
        ref = self._images.get(self._role) or self._images.get("agent")
        if not ref:
            raise SandboxStartError(f"the plan has no image for the {self._role} of this task; build its images first")
        self._record.set(image=ref)
        found = await asyncio.to_thread(runnable, self._engine, ref)
        if found is None:
            raise SandboxImagePullError(
                f"{self._engine.kind} has no image {ref} any more; submit the suite again, which builds or pulls it"
            )
        return found

    async def _install(self) -> None:
        folders = list(self._folders())
        command = self._ensure_dirs_command(folders)
        if workdir := self.task_env_config.workdir:  # as an engine does; every command starts there
            command = f"{self._ensure_dirs_command([workdir], chmod=False)}\n{command}"
        box = self._running()
        made = await self._engine.ask("exec", "-i", "-u", "0", box.name, "sh", stdin=commands.install(command))
        if made.code:
            await box.ask_after(made.said)
            raise SandboxStartError(f"our scripts and {', '.join(folders)} cannot be made in the image: {made.said}")

    @override
    async def stop(self, delete: bool) -> None:
        box, self._box = self._box, None
        if box is None:
            return
        try:
            await box.remove()
            if self._guard:
                self._guard.ended()
        finally:
            self._record.set(ended=True, oom_kills=self._kills)
            self._write_record()

    # -- network -----------------------------------------------------------------------------------------------------

    @override
    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        box = self._running()
        with self._watched():
            if network_policy.network_mode is NetworkMode.NO_NETWORK:
                await box.disconnect()
                looked, _ = await commands.run(box, _CLOSED.encode(), user="0", timeout=_LOOK_SECONDS)
                if looked.code != 0:
                    said = (looked.out + looked.err).decode(errors="replace").strip()
                    raise SandboxStartError(f"no-network is not in force: {said or 'nobody could look'}")
                how = "none"
            elif network_policy.network_mode is NetworkMode.PUBLIC:
                await box.connect()
                how = "bridge"
            else:
                raise SandboxStartError(f"the sandbox {self._engine.kind} cannot keep to named hosts")
        self._record.add_network(network_policy.network_mode.value, how)

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
        box = self._running()
        who = self._resolve_user(user)
        who = str(self._image_config.user or "" if who is None else who)
        body = script(command, cwd=cwd or self.task_env_config.workdir, env=self._merge_env(env) or {})
        try:
            with self._watched():
                done, kills = await commands.run(
                    box,
                    body,
                    user="0" if who in ("", "root") else who,
                    timeout=timeout_sec or None,
                    on_chunk=self._on_chunk(),
                )
        except UnknownUser as error:  # the task's fault, and told as the sandbox `process` tells it
            self._record.add_missing_user(who)
            done, kills = Output(commands.CANNOT_RUN, b"", f"sandbox: {error}\n".encode()), -1
        return self._result(self._with_kills(done, kills), timeout_sec)

    def _with_kills(self, done: Output, kills: int) -> Output:
        new, self._kills = max(0, kills - self._kills), max(self._kills, kills)
        return Output(done.code, done.out, done.err, done.dropped, new)

    # -- helpers -----------------------------------------------------------------------------------------------------

    @override
    def _channel(self) -> files.Channel:
        return EngineChannel(self._running(), self.trial_paths.trial_dir)

    def _running(self) -> Container:
        if self._box is None:
            raise SandboxLost("the sandbox is not running")
        return self._box
