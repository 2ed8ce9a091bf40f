"""Experiments, the evaluations in them, and the sessions of these."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from harbor_assets.domain.errors import Conflict, Refused
from harbor_assets.domain.experiments import (
    Evaluation,
    EvaluationInput,
    EvaluationPatch,
    EvaluationUpdate,
    EvaluatorResult,
    Experiment,
    ExperimentInput,
    ExperimentUpdate,
    Pareto,
    StoredResult,
    StoredSession,
)
from harbor_assets.domain.tasks import Body
from harbor_assets.domain.traces import Span
from harbor_assets.domain.validation import problems_of
from harbor_assets.interfaces.sdk.blocking import Blocking, blocking, blocking_page
from harbor_assets.interfaces.sdk.http import query, segment
from harbor_assets.interfaces.sdk.pages import AsyncPage
from harbor_assets.interfaces.sdk.resource import JSON, AsyncResource, Order, Where, conditions, named

_SPANS = TypeAdapter(list[Span])


class AsyncExperiments(AsyncResource):
    """Experiments: containers of evaluations, each a leaderboard. `workspace` None: the client's."""

    async def create(
        self,
        name: str,
        *,
        exist_ok: bool = False,
        description: str | None = None,
        summary: str | None = None,
        metadata: Mapping[str, str] | None = None,
        default_sort: str = "-created_at",
        pareto: Pareto | None = None,
        workspace: str | None = None,
    ) -> Experiment:
        """Create an experiment. Raises `Conflict` if the name is taken; with `exist_ok` the one that has it is
        answered as it is, whatever else is given."""
        body = _made(
            ExperimentInput,
            name=name,
            description=description,
            summary=summary,
            metadata=None if metadata is None else dict(metadata),
            default_sort=default_sort,
            pareto=pareto,
        )
        try:
            return await self._send(Experiment, "POST", self._intake(workspace, "experiments"), body)
        except Conflict:
            if not exist_ok:
                raise
            return await self.retrieve(name, workspace=workspace)

    async def retrieve(self, name: str, *, workspace: str | None = None) -> Experiment:
        """The experiment, and how many evaluations are in it. Raises `NotFound`."""
        return await self._read(Experiment, self._experiment(workspace, name))

    async def list(
        self,
        *,
        page: int = 1,
        page_size: int = 100,
        sort: Order = "created_at",
        filter: Where = None,
        workspace: str | None = None,
    ) -> AsyncPage[Experiment]:
        """A page of the experiments; iterate over it for all that follow."""
        parameters = [*query(page_size=page_size, sort=sort).items(), *conditions(filter)]
        return await self._list(Experiment.model_validate, self._intake(workspace, "experiments"), parameters, page)

    async def put(self, name: str, experiment: ExperimentUpdate, *, workspace: str | None = None) -> Experiment:
        """Replace its content: what is left out is reset."""
        return await self._send(Experiment, "PUT", self._experiment(workspace, name), experiment)

    async def delete(self, name: str, *, workspace: str | None = None) -> None:
        """Delete it and the evaluations that are in no other experiment. Raises `NotFound`."""
        await self._http.call("DELETE", self._experiment(workspace, name))

    def _experiment(self, workspace: str | None, name: str) -> str:
        owner, _, bare = name.rpartition("/")
        return self._intake(owner or workspace, "experiments", segment(named("experiment", bare)))


