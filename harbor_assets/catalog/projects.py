"""Projects (`ProjectCatalog`): names in a workspace that records can be put under."""

from datetime import UTC, datetime

from sqlalchemy import Connection, delete, exists, func, insert, select

from harbor_assets.catalog.database import Database
from harbor_assets.catalog.records import check_names, check_page
from harbor_assets.catalog.schema import METRICS, PROJECTS, TASKS, TASKSETS
from harbor_assets.domain.errors import Conflict, NotFound, Problem, Refused
from harbor_assets.domain.tasks import Project
from harbor_assets.engine.ports import Page


class SqlProjects:
    """Projects in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put_project(self, workspace: str, name: str) -> tuple[Project, bool]:
        """See `ProjectCatalog`."""
        check_names("project", workspace, name, ())

        def work(connection: Connection) -> tuple[Project, bool]:
            row = connection.execute(select(PROJECTS).where(*_this(workspace, name))).first()
            if row is not None:
                return Project(name=name, workspace=workspace, created_at=row.created_at), False
            made = Project(name=name, workspace=workspace, created_at=datetime.now(UTC))
            connection.execute(insert(PROJECTS).values(made.model_dump()))
            return made, True

        return self._database.write(work)

    def list_projects(self, workspace: str, *, page: int = 1, page_size: int = 100) -> Page[Project]:
        """See `ProjectCatalog`."""
        check_page(page, page_size)
        here = PROJECTS.c.workspace == workspace
        query = select(PROJECTS).where(here).order_by(PROJECTS.c.name).limit(page_size).offset((page - 1) * page_size)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
            total = connection.scalar(select(func.count()).select_from(PROJECTS).where(here)) or 0
        found = [Project(name=row.name, workspace=row.workspace, created_at=row.created_at) for row in rows]
        return Page(found, page, page_size, total)

    def delete_project(self, workspace: str, name: str) -> None:
        """See `ProjectCatalog`."""

        def work(connection: Connection) -> None:
            row = connection.execute(select(PROJECTS).where(*_this(workspace, name)).with_for_update()).first()
            if row is None:
                raise NotFound(f"Project not found: {workspace}/{name[:80]}")
            for tables in (TASKS, TASKSETS):
                records = tables.records.c
                if connection.scalar(select(exists().where(records.workspace == workspace, records.project == name))):
                    raise Conflict(f"The project '{workspace}/{name}' still has {tables.noun}s; move or delete them")
            if connection.scalar(select(exists().where(METRICS.c.workspace == workspace, METRICS.c.project == name))):
                raise Conflict(f"The project '{workspace}/{name}' still has metrics; delete them")
            connection.execute(delete(PROJECTS).where(*_this(workspace, name)))

        self._database.write(work)


def check_project(connection: Connection, workspace: str, name: str | None) -> None:
    """Raises `Refused` for a project that does not exist; it cannot go before the transaction ends."""
    if name is None:
        return
    if connection.execute(select(PROJECTS.c.name).where(*_this(workspace, name)).with_for_update(read=True)).first():
        return
    how = f"does not exist in workspace '{workspace}'; make it first, or leave it out"
    raise Refused("The record was not stored:", [Problem("project", f"'{name[:80]}' {how}")])


def _this(workspace: str, name: str):
    return PROJECTS.c.workspace == workspace, PROJECTS.c.name == name
