"""The `process` sandbox as a Harbor environment.

Used as `EnvironmentConfig(import_path="harbor_assets.sandboxes.process.environment:ProcessEnvironment", kwargs={...})`.
"""

import asyncio
import codecs
import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, override

from harbor.environments.base import BaseEnvironment, ExecResult, OutputCallback
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.models.task.config import NetworkMode, NetworkPolicy
from harbor.models.trial.config import ResourceMode
from harbor.utils.path_filter import filter_paths_by_patterns

from harbor_assets.sandboxes.process import files
from harbor_assets.sandboxes.process.commands import ExecResult as Done
from harbor_assets.sandboxes.process.dockerfile import DockerfileUnsupported
from harbor_assets.sandboxes.process.files import TransferFailed
from harbor_assets.sandboxes.process.host import fingerprint
from harbor_assets.sandboxes.process.inside.command import CANNOT_RUN
from harbor_assets.sandboxes.process.limits import Limits
from harbor_assets.sandboxes.process.record import Record
from harbor_assets.sandboxes.process.rights import privileged
from harbor_assets.sandboxes.process.sandbox import (
    CAP,
    Sandbox,
    SandboxDiskFull,
    SandboxLost,
    SandboxStartError,
)

_FULL = 1 << 20  # bytes free on a disk below which a failed command is the disk's fault
_NO_USER = b"sandbox: no such "  # what a command says that cannot become its user


