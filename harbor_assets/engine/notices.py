"""Telling others of ended runs: each notice at least once, under an id that stays the same, with pauses in between."""

import logging
import time
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta

from pydantic import Field, ValidationError

from harbor_assets.domain.benchmarks import DayOf
from harbor_assets.domain.conditions import conditions_of
from harbor_assets.domain.errors import HarborAssetsError
from harbor_assets.domain.notices import Event, Notice, notice_of, regressed, regression
from harbor_assets.domain.outcomes import Frozen
from harbor_assets.domain.runs import Run
from harbor_assets.engine.benchmark_ports import KeyedRuns
from harbor_assets.engine.lineage_ports import MentionCatalog
from harbor_assets.engine.notice_ports import EndedRuns, Messenger, Undelivered
from harbor_assets.engine.ports import RunCatalog

log = logging.getLogger(__name__)

TRIES_MAX = 8  # of one notice: half an hour of pauses
PAUSE_SECONDS, PAUSE_MAX_SECONDS = 5.0, 600.0
LOCAL_TRIES = 4  # by a laptop's worker, at its end: within half a minute
# A run is seen once its end is written, which merging and its tries may delay: so far back is looked each time.
OVERLAP = timedelta(hours=12)
LOOKED_AT = 10_000  # ended runs of one look
SENT_AT_ONCE = 20
SECONDS_AT_ONCE = 30.0  # of one look: a sensor's tick ends at 60 s
_PREVIOUS = 50  # runs of the same taskset among which the one before is looked for


class Waiting(Frozen):
    """A notice's tries so far, and when the next one is due."""

    tries: int = Field(ge=1)
    due: datetime


class Told(Frozen):
    """How far has been told; a sensor's cursor. What ended before `first` is never told. `looked`: the last look that
    came to its end; `runs`: those done with that a look may still find, by when they ended; `done`: notices of others;
    `waiting`: what is tried again, by notice."""

    first: datetime
    looked: datetime
    runs: dict[str, datetime] = {}
    done: tuple[str, ...] = ()
    waiting: dict[str, Waiting] = {}

    @classmethod
    def read(cls, text: str | None, now: datetime) -> "Told":
        """A cursor that cannot be read, or none: what ends from now on is told."""
        try:
            return cls.model_validate_json(text or "")
        except ValidationError:
            return cls(first=now, looked=now)

    @property
    def start(self) -> datetime:
        """From when on a look must look."""
        return max(self.first, self.looked - OVERLAP)


def _now() -> datetime:
    return datetime.now(UTC)


class Notices:
    """Makes notices of ended runs and has them sent. `events`: those that are wanted."""

    def __init__(
        self,
        *,
        runs: RunCatalog,
        ended: EndedRuns,
        mentions: MentionCatalog,
        keys: KeyedRuns,
        messenger: Messenger,
        events: Collection[Event],
        clock: Callable[[], datetime] = _now,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._runs, self._ended, self._mentions, self._keys = runs, ended, mentions, keys
        self._messenger, self._events, self._clock, self._sleep = messenger, events, clock, sleep

    def of(self, run_id: str) -> list[Notice]:
        """The wanted notices of an ended run."""
        run = self._runs.get_run(run_id)
        if not run.phase.terminal:
            return []
        rows = self._runs.outcomes(run_id)
        notice = notice_of(run, rows, DayOf.read(self._keys.key_of(run_id)))
        found = [notice]
        if Event.REGRESSED in self._events and (before := self._before(run)):
            worse = regression(self._runs.outcomes(before.id), rows, before.id)
            found += [regressed(notice, worse)] if worse else []
        return [each for each in found if each.event in self._events]

    def _before(self, run: Run) -> Run | None:
        """The run before of the same taskset, agent and conditions in the workspace, whose scores can be compared."""
        page = self._mentions.runs_mentioning(run.plan.workspace, f'"{run.plan.taskset_ref}"', limit=_PREVIOUS)
        conditions = conditions_of(run.plan)
        earlier = (
            other
            for other in page.items
            if other.id != run.id
            and other.created_at < run.created_at
            and other.phase.terminal
            and other.plan.agent == run.plan.agent
            and conditions_of(other.plan) == conditions
        )
        return next(earlier, None)

    def tell(self, run_id: str) -> list[str]:
        """Send the notices of a run that has just ended, with a few tries: one line for each that did not arrive."""
        lines: list[str] = []
        for notice in self.of(run_id):
            for number in range(1, LOCAL_TRIES + 1):
                try:
                    self._messenger.send(notice)
                    break
                except Undelivered as why:
                    if number == LOCAL_TRIES:
                        lines.append(f"{notice.id} was not delivered after {number} tries: {why}")
                    else:
                        self._sleep(PAUSE_SECONDS * 2 ** (number - 1))
        return lines

    def follow(self, told: Told) -> tuple[Told, list[str]]:
        """Send what has ended since, and what is due again; answers the new cursor, and a line for each thing done.

        What was sent stands in the cursor that is answered: if that is lost, it is sent again under the same id.
        """
        now, until = self._clock(), time.monotonic() + SECONDS_AT_ONCE
        runs, done, waiting = dict(told.runs), set(told.done), dict(told.waiting)
        lines: list[str] = []
        sent, all_seen = 0, True
        for ended in self._ended.ended_since(told.start, limit=LOOKED_AT):
            if ended.run_id in runs:
                continue
            if sent >= SENT_AT_ONCE or time.monotonic() > until:
                all_seen = False
                break
            left = 0
            for notice in self._safely(ended.run_id, lines):
                before = waiting.get(notice.id)
                if notice.id in done:
                    continue
                if before and before.due > now:
                    left += 1
                    continue
                sent += 1
                waiting.pop(notice.id, None)
                if after := self._send(notice, before, now, lines):
                    waiting[notice.id] = after
                    left += 1
                else:
                    done.add(notice.id)
            if not left:
                runs[ended.run_id] = ended.at
                done = {each for each in done if not each.startswith(f"{ended.run_id}/")}
        after_look = told.model_copy(update={"looked": now if all_seen else told.looked})
        kept = {run_id: at for run_id, at in runs.items() if at >= after_look.start}
        return after_look.model_copy(update={"runs": kept, "done": tuple(sorted(done)), "waiting": waiting}), lines

    def _safely(self, run_id: str, lines: list[str]) -> Iterable[Notice]:
        try:
            return self.of(run_id)
        except HarborAssetsError as error:
            lines.append(f"{run_id}: nothing is told of it: {error}")
            return ()

    def _send(self, notice: Notice, before: Waiting | None, now: datetime, lines: list[str]) -> Waiting | None:
        """None: done with."""
        tries = (before.tries if before else 0) + 1
        try:
            self._messenger.send(notice)
        except Undelivered as why:
            if tries >= TRIES_MAX:
                lines.append(f"{notice.id}: given up after {tries} tries: {why}")
                return None
            pause = min(PAUSE_SECONDS * 2 ** (tries - 1), PAUSE_MAX_SECONDS)
            lines.append(f"{notice.id}: try {tries} failed, the next in {pause:.0f} s: {why}")
            return Waiting(tries=tries, due=now + timedelta(seconds=pause))
        lines.append(f"{notice.id}: sent")
        return None
