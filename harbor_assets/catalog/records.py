"""Named records with immutable revisions: the rules tasks and tasksets share (compare with latest, cut, tag, look up).

Source of the rules: the API's documented revisions. Publishing compares with the revision `latest` names and with no
other; ordinals count from 1 and are never reused; a digest means the newest revision that has it.
"""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, delete, func, insert, select, tuple_, update

from harbor_assets.catalog.schema import RecordTables
from harbor_assets.domain.errors import Conflict, Malformed, NotFound, Problem, Refused
from harbor_assets.domain.names import is_digest, name_problem, nearest, tag_problem
from harbor_assets.domain.tasks import Revision, Sort
from harbor_assets.engine.ports import Page

LATEST = "latest"
PAGE_MAX = 1000  # the API's limit of page_size
CHUNK = 500  # names in one query; with pairs of name and digest beside, 1,500 variables; SQLite takes 32,766
_NAMES_COMPARED = 10_000  # for "did you mean": comparing more takes longer than the answer is worth
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"  # no 0, O, I, l


@dataclass(frozen=True, slots=True)
class Stored:
    """One revision of a record as it lies in the database. `tags` holds every tag of the record, `latest` too."""

    id: str
    workspace: str
    name: str
    ordinal: int
    digest: str
    body: str
    tags: dict[str, int]
    created_at: datetime
    updated_at: datetime
    revision_created_at: datetime
    project: str | None

    @property
    def tags_here(self) -> dict[str, int]:
        """The tags that point at this revision: what the API answers to a write."""
        return {tag: ordinal for tag, ordinal in self.tags.items() if ordinal == self.ordinal}

    def __str__(self) -> str:
        return f"{self.workspace}/{self.name} revision {self.ordinal}"


def chunks[T](items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), CHUNK):
        yield items[start : start + CHUNK]


def check_page(page: int, page_size: int) -> None:
    """Raises `Refused` for a page that no list has."""
    if page < 1:
        raise Refused(f"page {page} does not exist; pages count from 1")
    if not 1 <= page_size <= PAGE_MAX:
        raise Refused(f"page_size {page_size} is not allowed; it goes from 1 to {PAGE_MAX}")


def check_names(noun: str, workspace: str, name: str, tags: Iterable[str]) -> None:
    """Raises `Refused` with everything wrong with what a record is to be called, `Malformed` for bad tags."""
    problems = [
        Problem(f"{what} {text[:80]!r}", problem)
        for what, text in (("workspace", workspace), (noun, name))
        if (problem := name_problem(text))
    ]
    if problems:
        raise Refused(f"The {noun} cannot be stored:", problems)
    bad = [Problem(f"tag {tag[:80]!r}", problem) for tag in tags if (problem := tag_problem(tag))]
    if bad:
        raise Malformed(f"Invalid {noun} data:", bad)


def publish(
    connection: Connection,
    tables: RecordTables,
    workspace: str,
    name: str,
    *,
    digest: str,
    body: str,
    tags: Sequence[str],
    project: str | None = None,
    create: bool = False,
) -> tuple[Stored, bool]:
    """Store a record's content; True if a revision was cut. The given tags point at `latest` afterwards.

    Raises `Conflict` if it is to be new and is not. The caller writes the facts of what is new.
    """
    records, revisions = tables.records, tables.revisions
    now = datetime.now(UTC)
    row = connection.execute(
        select(records.c.id, records.c.latest, records.c.project)
        .where(records.c.workspace == workspace, records.c.name == name)
        .with_for_update()
    ).first()
    if create and row is not None:
        noun = tables.noun.capitalize()
        raise Conflict(f"{noun} with workspace '{workspace}' and name '{name}' already exists")
    if row is None:
        record_id, ordinal = new_id(tables.noun), 1
        connection.execute(
            insert(records).values(
                id=record_id,
                workspace=workspace,
                name=name,
                latest=1,
                created_at=now,
                updated_at=now,
                project=project,
            )
        )
    else:
        # After the lock, not joined to it: Postgres would join the row it waited for to revisions of before the wait.
        newest = (revisions.c.record_id == row.id, revisions.c.ordinal == row.latest)
        unchanged = connection.scalar(select(revisions.c.digest).where(*newest)) == digest
        record_id, ordinal = row.id, row.latest if unchanged else row.latest + 1
    cut = row is None or row.latest != ordinal
    if cut:
        connection.execute(
            insert(revisions).values(record_id=record_id, ordinal=ordinal, digest=digest, created_at=now, body=body)
        )
    tagged = _tag(connection, tables, record_id, ordinal, tags)
    moved = row is not None and project is not None and project != row.project
    if row is not None and (cut or tagged or moved):
        values = {"latest": ordinal, "updated_at": now} | ({"project": project} if moved else {})
        connection.execute(update(records).where(records.c.id == record_id).values(values))
    (stored,) = fetch(connection, tables, _with_revision(tables).where(records.c.id == record_id))
    return stored, cut


