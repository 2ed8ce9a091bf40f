"""Which results rest on something that was marked: a run said to be bad, or a revision of a task in it.

Marks change no score. Whoever shows a number asks here, and says beside it what is known: a number is *stale* where a
person said that the run, or a task of it, is bad.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from harbor_assets.domain.errors import Broken, NotFound
from harbor_assets.domain.marks import Mark, Touched, Verdict, stale, warnings
from harbor_assets.domain.runs import Run
from harbor_assets.engine.mark_ports import MarkCatalog
from harbor_assets.engine.ports import RunCatalog

WARNING = tuple(verdict for verdict in Verdict if verdict.warns)
MARKS_MAX = 10_000  # of one verdict that are looked at: more than anybody marks by hand
_PAGE = 1000

__all__ = ["Staleness", "stale"]


class Staleness:
    """Looks marks up, as few queries as there are verdicts for however many runs."""

    def __init__(self, marks: MarkCatalog, runs: RunCatalog) -> None:
        self._marks, self._runs = marks, runs

    def of_runs(self, workspace: str, runs: Iterable[Run]) -> Mapping[str, Sequence[Mark]]:
        """run id -> the marks that touch it, what a person said first; runs that none touches are left out."""
        marked = self._marked(workspace)
        if not marked:
            return {}
        refs = {run.id: (run.id, *(task.ref for task in run.plan.tasks)) for run in runs}
        return _found(marked, refs)

    def of_run_ids(
        self,
        workspace: str,
        run_ids: Iterable[str],
        *,
        runs_of_tasks: Callable[[Sequence[str]], Mapping[str, Sequence[str]]] | None = None,
    ) -> Mapping[str, Sequence[Mark]]:
        """As `of_runs`, by id. `runs_of_tasks` finds, for tasks, run id -> those of them that it ran; None: where a
        task is marked the runs' plans are read, and it raises what reading a run does."""
        marked = self._marked(workspace)
        tasks = [subject for subject in marked if not subject.startswith("run-")]
        if tasks and runs_of_tasks is None:
            return self.of_runs(workspace, map(self._runs.get_run, run_ids))
        ran = runs_of_tasks(tasks) if tasks and runs_of_tasks else {}
        return _found(marked, {run_id: (run_id, *ran.get(run_id, ())) for run_id in run_ids})

    def touched(self, workspace: str, run_ids: Iterable[str]) -> list[Touched]:
        """As `of_run_ids`, in the order given; what is no run of the workspace is left out."""
        if not self._marked(workspace):  # no plan is read for that
            return []
        there: list[Run] = []
        for run_id in dict.fromkeys(run_ids):
            try:
                run = self._runs.get_run(run_id)
            except (NotFound, Broken):
                continue
            if run.plan.workspace == workspace:
                there.append(run)
        found = self.of_runs(workspace, there)
        return [
            Touched(run_id=run.id, stale=stale(found[run.id]), marks=tuple(found[run.id]))
            for run in there
            if run.id in found
        ]

    def of_tasks(self, workspace: str, refs: Iterable[str]) -> Mapping[str, Sequence[Mark]]:
        """pinned task -> its marks that warn; tasks without any are left out."""
        marked = self._marked(workspace)
        return _found(marked, {ref: (ref,) for ref in refs}) if marked else {}

    def _marked(self, workspace: str) -> dict[str, list[Mark]]:
        found: dict[str, list[Mark]] = {}
        for verdict in WARNING:
            for number in range(1, MARKS_MAX // _PAGE + 1):
                page = self._marks.list_marks(workspace, verdict=verdict, page=number, page_size=_PAGE)
                for mark in page.items:
                    found.setdefault(mark.subject, []).append(mark)
                if number * _PAGE >= page.total:
                    break
        return found


def _found(marked: Mapping[str, Sequence[Mark]], subjects: Mapping[str, Sequence[str]]) -> dict[str, Sequence[Mark]]:
    touching = {
        name: warnings(mark for subject in dict.fromkeys(mine) for mark in marked.get(subject, ()))
        for name, mine in subjects.items()
    }
    return {name: marks for name, marks in touching.items() if marks}
