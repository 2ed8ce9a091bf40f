"""Publishing while a run goes on, beside its trials."""

import logging
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from harbor_assets.domain.outcomes import TrialOutcome
from harbor_assets.domain.plans import PlannedTask
from harbor_assets.domain.runs import Run
from harbor_assets.engine.execution import Listener
from harbor_assets.engine.publication import Publisher

log = logging.getLogger(__name__)

_SHOWN = 5  # of many trials that were not published


@dataclass
class Publishing:
    """A listener that passes everything on to another, and publishes the trials of each task that has ended, in a
    thread of its own: the trials under way never wait for it."""

    publisher: Publisher
    run: Run
    listener: Listener
    grace_seconds: float = 30.0  # that its end is waited for; what is left then is published as the run is settled
    _tasks: "queue.Queue[Sequence[TrialOutcome] | None]" = field(default_factory=queue.Queue)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Listener:
        if self.run.plan.publication is None:
            return self.listener
        self._thread = threading.Thread(target=self._work, name="publishing", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join(timeout=self.grace_seconds)

    def task_began(self, run_id: str, task: PlannedTask) -> None:
        """See `Listener`."""
        self.listener.task_began(run_id, task)

    def task_ended(self, run_id: str, task: PlannedTask, rows: Sequence[TrialOutcome]) -> None:
        """See `Listener`."""
        self.listener.task_ended(run_id, task, rows)
        self._tasks.put([*rows])

    def _work(self) -> None:
        over = False
        while not over:
            batch = [self._tasks.get()]
            while not self._tasks.empty():
                batch.append(self._tasks.get())
            over = None in batch
            rows = [row for task in batch if task is not None for row in task]
            try:
                published = self.publisher.publish_trials(self.run, rows)
            except Exception:  # the tasks that follow are published all the same
                log.exception("%s: not published yet", self.run.id)
                continue
            for said in published.failed[:_SHOWN]:
                log.warning("%s: not published yet: %s", self.run.id, said)
