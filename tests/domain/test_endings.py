"""The rules that turn a trial's traces into its ending."""

from pathlib import Path

import pytest

from harbor_assets.domain.endings import MESSAGE_MAX, TrialFacts, classify, cut, decisive, trial_error
from harbor_assets.domain.flags import SOLUTION_EXIT, Flag, Remark, solution_exit
from harbor_assets.domain.outcomes import OUTCOME_OF, Outcome, Reason, TrialError
from harbor_assets.domain.rewards import judge

GOOD, ZERO, NONE = judge(b"1.0", None), judge(b"0", None), judge(None, None)


def err(kind: str, message: str = "said", traceback: str | None = None) -> TrialError:
    return TrialError(type=kind, message=message, traceback=traceback)


def graded(**changes: object) -> TrialFacts:
    facts = {
        "agent_setup_began": True,
        "agent_began": True,
        "verifier_began": True,
        "verifier_finished": True,
        "verdict": GOOD,
    }
    return TrialFacts(**{**facts, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (graded(), Reason.GRADED),
        (graded(verdict=ZERO), Reason.GRADED),
        (graded(error=err("AgentTimeoutError")), Reason.GRADED_AFTER_AGENT_TIMEOUT),
        (graded(error=err("NonZeroAgentExitCodeError")), Reason.GRADED_AFTER_AGENT_ERROR),
        (graded(error=err("NonZeroAgentExitCodeError"), memory_kills=1), Reason.GRADED_AFTER_MEMORY_LIMIT),
        (graded(memory_kills=1), Reason.GRADED),  # of a process that nobody missed
        (graded(memory_kills=1, agent_failed=True), Reason.GRADED_AFTER_MEMORY_LIMIT),
        (graded(agent_failed=True), Reason.GRADED),
        (graded(step_unprepared=True, error=err("RuntimeError")), Reason.SANDBOX_START),
        (graded(verifier_finished=False, error=err("SandboxStartError")), Reason.SANDBOX_START),
        (graded(verdict=NONE), Reason.REWARD_MISSING),
        (graded(verdict=judge(b"nan", None)), Reason.REWARD_NOT_FINITE),
        (graded(verifier_finished=False, verdict=NONE, error=err("RuntimeError")), Reason.VERIFIER_ERROR),
        (graded(verifier_finished=False, verdict=GOOD, error=err("VerifierTimeoutError")), Reason.VERIFIER_TIMEOUT),
        (graded(verifier_timed_out=True, verdict=GOOD, error=err("AgentTimeoutError")), Reason.VERIFIER_TIMEOUT),
        (TrialFacts(create_error=err("ValueError")), Reason.TASK_UNREADABLE),
        (TrialFacts(error=err("LayerBuildError")), Reason.IMAGE_BUILD),
        (TrialFacts(error=err("EnvironmentStartTimeoutError")), Reason.SANDBOX_START),
        (TrialFacts(error=err("SandboxStartError")), Reason.SANDBOX_START),
        (TrialFacts(error=err("AgentSetupTimeoutError"), agent_setup_began=True), Reason.AGENT_SETUP_TIMEOUT),
        (TrialFacts(error=err("RuntimeError"), agent_setup_began=True), Reason.AGENT_SETUP_ERROR),
        (TrialFacts(error=err("SandboxLost"), agent_setup_began=True), Reason.SANDBOX_LOST),
        (TrialFacts(agent_setup_began=True, agent_began=True), Reason.UNCLASSIFIED),
    ],
)
def test_each_rule(facts: TrialFacts, reason: Reason) -> None:
    ending = classify(facts)
    assert ending.reason is reason
    assert (ending.reward is not None) == (OUTCOME_OF[reason] is Outcome.SCORED)


def test_nothing_graded_after_a_lost_sandbox_counts() -> None:
    ending = classify(graded(error=err("SandboxLost"), verdict=GOOD))
    assert ending.reason is Reason.SANDBOX_LOST
    assert ending.reward is None


@pytest.mark.parametrize("kind", ["AddTestsDirError", "DownloadVerifierDirError"])
def test_a_lost_sandbox_is_found_behind_harbors_own_error(kind: str) -> None:
    facts = graded(verifier_finished=False, verdict=NONE, error=err(kind, traceback="...SandboxLost: gone\n..."))
    assert classify(facts).reason is Reason.SANDBOX_LOST
    assert classify(graded(verifier_finished=False, verdict=NONE, error=err(kind))).reason is Reason.VERIFIER_ERROR


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("SandboxEvicted", Reason.EVICTED),
        ("SandboxPreempted", Reason.PREEMPTED),
        ("SandboxNodeLost", Reason.NODE_LOST),
        ("SandboxOutOfMemory", Reason.OUT_OF_MEMORY),
        ("SandboxDeadline", Reason.SANDBOX_LOST),
        ("ControlPlaneError", Reason.SANDBOX_LOST),
        ("SandboxDiskFull", Reason.STORAGE),
    ],
)
def test_how_a_pod_died_is_told_at_every_point(kind: str, reason: Reason) -> None:
    for facts in (TrialFacts(error=err(kind)), graded(error=err(kind)), TrialFacts(create_error=err(kind))):
        assert classify(facts).reason is reason


