"""What a task folder, and the archive made of it, may hold: limits, paths, links. Pure: it judges lists of entries.

The packer, the unpacker and the validator share these rules, so that nothing is published that cannot be unpacked.
Source: the API's archive contract (docs/decisions.md, "Digests").
"""

import unicodedata
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from harbor_assets.domain.errors import Refused

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MAX_ENTRIES = 100_000
MAX_FILE_BYTES = 4 * GIB
MAX_PAYLOAD_BYTES = 16 * GIB
MAX_STREAM_BYTES = MAX_PAYLOAD_BYTES + 256 * MIB  # the expanded tar: payload, headers and padding
MAX_ARCHIVE_BYTES = MAX_STREAM_BYTES + 64 * MIB  # the gzip of what does not compress
MAX_PATH_BYTES = 4096
MAX_STEPS = 128
MAX_METADATA_BYTES = 16 * MIB  # all files of METADATA_BYTES together
METADATA_BYTES = {"task.toml": MIB, ".gitignore": 256 * KIB, "instruction.md": MIB}
RESERVED_ROOT = "task_template"  # what `harbor task init` leaves in a suite
ARCHIVE_NAME = "task_archive"
_LINK_HOPS = 40  # the kernel's own limit (path_resolution(7))
_FORBIDDEN = frozenset("\\%?#:")

