"""The run side of the catalog (`RunCatalog`). Every method is one transaction; a terminal run never changes."""

from contextlib import AbstractContextManager
from datetime import datetime
from functools import lru_cache
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Column, Connection, Row, Select, func, insert, literal, select, update

from harbor_assets.catalog.database import Database
from harbor_assets.catalog.records import check_page
from harbor_assets.catalog.schema import IDEMPOTENCY, OUTCOMES, PLANS, RUNS
from harbor_assets.domain.admission import Admission
from harbor_assets.domain.errors import Broken, Conflict, NotFound, Refused
from harbor_assets.domain.names import nearest
from harbor_assets.domain.outcomes import Outcome
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.plans import RunPlan
from harbor_assets.domain.requests import key_conflict
from harbor_assets.domain.runs import Run, RunMarks, Tally
from harbor_assets.engine.ports import Page

ACTIVE = tuple(phase.value for phase in RunPhase if not phase.terminal)
_KEY_MAX = 255  # characters of an idempotency key or an owner; the columns' width
_IDS_COMPARED = 1000  # for "did you mean": the newest ones
_PLANS_KEPT = 8  # parsed plans: a worker asks for its one run three times a second, and a plan never changes


class SqlRuns:
    """Runs, outcomes and tries in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_run(
        self, plan: RunPlan, *, request_digest: str, request: str | None = None, idempotency_key: str | None = None
    ) -> tuple[Run, bool]:
        """See `RunCatalog`. Raises `Conflict` if the run id was given before: an id is never used again."""
        for what, text in (("owner", plan.owner), ("idempotency key", idempotency_key or "")):
            if len(text) > _KEY_MAX:
                raise Refused(f"the {what} has {len(text)} characters, at most {_KEY_MAX} are allowed")
        text = plan.model_dump_json()

        def work(connection: Connection) -> tuple[Run, bool]:
            if idempotency_key is not None:
                before = connection.execute(
                    select(IDEMPOTENCY.c.run_id, IDEMPOTENCY.c.request_digest, IDEMPOTENCY.c.request).where(
                        IDEMPOTENCY.c.workspace == plan.workspace,
                        IDEMPOTENCY.c.owner == plan.owner,
                        IDEMPOTENCY.c.key == idempotency_key,
                    )
                ).first()
                if before is not None:
                    if before.request_digest != request_digest:
                        raise key_conflict(idempotency_key, before.run_id, before.request, request)
                    return _load(connection, before.run_id), False
            if connection.scalar(select(RUNS.c.id).where(RUNS.c.id == plan.run_id)) is not None:
                raise Conflict(f"The run id {plan.run_id} was given before; an id is never used again.")
            connection.execute(
                insert(RUNS).values(
                    id=plan.run_id,
                    workspace=plan.workspace,
                    owner=plan.owner,
                    request_digest=request_digest,
                    phase=RunPhase.ACCEPTED.value,
                    result_state=ResultState.PENDING.value,
                    created_at=plan.created_at,
                )
            )
            connection.execute(insert(PLANS).values(run_id=plan.run_id, plan=text))
            if idempotency_key is not None:
                connection.execute(
                    insert(IDEMPOTENCY).values(
                        workspace=plan.workspace,
                        owner=plan.owner,
                        key=idempotency_key,
                        request_digest=request_digest,
                        run_id=plan.run_id,
                        request=request,
                    )
                )
            return _load(connection, plan.run_id), True

        return self._database.write(work)

    def get_run(self, run_id: str) -> Run:
        """See `RunCatalog`. An unreadable plan is `Broken` with a text that begins `plan_unreadable:`."""
        with self._database.read() as connection:
            return _load(connection, run_id)

    def marks(self, run_id: str) -> RunMarks:
        """See `RunCatalog`."""
        query = select(RUNS.c.started_at, RUNS.c.cancel_requested_at).where(RUNS.c.id == run_id)
        with self._database.read() as connection:
            row = connection.execute(query).first()
            if row is None:
                raise _not_found(connection, run_id)
        return RunMarks(started_at=row.started_at, cancel_requested_at=row.cancel_requested_at)

    def list_runs(
        self,
        workspace: str | None = None,
        *,
        active: bool = False,
        owner: str | None = None,
        page: int = 1,
        page_size: int = 100,
    ) -> Page[Run]:
        """See `RunCatalog`. Runs whose plan cannot be read are named in the page's `unreadable`."""
        check_page(page, page_size)
        conditions = [
            *([RUNS.c.workspace == workspace] if workspace is not None else []),
            *([RUNS.c.owner == owner] if owner is not None else []),
            *([RUNS.c.phase.in_(ACTIVE)] if active else []),
        ]
        query = with_plan().where(*conditions).order_by(RUNS.c.created_at.desc(), RUNS.c.id)
        with self._database.read() as connection:
            total = connection.scalar(select(func.count()).select_from(RUNS).where(*conditions)) or 0
            rows = connection.execute(query.limit(page_size).offset((page - 1) * page_size)).all()
        runs: list[Run] = []
        unreadable: list[str] = []
        for row in rows:
            try:
                runs.append(read_run(row))
            except Broken:
                unreadable.append(row.id)
        return Page(runs, page, page_size, total, tuple(unreadable))

    def ended_runs(self, workspace: str | None = None) -> list[str]:
        """See `RunCatalog`."""
        query = select(RUNS.c.id).where(RUNS.c.phase.not_in(ACTIVE)).order_by(RUNS.c.created_at, RUNS.c.id)
        if workspace is not None:
            query = query.where(RUNS.c.workspace == workspace)
        with self._database.read() as connection:
            return list(connection.scalars(query))

    def tally(self) -> Tally:
        """See `RunCatalog`."""
        waiting = select(func.min(RUNS.c.created_at)).where(RUNS.c.phase == RunPhase.ACCEPTED.value)
        with self._database.read() as connection:
            runs = _counts(connection, RUNS.c.phase)
            trials = _counts(connection, OUTCOMES.c.outcome)
            since = connection.scalar(waiting)
        return Tally(
            runs={phase: runs.get(phase.value, 0) for phase in RunPhase},
            trials={outcome: trials.get(outcome.value, 0) for outcome in Outcome},
            waiting_since=since,
        )

    def lock(self, name: str) -> AbstractContextManager[None]:
        """See `RunCatalog`."""
        return self._database.lock(name)

    def begin_execution(self, run_id: str) -> Run:
        """See `RunCatalog`."""

        def work(connection: Connection) -> Run:
            row = lock_run(connection, run_id)
            here = select(func.count()).select_from(OUTCOMES).where(OUTCOMES.c.run_id == run_id)
            outcomes = connection.scalar(here) or 0
            lost = 0 if outcomes > row.outcomes_before else row.lost_workers + (1 if row.held else 0)
            return _change(
                connection,
                run_id,
                executions=row.executions + 1,
                lost_workers=lost,
                held=True,
                outcomes_before=outcomes,
            )

        return self._database.write(work)

    def release(self, run_id: str) -> None:
        """See `RunCatalog`."""

        def work(connection: Connection) -> None:
            lock_run(connection, run_id)
            _update(connection, run_id, held=False)

        self._database.write(work)

    def mark_started(self, run_id: str, at: datetime) -> Run:
        """See `RunCatalog`."""
        return self._database.write(
            lambda connection: _change(
                connection,
                run_id,
                phase=RunPhase.RUNNING.value,
                started_at=func.coalesce(RUNS.c.started_at, _time(at)),
            )
        )

    def request_cancel(self, run_id: str, at: datetime) -> Run:
        """See `RunCatalog`."""
        return self._database.write(
            lambda connection: _change(
                connection, run_id, cancel_requested_at=func.coalesce(RUNS.c.cancel_requested_at, _time(at))
            )
        )

    def finish(
        self, run_id: str, phase: RunPhase, state: ResultState, *, at: datetime, error: str | None = None
    ) -> Run:
        """See `RunCatalog`. The change is kept even where the plan cannot be read (`Broken` is raised after it)."""
        if not phase.terminal or state is ResultState.PENDING:
            raise ValueError(f"a run does not end as {phase} with result state {state}")

        def work(connection: Connection) -> None:
            lock_run(connection, run_id)
            _update(
                connection,
                run_id,
                phase=phase.value,
                result_state=state.value,
                ended_at=at,
                error=None if error is None else _plain(error),
                held=False,
            )

        self._database.write(work)
        return self.get_run(run_id)


