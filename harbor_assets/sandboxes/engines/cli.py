"""A container engine by its command: `docker` or `podman`. What both understand alike is all that is used of them.

Nothing secret is ever an argument: what a command is to see travels on stdin.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, get_args

from harbor_assets.domain.errors import ServiceUnavailable
from harbor_assets.sandboxes.errors import ControlPlaneError

EngineKind = Literal["docker", "podman"]
KINDS: tuple[EngineKind, ...] = get_args(EngineKind)
CALL_SECONDS = 120.0  # of a call that does no work of a task's: creating takes a second, on a loaded disk many
PROBE_SECONDS = 15.0  # an engine that is there says so within one
SAID_MAX = 2000
_NOT_THERE = (  # as the clients say it of an engine that does not answer
    "cannot connect to the docker daemon",
    "cannot connect to podman",
    "error during connect",
    "connection refused",
    "dial unix",
    "docker daemon is not running",
)
_NO_SUCH = ("no such", "not found", "not known", "does not exist", "unable to find")


@dataclass(frozen=True, slots=True)
class Answer:
    """How a call ended: exit code, stdout, stderr."""

    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """Stdout as a line."""
        return self.out.decode(errors="replace").strip()

    @property
    def said(self) -> str:
        """The end of stderr, on one line, for a message."""
        return " ".join(self.err.decode(errors="replace").split())[-SAID_MAX:] or f"exit code {self.code}"

    @property
    def engine_gone(self) -> bool:
        """Whether the engine itself did not answer."""
        return self.code != 0 and any(words in self.said.lower() for words in _NOT_THERE)

    @property
    def no_such(self) -> bool:
        """Whether the engine knows no such container, image or network."""
        return self.code != 0 and not self.engine_gone and any(words in self.said.lower() for words in _NO_SUCH)


class EngineFailed(Exception):
    """The engine refused a call; the text is its own."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine. `program` is its command: a name on PATH, or a path."""

    kind: EngineKind
    program: str = ""
    folder: Path | None = None  # where it is started: podman's monitor leaves a file `oom` there when memory runs out

    @property
    def command(self) -> str:
        """What is started."""
        return self.program or self.kind

    # -- whether it is there -----------------------------------------------------------------------------------------

    @property
    def installed(self) -> bool:
        """Whether its command is on this machine; its service may still not answer."""
        return shutil.which(self.command) is not None

    def absence(self) -> str | None:
        """Why it cannot be used, as a clause with the next step; None if it answers."""
        if not self.installed:
            return f"the command `{self.command}` is not installed here; install {self.kind}, or take process"
        try:
            answer = self.call("info", "--format", "{{json .}}", seconds=PROBE_SECONDS)
        except ServiceUnavailable as error:
            return f"{error}; start it, or take process"
        if answer.code:
            return f"`{self.command} info` failed: {answer.said}; start {self.kind}, or take process"
        # Docker's client ends with 0 when the daemon does not answer, and says so in its answer.
        errors = _mapping(answer.out).get("ServerErrors") or []
        if errors:
            return f"{self.kind} does not answer: {' '.join(str(errors[0]).split())}; start it, or take process"
        return None

    # -- calls -------------------------------------------------------------------------------------------------------

    def call(self, *words: str, seconds: float = CALL_SECONDS) -> Answer:
        """One call to its end, in this thread. Raises ServiceUnavailable if there is no such program, or no answer."""
        try:
            done = subprocess.run(
                [self.command, *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=seconds,
                check=False,
                cwd=self.folder,
            )
        except FileNotFoundError as error:
            raise ServiceUnavailable(f"the command `{self.command}` is not installed here") from error
        except subprocess.TimeoutExpired as error:
            raise ServiceUnavailable(f"`{self.command} {words[0]}` did not answer within {seconds:g} s") from error
        return Answer(done.returncode, done.stdout, done.stderr)

    async def ask(self, *words: str, seconds: float = CALL_SECONDS, stdin: bytes | None = None) -> Answer:
        """As `call`, on the event loop. Raises ControlPlaneError: within a trial nothing is known of a sandbox then."""
        process = await self.open(words, stdin=None if stdin is None else asyncio.subprocess.PIPE)
        try:
            async with asyncio.timeout(seconds):
                out, err = await process.communicate(stdin)
        except TimeoutError as error:
            raise ControlPlaneError(f"`{self.command} {words[0]}` did not answer within {seconds:g} s") from error
        finally:
            await ended(process)
        assert process.returncode is not None
        return Answer(process.returncode, out, err)

    async def must(self, *words: str, seconds: float = CALL_SECONDS) -> str:
        """As `ask`; its stdout. Raises EngineFailed if the engine refuses, ControlPlaneError if it is gone."""
        answer = await self.ask(*words, seconds=seconds)
        if answer.engine_gone:
            raise ControlPlaneError(f"{self.kind} does not answer: {answer.said}")
        if answer.code:
            raise EngineFailed(f"`{self.command} {words[0]}`: {answer.said}")
        return answer.text

    async def open(
        self, words: Sequence[str], *, stdin: IO[bytes] | int | None, stdout: IO[bytes] | int = subprocess.PIPE
    ) -> asyncio.subprocess.Process:
        """Start a call whose bytes the caller moves."""
        try:
            return await asyncio.create_subprocess_exec(
                self.command,
                *words,
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=stdout,
                stderr=subprocess.PIPE,
                limit=1 << 20,
                cwd=self.folder,
            )
        except FileNotFoundError as error:
            raise ControlPlaneError(f"the command `{self.command}` is gone") from error

    # -- looking -----------------------------------------------------------------------------------------------------

    def image(self, name: str) -> dict[str, Any] | None:
        """What the engine knows of an image here; None if it has none of that name. Raises ServiceUnavailable."""
        return self._seen(self.call("image", "inspect", name))

    def _seen(self, answer: Answer) -> dict[str, Any] | None:
        if answer.code == 0:
            return _mapping(answer.out)
        if answer.no_such:
            return None
        raise ServiceUnavailable(f"{self.kind} does not answer: {answer.said}")

    async def container(self, name: str) -> dict[str, Any] | None:
        """What the engine knows of a container; None if there is none. Raises ControlPlaneError."""
        answer = await self.ask("container", "inspect", name)
        try:
            return self._seen(answer)
        except ServiceUnavailable as error:
            raise ControlPlaneError(str(error)) from error


def _mapping(document: bytes) -> dict[str, Any]:
    """The object in an answer; the first, of a list."""
    try:
        found = json.loads(document)
    except ValueError:
        return {}
    if isinstance(found, list):
        found = found[0] if found else {}
    return found if isinstance(found, dict) else {}


async def ended(process: asyncio.subprocess.Process) -> None:
    """See a client to its end, by force if it has not come."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        await process.wait()
