"""The members of a taskset: references as they are written, and the revisions they mean when it is stored."""

from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from harbor_assets.catalog import records
from harbor_assets.catalog.records import LATEST
from harbor_assets.catalog.schema import TASKS
from harbor_assets.domain.errors import Problem, Refused
from harbor_assets.domain.names import Ref
from harbor_assets.domain.tasks import TasksetInput


def pin_of(text: str) -> tuple[str, str, str] | None:
    """(workspace, name, digest) of a pinned reference, None if it is not one."""
    try:
        ref = Ref.parse(text, workspace="")
    except Refused:
        return None
    return (ref.workspace, ref.name, ref.digest) if ref.workspace and ref.digest else None


def pin_members(
    connection: Connection, workspace: str, body: TasksetInput, readable: Callable[[str], bool]
) -> list[str]:
    """The members as pinned references, sorted. Raises `Refused` naming all that are unknown or there twice."""
    problems: list[Problem] = []
    refs: list[tuple[str, Ref]] = []
    if body.task_ids is not None:
        found = {s.id: s for s in records.find_ids(connection, TASKS, body.task_ids) if readable(s.workspace)}
        for text in body.task_ids:
            if text in found:
                refs.append((text, Ref(found[text].workspace, found[text].name)))
            else:
                problems.append(Problem(text[:80], "is the id of no task"))
    for text in body.tasks or ():
        try:
            refs.append((text, Ref.parse(text, workspace=workspace)))
        except Refused as refused:
            problems.append(Problem(text[:80], refused.message[:400]))
    resolved = _resolve(connection, [ref for _, ref in refs if readable(ref.workspace)])
    pinned: dict[str, str] = {}
    for text, ref in refs:
        if (digest := resolved.get(ref)) is None:
            problems.append(Problem(text, _missing(ref)))
        elif ref.bare in pinned:
            problems.append(Problem(text, f"resolves to '{ref.bare}', which is already in this taskset"))
        else:
            pinned[ref.bare] = f"{ref.bare}#{digest}"
    if problems:
        raise Refused("The taskset has members that cannot be taken:", problems)
    return sorted(pinned.values())


def _missing(ref: Ref) -> str:
    # The same whether the task or only the revision is missing, or the caller may not read that workspace.
    if ref.fragment is None:
        return f"no such task in workspace '{ref.workspace}'; publish it first"
    return f"no such task in workspace '{ref.workspace}', or none of its revisions is '{ref.fragment}'"


def _resolve(connection: Connection, refs: Sequence[Ref]) -> dict[Ref, str]:
    """The digest each reference means now; those that resolve to nothing are left out."""
    by_workspace: dict[str, set[str]] = {}
    for ref in refs:
        by_workspace.setdefault(ref.workspace, set()).add(ref.name)
    current = {
        (stored.workspace, stored.name): stored
        for workspace, names in by_workspace.items()
        for stored in records.find_current(connection, TASKS, workspace, sorted(names))
    }
    pins = [(ref.workspace, ref.name, ref.digest) for ref in refs if ref.digest]
    there = {(s.workspace, s.name, s.digest) for s in records.find_pinned(connection, TASKS, pins)}
    resolved: dict[Ref, str] = {}
    for ref in refs:
        record = current.get((ref.workspace, ref.name))
        if record is None:
            continue
        if ref.fragment is None or ref.fragment == LATEST:
            resolved[ref] = record.digest
        elif ref.digest:
            if (ref.workspace, ref.name, ref.digest) in there:
                resolved[ref] = ref.digest
        elif ref.fragment in record.tags:
            resolved[ref] = records.find(connection, TASKS, ref.workspace, ref.name, ref.fragment).digest
    return resolved
