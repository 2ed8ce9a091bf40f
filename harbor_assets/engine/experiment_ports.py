"""Where experiments, evaluations and sessions are kept, as a Protocol; as `ports.py`, kept apart for its size."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from harbor_assets.domain.experiments import (
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
)
from harbor_assets.domain.filters import Filter
from harbor_assets.domain.tasks import Sort
from harbor_assets.domain.traces import Span
from harbor_assets.engine.ports import Page


class ExperimentCatalog(Protocol):
    """Experiments, evaluations and sessions of workspaces.

    What names something that is not there raises `NotFound`; a deleted record is not there. Names are unique within a
    workspace among experiments, and among evaluations.
    """

    # --- experiments ------------------------------------------------------------------------------------------------

    def create_experiment(self, workspace: str, body: ExperimentInput, *, created_by: str | None = None) -> Experiment:
        """Raises `Conflict` if the name is taken, `Refused` for a bad name."""
        ...

    def get_experiment(self, workspace: str, name: str) -> Experiment: ...

    def list_experiments(
        self,
        workspace: str,
        *,
        page: int = 1,
        page_size: int = 100,
        sort: Sort = Sort.CREATED,
        where: Filter | None = None,
    ) -> Page[Experiment]:
        """Those that match `where` (of `EXPERIMENT_FIELDS`); deleted ones only if it asks for `is_deleted`."""
        ...

    def update_experiment(self, workspace: str, name: str, body: ExperimentUpdate) -> Experiment:
        """Replace the content. Raises `Refused` for another name, or a baseline that is none of its evaluations."""
        ...

    def delete_experiment(self, workspace: str, name: str) -> None:
        """Delete it and the evaluations that are in no other experiment. What is deleted is kept under another name."""
        ...

    # --- evaluations ------------------------------------------------------------------------------------------------

    def create_evaluation(self, workspace: str, body: EvaluationInput, *, created_by: str | None = None) -> Evaluation:
        """Raises `Conflict` if the name is taken, `Refused` for a bad name and for experiments that are not there."""
        ...

    def get_evaluation(self, workspace: str, name: str) -> Evaluation:
        """With the figures of its sessions as they are now."""
        ...

    def list_evaluations(
        self,
        workspace: str,
        *,
        page: int = 1,
        page_size: int = 100,
        sort: str = "-created_at",
        where: Filter | None = None,
    ) -> Page[Evaluation]:
        """Those that match `where` (of `EVALUATION_FIELDS`), in the order that `read_sort` reads; pinned ones first,
        and of evaluations without the figure that is asked for the last. Deleted ones only if it asks for
        `is_deleted`. Raises `TooMany` if more than `IN_MEMORY_MAX` would have to be computed for a sort or a filter by
        figures, `Refused` for a sort that there is not."""
        ...

    def update_evaluation(self, workspace: str, name: str, body: EvaluationUpdate) -> Evaluation:
        """Replace what can be changed. Raises `Refused` for another name or dataset, as `create_evaluation` else."""
        ...

    def patch_evaluation(self, workspace: str, name: str, body: EvaluationPatch) -> Evaluation:
        """Change the members that were sent."""
        ...

    def merge_metadata(self, workspace: str, name: str, metadata: Mapping[str, str]) -> Evaluation:
        """Add to an evaluation's metadata; keys that are there are replaced."""
        ...

    def delete_evaluation(self, workspace: str, name: str) -> None:
        """It is kept under another name, with its sessions."""
        ...

    def pin_evaluation(self, workspace: str, name: str, pinned: bool) -> Evaluation:
        """Idempotent: a pinned one keeps the time of its pinning."""
        ...

    # --- sessions ---------------------------------------------------------------------------------------------------

    def put_session(
        self,
        workspace: str,
        session: Session,
        spans: Sequence[Span] = (),
        results: Sequence[EvaluatorResult] | None = None,
    ) -> StoredSession:
        """Store a session with its whole trace in the place of the one of its id, so that putting it again changes
        nothing. `results` replace all that the session had, in the same transaction; None leaves them.

        Raises `NotFound` for an evaluation that is not there, `Refused` for results of another session.
        """
        ...

    def add_spans(self, workspace: str, session: Session, spans: Sequence[Span]) -> StoredSession:
        """Add to a session's trace, which may come in several pieces: a span of an id that is there replaces it.

        Members of `session` that are set replace those that are stored; usage is computed anew from all spans.
        """
        ...

    def put_evaluator_result(self, workspace: str, result: EvaluatorResult) -> StoredResult:
        """Store a result in the place of the one of its session, span and name. Raises `NotFound` for a session that
        is not there."""
        ...

    def list_sessions(
        self,
        workspace: str,
        evaluation: str,
        *,
        page: int = 1,
        page_size: int = 100,
        test_case: str | None = None,
    ) -> Page[StoredSession]:
        """The sessions of an evaluation with their results, by test case and id."""
        ...

    def get_session(self, workspace: str, session_id: str) -> StoredSession: ...

    def session_spans(self, workspace: str, session_id: str) -> Sequence[Span]:
        """The trace in the order it was stored; empty for a session without one."""
        ...
