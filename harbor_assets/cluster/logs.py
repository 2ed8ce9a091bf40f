"""Logs of runs on a deployment: a run's from what Dagster recorded, a task's from the artifact store.

Neither asks the API server: pods are gone soon after they ended, and reading their logs would take a right that reaches
every pod of the namespace.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from harbor_assets.cluster.executions import ClusterExecutions
from harbor_assets.domain.errors import NotFound
from harbor_assets.domain.plans import PlannedTask, trial_id
from harbor_assets.domain.runs import Run
from harbor_assets.domain.views import LogChunk
from harbor_assets.engine.logs import Piece, TaskLogs, bytes_piece, chunk, live_key, stored_piece
from harbor_assets.engine.ports import Artifacts, RunCatalog

if TYPE_CHECKING:
    import dagster as dg

PAGE = 1000  # events of one query
RUN_LOG_MAX_BYTES = 8 * 1024 * 1024  # a run of 1,000 tasks has about 2 MB
KEPT_RUNS = 8  # run logs kept in memory: events are read once while a run is followed
_MESSAGE_MAX = 2000  # characters of one event; a stack trace is in Dagster, and a trial's own in its folder
_NOISE = frozenset(
    {
        "ASSET_MATERIALIZATION_PLANNED",
        "HANDLED_OUTPUT",
        "LOADED_INPUT",
        "LOGS_CAPTURED",
        "RESOURCE_INIT_FAILURE",
        "RESOURCE_INIT_STARTED",
        "RESOURCE_INIT_SUCCESS",
        "STEP_INPUT",
        "STEP_OUTPUT",
        "STEP_WORKER_STARTED",
    }
)


@dataclass(slots=True)
class _RunLog:
    """What was rendered of a run so far: only ever added to, so that offsets stay what they are."""

    data: bytearray = field(default_factory=bytearray)
    cursors: dict[str, str] = field(default_factory=dict)  # Dagster run id -> where its events were read to


class ClusterLogs:
    """Implements the engine's `Logs`."""

    def __init__(self, *, runs: RunCatalog, artifacts: Artifacts, executions: ClusterExecutions) -> None:
        self._artifacts, self._executions = artifacts, executions
        self._tasks = TaskLogs(runs=runs, artifacts=artifacts, live=self._live)
        self._lock = threading.Lock()
        self._run_logs: OrderedDict[str, _RunLog] = OrderedDict()

    def read(self, run: Run, task: int | None, offset: int) -> LogChunk:
        """See `engine.ports.Logs`."""
        if task is not None:
            return self._tasks.read(run, task, offset)
        return chunk([bytes_piece(self._run_log(run.id))], offset, ended=run.phase.terminal)

    def _live(self, run: Run, task: PlannedTask, k: int) -> Piece | None:
        try:
            return stored_piece(self._artifacts, live_key(run.id, trial_id(task, k)))
        except NotFound:
            return None

    def _run_log(self, run_id: str) -> bytes:
        with self._lock:
            found = self._run_logs.setdefault(run_id, _RunLog())
            self._run_logs.move_to_end(run_id)
            while len(self._run_logs) > KEPT_RUNS:
                self._run_logs.popitem(last=False)
            for number, execution in enumerate(reversed(self._executions.executions(run_id)), start=1):
                if execution.run_id not in found.cursors:
                    found.data += f"==> execution {number}: Dagster run {execution.run_id}\n".encode()
                    found.cursors[execution.run_id] = ""
                self._append(found, execution.run_id)
            return bytes(found.data)

    def _append(self, found: _RunLog, dagster_run: str) -> None:
        while len(found.data) < RUN_LOG_MAX_BYTES:
            page = self._executions.instance.get_records_for_run(
                dagster_run, cursor=found.cursors[dagster_run] or None, limit=PAGE
            )
            for record in page.records:
                found.data += "".join(f"{line}\n" for line in _lines(record.event_log_entry)).encode()
            if page.records:
                found.cursors[dagster_run] = page.cursor
            if not page.has_more:
                return
            if len(found.data) >= RUN_LOG_MAX_BYTES:
                found.data += f"... cut here; the rest is in Dagster, run {dagster_run}\n".encode()


def _lines(entry: "dg.EventLogEntry") -> Iterator[str]:
    """One event as a line; with what failed, if it tells of a failure."""
    event = entry.dagster_event
    kind = event.event_type_value if event else logging.getLevelName(entry.level)
    if kind in _NOISE:
        return
    when = datetime.fromtimestamp(entry.timestamp, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    said = (event.message if event else entry.user_message) or ""
    kind = kind.replace("PIPELINE_", "RUN_")  # as Dagster's pages call it
    yield f"{when} {kind} {entry.step_key or 'run'}: {_cut(said)}"
    failure = event.event_specific_data if event else None
    error = getattr(failure, "error", None)
    while error is not None:
        yield f"  {_cut(error.message.strip())}"
        error = error.cause


def _cut(text: str) -> str:
    text = text.replace("\n", "\n  ")
    return text if len(text) <= _MESSAGE_MAX else f"{text[:_MESSAGE_MAX]}…"
