"""What runs of a deployment wait for: asked of the cluster when somebody looks, and of Dagster."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from harbor_assets.cluster import waiting
from harbor_assets.cluster.client import ClusterClient, Object
from harbor_assets.cluster.executions import ClusterExecutions
from harbor_assets.cluster.manifests import RUN_LABEL
from harbor_assets.domain.errors import Refused, ServiceUnavailable
from harbor_assets.domain.runs import Run
from harbor_assets.domain.waiting import RunWaits, WaitReason, wait

if TYPE_CHECKING:
    import dagster as dg

log = logging.getLogger(__name__)

FRESH_SECONDS = 3.0  # a look serves everybody who asks within: a run is followed by several people, once a second each
SILENT_SECONDS = 15.0  # how long an API server that did not answer is not asked again
TIMEOUT = (2.0, 5.0)  # seconds to connect and to answer: a status must not hang for it
KEPT_RUNS = 64
# Of these events say nothing more: the pod's own condition has the scheduler's words.
_CALM = frozenset({WaitReason.POOL_FULL, WaitReason.LOST, WaitReason.QUEUED, WaitReason.SCHEDULING})


class ClusterWaits:
    """Implements the engine's `Waits`. `client` should have a short timeout."""

    def __init__(self, *, client: ClusterClient, executions: ClusterExecutions) -> None:
        self._client, self._executions = client, executions
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[float, RunWaits]] = OrderedDict()
        self._looking: set[str] = set()

    def of(self, run: Run, tasks: Collection[int]) -> RunWaits:
        """See `engine.ports.Waits`. What is known while another thread looks is what was known before."""
        with self._lock:
            until, known = self._known.get(run.id, (float("-inf"), RunWaits()))
            if time.monotonic() < until or run.id in self._looking:
                return known
            self._looking.add(run.id)
        seconds = FRESH_SECONDS
        try:
            known = self._look(run, tasks)
        except ServiceUnavailable as error:
            log.warning("nobody knows what %s waits for: %s", run.id, error)
            known, seconds = (
                RunWaits(wait(WaitReason.UNREACHABLE, f"the cluster does not answer: {error}")),
                SILENT_SECONDS,
            )
        except Exception:  # a status that lacks a reason is better than none
            log.exception("what %s waits for cannot be seen", run.id)
            known, seconds = RunWaits(), SILENT_SECONDS
        finally:
            with self._lock:
                self._looking.discard(run.id)
                self._known[run.id] = (time.monotonic() + seconds, known)
                self._known.move_to_end(run.id)
                while len(self._known) > KEPT_RUNS:
                    self._known.popitem(last=False)
        return known

    def _look(self, run: Run, tasks: Collection[int]) -> RunWaits:
        executions = self._executions.executions(run.id)
        standing = self._standing(run, executions)
        selector = f"{RUN_LABEL}={run.id}"
        jobs = self._client.list("jobs", selector, cached=True, unfinished=True)
        pods = self._client.list("pods", selector, cached=True, unfinished=True)
        seen = waiting.Seen(jobs, pods)
        found = waiting.waits(seen, tasks, standing)
        there = waiting.tasks_of(seen)
        lost = self._executions.lost(run.id) if executions and set(tasks) - there else {}
        said = [found.run, *(found.tasks.get(index) for index in there)]
        events = self._events() if any(each and each.reason not in _CALM for each in said) else ()
        return waiting.waits(waiting.Seen(jobs, pods, events, lost), tasks, standing) if lost or events else found

    def _events(self) -> Sequence[Object]:
        try:
            return self._client.warnings()
        except Refused as refused:  # a deployment whose rights end at pods: their status has to do
            log.warning("events cannot be read: %s", refused)
            return ()

    def _standing(self, run: Run, executions: "Sequence[dg.DagsterRun]") -> waiting.Standing:
        from dagster import DagsterRunStatus

        last = executions[0] if executions else None
        queued = last is not None and last.status in (DagsterRunStatus.QUEUED, DagsterRunStatus.NOT_STARTED)
        return waiting.Standing(
            slots=self._executions.slots(run.plan),
            queued=queued,
            over=last is None or last.is_finished,
            others=self._executions.at_work() if queued else 0,
        )
