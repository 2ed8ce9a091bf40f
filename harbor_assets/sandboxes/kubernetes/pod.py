"""One sandbox pod: made, watched, asked, deleted. The watch is what tells a death from a bad connection."""

import asyncio
import contextlib
import logging
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from harbor_assets.domain.pods import KEEP_UNTIL, WAITS_FOR, Finding, diagnose, quota
from harbor_assets.sandboxes.errors import ControlPlaneError, SandboxStartError, SandboxUnschedulable
from harbor_assets.sandboxes.kubernetes.diagnosis import error_of
from harbor_assets.sandboxes.kubernetes.kube import ApiError, Kube, Sink, StreamBroken, Unreachable
from harbor_assets.sandboxes.kubernetes.manifests import LABEL_NETWORK, LABEL_ROLE
from harbor_assets.sandboxes.kubernetes.spare import Spare

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 180.0  # without an answer of the apiserver; its restart takes under a minute
WATCH_SECONDS = 290  # then the watch is asked for anew: many load balancers cut at 300
SETTLE_SECONDS = 3.0  # how long after a container's end its status may still say "running"
QUOTA_SECONDS = 5.0  # between two tries to get past a quota
HISTORY = 20  # states of one pod that are kept as evidence
NONCE = "harbor/launch"  # tells our own pod, made by a request whose answer was lost, from one left by somebody before


async def steady[T](ask: Callable[[], Awaitable[T]], patience: float = PATIENCE_SECONDS) -> T:
    """Ask until the apiserver answers. Raises ApiError for a refusal, ControlPlaneError after `patience` seconds."""
    began, pause = time.monotonic(), 0.2
    while True:
        try:
            return await ask()
        except (ApiError, Unreachable) as error:
            if isinstance(error, ApiError) and not error.passing:
                raise
            if time.monotonic() - began > patience:
                raise ControlPlaneError(f"the apiserver has not answered for {patience:.0f} s: {error}") from error
            await asyncio.sleep(pause)
            pause = min(pause * 2, 5.0)


