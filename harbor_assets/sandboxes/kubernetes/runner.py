"""Commands that outlive their connection: claimed once in the pod, detached, followed by byte offset.

The scripts in `inside/` do the work in the pod. A cut stream is followed again from the byte where it stopped; a
command is never started twice, because the folder made for its id is the claim. The exit code comes from a file that
the command's keeper wrote: what the exec stream itself says (137 when the container dies) is never taken for it.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from importlib import resources
from typing import Protocol

from harbor_assets.sandboxes import scripts
from harbor_assets.sandboxes.errors import ControlPlaneError, SandboxLost, UnknownUser
from harbor_assets.sandboxes.kubernetes.kube import ApiError, ExecFailed, Sink, StreamBroken
from harbor_assets.sandboxes.kubernetes.manifests import FOLDER
from harbor_assets.sandboxes.output import CAP, OnChunk

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 180.0  # without any contact; an apiserver's restart takes under a minute
KILL_SECONDS = 10.0  # of one try to end a command's processes
UNUSABLE_TRIES = 5  # in a row of commands that the pod, alive, cannot run; a full process table may pass
NOT_WRITTEN, NOT_PREPARED = 90, 94
_CUT, _NO_USER, _NEVER_STARTED, _NO_WAY = 91, 92, 93, 95
_MARK = b"\0\0"
_TRAILER_MAX = 80
SCRIPTS = ("run", "keep", "end", "switch", "spare")


class Pod(Protocol):
    """What commands and transfers need of a pod. `exec` raises as `Kube.exec` does, and SandboxLost and its kin as
    soon as the pod is known to be gone; `ask` raises them after it has looked, and ControlPlaneError never."""

    async def exec(
        self,
        command: list[str],
        *,
        stdin: AsyncIterator[bytes] | bytes | None = None,
        out: Sink | None = None,
        err: Sink | None = None,
    ) -> int: ...

    async def ask(self, problem: Exception) -> None: ...


class _Unusable(StreamBroken):
    """Our own script failed: an agent removed it, or the programs it needs."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A command's end. `code` is None if its time was up; `dropped` bytes were beyond CAP; `kills`: processes that the
    sandbox's memory limit has killed so far, `foreign_kills` those the node killed, short of memory itself;
    `reconnects`: how often the stream was cut."""

    code: int | None
    out: bytes
    err: bytes
    dropped: int = 0
    kills: int = 0
    foreign_kills: int = 0
    reconnects: int = 0


def preparation(*more: str) -> tuple[str, bytes]:
    """A shell command, and its stdin, that puts the scripts into the pod and then does `more`.

    They become files: as arguments an agent's `pkill -f` would match them. The command ends with NOT_WRITTEN if they
    did not arrive whole, with NOT_PREPARED if the rest failed.
    """
    texts = [(name, _text(name)) for name in SCRIPTS]
    body = b"".join(text for _, text in texts)
    steps = [
        f"mkdir -p {FOLDER}/c",
        f"chmod 711 {FOLDER}/c",
        f"cat >{FOLDER}/all",
        f"[ $(wc -c <{FOLDER}/all) -eq {len(body)} ]",
    ]
    at = 1
    for name, text in texts:
        steps.append(f"tail -c +{at} {FOLDER}/all | head -c {len(text)} >{FOLDER}/{name}")
        at += len(text)
    rest = "".join(f"{{ {step}; }} || exit {NOT_PREPARED}; " for step in more)
    return f"{{ {' && '.join(steps)}; }} || exit {NOT_WRITTEN}; {rest}", body


def _text(name: str) -> bytes:
    return scripts.end() if name == "end" else (resources.files(__package__) / "inside" / f"{name}.sh").read_bytes()


@dataclass
class Runner:
    """Runs commands in one pod."""

    pod: Pod
    patience: float = PATIENCE_SECONDS
    reconnects: int = 0
    _done: list[str] = field(default_factory=list)

    async def run(
        self,
        body: bytes,
        *,
        user: str = "",
        timeout: float | None = None,  # noqa: ASYNC109 - what happens then is ours to do
        on_chunk: OnChunk | None = None,
        cap: int = CAP,
    ) -> Finished:
        """Run a script to its end, once. `user` "" is root. With its time up, its processes are ended: code None.

        Cancelling ends them too. Raises UnknownUser; SandboxLost and its kin; ControlPlaneError after `patience`.
        """
        call = _Call(uuid.uuid4().hex[:12], body, user, cap, on_chunk)
        try:
            async with asyncio.timeout(timeout):
                code, dropped, kills, foreign = await self._follow(call)
        except TimeoutError:
            await self._end(call)
            return Finished(None, bytes(call.out), call.said(), reconnects=call.reconnects)
        except asyncio.CancelledError:
            await asyncio.shield(self._end(call))
            raise
        self._done.append(call.id)
        return Finished(code, bytes(call.out), call.said(), dropped, kills, foreign, call.reconnects)

    async def _follow(self, call: "_Call") -> tuple[int, int, int, int]:
        silent_since: float | None = None
        while True:
            before = call.held
            try:
                ended = await self._attempt(call)
                if ended is not None:
                    await call.finish()
                    return ended
                problem: Exception = StreamBroken("the stream ended in the middle")
            except (StreamBroken, ExecFailed) as error:
                problem = error
            except ApiError as error:
                if not error.passing and error.status not in (401, 403, 404):
                    raise
                problem = error
            self.reconnects += 1
            call.reconnects += 1
            now = time.monotonic()
            if silent_since is None or call.held > before:
                silent_since = now
            await self.pod.ask(problem)
            call.broken = call.broken + 1 if isinstance(problem, _Unusable | ExecFailed) else 0
            if call.broken > UNUSABLE_TRIES:
                raise SandboxLost(f"commands cannot be run in the sandbox any more: {problem}") from problem
            if now - silent_since > self.patience:
                raise ControlPlaneError(
                    f"no contact with the sandbox for {self.patience:.0f} s: {problem}"
                ) from problem
            await asyncio.sleep(min(0.2 * 2 ** min(call.reconnects, 4), 3))

    async def _attempt(self, call: "_Call") -> tuple[int, int, int, int] | None:
        """One stream. (exit code, bytes dropped, kills, foreign kills) if it saw the end; None: follow it on."""
        size = "-" if call.launched else str(len(call.body))
        done, self._done = self._done, []
        held = [str(len(call.out)), str(call.held_err())]
        shell = "sh" if call.broken % 2 else "bash"  # either may be missing
        argv = [shell, f"{FOLDER}/run", call.id, size, *held, str(call.cap), call.user, *done]
        body = None if call.launched else call.body
        call.launched = True  # unknown from here on: ask before starting it again
        code = await self.pod.exec(argv, stdin=body, out=call.take_out, err=call.take_err)
        if code == 0:
            return call.trailer()
        if code in (_NEVER_STARTED, _CUT):
            call.launched = False
        if code == _NO_USER:
            raise UnknownUser(f"the image has no user '{call.user}'")
        if code == _NO_WAY:
            raise UnknownUser(f"the image has no program to become user '{call.user}': setpriv, su or chroot")
        if code not in (_NEVER_STARTED, _CUT):
            kind = (
                StreamBroken if code > 128 else _Unusable
            )  # killed by a signal: an agent's `kill -9 -1`, or the pod's end
            raise kind(f"our script ended with {code}")
        return None

    async def _end(self, call: "_Call") -> None:
        """End all processes of a command. Raises SandboxLost or ControlPlaneError if that cannot be made sure of."""
        problem: Exception | None = None
        for attempt in range(3):
            try:
                async with asyncio.timeout(KILL_SECONDS):
                    code = await self.pod.exec(["sh", f"{FOLDER}/end", call.id])
                if code == 0:
                    return
                problem = SandboxLost("processes of a command that was to end are still there")
            except (StreamBroken, ExecFailed, ApiError, TimeoutError) as error:
                problem = error
            await self.pod.ask(problem)
            await asyncio.sleep(attempt)
        if isinstance(problem, SandboxLost):
            raise problem
        raise ControlPlaneError(f"a command could not be ended: {problem}") from problem


@dataclass
class _Call:
    """One command: what it is, and what is held of its output."""

    id: str
    body: bytes
    user: str
    cap: int
    on_chunk: OnChunk | None
    out: bytearray = field(default_factory=bytearray)
    err: bytearray = field(default_factory=bytearray)
    launched: bool = False
    reconnects: int = 0
    broken: int = 0
    _shown: int = 0
    _end: int | None = None

    @property
    def held(self) -> int:
        return len(self.out) + len(self.err)

    def held_err(self) -> int:
        """Bytes of stderr proper. A stream cut after a part of the trailer leaves that part at the end."""
        at = self._mark()
        if at is not None:
            del self.err[at:]
        return len(self.err)

    async def take_out(self, data: bytes) -> None:
        self.out.extend(data)
        if self.on_chunk:
            await self.on_chunk(data, "stdout")

    async def take_err(self, data: bytes) -> None:
        self.err.extend(data)
        at = self._mark()
        await self._show(len(self.err) if at is None else at)

    def trailer(self) -> tuple[int, int, int, int] | None:
        """(exit code, bytes dropped, kills, foreign kills) if the trailer is there and all it speaks of is held."""
        at = self.err.rfind(_MARK)
        try:
            code, n, m, kills, own = (int(word) for word in self.err[at + len(_MARK) :].split())
        except ValueError:
            return None
        if at < 0 or min(n, self.cap) != len(self.out) or min(m, self.cap) != at:
            if len(self.out) > n or at > m:  # more than there is: something else spoke; take all of it again
                self.out.clear()
                self.err.clear()
            return None
        self._end = at
        return code, max(0, n - self.cap) + max(0, m - self.cap), *((kills, 0) if own else (0, kills))

    def said(self) -> bytes:
        """Stderr, without our trailer."""
        end = self._mark() if self._end is None else self._end
        return bytes(self.err[:end])

    async def finish(self) -> None:
        await self._show(self._end or 0)

    def _mark(self) -> int | None:
        """Where a trailer may begin: near the end, so that zero bytes of the command's own are not held for long."""
        at = self.err.rfind(_MARK, max(0, len(self.err) - _TRAILER_MAX))
        if at >= 0:
            return at
        return len(self.err) - 1 if self.err.endswith(b"\0") else None

    async def _show(self, end: int) -> None:
        if self.on_chunk and end > self._shown:
            data = bytes(self.err[self._shown : end])
            self._shown = end
            await self.on_chunk(data, "stderr")
