"""What is known of tasks and runs beside their scores, as a Protocol; as `ports.py`, kept apart for its size."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from harbor_assets.domain.marks import Mark, MarkKind, Verdict
from harbor_assets.engine.ports import Page


class MarkCatalog(Protocol):
    """Marks of a workspace: at most one of each kind for a subject."""

    def put_mark(self, mark: Mark) -> Mark:
        """Store it in the place of the one of its kind that the subject has there; answers it as it is kept, which is
        `mark.replacing` that one."""
        ...

    def marks_of(self, workspace: str, subjects: Sequence[str]) -> Mapping[str, Sequence[Mark]]:
        """subject -> its marks, those a person made first; subjects without any are left out. One query per 500."""
        ...

    def withdraw_mark(self, workspace: str, subject: str, kind: MarkKind) -> Mark:
        """Take a mark away; answers it. Raises `NotFound` if the subject has none of that kind there."""
        ...

    def list_marks(
        self, workspace: str, *, verdict: Verdict | None = None, page: int = 1, page_size: int = 100
    ) -> Page[Mark]:
        """Newest first; only those of a verdict, where it is given."""
        ...
