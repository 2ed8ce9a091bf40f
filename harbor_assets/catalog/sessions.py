"""Sessions of evaluations, their traces and results (the rest of `ExperimentCatalog`)."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import Connection, Row, delete, func, insert, select, update

from harbor_assets.catalog import rollups
from harbor_assets.catalog.database import Database
from harbor_assets.catalog.records import check_page, chunks, new_id
from harbor_assets.catalog.schema import EVALUATIONS, RESULTS, SESSIONS, TRACES
from harbor_assets.domain.errors import Broken, NotFound
from harbor_assets.domain.experiments import EvaluatorResult, Session, StoredResult, StoredSession
from harbor_assets.domain.sessions import (
    check_number,
    check_results,
    check_spans,
    extended,
    result_id,
    scores_of,
)
from harbor_assets.domain.traces import Span
from harbor_assets.engine.ports import Page

_SPANS = TypeAdapter(list[Span])


class SqlSessions:
    """Sessions in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put_session(
        self,
        workspace: str,
        session: Session,
        spans: Sequence[Span] = (),
        results: Sequence[EvaluatorResult] | None = None,
    ) -> StoredSession:
        """See `ExperimentCatalog`."""
        check_spans(spans)
        check_results(session.session_id, results or ())

        def work(connection: Connection) -> StoredSession:
            key = _put(connection, workspace, session, spans)
            if results is not None:
                connection.execute(delete(RESULTS).where(RESULTS.c.session == key))
                rows = [_result_row(workspace, key, result) for result in results]
                if rows:
                    connection.execute(insert(RESULTS), list({row["id"]: row for row in rows}.values()))
            return _stored(connection, workspace, session.session_id)

        return self._database.write(work)

    def add_spans(self, workspace: str, session: Session, spans: Sequence[Span]) -> StoredSession:
        """See `ExperimentCatalog`."""

        def work(connection: Connection) -> StoredSession:
            row = _row(connection, workspace, session.session_id, lock=True)
            if row is None:
                old, old_spans = None, list[Span]()
            else:
                old, old_spans = _session(connection, row), _spans(connection, row.id)
            new, both = extended(old, session, old_spans, spans)
            check_spans(both)
            _put(connection, workspace, new, both)
            return _stored(connection, workspace, session.session_id)

        return self._database.write(work)

    def put_evaluator_result(self, workspace: str, result: EvaluatorResult) -> StoredResult:
        """See `ExperimentCatalog`."""

        def work(connection: Connection) -> StoredResult:
            session = _row(connection, workspace, result.session_id, lock=True)
            if session is None:
                raise _missing(workspace, result.session_id)
            values = _result_row(workspace, session.id, result)
            connection.execute(delete(RESULTS).where(RESULTS.c.id == values["id"]))
            connection.execute(insert(RESULTS).values(**values))
            held = select(func.count()).select_from(RESULTS).where(RESULTS.c.session == session.id)
            check_number(connection.scalar(held) or 0)
            rollups.touch(connection, [session.evaluation_id])
            found = connection.execute(select(RESULTS).where(RESULTS.c.id == values["id"])).one()
            return _result(workspace, found)

        return self._database.write(work)

    def list_sessions(
        self,
        workspace: str,
        evaluation: str,
        *,
        page: int = 1,
        page_size: int = 100,
        test_case: str | None = None,
    ) -> Page[StoredSession]:
        """See `ExperimentCatalog`."""
        check_page(page, page_size)
        with self._database.read() as connection:
            here = [SESSIONS.c.evaluation_id == _evaluation_id(connection, workspace, evaluation)]
            if test_case is not None:
                here.append(SESSIONS.c.test_case == test_case)
            total = connection.scalar(select(func.count()).select_from(SESSIONS).where(*here)) or 0
            query = select(SESSIONS).where(*here).order_by(SESSIONS.c.test_case, SESSIONS.c.session_id)
            rows = connection.execute(query.limit(page_size).offset((page - 1) * page_size)).all()
            return Page(_sessions(connection, rows), page, page_size, total)

    def get_session(self, workspace: str, session_id: str) -> StoredSession:
        """See `ExperimentCatalog`."""
        with self._database.read() as connection:
            return _stored(connection, workspace, session_id)

    def session_spans(self, workspace: str, session_id: str) -> Sequence[Span]:
        """See `ExperimentCatalog`."""
        with self._database.read() as connection:
            row = _row(connection, workspace, session_id)
            if row is None:
                raise _missing(workspace, session_id)
            return _spans(connection, row.id)


