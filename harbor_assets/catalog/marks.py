"""What is known of tasks and runs beside their scores (`MarkCatalog`)."""

import hashlib
from collections.abc import Mapping, Sequence

from pydantic import ValidationError
from sqlalchemy import Connection, Delete, delete, func, insert, select

from harbor_assets.catalog.database import Database
from harbor_assets.catalog.records import check_page, chunks
from harbor_assets.catalog.schema import MARKS
from harbor_assets.domain.errors import Broken, NotFound
from harbor_assets.domain.marks import Mark, MarkKind, Verdict
from harbor_assets.engine.ports import Page


class SqlMarks:
    """Marks in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put_mark(self, mark: Mark) -> Mark:
        """See `MarkCatalog`."""
        subject = _hashed(mark.workspace, mark.subject)

        def work(connection: Connection) -> Mark:
            here = MARKS.c.subject == subject, MARKS.c.kind == mark.kind
            body = connection.scalar(select(MARKS.c.body).where(*here))
            kept = mark.replacing(_read(body) if body else None)
            connection.execute(_one(mark.workspace, mark.subject, mark.kind))
            connection.execute(
                insert(MARKS).values(
                    workspace=kept.workspace,
                    subject=subject,
                    kind=kept.kind,
                    verdict=kept.verdict,
                    at=kept.at,
                    body=kept.model_dump_json(),
                )
            )
            return kept

        return self._database.write(work)

    def marks_of(self, workspace: str, subjects: Sequence[str]) -> Mapping[str, Sequence[Mark]]:
        """See `MarkCatalog`."""
        found: dict[str, list[Mark]] = {}
        hashes = [_hashed(workspace, subject) for subject in dict.fromkeys(subjects)]
        with self._database.read() as connection:
            for chunk in chunks(hashes):
                query = select(MARKS.c.body).where(MARKS.c.subject.in_(chunk)).order_by(MARKS.c.kind)
                for body in connection.scalars(query):
                    mark = _read(body)
                    found.setdefault(mark.subject, []).append(mark)
        return found

    def withdraw_mark(self, workspace: str, subject: str, kind: MarkKind) -> Mark:
        """See `MarkCatalog`."""

        def work(connection: Connection) -> str | None:
            here = MARKS.c.subject == _hashed(workspace, subject), MARKS.c.kind == kind
            body = connection.scalar(select(MARKS.c.body).where(*here))
            connection.execute(_one(workspace, subject, kind))
            return body

        body = self._database.write(work)
        if body is None:
            how = "a person" if kind == "judged" else "verifying it"
            raise NotFound(f"Mark not found: {subject[:600]} has none by {how} in workspace '{workspace}'")
        return _read(body)

    def list_marks(
        self, workspace: str, *, verdict: Verdict | None = None, page: int = 1, page_size: int = 100
    ) -> Page[Mark]:
        """See `MarkCatalog`."""
        check_page(page, page_size)
        here = [MARKS.c.workspace == workspace]
        if verdict is not None:
            here.append(MARKS.c.verdict == verdict)
        query = select(MARKS.c.body).where(*here).order_by(MARKS.c.at.desc(), MARKS.c.subject, MARKS.c.kind)
        with self._database.read() as connection:
            total = connection.scalar(select(func.count()).select_from(MARKS).where(*here)) or 0
            bodies = connection.scalars(query.limit(page_size).offset((page - 1) * page_size)).all()
        return Page([_read(body) for body in bodies], page, page_size, total)


def _one(workspace: str, subject: str, kind: MarkKind) -> Delete:
    return delete(MARKS).where(MARKS.c.subject == _hashed(workspace, subject), MARKS.c.kind == kind)


def _hashed(workspace: str, subject: str) -> str:
    return hashlib.sha256(f"{workspace}\n{subject}".encode()).hexdigest()


def _read(body: str) -> Mark:
    try:
        return Mark.model_validate_json(body)
    except ValidationError as error:
        raise Broken(f"a mark in the catalog cannot be read: {error.errors()[0]['msg']}") from error
