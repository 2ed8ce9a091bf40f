"""Experiments in memory. Passes the same port tests as the ones in SQL."""

import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from harbor_assets.domain.errors import Conflict, NotFound, Refused, TooMany
from harbor_assets.domain.evaluation_lists import IN_MEMORY_MAX, asks_deleted, asks_figures, figure_facts, read_sort
from harbor_assets.domain.experiments import (
    METADATA_MAX,
    Evaluation,
    EvaluationInput,
    EvaluationPatch,
    EvaluationUpdate,
    EvaluatorResult,
    Experiment,
    ExperimentInput,
    ExperimentUpdate,
    Session,
    StoredResult,
    StoredSession,
    deleted_name,
    evaluation_facts,
    experiment_facts,
    ordered,
    replaced_content,
)
from harbor_assets.domain.filters import Filter, holds
from harbor_assets.domain.names import name_problem
from harbor_assets.domain.rollups import ResultFigures, Rollup, SessionFigures, rollup
from harbor_assets.domain.sessions import check_number, check_results, check_spans, extended, result_id, scores_of
from harbor_assets.domain.tasks import Sort
from harbor_assets.domain.traces import Span
from harbor_assets.engine.ports import Page


@dataclass
class _Record:
    id: str
    name: str
    workspace: str
    content: Any
    created_by: str | None
    baseline: str | None = None
    pinned_at: datetime | None = None
    deleted: bool = False
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    updated_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def common(self) -> dict[str, Any]:
        names = ("id", "name", "workspace", "created_by", "created_at", "updated_at")
        return {name: getattr(self, name) for name in names}


@dataclass
class _Session:
    session: Session
    evaluation: str
    spans: list[Span]
    results: dict[str, StoredResult]
    updated_at: datetime


