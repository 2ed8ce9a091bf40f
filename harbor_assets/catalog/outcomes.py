"""What became of a run's trials: outcomes and tries (the other half of `RunCatalog`)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, Row, Select, Table, func, insert, select

from harbor_assets.catalog.database import Database
from harbor_assets.catalog.records import chunks
from harbor_assets.catalog.runs import ACTIVE, lock_run, see_run
from harbor_assets.catalog.schema import OUTCOMES, TRIES
from harbor_assets.domain.errors import Broken, Refused
from harbor_assets.domain.outcomes import TrialOutcome


class SqlOutcomes:
    """Outcomes and tries in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_outcome(self, outcome: TrialOutcome) -> bool:
        """See `RunCatalog`. False also for a terminal run, whose account is closed."""
        text = outcome.model_dump_json()

        def work(connection: Connection) -> bool:
            run = lock_run(connection, outcome.run_id)
            there = select(OUTCOMES.c.k).where(
                OUTCOMES.c.run_id == outcome.run_id, OUTCOMES.c.task_index == outcome.index, OUTCOMES.c.k == outcome.k
            )
            if run.phase not in ACTIVE or connection.scalar(there) is not None:
                return False
            connection.execute(
                insert(OUTCOMES).values(
                    run_id=outcome.run_id,
                    task_index=outcome.index,
                    k=outcome.k,
                    outcome=outcome.outcome.value,
                    reward=outcome.reward,
                    body=text,
                )
            )
            return True

        return self._database.write(work)

    def outcomes(self, run_id: str, index: int | None = None) -> Sequence[TrialOutcome]:
        """See `RunCatalog`. Raises `NotFound`, `Broken` for a row that cannot be read."""
        query = _of(OUTCOMES, run_id, index).order_by(OUTCOMES.c.task_index, OUTCOMES.c.k)
        with self._database.read() as connection:
            shared: _Shared = {}
            found = [_lean(_outcome(row), shared) for row in connection.execute(query)]
            if not found:
                see_run(connection, run_id)
        return found

    def count_outcomes(self, run_ids: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        """See `RunCatalog`. Every id asked for is there, without rows as an empty mapping."""
        counts: dict[str, dict[str, int]] = {run_id: {} for run_id in run_ids}
        with self._database.read() as connection:
            for chunk in chunks(list(counts)):
                rows = connection.execute(
                    select(OUTCOMES.c.run_id, OUTCOMES.c.outcome, func.count().label("rows"))
                    .where(OUTCOMES.c.run_id.in_(chunk))
                    .group_by(OUTCOMES.c.run_id, OUTCOMES.c.outcome)
                )
                for row in rows:
                    counts[row.run_id][row.outcome] = row.rows
        return counts

    def add_try(self, run_id: str, index: int, k: int, start: datetime, leftovers: str) -> None:
        """See `RunCatalog`. Idempotent. Raises `Refused` for a terminal run: nothing begins in it any more."""

        def work(connection: Connection) -> None:
            run = lock_run(connection, run_id)
            if run.phase not in ACTIVE:
                raise Refused(f"Run {run_id} is {run.phase}; no trial can begin in it.")
            this = {"run_id": run_id, "task_index": index, "k": k, "start": start}
            same = select(TRIES.c.k).where(*(TRIES.c[name] == value for name, value in this.items()))
            if connection.scalar(same) is None:
                connection.execute(insert(TRIES).values(**this, leftovers=leftovers))

        self._database.write(work)

    def tries(self, run_id: str, index: int | None = None) -> Mapping[tuple[int, int], Sequence[tuple[datetime, str]]]:
        """See `RunCatalog`."""
        found: dict[tuple[int, int], list[tuple[datetime, str]]] = {}
        with self._database.read() as connection:
            rows = connection.execute(_of(TRIES, run_id, index).order_by(TRIES.c.start)).all()
            if not rows:
                see_run(connection, run_id)
        for row in rows:
            found.setdefault((row.task_index, row.k), []).append((row.start, row.leftovers))
        return found


def _of(table: Table, run_id: str, index: int | None) -> Select[*tuple[Any, ...]]:
    query = select(table).where(table.c.run_id == run_id)
    return query if index is None else query.where(table.c.task_index == index)


type _Shared = dict[frozenset[str], set[str]]


def _lean(outcome: TrialOutcome, shared: _Shared) -> TrialOutcome:
    """The same row with less memory: half of it is what pydantic notes of the fields that were given, which is the same
    for nearly all. Nothing changes these sets: rows are frozen."""
    for model in (outcome, outcome.measurements, *outcome.tries):
        given = model.__pydantic_fields_set__
        object.__setattr__(model, "__pydantic_fields_set__", shared.setdefault(frozenset(given), given))
    return outcome


def _outcome(row: Row[Any]) -> TrialOutcome:
    try:
        return TrialOutcome.model_validate_json(row.body)
    except ValidationError as error:
        raise Broken(
            f"outcome {row.task_index}/{row.k} of run {row.run_id} cannot be read: {error.errors()[0]['msg']}"
        ) from error
