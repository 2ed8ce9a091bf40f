"""What a Harbor trial left behind, read from its result and its folder: the facts from which its ending is judged."""

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from harbor_assets.domain.endings import TrialFacts, decisive, trial_error
from harbor_assets.domain.flags import Flag, Remark, solution_exit
from harbor_assets.domain.outcomes import Measurements, TrialError
from harbor_assets.domain.rewards import READ_MAX_BYTES, RewardVerdict, judge, over_steps
from harbor_assets.domain.text import visible

if TYPE_CHECKING:
    from harbor.models.trial.result import ExceptionInfo, StepResult, TimingInfo, TrialResult
    from harbor.trial.trial import Trial

SANDBOX_FACTS_MAX_BYTES = 1024 * 1024
VERIFIER_SLACK_SECONDS = 0.5  # Harbor's clock is read just outside its timeout
ORACLE = "oracle"
_EXIT_CODE_MAX_BYTES = 16  # Harbor writes a number of a few digits
_NAMED_MAX = 3  # of many alike in one sentence
_NO_SOLUTION = ("Solution script not found", "No OS-compatible solution script")  # Harbor's oracle
_VERIFIER_FOLDER = PurePosixPath("/logs/verifier")
_REWARD_FILES = ("reward.txt", "reward.json")
_SAID = (
    "RewardFileNotFoundError",
    "RewardFileEmptyError",
    "VerifierOutputParseError",
    "ValidationError",
    "IsADirectoryError",
    "RecursionError",  # of a reward.json that is nested too deep for Python's reader
)


class Warnings(logging.Handler):
    """Listens to a trial's log for what Harbor only says there: it goes on after a collect hook that failed."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.collect_hooks: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        said = record.getMessage()
        if said.startswith("Collect hook in service"):
            self.collect_hooks.append(visible(re.split(r"\. stdout: ", said, maxsplit=1)[0])[:300])


def facts_of(
    trial: "Trial",
    result: "TrialResult",
    folder: Path,
    *,
    reward_key: str,
    warnings: Warnings,
    output_dropped: int = 0,
    more: Iterable[Remark] = (),
    verifier_seconds: float | None = None,
) -> TrialFacts:
    """The facts of a trial that came to its end. `folder` is the trial's own, `warnings` heard its log, and
    `output_dropped` bytes of what it printed were left out. `more` remarks are ours; `verifier_seconds`: how long the
    verifier's last run took, where that is known better than from the whole phase."""
    errors = [_recorded(info) for info in result.recorded_exceptions()]
    error = decisive(errors)
    details = sandbox_facts(folder)
    steps = result.step_results
    phase = steps[-1] if steps else result
    if steps is None:
        verdict = _verdict(folder / "verifier", details, reward_key)
    else:
        graded = [step for step in steps if step.verifier is not None]
        verdicts = [
            (step.step_name, _verdict(folder / "steps" / step.step_name / "verifier", {}, reward_key))
            for step in graded
        ]
        verdict = over_steps(verdicts, final=_final_counts(trial), reward_key=reward_key)
    if verdict.reward is not None and _refused_rewards(error):
        # Harbor refuses a whole reward file for one bad side value; the rejection is in the verdict, by name.
        details["harbor_refused"], error = error.message if error else None, None
    remarks = [*_remarks(trial, result, folder, details, warnings, error, output_dropped), *more]
    # Harbor records a phase's first error only: an agent's hides the verifier's own. Its clock and files still tell.
    own = phase.exception_info
    hidden = bool(own and phase.verifier and phase.verifier.started_at and own.occurred_at < phase.verifier.started_at)
    timeout = trial.verifier_timeout_sec if steps is None else _step_timeout(trial, steps[-1])
    return TrialFacts(
        error=error,
        agent_setup_began=result.agent_setup is not None,
        agent_began=result.agent_execution is not None or bool(steps),
        verifier_began=phase.verifier is not None,
        verifier_finished=phase.verifier_result is not None
        or _refused_rewards(error)
        or "harbor_refused" in details
        or (hidden and verdict.reason is not None),
        verifier_timed_out=phase.verifier_result is None
        and (verifier_seconds or _seconds(phase.verifier) or 0.0) >= timeout - VERIFIER_SLACK_SECONDS > 0,
        verdict=verdict,
        step_unprepared=bool(steps and steps[-1].exception_info and steps[-1].agent_execution is None),
        agent_failed=any(remark.flag.startswith("solution_exit_") for remark in remarks),
        memory_kills=_count(details, "oom_kills"),
        remarks=tuple(remarks),
        measurements=_measurements(result),
        details=details,
    )


