"""Choosing tasks by name or index: one rule for suites on disk and tasksets in the catalog."""

from collections.abc import Sequence

from harbor_assets.domain.errors import Problem, Refused
from harbor_assets.domain.names import nearest, short_name


def select_members(members: Sequence[tuple[str, str]], wanted: Sequence[str] | None) -> list[int]:
    """Indexes into `members` (stored name, native id), ascending and without doubles.

    `wanted` None takes all. Each entry is an exact stored or native name, a unique short name, or a zero-based index. A
    number that is the index of one task and names another is refused; only a stored name, which is one task's alone,
    goes before an index. Raises `Refused` with a problem per entry: the nearest names of unknown ones, the candidates
    of ambiguous ones.
    """
    if wanted is None:
        return list(range(len(members)))
    exact: dict[str, set[int]] = {}
    stored_names = {stored for stored, _ in members}
    by_short: dict[str, list[int]] = {}
    for index, (stored, native) in enumerate(members):
        exact.setdefault(stored, set()).add(index)
        exact.setdefault(native, set()).add(index)
        by_short.setdefault(short_name(native), []).append(index)
    chosen: set[int] = set()
    problems: list[Problem] = []
    for entry in (text.strip() for text in wanted):
        found = sorted(exact.get(entry) or by_short.get(entry, ()))
        at = int(entry) if _is_index(entry) and int(entry) < len(members) else None
        if found and at is not None and found != [at] and entry not in stored_names:
            named, indexed = " and ".join(members[index][0] for index in found), members[at][0]
            why = f"is the name of {named} and the index of {indexed}; write the stored name of the one that is meant"
            problems.append(Problem(f"task '{entry}'", why))
        elif len(found) == 1:
            chosen.add(found[0])
        elif found:
            names = ", ".join(members[index][0] for index in found)
            problems.append(Problem(f"task '{entry}'", f"is the name of several tasks; write one of: {names}"))
        elif at is not None:
            chosen.add(at)
        else:
            problems.append(Problem(f"task '{entry}'", _unknown(entry, [stored for stored, _ in members], by_short)))
    if wanted and all(not text.strip() for text in wanted):
        raise Refused("Cannot select tasks:", [Problem("tasks", "the selection names no task; leave it out for all")])
    if not wanted:
        problems.append(Problem("tasks", "the selection is empty; leave it out to take every task"))
    if problems:
        raise Refused("Cannot select tasks:", problems)
    return sorted(chosen)


def entries_of(chosen: Sequence[int], members: Sequence[tuple[str, str]]) -> list[str]:
    """What `select_members` takes for these indexes into `members`: indexes, or stored names where one of those would
    not be that task's alone."""
    names = {name for stored, native in members for name in (stored, native, short_name(native))}
    return [members[at][0] if str(at) in names else str(at) for at in chosen]


def _is_index(entry: str) -> bool:
    return entry.isascii() and entry.isdigit() and len(entry) < 10  # Python refuses to read thousands of digits


def _unknown(entry: str, stored: Sequence[str], by_short: dict[str, list[int]]) -> str:
    if entry.lstrip("-").isdigit():
        return (
            f"no such index; there are {len(stored)} tasks, 0 to {len(stored) - 1}" if stored else "there are no tasks"
        )
    hint = nearest(entry, [*stored, *by_short])
    return f"no such task; did you mean {', '.join(hint)}?" if hint else "no such task; --list-tasks prints them all"
