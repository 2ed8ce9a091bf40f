"""The figures of evaluations, kept beside them and computed anew where something below them has changed."""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from harbor_assets.catalog.database import Database
from harbor_assets.catalog.records import chunks
from harbor_assets.catalog.schema import RESULTS, ROLLUPS, SESSIONS
from harbor_assets.domain.errors import HarborAssetsError
from harbor_assets.domain.rollups import ResultFigures, Rollup, SessionFigures, rollup

log = logging.getLogger(__name__)

_AT_ONCE = 100  # evaluations whose sessions are in memory together


@dataclass(frozen=True, slots=True)
class Fresh:
    """Figures that were just computed, as of an evaluation's change number."""

    evaluation: str
    changed: int
    figures: Rollup


def touch(connection: Connection, evaluations: Iterable[str]) -> None:
    """Say that something below these evaluations has changed, in the transaction that changes it."""
    for evaluation in sorted(set(evaluations)):  # in one order everywhere, so that none waits for another in a ring
        connection.execute(
            update(ROLLUPS).where(ROLLUPS.c.evaluation_id == evaluation).values(changed=ROLLUPS.c.changed + 1)
        )


def of(connection: Connection, evaluations: Sequence[str]) -> tuple[Mapping[str, Rollup], list[Fresh]]:
    """The figures of evaluations by id, and which of them had to be computed: `keep` those afterwards."""
    found: dict[str, Rollup] = {}
    stale: dict[str, int] = {}
    for chunk in chunks(evaluations):
        for row in connection.execute(select(ROLLUPS).where(ROLLUPS.c.evaluation_id.in_(chunk))):
            if row.computed == row.changed and row.body is not None:
                found[row.evaluation_id] = Rollup.model_validate(json.loads(row.body))
            else:
                stale[row.evaluation_id] = row.changed
    fresh: list[Fresh] = []
    ids = list(stale)
    for start in range(0, len(ids), _AT_ONCE):
        for evaluation, figures in _computed(connection, ids[start : start + _AT_ONCE]).items():
            fresh.append(Fresh(evaluation, stale[evaluation], figures))
            found[evaluation] = figures
    return found, fresh


def keep(database: Database, fresh: Sequence[Fresh]) -> None:
    """Keep what was computed, where it is still of now. A read does not fail for that: it would be computed again."""
    if not fresh:
        return

    def work(connection: Connection) -> None:
        for each in sorted(fresh, key=lambda one: one.evaluation):
            connection.execute(
                update(ROLLUPS)
                .where(ROLLUPS.c.evaluation_id == each.evaluation, ROLLUPS.c.changed == each.changed)
                .values(computed=each.changed, body=each.figures.model_dump_json(exclude_defaults=True))
            )

    try:
        database.write(work)
    except HarborAssetsError as error:
        log.warning("the figures of %d evaluations were not kept: %s", len(fresh), error)


def _computed(connection: Connection, evaluations: Sequence[str]) -> Mapping[str, Rollup]:
    sessions: dict[str, list[SessionFigures]] = {evaluation: [] for evaluation in evaluations}
    results: dict[str, list[ResultFigures]] = {evaluation: [] for evaluation in evaluations}
    here = (SESSIONS.c.evaluation_id.in_(evaluations), SESSIONS.c.test_case != "")
    names = ("id", "evaluation_id", "test_case", "agent_name", "agent_version", "model_name")
    columns = [SESSIONS.c[name] for name in (*names, "cost_usd", "latency_ms", "tokens")]
    for row in connection.execute(select(*columns).where(*here)):
        figures = SessionFigures(
            session=row.id,
            test_case=row.test_case,
            agent_name=row.agent_name,
            agent_version=row.agent_version,
            model_name=row.model_name,
            cost_usd=row.cost_usd,
            latency_ms=row.latency_ms,
            tokens=row.tokens,
        )
        sessions[row.evaluation_id].append(figures)
    query = (
        select(SESSIONS.c.evaluation_id, RESULTS.c.session, RESULTS.c.name, RESULTS.c.value, RESULTS.c.failed)
        .join(SESSIONS, SESSIONS.c.id == RESULTS.c.session)
        .where(*here)
    )
    for row in connection.execute(query):
        results[row.evaluation_id].append(ResultFigures(row.session, row.name, row.value, row.failed))
    return {evaluation: rollup(sessions[evaluation], results[evaluation]) for evaluation in evaluations}