def sandbox_facts(folder: Path) -> dict[str, Any]:
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


# --- remarks ------------------------------------------------------------------------------------------------------


def _remarks(
    trial: "Trial",
    result: "TrialResult",
    folder: Path,
    details: Mapping[str, Any],
    warnings: Warnings,
    error: TrialError | None,
    output_dropped: int,
) -> Iterator[Remark]:
    if trial.agent.name() == ORACLE:
        yield from _exit_codes(folder, result)
        if error and error.type == "FileNotFoundError" and (error.message or "").startswith(_NO_SOLUTION):
            yield Remark(flag=Flag.SOLUTION_MISSING, sentence="the task brings no solution/solve.sh for the oracle")
    yield from _sandbox_remarks(details)
    if dropped := output_dropped + _count(details, "output_dropped_bytes"):
        yield Remark(flag=Flag.OUTPUT_CUT, sentence=f"{dropped} bytes of output were not kept")
    if warnings.collect_hooks:
        count = len(warnings.collect_hooks)
        yield Remark(flag=Flag.COLLECT_HOOK_FAILED, sentence=f"{warnings.collect_hooks[0]}{_more(count)}")
    planned, run = len(trial.task.config.steps or ()), result.step_results or []
    if 0 < len(run) < planned:
        yield Remark(
            flag=Flag.STEPS_NOT_RUN,
            sentence=f"{len(run)} of {planned} steps were run; the task ended after step '{run[-1].step_name}'",
        )


def _exit_codes(folder: Path, result: "TrialResult") -> Iterator[Remark]:
    """Harbor's oracle keeps the exit code of a solution that failed, and goes on."""
    places = [(None, folder)] if result.step_results is None else []
    places += [(step.step_name, folder / "steps" / step.step_name) for step in result.step_results or ()]
    for step, place in places:
        text, _, _ = _read(place / "agent" / "exit-code.txt", _EXIT_CODE_MAX_BYTES)
        if text and text.strip().isdigit():
            yield solution_exit(int(text), step)


def _sandbox_remarks(details: Mapping[str, Any]) -> Iterator[Remark]:
    """Of counters and lists that any of our sandboxes may keep in its record."""
    if kills := _count(details, "oom_kills"):
        yield Remark(
            flag=Flag.MEMORY_LIMIT_HIT,
            sentence=f"{_processes(kills)} killed at the task's own memory limit{_size(details)}",
        )
    if kills := _count(details, "foreign_oom_kills"):
        yield Remark(
            flag=Flag.MACHINE_OUT_OF_MEMORY,
            sentence=f"{_processes(kills)} killed below its memory limit: the machine ran out of memory",
        )
    if _count(details, "disk_limit_hits"):
        yield Remark(flag=Flag.DISK_LIMIT_HIT, sentence="the task's disk was full")
    if users := _named(details, "missing_users"):
        what = ", ".join(f"'{visible(user)}'" for user in users[:_NAMED_MAX])
        yield Remark(
            flag=Flag.USER_MISSING, sentence=f"there is no user {what} in the sandbox; add it in the Dockerfile"
        )
    if left := _count(details, "files_not_downloaded"):
        names = _named(details, "not_downloaded")
        first = f": {visible(names[0])}{_more(left)}" if names else ""
        yield Remark(flag=Flag.FILES_NOT_KEPT, sentence=f"{_files(left)} not fetched from the sandbox{first}")


def _files(count: int) -> str:
    return "a file was" if count == 1 else f"{count} files were"


