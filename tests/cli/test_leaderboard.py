import csv
import io
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harbor_assets.domain import bundle
from harbor_assets.domain.bundle import RunMetadata, RunnerInfo
from harbor_assets.domain.experiments import ExperimentInput
from harbor_assets.domain.policies import account
from harbor_assets.domain.requests import RunRequest, Spec, TaskSelection
from harbor_assets.domain.runs import bundle_key
from harbor_assets.engine.bundle_rows import BundleRows
from harbor_assets.engine.ports import BundleTables
from harbor_assets.engine.ranking import Rankings
from harbor_assets.interfaces.api.app import create_app
from harbor_assets.leaderboard.parquet import ParquetTables
from harbor_assets.leaderboard.store import DuckDbLeaderboard
from tests.cli.conftest import Cli
from tests.cli.test_runs import submit
from tests.interfaces.backends import World
from tests.interfaces.served import served


@pytest.fixture(autouse=True)
def rankings(w: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rankings:
    made = Rankings(
        runs=w.catalog,
        artifacts=w.artifacts,
        store=DuckDbLeaderboard(tmp_path / "board.duckdb"),
        scratch=tmp_path / "scratch",
        staleness=w.staleness,
        tasksets=w.catalog,
        experiments=w.catalog,
    )
    w.rankings = made
    return made


def settle(w: World, tmp_path: Path, *rewards: float, **also: str) -> str:
    """An ended run with the files of a bundle that the leaderboard reads."""
    run_id = submit(w, *"abcdef"[: len(rewards)])
    w.end(run_id, *rewards)
    plan, rows = w.catalog.get_run(run_id).plan, w.catalog.outcomes(run_id)
    tables = tmp_path / "tables"
    tables.mkdir(exist_ok=True)
    columns = [BundleRows.of(plan, rows).trial_columns(row) for row in rows]
    ParquetTables().write(BundleTables(trials=columns, scores=[]), tables)
    for name in (bundle.TRIALS_TABLE, bundle.SCORES_TABLE):
        w.artifacts.put_bytes(f"{bundle_key(run_id)}/{name}", (tables / name).read_bytes())
    w.artifacts.put_bytes(f"{bundle_key(run_id)}/{bundle.OUTCOMES}", b"".join(bundle.lines(rows)))
    labels = {"workspace": "default", "taskset_ref": plan.taskset_ref, "agent": "oracle", "sandbox": "process"} | also
    metadata = RunMetadata(
        labels=labels,
        target=RunnerInfo(name="harbor", kind="runner", version="0.26.0", config={"agent_model_name": None}),
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        finished_at=None,
        duration_sec=None,
    )
    key = bundle_key(run_id)
    w.artifacts.put_bytes(f"{key}/{bundle.METADATA}", bundle.document(metadata))
    w.artifacts.put_bytes(f"{key}/{bundle.OUTCOME_SUMMARY}", bundle.document(account(rows)))
    return run_id


def test_settled_runs_are_listed_with_mean_and_coverage(cli: Cli, w: World, rankings: Rankings, tmp_path: Path):
    run_id = settle(w, tmp_path, 1.0, 0.5)
    ranked = rankings.settled(run_id)
    assert (str(ranked), ranked.runs) == ("1 written", 1)
    said = cli("leaderboard")
    assert (said.code, said.err) == (0, "")
    board, headers, line = said.out.splitlines()
    assert board.startswith("default/suite#")
    assert board.endswith("  process")
    assert headers == "RANK  AGENT   MODEL  MEAN    95 %            SCORED  TASKS  COST  RUN"
    assert line.split() == ["1", "oracle", "-", "0.7500", "0.000", "to", "1.000", "2/2", "2/2", "-", run_id]
    assert cli("leaderboard", "--json").json["runs"][0]["coverage"]["of_trials"] == 2
    (row,) = csv.DictReader(io.StringIO(cli("leaderboard", "--csv").out))
    assert (row["run_id"], row["mean"], row["scored_trials"], row["model"]) == (run_id, "0.75", "2", "")
    assert (row["rank"], row["best_rank"], row["apart"], row["experiment"]) == ("1", "1", "", "")
    assert cli("leaderboard", "--csv", "--json").code == 2


def test_runs_that_are_not_comparable_stand_apart_with_the_difference(
    cli: Cli, w: World, rankings: Rankings, tmp_path: Path
):
    for rewards in ((1.0, 0.0), (1.0, 1.0), (1.0,)):  # the last is of a taskset of one task less
        rankings.settled(settle(w, tmp_path, *rewards))
    assert {line.agent for board in rankings.leaderboard("default").boards for line in board.standings} == {"oracle"}
    said = cli("leaderboard").out
    assert said.count("RANK") == 2
    assert "not ranked with the first board of default/suite: taskset: default/suite#" in said
    assert cli("leaderboard", "--by", "agent,model").out.count("2 runs") == 1
    pooled = list(csv.DictReader(io.StringIO(cli("leaderboard", "--by", "agent,model", "--csv").out)))
    assert sorted(row["mean_missing_as_zero"] for row in pooled) == ["0.75", "1.0"]
    assert {(row["rank"], row["best_rank"], row["worst_rank"]) for row in pooled} == {("1", "1", "1")}
    assert [len(board["standings"]) for board in cli("leaderboard", "--by", "agent", "--json").json["boards"]] == [1, 1]
    assert cli("leaderboard", "--taskset", "suite", "--json").json["boards"] != []
    tag = cli("leaderboard", "--taskset", "suite#latest")
    assert (tag.code, "names a tag" in tag.err) == (2, True)
    assert "'wind' is none of run" in cli("leaderboard", "--by", "wind").err


def test_a_regrade_is_told_and_left_out_of_pools(cli: Cli, w: World, rankings: Rankings, tmp_path: Path):
    one = settle(w, tmp_path, 1.0, 0.0)
    again = settle(w, tmp_path, 0.0, 0.0, regrade_of=one)
    rankings.settled(one)
    rankings.settled(again)
    assert f"regrade: {again} verified again the trials of {one}" in cli("leaderboard").out
    pooled = cli("leaderboard", "--by", "agent")
    assert ("2/2" in pooled.out, "4/4" in pooled.out, "0.5000" in pooled.out) == (True, False, True)
    assert "Left out: 1 regrade, whose trials count in the runs they verify again" in pooled.out
    assert cli("leaderboard", "--by", "agent", "--json").json["left_out"] == [again]
    rows = csv.DictReader(io.StringIO(cli("leaderboard", "--csv").out))
    assert {row["run_id"]: row["regrade_of"] for row in rows} == {one: "", again: one}


def test_what_could_not_be_written_is_shown_and_caught_up_with(
    cli: Cli, w: World, rankings: Rankings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lost = settle(w, tmp_path, 1.0)
    with monkeypatch.context() as broken:
        broken.setattr(DuckDbLeaderboard, "write", lambda *_, **__: 1 / 0)
        assert "ZeroDivisionError" in str(rankings.settled(lost)), "settling goes on"
    said = cli("leaderboard")
    assert f"Not on the leaderboard: 1 ended run ({lost})" in said.err
    assert "harbor-assets leaderboard rebuild" in said.err
    young = settle(w, tmp_path, 0.0)
    assert str(rankings.settled(young)) == "2 written"
    assert {run.run_id for run in rankings.leaderboard("default").runs} == {lost, young}
    assert rankings.leaderboard("default").missing == ()


def test_ended_runs_of_other_workspaces_are_counted_and_not_named(cli: Cli, w: World, rankings: Rankings):
    w.publish("a")
    request = RunRequest(spec=Spec(tasks=TaskSelection(taskset="default/suite")))
    secret = w.evaluations.submit("secret", request).run.id
    w.end(secret, 1.0)
    found = rankings.leaderboard("default")
    assert (found.missing, found.missing_elsewhere) == ((), 1)
    said = cli("leaderboard")
    assert "of other workspaces: 1 ended run" in said.err
    assert secret not in said.err
    assert rankings.leaderboard("secret").missing == (secret,)


def test_a_name_that_nothing_has_is_not_found(cli: Cli, w: World, rankings: Rankings, tmp_path: Path):
    rankings.settled(settle(w, tmp_path, 1.0))
    for option, value in (("--taskset", "suit"), ("--taskset", "suite#abcdef"), ("--experiment", "nope")):
        said = cli("leaderboard", option, value)
        assert (said.code, said.out) == (2, "")
        assert f"is of {'a taskset' if option == '--taskset' else 'an experiment'}" in said.err
    assert "did you mean default/suite?" in cli("leaderboard", "--taskset", "suit").err
    assert cli("leaderboard", "--taskset", "other/suite").code == 2
    assert "not the name of an experiment" in cli("leaderboard", "--experiment", "a\0").err
    w.publish("a", taskset="young")
    w.catalog.create_experiment("default", ExperimentInput(name="young"))
    for option in ("--taskset", "--experiment"):
        assert cli("leaderboard", option, "young").out == "No ended run to show\n", "it is there, and has no run yet"
    w.catalog.delete_taskset("default", "suite")
    assert cli("leaderboard", "--taskset", "suite").out.count("RANK") == 1, "its runs stand"


def test_a_rebuild_names_the_runs_whose_bundle_is_gone(cli: Cli, w: World, rankings: Rankings, tmp_path: Path):
    whole, gone = settle(w, tmp_path, 1.0), settle(w, tmp_path, 0.5)
    rankings.settled(gone)
    w.artifacts.remove(f"{bundle_key(gone)}/{bundle.TRIALS_TABLE}")
    said = cli("leaderboard", "rebuild")
    assert said.code == 0
    assert "made afresh: 1 run" in said.out
    assert f"Not on the leaderboard: {gone}: " in said.err
    assert [run.run_id for run in rankings.leaderboard("default").runs] == [whole]


def test_a_service_answers_the_same(cli: Cli, w: World, rankings: Rankings, tmp_path: Path):
    rankings.settled(settle(w, tmp_path, 1.0))
    backend = replace(w.backend, rankings=rankings)
    with served(create_app(backend)) as url:
        assert cli("leaderboard", "--base-url", url).out == cli("leaderboard").out
        assert "1 run" in cli("leaderboard", "rebuild", "--base-url", url).out


def test_what_rests_on_a_bad_task_or_run_is_stale_and_keeps_its_figures(
    cli: Cli, w: World, rankings: Rankings, tmp_path: Path
):
    one, two = settle(w, tmp_path, 1.0, 0.5), settle(w, tmp_path, 1.0, 1.0)
    rankings.settled(one)
    rankings.settled(two)
    assert "stale" not in cli("leaderboard").out
    w.marking.mark_bad("default", one, "a wrong model answered")
    said = cli("leaderboard").out
    assert "0.7500 (stale)" in said
    assert "1.0000 (stale)" not in said
    assert f"Warning: {one} is marked bad: a wrong model answered (me, " in said
    found = rankings.leaderboard("default")
    assert {line.run_ids[0]: (line.stale, line.rank) for line in found.boards[0].standings} == {
        two: (False, 1),
        one: (True, 2),
    }
    w.marking.withdraw("default", one)
    ref = w.marking.mark_bad("default", "b", "no good").subject
    found = rankings.leaderboard("default")
    assert all(line.stale for line in found.boards[0].standings)
    assert {run: [mark.subject for mark in marks] for run, marks in found.marks.items()} == {one: [ref], two: [ref]}
    assert [row["stale"] for row in csv.DictReader(io.StringIO(cli("leaderboard", "--csv").out))] == ["True", "True"]
