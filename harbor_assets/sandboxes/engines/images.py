"""Images of tasks on this machine: built by the engine, or found and pulled by it.

A reference is `name@sha256:...`. Of an image that came from a registry the digest is the registry's, so that others can
find it; of one that was built here it is the image's own id.
"""

import contextlib
import logging
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from harbor_assets.domain.digests import digest_of
from harbor_assets.domain.errors import NotFound, ServiceUnavailable
from harbor_assets.domain.plans import ImageConfig
from harbor_assets.engine.ports import BuildFailed, BuildLines, BuildOrder
from harbor_assets.sandboxes.engines.cli import Answer, Engine
from harbor_assets.sandboxes.engines.guard import alone

logger = logging.getLogger(__name__)

PREFIX = "localhost/harbor-assets"  # of what is built here: a name that no registry answers for
PULL_SECONDS = 1800.0  # of one image; a suite's largest are some 20 GB
TOLD_SECONDS = 2.0  # of a pull, then as often as it doubles: who waits wants to know for what
ANSWER_SECONDS = 8.0  # for a registry's first word, which takes one or two
_ERROR_MAX = 2000
_LINE_MAX = 200
_LOG_MAX = 1 << 20
# Ends the build with our process: its stdin is our pipe. `exec 3<&0`: what runs behind `&` has none. Podman, told to
# end, leaves its working container behind; so the RUN under way is killed first, by the first process of its container,
# a grandchild. The build then fails in order and removes it.
_BOUND = """exec 3<&0
"$@" </dev/null 3<&- &
p=$!
{
  cat <&3 >/dev/null
  for c in $(cat /proc/$p/task/*/children); do kill -KILL $(cat /proc/$c/task/*/children); done
  n=0; while kill -0 $p && [ $n -lt 5 ]; do n=$((n + 1)); sleep 1; done
  kill -TERM $p; sleep 5; kill -KILL $p
} >/dev/null 2>&1 &
w=$!
exec 3<&-
wait $p
c=$?
kill $w
exit $c"""


