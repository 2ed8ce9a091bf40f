"""What our Harbor environments have in common, whatever runs the sandbox: role, sizes, account, output, files."""

import contextlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal, override

from harbor.environments.base import BaseEnvironment, ExecResult, HealthcheckError
from harbor.models.task.config import HealthcheckConfig
from harbor.models.trial.config import ResourceMode
from harbor.utils.path_filter import filter_paths_by_patterns

from harbor_assets.sandboxes import files
from harbor_assets.sandboxes.errors import ControlPlaneError, SandboxLost
from harbor_assets.sandboxes.output import CAP, TIMED_OUT, OnChunk, Output, decoding
from harbor_assets.sandboxes.record import Record
from harbor_assets.sandboxes.sizes import Sizes

FOLDERS = ("/logs/agent", "/logs/verifier", "/logs/artifacts")  # Harbor's, where a task mounts nothing

_SAID_MAX = 500  # characters of a health check's output in its error: a line or two says what is wrong


def role_of(session_id: str, trial_name: str) -> Literal["agent", "verifier"]:
    """Whose sandbox that is, which Harbor says in the session's name alone (`Trial._separate_verifier_session_id`).

    The agent's is `<trial>__env`, that of a verifier of its own `<trial>__verifier__<step>`, cut to 63 characters with
    a digest at its end: of a long trial's name the word itself may be cut off, and a name may hold it.
    """
    named = "__verifier__" in session_id.removeprefix(trial_name)
    return "agent" if session_id.endswith("__env") and not named else "verifier"


class SandboxEnvironment(BaseEnvironment):
    """The base of our environments. A kind of sandbox adds `start`, `stop`, `exec` and `_channel`.

    `sizing` (`cpus`, `memory_mb`, `storage_mb`) replaces the task's values in the agent's sandbox only; Harbor's own
    overrides would hit a separate verifier's too. What the sandbox was and what became of it is in `sandbox.json` (of
    a verifier's own: `sandbox.verifier.json`) in the trial's folder.
    """

    DOWNLOAD_MB: ClassVar[int] = files.DOWNLOAD_MB

    def __init__(self, *args: Any, sizing: Mapping[str, float | None] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sizing = dict(sizing or {})
        self._role = role_of(self.session_id, self.trial_paths.trial_dir.name)
        name = "sandbox.verifier.json" if self._role == "verifier" else "sandbox.json"
        self._record = Record(self.trial_paths.trial_dir / name, self.session_id)

    @abstractmethod
    def _channel(self) -> files.Channel:
        """The way for files into the sandbox and out of it. Raises SandboxLost if it is not running."""

    @override
    def _validate_definition(self) -> None:
        """Nothing here: what is wrong is raised by `start`, so that Harbor records it in the trial."""

    def _sizes(self) -> Sizes:
        own = {} if self._role == "verifier" else self._sizing
        cpus = own.get("cpus") or self._resource_limit_value("cpu", auto_mode=ResourceMode.LIMIT)
        memory = own.get("memory_mb") or self._resource_limit_value("memory", auto_mode=ResourceMode.LIMIT)
        storage = own.get("storage_mb") or self._effective_storage_mb
        return Sizes(
            cpus=None if cpus is None else float(cpus),
            memory_mb=None if memory is None else int(memory),
            storage_mb=None if storage is None else int(storage),
            gpus=self._effective_gpus,
        )

    def _folders(self) -> Sequence[str]:
        """The folders that a trial expects to be there."""
        return self._mount_targets(writable_only=True) or FOLDERS

    # -- commands ----------------------------------------------------------------------------------------------------

    def _on_chunk(self) -> OnChunk | None:
        """For output as it comes, if Harbor wants it so."""
        callback = self._output_callback()
        return decoding(callback) if callback else None

    def _result(self, done: Output, timeout: float | None) -> ExecResult:
        """A command's end as Harbor wants it; what the sandbox did to it is said at the end of stderr, and counted."""
        words = []
        if done.code is None:
            words.append(f"Command timed out after {timeout} seconds")
        if done.dropped:
            self._record.count(output_dropped_bytes=done.dropped)
            words.append(f"[sandbox: {done.dropped} bytes of output beyond {CAP >> 20} MB were dropped]")
        if done.kills:
            limit = self._sizes().memory_mb
            at = f"the memory limit of {limit} MB" if limit else "the memory limit"
            words.append(f"[sandbox: {done.kills} process(es) killed at {at}]")
        return ExecResult(
            stdout=done.out.decode(errors="replace"),
            stderr=done.err.decode(errors="replace") + "".join(f"\n{line}" for line in words),
            return_code=TIMED_OUT if done.code is None else done.code,
        )

    @override
    async def run_healthcheck(self, healthcheck: HealthcheckConfig | None = None) -> None:
        """As Harbor's. Harbor's error names the command and not what it said, so it is asked once more, for that."""
        try:
            await super().run_healthcheck(healthcheck)
        except HealthcheckError as error:
            config = healthcheck or self.task_env_config.healthcheck
            assert config is not None
            last = await self.exec(config.command, timeout_sec=int(config.timeout_sec))
            said = " ".join(f"{last.stdout or ''} {last.stderr or ''}".split())[-_SAID_MAX:]
            raise HealthcheckError(
                f"{error}; asked once more it ended with {last.return_code} and said {said or 'nothing'}"
            ) from None

    # -- files -------------------------------------------------------------------------------------------------------

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        with self._watched():
            await files.upload_file(self._channel(), Path(source_path), target_path)

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        with self._watched():
            await files.upload_folder(self._channel(), Path(source_dir), str(target_dir))

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        with self._watched():
            await files.download_file(self._channel(), source_path, Path(target_path), limit_mb=self.DOWNLOAD_MB)

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        await self.download_dir_with_exclusions(source_dir=source_dir, target_dir=target_dir, exclude=[])

    @override
    async def download_dir_with_exclusions(
        self, *, source_dir: str, target_dir: Path | str, exclude: list[str]
    ) -> None:
        with self._watched():
            refused = await files.download_folder(
                self._channel(), str(source_dir), Path(target_dir), exclude=exclude, limit_mb=self.DOWNLOAD_MB
            )
        self._left_out(source_dir, refused)

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
            names = await files.names_in(self._channel(), source_dir)
            wanted = set(filter_paths_by_patterns(names, include=include, exclude=exclude)) | set(protect or ())
            chosen = [name for name in names if name in wanted]
            if not chosen:
                self.logger.warning("No files in %s matched include=%s exclude=%s", source_dir, include, exclude)
                return
            refused = await files.download_names(
                self._channel(), source_dir, Path(target_dir), chosen, limit_mb=self.DOWNLOAD_MB
            )
        self._left_out(source_dir, refused)

    # -- account -----------------------------------------------------------------------------------------------------

    def _left_out(self, folder: str, refused: Sequence[str]) -> None:
        if refused:
            self._record.count(files_not_downloaded=len(refused))
            self._record.add_not_downloaded(f"{PurePosixPath(folder, entry)}" for entry in refused)
            self.logger.warning("Not downloaded: %s", "; ".join(refused[:20]))

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Keep in the record what Harbor may wrap in an error of its own, or only log."""
        try:
            yield
        except (SandboxLost, ControlPlaneError) as error:
            self._record.set(lost=f"{type(error).__name__}: {error}")
            self._write_record()
            raise

    def _write_record(self) -> None:
        try:
            self._record.write()
        except OSError as error:
            self.logger.warning("%s cannot be written: %s", self._record.path, error)