class AsyncExperimentEvaluations(AsyncResource):
    """Evaluations, each the row of one run in its experiments, and their sessions, each one trial."""

    async def create(
        self,
        name: str,
        *,
        experiment_ids: Sequence[str],
        dataset_name: str,
        dataset_version: str | None = None,
        description: str | None = None,
        source_link: str | None = None,
        parent_evaluation_id: str | None = None,
        status: str | None = None,
        metadata: Mapping[str, str] | None = None,
        workspace: str | None = None,
    ) -> Evaluation:
        """Create an evaluation in experiments, by their ids. Raises `Conflict` if the name is taken, `Refused` for ids
        that are not there."""
        body = _made(
            EvaluationInput,
            name=name,
            experiment_ids=list(experiment_ids),
            dataset_name=dataset_name,
            dataset_version=dataset_version,
            description=description,
            source_link=source_link,
            parent_evaluation_id=parent_evaluation_id,
            status=status,
            metadata=dict(metadata or {}),
        )
        return await self._send(Evaluation, "POST", self._intake(workspace, "evaluations"), body)

    async def retrieve(self, name: str, *, workspace: str | None = None) -> Evaluation:
        """The evaluation, with the figures of its sessions as they are now. Raises `NotFound`."""
        return await self._read(Evaluation, self._evaluation(workspace, name))

    async def list(
        self,
        *,
        experiment: str | None = None,
        page: int = 1,
        page_size: int = 100,
        sort: str = "-created_at",
        filter: Where = None,
        workspace: str | None = None,
    ) -> AsyncPage[Evaluation]:
        """A page of evaluations, pinned ones first; iterate over it for all that follow.

        `experiment`: only those in the one of this name. `sort` also by figures: `-evaluators.<name>.mean`,
        `cost_usd.p90`.
        """
        asked = conditions(filter)
        if experiment is not None:
            owner, _, bare = experiment.rpartition("/")
            workspace = owner or workspace
            within = self._intake(workspace, "experiments", segment(named("experiment", bare)))
            asked = conditions(filter, experiment_id=(await self._read(Experiment, within)).id)
        parameters = [*query(page_size=page_size, sort=sort).items(), *asked]
        return await self._list(Evaluation.model_validate, self._intake(workspace, "evaluations"), parameters, page)

    async def update(self, name: str, changes: EvaluationPatch, *, workspace: str | None = None) -> Evaluation:
        """Change the members that are set in `changes`; metadata is replaced whole."""
        content = json.dumps(changes.model_dump(mode="json", exclude_unset=True)).encode()
        answer = await self._http.call("PATCH", self._evaluation(workspace, name), content=content, headers=JSON)
        return Evaluation.model_validate_json(answer.content)

    async def put(self, name: str, evaluation: EvaluationUpdate, *, workspace: str | None = None) -> Evaluation:
        """Replace what can be changed: what is left out is reset. Name and dataset never change."""
        return await self._send(Evaluation, "PUT", self._evaluation(workspace, name), evaluation)

    async def delete(self, name: str, *, workspace: str | None = None) -> None:
        """Delete it with its sessions. Raises `NotFound`."""
        await self._http.call("DELETE", self._evaluation(workspace, name))

    async def pin(self, name: str, *, workspace: str | None = None) -> Evaluation:
        """Let it stand first in every list."""
        return await self._send(Evaluation, "POST", f"{self._evaluation(workspace, name)}/pin")

    async def unpin(self, name: str, *, workspace: str | None = None) -> Evaluation:
        """Let it stand where it belongs."""
        return await self._send(Evaluation, "DELETE", f"{self._evaluation(workspace, name)}/pin")

    async def list_sessions(
        self,
        name: str,
        *,
        test_case: str | None = None,
        detailed: bool = False,
        page: int = 1,
        page_size: int = 100,
        workspace: str | None = None,
    ) -> AsyncPage[StoredSession]:
        """A page of its sessions with their results, by test case; iterate over it for all that follow.

        `detailed`: also their final messages, and errors and comments whole.
        """
        mode = "detailed" if detailed else "summary"
        parameters = [*query(page_size=page_size, test_case=test_case, mode=mode).items()]
        path = f"{self._evaluation(workspace, name)}/sessions"
        return await self._list(StoredSession.model_validate, path, parameters, page)

    async def session(self, session_id: str, *, workspace: str | None = None) -> StoredSession:
        """One session with its results. Raises `NotFound`."""
        return await self._read(StoredSession, self._intake(workspace, "sessions", segment(session_id)))

    async def spans(self, session_id: str, *, workspace: str | None = None) -> Sequence[Span]:
        """The trace of a session: what its agent did. Raises `NotFound`."""
        found = await self._get(f"{self._intake(workspace, 'sessions', segment(session_id))}/spans")
        return _SPANS.validate_python(json.loads(found)["data"])

    async def put_result(self, result: EvaluatorResult, *, workspace: str | None = None) -> StoredResult:
        """Store what an evaluator says of a span; one of the same session, span and name is replaced."""
        return await self._send(StoredResult, "POST", self._intake(workspace, "evaluator-results"), result)

    def _evaluation(self, workspace: str | None, name: str) -> str:
        owner, _, bare = name.rpartition("/")
        return self._intake(owner or workspace, "evaluations", segment(named("evaluation", bare)))


def _made[T: Body](kind: type[T], **members: Any) -> T:
    try:
        return kind.model_validate(members)
    except ValidationError as error:
        raise Refused(f"The {kind.__name__} cannot be sent:", problems_of(error, kind)) from None


class Experiments(Blocking):
    """Experiments: containers of evaluations, each a leaderboard."""

    create = blocking(AsyncExperiments.create)
    retrieve = blocking(AsyncExperiments.retrieve)
    list = blocking_page(AsyncExperiments.list)
    put = blocking(AsyncExperiments.put)
    delete = blocking(AsyncExperiments.delete)


class ExperimentEvaluations(Blocking):
    """Evaluations, each the row of one run in its experiments, and their sessions, each one trial."""

    create = blocking(AsyncExperimentEvaluations.create)
    retrieve = blocking(AsyncExperimentEvaluations.retrieve)
    list = blocking_page(AsyncExperimentEvaluations.list)
    update = blocking(AsyncExperimentEvaluations.update)
    put = blocking(AsyncExperimentEvaluations.put)
    delete = blocking(AsyncExperimentEvaluations.delete)
    pin = blocking(AsyncExperimentEvaluations.pin)
    unpin = blocking(AsyncExperimentEvaluations.unpin)
    list_sessions = blocking_page(AsyncExperimentEvaluations.list_sessions)
    session = blocking(AsyncExperimentEvaluations.session)
    spans = blocking(AsyncExperimentEvaluations.spans)
    put_result = blocking(AsyncExperimentEvaluations.put_result)