def test_what_never_was_ready() -> None:
    assert classify(TrialFacts(error=err("SandboxImagePullError"))).reason is Reason.IMAGE_PULL
    assert classify(TrialFacts(error=err("SandboxUnschedulable"))).reason is Reason.SCHEDULING
    # a separate verifier's sandbox starts after the agent has run
    assert classify(graded(verifier_finished=False, error=err("SandboxImagePullError"))).reason is Reason.IMAGE_PULL


@pytest.mark.parametrize(
    ("kind", "message", "refused"),
    [
        ("AgentAuthenticationError", "Invalid API key", True),
        ("AgentAuthenticationError", "fatal: could not read Username for 'https://github.com'", False),
        ("AuthenticationError", "litellm.AuthenticationError: invalid x-api-key", True),
        ("BudgetExceededError", "Budget has been exceeded! Current cost: 11.0, Max budget: 10.0", True),
        ("ApiUsageLimitError", "Your credit balance is too low", True),
        ("ApiUsageLimitError", "Quota exceeded for metric: requests per minute", False),
        ("RateLimitError", "You exceeded your current quota, please check your plan and billing details", True),
        ("RateLimitError", "Rate limit reached; please try again in 20s", False),
        ("APIError", "Error code: 402 - Payment Required", True),
        ("UnknownApiError", "API Error: 500", False),
        ("PermissionDeniedError", "moderation flagged", False),
        ("NonZeroAgentExitCodeError", "insufficient_quota", False),
        ("AgentTimeoutError", "invalid api key", False),
    ],
)
def test_a_refusal_of_the_provider_is_no_score_whatever_was_graded(kind: str, message: str, refused: bool) -> None:
    ending = classify(graded(error=err(kind, message)))
    assert (ending.reason is Reason.PROVIDER_REFUSED) == refused
    if refused:
        assert (ending.reward, ending.uncounted) == (None, 1.0)
    ungraded = TrialFacts(agent_setup_began=True, agent_began=True, error=err(kind, message))
    assert (classify(ungraded).reason is Reason.PROVIDER_REFUSED) == refused


def test_a_full_disk_is_storage_wherever_it_shows() -> None:
    full = err("OSError", "[Errno 28] No space left on device: 'x'")
    for facts in (TrialFacts(error=full), TrialFacts(create_error=full), graded(error=full)):
        assert classify(facts).reason is Reason.STORAGE


def test_an_agents_error_stands_beside_the_reward() -> None:
    ending = classify(graded(error=err("AgentTimeoutError", "after 5 s")))
    assert (ending.reward, ending.message) == (1.0, "after 5 s")
    assert ending.error is not None
    assert ending.error.type == "AgentTimeoutError"


def test_a_lost_sandbox_does_not_hide_behind_an_earlier_error() -> None:
    late, lost = err("AgentTimeoutError"), err("SandboxLost")
    assert decisive([late, lost]) is lost
    assert decisive([late, err("RuntimeError")]) is late
    assert decisive([]) is None


def test_remarks_are_kept_whatever_the_ending() -> None:
    remarks = (solution_exit(9), Remark(flag=Flag.OUTPUT_CUT, sentence="5 bytes were not kept"))
    scored = classify(graded(verdict=judge(b"2", None), remarks=remarks))
    assert scored.flags == ("reward_above_1", "solution_exit_9", "output_cut")
    assert scored.message == "solve.sh ended with exit code 9; 5 bytes were not kept"
    failed = classify(graded(verdict=NONE, remarks=remarks))
    assert failed.flags == ("solution_exit_9", "output_cut")
    assert (failed.message or "").endswith("; solve.sh ended with exit code 9; 5 bytes were not kept")


def test_every_flag_and_reason_is_documented() -> None:
    documented = Path(__file__).parents[2].joinpath("docs/outcomes.md").read_text()
    assert [name for name in (*Flag, *Reason, f"{SOLUTION_EXIT}N") if f"`{name}`" not in documented] == []


def test_messages_are_cut_and_say_so() -> None:
    assert cut("x" * MESSAGE_MAX) == "x" * MESSAGE_MAX
    long = cut("x" * (MESSAGE_MAX + 7))
    assert long is not None
    assert long.endswith("… (7 more characters)")
    assert trial_error("", "m").type == "UnknownException"
    assert trial_error("A", "m", "head" + "t" * 9000).traceback == "t" * 8192
