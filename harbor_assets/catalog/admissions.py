"""Whether trials of runs may begin (`Admissions`), as a text beside the run."""

from collections.abc import Callable

from pydantic import ValidationError
from sqlalchemy import Connection, select, update

from harbor_assets.catalog.database import Database
from harbor_assets.catalog.runs import ACTIVE, lock_run, see_run
from harbor_assets.catalog.schema import RUNS
from harbor_assets.domain.admission import Admission
from harbor_assets.domain.errors import Broken


class SqlAdmissions:
    """`Admissions` in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def admission(self, run_id: str) -> Admission:
        """See `Admissions`."""
        with self._database.read() as connection:
            text = connection.scalar(select(RUNS.c.admission).where(RUNS.c.id == run_id))
            if text is None:
                see_run(connection, run_id)
        return read_admission(run_id, text)

    def change_admission(self, run_id: str, change: Callable[[Admission], Admission]) -> Admission:
        """See `Admissions`."""

        def work(connection: Connection) -> Admission:
            row = lock_run(connection, run_id)
            before = read_admission(run_id, row.admission)
            after = change(before)
            if row.phase not in ACTIVE:
                return before
            if after != before:
                text = after.model_dump_json()
                connection.execute(update(RUNS).where(RUNS.c.id == run_id).values(admission=text))
            return after

        return self._database.write(work)


def read_admission(run_id: str, text: str | None) -> Admission:
    """The state that a run's column holds; a run of before there was one is open. Raises `Broken`."""
    if text is None:
        return Admission()
    try:
        return Admission.model_validate_json(text)
    except ValidationError as error:
        raise Broken(f"admission_unreadable: run {run_id}: {error.errors()[0]['msg']}") from error
