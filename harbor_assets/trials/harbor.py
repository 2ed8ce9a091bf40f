"""One Harbor trial: the plan in, its ending out. The only place that calls Harbor's `Trial`.

Harbor's own job and retry loops are not used: they delete the folder of a failed try.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harbor_assets.domain.endings import Ending, TrialFacts, classify, trial_error
from harbor_assets.domain.outcomes import Reason, TrialError
from harbor_assets.domain.plans import PlannedTask, RunPlan, trial_id
from harbor_assets.domain.regrades import SHARED
from harbor_assets.trials.again import VerifierAgain
from harbor_assets.trials.facts import Warnings, facts_of, sandbox_facts
from harbor_assets.trials.kept import write_kept
from harbor_assets.trials.output import cut_output
from harbor_assets.trials.usage import with_usage

if TYPE_CHECKING:
    from harbor.models.trial.config import EnvironmentConfig, TrialConfig
    from harbor.trial.trial import Trial

log = logging.getLogger(__name__)

# Nothing in Harbor bounds collecting artifacts, downloading logs and stopping as a whole. Half an hour beyond the
# trial's own timeouts is far above what those take for the largest folders seen, and far below a run's budget.
TEARDOWN_SECONDS = 1800.0
_TRIAL_NAMESPACE = uuid.UUID("6b0f7c1e-3a0b-5d53-9d3e-6a4c7f1f2b11")  # of our own; fixed so that ids are stable

# Harbor bounds a sandbox's start by the task's build timeout, ten minutes by default. A pod may wait for a place far
# longer, and its own deadline, the run's, is what ends that.
_START_PATIENCE = 1000.0

# Harbor takes an unknown error for one that may be graded and whose reward counts. After a lost sandbox neither holds.
_NOT_GRADED = (
    "ControlPlaneError",
    "DockerfileUnsupported",
    "LayerBuildError",
    "SandboxDeadline",
    "SandboxDiskFull",
    "SandboxEvicted",
    "SandboxImagePullError",
    "SandboxLost",
    "SandboxNodeLost",
    "SandboxOutOfMemory",
    "SandboxPreempted",
    "SandboxStartError",
    "SandboxUnschedulable",
)

EnvironmentFactory = Callable[[RunPlan, PlannedTask], "EnvironmentConfig"]


class HarborTrialRunner:
    """Implements the engine's `TrialRunner`. `environment` says which sandbox, and how, for a task of a plan."""

    def __init__(self, environment: EnvironmentFactory) -> None:
        self._environment = environment

    async def run(self, plan: RunPlan, task: PlannedTask, k: int, *, source: Path, folder: Path) -> Ending:
        """See `engine.ports.TrialRunner`."""
        try:
            ending = await self._run(plan, task, k, source, folder, recorded=None)
        finally:
            cut_output(folder)  # a trial that is cancelled keeps its folder too
        return await asyncio.to_thread(with_usage, ending, folder)

    async def regrade(
        self, plan: RunPlan, task: PlannedTask, k: int, *, source: Path, recorded: Path, folder: Path
    ) -> Ending:
        """See `engine.regrade_ports.Regrader`."""
        try:
            return await self._run(plan, task, k, source, folder, recorded=recorded)
        finally:
            cut_output(folder)

    async def _run(
        self, plan: RunPlan, task: PlannedTask, k: int, source: Path, folder: Path, *, recorded: Path | None
    ) -> Ending:
        """One trial; with `recorded`, the folder of an earlier one, only its verifier."""
        from harbor.trial.trial import Trial

        try:
            config = self._config(plan, task, source, folder)
            if recorded is not None:
                config = _from_recorded(config, recorded)
            identity = uuid.uuid5(_TRIAL_NAMESPACE, f"{plan.run_id}/{trial_id(task, k)}")
            trial = await Trial.create(config, trial_id=identity)
        except Exception as error:  # noqa: BLE001 - whatever a task folder makes Harbor raise is the task's ending
            return classify(TrialFacts(create_error=_error_of(error), details=sandbox_facts(folder)))
        if recorded is not None and _has_shared_verifier(trial):
            return Ending(Reason.WORK_NOT_KEPT, SHARED, error=trial_error("WorkNotKept", SHARED))
        warnings = Warnings()
        trial.logger.addHandler(warnings)
        again = VerifierAgain(trial, plan, folder)
        try:
            async with asyncio.timeout(_outer_limit(trial, again.most)):
                result = await trial.run()
        except TimeoutError as error:
            late = trial_error(
                "TrialTeardownTimeout", "the trial did not end within its timeouts and half an hour", str(error)
            )
            return _broken_off(late, folder)
        except Exception as error:
            log.exception("Harbor raised for %s", trial_id(task, k))
            return _broken_off(_error_of(error), folder)
        finally:
            trial.logger.removeHandler(warnings)
        dropped = cut_output(folder)
        facts = facts_of(
            trial,
            result,
            folder,
            reward_key=plan.reward_key,
            warnings=warnings,
            output_dropped=dropped,
            more=again.remarks(),
            verifier_seconds=again.seconds,
        )
        write_kept(folder)
        if recorded is None:
            return classify(facts)
        if facts.error and facts.error.type == "RegradeError":
            return Ending(Reason.WORK_NOT_KEPT, facts.error.message, error=facts.error, details=facts.details)
        return classify(replace(facts, agent_setup_began=True, agent_began=True))  # by the trial that is recorded

    def _config(self, plan: RunPlan, task: PlannedTask, source: Path, folder: Path) -> "TrialConfig":
        from harbor.models.trial.config import AgentConfig, TaskConfig, TrialConfig
        from harbor.models.trial.error_policy import ErrorPolicyOverride

        never = ErrorPolicyOverride(should_retry=False, should_grade=False, has_valid_reward=False)
        return TrialConfig(
            task=TaskConfig(path=source),
            trial_name=folder.name,
            trials_dir=folder.parent,
            agent=AgentConfig(name=plan.agent.name, kwargs=dict(plan.agent.kwargs), env=dict(plan.agent.env)),
            agent_timeout_multiplier=plan.agent_timeout_multiplier,
            environment=self._environment(plan, task),
            environment_build_timeout_multiplier=_START_PATIENCE if plan.sandbox.kind == "kubernetes" else None,
            override_error_policy=dict.fromkeys(_NOT_GRADED, never),
        )


def _from_recorded(config: "TrialConfig", recorded: Path) -> "TrialConfig":
    from harbor.models.trial.config import SourceTrialConfig

    return config.model_copy(update={"source_trial": SourceTrialConfig(action="regrade", type="local", path=recorded)})


def _has_shared_verifier(trial: "Trial") -> bool:
    from harbor.models.task.verifier_mode import task_has_any_shared_verifier

    return task_has_any_shared_verifier(trial.task.config)


def _outer_limit(trial: "Trial", verifier_runs: int) -> float | None:
    if trial.agent_timeout_sec is None:
        return None  # the task sets no limit of its own; the run's deadline is the bound
    steps = len(trial.task.config.steps or [None])
    verifying = verifier_runs * (2 * trial.verifier_timeout_sec + trial.environment_build_timeout_sec)
    each = trial.agent_timeout_sec + verifying
    return each * steps + trial.environment_build_timeout_sec + trial.agent_setup_timeout_sec + TEARDOWN_SECONDS


def _broken_off(error: TrialError, folder: Path) -> Ending:
    return classify(TrialFacts(error=error, agent_setup_began=True, agent_began=True, details=sandbox_facts(folder)))


def _error_of(error: Exception) -> TrialError:
    import traceback

    return trial_error(type(error).__name__, str(error), "".join(traceback.format_exception(error)))
