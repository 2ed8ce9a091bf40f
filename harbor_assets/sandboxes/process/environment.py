"""The `process` sandbox as a Harbor environment.

Used as `EnvironmentConfig(import_path="harbor_assets.sandboxes.process.environment:ProcessEnvironment", kwargs={...})`.
"""

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, override

from harbor.environments.base import ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.models.task.config import NetworkMode, NetworkPolicy

from harbor_assets.sandboxes.environment import SandboxEnvironment
from harbor_assets.sandboxes.errors import SandboxDiskFull, SandboxLost, SandboxStartError, TransferFailed
from harbor_assets.sandboxes.output import Output
from harbor_assets.sandboxes.process.commands import ExecResult as Done
from harbor_assets.sandboxes.process.dockerfile import DockerfileUnsupported
from harbor_assets.sandboxes.process.files import SandboxChannel
from harbor_assets.sandboxes.process.host import fingerprint
from harbor_assets.sandboxes.process.inside.command import CANNOT_RUN
from harbor_assets.sandboxes.process.limits import Limits
from harbor_assets.sandboxes.process.rights import privileged
from harbor_assets.sandboxes.process.sandbox import Sandbox

_FULL = 1 << 20  # bytes free on a disk below which a failed command is the disk's fault
_NO_USER = b"sandbox: no such "  # what a command says that cannot become its user