def _tag(connection: Connection, tables: RecordTables, record_id: str, ordinal: int, wanted: Sequence[str]) -> bool:
    """Point the tags at the revision; True if one moved. `latest` in a body is tolerated: it points there anyhow."""
    moved = False
    for tag in sorted(set(wanted) - {LATEST}):
        here = (tables.tags.c.record_id == record_id, tables.tags.c.tag == tag)
        old = connection.scalar(select(tables.tags.c.ordinal).where(*here))
        if old is None:
            connection.execute(insert(tables.tags).values(record_id=record_id, tag=tag, ordinal=ordinal))
        elif old != ordinal:
            connection.execute(update(tables.tags).where(*here).values(ordinal=ordinal))
        moved = moved or old != ordinal
    return moved


def find(connection: Connection, tables: RecordTables, workspace: str, name: str, revision: str | None) -> Stored:
    """The current revision, or the one of a digest or tag. Raises `NotFound`."""
    records, revisions = tables.records, tables.revisions
    this = (records.c.workspace == workspace, records.c.name == name)
    found = fetch(connection, tables, _with_revision(tables).where(*this))
    if not found:
        raise not_found(connection, tables, workspace, name)
    (current,) = found
    if revision is None or revision == LATEST:
        return current
    if is_digest(revision):
        newest = select(func.max(revisions.c.ordinal)).where(
            revisions.c.record_id == current.id, revisions.c.digest == revision
        )
        ordinal = connection.scalar(newest)
    else:
        ordinal = current.tags.get(revision)
    if ordinal is None:
        known = ", ".join(sorted(current.tags))
        kind = "with digest" if is_digest(revision) else "tagged"
        raise NotFound(f"'{workspace}/{name}' has no revision {kind} '{revision[:80]}' (known tags: {known})")
    if ordinal == current.ordinal:
        return current
    (stored,) = fetch(
        connection, tables, _with_revision(tables, latest=False).where(*this, revisions.c.ordinal == ordinal)
    )
    return stored


def find_current(connection: Connection, tables: RecordTables, workspace: str, names: Sequence[str]) -> list[Stored]:
    """The current revisions of those names that exist, in no particular order."""
    records = tables.records
    return [
        stored
        for chunk in chunks(list(dict.fromkeys(names)))
        for stored in fetch(
            connection,
            tables,
            _with_revision(tables).where(records.c.workspace == workspace, records.c.name.in_(chunk)),
        )
    ]


def find_pinned(connection: Connection, tables: RecordTables, pins: Sequence[tuple[str, str, str]]) -> list[Stored]:
    """The newest revisions that have those (workspace, name, digest), where there is one."""
    records, revisions = tables.records, tables.revisions
    newest: dict[tuple[str, str, str], Stored] = {}
    for workspace in sorted({workspace for workspace, _, _ in pins}):
        for chunk in chunks([(name, digest) for where, name, digest in pins if where == workspace]):
            query = _with_revision(tables, latest=False).where(
                records.c.workspace == workspace,
                # By names, then by pairs: SQLite would look up every digest for every name if they stood alone.
                records.c.name.in_(sorted({name for name, _ in chunk})),
                tuple_(records.c.name, revisions.c.digest).in_(chunk),
            )
            for stored in fetch(connection, tables, query.order_by(revisions.c.ordinal)):
                newest[stored.workspace, stored.name, stored.digest] = stored
    return list(newest.values())


