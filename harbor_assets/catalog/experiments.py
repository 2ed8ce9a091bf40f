"""Experiments (`ExperimentCatalog`); their evaluations are in `evaluations.py`."""

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select

from harbor_assets.catalog.evaluations import SqlEvaluations
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
from harbor_assets.catalog.schema import EVALUATIONS, EXPERIMENTS, MEMBERSHIPS
from harbor_assets.domain.errors import Refused
from harbor_assets.domain.experiments import (
    Experiment,
    ExperimentContent,
    ExperimentInput,
    ExperimentUpdate,
    experiment_facts,
)
from harbor_assets.domain.filters import Filter, holds
from harbor_assets.domain.tasks import Sort
from harbor_assets.engine.ports import Page


class SqlExperiments(SqlEvaluations):
    """Experiments in a database."""

    def create_experiment(self, workspace: str, body: ExperimentInput, *, created_by: str | None = None) -> Experiment:
        """See `ExperimentCatalog`."""
        values = new_row("experiment", workspace, body.name, created_by) | {"body": content(body, ExperimentContent)}

        def work(connection: Connection) -> Experiment:
            check_free(connection, EXPERIMENTS, workspace, body.name)
            connection.execute(insert(EXPERIMENTS).values(**values))
            return _experiment(connection, workspace, body.name)

        return self._database.write(work)

    def get_experiment(self, workspace: str, name: str) -> Experiment:
        """See `ExperimentCatalog`."""
        with self._database.read() as connection:
            return _experiment(connection, workspace, name)

    def list_experiments(
        self,
        workspace: str,
        *,
        page: int = 1,
        page_size: int = 100,
        sort: Sort = Sort.CREATED,
        where: Filter | None = None,
    ) -> Page[Experiment]:
        """See `ExperimentCatalog`. A filter looks at each experiment of the workspace: there are hundreds."""
        check_page(page, page_size)
        here, order = conditions(EXPERIMENTS, workspace, where), order_by(EXPERIMENTS, sort)
        with self._database.read() as connection:
            if where is None:
                rows, total = page_of(connection, select(EXPERIMENTS).where(*here).order_by(*order), page, page_size)
                return Page(_experiments(connection, rows), page, page_size, total)
            rows = connection.execute(select(EXPERIMENTS).where(*here).order_by(*order)).all()
            found = [
                (row, experiment)
                for row, experiment in zip(rows, _experiments(connection, rows), strict=True)
                if holds(where, experiment_facts(experiment, deleted=row.deleted_at is not None), json.loads(row.body))
            ]
        shown = found[(page - 1) * page_size : page * page_size]
        return Page([experiment for _, experiment in shown], page, page_size, len(found))

    def update_experiment(self, workspace: str, name: str, body: ExperimentUpdate) -> Experiment:
        """See `ExperimentCatalog`."""
        if body.name not in (None, name):
            raise Refused(f"An experiment keeps its name '{name}'; send that one, or leave it out")

        def work(connection: Connection) -> Experiment:
            row = one(connection, EXPERIMENTS, workspace, name, lock=True)
            if body.baseline_evaluation_name is not None:
                _check_member(connection, workspace, row.id, body.baseline_evaluation_name)
            stored = content(body, ExperimentUpdate, without={"name"})
            change(connection, EXPERIMENTS, row.id, body=stored)
            return _experiment(connection, workspace, name)

        return self._database.write(work)

    def delete_experiment(self, workspace: str, name: str) -> None:
        """See `ExperimentCatalog`."""

        def work(connection: Connection) -> None:
            row = one(connection, EXPERIMENTS, workspace, name, lock=True)
            members = connection.scalars(
                select(MEMBERSHIPS.c.evaluation_id)
                .join(EVALUATIONS, EVALUATIONS.c.id == MEMBERSHIPS.c.evaluation_id)
                .where(MEMBERSHIPS.c.experiment_id == row.id, EVALUATIONS.c.deleted_at.is_(None))
            ).all()
            elsewhere = set[str]()
            for chunk in chunks(members):
                query = select(MEMBERSHIPS.c.evaluation_id).where(
                    MEMBERSHIPS.c.evaluation_id.in_(chunk), MEMBERSHIPS.c.experiment_id != row.id
                )
                elsewhere.update(connection.scalars(query))
            for evaluation in members:
                if evaluation not in elsewhere:
                    delete_softly(connection, EVALUATIONS, evaluation)
            for chunk in chunks(sorted(elsewhere)):
                here = (MEMBERSHIPS.c.experiment_id == row.id, MEMBERSHIPS.c.evaluation_id.in_(chunk))
                connection.execute(delete(MEMBERSHIPS).where(*here))
            delete_softly(connection, EXPERIMENTS, row.id)

        self._database.write(work)


def _experiment(connection: Connection, workspace: str, name: str) -> Experiment:
    (found,) = _experiments(connection, [one(connection, EXPERIMENTS, workspace, name)])
    return found


def _experiments(connection: Connection, rows: Sequence[Row[Any]]) -> list[Experiment]:
    counts: dict[str, int] = {}
    for chunk in chunks([row.id for row in rows]):
        query = (
            select(MEMBERSHIPS.c.experiment_id, func.count())
            .join(EVALUATIONS, EVALUATIONS.c.id == MEMBERSHIPS.c.evaluation_id)
            .where(MEMBERSHIPS.c.experiment_id.in_(chunk), EVALUATIONS.c.deleted_at.is_(None))
            .group_by(MEMBERSHIPS.c.experiment_id)
        )
        counts |= {row[0]: row[1] for row in connection.execute(query)}
    there = _baselines(connection, rows)
    return [
        read(
            Experiment,
            f"the experiment '{row.name}'",
            common(row) | {"evaluation_count": counts.get(row.id, 0)} | {"baseline_evaluation_name": there.get(row.id)},
        )
        for row in rows
    ]


def _baselines(connection: Connection, rows: Sequence[Row[Any]]) -> dict[str, str]:
    """The baselines of experiments by their ids; one that was deleted or taken out since is none any more."""
    named = {row.id: name for row in rows if (name := json.loads(row.body).get("baseline_evaluation_name"))}
    found: dict[str, str] = {}
    for chunk in chunks(list(named)):
        query = (
            select(MEMBERSHIPS.c.experiment_id, EVALUATIONS.c.name)
            .join(EVALUATIONS, EVALUATIONS.c.id == MEMBERSHIPS.c.evaluation_id)
            .where(
                MEMBERSHIPS.c.experiment_id.in_(chunk),
                EVALUATIONS.c.name.in_({named[experiment] for experiment in chunk}),
                EVALUATIONS.c.deleted_at.is_(None),
            )
        )
        found |= {row[0]: row[1] for row in connection.execute(query) if named[row[0]] == row[1]}
    return found


def _check_member(connection: Connection, workspace: str, experiment: str, name: str) -> None:
    query = (
        select(EVALUATIONS.c.id)
        .join(MEMBERSHIPS, MEMBERSHIPS.c.evaluation_id == EVALUATIONS.c.id)
        .where(
            MEMBERSHIPS.c.experiment_id == experiment,
            EVALUATIONS.c.workspace == workspace,
            EVALUATIONS.c.name == name,
            EVALUATIONS.c.deleted_at.is_(None),
        )
    )
    if connection.scalar(query) is None:
        raise Refused(f"The baseline '{name[:80]}' is no evaluation of this experiment; put it there first")
