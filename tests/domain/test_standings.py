"""Boards: what is ranked together, what stands apart and why, and how wide a rank is."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.conditions import Conditions
from harbor_assets.domain.errors import Refused
from harbor_assets.domain.intervals import interval
from harbor_assets.domain.policies import PolicyCoverage
from harbor_assets.domain.ranking import RankedRun
from harbor_assets.domain.standings import BY_RUN, TESTED_MAX, Board, Pairing, boards, checked_keys, not_pooled

Task = Sequence[float]
WHERE = Conditions(taskset_ref="default/a#1", tasks="t", multipliers="", sizing="", network="", sandbox="docker")


class Runs:
    """Runs by what their tasks' trials gave; remembers whose pairings were asked for."""

    def __init__(self) -> None:
        self.runs: list[RankedRun] = []
        self.values: dict[str, Sequence[Task]] = {}
        self.asked: list[Sequence[str]] = []

    def add(self, tasks: Sequence[Task], planned: int | None = None, **fields: Any) -> str:
        run_id = f"run-{len(self.runs):016x}"
        flat = [value for task in tasks for value in task]
        conditions = fields.pop("conditions", WHERE)
        cover = PolicyCoverage(
            trials=len(flat), tasks=sum(map(bool, tasks)), of_trials=planned or len(flat), of_tasks=len(tasks)
        )
        values = {
            "run_id": run_id, "workspace": "default", "owner": "ann", "phase": "completed", "agent": "a",
            "model": None, "taskset_ref": conditions.taskset_ref, "sandbox": conditions.sandbox, "n_attempts": 1,
            "reward_key": "reward", "mean": sum(flat) / len(flat) if flat else None, "mean_missing_as_zero": 0.0,
            "pass_at_k": {}, "coverage": cover, "harbor_version": None, "started_at": None, "finished_at": None,
            "conditions": conditions, **fields,
        }  # fmt: skip
        self.runs.append(RankedRun.model_validate(values))
        self.values[run_id] = tasks
        return run_id

    def pairings(self, run_ids: Sequence[str]) -> Mapping[str, Pairing]:
        self.asked.append(run_ids)
        return {
            run_id: Pairing(
                scored=[len(task) for task in self.values[run_id]],
                totals=[sum(task) for task in self.values[run_id]],
                rates=all(value in (0, 1) for task in self.values[run_id] for value in task),
                unit=True,
            )
            for run_id in run_ids
        }

    def boards(self, **how: Any) -> tuple[Board, ...]:
        return boards(self.runs, self.pairings, **how)


@pytest.fixture
def runs() -> Runs:
    return Runs()


def ones(n: int, of: int = 40) -> list[Task]:
    return [[1.0] if i < n else [0.0] for i in range(of)]


def bands(board: Board) -> list[tuple[int | None, int | None, int | None]]:
    return [(line.rank, line.best, line.worst) for line in board.standings]


def test_a_rank_is_as_wide_as_the_tests_leave_it(runs: Runs):
    for passed in (38, 36, 10):
        runs.add(ones(passed))
    (board,) = runs.boards()
    assert bands(board) == [(1, 1, 2), (2, 1, 2), (3, 3, 3)]
    assert board.test == "mcnemar"


def test_equal_means_share_a_rank_and_nothing_is_told_of_one_line(runs: Runs):
    runs.add(ones(5))
    assert bands(runs.boards()[0]) == [(1, 1, 1)]
    runs.add(ones(5))
    assert bands(runs.boards()[0]) == [(1, 1, 2), (1, 1, 2)]


def test_what_was_made_otherwise_stands_on_another_board_that_says_in_what(runs: Runs):
    for _ in range(2):
        runs.add(ones(5))
    runs.add(ones(40), conditions=WHERE.model_copy(update={"sizing": "cpus=8", "sandbox": "process", "machine": "m"}))
    runs.add(ones(3), conditions=WHERE.model_copy(update={"taskset_ref": "default/a#2"}))
    runs.add(ones(3), conditions=WHERE.model_copy(update={"taskset_ref": "default/b#2"}))
    first, *others = runs.boards()
    assert (len(first.standings), first.differs) == (2, ())
    assert {board.differs for board in others} == {
        (
            "sizing: cpus=8, not as each task says",
            "sandbox: process, not docker",
            "machine of the process sandbox: m, not not recorded",
        ),
        ("taskset: default/a#2, not default/a#1",),
        (),
    }
    assert all(bands(board) == [(1, 1, 1)] for board in others)