EntryKind = Literal["file", "dir", "link", "other"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in a task folder. `path` is relative to the folder, with `/`; the folder itself is `""`.

    `mode` holds the permission bits, `size` the bytes of a file, `target` what a link says.
    """

    path: str
    kind: EntryKind
    mode: int = 0
    size: int = 0
    target: str = ""


def metadata_limit(path: str) -> int | None:
    """The most bytes a file that is read whole may have (`task.toml`, instructions, ...); None for any other file."""
    parts = path.split("/")
    if len(parts) == 1:
        return METADATA_BYTES.get(path)
    if len(parts) == 3 and parts[0] == "steps" and parts[2] == "instruction.md":
        return METADATA_BYTES["instruction.md"]
    return None


def path_problem(path: str) -> str | None:
    """Why `path` cannot be a path in an archive, or None if it can."""
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "is not valid UTF-8"
    if size > MAX_PATH_BYTES:
        return f"has {size} bytes, a path has at most {MAX_PATH_BYTES}"
    if not unicodedata.is_normalized("NFC", path):
        return "is not in Unicode normal form C; rename it (macOS decomposes accents)"
    bad = sorted({c for c in path if c in _FORBIDDEN or unicodedata.category(c) == "Cc"})
    if bad:
        return f"holds {', '.join(map(repr, bad[:5]))}; control characters and \\ % ? # : are not allowed"
    for segment in path.split("/"):
        if segment in ("", ".", ".."):
            return "is not a plain relative path"
        if segment.endswith((" ", ".")):
            return f"has a segment that ends in a space or a dot ({segment!r})"
    return None


class Tree:
    """The entries of one folder, with links followed the way the kernel would, but never out of the folder."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = {entry.path: entry for entry in entries}
        self._entries.setdefault("", Entry("", "dir"))

    def get(self, path: str) -> Entry | None:
        """The entry itself; a link is not followed."""
        return self._entries.get(path)

    def find(self, path: str) -> Entry | None:
        """The file or folder that `path` leads to; None where it leads nowhere or out of the folder."""
        found = self._walk([], path)
        return found if isinstance(found, Entry) else None

    def follow(self, link: Entry) -> Entry | str:
        """What a link leads to, or why that is not allowed."""
        if link.target.startswith("/"):
            return f"is an absolute link ({link.target!r}); make it relative"
        return self._walk(link.path.split("/")[:-1], link.target, origin=link)

    def _walk(self, here: list[str], path: str, *, origin: Entry | None = None) -> Entry | str:
        to = f" ({origin.target!r})" if origin else ""
        pending, hops = deque(path.split("/")), 0
        entry = self._entries["/".join(here)]
        while pending:
            segment = pending.popleft()
            if entry.kind != "dir":  # also where only `.` or a closing slash follows
                return f"is a link to nothing{to}"
            if segment in ("", "."):
                continue
            if segment == "..":
                if not here:
                    return f"is a link out of the task{to}; copy the file into the task"
                here = here[:-1]
                entry = self._entries["/".join(here)]
                continue
            step = self._entries.get("/".join([*here, segment]))
            if step is None:
                return f"is a link to nothing{to}"
            if step.kind == "link":
                hops += 1
                if hops > _LINK_HOPS:
                    return f"is a link in a circle{to}"
                if step.target.startswith("/"):
                    return f"leads through an absolute link{to}"
                pending.extendleft(reversed(step.target.split("/")))
                continue
            here, entry = [*here, segment], step
        return entry

    def circle(self) -> list[str]:
        """The links that make walking this folder endless, each with the folder it leads to; empty if there are none.

        A link to one of its own ancestors is the plain case; two links in two folders that lead to each other is the
        other. Links that are not allowed for another reason are left out.
        """
        edges: dict[str, list[tuple[str, str]]] = {}
        for entry in self._entries.values():
            if entry.path and entry.kind in ("dir", "link"):
                to = self.follow(entry) if entry.kind == "link" else entry
                if isinstance(to, Entry) and to.kind == "dir":
                    via = entry.path if entry.kind == "link" else ""
                    edges.setdefault(entry.path.rpartition("/")[0], []).append((to.path, via))
        if not any(via for out in edges.values() for _, via in out):
            return []
        return _first_cycle(edges)


def _first_cycle(edges: dict[str, list[tuple[str, str]]]) -> list[str]:
    """Depth first from the root without recursion; the names (`via`) on the first cycle met."""
    done: set[str] = set()
    trail: list[tuple[str, str]] = [("", "")]
    on_trail = {""}
    iterators: list[Iterator[tuple[str, str]]] = [iter(edges.get("", ()))]
    while trail:
        step = next(iterators[-1], None)
        if step is None:
            node, _ = trail.pop()
            iterators.pop()
            on_trail.discard(node)
            done.add(node)
            continue
        node, via = step
        if node in on_trail:
            start = next(i for i, (seen, _) in enumerate(trail) if seen == node)
            return [name for _, name in [*trail[start + 1 :], (node, via)] if name]
        if node not in done:
            trail.append((node, via))
            on_trail.add(node)
            iterators.append(iter(edges.get(node, ())))
    return []


def tree_problems(root: str, entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """(path, reason) of everything about a task folder named `root` that an archive may not hold."""
    problems = [*_root_problems(root), *_size_problems(entries)]
    seen: dict[str, str] = {}
    for entry in entries:
        if not entry.path:
            continue
        if reason := path_problem(f"{root}/{entry.path}"):
            problems.append((entry.path, reason))
        twin = seen.setdefault(entry.path.casefold(), entry.path)
        if twin is not entry.path:
            problems.append((entry.path, f"differs from {twin!r} in case only; such names meet on some machines"))
        if entry.kind == "other":
            problems.append((entry.path, "is a device, pipe or socket; only files, folders and links are allowed"))
    return [*problems, *_link_problems(entries)]


def _root_problems(root: str) -> Iterator[tuple[str, str]]:
    if reason := path_problem(root):
        yield ".", f"the folder's name {reason}"
    elif "/" in root:
        yield ".", "the folder's name is not one name"
    elif root == RESERVED_ROOT:
        yield ".", f"the name {RESERVED_ROOT!r} is kept for templates; rename the folder"


def _size_problems(entries: Sequence[Entry]) -> Iterator[tuple[str, str]]:
    payload = metadata = 0
    if len(entries) > MAX_ENTRIES:
        yield ".", f"holds more than {MAX_ENTRIES:,} files, folders and links"
    for entry in entries:
        if entry.kind != "file":
            continue
        payload += entry.size
        limit = metadata_limit(entry.path)
        metadata += entry.size if limit else 0
        if entry.size > (limit or MAX_FILE_BYTES):
            yield entry.path, f"has {entry.size:,} bytes, at most {limit or MAX_FILE_BYTES:,} are allowed"
    if payload > MAX_PAYLOAD_BYTES:
        yield ".", f"holds {payload:,} bytes, at most {MAX_PAYLOAD_BYTES:,} are allowed"
    if metadata > MAX_METADATA_BYTES:
        yield ".", f"has {metadata:,} bytes of task.toml and instructions, at most {MAX_METADATA_BYTES:,} are allowed"
    steps = sum(1 for entry in entries if entry.path.startswith("steps/") and entry.path.count("/") == 1)
    if steps > MAX_STEPS:
        yield "steps", f"holds {steps} entries, at most {MAX_STEPS} steps are allowed"


def _link_problems(entries: Sequence[Entry]) -> Iterator[tuple[str, str]]:
    links = [entry for entry in entries if entry.kind == "link"]
    if not links:
        return
    tree = Tree(entries)
    for link in links:
        is_step = link.path == "steps" or (link.path.startswith("steps/") and link.path.count("/") == 1)
        if is_step or metadata_limit(link.path):
            yield link.path, "is a link; this has to be a real " + ("folder" if is_step else "file")
            continue
        end = tree.follow(link)
        if isinstance(end, str):
            yield link.path, end
        elif end.kind == "other":
            yield link.path, f"is a link to a device, pipe or socket ({link.target!r})"
    for path in tree.circle():
        yield path, "is a link that makes the folder endless (it leads back to a folder it lies in)"


def ref_segment(name: str) -> str:
    """A folder's name as one segment of a fileset reference: what the grammar does not allow becomes `-`.

    Letters and decimal digits only: what else counts as a word character differs between regular expression engines.
    """
    plain = unicodedata.normalize("NFC", name)
    kept = "".join(c if c in "_-." or c.isdecimal() or unicodedata.category(c)[0] == "L" else "-" for c in plain)
    return kept.rstrip(".") or "task"


def fileset_ref(workspace: str, folder: str, files_hash: str) -> str:
    """Where a task's archive lies by default: `<ws>/harbor-tasks#<folder>/<files hash>/task_archive`."""
    return f"{workspace}/harbor-tasks#{ref_segment(folder)}/{files_hash}/{ARCHIVE_NAME}"


def archive_key(fileset_ref: str) -> str:
    """The artifact key of a fileset reference. Raises `Refused` for one that could lead somewhere else."""
    location, _, path = fileset_ref.partition("#")
    if location.count("/") != 1 or any(path_problem(part) for part in (location, path)):
        raise Refused(f"'{fileset_ref}' is not a fileset reference; write workspace/fileset#path")
    return f"filesets/{location}/{path}"
