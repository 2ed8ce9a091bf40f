from itertools import product

import pytest

from harbor_assets.domain.outcomes import OUTCOME_OF, Outcome, Reason
from harbor_assets.domain.phases import (
    ExitCode,
    ResultState,
    RunPhase,
    TaskPhase,
    exit_code,
    result_state,
    run_phase,
    task_phase,
)

S, V, F, C, E = Outcome.SCORED, Outcome.VERIFIER_FAILED, Outcome.INFRA_FAILED, Outcome.CANCELLED, Outcome.EXPIRED


@pytest.mark.parametrize(
    ("outcomes", "phase"),
    [
        ([S], TaskPhase.SUCCEEDED),
        ([V, S, C], TaskPhase.SUCCEEDED),
        ([V, C, E], TaskPhase.CANCELLED),
        ([F, E], TaskPhase.EXPIRED),
        ([V], TaskPhase.FAILED),
        ([Outcome.NOT_STARTED], TaskPhase.FAILED),
        ([Outcome.AGENT_SETUP_FAILED, F], TaskPhase.FAILED),
    ],
)
def test_a_task_succeeds_if_any_trial_is_scored(outcomes: list[Outcome], phase: TaskPhase) -> None:
    assert task_phase(outcomes) is phase


def test_a_cancel_or_deadline_names_the_run_whatever_was_scored() -> None:
    for tasks in product(TaskPhase, repeat=2):
        assert run_phase(tasks, cancelled=True, expired=False) is RunPhase.CANCELLED
        assert run_phase(tasks, cancelled=False, expired=True) is RunPhase.EXPIRED
        own = run_phase(tasks, cancelled=False, expired=False)
        assert own is (RunPhase.COMPLETED if TaskPhase.SUCCEEDED in tasks else RunPhase.FAILED)


def test_no_succeeded_task_means_nothing_to_merge() -> None:
    assert result_state([TaskPhase.FAILED], merged=True) is ResultState.NONE
    assert result_state([TaskPhase.SUCCEEDED, TaskPhase.FAILED], merged=True) is ResultState.READY
    assert result_state([TaskPhase.SUCCEEDED], merged=False) is ResultState.FAILED


@pytest.mark.parametrize(
    ("phase", "outcomes", "code"),
    [
        (RunPhase.COMPLETED, [S, S], 0),
        (RunPhase.COMPLETED, [S, V], 3),
        (RunPhase.FAILED, [V, F], 4),
        (RunPhase.CANCELLED, [S, C], 5),
        (RunPhase.EXPIRED, [S, E], 6),
    ],
)
def test_exit_codes(phase: RunPhase, outcomes: list[Outcome], code: int) -> None:
    assert exit_code(phase, outcomes) == code


def test_exit_codes_that_scripts_rely_on() -> None:
    assert {c.name: int(c) for c in ExitCode} == {
        "OK": 0, "FAULT": 1, "REFUSED": 2, "SOME_SCORED": 3, "NONE_SCORED": 4,
        "CANCELLED": 5, "EXPIRED": 6, "GATE": 7, "IDEMPOTENCY_CONFLICT": 9, "INTERRUPTED": 130,
    }  # fmt: skip


def test_every_reason_belongs_to_one_outcome_and_every_outcome_has_one() -> None:
    assert set(OUTCOME_OF) == set(Reason)
    assert set(OUTCOME_OF.values()) == set(Outcome)