def _counts(connection: Connection, column: Column[str]) -> dict[str, int]:
    return {row[0]: row[1] for row in connection.execute(select(column, func.count()).group_by(column))}


def with_plan() -> Select[*tuple[Any, ...]]:
    """Runs with their plans, as `read_run` reads them."""
    return select(RUNS, PLANS.c.plan).join(PLANS, PLANS.c.run_id == RUNS.c.id, isouter=True)


def _load(connection: Connection, run_id: str) -> Run:
    row = connection.execute(with_plan().where(RUNS.c.id == run_id)).first()
    if row is None:
        raise _not_found(connection, run_id)
    return read_run(row)


def see_run(connection: Connection, run_id: str) -> None:
    """Raises `NotFound` if there is no such run."""
    if connection.scalar(select(RUNS.c.id).where(RUNS.c.id == run_id)) is None:
        raise _not_found(connection, run_id)


def lock_run(connection: Connection, run_id: str) -> Row[Any]:
    """The run's row, kept from others until the transaction ends (SQLite: they wait for the whole database)."""
    row = connection.execute(select(RUNS).where(RUNS.c.id == run_id).with_for_update()).first()
    if row is None:
        raise _not_found(connection, run_id)
    return row


def _update(connection: Connection, run_id: str, **values: Any) -> None:
    """The one statement that changes a run: it finds no row once the run is terminal."""
    connection.execute(update(RUNS).where(RUNS.c.id == run_id, RUNS.c.phase.in_(ACTIVE)).values(**values))