def tag(connection: Connection, tables: RecordTables, workspace: str, name: str, tag: str, revision: str) -> Stored:
    """Point a tag at a revision of digest or tag; the record as it is then. Raises `NotFound`."""
    records = tables.records
    connection.execute(
        select(records.c.id).where(records.c.workspace == workspace, records.c.name == name).with_for_update()
    )
    wanted = find(connection, tables, workspace, name, revision)
    if _tag(connection, tables, wanted.id, wanted.ordinal, [tag]):
        connection.execute(update(records).where(records.c.id == wanted.id).values(updated_at=datetime.now(UTC)))
    return find(connection, tables, workspace, name, None)


def remove(connection: Connection, tables: RecordTables, workspace: str, name: str) -> None:
    """Remove a record and everything that belongs to it. Raises `NotFound`."""
    records = tables.records
    record_id = connection.scalar(
        select(records.c.id).where(records.c.workspace == workspace, records.c.name == name).with_for_update()
    )
    if record_id is None:
        raise not_found(connection, tables, workspace, name)
    for table in (tables.facts, tables.tags, tables.revisions):
        connection.execute(delete(table).where(table.c.record_id == record_id))
    connection.execute(delete(records).where(records.c.id == record_id))


def revisions_page(
    connection: Connection, tables: RecordTables, workspace: str, name: str, page: int, page_size: int
) -> Page[Revision]:
    """A page of a record's revisions, newest first. Raises `NotFound`."""
    check_page(page, page_size)
    current, revisions = find(connection, tables, workspace, name, None), tables.revisions
    names: dict[int, list[str]] = {}
    for name_of_tag, ordinal in sorted(current.tags.items()):
        names.setdefault(ordinal, []).append(name_of_tag)
    query = (
        select(revisions.c.ordinal, revisions.c.digest, revisions.c.created_at)
        .where(revisions.c.record_id == current.id)
        .order_by(revisions.c.ordinal.desc())
        .limit(page_size)
        .offset((page - 1) * page_size)
    )
    found = [
        Revision(
            revision=row.ordinal,
            content_hash=row.digest,
            tags=names.get(row.ordinal, []),
            created_at=row.created_at,
        )
        for row in connection.execute(query)
    ]
    return Page(found, page, page_size, current.ordinal)  # ordinals have no gaps


def list_page(
    connection: Connection,
    tables: RecordTables,
    workspace: str,
    page: int,
    page_size: int,
    sort: Sort = Sort.CREATED,
    where: ColumnElement[bool] | None = None,
    led: bool = False,
) -> tuple[list[Stored], int]:
    """One page of a workspace's records, and how many there are in all.

    `led`: `where` holds a list of ids from which few records follow, better to begin with than the workspace.
    """
    check_page(page, page_size)
    records = tables.records
    ours, asked = records.c.workspace == workspace, [] if where is None else [where]
    here = and_(ours, *asked)
    # Counting has no order to keep: https://sqlite.org/lang_corefunc.html#likely says to SQLite where not to begin
    counted = and_(func.likely(ours), *asked) if led and connection.dialect.name == "sqlite" else here
    total = connection.scalar(select(func.count()).select_from(records).where(counted)) or 0
    # The page's ids first: sorting whole rows would carry every body of the workspace along.
    ids = select(records.c.id).where(here).order_by(*order(tables, sort))
    wanted = ids.limit(page_size).offset((page - 1) * page_size).subquery()
    query = _with_revision(tables).join(wanted, wanted.c.id == records.c.id).order_by(*order(tables, sort))
    return fetch(connection, tables, query), total


def order(tables: RecordTables, sort: Sort) -> Sequence[ColumnElement[Any]]:
    """What to order by; equal times by name."""
    column = tables.records.c[sort.removeprefix("-")]
    return (column.desc() if sort.startswith("-") else column, tables.records.c.name)