def _processes(count: int) -> str:
    return "a process was" if count == 1 else f"{count} processes were"


def _size(details: Mapping[str, Any]) -> str:
    for record in (role for role in details.values() if isinstance(role, dict) and role.get("oom_kills")):
        if size := record.get("limits", {}).get("asked", {}).get("memory_mb"):
            return f" of {size} MB"
    return ""


def _more(count: int) -> str:
    return f" (and {count - 1} more)" if count > 1 else ""


def _count(details: Mapping[str, Any], name: str) -> int:
    found = (role.get(name) for role in details.values() if isinstance(role, dict))
    return sum(n for n in found if isinstance(n, int))


def _named(details: Mapping[str, Any], name: str) -> list[str]:
    lists = (role.get(name) for role in details.values() if isinstance(role, dict))
    return [str(item) for found in lists if isinstance(found, list) for item in found]


# --- rewards ------------------------------------------------------------------------------------------------------


def _verdict(folder: Path, details: Mapping[str, Any], reward_key: str) -> RewardVerdict:
    contents, cuts, odd = zip(*(_read(folder / name, READ_MAX_BYTES) for name in _REWARD_FILES), strict=True)
    strange = {name: what for name, what in zip(_REWARD_FILES, odd, strict=True) if what}
    for path, _, why in (entry.partition(": ") for entry in _named(details, "not_downloaded")):
        if PurePosixPath(path).parent == _VERIFIER_FOLDER and PurePosixPath(path).name in _REWARD_FILES:
            strange.setdefault(PurePosixPath(path).name, why)
    return judge(contents[0], contents[1], reward_key=reward_key, text_cut=cuts[0], json_cut=cuts[1], odd=strange)


def _read(path: Path, limit: int) -> tuple[bytes | None, bool, str | None]:
    """At most `limit` bytes of a plain file, whether there was more, and what is there in place of a plain file."""
    if path.is_symlink():
        return None, False, "a link, which is not followed"
    if path.is_dir():
        return None, False, "a folder"
    if not path.is_file():
        return None, False, "neither a file nor a folder nor a link" if path.exists() else None
    with path.open("rb") as file:
        data = file.read(limit + 1)
    return data[:limit], len(data) > limit, None


def _refused_rewards(error: TrialError | None) -> bool:
    """Harbor raises for reward files it refuses: the verifier ran to its end all the same, and the files tell why."""
    return error is not None and is_said(error.type)


def is_said(error_type: str) -> bool:
    """Whether an error is about what the verifier said, not about running it."""
    return error_type in _SAID or error_type.startswith("Unicode")


def _final_counts(trial: "Trial") -> bool:
    from harbor.models.task.config import MultiStepRewardStrategy

    return trial.task.config.multi_step_reward_strategy is MultiStepRewardStrategy.FINAL


# --- what Harbor recorded -----------------------------------------------------------------------------------------


def _recorded(info: "ExceptionInfo") -> TrialError:
    return trial_error(
        info.exception_type, info.exception_message, info.exception_traceback, info.occurred_at.isoformat()
    )


def _step_timeout(trial: "Trial", step: "StepResult") -> float:
    own = next((s.verifier.timeout_sec for s in trial.task.config.steps or () if s.name == step.step_name), None)
    return trial.verifier_timeout_sec if own is None else own


def _seconds(timing: "TimingInfo | None") -> float | None:
    """How long a phase took; None if it did not both begin and end."""
    if timing is None or timing.started_at is None or timing.finished_at is None:
        return None
    return max(0.0, (timing.finished_at - timing.started_at).total_seconds())


def _measurements(result: "TrialResult") -> Measurements:
    prompt, cached, completion, cost = result.compute_token_cost_totals()
    phases = result.step_results if result.step_results is not None else [result]
    spent = [seconds for phase in phases if (seconds := _seconds(phase.agent_execution)) is not None]
    return Measurements(
        prompt_tokens=prompt,
        completion_tokens=completion,
        cache_read_tokens=cached,
        cost_usd=cost,
        runtime_sec=sum(spent) if spent else None,
    )