class ProcessEnvironment(BaseEnvironment):
    """A task's environment as a view of this machine.

    `home`: where sandboxes, layers and masks live. `sizing` (`cpus`, `memory_mb`, `storage_mb`) replaces the task's
    values in the agent's sandbox only; Harbor's own overrides would hit the verifier's too. `allow_models` is recorded:
    who starts trials decides, before, whether an agent that calls models may run here.

    Raises SandboxStartError, SandboxDiskFull, LayerBuildError and DockerfileUnsupported from `start`, SandboxLost and
    SandboxDiskFull later. What the sandbox was and what became of it is written to `sandbox.json` (of a verifier's own
    sandbox: `sandbox.verifier.json`) in the trial's folder.
    """

    def __init__(
        self,
        *args: Any,
        home: str,
        sizing: Mapping[str, float | None] | None = None,
        allow_models: bool = False,
        **kwargs: Any,
    ) -> None:
        self._home = Path(home)
        self._sizing = dict(sizing or {})
        self._allow_models = allow_models
        self._box: Sandbox | None = None
        self._cwd, self._user, self._env = "/", None, {}
        super().__init__(*args, **kwargs)
        self._is_verifier = "__verifier__" in self.session_id
        name = "sandbox.verifier.json" if self._is_verifier else "sandbox.json"
        self._record = Record(self.trial_paths.trial_dir / name, self.session_id)

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

    @override
    def _validate_definition(self) -> None:
        """Nothing here: what is wrong is raised by `start`, so that Harbor records it in the trial."""

    # -- life --------------------------------------------------------------------------------------------------------

    @override
    async def start(self, force_build: bool) -> None:
        began = time.monotonic()
        self._record.set(
            kind="process",
            mode="root" if privileged() else "user",
            role="verifier" if self._is_verifier else "agent",
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
        own = {} if self._is_verifier else self._sizing
        cpus = own.get("cpus") or self._resource_limit_value("cpu", auto_mode=ResourceMode.LIMIT)
        memory = own.get("memory_mb") or self._resource_limit_value("memory", auto_mode=ResourceMode.LIMIT)
        storage = own.get("storage_mb") or self._effective_storage_mb
        return Limits(
            cpus=None if cpus is None else float(cpus),
            memory_mb=None if memory is None else int(memory),
            storage_mb=None if storage is None else int(storage),
        )

    def _name(self) -> str:
        safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in self.session_id)
        return f"{safe.lstrip('-')[:80]}-{secrets.token_hex(4)}"

    async def _make_folders(self) -> None:
        workdir = self.task_env_config.workdir
        if workdir:  # as an engine does; every command starts there
            done = await self._running().exec(["mkdir", "-p", "--", workdir])
            if done.code:
                raise SandboxStartError(f"The workdir {workdir} cannot be made: {_tail(done.stderr)}")
        folders = self._mount_targets(writable_only=True) or ["/logs/agent", "/logs/verifier", "/logs/artifacts"]
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
        callback = self._output_callback()
        with self._watched():
            done = await box.exec(
                [_shell(), "-c", command],
                cwd=cwd or self.task_env_config.workdir or self._cwd,
                env={**self._env, **(self._merge_env(env) or {})},
                user=who,
                timeout=timeout_sec or None,
                on_chunk=_decoding(callback) if callback else None,
            )
        words = []
        if done.timed_out:
            words.append(f"Command timed out after {timeout_sec} seconds")
        if done.dropped:
            self._record.count(output_dropped_bytes=done.dropped)
            words.append(f"[sandbox: {done.dropped} bytes of output beyond {CAP >> 20} MB were dropped]")
        if killed := box.memory().own_kills - before.own_kills:
            words.append(f"[sandbox: {killed} process(es) killed at the memory limit of {box.limits.memory_mb} MB]")
        if done.code:
            self._check_disk()
            await self._note_failure(done, str(who))
        errors = done.stderr.decode(errors="replace") + "".join(f"\n{line}" for line in words)
        return ExecResult(
            stdout=done.stdout.decode(errors="replace"),
            stderr=errors,
            return_code=done.code if done.code >= 0 else 128 - done.code,
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

    # -- files -------------------------------------------------------------------------------------------------------

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        with self._watched():
            await files.upload_file(self._running(), Path(source_path), PurePosixPath(target_path))

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        with self._watched():
            await files.upload_folder(self._running(), Path(source_dir), str(target_dir))

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        with self._watched():
            await files.download_file(self._running(), PurePosixPath(source_path), Path(target_path))

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        with self._watched():
            self._left_out(source_dir, await files.download_folder(self._running(), str(source_dir), Path(target_dir)))

    @override
    async def download_dir_with_exclusions(
        self, *, source_dir: str, target_dir: Path | str, exclude: list[str]
    ) -> None:
        with self._watched():
            box = self._running()
            self._left_out(source_dir, await files.download_folder(box, source_dir, Path(target_dir), exclude=exclude))

    @override
    async def download_dir_filtered(
        self,
        *,
        source_dir: str,
        target_dir: Path | str,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        protect: Sequence[str] | None = None,
    ) -> None:
        with self._watched():
            names = await files.names_in(self._running(), source_dir)
            wanted = set(filter_paths_by_patterns(names, include=include, exclude=exclude)) | set(protect or ())
            chosen = [name for name in names if name in wanted]
            if chosen:
                left = await files.download_names(self._running(), source_dir, Path(target_dir), chosen)
                self._left_out(source_dir, left)
            else:
                self.logger.warning("No files in %s matched include=%s exclude=%s", source_dir, include, exclude)

    def _left_out(self, folder: str, refused: Sequence[str]) -> None:
        if refused:
            self._record.count(files_not_downloaded=len(refused))
            self._record.add_not_downloaded(f"{PurePosixPath(folder, entry)}" for entry in refused)
            self.logger.warning("Not downloaded: %s", "; ".join(refused[:20]))

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _running(self) -> Sandbox:
        if self._box is None:
            raise SandboxLost("the sandbox is not running")
        return self._box

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Keep in the record what Harbor may wrap in an error of its own, and give a full disk its name."""
        try:
            yield
        except SandboxLost as e:
            self._record.set(lost=str(e))
            raise
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

    def _write_record(self) -> None:
        try:
            self._record.write()
        except OSError as e:
            self.logger.warning("%s cannot be written: %s", self._record.path, e)


def _shell() -> str:
    """bash, as in Harbor's other environments; sh on machines without."""
    return "bash" if any(Path(folder, "bash").exists() for folder in ("/usr/bin", "/bin", "/usr/local/bin")) else "sh"


def _decoding(callback: OutputCallback) -> Callable[[bytes, str], Any]:
    """Bytes to text, chunk by chunk: a character may be cut in two."""
    decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}

    async def call(chunk: bytes, stream: str) -> None:
        if text := decoders[stream].decode(chunk):
            await callback(text, stream)  # pyright: ignore[reportArgumentType]

    return call


def _tail(output: bytes) -> str:
    return output[-500:].decode(errors="replace").strip()
