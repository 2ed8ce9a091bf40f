"""What the commands of `tasks` and `tasksets` do and print."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import typer
from pydantic import BaseModel

from harbor_assets.domain.errors import Conflict, NotFound, Refused
from harbor_assets.domain.marks import Mark
from harbor_assets.domain.names import Ref, nearest
from harbor_assets.domain.tasks import Task, TaskInput, Taskset, TasksetInput
from harbor_assets.interfaces.cli.marks_shown import marks_of
from harbor_assets.interfaces.cli.output import Output, command, counted, moment, note, one_line
from harbor_assets.interfaces.cli.records_shown import Shown, document, print_record, purpose_of, tags_of
from harbor_assets.interfaces.cli.report import envelope, print_place
from harbor_assets.interfaces.cli.session import Session
from harbor_assets.interfaces.sdk.metrics import Metrics
from harbor_assets.interfaces.sdk.pages import Page
from harbor_assets.interfaces.sdk.resource import Order
from harbor_assets.interfaces.sdk.tasks import Tasks
from harbor_assets.interfaces.sdk.tasksets import Tasksets

KNOWN_MAX = 1000  # names that a wrong one is compared with: one page


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What of a list is wanted."""

    filter: str | None
    sort: Order
    page: int
    page_size: int


def body_of(nouns: str) -> type[TaskInput] | type[TasksetInput]:
    """What a record of these is made from."""
    return TaskInput if nouns == "tasks" else TasksetInput


def list_records(session: Session, nouns: str, asked: Listing, out: Output) -> None:
    """A page of tasks or tasksets, one a line."""
    resource = _resource(session, nouns)
    page = resource.list(page=asked.page, page_size=asked.page_size, sort=asked.sort, filter=asked.filter)
    if listed(session, page, nouns, asked, out, [document(record) for record in page.data]):
        return
    if nouns == "tasks":
        headers = ("NAME", "KIND", "REVISION", "TAGS", "UPDATED", "WHAT")
        rows = [
            (one.name, one.spec.kind, str(one.revision), tags_of(one), moment(one.updated_at), purpose_of(one))
            for one in page.data
            if isinstance(one, Task)
        ]
    else:
        headers = ("NAME", "TASKS", "REVISION", "TAGS", "UPDATED", "DESCRIPTION")
        rows = [
            (
                one.name,
                str(len(one.tasks)),
                str(one.revision),
                tags_of(one),
                moment(one.updated_at),
                one.description or "",
            )
            for one in page.data
            if isinstance(one, Taskset)
        ]
    out.table(headers, rows)
    print_place(page.pagination, nouns)


def show(session: Session, nouns: str, ref: str, out: Output, *, body: bool) -> None:
    """One record; with `body`, what would make it again."""
    wanted = Ref.parse(ref, workspace=session.workspace)
    resource = _resource(session, nouns)
    with nearest_named(resource, wanted):
        found = resource.retrieve(ref)
    if body:
        members = TaskInput.model_fields if isinstance(found, Task) else TasksetInput.model_fields
        kept = found.model_dump(mode="json", include=set(members) - {"tags"})
        if isinstance(found, Task):
            kept["spec"].pop("config", None)  # read from the archive, whatever a body says
        out.document(kept)
    elif out.json:
        out.document({**document(found), "marks": [mark.model_dump(mode="json") for mark in _marks(session, found)]})
    else:
        print_record(found, out, _marks(session, found))


def _marks(session: Session, record: Shown) -> list[Mark]:
    """Those of a task's revision, or of the members of a taskset."""
    subjects = [record.ref] if isinstance(record, Task) else record.tasks
    return marks_of(session, subjects, record.workspace)


def write(
    session: Session, nouns: str, name: str, body: BaseModel, out: Output, *, project: str | None, create: bool
) -> None:
    """Create or replace a record from a body."""
    ref = named(session, name)
    try:
        found, cut = _write(session, ref, body, project=project, create=create)
    except Conflict as error:
        if not create:
            raise
        words = command(nouns, "replace", ref.bare, "--file", "FILE", *session.own_words())
        raise Conflict(f"{error}. To publish new content of it: {words}") from None
    if out.json:
        out.document({**document(found), "published": cut})
    else:
        out.line(f"{'Published' if cut else 'Unchanged'} {_noun(nouns)} {found.ref} (revision {found.revision})")


def _write(session: Session, ref: Ref, body: BaseModel, *, project: str | None, create: bool) -> tuple[Shown, bool]:
    if isinstance(body, TaskInput):
        tasks = session.evaluator.tasks
        if create:
            return tasks.create(ref.name, task=body, project=project, workspace=ref.workspace), True
        return tasks.put(ref.name, task=body, project=project, workspace=ref.workspace)
    assert isinstance(body, TasksetInput)
    tasksets = session.evaluator.tasksets
    if create:
        return tasksets.create(ref.name, taskset=body, project=project, workspace=ref.workspace), True
    return tasksets.put(ref.name, taskset=body, project=project, workspace=ref.workspace)


