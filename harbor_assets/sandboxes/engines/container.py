"""One container: made, looked at, connected and disconnected, removed."""

import asyncio
import contextlib
import re
import secrets
import time
from asyncio.subprocess import Process
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from harbor_assets.sandboxes.engines.cli import Engine, EngineFailed, ended
from harbor_assets.sandboxes.errors import (
    ControlPlaneError,
    SandboxDeadline,
    SandboxLost,
    SandboxOutOfMemory,
    SandboxStartError,
)
from harbor_assets.sandboxes.sizes import Sizes

PIDS = 2048  # podman's own default; docker has none, and a fork bomb would take the machine
LABEL, LABEL_HOME, LABEL_OWNER, LABEL_RUN, LABEL_TRIAL = (
    "harbor-assets",
    "harbor/home",
    "harbor/owner",
    "harbor/run-id",
    "harbor/trial",
)
PATIENCE_SECONDS = 30.0  # for an engine that does not answer: a restart of one takes a few seconds
REMOVE_SECONDS = 60.0
LET_GO_SECONDS = 5.0  # for a client without work to end, which takes a tenth of a second
# A shell in `wait` reaps whatever is orphaned to it; `sleep` as PID 1 would not. Signals without a handler do not reach
# a PID 1 from inside. It ends by itself at its deadline, whoever else is dead by then.
_IDLE = (
    'end=$(($(date +%s) + $1)); while s=$((end - $(date +%s))); [ "$s" -gt 0 ]; do '
    '[ "$s" -gt 3600 ] && s=3600; sleep "$s" & wait $!; done'
)
_NO_QUOTA = ("storage-opt", "storage opt", "quota", "storage option")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a container is to be. `lifetime_seconds`: its own end, if nobody ends it before."""

    image: str
    session: str
    labels: dict[str, str]
    sizes: Sizes
    lifetime_seconds: int


@dataclass
class Container:
    """A container of ours. `missing` names the limits the engine could not set."""

    engine: Engine
    name: str
    network: str
    lifetime_seconds: int
    own_network: bool = False
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    idle: dict[str, list[Process]] = field(default_factory=dict)  # clients kept for the next command, by user

    # -- life --------------------------------------------------------------------------------------------------------

    @classmethod
    async def start(cls, engine: Engine, order: Order) -> "Container":
        """Make and start one, on a network of its own reach. Raises SandboxStartError, ControlPlaneError."""
        name = container_name(order.session)
        box = cls(engine, name, name if engine.kind == "podman" else LABEL, order.lifetime_seconds)
        try:
            await box._make_network(order.labels)
            await box._create(order)
            await box._look(order.sizes)
        except EngineFailed as error:
            await box.remove()
            raise SandboxStartError(str(error)) from error
        except BaseException:
            with contextlib.suppress(ControlPlaneError):
                await asyncio.shield(box.remove())
            raise
        return box

    async def _create(self, order: Order) -> None:
        words = self._words(order)
        storage = order.sizes.storage_mb
        if storage is not None:
            try:
                await self._run(["--storage-opt", f"size={storage}m", *words])
            except EngineFailed as error:
                if not any(sign in str(error).lower() for sign in _NO_QUOTA):
                    raise
                await self.engine.ask("rm", "-f", self.name)
                self.missing.append("storage")
                self.notes.append(f"This {self.engine.kind} cannot limit storage: {str(error)[-300:]}")
            else:
                return
        await self._run(words)

    async def _run(self, words: Sequence[str]) -> None:
        # Once begun it is seen to its end: a container that appears after it was given up would be nobody's.
        call = asyncio.ensure_future(self.engine.must("run", "-d", *words))
        try:
            await asyncio.shield(call)
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):
                await call
            raise

    def _words(self, order: Order) -> list[str]:
        sizes = order.sizes
        words = ["--name", self.name, "--network", self.network, "--user", "0", "--pull", "never"]
        words += [word for key, value in order.labels.items() for word in ("--label", f"{key}={value}")]
        words += ["--pids-limit", str(PIDS), "--stop-timeout", "0"]
        if sizes.cpus is not None:
            words += ["--cpus", f"{sizes.cpus:g}"]
        if sizes.memory_mb is not None:  # as much swap as memory means none
            words += ["--memory", f"{sizes.memory_mb}m", "--memory-swap", f"{sizes.memory_mb}m"]
        return [*words, "--entrypoint", "sh", order.image, "-c", _IDLE, "sandbox", str(order.lifetime_seconds)]

    async def _look(self, sizes: Sizes) -> None:
        """What was made. An engine without the rights for a limit leaves it out with a warning at most."""
        found = await self.engine.container(self.name)
        if found is None or not (found.get("State") or {}).get("Running"):
            raise SandboxStartError(f"the container ended as soon as it began: {await self._last_words()}")
        self.facts = found
        host = self.facts.get("HostConfig") or {}
        if sizes.cpus is not None and not (host.get("NanoCpus") or host.get("CpuQuota")):
            self.missing.append("cpus")
        if sizes.memory_mb is not None and not host.get("Memory"):
            self.missing.append("memory")

    async def remove(self) -> None:
        """Remove it and what is its own. Idempotent. Raises ControlPlaneError if that cannot be made sure of."""
        kept, self.idle = [client for clients in self.idle.values() for client in clients], {}
        await asyncio.gather(*map(_let_go, kept))
        answer = await self.engine.ask("rm", "-f", "-v", self.name, seconds=REMOVE_SECONDS)
        if answer.code and not answer.no_such:
            raise ControlPlaneError(f"the container {self.name} could not be removed: {answer.said}")
        if self.own_network:
            answer = await self.engine.ask("network", "rm", self.network, seconds=REMOVE_SECONDS)
            if answer.code and not answer.no_such:
                raise ControlPlaneError(f"the network {self.network} could not be removed: {answer.said}")

    # -- network -----------------------------------------------------------------------------------------------------

    async def _make_network(self, labels: dict[str, str]) -> None:
        """Podman: one for this container alone. Docker, which has few: one whose members cannot see each other."""
        words = ["network", "create"]
        if self.engine.kind == "docker":
            if (await self.engine.ask("network", "inspect", self.network)).code == 0:
                return
            words += ["--label", f"{LABEL}=shared", "-o", "com.docker.network.bridge.enable_icc=false", self.network]
            answer = await self.engine.ask(*words)
            if answer.code and "already exists" not in answer.said:
                raise EngineFailed(f"`docker network create`: {answer.said}")
            return
        words += [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
        answer = await self.engine.ask(*words, "--opt", "isolate=true", self.network)
        if answer.code and "isolate" in answer.said.lower():
            self.notes.append("This podman cannot keep sandboxes from each other's ports.")
            answer = await self.engine.ask(*words, self.network)
        if answer.code:
            raise EngineFailed(f"`podman network create`: {answer.said}")
        self.own_network = True

    async def connect(self) -> None:
        """Give it its network. Raises SandboxStartError, SandboxLost, ControlPlaneError."""
        await self._switch("connect", connected=True)

    async def disconnect(self) -> None:
        """Take every network from it; open connections are cut. Raises as `connect`."""
        await self._switch("disconnect", connected=False)

    async def _switch(self, verb: str, *, connected: bool) -> None:
        answer = await self.engine.ask("network", verb, self.network, self.name)
        found = await self.engine.container(self.name)
        if found is None or not (found.get("State") or {}).get("Running"):
            await self.ask_after(answer.said)
            raise SandboxLost(f"the container {self.name} is gone")
        networks = ((found.get("NetworkSettings") or {}).get("Networks")) or {}
        if bool(networks) != connected or (connected and self.network not in networks):
            names = ", ".join(networks) or "none"
            raise SandboxStartError(f"`network {verb}` did not do it (it has: {names}): {answer.said}")

    # -- whether it lives --------------------------------------------------------------------------------------------

    async def ask_after(self, said: str) -> None:
        """Returns if the container lives. Raises SandboxLost and its kin if not, ControlPlaneError if the engine does
        not answer for longer than we wait. `said`: what was heard of it last."""
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                found = await self.engine.container(self.name)
            except ControlPlaneError:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(1)
                continue
            break
        if found is None:
            raise SandboxLost(f"the container {self.name} was removed; last heard: {said[-300:] or 'nothing'}")
        state = found.get("State") or {}
        if state.get("Running"):
            if state.get("Paused"):
                raise SandboxLost(f"the container {self.name} is paused")
            return
        if state.get("OOMKilled"):
            raise SandboxOutOfMemory("the kernel ended the whole sandbox at its memory limit")
        if time.monotonic() - self.began >= self.lifetime_seconds:
            raise SandboxDeadline(f"the sandbox outlived its longest lifetime of {self.lifetime_seconds} s")
        raise SandboxLost(f"the container {self.name} ended with exit code {state.get('ExitCode')}")

    async def _last_words(self) -> str:
        answer = await self.engine.ask("logs", self.name)
        return " ".join((answer.out + answer.err).decode(errors="replace").split())[-500:] or "it said nothing"


async def _let_go(client: Process) -> None:
    """End a kept client by the end of its stdin, by force if that does not help: it may be a script around another."""
    if client.stdin:
        client.stdin.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LET_GO_SECONDS):
            await client.wait()
    await ended(client)


def container_name(session: str) -> str:
    """A name that no other container has, and that people recognise."""
    safe = re.sub(r"[^a-z0-9_.-]+", "-", session.lower()).strip("-._")[:40] or "trial"
    return f"harbor-{safe}-{secrets.token_hex(4)}"
