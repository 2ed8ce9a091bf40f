"""Saying that a run or a task's revision is bad, and taking it back."""

from collections.abc import Callable
from datetime import UTC, datetime

from harbor_assets.domain.errors import NotFound, Refused
from harbor_assets.domain.marks import WHY_MAX, Mark, Verdict
from harbor_assets.domain.names import Ref
from harbor_assets.engine.mark_ports import MarkCatalog
from harbor_assets.engine.ports import Page, RunCatalog, TaskCatalog
from harbor_assets.engine.results import find_run


def _now() -> datetime:
    return datetime.now(UTC)


class Marking:
    """Marks of persons. `owner`: in whose name where a caller is not told apart."""

    def __init__(
        self,
        *,
        marks: MarkCatalog,
        runs: RunCatalog,
        tasks: TaskCatalog,
        owner: str,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        self._marks, self._runs, self._tasks = marks, runs, tasks
        self._owner, self._clock = owner, clock

    def mark_bad(self, workspace: str, subject: str, why: str, *, who: str | None = None) -> Mark:
        """Say that a run (by id) or a task (`name`, `ws/name` or pinned; without a revision: the newest) is bad.

        A newer judgement takes the place of the older, which stays in its `earlier`. Raises `NotFound` for what there
        is not, `Refused` without a reason.
        """
        why = " ".join(why.split())
        if not why:
            raise Refused("A mark says why: --why 'the verifier accepts an empty file'")
        if len(why) > WHY_MAX:
            raise Refused(f"The reason has {len(why)} characters; at most {WHY_MAX} are kept")
        mark = Mark(
            workspace=workspace,
            subject=self.pinned(workspace, subject),
            verdict=Verdict.BAD,
            who=who or self._owner,
            why=why,
            at=self._clock(),
        )
        return self._marks.put_mark(mark)

    def withdraw(self, workspace: str, subject: str) -> Mark:
        """Take back what a person said. Raises `NotFound` where nobody said anything."""
        try:
            pinned = self.pinned(workspace, subject)
        except NotFound:  # what was deleted meanwhile may still be marked
            pinned = subject
        return self._marks.withdraw_mark(workspace, pinned, "judged")

    def list(self, workspace: str, *, page: int = 1, page_size: int = 100) -> Page[Mark]:
        """What persons said, newest first."""
        return self._marks.list_marks(workspace, verdict=Verdict.BAD, page=page, page_size=page_size)

    def pinned(self, workspace: str, subject: str) -> str:
        """A run's id, or the reference of a task with its digest. Raises `NotFound` for what there is not."""
        if subject.startswith("run-"):
            return find_run(self._runs, workspace, subject).id
        ref = Ref.parse(subject, workspace=workspace)
        return self._tasks.get_task(ref.workspace, ref.name, ref.fragment).ref
