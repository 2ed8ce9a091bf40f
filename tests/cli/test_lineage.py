"""Lineage both ways, from the command line down to the catalog."""

from typing import Any

import pytest

from harbor_assets.domain.outcomes import Reason
from harbor_assets.domain.requests import RunRequest
from harbor_assets.partitions import run_task_key
from tests.cli.conftest import Cli
from tests.interfaces.backends import World, outcome


@pytest.fixture
def runs(w: World) -> list[str]:
    """Two ended runs of two tasks: in the second, the second task has no score."""
    w.publish("one", "two")
    found: list[str] = []
    for key, endings in (("benchmark/nightly/2026-11-28", (1.0, 0.5)), (None, (0.0, Reason.WORKER_LOST))):
        request = RunRequest.model_validate({"spec": {"tasks": {"taskset": "suite"}}})
        run_id = w.evaluations.submit("default", request, idempotency_key=key).run.id
        w.end(run_id, *endings)
        found.append(run_id)
    return found


def named(node: dict[str, Any], kind: str) -> list[str]:
    mine = [node["name"]] if node["kind"] == kind else []
    return mine + [name for child in node["children"] for name in named(child, kind)]


def test_up_from_a_run_to_all_that_made_it(w: World, cli: Cli, runs: list[str]) -> None:
    found = cli("lineage", runs[0], "--json").json
    plan = w.catalog.get_run(runs[0]).plan
    assert found["direction"] == "up"
    root = found["root"]
    assert (root["kind"], root["name"], root["facts"]["mean"]) == ("run", runs[0], 0.75)
    assert named(root, "taskset") == [plan.taskset_ref]
    assert named(root, "task") == [task.ref for task in plan.tasks]
    assert named(root, "archive") == [task.fileset_ref for task in plan.tasks]
    assert (named(root, "agent"), named(root, "sandbox")) == (["oracle"], ["process"])
    assert len(named(root, "trial")) == 2
    assets = named(root, "asset")
    assert f"trial_results[{run_task_key(runs[0], 1)}]" in assets
    assert {f"merged_bundle[{runs[0]}]", "leaderboard", "benchmark/nightly[2026-11-28]"} <= set(assets)
    assert "benchmark/nightly[2026-11-28]" not in named(cli("lineage", runs[1], "--json").json["root"], "asset")


def test_up_from_a_trial_to_its_verifiers_output(w: World, cli: Cli, runs: list[str]) -> None:
    request = RunRequest.model_validate({"spec": {"tasks": {"taskset": "suite"}}})
    run = w.catalog.get_run(w.evaluations.submit("default", request).run.id)
    for task, reward in zip(run.plan.tasks, (1.0, 0.5), strict=True):
        row = outcome(run.id, task, reward)
        w.catalog.add_outcome(row.model_copy(update={"evidence": f"evidence/{row.trial_id}"}))
    folder = f"evidence/{row.trial_id}"
    w.put_bundle(run.id, {f"{folder}/verifier/reward.txt": b"0.5", f"{folder}/agent/log": b""})
    for subject in (f"{run.id}/1/1", f"{run.id}/two/1", f"{run.id}/two"):
        root = cli("lineage", subject, "--json").json["root"]
        assert named(root, "trial") == [row.trial_id]
        assert named(root, "file") == [f"{folder}/verifier/reward.txt"]
        assert root["facts"]["mean"] == 0.75  # the run's own
    out = cli("lineage", f"{run.id}/1").out
    assert f"run {run.id}: mean 0.7500, scored 2 of 2 trials" in out
    assert "   └─ trial " in out
    assert "reward 0.5" in out


def test_down_from_a_task_to_every_run_trial_and_score(w: World, cli: Cli, runs: list[str]) -> None:
    ref = w.catalog.get_task("default", "one").ref
    for subject in (ref, "one"):
        root = cli("lineage", subject, "--json").json["root"]
        assert (root["kind"], root["name"]) == ("task", ref)
        assert named(root, "run") == [runs[1], runs[0]]
        assert len(named(root, "trial")) == 2
        assert {name: root["facts"][name] for name in ("runs", "trials", "scored", "mean")} == {
            "runs": 2, "trials": 2, "scored": 2, "mean": 0.5,
        }  # fmt: skip
    two = cli("lineage", "two", "--json").json["root"]
    assert (two["facts"]["scored"], two["facts"]["trials"]) == (1, 2)
    suite = cli("lineage", "suite", "--json").json["root"]
    assert (suite["kind"], named(suite, "run")) == ("taskset", [runs[1], runs[0]])
    w.catalog.delete_task("default", "one")
    root = cli("lineage", ref, "--json").json["root"]
    assert (root["facts"]["deleted"], named(root, "run")) == (True, [runs[1], runs[0]])


def test_what_is_marked_says_so_in_both_directions(w: World, cli: Cli, runs: list[str]) -> None:
    ref = w.marking.mark_bad("default", "one", "no good").subject
    w.marking.mark_bad("default", runs[1], "wrong model")
    up = cli("lineage", runs[0], "--json").json["root"]
    assert up["stale"]
    assert [child["stale"] for child in up["children"] if child["kind"] == "task"] == [True, False]
    said = cli("lineage", ref)
    assert f"run {runs[1]} (stale) (phase completed" in said.out
    assert "Warning: default/one#" in said.out
    assert "is marked bad: wrong model (me" in said.out
    assert not cli("lineage", f"{runs[0]}/two", "--json").json["root"]["children"][-1]["stale"]


def test_what_there_is_not_is_said(cli: Cli, runs: list[str]) -> None:
    for subject, told in (
        ("run-0000000000000000", "not found"),
        (f"{runs[0]}/7", "is the index of no task"),
        (f"{runs[0]}/1/9", "has no ended trial 9"),
        (f"{runs[0]}/1/1/1", "is not RUN, RUN/TASK or RUN/TASK/K"),
        ("nothing", "default/nothing. There is no taskset of that name either"),
        ("sha256:dead", "of a task or taskset ([WORKSPACE/]NAME[#REVISION]), or of an image"),
        ("a b", "is not a reference"),
    ):
        said = cli("lineage", subject)
        assert said.code == 2, subject
        assert told in said.err
    assert cli("lineage", "sha256:" + "0" * 64, "--json").json["root"]["facts"]["runs"] == 0
