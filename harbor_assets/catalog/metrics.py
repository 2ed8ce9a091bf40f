"""Stored metrics (`MetricCatalog`), and evaluations of given outputs (`EvalCatalog`)."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ValidationError
from sqlalchemy import ColumnElement, Connection, Row, Table, delete, func, insert, select

from harbor_assets.catalog.database import Database
from harbor_assets.catalog.projects import check_project
from harbor_assets.catalog.records import check_names, check_page, chunks, new_id
from harbor_assets.catalog.schema import EVAL_JOBS, EVAL_RESULTS, METRICS
from harbor_assets.domain.agent_eval import AgentEvalJob, AgentEvalResult
from harbor_assets.domain.digests import canonical_json
from harbor_assets.domain.errors import Broken, Conflict, NotFound, Problem, Refused
from harbor_assets.domain.filters import Fact, Filter, holds
from harbor_assets.domain.metrics.bodies import DERIVED, InlinePayload, Metric, MetricInline
from harbor_assets.domain.names import Ref, nearest
from harbor_assets.domain.validation import problems_of
from harbor_assets.engine.metric_ports import MetricSort
from harbor_assets.engine.ports import Page

_NAMES_COMPARED = 10_000  # for "did you mean"


class SqlMetrics:
    """Metrics in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_metric(self, workspace: str, name: str, body: MetricInline, *, project: str | None = None) -> Metric:
        """See `MetricCatalog`."""
        check_names("metric", workspace, name, ())
        if name.startswith(DERIVED):
            raise Refused(
                f"The metric '{name}' was not stored: names that begin with '{DERIVED}' are made by the service"
            )
        values = _row(workspace, name, body, project)

        def work(connection: Connection) -> None:
            check_project(connection, workspace, project)
            if connection.scalar(select(METRICS.c.id).where(*_named(METRICS, workspace, name))) is not None:
                raise Conflict(f"Metric with workspace '{workspace}' and name '{name}' already exists")
            connection.execute(insert(METRICS).values(**values))

        self._database.write(work)
        return self.get_metric(workspace, name)

    def get_metric(self, workspace: str, name: str) -> Metric:
        """See `MetricCatalog`."""
        with self._database.read() as connection:
            return _metric(_one(connection, METRICS, "Metric", workspace, name))

    def metric_bodies(self, refs: Sequence[str]) -> Mapping[str, MetricInline]:
        """See `MetricCatalog`."""
        with self._database.read() as connection:
            return {ref: _read(MetricInline, body) for ref, body in _bodies(connection, refs).items()}

    def list_metrics(
        self,
        workspace: str,
        *,
        page: int = 1,
        page_size: int = 100,
        sort: MetricSort = "created_at",
        include_derived: bool = False,
        where: Filter | None = None,
    ) -> Page[Metric]:
        """See `MetricCatalog`. A filter looks at each metric of the workspace: there are hundreds, not millions."""
        here = [METRICS.c.workspace == workspace]
        if not include_derived:
            here.append(METRICS.c.derived.is_(False))
        if where is None:
            rows, total = self._page(METRICS, here, page, page_size, sort)
            return Page([_metric(row) for row in rows], page, page_size, total)
        check_page(page, page_size)
        with self._database.read() as connection:
            rows = connection.execute(select(METRICS).where(*here).order_by(*_order(METRICS, sort))).all()
        found = [row for row in rows if holds(where, _facts(row), json.loads(row.body))]
        shown = found[(page - 1) * page_size : page * page_size]
        return Page([_metric(row) for row in shown], page, page_size, len(found))

    def delete_metric(self, workspace: str, name: str) -> None:
        """See `MetricCatalog`."""
        self._delete(METRICS, "Metric", workspace, name)

    def resolve(self, workspace: str, metrics: Sequence[str | dict[str, Any]]) -> Sequence[str]:
        """See `MetricCatalog`."""
        problems: list[Problem] = []
        refs: list[str] = []
        inline: dict[str, tuple[str, MetricInline]] = {}
        for at, metric in enumerate(metrics):
            try:
                if isinstance(metric, str):
                    refs.append(_reference(metric, workspace))
                else:
                    body = MetricInline.model_validate(metric)
                    refs.append(f"{workspace}/{body.derived_name}")
                    inline[refs[-1]] = (body.derived_name, body)
            except Refused as refused:
                problems.append(Problem(f"metrics.{at}", refused.message))
            except ValidationError as error:
                problems += [Problem(f"metrics.{at}.{p.subject}", p.message) for p in problems_of(error, MetricInline)]

        def work(connection: Connection) -> None:
            there = _ids(connection, refs)
            missing = [ref for ref in dict.fromkeys(refs) if ref not in there and ref not in inline]
            wrong = [*problems, *(Problem(ref, "no such metric; create it first") for ref in missing)]
            if wrong:
                raise Refused("The metrics cannot be used:", wrong)
            for ref, (name, body) in inline.items():
                if ref not in there:
                    connection.execute(insert(METRICS).values(**_row(workspace, name, body, None, derived=True)))

        self._database.write(work)
        return refs

    # --- evaluations ----------------------------------------------------------------------------------------------

    def add_job(self, job: AgentEvalJob, result: AgentEvalResult | None = None) -> None:
        """See `EvalCatalog`."""
        check_names("job", job.workspace, job.name, ())

        def work(connection: Connection) -> None:
            check_project(connection, job.workspace, job.project)
            for table, record in ((EVAL_JOBS, job), (EVAL_RESULTS, result)):
                if record is None:
                    continue
                if connection.scalar(select(table.c.id).where(*_named(table, record.workspace, record.name))):
                    raise Conflict(
                        f"An evaluation with workspace '{record.workspace}' and name '{record.name}' already exists"
                    )
                connection.execute(
                    insert(table).values(
                        id=record.id,
                        workspace=record.workspace,
                        name=record.name,
                        created_at=record.created_at,
                        updated_at=record.updated_at,
                        body=record.model_dump_json(),
                    )
                )

        self._database.write(work)

    def get_job(self, workspace: str, name: str) -> AgentEvalJob:
        """See `EvalCatalog`."""
        with self._database.read() as connection:
            return _read(AgentEvalJob, _one(connection, EVAL_JOBS, "Job", workspace, name).body)

    def list_jobs(
        self, workspace: str, *, page: int = 1, page_size: int = 100, sort: MetricSort = "created_at"
    ) -> Page[AgentEvalJob]:
        """See `EvalCatalog`."""
        rows, total = self._page(EVAL_JOBS, [EVAL_JOBS.c.workspace == workspace], page, page_size, sort)
        return Page([_read(AgentEvalJob, row.body) for row in rows], page, page_size, total)

    def get_result(self, workspace: str, name: str) -> AgentEvalResult:
        """See `EvalCatalog`."""
        with self._database.read() as connection:
            return _read(AgentEvalResult, _one(connection, EVAL_RESULTS, "Result", workspace, name).body)

    def list_results(
        self, workspace: str, *, page: int = 1, page_size: int = 100, sort: MetricSort = "created_at"
    ) -> Page[AgentEvalResult]:
        """See `EvalCatalog`."""
        rows, total = self._page(EVAL_RESULTS, [EVAL_RESULTS.c.workspace == workspace], page, page_size, sort)
        return Page([_read(AgentEvalResult, row.body) for row in rows], page, page_size, total)

    def delete_result(self, workspace: str, name: str) -> None:
        """See `EvalCatalog`."""
        self._delete(EVAL_RESULTS, "Result", workspace, name)

    def _page(
        self, table: Table, where: Sequence[ColumnElement[bool]], page: int, page_size: int, sort: MetricSort
    ) -> tuple[Sequence[Row[Any]], int]:
        check_page(page, page_size)
        order = _order(table, sort)
        with self._database.read() as connection:
            total = connection.scalar(select(func.count()).select_from(table).where(*where)) or 0
            query = select(table).where(*where).order_by(*order).limit(page_size).offset((page - 1) * page_size)
            return connection.execute(query).all(), total

    def _delete(self, table: Table, noun: str, workspace: str, name: str) -> None:
        def work(connection: Connection) -> None:
            if not connection.execute(delete(table).where(*_named(table, workspace, name))).rowcount:
                raise _missing(connection, table, noun, workspace, name)

        self._database.write(work)


