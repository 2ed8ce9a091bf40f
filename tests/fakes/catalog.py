"""A catalog in memory. Passes the same port tests as the one in SQL."""

import secrets
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, Literal

from harbor_assets.domain.access import anywhere
from harbor_assets.domain.admission import Admission
from harbor_assets.domain.errors import Conflict, Malformed, NotFound, Problem, Refused
from harbor_assets.domain.facts import passing_facts, task_facts, taskset_facts
from harbor_assets.domain.filters import Fact, Filter, holds
from harbor_assets.domain.marks import Mark, MarkKind, Verdict, order
from harbor_assets.domain.names import Ref, is_digest, name_problem, tag_problem
from harbor_assets.domain.outcomes import Outcome, TrialOutcome
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.plans import RunPlan
from harbor_assets.domain.requests import key_conflict
from harbor_assets.domain.runs import Run, RunMarks, Tally
from harbor_assets.domain.tasks import (
    Project,
    Record,
    Revision,
    Sort,
    Task,
    TaskInput,
    Taskset,
    TasksetInput,
    taskset_digest,
)
from harbor_assets.engine.benchmark_ports import Keyed
from harbor_assets.engine.notice_ports import EndedRun
from harbor_assets.engine.ports import Page


class _Records[R: Record]:
    """Named records as lists of revisions. `make` builds a record from its content and the common members."""

    def __init__(self, noun: str, make: Callable[..., R], facts: Callable[[R], list[Fact]]) -> None:
        self.noun, self.make, self.facts = noun, make, facts
        self.ids: dict[tuple[str, str], str] = {}
        self.projects: dict[tuple[str, str], str] = {}
        self.revisions: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.tags: dict[tuple[str, str], dict[str, int]] = {}
        self.updated: dict[tuple[str, str], datetime] = {}

    def put(
        self,
        workspace: str,
        name: str,
        digest: str,
        content: Any,
        tags: Sequence[str],
        project: str | None,
        create: bool,
    ) -> tuple[R, bool]:
        if create and (workspace, name) in self.revisions:
            raise Conflict(f"{self.noun} '{name}' already exists in '{workspace}'")
        self.ids.setdefault((workspace, name), f"{self.noun}-{secrets.token_hex(8)}")
        revisions = self.revisions.setdefault((workspace, name), [])
        cut = not revisions or revisions[-1]["digest"] != digest
        if cut:
            revisions.append({"digest": digest, "content": content, "created_at": datetime.now(UTC)})
        before = dict(self.tags.setdefault((workspace, name), {}))
        self.tags[workspace, name] |= dict.fromkeys([*tags, "latest"], len(revisions))
        moved = project not in (None, self.projects.get((workspace, name)))
        if project is not None:
            self.projects[workspace, name] = project
        if moved or before != self.tags[workspace, name]:
            self.updated[workspace, name] = datetime.now(UTC)
        return self.view(workspace, name, len(revisions)), cut

    def view(self, workspace: str, name: str, ordinal: int, *, whole_record: bool = False) -> R:
        key = (workspace, name)
        revision = self.revisions[key][ordinal - 1]
        tags = {tag: at for tag, at in self.tags[key].items() if whole_record or at == ordinal}
        return self.make(
            revision["content"],
            id=self.ids[key],
            project=self.projects.get(key),
            name=name,
            workspace=workspace,
            revision=ordinal,
            tags=tags,
            created_at=self.revisions[key][0 if whole_record else ordinal - 1]["created_at"],
            updated_at=self.updated[key],
            digest=revision["digest"],
        )

    def published(self, after: datetime | None) -> list[tuple[datetime, str]]:
        cut = [
            (revision["created_at"], f"{workspace}/{name}#{revision['digest']}")
            for (workspace, name), revisions in self.revisions.items()
            for revision in revisions
        ]
        return sorted(each for each in cut if after is None or each[0] > after)

    def ordinal(self, workspace: str, name: str, fragment: str | None) -> int | None:
        key = (workspace, name)
        if key not in self.revisions:
            return None
        if fragment and is_digest(fragment):
            having = [n for n, revision in enumerate(self.revisions[key], 1) if revision["digest"] == fragment]
            return having[-1] if having else None
        return self.tags[key].get(fragment or "latest")

    def get(self, workspace: str, name: str, fragment: str | None) -> R:
        ordinal = self.ordinal(workspace, name, fragment)
        if ordinal is None:
            what = f"revision {fragment} of {workspace}/{name}" if fragment else f"{workspace}/{name}"
            raise NotFound(f"{self.noun.capitalize()} not found: {what}")
        return self.view(workspace, name, ordinal, whole_record=fragment is None)

    def page(self, workspace: str, page: int, page_size: int, sort: Sort, where: Filter | None) -> Page[R]:
        found = [self.get(here, name, None) for here, name in self.revisions if here == workspace]
        by = sort.removeprefix("-")
        found.sort(key=lambda record: record.name)
        found.sort(key=lambda record: getattr(record, by), reverse=sort.startswith("-"))
        kept = [
            record
            for record in found
            if where is None or holds(where, [*self.facts(record), *passing_facts(record)], _body(record))
        ]
        return _page(kept, page, page_size)

    def revisions_page(self, workspace: str, name: str, page: int, page_size: int) -> Page[Revision]:
        self.get(workspace, name, None)
        tags = self.tags[workspace, name]
        found = [
            Revision(
                revision=ordinal,
                content_hash=revision["digest"],
                tags=sorted(tag for tag, at in tags.items() if at == ordinal),
                created_at=revision["created_at"],
            )
            for ordinal, revision in enumerate(self.revisions[workspace, name], 1)
        ]
        return _page(found[::-1], page, page_size)

    def tag(self, workspace: str, name: str, tag: str, revision: str) -> R:
        if tag == "latest" or tag_problem(tag):
            raise Refused(f"'{tag}' cannot be moved")
        ordinal = self.get(workspace, name, revision).revision
        if self.tags[workspace, name].get(tag) != ordinal:
            self.tags[workspace, name][tag] = ordinal
            self.updated[workspace, name] = datetime.now(UTC)
        return self.get(workspace, name, None)

    def remove(self, workspace: str, name: str) -> None:
        self.get(workspace, name, None)
        for held in (self.revisions, self.tags, self.updated, self.ids, self.projects):
            held.pop((workspace, name), None)


