"""What a number was made of, and what something was made into: a tree of named things with facts. Pure."""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple
from urllib.parse import quote, urlencode

from pydantic import JsonValue

from harbor_assets.domain.errors import Refused
from harbor_assets.domain.marks import Mark
from harbor_assets.domain.outcomes import Frozen

Kind = Literal[
    "run", "taskset", "task", "archive", "image", "agent", "sandbox", "evaluation", "bundle", "trial", "file", "asset"
]
_RUN = re.compile(r"(?P<run>run-[0-9a-f]{16})(/(?P<task>[^/]+)(/(?P<k>[0-9]{1,4}))?)?")
_IMAGE = re.compile(r"(?:.*@)?(sha256:[0-9a-f]{64})")


class Node(Frozen):
    """One thing. `name` identifies it (a run's id, a pinned reference, a path); `marks`: what is said of it or of what
    it rests on; `stale`: a person said that it is bad. `children`: what it was made of, or was made into."""

    kind: Kind
    name: str
    facts: dict[str, JsonValue] = {}
    stale: bool = False
    marks: tuple[Mark, ...] = ()
    children: tuple["Node", ...] = ()


class Lineage(Frozen):
    """The answer: `up` from a run, task or trial to what made it, `down` from a task, taskset or image to every run,
    trial and score that it touches. `left_out`: runs that are not in the tree, the oldest."""

    direction: Literal["up", "down"]
    root: Node
    left_out: int = 0


class Asked(NamedTuple):
    """What is asked about: a run (and in it a task, and its k-th trial), an image's digest, or a reference."""

    run: str | None = None
    task: str | None = None
    k: int | None = None
    image: str | None = None
    ref: str | None = None


def asked(text: str) -> Asked:
    """Read `RUN[/TASK[/K]]`, `[repository@]sha256:...` or `[WORKSPACE/]NAME[#REVISION]`. Raises `Refused`."""
    if found := _RUN.fullmatch(text):
        return Asked(run=found["run"], task=found["task"], k=int(found["k"]) if found["k"] else None)
    if text.startswith("run-") and "/" in text:
        raise Refused(f"'{text[:200]}' is not RUN, RUN/TASK or RUN/TASK/K; TASK is an index or a name, K counts from 1")
    if found := _IMAGE.fullmatch(text):
        return Asked(image=found[1])
    if "sha256:" in text:
        raise Refused(
            f"'{text[:200]}' names no image: its digest is sha256: and 64 hexadecimal digits. Lineage is asked of a "
            "run (RUN, RUN/TASK, RUN/TASK/K), of a task or taskset ([WORKSPACE/]NAME[#REVISION]), or of an image "
            "([REPOSITORY@]sha256:DIGEST)"
        )
    return Asked(ref=text)


def asset_page(asset: str, key: str | None = None) -> str:
    """Where Dagster's pages show an asset, or one of its partitions. Relative: nobody here knows where they are."""
    page = f"/assets/{quote(asset)}"
    return f"{page}?{urlencode({'view': 'partitions', 'partition': key})}" if key else page


def asset(name: str, key: str | None = None) -> Node:
    """An asset of Dagster's, as `asset[partition]`."""
    return Node(kind="asset", name=f"{name}[{key}]" if key else name, facts={"page": asset_page(name, key)})


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below, depth first."""
    yield node
    for child in node.children:
        yield from walk(child)