class EngineImages:
    """Implements the engine's `ImageBuilder` and `ImageRegistry` with docker or podman.

    `context_key`: the key of a folder's content. `log`: makes an empty log. `home`: where the locks lie, so that two
    commands build an image once.
    """

    def __init__(
        self, engine: Engine, *, home: Path, context_key: Callable[[Path], str], log: Callable[[], BuildLines]
    ) -> None:
        self._engine, self._home, self._context_key, self._log = engine, home, context_key, log

    # -- builder -----------------------------------------------------------------------------------------------------

    def key(self, folder: Path) -> str:
        """See `ImageBuilder`."""
        return self._context_key(folder)

    def log(self) -> BuildLines:
        """See `ImageBuilder`."""
        return self._log()

    def build(self, order: BuildOrder, log: BuildLines) -> str:
        """See `ImageBuilder`."""
        with alone(self._home, f"build-{digest_of({'engine': self._engine.kind, 'tag': order.tag})[:32]}"):
            found = self._engine.image(order.tag)
            if found is None:
                self._build(order, log)
                found = self._engine.image(order.tag)
        if found is None:
            raise ServiceUnavailable(f"{self._engine.kind} built {order.tag}, but does not have it")
        return f"{order.tag.rpartition(':')[0]}@{_id(found)}"

    def _build(self, order: BuildOrder, log: BuildLines) -> None:
        # Podman's own default asks registries for what is here already; docker's does not.
        pull = ["--pull=missing"] if self._engine.kind == "podman" else []
        words = [self._engine.command, "build", *pull, "--force-rm", "-t", order.tag, str(order.context)]
        try:
            process = subprocess.Popen(
                ["sh", "-c", _BOUND, "sh", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd="/",
            )
        except FileNotFoundError as error:
            raise ServiceUnavailable("there is no `sh` here") from error
        assert process.stdin
        assert process.stdout
        last: list[str] = []
        reader = threading.Thread(target=_read, args=(process.stdout, log, last), daemon=True)
        reader.start()
        try:
            code = process.wait(timeout=order.seconds)
        except subprocess.TimeoutExpired:
            process.stdin.close()
            process.wait()
            raise BuildFailed(
                f"the build did not end within {order.seconds:g} s; raise [environment] build_timeout_sec in task.toml"
            ) from None
        finally:
            with contextlib.suppress(OSError):
                process.stdin.close()
            reader.join(5)
            process.stdout.close()
        if code:
            said = " ".join(" ".join(last).split())[-_ERROR_MAX:] or f"exit code {code}"
            if Answer(code, b"", said.encode()).engine_gone:
                raise ServiceUnavailable(f"{self._engine.kind} does not answer: {said}")
            raise BuildFailed(said)

    # -- registry ----------------------------------------------------------------------------------------------------

    def resolve(self, image: str) -> str:
        """See `ImageRegistry`: an image that is here is taken as it is, another one is pulled."""
        found = self._engine.image(image)
        if found is None:
            with alone(self._home, f"pull-{digest_of({'engine': self._engine.kind, 'image': image})[:32]}"):
                answer = self._pull(image)
            found = self._engine.image(image)
            if found is None:
                if answer.engine_gone:
                    raise ServiceUnavailable(f"{self._engine.kind} does not answer: {answer.said}")
                raise NotFound(f"it is not here, and `{self._engine.kind} pull` failed: {answer.said}")
        return _reference(image, found)

    def _pull(self, image: str) -> Answer:
        """A pull to its end, unless the registry says nothing at first: engines try for minutes then."""
        with tempfile.TemporaryFile() as out:
            try:
                process = subprocess.Popen(
                    [self._engine.command, "pull", image], stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd="/"
                )
            except FileNotFoundError as error:
                raise ServiceUnavailable(f"the command `{self._engine.command}` is not installed here") from error
            began, told = time.monotonic(), TOLD_SECONDS
            try:
                while process.poll() is None:
                    took = time.monotonic() - began
                    if took > told:
                        told *= 2
                        logger.info("%s pulls %s, for %.0f s now: %s", self._engine.kind, image, took, _last(out))
                    if took > ANSWER_SECONDS and not _answered(_content(out)):
                        raise NotFound(f"it is not here, and its registry did not answer within {ANSWER_SECONDS:g} s")
                    if took > PULL_SECONDS:
                        raise ServiceUnavailable(f"the pull did not end within {PULL_SECONDS:g} s")
                    time.sleep(0.1)
            finally:
                if process.returncode is None:
                    process.kill()
                    process.wait()
            return Answer(process.wait(), b"", _content(out).strip())

    def exists(self, ref: str) -> bool:
        """See `ImageRegistry`."""
        return runnable(self._engine, ref) is not None

    def config(self, ref: str) -> ImageConfig:
        """See `ImageRegistry`."""
        name = runnable(self._engine, ref)
        found = self._engine.image(name) if name else None
        if found is None:
            raise NotFound(f"{self._engine.kind} has no image {ref}")
        config = found.get("Config") or {}
        pairs = (str(entry).partition("=") for entry in config.get("Env") or ())
        return ImageConfig(
            user=config.get("User") or None,
            workdir=config.get("WorkingDir") or None,
            env={name: value for name, _, value in pairs},
        )


def _content(file: IO[bytes]) -> bytes:
    return os.pread(file.fileno(), _LOG_MAX, 0)


def _last(out: IO[bytes]) -> str:
    lines = _content(out).decode(errors="replace").splitlines()
    return lines[-1].strip()[:_LINE_MAX] if lines else "it has said nothing yet"


def _answered(said: bytes) -> bool:
    """Whether a pull tells of more than its beginning."""
    return any(
        line and not line.startswith((b"Trying to pull", b"Resolving", b"Resolved")) for line in said.splitlines()
    )


def runnable(engine: Engine, ref: str) -> str | None:
    """What the engine runs for a reference of ours; None if it has no such image. Raises ServiceUnavailable."""
    name, _, digest = ref.rpartition("@")
    if not name.startswith(f"{PREFIX}/") and engine.image(ref) is not None:
        return ref
    return digest if engine.image(digest) is not None else None


def _reference(image: str, found: dict[str, Any]) -> str:
    name = _without_tag(image)
    digests = [str(entry) for entry in found.get("RepoDigests") or ()]
    mine = [entry for entry in digests if _same_name(entry.rpartition("@")[0], name)]
    return mine[0] if mine else f"{name}@{_id(found)}"


def _without_tag(image: str) -> str:
    name = image.partition("@")[0]
    head, _, last = name.rpartition("/")
    return f"{head}/{last.partition(':')[0]}" if head else last.partition(":")[0]


def _same_name(one: str, other: str) -> bool:
    """`debian` and `docker.io/library/debian` are one name."""
    return one == other or one.removeprefix("docker.io/").removeprefix("library/") == other


def _id(found: dict[str, Any]) -> str:
    identity = str(found.get("Id", ""))
    return identity if identity.startswith("sha256:") else f"sha256:{identity}"


def _read(stream: IO[bytes], log: BuildLines, last: list[str]) -> None:
    """Lines into the log; the last few are a failure's message."""
    with contextlib.suppress(ValueError):  # closed under us
        for line in stream:
            text = line.decode(errors="replace").rstrip("\r\n")
            log.line(text)
            last.append(text)
            del last[:-8]
