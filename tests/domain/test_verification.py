"""Which tasks can be trusted, from the outcomes of oracle and nop."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.marks import Verdict
from harbor_assets.domain.outcomes import OUTCOME_OF, Outcome, Reason, TrialOutcome
from harbor_assets.domain.plans import PlannedTask
from harbor_assets.domain.verification import attempts, judge, judged

TASK = PlannedTask(
    index=4,
    name="suite-t",
    native_task_id="org/t",
    ref="ws/suite-t#" + "a" * 64,
    fileset_ref="ws/fs#x",
    files_hash="b" * 64,
    trial_key="c" * 64,
)


def rows(*ended: float | Reason) -> list[TrialOutcome]:
    return [
        TrialOutcome(
            run_id="run-" + "0" * 16,
            index=4,
            task="suite-t",
            task_ref=TASK.ref,
            native_task_id="org/t",
            k=k,
            trial_id=f"t-{k}",
            outcome=OUTCOME_OF[end] if isinstance(end, Reason) else Outcome.SCORED,
            reason=end if isinstance(end, Reason) else Reason.GRADED,
            reward=None if isinstance(end, Reason) else end,
            trial_key="c" * 64,
        )
        for k, end in enumerate(ended, 1)
    ]


MISSING, LOST = Reason.REWARD_MISSING, Reason.SANDBOX_LOST


@pytest.mark.parametrize(
    ("oracle", "nop", "verdict"),
    [
        ([1.0, 1.0, 1.0], [0.0, 0.0, 0.0], Verdict.GOOD),
        ([1.0, 2.0, 1.0], [0.99, 0.0, -1.0], Verdict.GOOD),  # 1 and above passes, nothing below does
        ([1.0, 0.0, 1.0], [0.0, 0.0, 0.0], Verdict.FLAKY),
        ([1.0, MISSING, 1.0], [0.0, 0.0, 0.0], Verdict.FLAKY),  # its own verifier left no reward
        ([0.0, 0.5, 0.0], [0.0, 0.0, 0.0], Verdict.ORACLE_FAILS),
        ([MISSING] * 3, [MISSING] * 3, Verdict.ORACLE_FAILS),
        ([1.0, 1.0, 1.0], [0.0, 1.0, 0.0], Verdict.NOP_PASSES),
        ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], Verdict.NOP_PASSES),
        ([1.0, 1.0, 1.0], [MISSING] * 3, Verdict.GOOD),
        # What failed outside the task could turn these
        ([1.0, 1.0, LOST], [0.0, 0.0, 0.0], None),
        ([0.0, 0.0, LOST], [0.0, 0.0, 0.0], None),
        ([1.0, 1.0, 1.0], [0.0, 0.0, Reason.RUN_DEADLINE], None),
        ([1.0, 1.0], [0.0, 0.0, 0.0], None),
        ([], [], None),
        # ... and not these
        ([1.0, 0.0, LOST], [0.0, 0.0, 0.0], Verdict.FLAKY),
        ([LOST] * 3, [1.0, LOST, LOST], Verdict.NOP_PASSES),
    ],
)
def test_a_task_is_judged(oracle: list[float | Reason], nop: list[float | Reason], verdict: Verdict | None) -> None:
    (found,) = judged([TASK], rows(*oracle), rows(*nop), (3, 3), where="in the sandbox process")
    assert (found.index, found.task_ref, found.verdict) == (4, TASK.ref, verdict)
    assert found.why.startswith("undecided: ") is (verdict is None)


def test_why_counts_passes_and_names_what_gave_no_reward() -> None:
    (found,) = judged([TASK], rows(1.0, MISSING, LOST), rows(0.0), (3, 2), where="in the sandbox here")
    assert found.why == (
        "oracle passed 1 of 3 (1 reward_missing, 1 sandbox_lost), nop passed 0 of 2 (1 no outcome) in the sandbox here"
    )


def test_a_dockerfile_that_fails_is_named_with_its_step_as_the_tasks_own() -> None:
    broken = [
        row.model_copy(update={"message": "ImageBuildError: RUN make\nexit code 2"}) for row in rows(Reason.IMAGE_BUILD)
    ]
    (found,) = judged([TASK], broken, rows(Reason.IMAGE_BUILD), (1, 1), where="here")
    assert found.verdict is None
    assert "a step of the task's own Dockerfile failed: ImageBuildError: RUN make exit code 2. Correct it" in found.why
    assert "outside the task" not in found.why


ENDED = st.lists(st.sampled_from([1.0, 0.0, MISSING, LOST]), max_size=3)


@given(ENDED, ENDED)
def test_no_verdict_is_turned_by_what_the_undecided_trials_would_have_been(
    oracle: list[float | Reason], nop: list[float | Reason]
) -> None:
    verdict = judge(attempts(rows(*oracle), 3), attempts(rows(*nop), 3))

    def completed(ended: list[float | Reason]) -> list[list[float | Reason]]:
        known = [end for end in ended if end is not LOST]
        return [[*known, *more] for more in itertools.product([1.0, 0.0], repeat=3 - len(known))]

    possible = {
        judge(attempts(rows(*one), 3), attempts(rows(*other), 3))
        for one in completed(oracle)
        for other in completed(nop)
    }
    if verdict in (Verdict.GOOD, Verdict.ORACLE_FAILS):
        assert possible == {verdict}
    elif verdict is None:
        assert len(possible) > 1
    else:  # nop may turn out to pass, too: that goes before flaky
        assert possible <= {verdict, Verdict.NOP_PASSES}