def _order(table: Table, sort: MetricSort) -> Sequence[ColumnElement[Any]]:
    column = table.c[sort.removeprefix("-")]
    return (column.desc(), table.c.name.desc()) if sort.startswith("-") else (column, table.c.name)


def _facts(row: Row[Any]) -> Iterator[Fact]:
    """What filters ask of a metric."""
    for name in ("id", "name", "project", "metric_type", "derived", "created_at", "updated_at"):
        yield name, "", getattr(row, name)
    yield "description", "", json.loads(row.body)["metadata"].get("description")


def _row(
    workspace: str, name: str, body: MetricInline, project: str | None, *, derived: bool = False
) -> dict[str, Any]:
    now = datetime.now(UTC)
    try:
        text = canonical_json(body.kept()).decode()
    except ValueError as error:
        raise Refused(f"The metric '{name}' holds a value that JSON cannot hold: {error}") from error
    return {
        "id": new_id("metric-bundle"),
        "workspace": workspace,
        "name": name,
        "project": project,
        "metric_type": body.metric_type,
        "derived": derived,
        "body": text,
        "created_at": now,
        "updated_at": now,
    }


def _reference(text: str, workspace: str) -> str:
    ref = Ref.parse(text, workspace=workspace)
    if ref.fragment is not None:
        raise Refused(f"'{text[:400]}' names a revision, but metrics have none; write name or workspace/name")
    return ref.bare