class MemoryCatalog:
    """`TaskCatalog`, `ProjectCatalog`, `RunCatalog` and `MarkCatalog` in dicts."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._named: dict[str, threading.RLock] = {}
        self._tasks = _Records(
            "task", lambda body, **common: Task(**common, metadata=body.metadata, spec=body.spec), task_facts
        )
        self._tasksets = _Records("taskset", _make_taskset, taskset_facts)
        self._projects: dict[tuple[str, str], Project] = {}
        self._runs: dict[str, Run] = {}
        self._keys: dict[tuple[str, str, str], tuple[str, str, str | None]] = {}
        self._held: set[str] = set()  # runs a worker took up and did not let go
        self._begun: dict[str, int] = {}  # run -> outcomes when a worker last took it up
        self._outcomes: dict[str, dict[tuple[int, int], TrialOutcome]] = {}
        self._tries: dict[str, dict[tuple[int, int], dict[datetime, str]]] = {}
        self._marks: dict[tuple[str, str, MarkKind], Mark] = {}

    # --- tasks ----------------------------------------------------------------------------------------------------

    def put_task(
        self, workspace: str, name: str, body: TaskInput, *, project: str | None = None, create: bool = False
    ) -> tuple[Task, bool]:
        _check(workspace, name, body.tags)
        body = body.qualified(workspace)
        with self._lock:
            self._check_project(workspace, project)
            return self._tasks.put(workspace, name, _digest(body.digest), body, body.tags, project, create)

    def get_task(self, workspace: str, name: str, revision: str | None = None) -> Task:
        with self._lock:
            return self._tasks.get(workspace, name, revision)

    def get_tasks(self, workspace: str, names: Sequence[str]) -> Mapping[str, Task]:
        with self._lock:
            there = [name for name in names if (workspace, name) in self._tasks.revisions]
            return {name: self._tasks.get(workspace, name, None) for name in there}

    def get_pinned_tasks(self, refs: Sequence[str]) -> Sequence[Task]:
        with self._lock:
            parsed = [(text, Ref.parse(text, workspace="")) for text in refs]
            missing = [
                text
                for text, ref in parsed
                if ref.digest is None or self._tasks.ordinal(ref.workspace, ref.name, ref.digest) is None
            ]
            if missing:
                raise NotFound(
                    "task references do not resolve", [Problem(text, "no such revision") for text in missing]
                )
            return [self._tasks.get(ref.workspace, ref.name, ref.digest) for _, ref in parsed]

    def list_tasks(
        self,
        workspace: str,
        *,
        page: int = 1,
        page_size: int = 100,
        sort: Sort = Sort.CREATED,
        where: Filter | None = None,
    ) -> Page[Task]:
        with self._lock:
            return self._tasks.page(workspace, page, page_size, sort, where)

    def task_revisions(self, workspace: str, name: str, *, page: int = 1, page_size: int = 100) -> Page[Revision]:
        with self._lock:
            return self._tasks.revisions_page(workspace, name, page, page_size)

    def tag_task(self, workspace: str, name: str, tag: str, revision: str) -> Task:
        with self._lock:
            return self._tasks.tag(workspace, name, tag, revision)

    def delete_task(self, workspace: str, name: str) -> None:
        with self._lock:
            self._tasks.remove(workspace, name)

    def published(
        self, kind: Literal["task", "taskset"], after: datetime | None = None, *, limit: int = 1000
    ) -> Sequence[tuple[datetime, str]]:
        with self._lock:
            return (self._tasks if kind == "task" else self._tasksets).published(after)[:limit]

    def put_taskset(
        self,
        workspace: str,
        name: str,
        body: TasksetInput,
        *,
        project: str | None = None,
        create: bool = False,
        readable: Callable[[str], bool] = anywhere,
    ) -> tuple[Taskset, bool]:
        _check(workspace, name, body.tags)
        with self._lock:
            self._check_project(workspace, project)
            pinned = self._pin(workspace, self._members(body, readable), readable)
            content = body.model_copy(update={"tasks": pinned})
            digest = _digest(
                lambda: taskset_digest(
                    pinned, description=body.description, files_ref=body.files_ref, metadata=body.metadata
                )
            )
            return self._tasksets.put(workspace, name, digest, content, body.tags, project, create)

    def get_taskset(self, workspace: str, name: str, revision: str | None = None) -> Taskset:
        with self._lock:
            return self._tasksets.get(workspace, name, revision)

    def list_tasksets(
        self,
        workspace: str,
        *,
        page: int = 1,
        page_size: int = 100,
        sort: Sort = Sort.CREATED,
        where: Filter | None = None,
    ) -> Page[Taskset]:
        with self._lock:
            return self._tasksets.page(workspace, page, page_size, sort, where)

    def taskset_revisions(self, workspace: str, name: str, *, page: int = 1, page_size: int = 100) -> Page[Revision]:
        with self._lock:
            return self._tasksets.revisions_page(workspace, name, page, page_size)

    def tag_taskset(self, workspace: str, name: str, tag: str, revision: str) -> Taskset:
        with self._lock:
            return self._tasksets.tag(workspace, name, tag, revision)

    def delete_taskset(self, workspace: str, name: str) -> None:
        with self._lock:
            self._tasksets.remove(workspace, name)

    def put_project(self, workspace: str, name: str) -> tuple[Project, bool]:
        _check(workspace, name, ())
        with self._lock:
            new = (workspace, name) not in self._projects
            made = Project(name=name, workspace=workspace, created_at=datetime.now(UTC))
            return self._projects.setdefault((workspace, name), made), new

    def list_projects(self, workspace: str, *, page: int = 1, page_size: int = 100) -> Page[Project]:
        with self._lock:
            here = [project for (where, _), project in sorted(self._projects.items()) if where == workspace]
            return _page(here, page, page_size)

    def delete_project(self, workspace: str, name: str) -> None:
        with self._lock:
            if (workspace, name) not in self._projects:
                raise NotFound(f"Project not found: {workspace}/{name}")
            for held in (self._tasks.projects, self._tasksets.projects):
                if any(where == workspace and project == name for (where, _), project in held.items()):
                    raise Conflict(f"The project '{name}' is in use")
            del self._projects[workspace, name]

    def _check_project(self, workspace: str, project: str | None) -> None:
        if project is not None and (workspace, project) not in self._projects:
            raise Refused(f"no project '{project}'")

    def _members(self, body: TasksetInput, readable: Callable[[str], bool]) -> Sequence[str]:
        if body.tasks is not None:
            return body.tasks
        by_id = {
            record_id: f"{workspace}/{name}"
            for (workspace, name), record_id in self._tasks.ids.items()
            if readable(workspace)
        }
        if unknown := [text for text in body.task_ids or () if text not in by_id]:
            raise Refused("members that cannot be taken", [Problem(text, "is the id of no task") for text in unknown])
        return [by_id[text] for text in body.task_ids or ()]

    def _pin(self, workspace: str, members: Sequence[str], readable: Callable[[str], bool]) -> list[str]:
        pinned: dict[str, str] = {}
        problems: list[Problem] = []
        for text in members:
            try:
                ref = Ref.parse(text, workspace=workspace)
            except Refused as refused:
                problems.append(Problem(text, refused.message))
                continue
            if not readable(ref.workspace) or self._tasks.ordinal(ref.workspace, ref.name, ref.fragment) is None:
                problems.append(Problem(text, f"no such task, or none of its revisions is '{ref.fragment}'"))
            elif ref.bare in pinned:
                problems.append(Problem(text, "already in this taskset"))
            else:
                pinned[ref.bare] = self._tasks.get(ref.workspace, ref.name, ref.fragment or "latest").ref
        if problems:
            raise Refused("The taskset has members that cannot be taken:", problems)
        return sorted(pinned.values())

    # --- runs -----------------------------------------------------------------------------------------------------

    def add_run(
        self, plan: RunPlan, *, request_digest: str, request: str | None = None, idempotency_key: str | None = None
    ) -> tuple[Run, bool]:
        with self._lock:
            key = (plan.workspace, plan.owner, idempotency_key or "")
            if idempotency_key is not None and key in self._keys:
                run_id, before, asked = self._keys[key]
                if before != request_digest:
                    raise key_conflict(idempotency_key, run_id, asked, request)
                return self._runs[run_id], False
            if plan.run_id in self._runs:
                raise Conflict(f"The run id {plan.run_id} was given before.")
            run = Run(plan=plan, phase=RunPhase.ACCEPTED, result_state=ResultState.PENDING, created_at=plan.created_at)
            self._runs[run.id] = run
            self._outcomes[run.id], self._tries[run.id], self._begun[run.id] = {}, {}, 0
            if idempotency_key is not None:
                self._keys[key] = (run.id, request_digest, request)
            return run, True

    def ended_runs(self, workspace: str | None = None) -> list[str]:
        with self._lock:
            ended = [
                run for run in self._runs.values() if run.phase.terminal and workspace in (None, run.plan.workspace)
            ]
            return [run.id for run in sorted(ended, key=lambda run: (run.created_at, run.id))]

    def tally(self) -> Tally:
        with self._lock:
            phases = Counter(run.phase for run in self._runs.values())
            outcomes = Counter(row.outcome for rows in self._outcomes.values() for row in rows.values())
            waiting = [run.created_at for run in self._runs.values() if run.phase is RunPhase.ACCEPTED]
        return Tally(
            runs={phase: phases[phase] for phase in RunPhase},
            trials={outcome: outcomes[outcome] for outcome in Outcome},
            waiting_since=min(waiting, default=None),
        )

    def runs_by_key(self, workspace: str, owner: str, prefix: str) -> list[Keyed]:
        return sorted(
            Keyed(key, run_id)
            for (where, whose, key), (run_id, _, _) in self._keys.items()
            if (where, whose) == (workspace, owner) and key.startswith(prefix)
        )

    def runs_mentioning(self, workspace: str, text: str, *, limit: int) -> Page[Run]:
        found = [run for run in self.list_runs(workspace, page_size=1000).items if text in run.plan.model_dump_json()]
        return Page(found[:limit], 1, limit, len(found))

    def ended_since(self, at: datetime, *, limit: int) -> list[EndedRun]:
        ended = [EndedRun(run.ended_at, run.id) for run in self._runs.values() if run.ended_at and run.phase.terminal]
        return sorted(each for each in ended if each.at >= at)[:limit]

    def key_of(self, run_id: str) -> str | None:
        return min((key for (_, _, key), (run, _, _) in self._keys.items() if run == run_id), default=None)

    def get_run(self, run_id: str) -> Run:
        with self._lock:
            if run_id not in self._runs:
                raise NotFound(f"Run not found: {run_id}; there are {', '.join(self._runs)}")
            return self._runs[run_id]

    def marks(self, run_id: str) -> RunMarks:
        run = self.get_run(run_id)
        return RunMarks(started_at=run.started_at, cancel_requested_at=run.cancel_requested_at)

    def admission(self, run_id: str) -> Admission:
        return self.get_run(run_id).admission

    def change_admission(self, run_id: str, change: Callable[[Admission], Admission]) -> Admission:
        with self._lock:
            before = self.get_run(run_id).admission
            return self._change(run_id, admission=change(before)).admission

    def list_runs(
        self,
        workspace: str | None = None,
        *,
        active: bool = False,
        owner: str | None = None,
        page: int = 1,
        page_size: int = 100,
    ) -> Page[Run]:
        with self._lock:
            found = [
                run
                for run in self._runs.values()
                if workspace in (None, run.plan.workspace)
                and owner in (None, run.plan.owner)
                and not (active and run.phase.terminal)
            ]
        return _page(sorted(found, key=lambda run: run.created_at, reverse=True), page, page_size)

    def lock(self, name: str) -> AbstractContextManager[None]:
        return self._named.setdefault(name, threading.RLock())

    def begin_execution(self, run_id: str) -> Run:
        with self._lock:
            run, number = self.get_run(run_id), len(self._outcomes.get(run_id, {}))
            lost = 0 if number > self._begun[run_id] else run.lost_workers + (run_id in self._held)
            self._held.add(run_id)
            self._begun[run_id] = number
            return self._change(run_id, executions=run.executions + 1, lost_workers=lost)

    def release(self, run_id: str) -> None:
        with self._lock:
            self.get_run(run_id)
            self._held.discard(run_id)

    def mark_started(self, run_id: str, at: datetime) -> Run:
        with self._lock:
            return self._change(run_id, phase=RunPhase.RUNNING, started_at=self.get_run(run_id).started_at or at)

    def request_cancel(self, run_id: str, at: datetime) -> Run:
        with self._lock:
            return self._change(run_id, cancel_requested_at=self.get_run(run_id).cancel_requested_at or at)

    def finish(
        self, run_id: str, phase: RunPhase, state: ResultState, *, at: datetime, error: str | None = None
    ) -> Run:
        if not phase.terminal or state is ResultState.PENDING:
            raise ValueError(f"a run does not end as {phase} with result state {state}")
        with self._lock:
            return self._change(run_id, phase=phase, result_state=state, ended_at=at, error=error)

    def add_outcome(self, outcome: TrialOutcome) -> bool:
        with self._lock:
            run, rows = self.get_run(outcome.run_id), self._outcomes[outcome.run_id]
            if run.phase.terminal or (outcome.index, outcome.k) in rows:
                return False
            rows[outcome.index, outcome.k] = outcome
            return True

    def outcomes(self, run_id: str, index: int | None = None) -> Sequence[TrialOutcome]:
        with self._lock:
            self.get_run(run_id)
            rows = [row for _, row in sorted(self._outcomes[run_id].items())]
            return [row for row in rows if index in (None, row.index)]

    def count_outcomes(self, run_ids: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        with self._lock:
            return {
                run_id: dict(Counter(row.outcome.value for row in self._outcomes.get(run_id, {}).values()))
                for run_id in run_ids
            }

    def add_try(self, run_id: str, index: int, k: int, start: datetime, leftovers: str) -> None:
        with self._lock:
            if (run := self.get_run(run_id)).phase.terminal:
                raise Refused(f"Run {run_id} is {run.phase}; no trial can begin in it.")
            self._tries[run_id].setdefault((index, k), {}).setdefault(start, leftovers)

    def tries(self, run_id: str, index: int | None = None) -> Mapping[tuple[int, int], Sequence[tuple[datetime, str]]]:
        with self._lock:
            self.get_run(run_id)
            begun = self._tries[run_id].items()
            return {trial: sorted(each.items()) for trial, each in begun if index in (None, trial[0])}

    # --- marks ----------------------------------------------------------------------------------------------------

    def put_mark(self, mark: Mark) -> Mark:
        key = mark.workspace, mark.subject, mark.kind
        with self._lock:
            self._marks[key] = mark.replacing(self._marks.get(key))
            return self._marks[key]

    def marks_of(self, workspace: str, subjects: Sequence[str]) -> Mapping[str, Sequence[Mark]]:
        found: dict[str, list[Mark]] = {}
        with self._lock:
            for (where, subject, _), mark in sorted(self._marks.items()):
                if where == workspace and subject in subjects:
                    found.setdefault(subject, []).append(mark)
        return found

    def withdraw_mark(self, workspace: str, subject: str, kind: MarkKind) -> Mark:
        with self._lock:
            if (workspace, subject, kind) not in self._marks:
                raise NotFound(f"Mark not found: {subject}")
            return self._marks.pop((workspace, subject, kind))

    def list_marks(
        self, workspace: str, *, verdict: Verdict | None = None, page: int = 1, page_size: int = 100
    ) -> Page[Mark]:
        with self._lock:
            here = [
                mark for mark in self._marks.values() if mark.workspace == workspace and verdict in (None, mark.verdict)
            ]
        return _page(sorted(here, key=order, reverse=True), page, page_size)

    def _change(self, run_id: str, **values: Any) -> Run:
        run = self.get_run(run_id)
        if not run.phase.terminal:
            self._runs[run_id] = run.model_copy(update=values)
        return self._runs[run_id]


def _make_taskset(body: TasksetInput, **common: Any) -> Taskset:
    return Taskset(
        **common, metadata=body.metadata, tasks=body.tasks or [], description=body.description, files_ref=body.files_ref
    )


def _body(record: Record) -> Any:
    common = {"id", "name", "workspace", "project", "revision", "tags", "created_at", "updated_at"}
    return record.model_dump(mode="json", exclude=common)


def _check(workspace: str, name: str, tags: Sequence[str]) -> None:
    for problem in (name_problem(workspace), name_problem(name)):
        if problem:
            raise Refused(problem)
    for problem in map(tag_problem, tags):
        if problem:
            raise Malformed(problem)


def _digest(make: Callable[[], str]) -> str:
    try:
        return make()
    except ValueError as error:
        raise Refused(f"a value that JSON cannot hold: {error}") from error


def _page[T](items: Sequence[T], page: int, page_size: int) -> Page[T]:
    if page < 1 or not 1 <= page_size <= 1000:
        raise Refused(f"no page {page} of size {page_size}")
    start = (page - 1) * page_size
    return Page(items[start : start + page_size], page, page_size, len(items))