def revisions(session: Session, nouns: str, name: str, out: Output, *, page: int, page_size: int) -> None:
    """The revisions of a record, newest first."""
    ref = named(session, name)
    resource = _resource(session, nouns)
    with nearest_named(resource, ref):
        found = resource.list_revisions(ref.name, page=page, page_size=page_size, workspace=ref.workspace)
    if out.json:
        out.document(envelope([one.model_dump(mode="json") for one in found.data], found.pagination))
        return
    rows = [
        (str(one.revision), one.content_hash, ", ".join(one.tags) or "-", moment(one.created_at)) for one in found.data
    ]
    out.table(("REVISION", "DIGEST", "TAGS", "CREATED"), rows)
    print_place(found.pagination, "revisions")


def tag(session: Session, nouns: str, ref: str, name: str, out: Output) -> None:
    """Point a tag at a revision."""
    wanted = Ref.parse(ref, workspace=session.workspace)
    resource = _resource(session, nouns)
    with nearest_named(resource, wanted):
        found = resource.tag(wanted.name, tag=name, revision=wanted.fragment or "latest", workspace=wanted.workspace)
    if out.json:
        out.document(document(found))
    else:
        out.line(f"{found.workspace}/{found.name}#{name} is revision {found.tags[name]}")


def delete(session: Session, nouns: str, name: str, out: Output, *, yes: bool) -> None:
    """Delete a record, after asking."""
    ref = named(session, name)
    resource = _resource(session, nouns)
    if not yes:
        with nearest_named(resource, ref):
            found = resource.list_revisions(ref.name, page_size=1, workspace=ref.workspace)
        n = counted(found.pagination.total_results, "revision")
        ask(session, nouns, ref, f"Delete the {_noun(nouns)} {ref.bare} with its {n}?")
    with nearest_named(resource, ref):
        resource.delete(ref.name, workspace=ref.workspace)
    deleted(nouns, ref, out)


# --- words, of metrics too ----------------------------------------------------------------------------------------


def listed(session: Session, page: Page[Any], nouns: str, asked: Listing, out: Output, documents: list[object]) -> bool:
    """Whether nothing more is to be printed: the page was as JSON, or it is empty, which is said."""
    for name in page.unreadable:
        note(f"Warning: {one_line(name)} is stored but cannot be read; it is not in the list")
    if out.json:
        out.document(envelope(documents, page.pagination))
        return True
    if page.data or page.unreadable:
        return False
    at = page.pagination
    if at.total_results:
        note(f"Page {at.page} is after the last one, {at.total_pages}, of {counted(at.total_results, _noun(nouns))}")
    else:
        match = " that the filter fits" if asked.filter else ""
        note(f"There are no {nouns}{match} in the workspace '{session.workspace}'")
    return True


def _resource(session: Session, nouns: str) -> Tasks | Tasksets:
    return session.evaluator.tasks if nouns == "tasks" else session.evaluator.tasksets


@contextmanager
def nearest_named(resource: Tasks | Tasksets | Metrics, ref: Ref) -> Iterator[None]:
    """What is not found is told with the names most like it."""
    try:
        yield
    except NotFound as error:
        listed = resource.list(page_size=KNOWN_MAX, workspace=ref.workspace).data
        known = [record.name for record in listed]
        if ref.name in known:  # it is the revision that is not there
            raise
        close = nearest(ref.name, known)
        raise NotFound(f"{error}; did you mean {', '.join(close)}?" if close else str(error)) from None


def named(session: Session, name: str) -> Ref:
    """A record itself, not one of its revisions."""
    ref = Ref.parse(name, workspace=session.workspace)
    if ref.fragment is not None:
        raise Refused(f"'{name}' names one revision, and this is about all of them; write {ref.bare}")
    return ref


def _noun(nouns: str) -> str:
    return nouns.removesuffix("s")


def ask(session: Session, nouns: str, ref: Ref, question: str) -> None:
    """Go on only if a person says so. Raises `Refused` where there is none, and for a no."""
    if not sys.stdin.isatty():
        words = command(nouns, "delete", ref.bare, "--yes", *session.own_words())
        raise Refused(f"{ref.bare} was not deleted: nobody can be asked here. Delete it with: {words}")
    if not typer.confirm(question, err=True):
        raise Refused(f"{ref.bare} was not deleted")


def deleted(nouns: str, ref: Ref, out: Output) -> None:
    """Say that it is gone."""
    if out.json:
        out.document({"deleted": ref.bare})
    else:
        out.line(f"Deleted {_noun(nouns)} {ref.bare}")