def _change(connection: Connection, run_id: str, **values: Any) -> Run:
    _update(connection, run_id, **values)
    return _load(connection, run_id)


def _not_found(connection: Connection, run_id: str) -> NotFound:
    ids = connection.scalars(select(RUNS.c.id).order_by(RUNS.c.created_at.desc()).limit(_IDS_COMPARED)).all()
    close = [known for known in ids if len(run_id) > len("run-") and known.startswith(run_id)][:3] or nearest(
        run_id, ids
    )
    hint = f"; did you mean {', '.join(close)}?" if close else "; `harbor-assets runs list` shows all"
    return NotFound(f"Run not found: {run_id[:80]}{hint}")


def read_run(row: Row[Any]) -> Run:
    """Raises `Broken` if the plan cannot be read."""
    try:
        plan = _read_plan(row.plan or "")
        if plan.run_id != row.id:
            raise Broken(f"plan_unreadable: run {row.id} has the plan of {plan.run_id}")
        return Run(
            plan=plan,
            phase=row.phase,
            result_state=row.result_state,
            created_at=row.created_at,
            started_at=row.started_at,
            ended_at=row.ended_at,
            cancel_requested_at=row.cancel_requested_at,
            executions=row.executions,
            lost_workers=row.lost_workers,
            error=row.error,
            admission=Admission() if row.admission is None else Admission.model_validate_json(row.admission),
        )
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "plan"
        raise Broken(f"plan_unreadable: run {row.id}: {where}: {first['msg']}") from error


@lru_cache(maxsize=_PLANS_KEPT)
def _read_plan(text: str) -> RunPlan:
    return RunPlan.model_validate_json(text)


def _time(at: datetime) -> Any:
    """A bound value of the time columns' type, for use inside an SQL function."""
    return literal(at, RUNS.c.started_at.type)


def _plain(text: str) -> str:
    """`text` as every database takes it: no NUL, and what is not UTF-8 (a path of a task's making) escaped."""
    return text.replace("\0", "\\x00").encode(errors="backslashreplace").decode()
