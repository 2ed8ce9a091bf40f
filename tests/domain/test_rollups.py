"""The figures of an evaluation: what holds of them whatever the sessions."""

import dataclasses
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.rollups import ResultFigures, Rollup, SessionFigures, rollup

CASES = st.sampled_from(["a", "b", "c", ""])
AMOUNTS = st.none() | st.floats(0, 1e6)
SESSIONS = st.lists(st.tuples(CASES, AMOUNTS, st.none() | st.floats(0, 1), st.booleans()), max_size=12)


def figures(held: list[tuple[str, Any, Any, bool]], *, shuffled: int = 0) -> Rollup:
    sessions = [SessionFigures(f"s{n}", case, cost_usd=cost) for n, (case, cost, _, _) in enumerate(held)]
    results = [
        ResultFigures(f"s{n}", "reward", None if failed else value, failed)
        for n, (_, _, value, failed) in enumerate(held)
        if failed or value is not None
    ]
    if shuffled:
        random.Random(shuffled).shuffle(sessions)
        random.Random(shuffled).shuffle(results)
    return rollup(sessions, results)


@given(SESSIONS, st.integers(1, 100))
def test_the_order_of_sessions_and_results_changes_nothing(held: Any, seed: int):
    assert figures(held) == figures(held, shuffled=seed)


@given(SESSIONS)
def test_coverage_and_counts_agree_with_the_sessions(held: Any):
    found = figures(held)
    counted = [each for each in held if each[0]]
    cases = {case for case, *_ in counted}
    assert (found.run_count, found.test_case_count) == (len(counted), len(cases))
    known = {case for case, cost, *_ in counted if cost is not None}
    assert (found.cost_usd.count if found.cost_usd else 0) == len(known)
    reward = found.aggregate_scores.get("reward")
    scored = {case for case, _, value, failed in counted if value is not None and not failed}
    if reward is None:
        assert not scored
        return
    assert reward.count == len(scored)
    assert reward.failed_count == sum(failed for *_, failed in counted)
    assert reward.sum is not None
    assert reward.mean is not None
    assert abs(reward.mean * len(cases) - reward.sum) < 1e-6
    if len(scored) < len(cases):
        assert reward.min == 0  # a case without a value counts


@given(SESSIONS)
def test_trying_every_case_once_more_with_the_same_end_changes_no_mean(held: Any):
    once, both = figures(held), figures([*held, *held])
    assert (both.run_count, both.test_case_count) == (2 * once.run_count, once.test_case_count)
    for one, two in (
        (once.cost_usd, both.cost_usd),
        (once.aggregate_scores.get("reward"), both.aggregate_scores.get("reward")),
    ):
        assert (one is None) == (two is None)
        if one and two:
            assert one.count == two.count
            for name in ("sum", "mean", "median", "max"):
                first, second = getattr(one, name), getattr(two, name)
                assert abs(first - second) <= 1e-9 * max(1.0, abs(first))


def test_results_of_no_session_count_nowhere_and_texts_have_no_aggregate():
    session = SessionFigures("s", "a", model_name="m")
    found = rollup(
        [session, dataclasses.replace(session, session="t", model_name="")],
        [ResultFigures("s", "label"), ResultFigures("elsewhere", "reward", 1.0)],
    )
    assert (found.evaluator_names, found.aggregate_scores, found.model_names) == (["label"], {}, ["m"])
