"""Lineage as a tree of lines."""

from collections.abc import Iterator, Sequence

from pydantic import JsonValue

from harbor_assets.domain.lineage import Lineage, Node, walk
from harbor_assets.interfaces.cli.marks_shown import print_warnings
from harbor_assets.interfaces.cli.output import Output, counted, note, one_line, score
from harbor_assets.interfaces.cli.report import STALE

ALIKE_MAX = 20  # children of one kind below one node; --json has all
_SILENT = frozenset(
    {"page", "created_at", "taskset", "harbor_assets_version", "task", "key", "scored", "trials", "mean"}
)


def print_lineage(found: Lineage, out: Output) -> None:
    """The tree, then what warns; as JSON the answer as it is."""
    if found.left_out:
        note(f"{counted(found.left_out, 'older run')} not shown")
    if out.json:
        out.document(found.model_dump(mode="json"))
        return
    for line in _lines(found.root, "", ""):
        out.line(line)
    marks = {(mark.subject, mark.kind): mark for node in walk(found.root) for mark in node.marks}
    if marks:
        out.line()
        print_warnings(marks.values(), out)


def _lines(node: Node, first: str, rest: str) -> Iterator[str]:
    yield f"{first}{_told(node)}"
    shown = list(_few(node.children))
    for at, child in enumerate(shown):
        last = at == len(shown) - 1
        begins, goes_on = ("└─ ", "   ") if last else ("├─ ", "│  ")
        if isinstance(child, str):
            yield f"{rest}{begins}{child}"
        else:
            yield from _lines(child, rest + begins, rest + goes_on)


def _few(children: Sequence[Node]) -> Iterator[Node | str]:
    """The children, of each kind the first ones; then how many more."""
    seen: dict[str, int] = {}
    for child in children:
        seen[child.kind] = seen.get(child.kind, 0) + 1
        if seen[child.kind] <= ALIKE_MAX:
            yield child
    for kind, n in seen.items():
        if n > ALIKE_MAX:
            yield f"… {counted(n - ALIKE_MAX, f'more {kind}')}; --json has all"


def _told(node: Node) -> str:
    facts = ", ".join(f"{name} {_value(value)}" for name, value in node.facts.items() if name not in _SILENT)
    figures = ""
    if "trials" in node.facts:
        mean = node.facts.get("mean")
        figures = f": mean {score(mean if isinstance(mean, float) else None)}, scored {node.facts['scored']} of "
        figures += counted(int(str(node.facts["trials"])), "trial")
    return one_line(f"{node.kind} {node.name}{STALE if node.stale else ''}{figures}{f' ({facts})' if facts else ''}")


def _value(value: JsonValue) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