def _put(connection: Connection, workspace: str, session: Session, spans: Sequence[Span]) -> str:
    """Store a session and its trace; answers its key."""
    evaluation = _evaluation_id(connection, workspace, session.evaluation)
    row = _row(connection, workspace, session.session_id, lock=True)
    body = session.model_dump(mode="json", exclude={"evaluation"}) | {"span_count": len(spans)}
    values = {
        "evaluation_id": evaluation,
        "test_case": session.test_case_name,
        "agent_name": session.agent_name,
        "agent_version": session.agent_version,
        "model_name": session.model_name,
        "latency_ms": session.latency_ms,
        "tokens": session.tokens,
        "cost_usd": session.cost_usd,
        "updated_at": datetime.now(UTC),
        "body": json.dumps(body),
    }
    if row is None:
        key = new_id("session")
        connection.execute(
            insert(SESSIONS).values(id=key, workspace=workspace, session_id=session.session_id, **values)
        )
    else:
        key = row.id
        connection.execute(update(SESSIONS).where(SESSIONS.c.id == key).values(**values))
        connection.execute(delete(TRACES).where(TRACES.c.session == key))
    if spans:
        text = _SPANS.dump_json(list(spans), exclude_defaults=True).decode()
        connection.execute(insert(TRACES).values(session=key, spans=text))
    rollups.touch(connection, [evaluation] if row is None else [evaluation, row.evaluation_id])
    return key


def _evaluation_id(connection: Connection, workspace: str, name: str) -> str:
    here = (EVALUATIONS.c.workspace == workspace, EVALUATIONS.c.name == name, EVALUATIONS.c.deleted_at.is_(None))
    found = connection.scalar(select(EVALUATIONS.c.id).where(*here))
    if found is None:
        raise NotFound(
            f"Evaluation not found: {workspace}/{name[:80]}; it must be created before sessions are put in it"
        )
    return found


def _row(connection: Connection, workspace: str, session_id: str, *, lock: bool = False) -> Row[Any] | None:
    query = (
        select(SESSIONS)
        .join(EVALUATIONS, EVALUATIONS.c.id == SESSIONS.c.evaluation_id)
        .where(SESSIONS.c.workspace == workspace, SESSIONS.c.session_id == session_id)
    )
    if lock:  # also one of a deleted evaluation, whose id is taken
        return connection.execute(query.with_for_update(of=SESSIONS)).first()
    return connection.execute(query.where(EVALUATIONS.c.deleted_at.is_(None))).first()


def _missing(workspace: str, session_id: str) -> NotFound:
    return NotFound(f"Session not found: {workspace}/{session_id[:200]}; its trace must be stored first")


def _stored(connection: Connection, workspace: str, session_id: str) -> StoredSession:
    row = _row(connection, workspace, session_id)
    if row is None:
        raise _missing(workspace, session_id)
    (found,) = _sessions(connection, [row])
    return found


def _session(connection: Connection, row: Row[Any]) -> Session:
    (found,) = _sessions(connection, [row])
    return Session.model_validate({name: getattr(found, name) for name in Session.model_fields})


def _sessions(connection: Connection, rows: Sequence[Row[Any]]) -> list[StoredSession]:
    names = {
        row.id: row.name
        for chunk in chunks(list({row.evaluation_id for row in rows}))
        for row in connection.execute(select(EVALUATIONS.c.id, EVALUATIONS.c.name).where(EVALUATIONS.c.id.in_(chunk)))
    }
    workspaces = {row.id: row.workspace for row in rows}
    results: dict[str, list[StoredResult]] = {row.id: [] for row in rows}
    for chunk in chunks(list(results)):
        query = select(RESULTS).where(RESULTS.c.session.in_(chunk)).order_by(RESULTS.c.name, RESULTS.c.id)
        for found in connection.execute(query):
            results[found.session].append(_result(workspaces[found.session], found))
    try:
        return [
            StoredSession.model_validate(
                {
                    **json.loads(row.body),
                    "evaluation": names[row.evaluation_id],
                    "workspace": row.workspace,
                    "updated_at": row.updated_at,
                    "results": results[row.id],
                    "evaluator_scores": scores_of(results[row.id]),
                }
            )
            for row in rows
        ]
    except ValidationError as error:
        raise Broken(f"a session in the catalog cannot be read: {error.errors()[0]['msg']}") from error


def _spans(connection: Connection, key: str) -> list[Span]:
    text = connection.scalar(select(TRACES.c.spans).where(TRACES.c.session == key))
    try:
        return _SPANS.validate_json(text) if text is not None else []
    except ValidationError as error:
        raise Broken(f"a trace in the catalog cannot be read: {error.errors()[0]['msg']}") from error


def _result_row(workspace: str, session: str, result: EvaluatorResult) -> dict[str, Any]:
    numeric = result.value is not None
    return {
        "id": result_id(workspace, result),
        "session": session,
        "name": result.name,
        "value": result.value if numeric else None,
        "failed": result.status == "FAILED",
        "created_at": datetime.now(UTC),
        "body": result.model_dump_json(),
    }


def _result(workspace: str, row: Row[Any]) -> StoredResult:
    more = {"evaluator_result_id": row.id, "workspace": workspace, "created_at": row.created_at}
    try:
        return StoredResult.model_validate({**json.loads(row.body), **more})
    except ValidationError as error:
        raise Broken(f"a result in the catalog cannot be read: {error.errors()[0]['msg']}") from error