def find_ids(connection: Connection, tables: RecordTables, ids: Sequence[str]) -> list[Stored]:
    """The current revisions of records by id, in the order given; those that are not there are left out."""
    found = {
        stored.id: stored
        for chunk in chunks(list(dict.fromkeys(ids)))
        for stored in fetch(connection, tables, _with_revision(tables).where(tables.records.c.id.in_(chunk)))
    }
    return [found[record_id] for record_id in ids if record_id in found]


def everything(
    connection: Connection,
    tables: RecordTables,
    workspace: str | None = None,
    sort: Sort = Sort.CREATED,
    where: ColumnElement[bool] | None = None,
) -> Iterator[Stored]:
    """Every current record, of one workspace or of all, a few hundred at a time."""
    records = tables.records
    query = select(records.c.id).order_by(*order(tables, sort))
    if workspace is not None:
        query = query.where(records.c.workspace == workspace)
    if where is not None:
        query = query.where(where)
    for chunk in chunks(connection.scalars(query).all()):
        yield from find_ids(connection, tables, chunk)


def published(
    connection: Connection, tables: RecordTables, after: datetime | None, limit: int
) -> list[tuple[datetime, str]]:
    """(moment, pinned reference) of the revisions cut after a moment, oldest first."""
    records, revisions = tables.records, tables.revisions
    query = (
        select(revisions.c.created_at, records.c.workspace, records.c.name, revisions.c.digest)
        .join(records, records.c.id == revisions.c.record_id)
        .order_by(revisions.c.created_at, revisions.c.record_id, revisions.c.ordinal)
        .limit(limit)
    )
    if after is not None:
        query = query.where(revisions.c.created_at > after)
    rows = connection.execute(query).all()
    return [(row.created_at, f"{row.workspace}/{row.name}#{row.digest}") for row in rows]


def not_found(connection: Connection, tables: RecordTables, workspace: str, name: str) -> NotFound:
    """The error for a name that is not there, with the nearest names that are."""
    names = select(tables.records.c.name).where(tables.records.c.workspace == workspace).limit(_NAMES_COMPARED)
    close = nearest(name, connection.scalars(names))
    hint = f"; did you mean {', '.join(close)}?" if close else ""
    return NotFound(f"{tables.noun.capitalize()} not found: {workspace}/{name[:80]}{hint}")


def new_id(noun: str) -> str:
    """`<noun>-<base58>`: 128 random bits, without the letters that people misread."""
    number, text = secrets.randbits(128), ""
    while number:
        number, digit = divmod(number, 58)
        text = _BASE58[digit] + text
    return f"{noun}-{text or _BASE58[0]}"


def _with_revision(tables: RecordTables, *, latest: bool = True) -> Select[*tuple[Any, ...]]:
    records, revisions = tables.records, tables.revisions
    on = revisions.c.record_id == records.c.id
    return select(
        records.c.id,
        records.c.workspace,
        records.c.name,
        records.c.latest,
        records.c.created_at,
        records.c.updated_at,
        records.c.project,
        revisions.c.ordinal,
        revisions.c.digest,
        revisions.c.created_at.label("revision_created_at"),
        revisions.c.body,
    ).join(revisions, and_(on, revisions.c.ordinal == records.c.latest) if latest else on)


def fetch(connection: Connection, tables: RecordTables, query: Select[*tuple[Any, ...]]) -> list[Stored]:
    """The rows of `query` (made by `_with_revision`) with their tags."""
    rows: Sequence[Row[Any]] = connection.execute(query).all()
    tags: dict[str, dict[str, int]] = {row.id: {LATEST: row.latest} for row in rows}
    for chunk in chunks(list(tags)):
        for found in connection.execute(select(tables.tags).where(tables.tags.c.record_id.in_(chunk))):
            tags[found.record_id][found.tag] = found.ordinal
    return [
        Stored(
            id=row.id,
            workspace=row.workspace,
            name=row.name,
            ordinal=row.ordinal,
            digest=row.digest,
            body=row.body,
            tags=tags[row.id],
            created_at=row.created_at,
            updated_at=row.updated_at,
            revision_created_at=row.revision_created_at,
            project=row.project,
        )
        for row in rows
    ]
