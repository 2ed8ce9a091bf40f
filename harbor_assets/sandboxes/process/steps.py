"""One step of a recipe carried out in a sandbox: WORKDIR and COPY by a tar unpacked inside, RUN as a command.

Everything that depends on what earlier steps made (which folders there are, whose name has which number, where links
lead) is asked and decided inside, never on the machine.
"""

import asyncio
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor_assets.sandboxes.process.context import Entry, Source, owner_ids, write_tar
from harbor_assets.sandboxes.process.dockerfile import LayerBuildError
from harbor_assets.sandboxes.process.recipe import SCRIPT, Copy, Run, Step, Workdir
from harbor_assets.sandboxes.process.rights import privileged
from harbor_assets.sandboxes.process.sandbox import Sandbox, SandboxDiskFull

SPOOL = 8 << 20  # a COPY's tar is kept in memory up to here, then in an unnamed file
DISK_FULL = 1 << 20  # bytes free below which a failed step is the machine's disk's fault
TAIL = 2000  # characters of a failed step's output that its error shows
# Of the paths on standard input those that are no folder: `-` before one that is not there, `x` before anything else.
_NO_FOLDERS = """
while IFS= read -r path; do
  if [ -d "$path" ]; then continue; fi
  if [ -e "$path" ] || [ -L "$path" ]; then printf 'x%s\\n' "$path"; else printf -- '-%s\\n' "$path"; fi
done
"""


@dataclass(frozen=True, slots=True)
class Job:
    """One step; `found` is what a COPY takes from the context."""

    step: Step
    found: tuple[Source, ...] = ()


def failed(step: Step, why: str) -> LayerBuildError:
    """An error that names the step."""
    return LayerBuildError(f"Dockerfile line {step.at.line}, {step.at.text}: {why}")