def _named(table: Table, workspace: str, name: str) -> tuple[ColumnElement[bool], ...]:
    return table.c.workspace == workspace, table.c.name == name


def _one(connection: Connection, table: Table, noun: str, workspace: str, name: str) -> Row[Any]:
    row = connection.execute(select(table).where(*_named(table, workspace, name))).first()
    if row is None:
        raise _missing(connection, table, noun, workspace, name)
    return row


def _missing(connection: Connection, table: Table, noun: str, workspace: str, name: str) -> NotFound:
    names = select(table.c.name).where(table.c.workspace == workspace).limit(_NAMES_COMPARED)
    close = nearest(name, connection.scalars(names))
    hint = f"; did you mean {', '.join(close)}?" if close else ""
    return NotFound(f"{noun} not found: {workspace}/{name[:80]}{hint}")


def _by_workspace(refs: Sequence[str]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for ref in dict.fromkeys(refs):
        workspace, _, name = ref.partition("/")
        found.setdefault(workspace, []).append(name)
    return found


def _ids(connection: Connection, refs: Sequence[str]) -> set[str]:
    return {
        f"{workspace}/{name}"
        for workspace, names in _by_workspace(refs).items()
        for chunk in chunks(names)
        for name in connection.scalars(
            select(METRICS.c.name).where(METRICS.c.workspace == workspace, METRICS.c.name.in_(chunk))
        )
    }


def _bodies(connection: Connection, refs: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for workspace, names in _by_workspace(refs).items():
        for chunk in chunks(names):
            query = select(METRICS.c.name, METRICS.c.body).where(
                METRICS.c.workspace == workspace, METRICS.c.name.in_(chunk)
            )
            found.update((f"{workspace}/{row.name}", row.body) for row in connection.execute(query))
    return found


def _metric(row: Row[Any]) -> Metric:
    body = _read(MetricInline, row.body)
    return Metric(
        id=row.id,
        name=row.name,
        workspace=row.workspace,
        project=row.project,
        metric_type=row.metric_type,
        description=body.metadata.description,
        labels=body.metadata.labels,
        outputs=body.outputs,
        secrets=dict(body.secrets),
        payload_kind="inline" if isinstance(body.payload, InlinePayload) else "cloudpickle",
        payload_digest=body.payload.own_digest(),
        bundle_ref=f"metric-bundles/{row.id}",
        derived=row.derived,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _read[M: BaseModel](kind: type[M], text: str) -> M:
    try:
        return kind.model_validate(json.loads(text))
    except (ValidationError, ValueError) as error:
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise Broken(f"a {kind.__name__} in the catalog cannot be read: {why}") from error
