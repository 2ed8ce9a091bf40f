"""The leaderboard, lineage, and the scores of a task, over real bundles in a real store."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harbor_assets.domain.marks import Mark, Verdict
from harbor_assets.domain.outcomes import Measurements, Reason
from harbor_assets.domain.policies import PolicyCoverage
from harbor_assets.domain.runs import Run
from harbor_assets.domain.standings import Standing
from harbor_assets.interfaces.web.leaderboard import sorted_lines
from tests.interfaces.backends import World, task_input
from tests.web.conftest import Known, Visitor
from tests.web.scenes import ranked_world, settle, submit
from tests.web.test_runs import rows

NAMES = ("alpha", "beta", "gamma", "delta")


def source(name: str) -> dict[str, str]:
    return {"name": name}


@pytest.fixture
def w(tmp_path: Path) -> Iterator[World]:
    with ranked_world(tmp_path) as made:
        yield made


@pytest.fixture
def three(w: World, tmp_path: Path) -> tuple[Run, Run, Run]:
    """One that is whole, one that costs nothing and is worse, one of which too little was scored."""
    ref = w.publish(*NAMES)
    whole, worse, part = submit(w, ref), submit(w, ref, source=source("nop")), submit(w, ref)
    settle(w, tmp_path, whole, 1.0, 1.0, 1.0, 1.0)
    settle(w, tmp_path, worse, 0.0, 1.0, 0.0, 0.0, minute=1, measurements=Measurements(cost_usd=0.001))
    settle(w, tmp_path, part, 1.0, Reason.SANDBOX_LOST, Reason.SANDBOX_LOST, 1.0, minute=2)
    return whole, worse, part


def lines(visitor: Visitor, query: str = "", table: int = -1) -> list[list[str]]:
    page = visitor.see(f"/leaderboard?{query}")
    found = [at for at, each in enumerate(page.all("table")) if each.get("class") == "rows board"]
    return rows(page, found[table]) if found else []


def test_what_is_comparable_is_ranked_and_the_rest_stands_apart_with_its_reason(
    visitor: Visitor, w: World, three: tuple[Run, Run, Run]
):
    whole, worse, part = three
    found = lines(visitor)
    assert w.rankings is not None
    (board,) = w.rankings.leaderboard("default").boards
    told = [f"{line.best}–{line.worst}" for line in board.standings[:2]]
    assert [row[0] for row in found] == [*told, "not ranked –"]
    assert (
        [row[3] for row in found] == [f"{line.mean:.4f}" for line in board.standings] == ["1.0000", "0.2500", "1.0000"]
    )
    assert found[2][1] == f"oracle apart: {board.standings[2].apart}"
    assert "coverage 0.5 (2 of 4 trials) is below 0.9" in found[2][1]
    assert [row[9] for row in found] == [whole.id, worse.id, part.id]
    assert [row[5] for row in found] == ["4 of 4", "4 of 4", "2 of 4"]


def test_ways_to_ask(visitor: Visitor, three: tuple[Run, Run, Run]):
    assert [row[3] for row in lines(visitor, "sort=mean")] == ["0.2500", "1.0000", "1.0000"]
    assert [row[7] for row in lines(visitor, "sort=cost")][:2] == ["$0.0040", "$0.0584"]
    assert [row[1] for row in lines(visitor, "agent=nop")] == ["nop"]
    assert lines(visitor, "min_coverage=0.5")[2][0] != "not ranked –"
    by_agent = lines(visitor, "by=agent")
    assert [row[1].split()[0] for row in by_agent] == ["nop", "oracle"]  # the oracle's runs together cover too little
    assert by_agent[1][5] == "6 of 8"
    assert lines(visitor, "taskset=suite") == lines(visitor)
    for unknown in ("experiment=none", "taskset=other"):
        assert "nor is there one" in visitor.see(f"/leaderboard?{unknown}", 404).text


@pytest.mark.parametrize("query", ["sort=x", "by=x", "min_coverage=2", "min_coverage=x", "min_coverage=nan"])
def test_what_cannot_be_asked_is_told(visitor: Visitor, three: tuple[Run, Run, Run], query: str):
    page = visitor.see(f"/leaderboard?{query}&workspace=default", 400)
    assert "Asked in a way that cannot be answered" in page.text
    assert "/leaderboard?workspace=default" in page.links()


def test_other_conditions_are_another_board_that_says_how_it_differs(
    visitor: Visitor, w: World, three: tuple[Run, Run, Run], tmp_path: Path
):
    other = submit(w, three[0].plan.taskset_ref, agent_timeout_multiplier=2.0)
    settle(w, tmp_path, other, 1.0, 1.0, 1.0, 1.0, minute=3)
    page = visitor.see("/leaderboard")
    assert "Not ranked with the first board of default/suite." in page.text
    assert "time multipliers: agent_timeout=2, not none" in page.text
    assert lines(visitor)[0][0] == "1"


def test_a_regrade_is_told_and_stands_in_no_pool(
    visitor: Visitor, w: World, three: tuple[Run, Run, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    whole, again = three[0], submit(w, three[0].plan.taskset_ref)
    regrade = again.model_copy(update={"plan": again.plan.model_copy(update={"regrade_of": whole.id})})
    with monkeypatch.context() as patched:
        real = w.catalog.get_run
        patched.setattr(w.catalog, "get_run", lambda run_id: regrade if run_id == again.id else real(run_id))
        settle(w, tmp_path, again, 0.0, 0.0, 0.0, 0.0, minute=3)
    assert f"{again.id} regrade of {whole.id}" in " ".join(visitor.see("/leaderboard").text.split())
    pooled = visitor.see("/leaderboard?by=agent")
    assert "1 regrade left out: the trials count in the run that was verified again." in pooled.text
    assert [row[5] for row in lines(visitor, "by=agent")] == ["4 of 4", "6 of 8"]


def test_the_plot_leaves_out_whose_cost_is_not_whole(visitor: Visitor, w: World, three: tuple[Run, Run, Run], tmp_path):
    unknown = submit(w, three[0].plan.taskset_ref)
    settle(w, tmp_path, unknown, 1.0, 1.0, 1.0, 1.0, minute=3, measurements=Measurements())
    page = visitor.see("/leaderboard")
    assert len(page.one("svg").all("circle")) == 2
    assert "2 ranked lines whose whole cost is known" in page.text


def test_a_marked_run_is_stale_on_the_board_and_in_lists(visitor: Visitor, w: World, three: tuple[Run, Run, Run]):
    at = datetime(2026, 11, 29, tzinfo=UTC)
    w.catalog.put_mark(
        Mark(workspace="default", subject=three[1].id, verdict=Verdict.BAD, who="ann", why="wrong key", at=at)
    )
    found = lines(visitor)
    assert found[1][9] == three[1].id
    assert [row[3] for row in found] == ["1.0000", "0.2500 stale", "1.0000"]
    text = visitor.see("/leaderboard").text
    assert text.count("wrong key") == 1
    assert f"bad {three[1].id} : wrong key (ann," in text
    assert "completed stale" in [row[1] for row in rows(visitor.see("/runs"))]


def test_a_marked_task_is_told_once_under_the_board(visitor: Visitor, w: World, three: tuple[Run, Run, Run]):
    at = datetime(2026, 11, 29, tzinfo=UTC)
    ref = three[0].plan.task(1).ref
    w.catalog.put_mark(Mark(workspace="default", subject=ref, verdict=Verdict.BAD, who="ann", why="no tests", at=at))
    assert [row[3] for row in lines(visitor)] == ["1.0000 stale", "0.2500 stale", "1.0000 stale"]
    page = visitor.see("/leaderboard")
    (told,) = [each for each in page.all("ul") if each.get("class") == "told"]
    assert len(told.all("li")) == 1
    assert page.text.count("no tests") == 1


def test_without_a_store_and_without_runs_it_says_so(w: World, visitor: Visitor):
    assert "No ended run to rank" in visitor.see("/leaderboard").text
    assert "No ended run of workspace default has it." in _task(w, visitor)
    w.backend = __import__("dataclasses").replace(w.backend, rankings=None)
    assert "No ended run to rank" in Visitor(w).see("/leaderboard").text
    assert "keeps no store of results" in _task(w, Visitor(w))


def _task(w: World, visitor: Visitor) -> str:
    w.publish("alpha")
    return visitor.see("/tasks/default/alpha").text


def test_a_board_needs_its_reader(w: World, three: tuple[Run, Run, Run]):
    known = Known()
    assert three[0].id in Visitor(w, known, "reader").see("/leaderboard").text
    Visitor(w, known, "elsewhere").see("/leaderboard?workspace=default", 403)
    assert three[0].id not in Visitor(w, known, "elsewhere").see("/leaderboard").text


def test_two_runs_task_by_task(visitor: Visitor, w: World, three: tuple[Run, Run, Run]):
    whole, worse, part = three
    assert f"/compare?second={worse.id}" in visitor.see(f"/runs/{worse.id}").links()
    assert "Two ended runs" in visitor.see(f"/compare?second={worse.id}").text
    page = visitor.see(f"/compare?first={whole.id}&second={worse.id}")
    found = w.evaluations.compare("default", whole.id, worse.id)
    assert found.difference is not None
    assert f"{found.difference.mean:+.4f}" in page.text
    told = rows(page, 1)
    assert [row[0] for row in told] == ["alpha", "delta", "gamma", "beta"]
    assert [row[3] for row in told] == ["worse regression", "worse regression", "worse regression", "equal"]
    assert f"/runs/{worse.id}/tasks/0/trials/1" in page.links()
    only = rows(visitor.see(f"/compare?first={whole.id}&second={part.id}&verdict=only_first"), 1)
    assert [row[2:] for row in only] == [["–", "only in the first"], ["–", "only in the first"]]
    at = datetime(2026, 11, 29, tzinfo=UTC)
    w.catalog.put_mark(
        Mark(workspace="default", subject=worse.id, verdict=Verdict.BAD, who="ann", why="wrong key", at=at)
    )
    marked = visitor.see(f"/compare?first={whole.id}&second={worse.id}")
    assert [row[2].split() for row in rows(marked)] == [["1.0000"], [rows(page)[1][2], "stale"]]
    assert "wrong key (ann" in " ".join(marked.text.split())
    going_on = submit(w, whole.plan.taskset_ref)
    visitor.see(f"/compare?first={whole.id}&second={going_on.id}", 409)
    visitor.see(f"/compare?first={whole.id}&second=run-0000000000000000", 404)
    Visitor(w, Known(), "elsewhere").see(f"/compare?first={whole.id}&second={worse.id}", 404)


def test_a_task_shows_the_scores_of_each_of_its_revisions(
    visitor: Visitor, w: World, three: tuple[Run, Run, Run], tmp_path: Path
):
    old = three[0].plan.task(1)
    w.catalog.put_task("default", old.name, task_input("org/changed"))
    again = submit(w, w.publish(*(name for name in NAMES if name != old.name), taskset="fewer"))
    settle(w, tmp_path, again, 1.0, 1.0, 1.0, minute=5)
    page = visitor.see(f"/tasks/default/{old.name}")
    found = rows(page)
    assert [row[0] for row in found] == [three[2].id, three[1].id, three[0].id]
    assert [row[5:7] for row in found] == [["0 of 1", "–"], ["1 of 1", "1.0000"], ["1 of 1", "1.0000"]]
    assert found[0][1] == old.ref.partition("#")[2][:12]
    assert "(this one)" in rows(visitor.see(f"/tasks/default/{old.name}?revision={old.ref.partition('#')[2]}"))[0][1]


def test_lineage_up_and_down_is_a_tree_of_links(visitor: Visitor, w: World, three: tuple[Run, Run, Run]):
    run = three[0]
    visitor.dagster = "http://localhost:3000"
    trial = visitor.see(f"/runs/{run.id}/tasks/1/trials/1")
    (address,) = [link for link in trial.links() if link.startswith("/lineage")]
    page = visitor.see(address)
    for expected in (
        f"/runs/{run.id}",
        f"/runs/{run.id}/tasks/1/trials/1",
        f"/tasks/default/beta?revision={run.plan.task(1).ref.partition('#')[2]}",
        f"/tasksets/default/suite?revision={run.plan.taskset_ref.partition('#')[2]}",
        f"http://localhost:3000/assets/trial_results?view=partitions&partition={run.id}%7C00001",
    ):
        assert expected in page.links(), expected
    assert [link for link in page.links() if link.endswith("/verifier/test-stdout.txt")]
    task = visitor.see("/tasks/default/beta")
    (address,) = [link for link in task.links() if link.startswith("/lineage")]
    page = visitor.see(address)
    assert {f"/runs/{each.id}/tasks/1/trials/1" for each in three} <= set(page.links())
    for path in ("/lineage", "/lineage?of=run-1/x/y"):
        assert "without the filter" not in visitor.see(path, 400).text, "there is nothing at it"
    for path in ("/lineage?of=run-0000000000000000", "/lineage?of=nothing"):
        visitor.see(path, 404)


def test_a_large_tree_is_cut(visitor: Visitor, three: tuple[Run, Run, Run], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("harbor_assets.interfaces.web.lineage.NODES_MAX", 5)
    assert "Not all of it is drawn" in visitor.see(f"/lineage?of={three[0].id}").text


def test_lineage_needs_a_reader_of_all_that_is_named(w: World, three: tuple[Run, Run, Run]):
    known = Known()
    dan = Visitor(w, known, "elsewhere")
    dan.see(f"/lineage?of={three[0].id}&workspace=default", 403)
    dan.see("/lineage?of=default/beta", 403)
    page = dan.see(f"/lineage?of={three[0].id}", 404)
    assert "suite" not in page.text


def standing(mean: float | None, apart: str | None = None, cost: float | None = None) -> Standing:
    cover = PolicyCoverage(trials=1, tasks=1, of_trials=1, of_tasks=1)
    return Standing(
        agent="a", model=None, experiment=None, run_ids=("r",), mean=mean, mean_interval=None, coverage=cover,
        cost_usd=cost, cost_trials=0, duration_sec=None, finished_at=None, apart=apart,
    )  # fmt: skip


def test_sorting_keeps_what_is_unknown_and_what_stands_apart_behind():
    one, two, none, apart = standing(0.1, cost=2.0), standing(0.9, cost=1.0), standing(0.5), standing(1.0, "few", 0.1)
    assert sorted_lines([one, none, apart, two], "cost") == [two, one, none, apart]
    assert sorted_lines([one, none, apart, two], "-cost") == [one, two, none, apart]
    assert sorted_lines([one, apart], "") == [one, apart]