@dataclass(frozen=True, slots=True)
class Steps:
    """Carries out jobs in `box`. `scratch` is a folder for unnamed files; `network`: RUN has one unless it says no;
    `timeout` bounds each command in seconds."""

    box: Sandbox
    scratch: Path
    network: bool
    timeout: float | None = None

    async def do(self, job: Job) -> None:
        """Raises `LayerBuildError` if the step fails, `DockerfileUnsupported` if it cannot be done here."""
        if isinstance(job.step, Run):
            await self._run(job.step)
        else:
            await self._copy(job.step, job.found)

    async def _run(self, step: Run) -> None:
        if step.folders:
            wanted = [parent for folder in step.folders for parent in _with_parents(folder)]
            await self._put(step, [(path, 0o755) for path in await self._missing(step, wanted)])
        if step.script is not None:
            save = ["sh", "-c", 'cat > "$0" && chmod 755 "$0"', SCRIPT]
            await self._exec(step, save, stdin=step.script.encode())
        await (self.box.attach_network() if self.network and step.network else self.box.detach_network())
        # a package that asks a question would wait for an answer nobody gives
        env = {"DEBIAN_FRONTEND": "noninteractive", **step.env}
        await self._exec(step, list(step.argv), cwd=step.cwd, env=env, user=step.user)

    async def _copy(self, step: Copy | Workdir, found: Sequence[Source]) -> None:
        owner = await self._owner(step)
        target = step.path if isinstance(step, Workdir) else step.target
        alone = found[0] if len(found) == 1 and not found[0].folder and found[0].archive is None else None
        files: list[tuple[str, Entry]] = []
        if alone and not target.endswith("/") and await self._no_folders(step, [target]):
            files.append((target, alone.entries[0]))
            target, found = target.rpartition("/")[0], ()
        base = target.rstrip("/")
        folders = dict.fromkeys(_with_parents(base), 0o755)
        for source in found:
            for entry in source.entries if source.archive is None else ():
                path = f"{base}/{entry.rel or source.name}"
                if entry.kind == "folder":
                    folders[path] = entry.mode
                else:
                    files.append((path, entry))
        missing = await self._missing(step, list(folders))  # folders that are there keep their mode and owner
        await self._put(step, [(path, folders[path]) for path in missing], files, owner)
        for source in found:
            if source.archive is not None:
                await self._unpack(step, source, base or "/")

    async def _owner(self, step: Copy | Workdir) -> tuple[int, int]:
        """Numbers of a step's owner, looked up in what the earlier steps made."""
        if step.owner is None:
            return 0, 0
        passwd = await self._exec(step, ["cat", "/etc/passwd"])
        group = await self._exec(step, ["cat", "/etc/group"])
        try:
            ids = owner_ids(step.owner, passwd.decode(errors="replace"), group.decode(errors="replace"))
        except LookupError as error:
            raise failed(step, f"{error.args[0]} here, as the image is not. Make it in an earlier RUN.") from None
        if not privileged() and ids != (0, 0):
            raise failed(step, f"files of '{step.owner}' cannot be made by an ordinary user. Run as root.")
        return ids

    async def _no_folders(self, step: Step, paths: Sequence[str]) -> dict[str, bool]:
        """Those of `paths` that are no folder inside, in order -> True if something else is there."""
        asked = "".join(f"{path}\n" for path in paths).encode(errors="surrogateescape")
        answer = await self._exec(step, ["sh", "-c", _NO_FOLDERS], stdin=asked, cap=2 * len(asked) + 1)
        lines = answer.decode(errors="surrogateescape").split("\n")[:-1]
        return {line[1:]: line[0] == "x" for line in lines}

    async def _missing(self, step: Step, folders: Sequence[str]) -> list[str]:
        """Those of `folders` that must be made, in order."""
        found = await self._no_folders(step, folders)
        if taken := [path for path, taken in found.items() if taken]:
            raise failed(step, f"'{taken[0]}' is there already and is no folder.")
        return list(found)

    async def _put(
        self,
        step: Step,
        folders: Sequence[tuple[str, int]],
        files: Sequence[tuple[str, Entry]] = (),
        owner: tuple[int, int] = (0, 0),
    ) -> None:
        if not folders and not files:
            return
        with tempfile.SpooledTemporaryFile(max_size=SPOOL, dir=str(self.scratch)) as tar:
            try:
                await asyncio.to_thread(write_tar, tar, folders, files, owner)
            except OSError as error:
                raise failed(step, f"a file changed or vanished while it was copied ({error}).") from None
            tar.seek(0)
            await self._exec(step, ["tar", "-xpf", "-", "-C", "/"], stdin=tar)

    async def _unpack(self, step: Copy | Workdir, source: Source, target: str) -> None:
        if step.owner is not None:
            raise step.at.refusal("--chown of an archive is not supported. Unpack and chown it in a RUN.")
        path = source.entries[0].path
        assert path is not None  # a here-document is no archive
        how = ["--zstd", "-xp"] if source.archive == "-zstd" else [f"-x{source.archive}p"]
        how.append("--numeric-owner" if privileged() else "-o")  # an ordinary user has one owner to give
        with path.open("rb") as archive:
            await self._exec(step, ["tar", *how, "-f", "-", "-C", target], stdin=archive)

    async def _exec(self, step: Step, argv: list[str], **how: Any) -> bytes:
        """Run a command for `step`; its standard output. Raises `LayerBuildError` with the end of what it printed."""
        tail = bytearray()

        def remember(chunk: bytes, _stream: str) -> None:
            tail.extend(chunk)
            del tail[: -4 * TAIL]  # a character has at most four bytes

        how = {"cwd": "/", "env": {}, "user": 0, "stdin": None, "cap": 1 << 20, **how}
        result = await self.box.exec(argv, timeout=self.timeout, on_chunk=remember, **how)
        if result.timed_out:
            raise failed(step, f"it did not end within {self.timeout:g} s.{_last(tail)}")
        if result.code and _free(self.scratch) < DISK_FULL:
            raise SandboxDiskFull(f"The disk of {self.scratch} is full. Free space there, then run again.")
        if result.code:
            raise failed(step, f"exit code {result.code}.{_last(tail)}")
        return result.stdout


def _free(folder: Path) -> int:
    """Bytes that this process can still write there."""
    state = os.statvfs(folder)
    return (state.f_bfree if privileged() else state.f_bavail) * state.f_frsize


def _last(output: bytearray) -> str:
    text = output.decode(errors="replace").strip()
    return f" It printed:\n{text[-TAIL:]}" if text else " It printed nothing."


def _with_parents(path: str) -> list[str]:
    """`/a/b` -> `/a`, `/a/b`. The root is there already."""
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[:count]) for count in range(1, len(parts) + 1) if parts[0]]
