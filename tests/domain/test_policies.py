import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.outcomes import Outcome, Reason, TrialOutcome
from harbor_assets.domain.policies import account

LOST = {
    Outcome.VERIFIER_FAILED: Reason.REWARD_MISSING,
    Outcome.INFRA_FAILED: Reason.SANDBOX_LOST,
    Outcome.AGENT_SETUP_FAILED: Reason.AGENT_SETUP_ERROR,
    Outcome.CANCELLED: Reason.CANCELLED_BY_USER,
    Outcome.EXPIRED: Reason.RUN_DEADLINE,
    Outcome.NOT_STARTED: Reason.NEVER_STARTED,
}


def row(index: int, k: int, ended: float | Outcome) -> TrialOutcome:
    scored = not isinstance(ended, Outcome)
    return TrialOutcome(
        run_id="run-0123456789abcdef",
        index=index,
        task=f"t{index}",
        task_ref=f"default/t{index}#{'0' * 64}",
        native_task_id=f"org/t{index}",
        k=k,
        trial_id=f"t{index}__{k}",
        outcome=Outcome.SCORED if scored else ended,
        reason=Reason.GRADED if scored else LOST[ended],
        reward=ended if scored else None,
        trial_key="0" * 64,
    )


def test_two_policies_state_what_a_missing_trial_counts_as():
    summary = account([row(0, 1, 1.0), row(0, 2, 0.0), row(1, 1, 0.5), row(1, 2, Outcome.INFRA_FAILED)])
    assert summary.planned == 4
    assert summary.counts == {**dict.fromkeys(Outcome, 0), Outcome.SCORED: 3, Outcome.INFRA_FAILED: 1}
    scored, zeroed = summary.policies.scored_only, summary.policies.missing_as_zero
    assert (scored.mean, zeroed.mean) == (0.5, 0.375)
    assert scored.pass_at_k == {"1": 0.25, "2": 1.0}  # only the first task was tried twice
    assert zeroed.pass_at_k == {"1": 0.25, "2": 0.5}
    assert scored.coverage.model_dump() == {"trials": 3, "tasks": 2, "of_trials": 4, "of_tasks": 2}
    assert zeroed.coverage == scored.coverage


def test_where_nothing_was_scored_there_is_no_mean_to_show():
    summary = account([row(0, 1, Outcome.CANCELLED), row(1, 1, Outcome.NOT_STARTED)])
    assert summary.policies.scored_only.mean is None
    assert summary.policies.scored_only.pass_at_k == {"1": None}
    assert summary.policies.missing_as_zero.mean == 0.0
    assert summary.policies.scored_only.coverage.model_dump() == {
        "trials": 0, "tasks": 0, "of_trials": 2, "of_tasks": 2,
    }  # fmt: skip


def test_the_document_has_all_seven_outcomes():
    document = account([row(0, 1, 1.0)]).model_dump(mode="json")
    assert list(document["counts"]) == [outcome.value for outcome in Outcome]
    assert document["policies"]["scored_only"]["pass_at_k"] == {"1": 1.0}


endings = st.one_of(st.floats(-2, 2), st.sampled_from(list(LOST)))


@given(st.lists(st.lists(endings, min_size=1, max_size=4), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_counts_sum_to_the_plan_and_order_never_matters(tasks: list[list[float | Outcome]], rng: random.Random):
    rows = [row(i, k, ended) for i, attempts in enumerate(tasks) for k, ended in enumerate(attempts, start=1)]
    summary = account(rows)
    assert sum(summary.counts.values()) == summary.planned == len(rows)
    coverage = summary.policies.scored_only.coverage
    assert coverage.trials == summary.counts[Outcome.SCORED]
    assert coverage.tasks == sum(any(not isinstance(e, Outcome) for e in attempts) for attempts in tasks)
    shuffled = rows[:]
    rng.shuffle(shuffled)
    assert account(shuffled) == summary


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.integers(1, 6))
def test_pass_at_k_of_one_task_is_the_share_of_draws_with_a_pass(passes: list[bool], k: int):
    summary = account([row(0, i, 1.0 if passed else 0.0) for i, passed in enumerate(passes, start=1)])
    found = summary.policies.scored_only.pass_at_k.get(str(k))
    draws = list(itertools.combinations(passes, k))
    expected = sum(map(any, draws)) / len(draws) if draws else None
    assert found == expected or abs((found or 0) - (expected or 0)) < 1e-12