class MemoryExperiments:
    """`ExperimentCatalog` in dicts."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._experiments: list[_Record] = []
        self._evaluations: list[_Record] = []
        self._sessions: dict[tuple[str, str], _Session] = {}

    # --- experiments ------------------------------------------------------------------------------------------------

    def create_experiment(self, workspace: str, body: ExperimentInput, *, created_by: str | None = None) -> Experiment:
        with self._lock:
            record = self._new("experiment", self._experiments, workspace, body.name, body, created_by)
            return self._experiment(record)

    def get_experiment(self, workspace: str, name: str) -> Experiment:
        with self._lock:
            return self._experiment(_find("Experiment", self._experiments, workspace, name))

    def list_experiments(
        self,
        workspace: str,
        *,
        page: int = 1,
        page_size: int = 100,
        sort: Sort = Sort.CREATED,
        where: Filter | None = None,
    ) -> Page[Experiment]:
        with self._lock:
            found: list[Experiment] = []
            for record in self._experiments:
                experiment = self._experiment(record)
                shown = record.workspace == workspace and (asks_deleted(where) or not record.deleted)
                if shown and (where is None or holds(where, experiment_facts(experiment, deleted=record.deleted))):
                    found.append(experiment)
        return _page(_sorted(found, sort), page, page_size)

    def update_experiment(self, workspace: str, name: str, body: ExperimentUpdate) -> Experiment:
        with self._lock:
            record = _find("Experiment", self._experiments, workspace, name)
            if body.name not in (None, name):
                raise Refused("the name stays")
            baseline = body.baseline_evaluation_name
            if baseline is not None and baseline not in [each.name for each in self._members(record.id)]:
                raise Refused(f"{baseline} is no evaluation of {name}")
            record.content, record.baseline = body, baseline
            record.updated_at = datetime.now(UTC)
            return self._experiment(record)

    def delete_experiment(self, workspace: str, name: str) -> None:
        with self._lock:
            record = _find("Experiment", self._experiments, workspace, name)
            for member in self._members(record.id):
                others = [each for each in member.content.experiment_ids if each != record.id]
                if others:
                    member.content = member.content.model_copy(update={"experiment_ids": others})
                else:
                    _delete(member)
            _delete(record)

    # --- evaluations ------------------------------------------------------------------------------------------------

    def create_evaluation(self, workspace: str, body: EvaluationInput, *, created_by: str | None = None) -> Evaluation:
        with self._lock:
            self._check(workspace, body, None)
            record = self._new("evaluation", self._evaluations, workspace, body.name, body, created_by)
            return self._evaluation(record)

    def get_evaluation(self, workspace: str, name: str) -> Evaluation:
        with self._lock:
            return self._evaluation(_find("Evaluation", self._evaluations, workspace, name))

    def list_evaluations(
        self,
        workspace: str,
        *,
        page: int = 1,
        page_size: int = 100,
        sort: str = "-created_at",
        where: Filter | None = None,
    ) -> Page[Evaluation]:
        by = read_sort(sort)
        with self._lock:
            found: list[Evaluation] = []
            figures: dict[str, Rollup] = {}
            for record in self._evaluations:
                if record.workspace != workspace or (record.deleted and not asks_deleted(where)):
                    continue
                evaluation = self._evaluation(record)
                facts = [*evaluation_facts(evaluation, deleted=record.deleted), *figure_facts(evaluation)]
                if where is None or holds(where, facts):
                    found.append(evaluation)
                    figures[record.id] = evaluation
            if (by.computed or asks_figures(where)) and len(found) > IN_MEMORY_MAX:
                raise TooMany("too many")
            if by.computed:
                found = ordered(found, by, figures)
            else:
                found = sorted(_sorted(found, Sort(sort)), key=lambda each: each.pinned_at is None)
        return _page(found, page, page_size)

    def update_evaluation(self, workspace: str, name: str, body: EvaluationUpdate) -> Evaluation:
        with self._lock:
            record = _find("Evaluation", self._evaluations, workspace, name)
            return self._change(record, replaced_content(record.content, body))

    def patch_evaluation(self, workspace: str, name: str, body: EvaluationPatch) -> Evaluation:
        with self._lock:
            record = _find("Evaluation", self._evaluations, workspace, name)
            return self._change(record, record.content.model_copy(update=body.changes()))

    def merge_metadata(self, workspace: str, name: str, metadata: Mapping[str, str]) -> Evaluation:
        with self._lock:
            record = _find("Evaluation", self._evaluations, workspace, name)
            both = {**record.content.metadata, **metadata}
            if len(both) > METADATA_MAX:
                raise Refused("too many keys")
            return self._change(record, record.content.model_copy(update={"metadata": both}))

    def delete_evaluation(self, workspace: str, name: str) -> None:
        with self._lock:
            _delete(_find("Evaluation", self._evaluations, workspace, name))

    def pin_evaluation(self, workspace: str, name: str, pinned: bool) -> Evaluation:
        with self._lock:
            record = _find("Evaluation", self._evaluations, workspace, name)
            if pinned is (record.pinned_at is None):
                record.pinned_at = datetime.now(UTC) if pinned else None
                record.updated_at = datetime.now(UTC)
            return self._evaluation(record)

    # --- sessions ---------------------------------------------------------------------------------------------------

    def put_session(
        self,
        workspace: str,
        session: Session,
        spans: Sequence[Span] = (),
        results: Sequence[EvaluatorResult] | None = None,
    ) -> StoredSession:
        check_spans(spans)
        check_results(session.session_id, results or ())
        with self._lock:
            evaluation = _find("Evaluation", self._evaluations, workspace, session.evaluation)
            old = self._sessions.get((workspace, session.session_id))
            kept = {} if old is None or results is not None else old.results
            held = _Session(session, evaluation.id, list(spans), dict(kept), datetime.now(UTC))
            self._sessions[workspace, session.session_id] = held
            for result in results or ():
                self.put_evaluator_result(workspace, result)
            return self.get_session(workspace, session.session_id)

    def add_spans(self, workspace: str, session: Session, spans: Sequence[Span]) -> StoredSession:
        with self._lock:
            old = self._sessions.get((workspace, session.session_id))
            new, both = extended(old.session if old else None, session, old.spans if old else (), spans)
            return self.put_session(workspace, new, both)

    def put_evaluator_result(self, workspace: str, result: EvaluatorResult) -> StoredResult:
        with self._lock:
            held = self._held(workspace, result.session_id)
            key = result_id(workspace, result)
            stored = StoredResult(
                **result.model_dump(), evaluator_result_id=key, workspace=workspace, created_at=datetime.now(UTC)
            )
            check_number(len({*held.results, key}))
            held.results[key] = stored
            return stored

    def list_sessions(
        self,
        workspace: str,
        evaluation: str,
        *,
        page: int = 1,
        page_size: int = 100,
        test_case: str | None = None,
    ) -> Page[StoredSession]:
        with self._lock:
            record = _find("Evaluation", self._evaluations, workspace, evaluation)
            found = [
                self.get_session(workspace, held.session.session_id)
                for (where, _), held in self._sessions.items()
                if where == workspace
                and held.evaluation == record.id
                and test_case in (None, held.session.test_case_name)
            ]
        return _page(sorted(found, key=lambda each: (each.test_case_name, each.session_id)), page, page_size)

    def get_session(self, workspace: str, session_id: str) -> StoredSession:
        with self._lock:
            held = self._held(workspace, session_id)
            results = sorted(held.results.values(), key=lambda each: (each.name, each.evaluator_result_id))
            return StoredSession(
                **held.session.model_dump(),
                workspace=workspace,
                span_count=len(held.spans),
                updated_at=held.updated_at,
                results=results,
                evaluator_scores=scores_of(results),
            )

    def session_spans(self, workspace: str, session_id: str) -> Sequence[Span]:
        with self._lock:
            return list(self._held(workspace, session_id).spans)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _new(
        self, noun: str, records: list[_Record], workspace: str, name: str, body: Any, created_by: str | None
    ) -> _Record:
        if problem := name_problem(name):
            raise Refused(f"{name} {problem}")
        if any(each.workspace == workspace and each.name == name for each in records):
            raise Conflict(f"{noun} '{name}' already exists")
        record = _Record(f"{noun}-{secrets.token_hex(8)}", name, workspace, body, created_by)
        records.append(record)
        return record

    def _held(self, workspace: str, session_id: str) -> _Session:
        held = self._sessions.get((workspace, session_id))
        if held is None or any(each.id == held.evaluation and each.deleted for each in self._evaluations):
            raise NotFound(f"Session not found: {session_id}")
        return held

    def _members(self, experiment: str) -> list[_Record]:
        return [each for each in self._evaluations if not each.deleted and experiment in each.content.experiment_ids]

    def _check(self, workspace: str, body: EvaluationInput, itself: str | None) -> None:
        there = {each.id for each in self._experiments if each.workspace == workspace and not each.deleted}
        if missing := set(body.experiment_ids) - there:
            raise Refused(f"no experiments {missing}")
        parents = {each.id for each in self._evaluations if each.workspace == workspace} - {itself}
        if body.parent_evaluation_id not in {None, *parents}:
            raise Refused(f"no evaluation {body.parent_evaluation_id}")

    def _change(self, record: _Record, content: EvaluationInput) -> Evaluation:
        if content != record.content:
            self._check(record.workspace, content, record.id)
            record.content, record.updated_at = content, datetime.now(UTC)
        return self._evaluation(record)

    def _experiment(self, record: _Record) -> Experiment:
        content = record.content.model_dump(exclude={"name", "baseline_evaluation_name"})
        return Experiment(
            **content,
            **record.common(),
            baseline_evaluation_name=record.baseline
            if record.baseline in [each.name for each in self._members(record.id)]
            else None,
            evaluation_count=len(self._members(record.id)),
        )

    def _evaluation(self, record: _Record) -> Evaluation:
        sessions: list[SessionFigures] = []
        results: list[ResultFigures] = []
        for held in self._sessions.values():
            if held.evaluation != record.id:
                continue
            of = held.session
            sessions.append(
                SessionFigures(
                    of.session_id,
                    of.test_case_name,
                    of.agent_name,
                    of.agent_version,
                    of.model_name,
                    of.cost_usd,
                    of.latency_ms,
                    of.tokens,
                )
            )
            results += [
                ResultFigures(of.session_id, each.name, each.value, each.status == "FAILED")
                for each in held.results.values()
            ]
        figures = rollup(sessions, results)
        content = record.content.model_dump(exclude={"name"})
        members = {name: getattr(figures, name) for name in Rollup.model_fields}
        return Evaluation(**content, **record.common(), **members, pinned_at=record.pinned_at)


def _find(noun: str, records: list[_Record], workspace: str, name: str) -> _Record:
    for record in records:
        if (record.workspace, record.name, record.deleted) == (workspace, name, False):
            return record
    raise NotFound(f"{noun} not found: {workspace}/{name}")


def _delete(record: _Record) -> None:
    record.name, record.deleted = deleted_name(record.name, record.id), True


def _sorted[T: (Experiment, Evaluation)](found: list[T], sort: str) -> list[T]:
    by = sort.removeprefix("-")
    return sorted(sorted(found, key=lambda each: each.name), key=lambda each: getattr(each, by), reverse=sort[0] == "-")


def _page[T](items: Sequence[T], page: int, page_size: int) -> Page[T]:
    if page < 1 or not 1 <= page_size <= 1000:
        raise Refused(f"no page {page} of size {page_size}")
    start = (page - 1) * page_size
    return Page(items[start : start + page_size], page, page_size, len(items))