def test_a_line_that_covers_too_little_is_not_ranked_and_says_why(runs: Runs):
    runs.add(ones(10))
    runs.add(ones(8, of=8), planned=40)
    runs.add([[], []], planned=2)
    (board,) = runs.boards()
    assert bands(board) == [(1, 1, 1), (None, None, None), (None, None, None)]
    assert [line.apart for line in board.standings] == [
        None,
        "coverage 0.2 (8 of 40 trials) is below 0.9",
        "no trial was scored",
    ]
    assert runs.boards(min_coverage=0.2)[0].standings[0].mean == 1.0


def test_runs_are_pooled_where_that_is_asked_for(runs: Runs):
    one = runs.add([[1.0], [0.0]], agent="x", model="m", cost_usd=1.0, cost_trials=2)
    two = runs.add([[1.0], [1.0]], agent="x", model="m", cost_usd=None, cost_trials=0)
    runs.add([[0.0], [0.0]], agent="y", model="m", experiment="e")
    (board,) = runs.boards(by=("agent", "model"))
    first, second = board.standings
    assert (first.agent, first.run_ids, first.mean, first.cost_usd, first.cost_trials) == (
        "x",
        (one, two),
        0.75,
        1.0,
        2,
    )
    whole = interval([[1.0, 1.0], [0.0, 1.0]])
    assert whole
    assert first.mean_interval
    assert (first.mean_interval.low, first.mean_interval.method) == (pytest.approx(whole.low), whole.method)
    assert (second.experiment, second.run_ids) == ("e", (runs.runs[2].run_id,))
    assert checked_keys([]) == BY_RUN
    with pytest.raises(Refused, match="'wind' is none of run, agent"):
        checked_keys(["agent", "wind"])


def test_a_pool_holds_a_trial_once_and_a_regrade_is_a_line_of_its_own(runs: Runs):
    one = runs.add([[1.0], [0.0]])
    again = runs.add([[0.0], [0.0]], regrade_of=one)
    rerun = runs.add([[1.0], [1.0]], rerun_of=one)
    (board,) = runs.boards(by=("agent",))
    assert [(line.run_ids, line.coverage.of_trials, line.mean) for line in board.standings] == [((one, rerun), 4, 0.75)]
    assert not_pooled(runs.runs, ("agent",)) == (again,)
    assert {line.run_ids for line in runs.boards()[0].standings} == {(one,), (again,), (rerun,)}
    assert not_pooled(runs.runs, BY_RUN) == ()


def test_only_so_many_lines_are_tested_and_only_theirs_is_read(runs: Runs):
    for i in range(TESTED_MAX + 5):
        runs.add(ones(i % 20))
    (board,) = runs.boards()
    assert [line.best is None for line in board.standings] == [False] * TESTED_MAX + [True] * 5
    assert [len(asked) for asked in runs.asked] == [TESTED_MAX]


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, 0.5]), min_size=6, max_size=6), min_size=2, max_size=6))
def test_bands_are_the_same_in_any_order_and_within_the_board(values: list[list[float]]):
    runs, turned = Runs(), Runs()
    for tasks in values:
        runs.add([[value] for value in tasks])
    turned.runs, turned.values = runs.runs[::-1], runs.values
    (board,) = runs.boards()
    assert turned.boards() == (board,)
    for line in board.standings:
        assert None not in (line.rank, line.best, line.worst)
        assert 1 <= (line.best or 0) <= (line.worst or 0) <= len(values)
    means = [line.mean for line in board.standings]
    assert means == sorted(means, key=lambda mean: -(mean or 0))
