"""Names and references of the catalog: what is allowed, how they are made, how a wrong one is answered.

Source of the rules: the API's documented name rule (`^[\\w\\-\\.]+$`, at most 255 characters) and its reference
grammar (`name`, `workspace/name`, `workspace/name#revision`).
"""

import difflib
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harbor_assets.domain.errors import Refused

NAME_MAX = 255  # the API's limit for a path segment
_NAME = re.compile(r"[\w\-.]+")
_REF = re.compile(r"(?:(?P<workspace>[\w\-.]+)/)?(?P<name>[\w\-.]+)(?:#(?P<fragment>[\w\-.]+))?")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def name_problem(name: str) -> str | None:
    """Why `name` cannot be a name in the catalog, or None if it can."""
    if not name:
        return "is empty"
    if len(name) > NAME_MAX:
        return f"has {len(name)} characters, the catalog holds at most {NAME_MAX}"
    if name in (".", ".."):
        return "is a path segment with a meaning of its own"
    if not _NAME.fullmatch(name):
        bad = sorted({c for c in name if not _NAME.fullmatch(c)})
        return f"holds {', '.join(map(repr, bad[:5]))}; allowed are letters, digits, '_', '-' and '.'"
    return None


def tag_problem(tag: str) -> str | None:
    """Why `tag` cannot be a tag of a revision, or None. One shaped like a digest could never be looked up."""
    if is_digest(tag):
        return "has the form of a digest, which always means a revision; choose another word"
    return name_problem(tag)


def is_digest(text: str) -> bool:
    """True for 64 lower-case hexadecimal characters, the only form of a revision digest."""
    return _DIGEST.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference to a task or taskset: `workspace/name#fragment`; the fragment is a digest or a tag."""

    workspace: str
    name: str
    fragment: str | None = None

    @classmethod
    def parse(cls, text: str, *, workspace: str) -> "Ref":
        """Read `text`; a bare name takes `workspace`. Raises `Refused` with the grammar."""
        match = _REF.fullmatch(text)
        if match is None:
            raise Refused(f"'{text}' is not a reference; write name, workspace/name or workspace/name#digest")
        return cls(match["workspace"] or workspace, match["name"], match["fragment"])

    @property
    def digest(self) -> str | None:
        """The fragment if it is a digest, else None (a tag, or nothing)."""
        return self.fragment if self.fragment and is_digest(self.fragment) else None

    @property
    def bare(self) -> str:
        return f"{self.workspace}/{self.name}"

    @property
    def partition_key(self) -> str:
        """`ws/name#12hex`, the key of a pinned revision's Dagster partition."""
        return f"{self.bare}#{(self.fragment or 'latest')[:12]}"

    def __str__(self) -> str:
        return f"{self.bare}#{self.fragment}" if self.fragment else self.bare


def short_name(native_task_id: str) -> str:
    """The last segment of a native task id: `org/name` -> `name`."""
    return native_task_id.rsplit("/", 1)[-1]


def stored_names(suite: str, native_task_ids: Sequence[str]) -> list[str]:
    """Catalog names for the tasks of one suite, in the order given.

    `<suite>-<short name>`; where two would collide (ignoring case), each of them gets `-` and 8 hexadecimal
    characters of the SHA-256 of its native id. The result may still break `name_problem`; the caller checks.
    """
    plain = [f"{suite}-{short_name(native)}" for native in native_task_ids]
    seen = Counter(name.casefold() for name in plain)
    return [
        f"{name}-{hashlib.sha256(native.encode()).hexdigest()[:8]}" if seen[name.casefold()] > 1 else name
        for name, native in zip(plain, native_task_ids, strict=True)
    ]


def nearest(wanted: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known names most like `wanted`, best first, for a "did you mean" line."""
    by_folded = {name.casefold(): name for name in known}
    found = difflib.get_close_matches(wanted.casefold(), list(by_folded), n=count, cutoff=0.5)
    return [by_folded[name] for name in found]
