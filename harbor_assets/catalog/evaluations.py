"""Evaluations (`ExperimentCatalog`); their sessions are in `sessions.py`, their figures in `rollups.py`."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, delete, insert, select

from harbor_assets.catalog import rollups
from harbor_assets.catalog.named import (
    change,
    check_free,
    common,
    conditions,
    content,
    delete_softly,
    new_row,
    one,
    order_by,
    page_of,
    read,
)
from harbor_assets.catalog.records import check_page, chunks
from harbor_assets.catalog.schema import EVALUATIONS, EXPERIMENTS, MEMBERSHIPS, ROLLUPS
from harbor_assets.catalog.sessions import SqlSessions
from harbor_assets.domain.errors import Problem, Refused, TooMany
from harbor_assets.domain.evaluation_lists import IN_MEMORY_MAX, SortBy, asks_figures, figure_facts, read_sort
from harbor_assets.domain.experiments import (
    METADATA_MAX,
    Evaluation,
    EvaluationContent,
    EvaluationInput,
    EvaluationPatch,
    EvaluationUpdate,
    evaluation_facts,
    ordered,
    replaced_content,
)
from harbor_assets.domain.filters import AllOf, Filter, Match, Operator, holds
from harbor_assets.domain.rollups import Rollup
from harbor_assets.engine.ports import Page


class SqlEvaluations(SqlSessions):
    """Evaluations in a database."""

    def create_evaluation(self, workspace: str, body: EvaluationInput, *, created_by: str | None = None) -> Evaluation:
        """See `ExperimentCatalog`."""
        values = new_row("evaluation", workspace, body.name, created_by)

        def work(connection: Connection) -> Evaluation:
            check_free(connection, EVALUATIONS, workspace, body.name)
            _check_references(connection, workspace, body)
            stored = content(body, EvaluationInput, without={"name", "experiment_ids"})
            connection.execute(insert(EVALUATIONS).values(**values, body=stored))
            connection.execute(insert(ROLLUPS).values(evaluation_id=values["id"], changed=0))
            _put_in(connection, values["id"], body.experiment_ids)
            return _evaluation(connection, workspace, body.name)

        return self._database.write(work)

    def get_evaluation(self, workspace: str, name: str) -> Evaluation:
        """See `ExperimentCatalog`."""
        with self._database.read() as connection:
            row = one(connection, EVALUATIONS, workspace, name)
            figures, fresh = rollups.of(connection, [row.id])
            (found,) = _evaluations(connection, [row], figures)
        rollups.keep(self._database, fresh)
        return found

    def list_evaluations(
        self,
        workspace: str,
        *,
        page: int = 1,
        page_size: int = 100,
        sort: str = "-created_at",
        where: Filter | None = None,
    ) -> Page[Evaluation]:
        """See `ExperimentCatalog`. Without a filter, or by experiment alone, the database makes the page."""
        check_page(page, page_size)
        by = read_sort(sort)
        here, rest = conditions(EVALUATIONS, workspace, where), where
        experiment, rest = _of_experiment(where)
        if experiment is not None:
            members = select(MEMBERSHIPS.c.evaluation_id).where(MEMBERSHIPS.c.experiment_id == experiment)
            here.append(EVALUATIONS.c.id.in_(members))
        query = select(EVALUATIONS).where(*here)
        if not by.computed:
            query = query.order_by(EVALUATIONS.c.pinned_at.is_(None), *order_by(EVALUATIONS, sort))
        fresh: list[rollups.Fresh] = []
        with self._database.read() as connection:
            if rest is None and not by.computed:
                rows, total = page_of(connection, query, page, page_size)
                figures, fresh = rollups.of(connection, [row.id for row in rows])
                found = _evaluations(connection, rows, figures)
            else:
                every, figures, fresh = self._matching(connection, query, rest, by)
                total, shown = len(every), every[(page - 1) * page_size : page * page_size]
                if not figures:
                    figures, fresh = rollups.of(connection, [each.id for each in shown])
                found = [each.model_copy(update=_members(figures[each.id])) for each in shown]
        rollups.keep(self._database, fresh)
        return Page(found, page, page_size, total)

    def _matching(
        self, connection: Connection, query: Select[*tuple[Any, ...]], where: Filter | None, by: SortBy
    ) -> tuple[list[Evaluation], Mapping[str, Rollup], list[rollups.Fresh]]:
        """Every evaluation of `query` that answers to the filter, in order, and their figures if these were needed."""
        rows = connection.execute(query).all()
        found = list(zip(rows, _evaluations(connection, rows, {}), strict=True))
        fresh: list[rollups.Fresh] = []
        figures: Mapping[str, Rollup] = {}
        if asks_figures(where) or by.computed:
            if len(found) > IN_MEMORY_MAX:
                raise TooMany(
                    f"{len(found)} evaluations cannot be sorted or filtered by their figures, at most {IN_MEMORY_MAX} "
                    "can; filter by experiment_id, or sort by name or created_at"
                )
            figures, fresh = rollups.of(connection, [row.id for row in rows])
        kept: list[Evaluation] = []
        for row, evaluation in found:
            more = figure_facts(figures[row.id]) if row.id in figures else []
            facts = [*evaluation_facts(evaluation, deleted=row.deleted_at is not None), *more]
            if where is None or holds(where, facts, json.loads(row.body)):
                kept.append(evaluation)
        return (ordered(kept, by, figures) if by.computed else kept), figures, fresh

    def update_evaluation(self, workspace: str, name: str, body: EvaluationUpdate) -> Evaluation:
        """See `ExperimentCatalog`."""
        return self._changed(workspace, name, lambda old: replaced_content(old, body))

    def patch_evaluation(self, workspace: str, name: str, body: EvaluationPatch) -> Evaluation:
        """See `ExperimentCatalog`."""
        return self._changed(workspace, name, lambda old: old.model_copy(update=body.changes()))

    def merge_metadata(self, workspace: str, name: str, metadata: Mapping[str, str]) -> Evaluation:
        """See `ExperimentCatalog`."""

        def merged(old: EvaluationInput) -> EvaluationInput:
            both = {**old.metadata, **metadata}
            if len(both) > METADATA_MAX:
                raise Refused(f"The metadata of '{name}' would have {len(both)} keys, at most {METADATA_MAX} can be")
            return old.model_copy(update={"metadata": both})

        return self._changed(workspace, name, merged)

    def _changed(self, workspace: str, name: str, changed: Callable[[EvaluationInput], EvaluationInput]) -> Evaluation:
        def work(connection: Connection) -> Evaluation:
            row = one(connection, EVALUATIONS, workspace, name, lock=True)
            (old,) = _inputs(connection, [row])
            new = changed(old)
            if new != old:
                _check_references(connection, workspace, new, itself=row.id)
                stored = content(new, EvaluationInput, without={"name", "experiment_ids"})
                change(connection, EVALUATIONS, row.id, body=stored)
                _put_in(connection, row.id, new.experiment_ids)
            return _evaluation(connection, workspace, name)

        return self._database.write(work)

    def delete_evaluation(self, workspace: str, name: str) -> None:
        """See `ExperimentCatalog`."""

        def work(connection: Connection) -> None:
            delete_softly(connection, EVALUATIONS, one(connection, EVALUATIONS, workspace, name, lock=True).id)

        self._database.write(work)

    def pin_evaluation(self, workspace: str, name: str, pinned: bool) -> Evaluation:
        """See `ExperimentCatalog`."""

        def work(connection: Connection) -> Evaluation:
            row = one(connection, EVALUATIONS, workspace, name, lock=True)
            if pinned is (row.pinned_at is None):
                now = datetime.now(UTC)
                change(connection, EVALUATIONS, row.id, pinned_at=now if pinned else None)
            return _evaluation(connection, workspace, name)

        return self._database.write(work)


def _of_experiment(where: Filter | None) -> tuple[str | None, Filter | None]:
    """The one experiment whose evaluations are asked for, where the database can begin with it; and what is left."""
    items = where.items if isinstance(where, AllOf) else (where,) if where is not None else ()
    for item in items:
        match item:
            case Match(field="experiment_id", operator=Operator.EQ, value=str(value)):
                rest = tuple(each for each in items if each is not item)
                return value, AllOf(rest) if rest else None
            case _:
                continue
    return None, where


def _evaluation(connection: Connection, workspace: str, name: str) -> Evaluation:
    row = one(connection, EVALUATIONS, workspace, name)
    figures, _ = rollups.of(connection, [row.id])
    (found,) = _evaluations(connection, [row], figures)
    return found


def _evaluations(connection: Connection, rows: Sequence[Row[Any]], figures: Mapping[str, Rollup]) -> list[Evaluation]:
    ids = _experiment_ids(connection, [row.id for row in rows])
    nothing = Rollup()
    return [
        read(
            Evaluation,
            f"the evaluation '{row.name}'",
            common(row)
            | {"pinned_at": row.pinned_at, "experiment_ids": ids.get(row.id, [])}
            | _members(figures.get(row.id, nothing)),
        )
        for row in rows
    ]


def _members(figures: Rollup) -> dict[str, Any]:
    return {name: getattr(figures, name) for name in Rollup.model_fields}


def _inputs(connection: Connection, rows: Sequence[Row[Any]]) -> list[EvaluationInput]:
    ids = _experiment_ids(connection, [row.id for row in rows])
    return [
        read(
            EvaluationInput,
            f"the evaluation '{row.name}'",
            {**json.loads(row.body), "name": row.name, "experiment_ids": ids.get(row.id, [])},
        )
        for row in rows
    ]


def _experiment_ids(connection: Connection, evaluations: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for chunk in chunks(evaluations):
        query = (
            select(MEMBERSHIPS.c.evaluation_id, MEMBERSHIPS.c.experiment_id)
            .where(MEMBERSHIPS.c.evaluation_id.in_(chunk))
            .order_by(MEMBERSHIPS.c.evaluation_id, MEMBERSHIPS.c.place)
        )
        for evaluation, experiment in connection.execute(query):
            found.setdefault(evaluation, []).append(experiment)
    return found


def _put_in(connection: Connection, evaluation: str, experiments: Sequence[str]) -> None:
    connection.execute(delete(MEMBERSHIPS).where(MEMBERSHIPS.c.evaluation_id == evaluation))
    rows = [
        {"experiment_id": experiment, "evaluation_id": evaluation, "place": place}
        for place, experiment in enumerate(experiments)
    ]
    connection.execute(insert(MEMBERSHIPS), rows)


def _check_references(
    connection: Connection, workspace: str, body: EvaluationContent, itself: str | None = None
) -> None:
    there = set(
        connection.scalars(
            select(EXPERIMENTS.c.id)
            .where(
                EXPERIMENTS.c.id.in_(body.experiment_ids),
                EXPERIMENTS.c.workspace == workspace,
                EXPERIMENTS.c.deleted_at.is_(None),
            )
            .with_for_update(read=True)  # so that none of them is deleted before this is written
        )
    )
    problems = [
        Problem("experiment_ids", f"there is no experiment with the id '{each[:80]}' in workspace '{workspace}'")
        for each in body.experiment_ids
        if each not in there
    ]
    parent = body.parent_evaluation_id
    if parent is not None:
        here = and_(EVALUATIONS.c.id == parent, EVALUATIONS.c.workspace == workspace)
        if parent == itself or connection.scalar(select(EVALUATIONS.c.id).where(here)) is None:
            why = f"there is no other evaluation with the id '{parent[:80]}' in workspace '{workspace}'"
            problems.append(Problem("parent_evaluation_id", why))
    if problems:
        raise Refused("The evaluation cannot be stored:", problems)
