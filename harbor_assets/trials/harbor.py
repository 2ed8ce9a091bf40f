"""One Harbor trial: the plan in, its ending out. The only place that calls Harbor's `Trial`.

Harbor's own job and retry loops are not used: they delete the folder of a failed try.
"""

import asyncio
import json
import logging
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harbor_assets.domain.endings import Ending, TrialFacts, classify, trial_error
from harbor_assets.domain.outcomes import Measurements, TrialError
from harbor_assets.domain.plans import PlannedTask, RunPlan, trial_id
from harbor_assets.domain.rewards import READ_MAX_BYTES, RewardVerdict, judge, judge_rewards

if TYPE_CHECKING:
    from harbor.models.trial.config import EnvironmentConfig, TrialConfig
    from harbor.models.trial.result import TimingInfo, TrialResult
    from harbor.trial.trial import Trial

log = logging.getLogger(__name__)

# Nothing in Harbor bounds collecting artifacts, downloading logs and stopping as a whole. Half an hour beyond the
# trial's own timeouts is far above what those take for the largest folders seen, and far below a run's budget.
TEARDOWN_SECONDS = 1800.0
SANDBOX_FACTS_MAX_BYTES = 1024 * 1024
VERIFIER_SLACK_SECONDS = 0.5  # Harbor's clock is read just outside its timeout
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
    "SandboxOutOfMemory",
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
        from harbor.trial.trial import Trial

        try:
            config = self._config(plan, task, source, folder)
            identity = uuid.uuid5(_TRIAL_NAMESPACE, f"{plan.run_id}/{trial_id(task, k)}")
            trial = await Trial.create(config, trial_id=identity)
        except Exception as error:  # noqa: BLE001 - whatever a task folder makes Harbor raise is the task's ending
            return classify(TrialFacts(create_error=_error_of(error), details=_sandbox_facts(folder)))
        try:
            async with asyncio.timeout(_outer_limit(trial)):
                result = await trial.run()
        except TimeoutError as error:
            late = trial_error(
                "TrialTeardownTimeout", "the trial did not end within its timeouts and half an hour", str(error)
            )
            return classify(
                TrialFacts(error=late, agent_setup_began=True, agent_began=True, details=_sandbox_facts(folder))
            )
        except Exception as error:
            log.exception("Harbor raised for %s", trial_id(task, k))
            return classify(
                TrialFacts(
                    error=_error_of(error), agent_setup_began=True, agent_began=True, details=_sandbox_facts(folder)
                )
            )
        return classify(_facts(result, folder, plan.reward_key, trial.verifier_timeout_sec))

    def _config(self, plan: RunPlan, task: PlannedTask, source: Path, folder: Path) -> "TrialConfig":
        from harbor.models.trial.config import AgentConfig, TaskConfig, TrialConfig
        from harbor.models.trial.error_policy import ErrorPolicyOverride

        never = ErrorPolicyOverride(should_retry=False, should_grade=False, has_valid_reward=False)
        return TrialConfig(
            task=TaskConfig(path=source),
            trial_name=folder.name,
            trials_dir=folder.parent,
            agent=AgentConfig(name=plan.agent.name, kwargs=dict(plan.agent.kwargs)),
            environment=self._environment(plan, task),
            environment_build_timeout_multiplier=_START_PATIENCE if plan.sandbox.kind == "kubernetes" else None,
            override_error_policy=dict.fromkeys(_NOT_GRADED, never),
        )


def _outer_limit(trial: "Trial") -> float | None:
    if trial.agent_timeout_sec is None:
        return None  # the task sets no limit of its own; the run's deadline is the bound
    steps = len(trial.task.config.steps or [None])
    each = trial.agent_timeout_sec + 2 * trial.verifier_timeout_sec + trial.environment_build_timeout_sec
    return each * steps + trial.environment_build_timeout_sec + trial.agent_setup_timeout_sec + TEARDOWN_SECONDS


