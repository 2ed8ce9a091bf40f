"""Trials that are tried again: which, how often, and what is kept of each try, also of a worker lost between two."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain import retries
from harbor_assets.domain.endings import Ending, trial_error
from harbor_assets.domain.outcomes import OUTCOME_OF, Measurements, Outcome, Reason, Try
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.plans import ImageProblem, PlannedTask
from harbor_assets.domain.views import trial_view
from harbor_assets.engine.execution import Ended
from tests.engine.test_execution import RUN, House, Script, plan

BUNDLE = f"runs/{RUN}/agent-eval-results"


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harbor_assets.engine.execution.pause_before", lambda retry: 0.0)


def script(*reasons: Reason) -> Script:
    """Each try of the one trial ends with the next of these; a scored one with a reward of 1."""
    left = list(reasons)

    async def play(task: PlannedTask, k: int) -> Ending:
        reason = left.pop(0)
        spent = Measurements(cost_usd=0.25)
        if OUTCOME_OF[reason] is Outcome.SCORED:
            return Ending(reason, reward=1.0, measurements=spent)
        return Ending(reason, "why", error=trial_error("Odd", "why"), measurements=spent)

    return play


def ended(house: House) -> tuple[Reason, list[Reason | None]]:
    (row,) = house.catalog.outcomes(RUN)
    return row.reason, [tried.reason for tried in row.tries]


@pytest.mark.parametrize("reason", sorted(retries.RETRIED))
def test_what_errs_is_tried_again_and_every_try_is_kept(tmp_path: Path, reason: Reason) -> None:
    house = House(tmp_path, script(reason, reason, Reason.GRADED), tasks=1, max_retries=2)
    assert asyncio.run(house.execute()) is Ended.DONE
    assert ended(house) == (Reason.GRADED, [reason, reason, None])
    (row,) = house.catalog.outcomes(RUN)
    assert (row.reward, [tried.cost for tried in row.tries]) == (1.0, [0.25] * 3)
    assert [tried.leftovers for tried in row.tries] == [f"{row.evidence}.try-1", f"{row.evidence}.try-2", row.evidence]
    for tried in row.tries:
        assert house.artifacts.exists(f"{BUNDLE}/{tried.leftovers}/trial.log")
    assert all(tried.error and tried.error.type == "Odd" and tried.end for tried in row.tries[:2])
    assert list(house.artifacts.list(f"runs/{RUN}/tries")) == []
    assert house.settle() == (RunPhase.COMPLETED, ResultState.READY)


@pytest.mark.parametrize("reason", sorted(set(Reason) - retries.RETRIED))
def test_what_is_an_answer_or_would_end_the_same_way_is_not(tmp_path: Path, reason: Reason) -> None:
    house = House(tmp_path, script(reason), tasks=1, max_retries=3)
    asyncio.run(house.execute())
    assert ended(house) == (reason, [None])


@pytest.mark.parametrize("most", [0, 1, 3])
def test_no_more_than_the_run_asks_for(tmp_path: Path, most: int) -> None:
    house = House(tmp_path, script(*[Reason.SANDBOX_LOST] * 5), tasks=1, max_retries=most)
    asyncio.run(house.execute())
    assert ended(house) == (Reason.SANDBOX_LOST, [*[Reason.SANDBOX_LOST] * most, None])


@pytest.mark.parametrize("reason", sorted(retries.INFRASTRUCTURE - {Reason.SANDBOX_START}))
def test_what_is_lost_with_its_sandbox_is_tried_again_unasked(tmp_path: Path, reason: Reason) -> None:
    house = House(tmp_path, script(reason, reason, Reason.GRADED), tasks=1, infra_retries=2)
    assert asyncio.run(house.execute()) is Ended.DONE
    assert ended(house) == (Reason.GRADED, [reason, reason, None])


def test_a_try_keeps_its_tokens_and_a_reward_that_does_not_count(tmp_path: Path) -> None:
    spent = Measurements(cost_usd=0.25, prompt_tokens=7, completion_tokens=3, cache_read_tokens=1)
    endings = [
        Ending(Reason.SANDBOX_LOST, "gone", uncounted=0.0, measurements=spent),
        Ending(Reason.GRADED, reward=1.0, measurements=spent),
    ]

    async def play(task: PlannedTask, k: int) -> Ending:
        return endings.pop(0)

    house = House(tmp_path, play, tasks=1, infra_retries=1)
    asyncio.run(house.execute())
    (row,) = house.catalog.outcomes(RUN)
    assert [tried.reward for tried in row.tries] == [0.0, 1.0]
    assert [(t.prompt_tokens, t.completion_tokens, t.cache_read_tokens) for t in row.tries] == [(7, 3, 1)] * 2
    assert row.reward == 1.0
    assert [(tried.reason, tried.reward) for tried in trial_view(row).earlier] == [("sandbox_lost", 0.0)]


def test_an_image_known_to_be_missing_is_not_tried_again(tmp_path: Path) -> None:
    problem = ImageProblem(reason="image_pull", message="connection reset")
    (task,) = plan(tasks=1).tasks
    broken = (task.model_copy(update={"image_problem": problem}),)
    house = House(tmp_path, script(), infra_retries=2, tasks=broken)
    asyncio.run(house.execute())
    assert ended(house) == (Reason.IMAGE_PULL, [None])


REASONS = st.sampled_from(sorted(Reason))


def tried(ending: Ending) -> Try:
    return Try(start=datetime.now(UTC), reason=ending.reason, error=ending.error)


ERRORS = st.sampled_from(["SandboxStartError", "HealthcheckError"])


@given(st.lists(st.tuples(REASONS, ERRORS), min_size=20, max_size=20), st.integers(0, 6), st.integers(0, 6))
def test_retries_never_add_up(reasons: list[tuple[Reason, str]], most: int, infra: int) -> None:
    earlier: list[Ending] = []
    for reason, error in reasons:
        ending = Ending(reason, error=trial_error(error, "x"))
        if not retries.tried_again(ending, [tried(one) for one in earlier], max_retries=most, infra_retries=infra):
            break
        earlier.append(ending)
    assert len(earlier) <= max(most, infra)
    assert sum(not retries.of_infrastructure(one) for one in earlier) <= most
    assert all(OUTCOME_OF[one.reason] is not Outcome.SCORED for one in earlier)


@given(st.lists(REASONS, max_size=8), REASONS, st.integers(0, 6))
def test_a_plan_of_before_retries_as_it_did(earlier: list[Reason], reason: Reason, most: int) -> None:
    earlier = [one for one in earlier if one in retries.RETRIED]
    tries = [tried(Ending(one)) for one in earlier]
    again = retries.tried_again(Ending(reason), tries, max_retries=most, infra_retries=0)
    assert again == (reason in retries.RETRIED and len(earlier) < most)


@pytest.mark.parametrize(
    ("ending", "again"),
    [
        (Ending(Reason.OUT_OF_MEMORY), False),
        (Ending(Reason.OUT_OF_MEMORY, flags=("machine_out_of_memory",)), True),
        (Ending(Reason.IMAGE_PULL, "SandboxImagePullError: image_pull: ErrImagePull: i/o timeout"), True),
        (Ending(Reason.IMAGE_PULL, "SandboxImagePullError: image_pull: ErrImagePull: manifest unknown"), False),
        (Ending(Reason.IMAGE_PULL, "SandboxImagePullError: image_name: InvalidImageName: x"), False),
        (Ending(Reason.SANDBOX_START, error=trial_error("SandboxStartError", "x")), True),
        (Ending(Reason.SANDBOX_START, error=trial_error("HealthcheckError", "x")), False),
        (Ending(Reason.UNCLASSIFIED), False),
        (Ending(Reason.STORAGE), False),
    ],
)
def test_only_what_a_fresh_sandbox_may_mend_is_of_infrastructure(ending: Ending, again: bool) -> None:
    assert retries.of_infrastructure(ending) == again


def test_a_row_of_before_reads_and_is_written_as_it_was() -> None:
    text = '{"start":"2026-01-01T00:00:00Z","end":null,"cost":1.0,"error":null,"leftovers":null,"reason":null}'
    assert Try.model_validate_json(text).model_dump_json() == text


def lose_the_worker(house: House, first: Reason) -> None:
    """One try ends and is to be followed by another, in which the worker is told to stop without a word."""
    stop = asyncio.Event()
    tries = [first]

    async def play(task: PlannedTask, k: int) -> Ending:
        if tries:
            return Ending(tries.pop(), "why", measurements=Measurements(cost_usd=0.5))
        stop.set()
        await asyncio.sleep(60)
        raise AssertionError("not stopped")

    house.runner.script = play
    assert asyncio.run(asyncio.wait_for(house.execute(stop), 10)) is Ended.INTERRUPTED


def test_a_worker_lost_between_tries_loses_no_count_and_no_cost(tmp_path: Path) -> None:
    house = House(tmp_path, script(), tasks=1, max_retries=2)
    lose_the_worker(house, Reason.SANDBOX_START)
    house.runner.script = script(Reason.EVICTED, Reason.EVICTED)
    assert asyncio.run(house.execute()) is Ended.DONE
    # one error, one lost worker, which is no retry, one more error: two retries in all
    assert ended(house) == (Reason.EVICTED, [Reason.SANDBOX_START, None, Reason.EVICTED, None])
    (row,) = house.catalog.outcomes(RUN)
    assert [tried.cost for tried in row.tries] == [0.5, None, 0.25, 0.25]
    assert row.tries[1].error is not None
    assert row.tries[1].error.type == "WorkerLost"


def test_a_run_settled_between_tries_tells_of_those_that_ended(tmp_path: Path) -> None:
    house = House(tmp_path, script(), tasks=1, max_retries=2)
    lose_the_worker(house, Reason.SANDBOX_START)
    house.catalog.request_cancel(RUN, datetime.now(UTC))
    assert house.settle() == (RunPhase.CANCELLED, ResultState.NONE)
    (row,) = house.catalog.outcomes(RUN)
    assert (row.outcome, [tried.reason for tried in row.tries]) == (Outcome.CANCELLED, [Reason.SANDBOX_START, None])
    assert row.tries[0].cost == 0.5


def test_a_cancel_while_a_retry_waits_ends_the_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harbor_assets.engine.execution.pause_before", lambda retry: 60.0)
    house = House(tmp_path, script(Reason.SANDBOX_LOST), tasks=1, max_retries=1)

    async def scenario() -> Ended:
        job = asyncio.create_task(house.execute())
        while not list(house.artifacts.list(f"runs/{RUN}/tries")):
            await asyncio.sleep(0.01)
        house.catalog.request_cancel(RUN, datetime.now(UTC))
        return await asyncio.wait_for(job, 10)

    assert asyncio.run(scenario()) is Ended.CANCELLED
    assert ended(house) == (Reason.CANCELLED_BY_USER, [Reason.SANDBOX_LOST, None])


def test_pauses_double_up_to_a_minute() -> None:
    assert [retries.pause_before(n) for n in (1, 2, 3, 6, 7, 100)] == [1.0, 2.0, 4.0, 32.0, 60.0, 60.0]


def test_a_verifier_that_had_its_tries_alone_does_not_cost_the_agent_another() -> None:
    def again(ending: Ending) -> bool:
        return retries.tried_again(ending, [], max_retries=3, infra_retries=0)

    assert again(Ending(Reason.VERIFIER_ERROR))
    assert not again(Ending(Reason.VERIFIER_ERROR, flags=("verifier_again",)))
    assert again(Ending(Reason.UNCLASSIFIED, flags=("verifier_again",)))
