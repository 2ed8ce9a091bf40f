"""Two runs task by task, against what is counted by hand."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.comparison import FIGURES, RUN_FIGURES, compare, figures_of, figures_of_run
from harbor_assets.domain.errors import Refused
from harbor_assets.domain.gates import failing, read_conditions
from harbor_assets.domain.outcomes import Measurements, Reason
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.plans import RunPlan, Sizing
from harbor_assets.domain.runs import Run
from tests.fakes.accounts import START, make_row
from tests.leaderboard.bundles import Ended, make_run


def ended(plan: RunPlan, **more: Any) -> Run:
    return Run(plan=plan, phase=RunPhase.COMPLETED, result_state=ResultState.READY, created_at=START, **more)


def compared(first: list[list[Ended]], second: list[list[Ended]], **plan: Any) -> Any:
    (a, one), (b, two) = make_run(1, first), make_run(2, second, **plan)
    return compare(ended(a), one, ended(b), two)


def test_tasks_are_won_lost_and_regressions_named():
    found = compared(
        [[1.0], [1.0], [0.0], [0.5], [1.0], [Reason.EVICTED], [Reason.EVICTED]],
        [[1.0], [0.0], [1.0], [0.4], [Reason.EVICTED], [1.0], [Reason.EVICTED]],
    )
    assert [task.verdict for task in found.tasks] == "tie loss win loss only_first only_second neither".split()
    assert [task.regression for task in found.tasks].index(True) == 1
    assert (found.wins, found.losses, found.ties, found.regressions) == (1, 2, 1, 1)
    assert (found.only_first, found.only_second, found.comparable) == (1, 1, True)
    assert found.difference is not None
    assert (found.difference.tasks, found.difference.test) == (4, "paired_bootstrap")
    assert found.difference.mean == pytest.approx(-0.1 / 4)


def test_half_of_the_trials_passed_is_passed():
    found = compared([[1.0, 0.0], [1.0, 0.0]], [[0.0, 0.0], [1.0, 0.0]])
    assert [task.regression for task in found.tasks] == [True, False]


def test_what_was_made_otherwise_is_named():
    found = compared([[1.0]], [[1.0]], sizing=Sizing(cpus=4), harbor_version="0.27.0")
    assert (found.comparable, found.differences) == (False, ("sizing: cpus=4, not as each task says",))
    assert found.remarks == ("Harbor: 0.27.0, not 0.26.0",)


def test_mcnemar_for_passes_and_its_figures():
    found = compared([[1.0]] * 6 + [[0.0]] * 2, [[0.0]] * 6 + [[0.0]] * 2)
    assert found.difference is not None
    assert (found.difference.test, found.difference.method) == ("mcnemar", "newcombe")
    assert found.difference.p == pytest.approx(2 / 64)
    assert found.difference.high is not None
    assert found.difference.high < 0
    assert set(figures_of(found)) == set(FIGURES)


def test_a_cost_that_is_not_known_of_every_trial_is_not_known():
    plan, rows = make_run(1, [[1.0], [1.0]])
    assert set(figures_of_run(rows, 3.0)) == set(RUN_FIGURES)
    rows[0] = make_row(plan, 0, measurements=Measurements(cost_usd=0.5))
    assert figures_of_run(rows, 3.0)["cost_usd"] is None
    rows[1] = make_row(plan, 1, measurements=Measurements(cost_usd=0.25))
    assert figures_of_run(rows, 3.0) == {
        "mean": 1.0,
        "mean_missing_as_zero": 1.0,
        "coverage": 1.0,
        "scored": 2,
        "unscored": 0,
        "cost_usd": 0.75,
        "duration_sec": 3.0,
        "elapsed_sec": 3.0,
    }


rewards = st.lists(st.sampled_from([0.0, 1.0, 0.5, Reason.EVICTED]), min_size=1, max_size=3)


@given(st.lists(st.tuples(rewards, rewards), min_size=1, max_size=6))
def test_turned_round_wins_are_losses(tasks: list[tuple[list[Ended], list[Ended]]]):
    n = max(len(one) for pair in tasks for one in pair)
    full = [[one + [Reason.EVICTED] * (n - len(one)) for one in pair] for pair in tasks]
    found = compared([a for a, _ in full], [b for _, b in full])
    back = compared([b for _, b in full], [a for a, _ in full])
    assert (found.wins, found.losses, found.ties) == (back.losses, back.wins, back.ties)
    assert (found.only_first, found.only_second) == (back.only_second, back.only_first)
    assert found.wins + found.losses + found.ties == (found.difference.tasks if found.difference else 0)
    assert found.regressions <= found.losses
    if found.difference and back.difference:
        assert found.difference.mean == pytest.approx(-back.difference.mean)
        assert found.difference.p == pytest.approx(back.difference.p)


def test_conditions_are_read_and_hold():
    conditions = read_conditions(["mean<0.5, regressions > 0", "cost_usd>=1e1"], ["mean", "regressions", "cost_usd"])
    assert [str(one) for one in conditions] == ["mean<0.5", "regressions>0", "cost_usd>=10"]
    assert failing(conditions, {"mean": 0.5, "regressions": 2, "cost_usd": None}) == [
        "regressions>0: it is 2",
        "cost_usd>=10: it is not known",
    ]
    assert failing(conditions, {"mean": 0.5, "regressions": 0, "cost_usd": 9}) == []


NONE = ["", "mean", "mean<", "mean<x", "mean=0.5", "mean<0.5 and p<1", "mean<0.5,", "mean<nan", "Mean<1", "0.5>mean"]


@pytest.mark.parametrize("text", [*NONE, "mean<1e999", "mean<\u0661"])
def test_what_is_no_condition_is_refused(text: str):
    with pytest.raises(Refused, match="--fail-if cannot be read"):
        read_conditions([text], ["mean", "p"])


def test_a_figure_that_there_is_not_is_refused_with_the_nearest():
    with pytest.raises(Refused, match="did you mean coverage"):
        read_conditions(["coverag<1"], ["mean", "coverage"])