def _facts(result: "TrialResult", folder: Path, reward_key: str, verifier_timeout: float) -> TrialFacts:
    recorded = result.recorded_exceptions()
    first = recorded[0] if recorded else None
    error = (
        trial_error(
            first.exception_type, first.exception_message, first.exception_traceback, first.occurred_at.isoformat()
        )
        if first
        else None
    )
    verifier = result.verifier
    spent = _seconds(verifier) or 0.0
    details = _sandbox_facts(folder)
    stepped = result.step_results is not None
    verdict = _verdict(result, folder, reward_key, stepped=stepped)
    if verdict.reward is not None and _refused_rewards(error):
        # Harbor refuses a whole reward file for one bad side value; the rejection is in the verdict, by name.
        details["harbor_refused"], error = error.message if error else None, None
    # Harbor records the first error only: an agent's hides the verifier's own. Its clock and its files still tell.
    hidden = bool(first and verifier and verifier.started_at and first.occurred_at < verifier.started_at)
    return TrialFacts(
        error=error,
        agent_setup_began=result.agent_setup is not None,
        agent_began=result.agent_execution is not None or stepped,
        verifier_began=verifier is not None or stepped,
        verifier_finished=result.verifier_result is not None
        or _refused_rewards(error)
        or "harbor_refused" in details
        or (hidden and verdict.reason is not None),
        verifier_timed_out=result.verifier_result is None and spent >= verifier_timeout - VERIFIER_SLACK_SECONDS > 0,
        verdict=verdict,
        memory_kills=_memory_kills(details),
        measurements=_measurements(result),
        details=details,
    )


def _seconds(timing: "TimingInfo | None") -> float | None:
    """How long a phase took; None if it did not both begin and end."""
    if timing is None or timing.started_at is None or timing.finished_at is None:
        return None
    return max(0.0, (timing.finished_at - timing.started_at).total_seconds())


def _refused_rewards(error: TrialError | None) -> bool:
    """Harbor raises for reward files it refuses: the verifier ran to its end all the same, and the files tell why."""
    names = ("RewardFileNotFoundError", "RewardFileEmptyError", "VerifierOutputParseError", "ValidationError")
    return error is not None and (error.type in names or error.type.startswith("Unicode"))


def _verdict(result: "TrialResult", folder: Path, reward_key: str, *, stepped: bool) -> RewardVerdict:
    if stepped:
        return judge_rewards(result.verifier_result.rewards if result.verifier_result else None, reward_key=reward_key)
    text, text_cut = _read(folder / "verifier" / "reward.txt")
    data, json_cut = _read(folder / "verifier" / "reward.json")
    return judge(text, data, reward_key=reward_key, text_cut=text_cut, json_cut=json_cut)


def _read(path: Path) -> tuple[bytes | None, bool]:
    """At most READ_MAX_BYTES of a plain file, and whether there was more; links and devices are not followed."""
    if path.is_symlink() or not path.is_file():
        return None, False
    with path.open("rb") as file:
        data = file.read(READ_MAX_BYTES + 1)
    return data[:READ_MAX_BYTES], len(data) > READ_MAX_BYTES


def _sandbox_facts(folder: Path) -> dict[str, Any]:
    """What the sandboxes recorded of themselves, by role."""
    facts: dict[str, Any] = {}
    for role, name in (("agent", "sandbox.json"), ("verifier", "sandbox.verifier.json")):
        path = folder / name
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= SANDBOX_FACTS_MAX_BYTES:
            try:
                facts[role] = json.loads(path.read_text(encoding="utf-8"))
            except ValueError:
                facts[role] = {"unreadable": True}
    return facts


def _memory_kills(details: Mapping[str, Any]) -> int:
    found = (role.get("oom_kills") for role in details.values() if isinstance(role, dict))
    return sum(n for n in found if isinstance(n, int))


def _measurements(result: "TrialResult") -> Measurements:
    prompt, cached, completion, cost = result.compute_token_cost_totals()
    return Measurements(
        prompt_tokens=prompt,
        completion_tokens=completion,
        cache_read_tokens=cached,
        cost_usd=cost,
        runtime_sec=_seconds(result.agent_execution),
    )


def _error_of(error: Exception) -> TrialError:
    import traceback

    return trial_error(type(error).__name__, str(error), "".join(traceback.format_exception(error)))
