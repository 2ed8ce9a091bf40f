"""Lineage both ways: from a run, task or trial to what made it; from a task, taskset or image to all it touches.

Read from the catalog, where every run has its frozen plan from the moment it was accepted: nothing has to be kept up to
date for it, and nothing can be missing. No arguments and no variables of agents are told, only their names.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from harbor_assets.domain.benchmarks import DayOf
from harbor_assets.domain.errors import NotFound
from harbor_assets.domain.images import partition_key
from harbor_assets.domain.lineage import Asked, Kind, Lineage, Node, asked, asset
from harbor_assets.domain.marks import Mark, stale
from harbor_assets.domain.names import Ref
from harbor_assets.domain.outcomes import TrialOutcome
from harbor_assets.domain.plans import PlannedTask
from harbor_assets.domain.policies import account
from harbor_assets.domain.reruns import selected
from harbor_assets.domain.runs import Run, bundle_key
from harbor_assets.domain.tasks import HarborTask, Task
from harbor_assets.engine.benchmark_ports import KeyedRuns
from harbor_assets.engine.lineage_ports import MentionCatalog
from harbor_assets.engine.ports import Artifacts, RunCatalog, TaskCatalog
from harbor_assets.engine.results import find_run
from harbor_assets.engine.staleness import Staleness

RUNS_MAX = 500  # of one answer, the newest; the rest is counted
FILES_MAX = 100  # of a verifier's


class Lineages:
    """Answers about lineage. Holds no state of its own."""

    def __init__(
        self,
        *,
        runs: RunCatalog,
        tasks: TaskCatalog,
        artifacts: Artifacts,
        mentions: MentionCatalog,
        keys: KeyedRuns,
        staleness: Staleness,
    ) -> None:
        self._runs, self._tasks, self._artifacts = runs, tasks, artifacts
        self._mentions, self._keys, self._staleness = mentions, keys, staleness

    def of(self, workspace: str, text: str) -> Lineage:
        """See `Lineage`. Raises `NotFound` for what there is not, `Refused` for what names nothing."""
        about = asked(text)
        if about.run is not None:
            return Lineage(direction="up", root=self._up(find_run(self._runs, workspace, about.run), about))
        if about.image is not None:
            root = Node(kind="image", name=about.image, children=(asset("task_image", about.image[:19]),))
            return self._down(workspace, root, f"@{about.image}", lambda task: _has_image(task, about.image or ""))
        return self._of_ref(workspace, about.ref or "")

    # --- up ---------------------------------------------------------------------------------------------------------

    def _up(self, run: Run, about: Asked) -> Node:
        every = rows = self._runs.outcomes(run.id)
        tasks: Sequence[PlannedTask] = run.plan.tasks
        if about.task is not None:
            indexes = selected(run.plan, [about.task])
            tasks = [run.plan.task(index) for index in indexes]
            rows = [row for row in rows if row.index in indexes]
        if about.k is not None:
            rows = [row for row in rows if row.k == about.k]
            if not rows:
                raise NotFound(f"Task '{about.task}' of {run.id} has no ended trial {about.k}")
        by_task: dict[int, list[TrialOutcome]] = {}
        for row in rows:
            by_task.setdefault(row.index, []).append(row)
        marks = self._staleness.of_tasks(run.plan.workspace, [task.ref for task in tasks])
        closely = about.task is not None
        parts = [
            *self._origin(run),
            *(self._planned(run, task, by_task.get(task.index, ()), marks, closely=closely) for task in tasks),
        ]
        return self._run(run, every, parts)

    def _origin(self, run: Run) -> Iterable[Node]:
        """What the whole run shares."""
        plan = run.plan
        ref = Ref.parse(plan.taskset_ref, workspace=plan.workspace)
        yield Node(kind="taskset", name=plan.taskset_ref, children=(asset("taskset", ref.partition_key),))
        names = {"arguments": sorted(plan.agent.kwargs), "variables": sorted(plan.agent.env)}
        facts = {"version": plan.agent.version, "harbor": plan.harbor_version, **names}
        yield Node(kind="agent", name=plan.agent.name, facts=_told(facts))
        where = {
            "profile": plan.profile.name if plan.profile else None,
            "machine": plan.sandbox.fingerprint,
            **plan.sizing.model_dump(exclude_none=True),
        }
        yield Node(kind="sandbox", name=plan.sandbox.kind, facts=_told(where))
        if plan.publication:
            yield Node(
                kind="evaluation",
                name=plan.publication.evaluation,
                facts={
                    "experiment": plan.publication.experiment,
                    "dataset": f"{plan.publication.dataset}@{plan.publication.dataset_version}",
                },
            )
        assets = [asset("merged_bundle", run.id), asset("leaderboard")] if run.phase.terminal else []
        if day := DayOf.read(self._keys.key_of(run.id)):
            assets.append(asset(f"benchmark/{day.benchmark}", day.day))
        yield Node(kind="bundle", name=bundle_key(run.id), children=tuple(assets))

    def _planned(
        self,
        run: Run,
        task: PlannedTask,
        rows: Sequence[TrialOutcome],
        marks: Mapping[str, Sequence[Mark]],
        *,
        closely: bool,
    ) -> Node:
        ref = Ref.parse(task.ref, workspace=run.plan.workspace)
        parts = [
            Node(kind="archive", name=task.fileset_ref, facts={"sha256": task.files_hash}),
            *(_image(role, image) for role, image in sorted(task.images.items())),
            asset("harbor_task", ref.partition_key),
            asset("trial_results", f"{run.id}|{task.index:05d}"),
            *(self._trial(run, row, files=closely) for row in rows),
        ]
        facts = {"index": task.index, "task": task.name, "native_task_id": task.native_task_id, "key": task.trial_key}
        return _marked("task", task.ref, facts, parts, marks.get(task.ref, ()))

    def _trial(self, run: Run, row: TrialOutcome, *, files: bool) -> Node:
        facts = {
            "k": row.k,
            "outcome": str(row.outcome),
            "reason": str(row.reason),
            "reward": row.reward,
            "tries": len(row.tries),
            "cost_usd": row.measurements.cost_usd,
            "evidence": row.evidence,
        }
        output = self._verifier_output(run, row) if files and row.evidence else ()
        return Node(kind="trial", name=row.trial_id, facts=_told(facts), children=tuple(output))

    def _verifier_output(self, run: Run, row: TrialOutcome) -> Iterable[Node]:
        folder = f"{row.evidence}/verifier"
        for number, (path, size) in enumerate(self._artifacts.list(f"{bundle_key(run.id)}/{folder}")):
            if number == FILES_MAX:
                return
            yield Node(kind="file", name=f"{folder}/{path}", facts={"bytes": size})

    # --- down -------------------------------------------------------------------------------------------------------

    def _of_ref(self, workspace: str, text: str) -> Lineage:
        ref = Ref.parse(text, workspace=workspace)
        try:
            return self._down_task(workspace, self._tasks.get_task(ref.workspace, ref.name, ref.fragment))
        except NotFound as no_task:
            try:
                taskset = self._tasks.get_taskset(ref.workspace, ref.name, ref.fragment)
            except NotFound:
                if ref.digest is None:
                    raise NotFound(f"{str(no_task).rstrip('.')}. There is no taskset of that name either") from None
            else:
                key = Ref.parse(taskset.ref, workspace=workspace).partition_key
                members = tuple(Node(kind="task", name=member) for member in taskset.tasks)
                root = Node(kind="taskset", name=taskset.ref, children=(asset("taskset", key), *members))
                return self._down(workspace, root, f'"{taskset.ref}"', None)
        # Deleted since: what was made of it is there still.
        root = Node(kind="task", name=str(ref), facts={"deleted": True})
        return self._down(workspace, root, f'"{ref}"', lambda task: task.ref == str(ref))

    def _down_task(self, workspace: str, task: Task) -> Lineage:
        parts = [asset("harbor_task", Ref.parse(task.ref, workspace=workspace).partition_key)]
        facts: dict[str, Any] = {"created_at": task.created_at.isoformat()}
        if isinstance(task.spec, HarborTask):
            source = task.spec.source
            parts.insert(0, Node(kind="archive", name=source.fileset_ref, facts={"sha256": source.files_hash}))
            facts["native_task_id"] = task.spec.native_task_id
        marks = self._staleness.of_tasks(workspace, [task.ref]).get(task.ref, ())
        root = _marked("task", task.ref, facts, parts, marks)
        return self._down(workspace, root, f'"{task.ref}"', lambda planned: planned.ref == task.ref)

    def _down(self, workspace: str, root: Node, text: str, touches: Callable[[PlannedTask], bool] | None) -> Lineage:
        """`touches`: which tasks of a run it is; None: the run as a whole."""
        page = self._mentions.runs_mentioning(workspace, text, limit=RUNS_MAX)
        marks = self._staleness.of_runs(workspace, page.items)
        found: list[Node] = []
        rewards: list[float] = []
        trials = 0
        for run in page.items:
            tasks = [task for task in run.plan.tasks if touches is None or touches(task)]
            if not tasks:
                continue
            rows = self._runs.outcomes(run.id, tasks[0].index if len(tasks) == 1 else None)
            indexes = {task.index for task in tasks}
            mine = [row for row in rows if row.index in indexes]
            trials += len(mine)
            rewards += [row.reward for row in mine if row.reward is not None]
            shown = [self._trial(run, row, files=False) for row in mine] if touches else []
            found.append(self._run(run, None if touches else mine, shown, marks.get(run.id, ())))
        facts = {
            **root.facts,
            "runs": len(found),
            "trials": trials,
            "scored": len(rewards),
            "mean": sum(rewards) / len(rewards) if rewards else None,
        }
        root = root.model_copy(update={"facts": _told(facts), "children": (*root.children, *found)})
        return Lineage(direction="down", root=root, left_out=max(0, page.total - len(page.items)))

    def _run(
        self, run: Run, rows: Sequence[TrialOutcome] | None, parts: Iterable[Node], marks: Sequence[Mark] | None = None
    ) -> Node:
        """`rows`: all of the run, for its figures; None: these are not told, only those of the trials below it."""
        plan = run.plan
        facts: dict[str, Any] = {
            "phase": str(run.phase),
            "result_state": str(run.result_state),
            "owner": plan.owner,
            "created_at": run.created_at.isoformat(),
            "agent": plan.agent.name,
            "taskset": plan.taskset_ref,
            "sandbox": plan.sandbox.kind,
            "rerun_of": plan.rerun_of,
            "experiment": plan.publication.experiment if plan.publication else None,
            "harbor_assets_version": plan.harbor_assets_version,
        }
        if rows is not None:
            scored = account(rows).policies.scored_only
            facts |= {"scored": scored.coverage.trials, "trials": len(rows), "mean": scored.mean}
        if marks is None:
            marks = self._staleness.of_runs(plan.workspace, [run]).get(run.id, ())
        return _marked("run", run.id, facts, parts, marks)


def _marked(kind: Kind, name: str, facts: Mapping[str, Any], parts: Iterable[Node], marks: Sequence[Mark]) -> Node:
    return Node(kind=kind, name=name, facts=_told(facts), stale=stale(marks), marks=tuple(marks), children=tuple(parts))


def _image(role: str, image: str) -> Node:
    return Node(kind="image", name=image, facts={"role": role}, children=(asset("task_image", partition_key(image)),))


def _has_image(task: PlannedTask, digest: str) -> bool:
    return any(image.endswith(f"@{digest}") for image in task.images.values())


def _told(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is not known, and empty lists."""
    return {name: value for name, value in facts.items() if value not in (None, [])}
