"""Publishing runs to Experiments: the Evaluation before the first trial, each trial as its task ends, all of them when
the run is settled.

Everything may be done again and by several at once: an Evaluation is made under one name, and a session put again
replaces itself. Nothing here ends a run: what could not be published is published when the run is settled, and what
could not be then is told in the run's error if the publication is `required`.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from pydantic import ValidationError

from harbor_assets.domain.atif import Trajectory
from harbor_assets.domain.errors import Conflict, HarborAssetsError, NotFound, NotReady, Problem, Refused
from harbor_assets.domain.experiments import EvaluationInput, EvaluationPatch
from harbor_assets.domain.outcomes import Outcome, TrialOutcome
from harbor_assets.domain.phases import RunPhase
from harbor_assets.domain.plans import RunPlan
from harbor_assets.domain.publication import Intake, Publication, RunPublished, evaluation_name
from harbor_assets.domain.runs import Run
from harbor_assets.domain.tasks import Taskset
from harbor_assets.engine.bundle_rows import BundleRows
from harbor_assets.engine.experiment_ports import ExperimentCatalog
from harbor_assets.engine.ports import Artifacts
from harbor_assets.engine.trial_sessions import DIGEST, row_digest, session_id, shown, trial_session
from harbor_assets.engine.trial_traces import read_trace

log = logging.getLogger(__name__)

AT_ONCE = 8  # trials published at the same time
_PAGE = 1000
_SHOWN = 5  # of many problems of a kind
RUNNING = "running"  # an Evaluation's status until it has the phase of its run


@dataclass(frozen=True, slots=True)
class Published:
    """What a publication did. `skipped`: results that could not be published; `failed`: trials, each with the error."""

    sessions: int = 0
    results: int = 0
    skipped: Sequence[str] = ()
    failed: Sequence[str] = ()

    def __add__(self, other: "Published") -> "Published":
        return Published(
            self.sessions + other.sessions,
            self.results + other.results,
            (*self.skipped, *other.skipped),
            (*self.failed, *other.failed),
        )

    def __str__(self) -> str:
        told = f"{self.sessions} trials published, {self.results} results"
        if self.skipped:
            told += f"; {len(self.skipped)} results skipped ({'; '.join(self.skipped[:_SHOWN])})"
        if self.failed:
            told += f"; {len(self.failed)} trials not published ({'; '.join(self.failed[:_SHOWN])})"
        return told


class Publisher:
    """Publishes runs. What was published stands in the catalog, so any number of these may do it."""

    def __init__(self, experiments: ExperimentCatalog, artifacts: Artifacts) -> None:
        self._experiments, self._artifacts = experiments, artifacts
        self._kept: BundleRows | None = None

    # --- at submit --------------------------------------------------------------------------------------------------

    def problems(self, workspace: str, intake: Intake) -> Sequence[Problem]:
        """See `Destinations`."""
        try:
            if intake.experiment is not None:
                self._experiments.get_experiment(workspace, intake.experiment)
            elif intake.evaluation_id is not None:
                self._experiments.get_evaluation(workspace, intake.evaluation_id)
        except NotFound:
            if intake.experiment is not None:
                where = "" if workspace == "default" else f" --workspace {workspace}"
                why = f"there is none in '{workspace}'; make it: harbor-assets experiments create {intake.experiment}"
                return [Problem(f"Experiment '{intake.experiment}'", why + where)]
            why = f"there is none in '{workspace}'; name an Experiment, in which the submit makes one"
            return [Problem(f"Evaluation '{intake.evaluation_id}'", why)]
        return []

    def of(self, workspace: str, intake: Intake, taskset: Taskset, *, agent: str, run_id: str) -> Publication:
        """See `Destinations`."""
        if problems := self.problems(workspace, intake):
            raise Refused("The run was not accepted:", problems)
        about = {
            "agent_name": intake.agent_name or agent,
            "agent_version": intake.agent_version,
            "required": intake.required,
        }
        if intake.experiment is not None:
            own = intake.dataset_name or taskset.name
            return Publication(
                experiment=intake.experiment,
                evaluation=evaluation_name(agent, run_id),
                dataset=own,
                dataset_version=intake.dataset_version or taskset.digest,
                **about,
            )
        assert intake.evaluation_id is not None
        there = self._experiments.get_evaluation(workspace, intake.evaluation_id)
        return Publication(
            experiment=self._experiment_named(workspace, there.experiment_ids),
            evaluation=there.name,
            dataset=there.dataset_name,
            dataset_version=there.dataset_version or "unknown",
            new=False,
            **about,
        )

    def _experiment_named(self, workspace: str, ids: Sequence[str]) -> str:
        page = 1
        while found := self._experiments.list_experiments(workspace, page=page, page_size=_PAGE).items:
            for each in found:
                if each.id in ids:
                    return each.name
            page += 1
        raise Refused(f"The Evaluation is in Experiments that are not there any more: {', '.join(ids[:_SHOWN])}")

    def begin(self, plan: RunPlan) -> None:
        """Make the run's Evaluation, before any of its tasks starts; nothing if it is there, or the plan has none.

        Raises `Refused` if the Experiment is gone, or its name is another run's.
        """
        publication = plan.publication
        if publication is None or not publication.new:
            return
        try:
            body = self._body(plan, publication)
        except ValidationError as error:
            raise Refused(f"The Evaluation {publication.evaluation} cannot be made: {error}") from None
        try:
            self._experiments.create_evaluation(plan.workspace, body, created_by=plan.owner)
        except Conflict:
            there = self._experiments.get_evaluation(plan.workspace, publication.evaluation)
            if there.metadata.get("run_id") != plan.run_id:
                raise

    def _body(self, plan: RunPlan, publication: Publication) -> EvaluationInput:
        experiment = self._experiments.get_experiment(plan.workspace, publication.experiment)
        return EvaluationInput(
            name=publication.evaluation,
            experiment_ids=[experiment.id],
            dataset_name=publication.dataset,
            dataset_version=publication.dataset_version,
            status=RUNNING,
            metadata=shown(_about(plan)),
        )

    # --- trials -----------------------------------------------------------------------------------------------------

    def publish_trials(self, run: Run, rows: Sequence[TrialOutcome]) -> Published:
        """Publish these trials; whole tasks, so that each knows the outputs of its siblings. One trial's failure does
        not stop the others. Raises nothing of theirs."""
        publication = run.plan.publication
        if publication is None or not rows:
            return Published()
        made = self._rows_of(run.plan).of_tasks(rows)
        if len(rows) == 1:
            return self._publish(run, publication, made, rows[0])
        with ThreadPoolExecutor(min(AT_ONCE, len(rows)), thread_name_prefix="publish") as pool:
            return sum(pool.map(lambda row: self._publish(run, publication, made, row), rows), Published())

    def _rows_of(self, plan: RunPlan) -> BundleRows:
        """Kept for the run that was asked for last: what a task is called depends on all tasks of its run."""
        kept = self._kept
        if kept is None or kept.plan.run_id != plan.run_id:
            kept = self._kept = BundleRows.of(plan, ())
        return kept

    def _publish(self, run: Run, publication: Publication, made: BundleRows, row: TrialOutcome) -> Published:
        try:
            trial = trial_session(run, row, made, publication, self._trace(row))
            self._experiments.put_session(run.plan.workspace, trial.session, trial.spans, trial.results)
        except HarborAssetsError as error:
            return Published(failed=[f"{row.trial_id}: {error}"])
        except Exception as error:
            log.exception("%s of %s was not published", row.trial_id, run.id)
            return Published(failed=[f"{row.trial_id}: {type(error).__name__}: {error}"])
        return Published(1, len(trial.results), [f"{row.trial_id}: {said}" for said in trial.skipped])

    def _trace(self, row: TrialOutcome) -> Trajectory | None:
        """What the agent left. Nothing that it wrote keeps its trial from being published."""
        try:
            return read_trace(self._artifacts, row).trajectory
        except NotFound:
            return None
        except HarborAssetsError:
            raise  # a store that does not answer: the trace is there, and the next try reads it
        except Exception:
            log.exception("the trace of %s of %s is left out", row.trial_id, row.run_id)
            return None

    # --- when the run is settled ------------------------------------------------------------------------------------

    def settled(self, run: Run, rows: Sequence[TrialOutcome], *, phase: RunPhase, ended_at: datetime) -> str | None:
        """Publish what is missing of an ended run, and say in its Evaluation how it ended.

        Returns why that could not be done, if the publication is `required`.
        """
        publication = run.plan.publication
        if publication is None:
            return None
        try:
            if run.started_at is None:  # nothing ran: perhaps nobody made it
                self.begin(run.plan)
            published = self.complete(run, rows, phase=phase, ended_at=ended_at)
            log.info("%s: %s", run.id, published)
            failed = "; ".join(published.failed[:_SHOWN])
            failed = f"{len(published.failed)} of {len(rows)} trials: {failed}" if failed else ""
        except HarborAssetsError as error:
            failed = str(error)
        except Exception as error:
            log.exception("%s was not published", run.id)
            failed = f"{type(error).__name__}: {error}"
        if not failed:
            return None
        said = f"not published to the Evaluation '{publication.evaluation}': {failed}"
        log.warning("%s: %s", run.id, said)
        return f"{said}. Again: harbor-assets runs publish {run.id}" if publication.required else None

    def complete(self, run: Run, rows: Sequence[TrialOutcome], *, phase: RunPhase, ended_at: datetime) -> Published:
        """Publish the trials that are missing or have changed, and say in the Evaluation how the run ended.

        Raises `Refused` for a run that is published nowhere, `NotFound` if its Evaluation is gone.
        """
        publication, began = run.plan.publication, time.monotonic()
        if publication is None:
            raise Refused(
                f"Run {run.id} is published nowhere. A rerun is not either; submit its tasks with --experiment NAME: "
                f"harbor-assets runs submit --taskset '{run.plan.taskset_ref}' --experiment NAME"
            )
        published = self.publish_trials(run, self._missing(run, publication, rows))
        seconds = (ended_at - (run.started_at or run.created_at)).total_seconds()
        about = _ended(run.plan, rows, phase) | {
            "eval_duration_sec": f"{max(0.0, seconds):.1f}",
            "publish_duration_sec": f"{time.monotonic() - began:.1f}",
        }
        self._experiments.merge_metadata(run.plan.workspace, publication.evaluation, about)
        if publication.new:
            patch = EvaluationPatch(status=phase.value)
            self._experiments.patch_evaluation(run.plan.workspace, publication.evaluation, patch)
        return published

    def _begin_again(self, run: Run) -> None:
        try:
            self.begin(run.plan)
        except NotFound:
            name = run.plan.publication.experiment if run.plan.publication else ""
            where = "" if run.plan.workspace == "default" else f" --workspace {run.plan.workspace}"
            raise NotFound(
                f"Run {run.id} cannot be published: its Experiment '{name}' is not in '{run.plan.workspace}' any more. "
                f"Make it: harbor-assets experiments create {name}{where}, then: harbor-assets runs publish {run.id}"
                f"{where}"
            ) from None

    def again(self, run: Run, rows: Sequence[TrialOutcome]) -> RunPublished:
        """Publish an ended run once more, by hand: its Evaluation is made anew if it is gone. Raises `NotReady` for a
        run that goes on, `NotFound` if the Experiment is gone, and as `complete`."""
        if not run.phase.terminal or run.ended_at is None:
            raise NotReady(
                f"Run {run.id} is {run.phase}: its trials are published as they end, and all when it has ended"
            )
        self._begin_again(run)
        published = self.complete(run, rows, phase=run.phase, ended_at=run.ended_at)
        assert run.plan.publication is not None
        return RunPublished(
            run_id=run.id,
            experiment=run.plan.publication.experiment,
            evaluation=run.plan.publication.evaluation,
            trials=len(rows),
            published=published.sessions,
            results=published.results,
            skipped=tuple(published.skipped),
            failed=tuple(published.failed),
        )

    def _missing(self, run: Run, publication: Publication, rows: Sequence[TrialOutcome]) -> list[TrialOutcome]:
        """The rows of those tasks of which a trial is not published as it is now."""
        there = self._digests(run.plan.workspace, publication.evaluation)
        stale = {row.index for row in rows if there.get(session_id(row)) != row_digest(row)}
        return [row for row in rows if row.index in stale]

    def _digests(self, workspace: str, evaluation: str) -> Mapping[str, str]:
        found: dict[str, str] = {}
        page = 1
        while sessions := self._experiments.list_sessions(workspace, evaluation, page=page, page_size=_PAGE).items:
            found.update({each.session_id: each.metadata.get(DIGEST, "") for each in sessions})
            page += 1
        return found


def _about(plan: RunPlan) -> dict[str, str]:
    """What an Evaluation says of its run before anything ran. Coverage is told beside the figures: in these a task
    without a score counts as 0 as soon as another has one."""
    return {
        "run_id": plan.run_id,
        "taskset_ref": plan.taskset_ref,
        "agent": plan.agent.name,
        "owner": plan.owner,
        "sandbox": plan.sandbox.kind,
        "harbor_version": plan.harbor_version,
        "harbor_assets_version": plan.harbor_assets_version,
        "attempts": str(plan.n_attempts),
        "tasks_planned": str(len(plan.tasks)),
        "trials_planned": str(len(plan.tasks) * plan.n_attempts),
    }


def _ended(plan: RunPlan, rows: Sequence[TrialOutcome], phase: RunPhase) -> dict[str, str]:
    scored = [row for row in rows if row.outcome is Outcome.SCORED]
    return {
        "phase": phase.value,
        "trials_scored": str(len(scored)),
        "tasks_scored": str(len({row.index for row in scored})),
        "coverage": f"{len(scored)} of {len(plan.tasks) * plan.n_attempts} trials scored",
    }