class ProcessEnvironment(SandboxEnvironment):
    """A task's environment as a view of this machine.

    `home`: where sandboxes, layers and masks live. `sizing`: see SandboxEnvironment. `allow_models` is recorded: who
    starts trials decides, before, whether an agent that calls models may run here.

    Raises SandboxStartError, SandboxDiskFull, LayerBuildError and DockerfileUnsupported from `start`, SandboxLost and
    SandboxDiskFull later.
    """

    def __init__(self, *args: Any, home: str, allow_models: bool = False, **kwargs: Any) -> None:
        self._home = Path(home)
        self._allow_models = allow_models
        self._box: Sandbox | None = None
        self._cwd, self._user, self._env = "/", None, {}
        super().__init__(*args, **kwargs)

    @staticmethod
    @override
    def type() -> str:
        return "process"

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
        self._record.set(
            kind="process",
            mode="root" if privileged() else "user",
            role=self._role,
            fingerprint=await asyncio.to_thread(fingerprint),
            allow_models=self._allow_models,
        )
        try:
            await self._start()
        finally:
            self._record.set(start_seconds=round(time.monotonic() - began, 3))
            self._write_record()

    async def _start(self) -> None:
        if (self.environment_dir / "docker-compose.yaml").exists():
            raise DockerfileUnsupported(
                "docker-compose.yaml: the process sandbox runs one view of this machine, not several services. "
                "Use a sandbox that runs containers."
            )
        if self._host_mounts:
            raise SandboxStartError("The process sandbox mounts no folders of the machine. Remove `mounts`.")
        layers = await self._build_layers()
        limits = self._limits()
        self._record.set(layers=[layer.name for layer in layers])
        box = Sandbox(self._home / "sandboxes" / self._name(), layers, home=self._home, limits=limits)
        await box.start()
        self._box = box
        self._record.set(
            limits={
                "asked": {"cpus": limits.cpus, "memory_mb": limits.memory_mb, "storage_mb": limits.storage_mb},
                "set": list(box.cgroups.held),
                "missing": list(box.cgroups.missing),
            },
        )
        await self._apply_network_policy(self.network_policy)
        await self._make_folders()
        await self._upload_environment_dir_after_start()

    @override
    async def stop(self, delete: bool) -> None:
        box, self._box = self._box, None
        if box is None:
            return
        try:
            memory = box.memory()
            self._record.set(
                oom_kills=memory.own_kills,
                foreign_oom_kills=memory.foreign_kills,
                memory_peak_bytes=memory.peak_bytes,
            )
            if "storage" in box.cgroups.held:
                await self._note_disk(box)
        finally:
            await box.stop()
            self._record.note(*box.notes)
            self._record.set(ended=True)
            self._write_record()

    async def _build_layers(self) -> tuple[Path, ...]:
        """The layers of the Dockerfile, if there is one; sets where and as whom commands run."""
        image = self.task_env_config.docker_image
        if not (self.environment_dir / "Dockerfile").exists():
            self._record.set(substituted=image)
            return ()
        from harbor_assets.sandboxes.process.layers import build

        # As with images: a build has a network whatever the task's own mode is. Without root it would be the machine's.
        network = privileged() or self._network_is_public
        built = await build(self._home, self.environment_dir, network=network, log=self.logger.debug)
        self._cwd, self._user, self._env = built.cwd, built.user, dict(built.env)
        self._record.set(substituted=image or built.substituted)
        self._record.note(*built.notes)
        if image:
            self._record.note(f"The image {image} is replaced by this machine and the steps of the Dockerfile.")
        return built.layers

    def _limits(self) -> Limits:
        sizes = self._sizes()
        return Limits(cpus=sizes.cpus, memory_mb=sizes.memory_mb, storage_mb=sizes.storage_mb)

    def _name(self) -> str:
        safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in self.session_id)
        return f"{safe.lstrip('-')[:80]}-{secrets.token_hex(4)}"

    async def _make_folders(self) -> None:
        workdir = self.task_env_config.workdir
        if workdir:  # as an engine does; every command starts there
            done = await self._running().exec(["mkdir", "-p", "--", workdir])
            if done.code:
                raise SandboxStartError(f"The workdir {workdir} cannot be made: {_tail(done.stderr)}")
        folders = self._folders()
        made = await self.ensure_dirs(folders)
        if made is not None and made.return_code:
            raise SandboxStartError(f"The folders {', '.join(folders)} cannot be made: {made.stderr}")

    # -- network -----------------------------------------------------------------------------------------------------

    @override
    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        box = self._running()
        with self._watched():
            if network_policy.network_mode == NetworkMode.NO_NETWORK:
                await box.detach_network()
                how = "none"
            else:
                await box.attach_network()
                how = "translated" if box.address_translated else "of the machine"
        self._record.add_network(network_policy.network_mode.value, how)
        if how == "of the machine" and not privileged():
            self._record.note("Without root the public network is this machine's own: its services are in reach.")

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
        who = self._user if who is None else who
        if not privileged() and str(who or 0) not in ("0", "root"):
            raise SandboxStartError(f"Without root a task has one user; this one wants '{who}'. Run as root.")
        before = box.memory()
        with self._watched():
            done = await box.exec(
                [_shell(), "-c", command],
                cwd=cwd or self.task_env_config.workdir or self._cwd,
                env={**self._env, **(self._merge_env(env) or {})},
                user=who,
                timeout=timeout_sec or None,
                on_chunk=self._on_chunk(),
            )
        if done.code:
            self._check_disk()
            await self._note_failure(done, str(who))
        return self._result(
            Output(
                code=None if done.timed_out else done.code if done.code >= 0 else 128 - done.code,
                out=done.stdout,
                err=done.stderr,
                dropped=done.dropped,
                kills=box.memory().own_kills - before.own_kills,
            ),
            timeout_sec,
        )

    async def _note_failure(self, done: Done, who: str) -> None:
        """Keep in the record why a command may have failed that no exit code tells."""
        if done.code == CANNOT_RUN and done.stderr.startswith(_NO_USER):
            self._record.add_missing_user(who)
        if "storage" in self._running().cgroups.held:
            await self._note_disk(self._running())

    async def _note_disk(self, box: Sandbox) -> None:
        """Keep in the record how full the task's own disk is."""
        with contextlib.suppress(SandboxLost):
            size, free = await box.space()
            self._record.set(disk={"size_bytes": size, "free_bytes": free})
            if free < _FULL:
                self._record.count(disk_limit_hits=1)

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _running(self) -> Sandbox:
        if self._box is None:
            raise SandboxLost("the sandbox is not running")
        return self._box

    @override
    def _channel(self) -> SandboxChannel:
        return SandboxChannel(self._running())

    @override
    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """As in the base, and give a full disk its name."""
        with super()._watched():
            try:
                yield
            except (OSError, TransferFailed):
                self._check_disk()
                raise

    def _check_disk(self) -> None:
        """Raise SandboxDiskFull if the machine's disk is full."""
        state = os.statvfs(self._home)
        free = (state.f_bfree if privileged() else state.f_bavail) * state.f_frsize
        if free < _FULL:
            message = f"The disk of {self._home} is full. Free space there, then run again."
            self._record.set(disk_full=message)
            raise SandboxDiskFull(message)


def _shell() -> str:
    """bash, as in Harbor's other environments; sh on machines without."""
    return "bash" if any(Path(folder, "bash").exists() for folder in ("/usr/bin", "/bin", "/usr/local/bin")) else "sh"


def _tail(output: bytes) -> str:
    return output[-500:].decode(errors="replace").strip()