class SandboxPod:
    """The pod of one sandbox, from its manifest.

    `worker_pod` is our own, which tells others what is waited for while there is no other pod to see it on. `logger` is
    the trial's: who follows a trial's log follows its sandbox.
    """

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        manifest: Mapping[str, Any],
        *,
        patience: float = PATIENCE_SECONDS,
        worker_pod: str | None = None,
        logger: logging.Logger = log,
    ) -> None:
        self._worker_pod, self._log = worker_pod, logger
        self.kube, self.namespace, self.patience = kube, namespace, patience
        self.name: str = manifest["metadata"]["name"]
        self.uid: str | None = None
        self.state: Mapping[str, Any] | None = None  # what the watch saw last
        self.gone = False
        self.ready = False
        self._told: str | None = None
        self.waited_for: list[str] = []  # sentences on what the start waited for, each once
        self._manifest = dict(manifest)
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._path = f"{self._pods}/{self.name}"
        self._history: deque[Mapping[str, Any]] = deque(maxlen=HISTORY)
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        self._nonce: str | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._spares = False
        self._spare: Spare | None = None

    # -- life --------------------------------------------------------------------------------------------------------

    async def create(self, deadline: float) -> None:
        """Make the pod. A quota that is full is waited for until `deadline` (of the monotonic clock).

        A pod of that name that somebody left (a worker that died) is deleted first.
        """
        self._nonce = nonce = uuid.uuid4().hex
        self._manifest["metadata"] = {
            **self._manifest["metadata"],
            "annotations": {**self._manifest["metadata"].get("annotations", {}), NONCE: nonce},
        }
        while True:
            try:
                self._begin(await steady(lambda: self.kube.call("POST", self._pods, self._manifest), self.patience))
                break
            except ApiError as error:
                if error.status == 409:
                    if await self._adopt(nonce):
                        break
                    continue
                await self._wait_for_quota(error, deadline)
        await self._tell_others(None)
        self._watcher = asyncio.create_task(self._watch())

    async def until_running(self, deadline: float, grace: float) -> None:
        """Wait for the container. A pod that would fit an empty node only waits, until `deadline`; what cannot get
        better is an error at once, and a pod larger than any node after `grace` seconds. Raises SandboxStartError and
        its kin."""
        hopeless_since: float | None = None
        while True:
            self._changed.clear()
            found = await self._look()
            now = time.monotonic()
            if found.reason == "running":
                self.ready = True
                return
            if found.ended or (found.hopeless and found.reason != "too_large"):
                raise self._error(found)
            if found.reason == "too_large":
                hopeless_since = hopeless_since or now
                if now - hopeless_since >= grace:
                    raise self._error(found)
            else:
                hopeless_since = None
            if found.reason in ("unschedulable", "too_large", "image_pull") and found.evidence:
                self._note(found.evidence[0])
            if now >= deadline:
                if found.reason == "image_pull":
                    raise self._error(found)
                raise SandboxUnschedulable(f"not started before the deadline: {found}")
            wait = min(5.0, max(0.05, deadline - now))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), wait)

    async def delete(self) -> None:
        """Delete the pod at once; fine if it is gone. Raises ControlPlaneError."""
        await self._let_go()
        if self.uid is None and self._nonce:
            await self._find_unanswered(self._nonce)
        if self.uid is None:
            return
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
        try:
            await steady(lambda: self.kube.call("DELETE", self._path, body), self.patience)
        except ApiError as error:
            if error.status not in (404, 409):
                raise ControlPlaneError(f"pod {self.name} could not be deleted: {error}") from error

    async def _let_go(self) -> None:
        """Close what is open to the pod, and look at it no more."""
        self._spares = False
        if self._spare:
            await self._spare.close()
        if self._watcher:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)

    def _over(self) -> bool:
        return (self.state or {}).get("status", {}).get("phase") in ("Succeeded", "Failed")

    async def keep(self, seconds: int) -> datetime | None:
        """Let the pod stay for so long, to be looked at, and then end without us: it belongs to its Job no more, its
        network is closed, and its own deadline ends it. What is over is not kept: None. Raises ControlPlaneError.

        A deadline may only be brought forward, so the pod was made with one later than this:
        https://kubernetes.io/docs/concepts/workloads/pods/#pod-update-and-replacement
        """
        started = (self.state or {}).get("status", {}).get("startTime")
        if self.gone or not self.ready or self._over() or not started:
            return None
        now = datetime.now(UTC)
        until = now + timedelta(seconds=seconds)
        body = {
            "metadata": {
                "uid": self.uid,
                "ownerReferences": None,
                "annotations": {KEEP_UNTIL: until.isoformat(timespec="seconds")},
                "labels": {LABEL_NETWORK: "none"},
            },
            "spec": {"activeDeadlineSeconds": max(1, int((until - datetime.fromisoformat(started)).total_seconds()))},
        }
        try:
            await steady(
                lambda: self.kube.call("PATCH", self._path, body, kind="application/merge-patch+json"), self.patience
            )
        except ApiError as error:
            if error.status in (404, 409):
                return None  # it is gone, or another's
            raise ControlPlaneError(f"pod {self.name} could not be kept: {error}") from error
        await self._let_go()
        return until

    async def label(self, key: str, value: str) -> None:
        """Set one label. Raises SandboxLost if the pod is gone, ControlPlaneError."""
        body = {"metadata": {"uid": self.uid, "labels": {key: value}}}
        try:
            await steady(
                lambda: self.kube.call("PATCH", self._path, body, kind="application/merge-patch+json"), self.patience
            )
        except ApiError as error:
            await self.ask(error)
            raise ControlPlaneError(f"the label {key} of pod {self.name} could not be set: {error}") from error

    # -- commands ----------------------------------------------------------------------------------------------------

    async def exec(
        self,
        command: list[str],
        *,
        stdin: AsyncIterator[bytes] | bytes | None = None,
        out: Sink | None = None,
        err: Sink | None = None,
        alone: bool = False,
    ) -> int:
        """As `Kube.exec`; ends with the pod's own error as soon as the watch has seen its end.

        `alone`: no spare stream is opened meanwhile, since the command may end what it finds.
        """
        if self._ended.is_set():
            raise self._error(await self.finding())
        spare, self._spare = self._spare, None
        if spare is not None and not spare.over:
            work = spare.use(command, stdin, out, err)
        else:
            work = asyncio.ensure_future(self._open(command, stdin=stdin, out=out, err=err))
        if not alone:
            self._renew()
        end = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({work, end}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
        finally:
            for task in (work, end):
                task.cancel()
            await asyncio.gather(work, end, return_exceptions=True)
            self._renew()
        raise self._error(await self.finding())

    def keep_spare(self) -> None:
        """From now on have a stream open before it is needed: what a command waits for then is its own work."""
        self._spares = True
        self._renew()

    def _renew(self) -> None:
        if self._spares and not self._ended.is_set() and (self._spare is None or self._spare.over):
            self._spare = Spare(self._open)

    def _open(self, command: list[str], **streams: Any) -> Coroutine[Any, Any, int]:
        return self.kube.exec(self.namespace, self.name, command, **streams)

    async def ask(self, problem: Exception) -> None:
        """Whether the sandbox is alive after `problem`: returns if it is or if nobody can tell, else raises why not.

        A container may be dead for a moment before its status says so, so a problem that only a dead container
        explains is asked about for a while.
        """
        suspicious = not isinstance(problem, StreamBroken) or "137" in str(problem)
        until = time.monotonic() + (SETTLE_SECONDS if suspicious else 0.0)
        while True:
            try:
                pod = await self.kube.call("GET", self._path)
            except Unreachable:
                return
            except ApiError as error:
                if error.status != 404:
                    return
                self._saw_end(None)
                break
            self._saw(pod)
            if self._ended.is_set():
                break
            if time.monotonic() >= until:
                return
            await asyncio.sleep(0.3)
        raise self._error(await self.finding())

    async def finding(self) -> Finding:
        """Why the pod is as it is, with its events where they can be read."""
        return diagnose(
            self.state, uid=self.uid, gone=self.gone, history=tuple(self._history), events=await self._events()
        )

    def _error(self, found: Finding) -> Exception:
        role = self._manifest["metadata"].get("labels", {}).get(LABEL_ROLE, "agent")
        return error_of(found, was_ready=self.ready, role=role)

    # -- what is known -----------------------------------------------------------------------------------------------

    def _begin(self, pod: Mapping[str, Any]) -> None:
        self.uid = pod["metadata"]["uid"]
        self._saw(pod)

    async def _adopt(self, nonce: str) -> bool:
        """Whether the pod that is there is the one we just made; any other of that name is deleted."""
        try:
            there = await steady(lambda: self.kube.call("GET", self._path), self.patience)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        if there["metadata"].get("annotations", {}).get(NONCE) == nonce:
            self._begin(there)
            return True
        if there["metadata"].get("labels", {}).get("harbor/run-id") != self._manifest["metadata"]["labels"].get(
            "harbor/run-id"
        ):
            raise SandboxStartError(
                f"a pod named {self.name} is there and is not of this run; delete it, then run again"
            )
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": there["metadata"]["uid"]}}
        with contextlib.suppress(ApiError):
            await steady(lambda: self.kube.call("DELETE", self._path, body), self.patience)
        await asyncio.sleep(0.5)
        return False

    async def _find_unanswered(self, nonce: str) -> None:
        """A creation that was cancelled before its answer came may have made the pod."""
        with contextlib.suppress(ApiError):
            there = await steady(lambda: self.kube.call("GET", self._path), self.patience)
            if there["metadata"].get("annotations", {}).get(NONCE) == nonce:
                self.uid = there["metadata"]["uid"]

    async def _wait_for_quota(self, error: ApiError, deadline: float) -> None:
        verdict = quota(error.message) if error.status == 403 else None
        if verdict is None:
            raise SandboxStartError(f"the cluster refused the sandbox: {error}") from error
        if verdict == "never" or time.monotonic() >= deadline:
            raise SandboxUnschedulable(str(error)) from error
        self._note(error.message)
        await self._tell_others(error.message)
        await asyncio.sleep(min(QUOTA_SECONDS, max(0.1, deadline - time.monotonic())))

    def _note(self, sentence: str) -> None:
        if sentence not in self.waited_for:
            self.waited_for.append(sentence)
            self._log.info("sandbox %s waits: %s", self.name, sentence)

    async def _tell_others(self, sentence: str | None) -> None:
        """Put it on our own pod, or take it off. Nobody's start fails for it."""
        if self._worker_pod is None or sentence == self._told:
            return
        body = {"metadata": {"annotations": {WAITS_FOR: sentence and sentence[:1000]}}}
        try:
            await self.kube.call("PATCH", f"{self._pods}/{self._worker_pod}", body, kind="application/merge-patch+json")
            self._told = sentence
        except (ApiError, Unreachable) as error:
            log.debug("what %s waits for is not told: %s", self.name, error)

    async def _look(self) -> Finding:
        """The state, with events only where they say more than the status."""
        found = diagnose(self.state, uid=self.uid, gone=self.gone, history=tuple(self._history))
        if found.reason in ("running", "waiting", "deadline"):
            return found
        return await self.finding()

    async def _events(self) -> list[Mapping[str, Any]]:
        try:
            listed = await self.kube.call(
                "GET", f"/api/v1/namespaces/{self.namespace}/events", fieldSelector=f"involvedObject.name={self.name}"
            )
        except (ApiError, Unreachable):
            return []  # a worker may not read events: the status has to do
        return [
            e for e in listed["items"] if not self.uid or e.get("involvedObject", {}).get("uid") in (None, self.uid)
        ]

    def _saw(self, pod: Mapping[str, Any]) -> None:
        if pod["metadata"]["uid"] != self.uid:
            self._saw_end(None)
            return
        if self.state is not None and self.state is not pod:
            self._history.append(self.state)
        self.state = pod
        if (found := diagnose(pod, uid=self.uid)).ended:
            if not self._ended.is_set():
                self._log.info("sandbox %s ends: %s", self.name, found)
            self._ended.set()
        self._changed.set()

    def _saw_end(self, pod: Mapping[str, Any] | None) -> None:
        if pod is not None and pod["metadata"]["uid"] == self.uid:
            if self.state is not None:
                self._history.append(self.state)
            self.state = pod
        self.gone = True
        if not self._ended.is_set() and self.uid is not None:  # else it never was
            self._log.info("sandbox %s is gone: it was deleted, not by its trial", self.name)
        self._ended.set()
        self._changed.set()

    async def _watch(self) -> None:
        """Follow the pod until it is gone. An apiserver that is away is waited for: its silence says nothing."""
        version = self.state["metadata"].get("resourceVersion", "0") if self.state else "0"
        while not self.gone:
            try:
                async for event in self.kube.watch(
                    self._pods,
                    seconds=WATCH_SECONDS,
                    fieldSelector=f"metadata.name={self.name}",
                    resourceVersion=version,
                ):
                    if event["type"] == "ERROR":  # mostly 410: too far behind
                        break
                    version = event["object"]["metadata"].get("resourceVersion", version)
                    if event["object"]["metadata"]["uid"] != self.uid:
                        continue
                    if event["type"] == "DELETED":
                        self._saw_end(event["object"])
                        return
                    self._saw(event["object"])
                else:
                    continue
            except (ApiError, Unreachable) as error:
                log.debug("watch of %s: %s", self.name, error)
            await asyncio.sleep(1)
            version = await self._catch_up(version)

    async def _catch_up(self, version: str) -> str:
        """What happened while nobody watched."""
        try:
            pod = await self.kube.call("GET", self._path)
        except Unreachable:
            return version
        except ApiError as error:
            if error.status == 404:
                self._saw_end(None)
            return version
        self._saw(pod)
        return pod["metadata"].get("resourceVersion", version)
